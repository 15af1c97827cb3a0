"""What was used is reported by month, also of benchmarks that were deleted by age."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0066"
down_revision = "0065"


def _attempts(value: str) -> str:
    return (
        f"(SELECT {value} FROM attempts AS a JOIN benchmarks AS b "
        "ON b.benchmark_id = a.benchmark_id WHERE a.benchmark_id = charges.benchmark_id "
        "AND a.number = charges.attempt)"
    )


def upgrade() -> None:
    """Charges state what they were for; they and idle times count in a month each."""
    op.drop_index("ix_charges_open", "charges")
    with op.batch_alter_table("charges") as table:
        table.drop_constraint("fk_charges_benchmark_id", type_="foreignkey")
        table.add_column(sa.Column("engine", sa.Text, nullable=False, server_default=""))
        table.add_column(sa.Column("target_uid", sa.Text))
        table.add_column(sa.Column("wait_s", sa.Float))
        table.add_column(sa.Column("failure", sa.Text))
        table.add_column(sa.Column("joules", sa.Float))
        table.add_column(sa.Column("group_id", sa.Text))
    with op.batch_alter_table("charges") as table:
        table.alter_column("engine", server_default=None)
    op.execute(
        sa.text(
            f"UPDATE charges SET engine = coalesce({_attempts('b.engine')}, ''), "
            f"target_uid = {_attempts('a.target_uid')}, failure = {_attempts('a.failure_category')}"
        )
    )
    waited_us = "a.started_at - b.submit_time"
    wait = f"CASE WHEN {waited_us} < 0 THEN 0.0 ELSE ({waited_us}) / 1000000.0 END"
    started = "CASE WHEN a.started_at IS NOT NULL THEN " + wait + " END"
    op.execute(
        sa.text(f"UPDATE charges SET wait_s = {_attempts(started)} WHERE settled_at IS NOT NULL")
    )
    op.create_index("ix_charges_settled_at", "charges", ["settled_at"])
    op.create_index(
        "ix_charges_open",
        "charges",
        ["user_id"],
        sqlite_where=sa.text("settled_at IS NULL"),
        postgresql_where=sa.text("settled_at IS NULL"),
    )
    _count_idle_times_by_month()
    op.add_column("users", sa.Column("group_id", sa.Text))
    op.create_table(
        "board_months",
        sa.Column("target_uid", sa.Text, primary_key=True),
        sa.Column("month", sa.Text, primary_key=True),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("busy_s", sa.Float, nullable=False),
        sa.Column("idle_s", sa.Float, nullable=False),
        sa.Column("down_s", sa.Float, nullable=False),
    )


def _count_idle_times_by_month() -> None:
    """Make the month a part of the key; what was charged until now counts where it ended."""
    found = op.get_bind().execute(sa.text("SELECT * FROM idle_times")).mappings()
    rows = [
        {**row, "month": f"{datetime.fromtimestamp(row['until'] // 10**6, UTC):%Y-%m}"}
        for row in found
    ]
    op.drop_table("idle_times")
    idle_times = op.create_table(
        "idle_times",
        sa.Column("keeper_id", sa.Text, primary_key=True),
        sa.Column("month", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("family", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("board_s", sa.Float, nullable=False),
        sa.Column("charged", sa.BigInteger, nullable=False),
        sa.Column("group_id", sa.Text),
    )
    op.create_index("ix_idle_times_user", "idle_times", ["user_id", "until"])
    op.bulk_insert(idle_times, rows)
