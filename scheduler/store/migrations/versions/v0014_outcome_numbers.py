"""Outcomes are numbered in the order of their commits; cycles name the past runs that they knew.

Before, each recorded cycle stored the past runs of the whole day again. Records of that kind keep
their explanations, but are decided again as if nothing had run before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0008"

_COLUMNS = (
    "benchmark_id, attempt, target_uid, family, engine, benchmark_type, model_sha256, wait_s,"
    " run_s, failure_category, latency_p50_ms, verdict, ended_at, user_id, nb_inference, variant"
)


def upgrade() -> None:
    """Number what is there by the time of its end."""
    op.execute(
        "CREATE TABLE numbered_outcomes AS SELECT"
        " row_number() OVER (ORDER BY ended_at, benchmark_id, attempt) AS seq,"
        f" {_COLUMNS} FROM outcomes"
    )
    op.drop_index("ix_outcomes_ended_at", "outcomes")
    op.drop_table("outcomes")
    op.create_table(
        "outcomes",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False,
            nullable=False,
        ),
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("target_uid", sa.Text(), nullable=True),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("benchmark_type", sa.Text(), nullable=False),
        sa.Column("model_sha256", sa.Text(), nullable=True),
        sa.Column("wait_s", sa.Float(), nullable=True),
        sa.Column("run_s", sa.Float(), nullable=True),
        sa.Column("failure_category", sa.Text(), nullable=True),
        sa.Column("latency_p50_ms", sa.Float(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False, server_default=""),
        sa.Column("nb_inference", sa.Integer(), nullable=False, server_default="20"),
        sa.Column("variant", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("seq", name="pk_outcomes"),
    )  # fmt: skip
    op.execute(
        f"INSERT INTO outcomes (seq, {_COLUMNS}) SELECT seq, {_COLUMNS} FROM numbered_outcomes"
    )
    op.drop_table("numbered_outcomes")
    op.create_index("uq_outcomes_attempt", "outcomes", ["benchmark_id", "attempt"], unique=True)
    op.create_index("ix_outcomes_ended_at", "outcomes", ["ended_at"], unique=False)
    op.add_column("cycles", sa.Column("runs_first", sa.BigInteger(), nullable=True))
    op.add_column("cycles", sa.Column("runs_last", sa.BigInteger(), nullable=True))
    op.create_index("ix_cycles_runs_first", "cycles", ["runs_first"], unique=False)
