"""The lease states the machine's clock that was set last, so that its step is taken only once."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0036"


def upgrade() -> None:
    """Add the column; nobody's clock was set yet."""
    op.add_column("leadership", sa.Column("clock", sa.Text, nullable=False, server_default=""))
