"""Users subscribe to messages, which go by mail or webhook and are logged."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0073"
down_revision = "0072"

_WAITING = sa.text("next_at IS NOT NULL")


def upgrade() -> None:
    """Add the tables; webhooks are sent what they were, by subscriptions of their own."""
    bind = op.get_bind()
    hooks = bind.execute(
        sa.text("SELECT user_id, created_at, seen_seq FROM webhooks ORDER BY user_id")
    ).all()
    old = bind.execute(
        sa.text("SELECT event_seq, user_id, body, tries, next_at FROM deliveries")
    ).all()
    users = bind.execute(sa.text("SELECT user_id, role FROM users")).all()
    roles = {each.user_id: each.role for each in users}
    op.drop_table("deliveries")
    subscriptions = op.create_table(
        "subscriptions",
        sa.Column("subscription_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("since_seq", sa.BigInteger, nullable=False),
        sa.UniqueConstraint(
            "user_id", "topic", "about", "channel", name="uq_subscriptions_user_id"
        ),
    )
    deliveries = op.create_table(
        "deliveries",
        sa.Column("delivery_id", sa.Text, primary_key=True),
        sa.Column("event_seq", sa.BigInteger, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("subscription_id", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("benchmark_id", sa.Text),
        sa.Column("owner_id", sa.Text),
        sa.Column("for_operators", sa.Boolean, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("recipient", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_index("ix_deliveries_created_at", "deliveries", ["created_at", "delivery_id"])
    op.create_index("ix_deliveries_user_id", "deliveries", ["user_id", "channel", "created_at"])
    op.create_index(
        "ix_deliveries_next_at",
        "deliveries",
        ["next_at"],
        sqlite_where=_WAITING,
        postgresql_where=_WAITING,
    )
    mark = op.create_table(
        "subscription_mark",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seen_seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "lab_conditions",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    op.add_column(
        "webhooks",
        sa.Column("format", sa.Text, nullable=False, server_default=sa.text("'edgeyard'")),
    )
    last = bind.execute(sa.text("SELECT last_seq FROM event_counter")).scalar() or 0
    seen = min((each.seen_seq for each in hooks), default=last)
    op.bulk_insert(mark, [{"only": 1, "seen_seq": seen}])
    if rows := _subscriptions(hooks, roles):
        op.bulk_insert(subscriptions, rows)
    if waiting := [_delivery(each) for each in old]:
        op.bulk_insert(deliveries, waiting)
    op.drop_column("webhooks", "seen_seq")


def _subscriptions(
    hooks: Sequence[sa.Row[Any]], roles: Mapping[str, str]
) -> list[dict[str, object]]:
    return [
        {
            "subscription_id": f"sub-{topic}-{number}",
            "user_id": each.user_id,
            "topic": topic,
            "about": each.user_id if topic == "user" else "",
            "channel": "webhook",
            "events": "",
            "created_at": each.created_at,
            "since_seq": each.seen_seq,
        }
        for number, each in enumerate(hooks)
        for topic in ("user", *(("lab",) if roles.get(each.user_id) == "operator" else ()))
    ]


def _delivery(old: sa.Row[Any]) -> dict[str, object]:
    body = json.loads(old.body)
    own = str(body["type"]).startswith("benchmark.")
    return {
        "delivery_id": f"{old.event_seq}-webhook-{old.user_id}",
        "event_seq": old.event_seq,
        "user_id": old.user_id,
        "subscription_id": "",
        "channel": "webhook",
        "kind": body["type"],
        "benchmark_id": body["benchmark_id"],
        "owner_id": old.user_id if own else None,
        "for_operators": not own,
        "body": old.body,
        "created_at": old.next_at,
        "next_at": old.next_at,
        "state": "waiting",
        "recipient": "",
        "tries": old.tries,
        "error": "",
        "ended_at": None,
    }
