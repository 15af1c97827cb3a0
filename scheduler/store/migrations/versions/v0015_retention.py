"""Indexes along which old rows are found, so that nothing is searched for while others wait."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0016"

_HAS_HCL = sa.text("state = 'ended' AND hcl <> ''")
_RETRIES = sa.text("retry_of IS NOT NULL")


def upgrade() -> None:
    """Nothing of what is stored changes."""
    op.create_index("ix_benchmarks_ended_at", "benchmarks", ["ended_at"])
    op.create_index(
        "ix_benchmarks_retry_of", "benchmarks", ["retry_of"],
        sqlite_where=_RETRIES, postgresql_where=_RETRIES,
    )  # fmt: skip
    op.create_index("ix_benchmark_tags_benchmark_id", "benchmark_tags", ["benchmark_id"])
    op.create_index(
        "ix_attempts_hcl", "attempts", ["ended_at"],
        sqlite_where=_HAS_HCL, postgresql_where=_HAS_HCL,
    )  # fmt: skip
    op.create_index("ix_result_files_received_at", "result_files", ["received_at"])
