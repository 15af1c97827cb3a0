"""Numbers of runs with their errors, from which the variance between runs is estimated."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0023"


def upgrade() -> None:
    """What ended before is not among the repeated numbers."""
    op.add_column("outcomes", sa.Column("workload", sa.Text()))
    op.add_column("outcomes", sa.Column("p50_error", sa.Float()))
    for column in ("target_uid", "family"):
        op.create_index(
            f"ix_outcomes_repeated_{column}",
            "outcomes",
            [column, "seq"],
            sqlite_where=sa.text("p50_error IS NOT NULL"),
            postgresql_where=sa.text("p50_error IS NOT NULL"),
        )
