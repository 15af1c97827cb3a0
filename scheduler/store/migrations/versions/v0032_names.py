"""Names of benchmarks, the schedules that submitted them, and lists of campaigns."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """What was submitted before has no name and no schedule."""
    for column in ("schedule_id", "name"):
        op.add_column("benchmarks", sa.Column(column, sa.Text()))
        op.create_index(
            f"ix_benchmarks_{column}",
            "benchmarks",
            [column, "submit_time", "benchmark_id"],
            sqlite_where=sa.text(f"{column} IS NOT NULL"),
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )
    op.create_index("ix_campaigns_created_at", "campaigns", ["created_at", "campaign_id"])
    for name, column in (("user", "user_id"), ("name", "name")):
        op.create_index(f"ix_campaigns_{name}", "campaigns", [column, "created_at", "campaign_id"])
