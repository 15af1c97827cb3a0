"""Credits, quotas, leases, quarantine."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Nobody has a bound, a lease or a debt yet; live attempts cost nothing."""
    op.add_column("users", sa.Column("max_running", sa.Integer()))
    op.add_column("users", sa.Column("share", sa.Float(), nullable=False, server_default="1"))
    op.add_column("users", sa.Column("max_lease_s", sa.Float(), nullable=False, server_default="0"))
    op.add_column("benchmarks", sa.Column("user_priority", sa.Integer()))
    op.add_column("attempts", sa.Column("time_limit_s", sa.Float()))
    op.create_table(
        "balances",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("credits", sa.BigInteger()),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("spent", sa.BigInteger(), nullable=False),
        sa.Column("usage_board_s", sa.Float(), nullable=False),
        sa.Column("usage_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("user_id", name="pk_balances"),
    )
    op.create_table(
        "charges",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float(), nullable=False),
        sa.Column("time_limit_s", sa.Float(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("reserved_at", sa.BigInteger(), nullable=False),
        sa.Column("charged", sa.BigInteger()),
        sa.Column("board_s", sa.Float()),
        sa.Column("refunded", sa.Text(), nullable=False),
        sa.Column("settled_at", sa.BigInteger()),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_charges_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "attempt", name="pk_charges"),
    )
    op.create_index("ix_charges_user", "charges", ["user_id", "reserved_at"], unique=False)
    op.create_index(
        "ix_charges_open",
        "charges",
        ["user_id"],
        unique=False,
        sqlite_where=sa.text("settled_at IS NULL"),
        postgresql_where=sa.text("settled_at IS NULL"),
    )
    op.create_table(
        "rates",
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("family", name="pk_rates"),
    )
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.Text(), nullable=False),
        sa.Column("target_uid", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("lease_id", name="pk_leases"),
    )
    op.create_index("ix_leases_until", "leases", ["until"], unique=False)
    op.create_table(
        "quarantines",
        sa.Column("target_uid", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by_user_id", sa.Text()),
        sa.Column("failure_rate", sa.Float()),
        sa.Column("probes", sa.Integer(), nullable=False),
        sa.Column("probe_id", sa.Text()),
        sa.Column("next_probe_at", sa.BigInteger()),
        sa.Column("lifted_at", sa.BigInteger()),
        sa.Column("lifted_by", sa.Text()),
        sa.PrimaryKeyConstraint("target_uid", name="pk_quarantines"),
    )
