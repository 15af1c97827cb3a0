"""``doctor``: check the set-up from this machine to the boards and suggest fixes."""

from __future__ import annotations

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
from edgeyard.benchmark_api.cli.api import items
from edgeyard.benchmark_api.cli.output import Column, Row, emit, field, plain, size
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import ConfigError
from edgeyard.scheduler.model.finding import Finding

if TYPE_CHECKING:
    import httpx

    from edgeyard.benchmark_api.sdk import Client

MAX_SERVER_CLOCK_DIFFERENCE_S = 30.0
"""Users state deadlines and start times by their clock, and the server applies its own."""
LIMIT_WARNING = 0.9
"""Share of a limit that may be used before `doctor` warns."""
_CLUSTER = "cluster"
_ONE_BOARD, _COMPARED = "board", "nomad boards"
_LIMIT = "limit "
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def doctor(
    session: Session,
    nomad: Annotated[
        bool | None,
        typer.Option(
            "--nomad/--no-nomad",
            help="Check Nomad too, with the server's settings; default: if these use Nomad.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The server's settings in TOML; see also EDGEYARD_*."),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(help="Run a short job on each host to check that it reaches the server."),
    ] = True,
    limits: Annotated[
        bool,
        typer.Option(
            "--limits", help="Show every limit; default: only those that are nearly full."
        ),
    ] = False,
) -> None:
    """Check the set-up and suggest fixes.

    Settings, token, server and its parts, boards, engines; on the server's machine also Nomad:
    version, rights, namespace, hosts, clocks, drivers. The exit status is 1 if there is a problem.
    """
    findings, server = examine(session)
    if not limits:
        findings = [each for each in findings if not _is_roomy_limit(each)]
    findings += examine_database(config)
    findings += examine_mail(config)
    of_nomad = list(examine_nomad(nomad, config, probe, server))
    if any(finding.check == _COMPARED for finding in of_nomad):
        # Nomad's answer has each board with the reason.
        findings = [finding for finding in findings if finding.check != _ONE_BOARD]
    if any(each.check == "nomad" and each.state == "problem" for each in of_nomad):
        # Nomad's finding is the cause of the server's.
        findings = [finding for finding in findings if finding.check != _CLUSTER]
    findings += of_nomad
    rows = [asdict(finding) for finding in findings]
    emit(session.output, rows, _COLUMNS, "")
    problems = sum(finding.state == "problem" for finding in findings)
    if session.output is Output.TABLE:
        warnings = sum(finding.state == "warning" for finding in findings)
        session.report(f"\n{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}")
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
    """Return all findings, causes before effects.

    Returns:
        The findings, and the server's description of itself (``cluster_kind`` and ``public_url``),
        which is empty if it did not answer.
    """
    try:
        client = session.client
    except ConfigError as error:
        fix = "correct the file or the variable"
        return [Finding(check="settings", state="problem", found=str(error), fix=fix)], {}
    findings = [*_settings(client)]
    of_server, described = _server(client)
    findings += of_server
    if not described:
        return findings, described
    ready = list(_ready(client))
    findings += ready
    silent = any(each.check == _CLUSTER and each.state != "ok" for each in ready)
    token = _token(client)
    findings.append(token)
    if token.state != "problem":
        findings += _canaries(described)
        findings += _limits(client)
        findings += _boards_last_seen(client) if silent else _boards(client, described)
        findings += _scorers(client)
    return findings, {"public_url": client.settings.url, **described}


def examine_database(config: Path | None) -> Iterator[Finding]:
    """Yield whether the database of the settings on this machine can be opened from here.

    Args:
        config: The server's settings in TOML.
    """
    from edgeyard.benchmark_api.settings import Settings

    try:
        settings = Settings.load(config)
    except ConfigError:
        return  # reported with what else the settings say
    if settings.database_url is None:
        return
    from edgeyard.benchmark_api.bootstrap import check_database  # the whole server

    try:
        check_database(settings)
    except ConfigError as error:
        yield Finding(
            check="database driver",
            state="problem",
            found=str(error),
            fix="correct EDGEYARD_DATABASE_URL, or install the driver where the server runs",
        )
    else:
        yield Finding(check="database driver", state="ok", found="is installed here")


