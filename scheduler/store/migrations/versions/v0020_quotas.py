"""What each user has stored, and accounts' own quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0017"

_QUOTAS = (
    *("max_bytes", "max_files", "max_pending", "max_live", "max_schedules", "max_tokens"),
    *("max_run_files", "max_run_bytes"),
)

_NAMES = """
    SELECT user_id, sha256, size_bytes FROM user_files
    UNION ALL
    SELECT b.user_id, f.sha256, f.size_bytes FROM benchmark_files f
    JOIN benchmarks b ON b.benchmark_id = f.benchmark_id
    WHERE f.sha256 IS NOT NULL
    UNION ALL
    SELECT b.user_id, r.sha256, r.size_bytes FROM result_files r
    JOIN benchmarks b ON b.benchmark_id = r.benchmark_id
"""


def upgrade() -> None:
    """Count what is stored now; accounts have no quotas of their own."""
    for name in _QUOTAS:
        op.add_column("users", sa.Column(name, sa.BigInteger()))
    op.add_column(
        "benchmark_files",
        sa.Column("kept", sa.Boolean(), nullable=False, server_default=sa.true()),
    )
    op.create_table(
        "user_contents",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("names", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "sha256", name="pk_user_contents"),
    )
    op.create_table(
        "user_usage",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_user_usage"),
    )
    op.execute(
        "INSERT INTO user_contents (user_id, sha256, size_bytes, names) "
        "SELECT user_id, sha256, COALESCE(MAX(size_bytes), 0), COUNT(*) "
        f"FROM ({_NAMES}) AS named GROUP BY user_id, sha256"
    )
    op.execute(
        "INSERT INTO user_usage (user_id, stored_bytes) "
        "SELECT user_id, SUM(size_bytes) FROM user_contents GROUP BY user_id"
    )
