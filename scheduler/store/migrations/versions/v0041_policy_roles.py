"""Columns have the names of what they hold: roles of policies, suspensions of scorers, scores."""

from alembic import op

revision = "0041"
down_revision = "0033"

_RENAMED = (
    ("activations", "seat", "role"),
    ("scorers", "benches", "suspensions"),
    ("scorers", "benched_until", "suspended_until"),
    ("placement_ratings", "worths", "normalized_scores"),
)


def upgrade() -> None:
    """Rename them; the values stay."""
    for table, old, new in _RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
