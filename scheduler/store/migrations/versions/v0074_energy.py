"""Outcomes state the energy of their runs, from which that of the next runs is predicted."""

import sqlalchemy as sa
from alembic import op

revision = "0074"
down_revision = "0073"


def upgrade() -> None:
    """No run until now states its energy."""
    op.add_column("outcomes", sa.Column("energy_j", sa.Float))
