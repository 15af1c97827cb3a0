"""Language models have a file role of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0075"
down_revision = "0074"


def upgrade() -> None:
    """Rename the role of the models of benchmarks that ask one for tokens."""
    op.execute(
        sa.text(
            "UPDATE benchmark_files SET role = 'language_model' WHERE role = 'model' "
            "AND benchmark_id IN (SELECT benchmark_id FROM benchmarks "
            "WHERE engine = 'ort-genai' OR benchmark_type = 'GENAI')"
        )
    )
