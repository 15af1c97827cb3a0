"""Recorded cycles. Explanations point to theirs; those of before are gone."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """No cycle was recorded yet."""
    op.create_table(
        "cycles",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True,
            nullable=False,
        ),
        sa.Column("decided_at", sa.BigInteger(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("shadow_of", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_cycles"),
    )  # fmt: skip
    op.create_index("ix_cycles_decided_at", "cycles", ["decided_at"], unique=False)
    op.create_table(
        "activations",
        sa.Column("seat", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seat", name="pk_activations"),
    )
    op.create_table(
        "policies",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name="pk_policies"),
    )
    op.create_table(
        "policy_overrides",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_policy_overrides_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_policy_overrides"),
    )
    op.create_table(
        "part_contents",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_part_contents"),
    )
    op.create_table(
        "cycle_parts",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", "place", name="pk_cycle_parts"),
    )
    op.create_index("ix_cycle_parts_sha256", "cycle_parts", ["sha256"], unique=False)
    op.drop_table("explanations")
    op.create_table(
        "explanations",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("sentence", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_explanations_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_explanations"),
    )
    op.create_index("ix_explanations_seq", "explanations", ["seq"], unique=False)
