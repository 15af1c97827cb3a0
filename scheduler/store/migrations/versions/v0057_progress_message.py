"""Running benchmarks state what is known of their number so far."""

import sqlalchemy as sa
from alembic import op

revision = "0057"
down_revision = "0056"


def upgrade() -> None:
    """Nothing is known of those that run now; their next report states it."""
    op.add_column("benchmarks", sa.Column("progress_message", sa.Text))
