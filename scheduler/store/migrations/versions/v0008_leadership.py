"""Who leads, and a board that is decided is held by one live attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_HOLDS_BOARD = "state <> 'ended' AND binding = 'strict'"


def upgrade() -> None:
    """Nobody leads yet."""
    leadership = op.create_table(
        "leadership",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("only", name="pk_leadership"),
    )
    op.bulk_insert(leadership, [{"only": 1, "epoch": 0, "renewals": 0, "server_id": "", "url": ""}])
    op.create_index(
        "uq_attempts_board",
        "attempts",
        ["target_uid"],
        unique=True,
        sqlite_where=sa.text(_HOLDS_BOARD),
        postgresql_where=sa.text(_HOLDS_BOARD),
    )