def examine_mail(config: Path | None) -> Iterator[Finding]:
    """Yield whether the mail server of the settings on this machine lets mail be sent from here.

    It connects, encrypts and logs in as the server does, and sends nothing.

    Args:
        config: The server's settings in TOML.
    """
    import smtplib

    from edgeyard.benchmark_api.settings import Settings

    try:
        settings = Settings.load(config)
    except ConfigError:
        return  # reported with what else the settings say
    from edgeyard.benchmark_api.mail import connected, mail_settings, trouble

    server = mail_settings(settings)
    if server is None:
        return
    try:
        with connected(server) as connection:
            connection.noop()
    except (OSError, smtplib.SMTPException, ValueError) as error:
        yield Finding(
            check="mail",
            state="problem",
            found=f"no mail can be sent by {server.host}:{server.port}: {trouble(error)}",
            fix="correct smtp_host, smtp_port, smtp_security, smtp_user and smtp_password",
        )
    else:
        found = f"{server.host}:{server.port} lets this server send mail"
        yield Finding(check="mail", state="ok", found=found)


def examine_nomad(
    wanted: bool | None, config: Path | None, probe: bool, server: Mapping[str, object]
) -> Iterator[Finding]:
    """Yield what the server would find at Nomad.

    Args:
        wanted: Whether to check Nomad; None: if the settings on this machine use it.
        config: The server's settings in TOML.
        probe: Whether to run a job on each host.
        server: The description that the running server gave of itself, or nothing.
    """
    if wanted is False:
        return
    from edgeyard.benchmark_api.settings import Settings

    runs_on = plain(server.get("cluster_kind"))
    try:
        settings = Settings.load(config)
        if wanted or settings.cluster.kind == "nomad":
            from edgeyard.benchmark_api.bootstrap import nomad_findings  # the whole server

            public_url = plain(server.get("public_url")) or None
            if runs_on not in ("", "nomad"):
                yield Finding(
                    check="server settings",
                    state="warning",
                    found=f"the server that answers uses the {runs_on} cluster: these settings "
                    "belong to another server",
                    fix="set --url or EDGEYARD_URL to the server with these settings",
                )
                public_url = None
            yield from nomad_findings(settings, probe=probe, public_url=public_url)
        elif runs_on == "nomad":
            yield Finding(
                check="nomad",
                state="unknown",
                found="not checked: the server uses Nomad, but its settings are not here",
                fix="on the server's machine: edgeyard doctor --config FILE, or --nomad where "
                "EDGEYARD_CLUSTERS__* are set",
            )
    except ConfigError as error:
        yield Finding(
            check="server settings",
            state="problem" if wanted or config is not None else "warning",
            found=str(error),
            fix="correct the file or the variable",
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
            found="the token is sent over the network in plain text",
            fix="serve https, or use a tunnel",
        )


def _server(client: Client) -> tuple[list[Finding], Mapping[str, object]]:
    """Check that it answers, its version and its clock; return its description of itself too."""
    from edgeyard.benchmark_api.sdk import ClientError

    before = datetime.now(UTC)
    try:
        response = client.api.request("GET", "/v1/version", tries=2)
        answer = response.json()
    except (ClientError, ValueError) as error:
        fix = "start it (edgeyard up --data-dir DIR), or correct the URL"
        return [Finding(check="server", state="problem", found=str(error), fix=fix)], {}
    after = datetime.now(UTC)
    described = answer if isinstance(answer, Mapping) else {}
    theirs = plain(described.get("version"))
    return [_version(theirs), *_clock(response, before, after)], {"version": theirs, **described}


def _version(theirs: str) -> Finding:
    if theirs == __version__:
        return Finding(
            check="server", state="ok", found=f"answers; version {theirs}, the same as this client"
        )
    same_line = theirs.split(".")[:2] == __version__.split(".")[:2]
    return Finding(
        check="server",
        state="warning" if theirs else "problem",
        found=f"answers; its version is {theirs or 'unknown'}, this client's is {__version__}",
        fix="" if same_line else f"install the wheel of the server's version {theirs}".rstrip(),
    )


def _clock(response: httpx.Response, before: datetime, after: datetime) -> Iterator[Finding]:
    try:
        at = parsedate_to_datetime(response.headers.get("Date", ""))
    except ValueError:
        return
    if at.tzinfo is None:
        return
    # The header has whole seconds.
    difference = max((before - at).total_seconds() - 1.0, (at - after).total_seconds(), 0.0)
    if difference <= MAX_SERVER_CLOCK_DIFFERENCE_S:
        yield Finding(check="clock", state="ok", found="agrees with the server's")
    else:
        yield Finding(
            check="clock",
            state="warning",
            found=f"differs from the server's by {difference:.0f} s",
            fix="synchronise both with NTP: deadlines and start times depend on it",
        )


