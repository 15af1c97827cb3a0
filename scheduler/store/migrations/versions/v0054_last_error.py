"""The error of a webhook's last delivery is named as such."""

from alembic import op

revision = "0054"
down_revision = "0053"


def upgrade() -> None:
    """Rename the column."""
    op.execute("ALTER TABLE webhooks RENAME COLUMN trouble TO last_error")
