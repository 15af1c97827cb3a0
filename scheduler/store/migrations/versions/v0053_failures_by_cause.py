"""Models of failures predict by cause: those that do not have to be trained again."""

import sqlalchemy as sa
from alembic import op

revision = "0053"
down_revision = "0052"


def upgrade() -> None:
    """Retire those in use, so that past runs predict until there are new ones."""
    op.execute(
        sa.text(
            "UPDATE models SET state = 'retired', reason = 'models of failures predict by cause "
            "now: train one again' WHERE kind = 'failure' AND state <> 'retired'"
        )
    )
