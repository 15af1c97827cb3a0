"""The mark of the file store that belongs to the database."""

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"


def upgrade() -> None:
    """Add the table; the next server writes its row and the mark of the file store."""
    op.create_table(
        "file_store",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("mark", sa.Text, nullable=False),
        sa.Column("placed", sa.Boolean, nullable=False),
    )
