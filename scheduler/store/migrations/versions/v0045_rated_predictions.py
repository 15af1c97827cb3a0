"""Ratings of placements keep what scorers predicted: seconds and probabilities of a failure."""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    """Add the columns; placements that still run keep what they have."""
    for name in ("predicted_s", "failure_chances"):
        column = sa.Column(name, sa.Text, nullable=False, server_default="{}")
        op.add_column("placement_ratings", column)
