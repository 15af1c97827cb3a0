"""Uploads that go on after an interruption."""

import sqlalchemy as sa
from alembic import op

from edgeyard.scheduler.store.tables import UtcTime

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """No upload has begun."""
    op.create_table(
        "uploads",
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger(), nullable=False),
        sa.Column("touched_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("upload_id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_user", "uploads", ["user_id", "sha256"])
    op.create_index("ix_uploads_touched_at", "uploads", ["touched_at", "upload_id"])
    op.create_table(
        "upload_pieces",
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("upload_id", "offset_bytes", name="pk_upload_pieces"),
    )
    op.create_index("ix_upload_pieces_sha256", "upload_pieces", ["sha256"])
