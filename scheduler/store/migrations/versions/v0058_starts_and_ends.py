"""What forecasts learn of starts and ends is stored apart."""

import sqlalchemy as sa
from alembic import op

revision = "0058"
down_revision = "0057"


def upgrade() -> None:
    """Learn anew: what was learned is in units of other intervals."""
    op.drop_table("forecast_results")
    op.create_table(
        "forecast_results",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("benchmark_id", sa.Text, nullable=False, unique=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("waited", sa.Boolean, nullable=False),
        sa.Column("start_score", sa.Float),
        sa.Column("start_held", sa.Boolean),
        sa.Column("end_score", sa.Float),
        sa.Column("end_held", sa.Boolean),
    )
