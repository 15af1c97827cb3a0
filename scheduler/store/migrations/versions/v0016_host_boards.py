"""The boards whose results a host's account may upload."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0010"


def upgrade() -> None:
    """Accounts of hosts serve no board until an operator names them."""
    op.add_column("users", sa.Column("boards", sa.Text(), nullable=False, server_default=""))
