"""``doctor``: looks at the set-up from here to the boards, and says what to do."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from edgeyard import __version__
from edgeyard.benchmark_api.cli.output import Column, emit, field, plain, size
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.errors import ConfigError
from edgeyard.scheduler.model.finding import Finding

if TYPE_CHECKING:
    import httpx

    from edgeyard.benchmark_api.sdk import Client

MAX_SERVER_CLOCK_DIFFERENCE_S = 30.0
"""Deadlines and start times are stated on one clock and kept on the other."""
MIN_FREE_BYTES = 2 * 2**30
LIMIT_WARNING = 0.9
"""Share of a limit that may be used before `doctor` warns."""
_CLUSTER = "cluster"
_ONE_BOARD, _COMPARED = "board", "nomad boards"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def doctor(
    session: Session,
    nomad: Annotated[
        bool | None,
        typer.Option(
            "--nomad/--no-nomad",
            help="Look at Nomad too, with the server's settings; default: if these name it.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The server's settings in TOML; see also EDGEYARD_*."),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(help="Run a job of a moment on each host: does it reach the server?"),
    ] = True,
) -> None:
    """Check the set-up and say what to do.

    Settings, token, server and its parts, boards, engines; on the server's machine also Nomad:
    version, rights, namespace, hosts, clocks, drivers. Exit 1 where something is broken.
    """
    findings, server = examine(session)
    looked = list(examine_nomad(nomad, config, probe, server))
    if any(finding.check == _COMPARED for finding in looked):
        # Nomad's own answer tells of each board, and why.
        findings = [finding for finding in findings if finding.check != _ONE_BOARD]
    if any(each.check == "nomad" and each.state == "problem" for each in looked):
        # The cause itself; the server's word on it says no more.
        findings = [finding for finding in findings if finding.check != _CLUSTER]
    findings += looked
    rows = [asdict(finding) for finding in findings]
    emit(session.output, rows, _COLUMNS, "")
    problems = sum(finding.state == "problem" for finding in findings)
    if session.output is Output.TABLE:
        warnings = sum(finding.state == "warning" for finding in findings)
        session.say(f"\n{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}")
    if problems:
        raise typer.Exit(1)


_COLUMNS = (
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="CHECK", of=field("check"), whole=True),
    Column(
        title="FOUND",
        of=lambda row: "\n→ ".join(filter(None, [plain(row.get("found")), plain(row.get("fix"))])),
    ),
)


def examine(session: Session) -> tuple[list[Finding], Mapping[str, object]]:
    """All findings, in the order in which trouble should be looked for.

    Returns:
        Also what the server told of itself, ``cluster`` and ``public_url``; empty where it did not
        answer.
    """
    try:
        client = session.client
    except ConfigError as error:
        fix = "correct the file or variable"
        return [Finding(check="settings", state="problem", found=str(error), fix=fix)], {}
    findings = [*_settings(client), _disk_here()]
    said, told = _server(client)
    findings += said
    if not told:
        return findings, told
    ready = list(_ready(client))
    findings += ready
    silent = any(each.check == _CLUSTER and each.state != "ok" for each in ready)
    token = _token(client)
    findings.append(token)
    if token.state != "problem":
        findings += _limits(client)
        findings += _boards_last_seen(client) if silent else _boards(client)
    return findings, {"public_url": client.settings.url, **told}


def examine_nomad(
    wanted: bool | None, config: Path | None, probe: bool, server: Mapping[str, object]
) -> Iterator[Finding]:
    """What the server would find at Nomad.

    Args:
        wanted: None: if the settings here name it.
        server: What the running one told of itself, if it did.
    """
    if wanted is False:
        return
    from edgeyard.benchmark_api.settings import Settings

    runs_on = plain(server.get("cluster"))
    try:
        settings = Settings.load(config)
        if wanted or settings.cluster == "nomad":
            from edgeyard.benchmark_api.bootstrap import nomad_findings  # the whole server

            public_url = plain(server.get("public_url")) or None
            if runs_on not in ("", "nomad"):
                yield Finding(
                    check="server settings",
                    state="warning",
                    found=f"the server that answers works on its {runs_on} cluster: these settings "
                    "are not its own",
                    fix="name the server that has them: --url, or EDGEYARD_URL",
                )
                public_url = None
            yield from nomad_findings(settings, probe=probe, public_url=public_url)
        elif runs_on == "nomad":
            yield Finding(
                check="nomad",
                state="unknown",
                found="the server works on one; its settings are not here, so it was not looked at",
                fix="on the server's machine: edgeyard doctor --config FILE, or --nomad where "
                "EDGEYARD_NOMAD_* are set",
            )
    except ConfigError as error:
        yield Finding(
            check="server settings",
            state="problem" if wanted or config is not None else "warning",
            found=str(error),
            fix="correct the file or variable",
        )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _settings(client: Client) -> Iterator[Finding]:
    settings = client.settings
    profile = f", profile {settings.profile}" if settings.profile else ""
    yield Finding(
        check="settings",
        state="ok",
        found=f"server {settings.url} (from {settings.url_from}{profile}); "
        f"token from {settings.token_from}",
    )
    parts = urlsplit(settings.url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and settings.token:
        yield Finding(
            check="encryption",
            state="warning",
            found="the token goes over the network as plain text",
            fix="put the server behind https, or use a tunnel",
        )


def _disk_here() -> Finding:
    free = shutil.disk_usage(".").free
    if free >= MIN_FREE_BYTES:
        return Finding(check="disk", state="ok", found=f"{size(free)} free here")
    return Finding(
        check="disk",
        state="warning",
        found=f"only {size(free)} free here",
        fix="make room: models, datasets and results need it",
    )


def _server(client: Client) -> tuple[list[Finding], Mapping[str, object]]:
    """Whether it answers, its version and its clock; and what it told of itself."""
    from edgeyard.benchmark_api.sdk import ClientError

    before = datetime.now(UTC)
    try:
        response = client.api.request("GET", "/v1/version", tries=2)
        told = response.json()
    except (ClientError, ValueError) as error:
        fix = "start it (edgeyard up --data-dir DIR), or correct the URL"
        return [Finding(check="server", state="problem", found=str(error), fix=fix)], {}
    after = datetime.now(UTC)
    told = told if isinstance(told, Mapping) else {}
    theirs = plain(told.get("version"))
    return [_version(theirs), *_clock(response, before, after)], {"version": theirs, **told}


def _version(theirs: str) -> Finding:
    if theirs == __version__:
        return Finding(check="server", state="ok", found=f"answers; version {theirs}, as here")
    same_line = theirs.split(".")[:2] == __version__.split(".")[:2]
    return Finding(
        check="server",
        state="warning" if theirs else "problem",
        found=f"answers; it is of version {theirs or 'unknown'}, this is {__version__}",
        fix="" if same_line else f"install the server's version here: edgeyard=={theirs}",
    )


def _clock(response: httpx.Response, before: datetime, after: datetime) -> Iterator[Finding]:
    try:
        at = parsedate_to_datetime(response.headers.get("Date", ""))
    except ValueError:
        return
    if at.tzinfo is None:
        return
    # The header is cut to whole seconds.
    difference = max((before - at).total_seconds() - 1.0, (at - after).total_seconds(), 0.0)
    if difference <= MAX_SERVER_CLOCK_DIFFERENCE_S:
        yield Finding(check="clock", state="ok", found="agrees with the server's")
    else:
        yield Finding(
            check="clock",
            state="warning",
            found=f"{difference:.0f} s apart from the server's",
            fix="let both follow NTP: deadlines and start times depend on it",
        )


def _ready(client: Client) -> Iterator[Finding]:
    """What the server says of its own parts; it answers 503 where one stops its work."""
    from edgeyard.benchmark_api.sdk import ClientError

    try:
        told = client.api.ready()
    except ClientError as error:
        yield Finding(check="readiness", state="problem", found=str(error))
        return
    checks = told.get("checks")
    if not isinstance(checks, Mapping):
        yield Finding(check="readiness", state="ok", found=plain(told.get("status")) or "ready")
        return
    for name, said in checks.items():
        good, found = _said(said)
        yield Finding(
            check=str(name),
            state="ok" if good else "warning" if told.get("status") == "ready" else "problem",
            found=found,
            fix="" if good else _READY_FIXES.get(str(name), "see the server's log"),
        )


_READY_FIXES = {
    "database": "check EDGEYARD_DATABASE_URL and that the database runs",
    "files": "check room and rights of the server's data folder",
    "cluster": "check that the cluster runs and that the server may reach it",
    "leader": "start a server of role all or engine on this database: edgeyard up",
    "sandbox": "install bubblewrap and libseccomp on the server's machine: "
    "docs/explanation/sandbox.md",
    "strays": "edgeyard strays list; stop what nobody needs: edgeyard strays stop JOB",
    "repair": "see repair.attempt_failed in the server's log; all other attempts go on",
    "claims": "see that Nomad's clients on these hosts answer; other results and repair go on",
    "clock": "let the server's machine follow NTP, and see who sets its clock",
    "twin": "dispatch is held until the cluster answers again",
}


def _said(said: object) -> tuple[bool, str]:
    if isinstance(said, Mapping):
        good = said.get("ok") is True or said.get("status") == "ok"
        detail = plain(said.get("detail") or said.get("reason") or said.get("message"))
        return good, detail or ("ok" if good else "not ok")
    if isinstance(said, bool):
        return said, "ok" if said else "not ok"
    return said == "ok", plain(said)


def _token(client: Client) -> Finding:
    from edgeyard.benchmark_api.sdk import AuthError, ClientError

    fix = "set EDGEYARD_TOKEN; `edgeyard up --data-dir DIR` writes one to DIR/admin.token"
    try:
        me = client.api.get("/v1/me")
    except AuthError as error:
        return Finding(check="token", state="problem", found=str(error), fix=fix)
    except ClientError as error:
        return Finding(check="token", state="problem", found=str(error), fix="see the server's log")
    told = me if isinstance(me, Mapping) else {}
    user = told.get("user")
    role = plain(told.get("role"))
    found = f"good: {plain(user.get('user_id')) if isinstance(user, Mapping) else ''}, role {role}"
    if role == "host":
        return Finding(
            check="token",
            state="warning",
            found=found,
            fix="a host's token can't submit: use one of a submitter",
        )
    return Finding(check="token", state="ok", found=found)


def _limits(client: Client) -> Iterator[Finding]:
    """Every limit that holds for the caller: its value, where that is from, and its use now."""
    from edgeyard.benchmark_api.sdk import ClientError

    try:
        told = client.api.get("/v1/limits")
    except ClientError:  # a host's token, for example
        return
    items = told.get("items") if isinstance(told, Mapping) else None
    for item in items if isinstance(items, list) else ():
        shown = size if item.get("unit") == "bytes" else plain
        value, used = item.get("value"), item.get("used")
        unit = "" if item.get("unit") == "bytes" else f" {plain(item.get('unit'))}"
        most = "any number" if value is None else shown(value)
        full = isinstance(value, int) and isinstance(used, int) and used >= LIMIT_WARNING * value
        yield Finding(
            check=f"limit {plain(item.get('name'))}",
            state="warning" if full and value else "ok",
            found=("" if used is None else f"{shown(used)} of ")
            + f"{most}{unit} ({plain(item.get('source'))}), {plain(item.get('whose'))}",
            fix=f"make room, or raise {plain(item.get('setting'))}" if full and value else "",
        )


def _boards(client: Client) -> Iterator[Finding]:
    """Boards that can be used now, what they can run, and the expected ones that are missing."""
    boards = client.boards()
    states = Counter(plain(board.get("state")) for board in boards)
    usable = [board for board in boards if board.get("state") in ("idle", "busy")]
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    yield Finding(
        check="boards",
        state="ok" if usable else "problem",
        found=counted,
        fix="" if usable else "start the hosts, or write boards into the inventory",
    )
    for board in boards:
        if board.get("state") in ("offline", "unhealthy", "unknown"):
            yield _board(board)
    yield from _host_clocks(boards)
    supported: dict[str, set[str]] = {}
    for board in usable:
        engines = board.get("engines")
        for engine in engines if isinstance(engines, list) else ():
            types = supported.setdefault(plain(engine.get("name")), set())
            types.update(map(plain, engine.get("supported_types") or ()))
    told = "; ".join(f"{name} ({', '.join(sorted(types))})" for name, types in supported.items())
    yield Finding(
        check="engines",
        state="ok" if supported else "problem",
        found=told or "no usable board has one",
        fix="" if supported else "install an engine on the hosts, e.g. pip install onnxruntime",
    )
    inventory = client.api.get("/v1/inventory")
    expected = inventory.get("boards") if isinstance(inventory, Mapping) else None
    count = len(expected) if isinstance(expected, list) else 0
    yield Finding(
        check="inventory",
        state="ok" if count else "problem",
        found=f"{_counted(count, 'board')} expected",
        fix="" if count else "name the boards in the inventory: unknown ones are never used",
    )


def _host_clocks(boards: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    """Hosts whose clocks differ from the server's, as the server measured them."""
    from edgeyard.benchmark_api.cli.pictures import MAX_CLOCK_DIFFERENCE_S, clock_difference

    offsets = {
        plain(board.get("host")): offset
        for board in boards
        if isinstance(offset := board.get("host_clock_offset_s"), int | float)
    }
    wrong = {host: each for host, each in offsets.items() if abs(each) > MAX_CLOCK_DIFFERENCE_S}
    for host, offset in sorted(wrong.items()):
        yield Finding(
            check="host clock",
            state="warning",
            found=f"{host} is {clock_difference(offset)}; the server corrects its times by that",
            fix="let the host follow NTP",
        )
    if offsets and not wrong:
        hosts = _counted(len(offsets), "host")
        yield Finding(check="host clock", state="ok", found=f"of {hosts}: as the server's")


def _boards_last_seen(client: Client) -> Iterator[Finding]:
    """One line of all boards: what each lacks is not known while the cluster is silent."""
    states = Counter(plain(board.get("state")) for board in client.boards())
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    yield Finding(
        check="boards",
        state="unknown",
        found=f"{counted}, when the cluster answered last; it does not answer now",
    )


def _board(board: Mapping[str, object]) -> Finding:
    uid, state = plain(board.get("target_uid")), plain(board.get("state"))
    fixes = {
        "offline": "start its host, or see why it does not report",
        "unhealthy": f"look at it: edgeyard boards show {uid}",
        "unknown": "add it to the inventory if it is yours; it is not used till then",
    }
    reason = plain(board.get("reason"))
    return Finding(
        check=_ONE_BOARD,
        state="warning",
        found=f"{uid} is {state}" + (f": {reason}" if reason else ""),
        fix=fixes[state],
    )


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    verb(app, "doctor")(doctor)
