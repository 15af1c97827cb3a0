"""What the history needs of each outcome: whose it was, and all that its run time depends on."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Of earlier outcomes the user is looked up; runs and variant are taken for the defaults."""
    user: sa.Column[str] = sa.Column("user_id", sa.Text(), nullable=False, server_default="")
    runs: sa.Column[int] = sa.Column(
        "nb_inference", sa.Integer(), nullable=False, server_default="20"
    )
    variant: sa.Column[str] = sa.Column("variant", sa.Text(), nullable=False, server_default="")
    for column in (user, runs, variant):
        op.add_column("outcomes", column)
    op.execute(
        "UPDATE outcomes SET user_id = (SELECT user_id FROM benchmarks"
        " WHERE benchmarks.benchmark_id = outcomes.benchmark_id)"
    )
