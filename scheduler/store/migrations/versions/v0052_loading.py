"""Outcomes state how long it took from the placement to the start of the task."""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    """Fill it in for the attempts that are still stored."""
    op.add_column("outcomes", sa.Column("loading_s", sa.Float))
    op.execute(
        sa.text(
            "UPDATE outcomes SET loading_s = ("
            "SELECT (attempts.started_at - attempts.created_at) / 1000000.0 FROM attempts "
            "WHERE attempts.benchmark_id = outcomes.benchmark_id "
            "AND attempts.number = outcomes.attempt)"
        )
    )
