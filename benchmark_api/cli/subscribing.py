"""``subscriptions``: subscriptions to messages, and the log of these messages."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

import typer

from edgeyard.benchmark_api.cli.output import Column, Row, emit, field, local_time
from edgeyard.benchmark_api.cli.program import Session, act, add_group
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

Channel = Literal["mail", "webhook"]
State = Literal["waiting", "sent", "failed", "limited", "withheld"]

MAX_SHOWN = 100


def _events(row: Row) -> str:
    events = row.get("events")
    return ", ".join(map(str, events)) if isinstance(events, list) and events else "all"


_COLUMNS = (
    Column(title="SUBSCRIPTION", of=field("subscription_id"), whole=True),
    Column(title="TOPIC", of=field("topic"), whole=True),
    Column(title="ABOUT", of=field("about")),
    Column(title="BY", of=field("channel"), whole=True),
    Column(title="EVENTS", of=_events),
    Column(title="USER", of=field("user_id"), from_width=110),
)

_MESSAGE_COLUMNS = (
    Column(title="TIME", of=lambda row: local_time(row.get("created_at")), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="TYPE", of=field("type")),
    Column(title="ABOUT", of=field("about"), always=False),
    Column(title="BY", of=field("channel"), whole=True),
    Column(title="TO", of=field("recipient")),
    Column(title="TRIES", of=field("tries"), right=True),
    Column(title="ERROR", of=field("error"), always=False),
    Column(title="USER", of=field("user_id"), from_width=120),
)


def list_subscriptions(
    session: Session,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only those of a user.")] = None,
) -> None:
    """List subscriptions; operators see everybody's."""
    rows = [as_json(each) for each in session.client.subscriptions(user)]
    emit(session.output, rows, _COLUMNS, "no subscriptions")


@act
def add(
    session: Session,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Benchmarks and alerts of another user.")
    ] = None,
    campaign: Annotated[
        str | None, typer.Option(metavar="ID", help="Benchmarks of a campaign: its id or name.")
    ] = None,
    series: Annotated[
        str | None,
        typer.Option(metavar="SERIES", help="Benchmarks and alerts of a lineage, or of a series."),
    ] = None,
    board: Annotated[
        str | None, typer.Option(metavar="BOARD", help="State of a board, and alerts on it.")
    ] = None,
    lab: Annotated[
        bool,
        typer.Option(
            "--lab", help="Boards, servers, disk, models and plugins of the lab (operators)."
        ),
    ] = False,
    by: Annotated[
        Channel, typer.Option(help="To the account's e-mail address, or to its webhook.")
    ] = "mail",
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Only events of this type, repeated; default: all."),
    ] = None,
) -> None:
    """Subscribe to messages; without an option, to those about your own benchmarks and alerts.

    You get each event once, and only events of what you may see at that time.
    """
    if campaign is not None:
        campaign = session.client.campaign_id(campaign)
    named = {"user": user, "campaign": campaign, "series": series, "board": board}
    given = {topic: about for topic, about in named.items() if about is not None}
    if len(given) + lab > 1:
        accepted = "one of --user, --campaign, --series, --board, --lab"
        raise InvalidInput.at("", "a subscription is about one thing", accepted)
    topic, about = next(iter(given.items()), ("lab" if lab else "user", None))
    made = session.client.subscribe(topic, about, channel=by, events=event or ())
    emit(session.output, [as_json(made)], _COLUMNS, "")


@act
def remove(
    session: Session,
    subscription_id: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", show_default=False)],
) -> None:
    """Remove a subscription."""
    session.client.unsubscribe(subscription_id)
    session.report(f"{subscription_id} is removed")


def list_messages(
    session: Session,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only those to a user.")] = None,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number.")] = MAX_SHOWN,
) -> None:
    """List the log of messages, newest first: what was sent, where to, and how the last try went.

    Operators see everybody's.
    """
    found = session.client.messages(user_id=user, state=state)
    rows = [as_json(each) for each in islice(found, limit)]
    emit(session.output, rows, _MESSAGE_COLUMNS, "no messages")


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    add_group(
        app,
        "subscriptions",
        "Subscriptions to messages by mail or webhook, and the log of messages.",
        {"list": list_subscriptions, "add": add, "remove": remove, "messages": list_messages},
    )
