"""A cycle explains a benchmark by itself: no other reason is stored beside it."""

from alembic import op

revision = "0040"
down_revision = "0030"


def upgrade() -> None:
    """Drop the reasons; each benchmark has its present one."""
    with op.batch_alter_table("explanations") as table:
        table.drop_column("reason")
        table.drop_column("sentence")
