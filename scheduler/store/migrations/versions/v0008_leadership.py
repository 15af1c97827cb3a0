"""Who leads, and a board that is decided is held by one live attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_HOLDS_BOARD = "state <> 'ended' AND binding = 'strict'"

# Two servers of before could decide on one board. The newest decision stands; the others keep their
# jobs, whose boards count as the cluster's choice. One benchmark has one live attempt.
_LEAVE_ONE = f"""
    UPDATE attempts SET binding = 'filtered'
    WHERE {_HOLDS_BOARD} AND EXISTS (
        SELECT 1 FROM attempts AS newer
        WHERE newer.state <> 'ended' AND newer.binding = 'strict'
        AND newer.target_uid = attempts.target_uid
        AND (
            newer.created_at > attempts.created_at
            OR (
                newer.created_at = attempts.created_at
                AND newer.benchmark_id > attempts.benchmark_id
            )
        )
    )
"""


def upgrade() -> None:
    """Nobody leads yet, and each board is held by one live attempt at most."""
    op.execute(_LEAVE_ONE)
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
