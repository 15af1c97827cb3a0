"""Links that show something to everybody who has them."""

import sqlalchemy as sa
from alembic import op

revision = "0065"
down_revision = "0064"


def upgrade() -> None:
    """Add their table."""
    op.create_table(
        "shares",
        sa.Column("share_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("benchmark_ids", sa.Text, nullable=False),
        sa.Column("campaign_id", sa.Text),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("made_by", sa.Text),
        sa.UniqueConstraint("sha256", name="uq_shares_sha256"),
    )
    op.create_index("ix_shares_user_id", "shares", ["user_id"])
    op.create_index("ix_shares_expires_at", "shares", ["expires_at"])
