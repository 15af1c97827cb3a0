"""Points of series are read in the order of their series, and series that are due in theirs."""

import sqlalchemy as sa
from alembic import op

revision = "0076"
down_revision = "0075"

_POINT = sa.text("status = 'completed' AND series IS NOT NULL AND target_uid IS NOT NULL")
_DUE = sa.text("due_since IS NOT NULL")


def upgrade() -> None:
    """Replace the indexes."""
    op.drop_index("ix_benchmarks_points", "benchmarks")
    op.create_index(
        "ix_benchmarks_points",
        "benchmarks",
        [
            *("status", "user_id", "series", "target_uid", "engine", "benchmark_type"),
            *("work", "ended_at", "benchmark_id"),
        ],
        sqlite_where=_POINT,
        postgresql_where=_POINT,
    )
    op.drop_index("ix_watched_series_due_since", "watched_series")
    op.create_index(
        "ix_watched_series_due",
        "watched_series",
        ["due_since", "series_id"],
        sqlite_where=_DUE,
        postgresql_where=_DUE,
    )
