"""The leader's time at its last renewal, which other servers follow."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0015"


def upgrade() -> None:
    """Nobody has stored a time yet."""
    op.add_column("leadership", sa.Column("at", sa.BigInteger(), nullable=True))
    op.add_column("leadership", sa.Column("database_us", sa.BigInteger(), nullable=True))
