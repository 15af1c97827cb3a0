"""Outcomes state the primary metric: that of runs whose engine declares another than the p50."""

import sqlalchemy as sa
from alembic import op

revision = "0062"
down_revision = "0061"


def upgrade() -> None:
    """The primary metric of every outcome until now is the p50."""
    for name in ("target_uid", "family"):
        op.drop_index(f"ix_outcomes_repeated_{name}", "outcomes")
    op.alter_column("outcomes", "p50_error", new_column_name="primary_error")
    for name in ("primary_metric", "primary_unit", "primary_better"):
        op.add_column("outcomes", sa.Column(name, sa.Text))
    op.add_column("outcomes", sa.Column("primary_value", sa.Float))
    op.execute(
        sa.text(
            "UPDATE outcomes SET primary_metric = 'p50', primary_unit = 'ms', "
            "primary_better = 'lower', primary_value = latency_p50_ms "
            "WHERE latency_p50_ms IS NOT NULL"
        )
    )
    for name in ("target_uid", "family"):
        op.create_index(
            f"ix_outcomes_repeated_{name}",
            "outcomes",
            [name, "seq"],
            sqlite_where=sa.text("primary_error IS NOT NULL"),
            postgresql_where=sa.text("primary_error IS NOT NULL"),
        )
