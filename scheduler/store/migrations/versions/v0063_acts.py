"""The log of acts."""

import sqlalchemy as sa
from alembic import op

revision = "0063"
down_revision = "0062"


def upgrade() -> None:
    """Add the table; who did what before is not known."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "acts",
        sa.Column("seq", number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("door", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("email", sa.Text),
        sa.Column("token_id", sa.Text),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("board", sa.Text),
        sa.Column("benchmark_id", sa.Text),
        sa.Column("owner_id", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("ix_acts_at", "acts", ["at"])
    for name, column in (
        ("user", "user_id"),
        ("kind", "kind"),
        ("board", "board"),
        ("benchmark", "benchmark_id"),
        ("owner", "owner_id"),
    ):
        op.create_index(f"ix_acts_{name}", "acts", [column, "seq"])
