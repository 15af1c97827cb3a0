"""Booked starts are counted and bounded."""

import json
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0060"
down_revision = "0059"


def upgrade() -> None:
    """Fill in the starts of benchmarks that wait."""
    op.add_column("benchmarks", sa.Column("start_time", sa.BigInteger))
    op.add_column("users", sa.Column("max_bookings", sa.BigInteger))
    bind = op.get_bind()
    waiting = bind.execute(
        sa.text(
            "SELECT benchmarks.benchmark_id, descriptions.body FROM benchmarks "
            "JOIN descriptions ON descriptions.benchmark_id = benchmarks.benchmark_id "
            "WHERE benchmarks.status = 'pending' AND descriptions.body LIKE '%start_time%'"
        )
    ).all()
    for benchmark_id, body in waiting:
        stated = json.loads(body).get("start_time")
        if stated is not None:
            start_us = round(datetime.fromisoformat(stated).timestamp() * 1e6)
            bind.execute(
                sa.text("UPDATE benchmarks SET start_time = :start WHERE benchmark_id = :id"),
                {"start": start_us, "id": benchmark_id},
            )
