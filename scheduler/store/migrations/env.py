"""Alembic's entry: runs the migrations on the connection that `migrate` hands over."""

from alembic import context

from edgeyard.failpoints import failpoint
from edgeyard.scheduler.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    on_version_apply=lambda **_: failpoint("migrate:applied"),
)
with context.begin_transaction():
    context.run_migrations()
