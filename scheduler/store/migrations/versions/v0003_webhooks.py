"""Users' webhooks, and pending deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Nobody has one yet."""
    op.create_table(
        "webhooks",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("salt", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_seq", sa.BigInteger(), nullable=False),
        sa.Column("trouble", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_webhooks"),
    )
    op.create_table(
        "deliveries",
        sa.Column("event_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_seq", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_next_at", "deliveries", ["next_at"], unique=False)
    op.create_index("ix_deliveries_user_id", "deliveries", ["user_id"], unique=False)
