"""Schedules state why Nomad did not take their job, and when it is registered again."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"


def upgrade() -> None:
    """No schedule has a problem yet."""
    op.add_column("schedules", sa.Column("problem", sa.Text))
    op.add_column("schedules", sa.Column("retry_at", sa.BigInteger))
