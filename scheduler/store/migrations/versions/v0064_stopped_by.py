"""Benchmarks state who holds or has cancelled them, leases who has ended them."""

import sqlalchemy as sa
from alembic import op

revision = "0064"
down_revision = "0063"


def upgrade() -> None:
    """Add who stopped a benchmark; of those that were stopped before it is not known."""
    for name in ("stopped_by", "stopped_reason"):
        op.add_column("benchmarks", sa.Column(name, sa.Text))
    op.add_column("leases", sa.Column("ended_by", sa.Text))
