"""``groups``: users who share limits, credits and a weight in fair sharing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import Column, Row, emit, emit_one, field, plain, usage
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, echo
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

_USED = (
    ("STORED", "stored_bytes", "max_bytes"),
    ("FILES", "files", "max_files"),
    ("PENDING", "pending", "max_pending"),
    ("LIVE", "live", "max_live"),
    ("RUNNING", "running", "max_running"),
    ("BOOKINGS", "bookings", "max_bookings"),
    ("SCHEDULES", "schedules", "max_schedules"),
)


def _members(row: Row) -> str:
    members = row.get("members")
    return " ".join(plain(each) for each in members) if isinstance(members, list) else ""


_COLUMNS = (
    Column(title="GROUP", of=field("group_id"), whole=True),
    Column(title="SHARE", of=field("share"), right=True),
    Column(title="CREDITS", of=field("credits"), right=True, always=False),
    *(
        Column(
            title=title,
            of=lambda row, used=used, limit=limit: usage(row, used, limit),  # type: ignore[misc]
            right=True,
            from_width=80 if title in ("LIVE", "RUNNING") else 120,
        )
        for title, used, limit in _USED
    ),
    Column(title="MEMBERS", of=_members),
)

GroupId = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
Share = Annotated[
    float | None, typer.Option(help="Weight of the group in fair sharing; 1 by default.")
]
Credits = Annotated[
    str | None,
    typer.Option(metavar="AMOUNT", help="Credits that its members share; none for no limit."),
]
MaxRunning = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Benchmarks of all members on boards at once; none for no limit."
    ),
]
Quota = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="NAME=VALUE",
        help="max_bytes, max_files, max_pending, max_live, max_bookings or max_schedules of all "
        "members together, e.g. max_bytes='8 GiB'; the VALUE default removes the limit. May be "
        "repeated.",
    ),
]


def list_groups(session: Session) -> None:
    """List the groups with what they have and may have; only operators see all of them."""
    rows = [as_json(each) for each in session.client.groups()]
    emit(session.output, rows, _COLUMNS, "no groups")


def show(session: Session, group_id: GroupId) -> None:
    """Show a group: what its members have, and may have, together."""
    _show(session, as_json(session.client.group(group_id)))


@act
def add(
    session: Session,
    group_id: GroupId,
    share: Share = None,
    credits: Credits = None,
    max_running: MaxRunning = None,
    quota: Quota = None,
) -> None:
    """Make a group; `users update USER --group GROUP` puts users into it."""
    fields = _fields(share, credits, max_running, quota)
    _show(session, as_json(session.client.add_group(group_id, **fields)))


@act
def change(
    session: Session,
    group_id: GroupId,
    share: Share = None,
    credits: Credits = None,
    max_running: MaxRunning = None,
    quota: Quota = None,
) -> None:
    """Change what the members of a group share; what is not named stays."""
    fields = _fields(share, credits, max_running, quota)
    if not fields:
        raise InvalidInput.at("", "nothing to change", "--share, --credits, --max-running, --quota")
    _show(session, as_json(session.client.change_group(group_id, **fields)))


@act
def remove(session: Session, group_id: GroupId) -> None:
    """Remove a group: its members go on without, and its past use stays reported."""
    session.client.remove_group(group_id)
    session.report(f"{group_id} is removed; its past use stays in reports")


def _fields(
    share: float | None, credits: str | None, max_running: str | None, quota: list[str] | None
) -> dict[str, float | None]:
    given: dict[str, float | None] = {} if share is None else {"share": share}
    if credits is not None:
        given["credits"] = _limit(credits, "--credits", float)
    if max_running is not None:
        given["max_running"] = _limit(max_running, "--max-running", int)
    return given | asking.quotas(quota)


def _limit(text: str, flag: str, kind: type[float] | type[int]) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        raise InvalidInput.at(flag, f"{text!r} is not a number", "e.g. 4, or none") from None


def _show(session: Session, group: Row) -> None:
    if session.output is not Output.TABLE:
        emit_one(session.output, group)
        return
    credits = group.get("credits")
    lines = [
        ("group", plain(group.get("group_id"))),
        ("members", _members(group) or "none"),
        (
            "credits",
            "no limit"
            if credits is None
            else f"{plain(credits)}, of which {plain(group.get('reserved'))} reserved",
        ),
        (
            "used",
            f"{plain(group.get('usage_board_s'))} board-seconds lately, "
            f"share {plain(group.get('share'))}",
        ),
        *((title.lower(), usage(group, used, limit)) for title, used, limit in _USED),
    ]
    for name, value in lines:
        echo(f"{name:<9} {value}")


def add_to(app: typer.Typer) -> None:
    """Register the group of commands."""
    verbs: Mapping[str, Callable[..., None]]
    verbs = {"list": list_groups, "show": show, "add": add, "change": change, "remove": remove}
    add_group(app, "groups", "Groups of users: shared limits, credits and share.", verbs)
