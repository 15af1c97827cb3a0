"""What the canaries of boards depend on."""

import sqlalchemy as sa
from alembic import op

revision = "0072"
down_revision = "0071"


def upgrade() -> None:
    """Add one table."""
    op.create_table(
        "canary_boards",
        sa.Column("target_uid", sa.Text, primary_key=True),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("benchmark_id", sa.Text),
        sa.Column("measured", sa.Text, nullable=False),
    )
