"""A benchmark may lose its pin to a board that can't be had."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Nobody has lost it yet."""
    column: sa.Column[bool] = sa.Column(
        "unpinned", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("benchmarks", column)
