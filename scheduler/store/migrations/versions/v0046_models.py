"""Models that were trained from the lab's own history, and their files by their hash."""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    """Begin without models."""
    op.create_table(
        "models",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("features", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("gates", sa.Text(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("state_at", sa.BigInteger(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("activated_at", sa.BigInteger()),
        sa.Column("replaced", sa.Integer()),
        sa.PrimaryKeyConstraint("kind", "version", name="pk_models"),
    )
    op.create_index(
        "uq_models_in_use",
        "models",
        ["kind", "state"],
        unique=True,
        sqlite_where=sa.text("state IN ('active', 'shadow')"),
        postgresql_where=sa.text("state IN ('active', 'shadow')"),
    )
    op.create_table(
        "model_files",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_model_files"),
    )
