"""The first schema. A new database gets the tables of ``tables.py`` without any migration."""

revision = "0046"
down_revision = None


def upgrade() -> None:
    """Change nothing: databases of this schema exist, and older ones are refused."""
