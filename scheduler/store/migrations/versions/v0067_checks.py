"""Checks that the server drives."""

import sqlalchemy as sa
from alembic import op

revision = "0067"
down_revision = "0066"


def upgrade() -> None:
    """Add their table."""
    op.create_table(
        "checks",
        sa.Column("check_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("baseline", sa.Text, nullable=False),
        sa.Column("candidate", sa.Text, nullable=False),
        sa.Column("max_slowdown", sa.Float, nullable=False),
        sa.Column("budget_s", sa.Float, nullable=False),
        sa.Column("max_pairs", sa.Integer, nullable=False),
        sa.Column("versions", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("target_uid", sa.Text),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("pairs", sa.Text, nullable=False),
        sa.Column("run_ids", sa.Text, nullable=False),
        sa.Column("errors", sa.Text, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_index("ix_checks_user", "checks", ["user_id", "created_at", "check_id"])
    op.create_index("ix_checks_created_at", "checks", ["created_at", "check_id"])
    op.create_index("ix_checks_status", "checks", ["status"])
    op.create_index("ix_checks_ended_at", "checks", ["ended_at"])