def _ready(client: Client) -> Iterator[Finding]:
    """Check the server's own parts; it answers 503 if one of them keeps it from working."""
    from edgeyard.benchmark_api.sdk import ClientError

    try:
        answer = client.api.ready()
    except ClientError as error:
        yield Finding(check="readiness", state="problem", found=str(error))
        return
    checks = answer.get("checks")
    if not isinstance(checks, Mapping):
        yield Finding(check="readiness", state="ok", found=plain(answer.get("status")) or "ready")
        return
    for name, check in checks.items():
        good, found = _outcome(check)
        yield Finding(
            check=str(name),
            state="ok" if good else "warning" if answer.get("status") == "ready" else "problem",
            found=found,
            fix="" if good else _READY_FIXES.get(str(name), "see the server's log"),
        )


_READY_FIXES = {
    "database": "check EDGEYARD_DATABASE_URL and that the database is running",
    "disk": "free space there: submissions and uploads are refused when it is full",
    "files": "check free space and permissions of the server's data folder",
    "cluster": "check that the cluster is running and that the server can reach it",
    "leader": "start a server of role all or engine on this database: edgeyard up",
    "sandbox": "install bubblewrap and libseccomp on the server's machine: "
    "docs/explanation/sandbox.md",
    "strays": "list them with edgeyard strays list, stop one with edgeyard strays stop JOB",
    "repair": "see repair.attempt_failed in the server's log; other attempts are not affected",
    "claims": "check that Nomad's clients on these hosts answer; other results are not affected",
    "clock": "synchronise the server's machine with NTP and check what sets its clock",
    "twin": "nothing is dispatched until the cluster answers again",
}


def _outcome(check: object) -> tuple[bool, str]:
    if isinstance(check, Mapping):
        good = check.get("ok") is True or check.get("status") == "ok"
        detail = plain(check.get("detail") or check.get("reason") or check.get("message"))
        return good, detail or ("ok" if good else "not ok")
    if isinstance(check, bool):
        return check, "ok" if check else "not ok"
    return check == "ok", plain(check)


def _token(client: Client) -> Finding:
    from edgeyard.benchmark_api.sdk import AuthError, ClientError

    fix = "set EDGEYARD_TOKEN; `edgeyard up --data-dir DIR` writes one to DIR/admin.token"
    try:
        me = client.api.get("/v1/me")
    except AuthError as error:
        return Finding(check="token", state="problem", found=str(error), fix=fix)
    except ClientError as error:
        return Finding(check="token", state="problem", found=str(error), fix="see the server's log")
    caller = me if isinstance(me, Mapping) else {}
    user = caller.get("user")
    role = plain(caller.get("role"))
    user_id = plain(user.get("user_id")) if isinstance(user, Mapping) else ""
    found = f"valid: user {user_id}, role {role}"
    if role == "host":
        return Finding(
            check="token",
            state="warning",
            found=found,
            fix="the token of a host cannot submit; use the token of a submitter",
        )
    if role == "viewer":
        found += ", which reads and submits nothing"
    return Finding(check="token", state="ok", found=found)


def _items(client: Client, path: str) -> list[Row]:
    """Return the items of an answer; none where the token may not see them."""
    from edgeyard.benchmark_api.sdk import ClientError

    try:
        return items(client.api.get(path))
    except ClientError:  # a host's token, for example
        return []


def _is_roomy_limit(finding: Finding) -> bool:
    return finding.check.startswith(_LIMIT) and finding.state == "ok"


def _limits(client: Client) -> Iterator[Finding]:
    """Show each limit that applies to the caller: its value, its source and its use."""
    for item in _items(client, "/v1/limits"):
        shown = size if item.get("unit") == "bytes" else plain
        value, used = item.get("value"), item.get("used")
        unit = "" if item.get("unit") == "bytes" else f" {plain(item.get('unit'))}"
        limit = "no limit" if value is None else f"{shown(value)}{unit}"
        full = isinstance(value, int) and isinstance(used, int) and used >= LIMIT_WARNING * value
        yield Finding(
            check=f"{_LIMIT}{plain(item.get('name'))}",
            state="warning" if full and value else "ok",
            found=("" if used is None else f"{shown(used)} {'used, ' if value is None else 'of '}")
            + f"{limit} ({plain(item.get('source'))}), {plain(item.get('whose'))}",
            fix=_room(item) if full and value else "",
        )


def _room(item: Row) -> str:
    """Return what to do about a limit that is nearly used up."""
    setting, whose = plain(item.get("setting")), plain(item.get("whose"))
    more = f"raise {setting}" if setting else f"see edgeyard groups show {whose.split()[-1]}"
    return f"delete what is not needed, or {more}"


