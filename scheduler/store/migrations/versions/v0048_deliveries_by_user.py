"""An event is delivered to each user whom it concerns, not to one alone."""

from alembic import op

revision = "0048"
down_revision = "0047"


def upgrade() -> None:
    """Make the user a part of the key; pending deliveries stay."""
    with op.batch_alter_table("deliveries") as table:
        table.drop_constraint("pk_deliveries", type_="primary")
        table.create_primary_key("pk_deliveries", ["event_seq", "user_id"])
