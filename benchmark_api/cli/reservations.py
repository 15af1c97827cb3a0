"""Commands for leases, quarantine, accounts and rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.api import api_path, items, record
from edgeyard.benchmark_api.cli.output import Column, Row, emit, emit_one, field, local_time, plain
from edgeyard.benchmark_api.cli.program import Output, Session, act, echo
from edgeyard.errors import InvalidInput

BoardId = Annotated[str, typer.Argument(metavar="BOARD", show_default=False)]
UserId = Annotated[str, typer.Argument(metavar="USER", show_default=False)]
Reason = Annotated[str, typer.Option(help="Shown to users whose benchmarks wait for the board.")]

_LEASE_COLUMNS = (
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="FROM", of=lambda row: local_time(row.get("since")), whole=True),
    Column(title="UNTIL", of=lambda row: local_time(row.get("until")), whole=True),
    Column(title="FOR", of=lambda row: plain(row.get("user_id")) or "(maintenance)"),
    Column(title="REASON", of=field("reason"), always=False),
    Column(title="LEASE", of=field("lease_id"), from_width=110),
)
_STATE_COLUMNS = (
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="REASON", of=field("reason"), always=False),
)
_CHARGE_COLUMNS = (
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True),
    Column(title="RESERVED", of=field("reserved"), right=True, whole=True),
    Column(title="CHARGED", of=field("charged"), right=True, whole=True),
    Column(title="SECONDS", of=lambda row: _number(row.get("board_s")), right=True),
    Column(title="REFUNDED", of=field("refunded"), always=False),
    Column(title="FOR", of=lambda row: _other_kind(row), always=False),
)
_IDLE_COLUMNS = (
    Column(title="BOOKING OR LEASE", of=field("keeper_id"), whole=True),
    Column(title="CHARGED", of=field("charged"), right=True, whole=True),
    Column(title="IDLE SECONDS", of=lambda row: _number(row.get("board_s")), right=True),
)
_RATE_COLUMNS = (
    Column(title="FAMILY", of=field("family"), whole=True),
    Column(title="CREDITS/S", of=field("rate"), right=True, whole=True),
)


def lease(
    session: Session,
    target_uid: BoardId,
    until: Annotated[str, typer.Option(help="RFC 3339, or e.g. '+2 h'.", show_default=False)],
    since: Annotated[
        str | None, typer.Option("--from", help="RFC 3339, or e.g. '+1 d'; default: now.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(help="User who gets the lease (operators only); default: yourself."),
    ] = None,
    maintenance: Annotated[
        bool,
        typer.Option(
            "--maintenance", help="Reserve it for maintenance, for no user (operators only)."
        ),
    ] = False,
    reason: Reason = "",
) -> None:
    """Lease a board: until the given time only one user gets it, or no one."""
    from edgeyard.benchmark_api.cli import asking

    if maintenance and user is not None:
        raise InvalidInput.at("--maintenance", "cannot be combined with --user", "one of the two")
    body = {
        "until": asking.moment(until, "--until"),
        "since": asking.moment(since, "--from"),
        "user_id": None if maintenance else user or session.client.user_id(),
        "reason": reason or None,
    }
    given = {name: value for name, value in body.items() if value is not None}
    made = session.client.api.post(api_path("boards", target_uid, "lease"), given)
    emit(session.output, [record(made)], _LEASE_COLUMNS, "")


def leases(session: Session) -> None:
    """List current and future leases."""
    rows = list(session.client.api.pages("/v1/leases"))
    emit(session.output, rows, _LEASE_COLUMNS, "no board is leased")


@act
def release(
    session: Session,
    target_uid: BoardId,
    lease_id: Annotated[
        str | None,
        typer.Option("--lease", metavar="ID", help="Default: the earliest lease of the board."),
    ] = None,
) -> None:
    """End a board's lease before its time."""
    if lease_id is None:
        found = (
            row
            for row in session.client.api.pages("/v1/leases")
            if row.get("target_uid") == target_uid
        )
        first = next(found, None)
        if first is None:
            raise InvalidInput.at("BOARD", f"{target_uid} is not leased", "boards leases")
        lease_id = plain(first.get("lease_id"))
    ended = session.client.api.post(api_path("leases", lease_id, "release"))
    emit(session.output, [record(ended)], _LEASE_COLUMNS, "")


def quarantine(
    session: Session,
    target_uid: BoardId,
    reason: Reason = "",
) -> None:
    """Quarantine a board: it gets no benchmarks until `unquarantine`."""
    body = {"reason": reason} if reason else {}
    board = session.client.api.post(api_path("boards", target_uid, "quarantine"), body)
    emit(session.output, [record(board)], _STATE_COLUMNS, "")


