"""Recorded cycles, and which policy is active."""

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Nothing yet."""
