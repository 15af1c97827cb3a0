"""Schedules state whether their benchmarks may overlap."""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    """Add the column; those of earlier schedules may."""
    op.add_column(
        "schedules",
        sa.Column("prohibit_overlap", sa.Boolean, nullable=False, server_default=sa.false()),
    )
