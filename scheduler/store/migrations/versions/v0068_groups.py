"""Groups of users have limits, credits and a share of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0068"
down_revision = "0067"


def upgrade() -> None:
    """Each group that an account names becomes one without limits."""
    groups = op.create_table(
        "user_groups",
        sa.Column("group_id", sa.Text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("share", sa.Float, nullable=False),
        sa.Column("credits", sa.BigInteger),
        sa.Column("max_running", sa.Integer),
        sa.Column("max_bytes", sa.BigInteger),
        sa.Column("max_files", sa.BigInteger),
        sa.Column("max_pending", sa.BigInteger),
        sa.Column("max_live", sa.BigInteger),
        sa.Column("max_bookings", sa.BigInteger),
        sa.Column("max_schedules", sa.BigInteger),
        sa.Column("usage_board_s", sa.Float, nullable=False),
        sa.Column("usage_at", sa.BigInteger),
    )
    op.create_index("ix_users_group_id", "users", ["group_id"])
    named = op.get_bind().execute(
        sa.text(
            "SELECT group_id, min(created_at) AS created_at FROM users "
            "WHERE group_id IS NOT NULL GROUP BY group_id"
        )
    )
    rows = [{**row, "share": 1.0, "usage_board_s": 0.0} for row in named.mappings()]
    op.bulk_insert(groups, rows)
