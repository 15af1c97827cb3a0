"""Passwords and sessions of accounts, deleted benchmarks, and registrations of devices."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0020"


def upgrade() -> None:
    """Nobody has a password yet, and tokens that exist belong to no session."""
    op.create_table(
        "logins",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_logins"),
        sa.UniqueConstraint("email", name="uq_logins_email"),
    )
    op.add_column(
        "tokens", sa.Column("refreshes", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("tokens", sa.Column("session_id", sa.Text()))
    op.create_table(
        "registrations",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_registrations"),
    )
    op.create_table(
        "deleted_benchmarks",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_deleted_benchmarks"),
        sa.ForeignKeyConstraint(
            ["benchmark_id"],
            ["benchmarks.benchmark_id"],
            name="fk_deleted_benchmarks_benchmark_id",
        ),
    )
