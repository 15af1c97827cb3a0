"""What bookings and leases cost because they keep boards idle."""

import sqlalchemy as sa
from alembic import op

revision = "0061"
down_revision = "0060"


def upgrade() -> None:
    """Add the table; nothing is charged for the past."""
    op.create_table(
        "idle_times",
        sa.Column("keeper_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("board_s", sa.Float, nullable=False),
        sa.Column("charged", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_idle_times_user", "idle_times", ["user_id", "until"])
