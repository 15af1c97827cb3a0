"""Tokens, passwords and webhooks know the token that made them."""

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"


def upgrade() -> None:
    """Only of sessions is known what made their access tokens; all else stays as it is."""
    for table in ("tokens", "logins", "webhooks"):
        op.add_column(table, sa.Column("made_by", sa.Text))
    op.create_index("ix_tokens_made_by", "tokens", ["made_by"])
    op.execute("UPDATE tokens SET made_by = session_id WHERE NOT refreshes")
