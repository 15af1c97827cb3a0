"""Benchmarks belong to series of results over time."""

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0069"

_NAMED = sa.text("series IS NOT NULL")
_POINT = sa.text("status = 'completed' AND series IS NOT NULL AND target_uid IS NOT NULL")


def upgrade() -> None:
    """Add lineage and work; those before are in the series of their model, of unknown work."""
    op.add_column("benchmarks", sa.Column("series", sa.Text))
    op.add_column(
        "benchmarks", sa.Column("work", sa.Text, nullable=False, server_default=sa.text("''"))
    )
    op.execute(
        "UPDATE benchmarks SET series = model WHERE NOT EXISTS (SELECT 1 FROM benchmark_tags"
        " WHERE benchmark_tags.benchmark_id = benchmarks.benchmark_id"
        " AND benchmark_tags.tag = 'edgeyard-check')"
    )
    op.create_index(
        "ix_benchmarks_series",
        "benchmarks",
        ["series", "submit_time", "benchmark_id"],
        sqlite_where=_NAMED,
        postgresql_where=_NAMED,
    )
    op.create_index(
        "ix_benchmarks_points",
        "benchmarks",
        ["series", "user_id", "target_uid", "engine", "benchmark_type", "work", "ended_at"],
        sqlite_where=_POINT,
        postgresql_where=_POINT,
    )
