"""The states that boards were in."""

import sqlalchemy as sa
from alembic import op

revision = "0069"
down_revision = "0068"


def upgrade() -> None:
    """Add their table."""
    op.create_table(
        "board_states",
        sa.Column("target_uid", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("benchmark_id", sa.Text),
    )
    op.create_index("ix_board_states_at", "board_states", ["at", "target_uid"])
