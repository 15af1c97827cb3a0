"""What forecasts learn is stored."""

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"


def upgrade() -> None:
    """Nothing was learned yet."""
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
        sa.Column("score", sa.Float),
        sa.Column("held", sa.Boolean),
    )