@act
def unquarantine(session: Session, target_uid: BoardId) -> None:
    """Lift the quarantine of a board; its earlier failures no longer count."""
    board = session.client.api.post(api_path("boards", target_uid, "unquarantine"))
    emit(session.output, [record(board)], _STATE_COLUMNS, "")


@act
def probe(session: Session, target_uid: BoardId) -> None:
    """Probe a quarantined board now; a probe that succeeds lifts the quarantine."""
    board = session.client.api.post(api_path("boards", target_uid, "probe"))
    emit(session.output, [record(board)], _STATE_COLUMNS, "")


def account(
    session: Session,
    user_id: Annotated[
        str | None, typer.Argument(metavar="[USER]", help="Default: yourself.")
    ] = None,
) -> None:
    """Show an account: credits, quotas, use and last charges."""
    named = user_id or session.client.user_id() or ""
    _show(session, record(session.client.api.get(api_path("users", named, "account"))))


@act
def credit(
    session: Session,
    user_id: UserId,
    credits: Annotated[
        str,
        typer.Argument(
            metavar="AMOUNT",
            help="100 sets the credits, +50 or -50 changes them, none removes the limit.",
        ),
    ],
) -> None:
    """Set or change the credits of an account; `-- USER -50` subtracts 50."""
    body: dict[str, object]
    if credits.lower() == "none":
        body = {"credits": None}
    else:
        try:
            value = float(credits)
        except ValueError:
            raise InvalidInput.at("AMOUNT", "is not a number", "100, +50, -50 or none") from None
        body = {"add" if credits[0] in "+-" else "credits": value}
    _show(session, record(session.client.api.post(api_path("users", user_id, "credits"), body)))


def rates_list(session: Session) -> None:
    """List the rates: what a second on a board costs, by family."""
    _rates(session, session.client.api.get("/v1/rates"))


@act
def rates_set(
    session: Session,
    family: Annotated[str, typer.Argument(metavar="FAMILY", show_default=False)],
    rate: Annotated[float, typer.Argument(min=0, help="Credits per board-second.")],
) -> None:
    """Set the rate of a family; it applies from the next attempt on."""
    _rates(session, session.client.api.put(api_path("rates", family), {"rate": rate}))


def _rates(session: Session, answer: object) -> None:
    rows: list[Row] = [
        {"family": family, "rate": rate}
        for family, rate in record(record(answer).get("rates")).items()
    ]
    emit(session.output, rows, _RATE_COLUMNS, "no families")


def _show(session: Session, account: Row) -> None:
    if session.output is not Output.TABLE:
        emit_one(session.output, account)
        return

    def amount(name: str, absent: str) -> str:
        value = account.get(name)
        return absent if value is None else _number(value)

    half_life_s = account.get("usage_half_life_s")
    days = half_life_s / 86400 if isinstance(half_life_s, int | float) else 0
    limit = (
        "(no limit)"
        if account.get("max_running") is None
        else f"of at most {amount('max_running', '')}"
    )
    lines = (
        ("account", plain(account.get("user_id"))),
        (
            "credits",
            ("no limit" if account.get("credits") is None else f"{amount('credits_left', '')} left")
            + f", {amount('reserved', '0')} reserved, {amount('spent', '0')} spent",
        ),
        ("running", f"{amount('running', '0')} {limit}"),
        (
            "used",
            f"{amount('usage_board_s', '0')} board-seconds (usage counts half after {days:g} "
            f"days), share {amount('share', '1')}",
        ),
        (
            "limits",
            f"max priority {amount('max_priority', '')}, max budget "
            f"{amount('max_budget', 'none')}, max lease {amount('max_lease_s', '0')} s",
        ),
    )
    for name, value in (*lines, *_of_group(account.get("group"))):
        echo(f"{name:<8} {value}")
    if charges := items(account, "charges"):
        echo()
        emit(session.output, charges, _CHARGE_COLUMNS, "")
    if idle := items(account, "idle_times"):
        echo()
        emit(session.output, idle, _IDLE_COLUMNS, "")


def _of_group(group: object) -> Iterator[tuple[str, str]]:
    """Yield the lines about the group of an account, which other members use, too."""
    if not isinstance(group, Mapping):
        return
    yield "group", f"{plain(group.get('group_id'))}, share {_number(group.get('share'))}"
    if group.get("credits") is not None:
        left = f"{_number(group.get('credits'))}, {_number(group.get('reserved'))} reserved"
        yield "", f"credits of all members: {left}"
    if group.get("max_running") is not None:
        yield (
            "",
            f"running of all members: {plain(group.get('running'))} of at most "
            f"{plain(group.get('max_running'))}",
        )


def _other_kind(row: Row) -> str:
    """Return what a charge was for, unless it was a benchmark that somebody submitted."""
    kind = str(row.get("kind") or "")
    return "" if kind == "benchmark" else kind


def _number(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, int | float) else plain(value)
