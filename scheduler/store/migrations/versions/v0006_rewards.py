"""Rewards and weights of scorers."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Nobody has learned anything yet."""
    op.create_table(
        "scorers",
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("scorer", sa.Text(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=True),
        sa.Column("rounds", sa.BigInteger(), nullable=False),
        sa.Column("reward_sum", sa.Float(), nullable=False),
        sa.Column("outcomes", sa.BigInteger(), nullable=False),
        sa.Column("outcome_sum", sa.Float(), nullable=False),
        sa.Column("faults", sa.BigInteger(), nullable=False),
        sa.Column("faults_in_row", sa.Integer(), nullable=False),
        sa.Column("benches", sa.Integer(), nullable=False),
        sa.Column("last_fault", sa.Text(), nullable=False),
        sa.Column("last_fault_at", sa.BigInteger(), nullable=True),
        sa.Column("benched_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("policy", "scorer", name="pk_scorers"),
    )
    op.create_table(
        "reward_rounds",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True,
            nullable=False,
        ),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("rewards", sa.Text(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_reward_rounds"),
    )  # fmt: skip
    op.create_index("ix_reward_rounds_at", "reward_rounds", ["at"], unique=False)
    op.create_index("ix_reward_rounds_policy", "reward_rounds", ["policy", "seq"], unique=False)
    op.create_table(
        "placement_ratings",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("worths", sa.Text(), nullable=False),
        sa.Column("expected_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("benchmark_id", "attempt", name="pk_placement_ratings"),
    )