def _boards(client: Client, server: Mapping[str, object]) -> Iterator[Finding]:
    """Check which boards are usable, what they can run and which expected ones are missing."""
    boards = [as_json(board) for board in client.boards()]
    states = Counter(plain(board.get("state")) for board in boards)
    usable = [board for board in boards if board.get("state") in ("idle", "busy", "leased")]
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    yield Finding(
        check="boards",
        state="ok" if usable else "problem",
        found=counted,
        fix="" if usable else "start the hosts, or add boards to the inventory",
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
    listed = "; ".join(f"{name} ({', '.join(sorted(types))})" for name, types in supported.items())
    yield Finding(
        check="engines",
        state="ok" if supported else "problem",
        found=listed or "no usable board has an engine",
        fix="" if supported else "install an engine on the hosts, e.g. pip install onnxruntime",
    )
    yield from _canary_engines(server, boards)
    inventory = client.api.get("/v1/inventory")
    expected = inventory.get("boards") if isinstance(inventory, Mapping) else None
    count = len(expected) if isinstance(expected, list) else 0
    problem = plain(inventory.get("problem")) if isinstance(inventory, Mapping) else ""
    if problem:
        yield Finding(
            check="inventory file",
            state="problem",
            found=f"the changed inventory is not in use: {problem}",
            fix="correct the file; the server reads it again by itself",
        )
    yield Finding(
        check="inventory",
        state="ok" if count else "problem",
        found=f"{_counted(count, 'board')} expected",
        fix=""
        if count
        else "add the boards to the inventory: boards that are not in it are not used",
    )


def _host_clocks(boards: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    """Check the clocks of the hosts against the server's, as the server measured them."""
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
            found=f"{host} is {clock_difference(offset)}; the server corrects its times",
            fix="synchronise the host with NTP",
        )
    if offsets and not wrong:
        hosts = _counted(len(offsets), "host")
        yield Finding(check="host clock", state="ok", found=f"of {hosts}: the same as the server's")


def _canary_engines(
    server: Mapping[str, object], boards: Sequence[Mapping[str, object]]
) -> Iterator[Finding]:
    """Check that some board has the engine of each canary that the operator states."""
    known = set()
    for board in boards:
        engines = board.get("engines")
        known |= (
            {plain(each.get("name")) for each in engines} if isinstance(engines, list) else set()
        )
    stated = server.get("canary_engines")
    for engine in stated if isinstance(stated, list) and server.get("canary_share") else ():
        if plain(engine) not in known:
            yield Finding(
                check="canaries",
                state="warning",
                found=f"no board has the engine {plain(engine)}, so that its canaries never run",
                fix="correct the setting canaries (EDGEYARD_CANARIES), or install the engine",
            )


def _boards_last_seen(client: Client) -> Iterator[Finding]:
    """Count the boards; what each of them lacks is unknown while the cluster does not answer."""
    states = Counter(board.state for board in client.boards())
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    yield Finding(
        check="boards",
        state="unknown",
        found=f"{counted} at the last answer of the cluster, which does not answer now",
    )


def _scorers(client: Client) -> Iterator[Finding]:
    """Check that the scorers of the active policy are asked."""
    for item in _items(client, "/v1/scorers"):
        if reason := plain(item.get("suspension_reason")):
            yield Finding(
                check="scorer",
                state="warning",
                found=f"{plain(item.get('scorer'))} is {reason}; the other scorers decide",
                fix="raise its budget_s in the policy, correct it, or leave it out",
            )


def _canaries(server: Mapping[str, object]) -> Iterator[Finding]:
    """Offer canaries where the server runs none."""
    share = server.get("canary_share")
    if not isinstance(share, int | float):
        return
    if share > 0:
        yield Finding(
            check="canaries", state="ok", found=f"take up to {100 * share:.3g} % of boards' time"
        )
        return
    yield Finding(
        check="canaries",
        state="ok",
        found="none run, so that a drift of a board is not detected",
        fix="canary_share = 0.01 in the server's settings: 1 % of the time of idle boards",
    )


def _board(board: Mapping[str, object]) -> Finding:
    uid, state = plain(board.get("target_uid")), plain(board.get("state"))
    fixes = {
        "offline": "start its host, or check why it does not report",
        "unhealthy": f"see edgeyard boards show {uid}",
        "unknown": "add it to the inventory if it is yours; otherwise it is not used",
    }
    reason = plain(board.get("reason"))
    return Finding(
        check=_ONE_BOARD,
        state="warning",
        found=f"{uid} is {state}" + (f": {reason}" if reason else ""),
        fix=fixes[state],
    )


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "doctor")(doctor)
