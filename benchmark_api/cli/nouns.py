"""Noun–verb commands: boards, files, tokens, users, schedules, stray jobs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgeyard.benchmark_api.cli import reservations
from edgeyard.benchmark_api.cli.api import api_path, items, record
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    age,
    emit,
    emit_csv,
    emit_json,
    emit_one,
    field,
    local_time,
    plain,
    size,
    usage,
    warn_of_stale_state,
)
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, echo, verb
from edgeyard.benchmark_api.cli.reservations import BoardId, Reason, UserId
from edgeyard.benchmark_api.cli.unknown_names import refuse_unknown_family
from edgeyard.errors import InvalidInput

FileId = Annotated[str, typer.Argument(metavar="FILE_ID", show_default=False)]
TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", show_default=False)]
ScheduleId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


def _engines(row: Row) -> str:
    engines = row.get("engines")
    if not isinstance(engines, list):
        return ""
    return ", ".join(
        f"{plain(one.get('name'))} {plain(one.get('version'))}".strip()
        for one in engines
        if isinstance(one, dict)
    )


def _board_note(row: Row) -> str:
    doing = plain(row.get("benchmark_id"))
    progress = row.get("progress")
    if doing:
        share = f" ({progress:.0f} %)" if isinstance(progress, int | float) else ""
        return doing + share
    return plain(row.get("reason")) or _leased(row)


def _leased(row: Row) -> str:
    leases = row.get("leases")
    first = leases[0] if isinstance(leases, list) and leases else None
    if not isinstance(first, dict):
        return ""
    user = plain(first.get("user_id"))
    return f"leased{f' to {user}' if user else ''} until {local_time(first.get('until'))}"


def _accelerators(row: Row) -> str:
    found = row.get("accelerators")
    return ", ".join(plain(each) for each in found) if isinstance(found, list) else ""


_BOARD_COLUMNS = (
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="ENGINES", of=_engines),
    Column(title="RAM", of=lambda row: size(row.get("ram_bytes")), right=True, whole=True),
    Column(title="CORES", of=field("cores"), right=True, whole=True, from_width=90),
    Column(title="CPU", of=field("cpu"), from_width=120),
    Column(title="ACCELERATORS", of=_accelerators, from_width=100, always=False),
    Column(title="HOST", of=field("host"), from_width=100),
    Column(title="CLUSTER", of=field("cluster"), from_width=120),
    Column(
        title="EMULATED",
        of=lambda row: "yes" if row.get("emulated") else "",
        from_width=100,
        always=False,
    ),
    Column(title="NOTE", of=_board_note, always=False),
)


def boards_list(
    session: Session,
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    state: Annotated[str | None, typer.Option(help="idle, busy, offline...")] = None,
) -> None:
    """List the boards and their states."""
    answer = record(session.client.api.get("/v1/boards"))
    rows = [
        row
        for row in items(answer)
        if family in (None, row.get("family")) and state in (None, row.get("state"))
    ]
    if not rows:
        refuse_unknown_family(session, family, "--family")
    emit(session.output, rows, _BOARD_COLUMNS, "no boards")
    warn_of_stale_state(session, answer)


def boards_show(session: Session, target_uid: BoardId) -> None:
    """Show one board."""
    board = record(session.client.api.get(api_path("boards", target_uid)))
    if session.output is Output.TABLE:
        from edgeyard.benchmark_api.cli.pictures import board_picture

        emit_one(session.output, board, *board_picture(board))
    else:
        emit_one(session.output, board)


_ATTRIBUTE_COLUMNS = (
    Column(title="ATTRIBUTE", of=field("name"), whole=True),
    Column(title="BOARDS", of=field("boards"), right=True, whole=True),
    Column(title="MEANING", of=field("meaning")),
    Column(title="VALUES", of=lambda row: _values(row)),
)


def _values(row: Row) -> str:
    values = row.get("values")
    shown = [plain(each) for each in values] if isinstance(values, list) else []
    if row.get("name") in ("memory.ram", "memory.storage") and isinstance(values, list):
        shown = [size(each) for each in values]
    more = row.get("more_values")
    return ", ".join(shown) + (f" and {more} more" if more else "")


def boards_attributes(
    session: Session,
    family: Annotated[str | None, typer.Option(help="Only boards of this family.")] = None,
) -> None:
    """List the attributes that --constraint may name, with the values that boards have."""
    rows = items(session.client.api.get("/v1/attributes", {"family": family}))
    if not rows:
        refuse_unknown_family(session, family, "--family")
    emit(session.output, rows, _ATTRIBUTE_COLUMNS, "no board has reported any attribute")


_FINDING_COLUMNS = (
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="FINDING", of=field("finding"), whole=True),
    Column(title="HOST", of=field("host"), from_width=100),
    Column(title="WHY", of=field("reason")),
)
_NOT_AS_EXPECTED = 2


def boards_check(session: Session) -> None:
    """Compare the inventory with the boards that hosts report.

    The exit status is 2 if boards are missing, unknown (unless the server allows unknown boards)
    or different.
    """
    found = record(session.client.api.get("/v1/inventory/check"))
    rows = [
        {"finding": finding, **row}
        for finding in ("missing", "unknown", "differing")
        for row in items(found, finding)
    ]
    if session.output is Output.JSON:
        emit_json(found)
    elif session.output is Output.CSV:
        emit_csv(
            [{key: row[key] for key in ("target_uid", "finding", "host", "reason")} for row in rows]
        )
    else:
        emit(session.output, rows, _FINDING_COLUMNS, "all boards are as expected")
        if any(row["finding"] == "unknown" for row in rows):
            used = "never used" if found.get("unknown_devices") == "deny" else "used"
            session.report(f"unknown boards are {used} (setting unknown_devices)")
    if found.get("ok") is not True:
        raise typer.Exit(_NOT_AS_EXPECTED)


@act
def boards_add(
    session: Session,
    target_uid: BoardId,
    ram: Annotated[str, typer.Option(help="Memory that a benchmark may use, e.g. '4 GiB'.")],
    storage: Annotated[str, typer.Option(help="Storage that a benchmark may use, e.g. '32 GiB'.")],
    engine: Annotated[
        list[str], typer.Option(help="NAME=TYPES, e.g. ort=TYPE1,TYPE2; may be repeated.")
    ],
    attribute: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of your own; may be repeated.")
    ] = None,
) -> None:
    """Add a board to the inventory, also of a new family, while the server runs."""
    entry: dict[str, object] = {
        "target_uid": target_uid,
        "memory": {"ram": ram, "storage": storage},
        "engines": {
            name: {"supported_types": [each.strip() for each in types.split(",")]}
            for name, types in (_pair(each, "--engine", "NAME=TYPES") for each in engine)
        },
    }
    if attribute:
        entry["attributes"] = dict(_pair(each, "--attribute", "NAME=VALUE") for each in attribute)
    board = record(session.client.api.post("/v1/inventory/boards", entry))
    emit(session.output, [{**board, "state": "added"}], _BOARD_COLUMNS, "")


def _pair(text: str, flag: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise typer.BadParameter(f"{text!r} is not {form}", param_hint=flag)
    return name, value


@act
def boards_remove(session: Session, target_uid: BoardId) -> None:
    """Remove a board from the inventory while the server runs.

    A benchmark that runs on it continues to its end; nothing new is placed there.
    """
    session.client.remove_board(target_uid)
    session.report(f"{target_uid} is no longer in the inventory")


def boards_drain(
    session: Session,
    target_uid: BoardId,
    reason: Reason = "",
) -> None:
    """Take a board out of service.

    A benchmark that runs on it continues to its end.
    """
    board = session.client.api.post(api_path("boards", target_uid, "drain"), {"reason": reason})
    emit(session.output, [record(board)], _BOARD_COLUMNS, "")


@act
def boards_resume(session: Session, target_uid: BoardId) -> None:
    """Put a drained board back into service."""
    board = session.client.api.post(api_path("boards", target_uid, "resume"))
    emit(session.output, [record(board)], _BOARD_COLUMNS, "")


_FILE_COLUMNS = (
    Column(title="FILE", of=field("file_id"), whole=True),
    Column(title="NAME", of=field("name")),
    Column(title="SIZE", of=lambda row: size(row.get("size")), right=True, whole=True),
    Column(title="AGE", of=lambda row: age(row.get("created_at")), right=True, whole=True),
    Column(title="SHA-256", of=lambda row: plain(row.get("sha256"))[:12], from_width=90),
)


def files_list(
    session: Session,
    name: Annotated[str | None, typer.Option(help="Only files of this name.")] = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", min=1, help="Maximum number of files.")
    ] = 20,
) -> None:
    """List your uploaded files, newest first.

    The table has one row for each content, with all its names and the id of its newest file.
    """
    which = {"limit": min(limit + 1, 100), "name": name}
    found = session.client.api.pages("/v1/files", which)
    rows = list(itertools.islice(found, limit + 1))
    more = len(rows) > limit
    rows = rows[:limit]
    if session.output is Output.TABLE:
        contents: dict[object, dict[str, object]] = {}
        for row in rows:
            known = contents.setdefault((row.get("user_id"), row.get("sha256")), dict(row))
            names = plain(known.get("name")).split(", ")
            if plain(row.get("name")) not in names:
                known["name"] = ", ".join([*names, plain(row.get("name"))])
        rows = list(contents.values())
    emit(session.output, rows, _FILE_COLUMNS, "no files")
    if more:
        counted = session.client.api.get("/v1/files", {"limit": 1, "name": name, "total": True})
        total = plain(record(counted).get("total"))
        session.report(f"{limit} of {total} files; --limit {total} shows all")


@act
def files_upload(
    session: Session, paths: Annotated[list[Path], typer.Argument(metavar="FILE...")]
) -> None:
    """Upload models, datasets or configurations."""
    from edgeyard.benchmark_api.cli.uploading import upload_with_progress

    rows: list[Row] = []
    for path in paths:
        file = upload_with_progress(session, path)
        rows.append(
            {
                "file_id": file.file_id,
                "name": file.name,
                "size": file.size_bytes,
                "sha256": file.sha256,
                "url": file.url,
            }
        )
    emit(session.output, rows, _FILE_COLUMNS, "nothing was uploaded")


def files_download(
    session: Session,
    file_id: FileId,
    path: Annotated[Path | None, typer.Argument(help="File or folder; - is stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Download an uploaded file, by its id or its name; the newest of a name counts.

    The default is its own name in the current folder. An existing file is replaced with --force
    only.
    """
    file = session.client.file(file_id)
    where = api_path("files", file.file_id, "content")
    if path == Path("-"):
        with session.client.api.stream(where) as response:
            for chunk in response.iter_bytes():
                sys.stdout.buffer.write(chunk)
        return
    target = path or Path.cwd()
    if target.is_dir():
        target /= Path(file.name).name or "download"
    if target.exists() and not force:
        raise InvalidInput.at("PATH", f"{target} exists", "another path, or --force")
    session.report(f"downloaded {session.client.download(where, target)}")


@act
def files_delete(
    session: Session,
    file_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE_ID...]",
            help="Ids, or names that one content alone has.",
            show_default=False,
        ),
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Ended benchmark whose model, datasets and uploaded results are deleted; the "
            "report stays. May be repeated.",
        ),
    ] = None,
) -> None:
    """Delete uploaded files, or all stored files of ended benchmarks.

    This frees disk space at once, except for content that other files or live benchmarks share.
    """
    if not file_ids and not benchmark:
        raise InvalidInput.at(
            "FILE_ID", "is missing: nothing to delete", "files, or --benchmark ID"
        )
    for benchmark_id in benchmark or ():
        session.client.api.request("DELETE", api_path("benchmarks", benchmark_id, "files"))
        session.report(f"the files of {benchmark_id} are deleted")
    for file_id in file_ids or ():
        deleted = session.client.delete_file(file_id)
        for each in deleted:
            session.report(f"{each} is deleted{'' if each == file_id else f' ({file_id})'}")


_UPLOAD_COLUMNS = (
    Column(title="UPLOAD", of=field("upload_id"), whole=True),
    Column(title="NAME", of=field("name")),
    Column(title="SENT", of=lambda row: size(row.get("offset")), right=True, whole=True),
    Column(title="SIZE", of=lambda row: size(row.get("size")), right=True, whole=True),
    Column(title="LAST PIECE", of=lambda row: age(row.get("touched_at")), right=True, whole=True),
)


def files_unfinished(session: Session) -> None:
    """List uploads that broke off.

    To go on with one, upload the same file again. Until then what was sent counts for the quota.
    """
    rows = list(session.client.api.pages("/v1/uploads"))
    emit(session.output, rows, _UPLOAD_COLUMNS, "no unfinished uploads")


@act
def files_abandon(
    session: Session,
    upload_ids: Annotated[list[str], typer.Argument(metavar="UPLOAD_ID...")],
) -> None:
    """Delete what was sent of uploads that broke off."""
    for upload_id in upload_ids:
        session.client.api.request("DELETE", api_path("uploads", upload_id))
        session.report(f"{upload_id} is deleted")


_TOKEN_COLUMNS = (
    Column(title="TOKEN", of=field("shown"), whole=True),
    Column(title="USER", of=field("user_id")),
    Column(title="ROLE", of=field("role")),
    Column(title="LABEL", of=field("label")),
    Column(title="EXPIRES", of=lambda row: local_time(row.get("expires_at")), always=False),
    Column(title="REVOKED", of=lambda row: local_time(row.get("revoked_at")), always=False),
)


def _serving(row: Row) -> str:
    boards = row.get("boards")
    return " ".join(plain(each) for each in boards) if isinstance(boards, list) else ""


_USER_COLUMNS = (
    Column(title="USER", of=field("user_id"), whole=True),
    Column(title="ROLE", of=field("role")),
    Column(title="MAX PRIORITY", of=field("max_priority"), right=True),
    Column(title="MAX BUDGET", of=field("max_budget"), right=True, always=False),
    Column(title="MAX RUNNING", of=field("max_running"), right=True, always=False),
    Column(title="SHARE", of=field("share"), right=True, from_width=100),
    Column(title="GROUP", of=field("group_id"), always=False),
    Column(title="BOARDS", of=_serving, always=False),
    Column(title="DISABLED", of=field("disabled")),
)


def tokens_list(session: Session) -> None:
    """List tokens as a tree: each below the token that made it, with which it ends.

    The server does not store the secrets, so it cannot show them.
    """
    rows = list(session.client.api.pages("/v1/tokens"))
    if session.output is Output.TABLE:
        rows = list(_tree(rows))
    emit(session.output, rows, _TOKEN_COLUMNS, "no tokens")


def _tree(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield each token after the one that made it, with its indented id as ``shown``."""
    made: dict[object, list[Row]] = {}
    for row in rows:
        made.setdefault(row.get("made_by"), []).append(row)
    waiting = [(row, 0) for row in reversed(made.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        branch = "  " * (depth - 1) + "└ " if depth else ""
        yield {**row, "shown": branch + field("token_id")(row)}
        below = made.get(row.get("token_id"), [])
        waiting += [(each, depth + 1) for each in reversed(below)]


@act
def tokens_create(
    session: Session,
    user: Annotated[str | None, typer.Option(help="User of the token; default: yourself.")] = None,
    role: Annotated[str | None, typer.Option(help="viewer, submitter, operator or host.")] = None,
    label: Annotated[str, typer.Option(help="Purpose of the token.")] = "",
    expires: Annotated[
        str | None, typer.Option(help="RFC 3339, or e.g. '+30 d'; default: never.")
    ] = None,
) -> None:
    """Make a token.

    It is printed on stdout and not shown again.
    """
    from edgeyard.benchmark_api.cli import asking

    body = {
        "user_id": user,
        "role": role,
        "label": label or None,
        "expires_at": asking.moment(expires, "--expires"),
    }
    fields = {name: value for name, value in body.items() if value is not None}
    made = record(session.client.api.post("/v1/tokens", fields))
    if session.output is Output.TABLE:
        echo(plain(made.get("token")))
        session.report(f"{plain(made.get('token_id'))}: save the token now, it is not shown again")
    else:
        emit_one(session.output, made)


@act
def tokens_revoke(
    session: Session,
    token_id: TokenId,
    keep_made: Annotated[
        bool,
        typer.Option(
            "--keep-made", help="Only this token: what was made with it stays (operators)."
        ),
    ] = False,
) -> None:
    """Revoke a token and what was made with it: the server refuses them from now on.

    That is the tokens that it made, passwords and webhooks that it set, and what these made.
    """
    params = {"keep_made": "true"} if keep_made else None
    session.client.api.request("DELETE", api_path("tokens", token_id), params=params)
    what = "; what it made stays" if keep_made else " with all that it made"
    session.report(f"{token_id} is revoked{what}")


def users_list(session: Session) -> None:
    """List the accounts."""
    emit(session.output, list(session.client.api.pages("/v1/users")), _USER_COLUMNS, "no users")


Role = Annotated[str | None, typer.Option(help="viewer, submitter, operator or host.")]
MaxPriority = Annotated[int | None, typer.Option(help="Maximum priority of its benchmarks, 1-10.")]
MaxBudget = Annotated[float | None, typer.Option(help="Maximum budget of a benchmark, in credits.")]
MaxRunning = Annotated[
    int | None, typer.Option(min=0, help="Maximum number of benchmarks on boards at the same time.")
]
Share = Annotated[float | None, typer.Option(help="Weight in fair sharing; 1 by default.")]
MaxLease = Annotated[str | None, typer.Option(help="Maximum length of its leases, e.g. '8 h'.")]

Group = Annotated[
    str | None,
    typer.Option(help='Group whose limits and share it has a part in; "" for none.'),
]

HostBoards = Annotated[
    list[str] | None,
    typer.Option(
        "--board",
        metavar="TARGET_UID",
        help="For the account of a host: board whose results it may upload; a final * matches "
        'any ending; may be repeated; "" for none.',
    ),
]


QuotaOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="NAME=VALUE",
        help="max_bytes, max_files, max_pending, max_live, max_bookings, max_schedules, "
        "max_tokens, max_run_files or max_run_bytes, e.g. max_bytes='8 GiB'; the VALUE default "
        "restores the server's. May be repeated.",
    ),
]


Email = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="E-mail address for messages, and to log in with."),
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from stdin: its first line.")
]


def _password() -> str:
    return sys.stdin.readline().rstrip("\r\n")


@act
def users_create(
    session: Session,
    user_id: UserId,
    role: Role = "submitter",
    max_priority: MaxPriority = None,
    max_budget: MaxBudget = None,
    max_running: MaxRunning = None,
    share: Share = None,
    max_lease: MaxLease = None,
    group: Group = None,
    board: HostBoards = None,
    quota: QuotaOptions = None,
    email: Email = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Make an account.

    With --email and --password-stdin the platform's client can log in; --email alone is for
    messages.
    """
    from edgeyard.benchmark_api.cli import asking

    if email is None and password_stdin:
        raise InvalidInput.at("--email", "is missing: a password needs it", "both, or neither")
    body = {
        "email": email,
        "password": _password() if password_stdin else None,
        "user_id": user_id,
        "role": role,
        "max_priority": max_priority,
        "max_budget": max_budget,
        "max_running": max_running,
        "share": share,
        "max_lease_s": asking.seconds(max_lease, "--max-lease"),
        "boards": None if board is None else [each for each in board if each],
    }
    given: dict[str, object] = {name: value for name, value in body.items() if value is not None}
    if group:
        given["group_id"] = group
    made = session.client.api.post("/v1/users", given | asking.quotas(quota))
    emit(session.output, [record(made)], _USER_COLUMNS, "")


@act
def users_update(
    session: Session,
    user_id: UserId,
    role: Role = None,
    max_priority: MaxPriority = None,
    max_budget: MaxBudget = None,
    max_running: MaxRunning = None,
    share: Share = None,
    max_lease: MaxLease = None,
    group: Group = None,
    board: HostBoards = None,
    quota: QuotaOptions = None,
    disabled: Annotated[
        bool | None,
        typer.Option("--disable/--enable", help="Disable or enable the account and its tokens."),
    ] = None,
    email: Email = None,
    webhook_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL that receives each end and each change of board of the user's benchmarks; "
            '"" removes it. Users may set their own.',
        ),
    ] = None,
    webhook_format: Annotated[
        Literal["edgeyard", "slack", "mattermost"],
        typer.Option(help="What is posted there: data for programs, or a text for a chat."),
    ] = "edgeyard",
) -> None:
    """Change an account.

    The secret of a new webhook is printed on stdout and not shown again.
    """
    from edgeyard.benchmark_api.cli import asking

    body = {
        "role": role,
        "max_priority": max_priority,
        "max_budget": max_budget,
        "max_running": max_running,
        "share": share,
        "max_lease_s": asking.seconds(max_lease, "--max-lease"),
        "boards": None if board is None else [each for each in board if each],
        "disabled": disabled,
        "email": email,
    }
    given: dict[str, object] = {name: value for name, value in body.items() if value is not None}
    if group is not None:
        given["group_id"] = group or None
    fields = given | asking.quotas(quota)
    if not fields and webhook_url is None:
        raise InvalidInput.at("", "nothing to change", "--role, --max-priority, --disable...")
    if webhook_url is not None:
        _set_webhook(session, user_id, webhook_url, webhook_format)
    if not fields:
        return
    changed = session.client.api.patch(api_path("users", user_id), fields)
    emit(session.output, [record(changed)], _USER_COLUMNS, "")


_LIMIT_COLUMNS = (
    Column(title="LIMIT", of=field("name"), whole=True),
    Column(title="USED", of=lambda row: _amount(row, "used"), right=True, whole=True),
    Column(title="VALUE", of=lambda row: _amount(row, "value") or "none", right=True, whole=True),
    Column(title="UNIT", of=field("unit")),
    Column(title="WHOSE", of=field("whose")),
    Column(title="FROM", of=field("source")),
    Column(title="STATUS", of=field("status"), right=True),
)
_USED_COLUMNS = (
    Column(title="USER", of=field("user_id"), whole=True),
    *(
        Column(
            title=title,
            of=lambda row, used=used, limit=limit: usage(row, used, limit),  # type: ignore[misc]
            right=True,
            whole=True,
        )
        for title, used, limit in (
            ("STORED", "stored_bytes", "max_bytes"),
            ("FILES", "files", "max_files"),
            ("PENDING", "pending", "max_pending"),
            ("LIVE", "live", "max_live"),
            ("BOOKINGS", "bookings", "max_bookings"),
            ("SCHEDULES", "schedules", "max_schedules"),
            ("TOKENS", "tokens", "max_tokens"),
        )
    ),
)


def _amount(row: Row, name: str) -> str:
    value = row.get(name)
    return size(value) if row.get("unit") == "bytes" else plain(value)


def limits(
    session: Session,
    user_id: Annotated[
        str | None,
        typer.Argument(metavar="[USER]", help="Another user (operators only); default: yourself."),
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all", help="Show the use of all users (operators only).")
    ] = False,
) -> None:
    """Show the limits that apply to you, how much of each is used and where its value is set."""
    if all_users:
        used = items(session.client.api.get("/v1/limits/users"))
        emit(session.output, used, _USED_COLUMNS, "no users")
        return
    found = items(session.client.api.get("/v1/limits", {"user_id": user_id}))
    emit(session.output, found, _LIMIT_COLUMNS, "no limits")


@act
def users_password(
    session: Session,
    user_id: UserId,
    email: Email = None,
    password_stdin: PasswordStdin = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the password and the address.")
    ] = False,
) -> None:
    """Set or remove the password of an account.

    Its sessions end, with the tokens that were made in them; its other tokens stay.
    """
    if remove == password_stdin:
        raise InvalidInput.at("--password-stdin", "or --remove is required", "one of the two")
    where = api_path("users", user_id, "password")
    if remove:
        session.client.api.request("DELETE", where, idempotent=True)
        session.report(f"{user_id} has no password any more")
        return
    fields = {"password": _password()} | ({"email": email} if email is not None else {})
    session.client.api.put(where, fields)
    session.report(f"the password of {user_id} is set")


def _set_webhook(session: Session, user_id: str, url: str, form: str) -> None:
    made = record(
        session.client.api.put(
            api_path("users", user_id, "webhook"), {"url": url or None, "format": form}
        )
    )
    if session.output is not Output.TABLE:
        emit_one(session.output, made)
    elif secret := plain(made.get("secret")):
        echo(secret)
        session.report(f"the webhook's secret of {user_id}: save it now, it is not shown again")
    else:
        session.report(f"{user_id} has no webhook any more")


_SCHEDULE_COLUMNS = (
    Column(title="SCHEDULE", of=field("schedule_id"), whole=True),
    Column(title="CRON", of=field("cron"), whole=True),
    Column(title="NEXT", of=lambda row: local_time(row.get("next_fire"))),
    Column(title="MODEL", of=field("description.model")),
    Column(
        title="OVERLAP",
        of=lambda row: "prohibited" if row.get("prohibit_overlap") else "",
        always=False,
    ),
    Column(
        title="BY",
        of=lambda row: "nomad" if row.get("cron_by") == "nomad" else "",
        always=False,
    ),
    Column(
        title="SKIPPED", of=lambda row: plain(row.get("skipped") or ""), right=True, always=False
    ),
    Column(title="ACTIVE", of=field("active")),
    Column(title="PROBLEM", of=field("problem"), always=False),
)


def schedules_list(session: Session) -> None:
    """List schedules: job descriptions that are submitted repeatedly."""
    rows = list(session.client.api.pages("/v1/schedules"))
    emit(session.output, rows, _SCHEDULE_COLUMNS, "no schedules")


def schedules_show(session: Session, schedule_id: ScheduleId) -> None:
    """Show a schedule: its next time, its last benchmark, and what prevents it, if something does.

    Where a problem may pass, such as a quota of Nomad's, its job is registered again; one that
    lasts has ended the schedule.
    """
    schedule = record(session.client.api.get(api_path("schedules", schedule_id)))
    if session.output is not Output.TABLE:
        emit_one(session.output, schedule)
        return
    from edgeyard.benchmark_api.cli.pictures import facts_table

    active = bool(schedule.get("active"))
    facts = {
        "schedule": plain(schedule.get("schedule_id")),
        "user": plain(schedule.get("user_id")),
        "cron": plain(schedule.get("cron")),
        "started by": plain(schedule.get("cron_by")),
        "overlaps": "prohibited" if schedule.get("prohibit_overlap") else "",
        "model": field("description.model")(schedule),
        "state": "active" if active else "ended",
        "next start": local_time(schedule.get("next_fire")) if active else "",
        "last benchmark": plain(schedule.get("last_benchmark_id")),
        "skipped": plain(schedule.get("skipped") or ""),
        "problem": plain(schedule.get("problem")),
        "tried again": local_time(schedule.get("retry_at")),
    }
    emit_one(
        session.output,
        schedule,
        facts_table({name: value for name, value in facts.items() if value}),
    )


@act
def schedules_delete(session: Session, schedule_id: ScheduleId) -> None:
    """End a schedule; the benchmarks that it made stay."""
    session.client.api.request("DELETE", api_path("schedules", schedule_id))
    session.report(f"{schedule_id} is deleted")


_STRAY_COLUMNS = (
    Column(title="JOB", of=field("job_id"), whole=True),
    Column(title="BOARD", of=field("target_uid"), whole=True),
    Column(title="PAGE", of=field("page"), always=False),
)


def strays_list(session: Session) -> None:
    """List stray jobs: live jobs that are not in the database, and the boards that they hold.

    They appear after an older backup was restored, or if another Edgeyard uses the same namespace.
    """
    rows = items(session.client.api.get("/v1/strays"))
    emit(session.output, rows, _STRAY_COLUMNS, "no stray jobs")


@act
def strays_stop(
    session: Session, job_ids: Annotated[list[str], typer.Argument(metavar="JOB...")]
) -> None:
    """Stop stray jobs, which frees their boards; their results are lost."""
    for job_id in job_ids:
        session.client.api.post(api_path("strays", job_id, "stop"))
        session.report(f"{job_id} is stopped")


_NOUNS: Mapping[str, tuple[str, Mapping[str, Callable[..., None]]]] = {
    "strays": (
        "Stray jobs: live jobs that are not in the database.",
        {"list": strays_list, "stop": strays_stop},
    ),
    "boards": (
        "Boards: their states; drain, lease and quarantine them.",
        {
            "list": boards_list,
            "show": boards_show,
            "attributes": boards_attributes,
            "check": boards_check,
            "add": boards_add,
            "remove": boards_remove,
            "drain": boards_drain,
            "resume": boards_resume,
            "lease": reservations.lease,
            "leases": reservations.leases,
            "release": reservations.release,
            "quarantine": reservations.quarantine,
            "unquarantine": reservations.unquarantine,
            "probe": reservations.probe,
        },
    ),
    "files": (
        "Uploaded models, datasets and configurations.",
        {
            "list": files_list,
            "upload": files_upload,
            "download": files_download,
            "delete": files_delete,
            "unfinished": files_unfinished,
            "abandon": files_abandon,
        },
    ),
    "tokens": (
        "API tokens.",
        {"list": tokens_list, "create": tokens_create, "revoke": tokens_revoke},
    ),
    "users": (
        "Accounts.",
        {
            "list": users_list,
            "create": users_create,
            "update": users_update,
            "password": users_password,
            "account": reservations.account,
            "credit": reservations.credit,
        },
    ),
    "rates": (
        "Rates: what a second on a board costs.",
        {"list": reservations.rates_list, "set": reservations.rates_set},
    ),
    "schedules": (
        "Schedules: job descriptions that are submitted repeatedly.",
        {"list": schedules_list, "show": schedules_show, "delete": schedules_delete},
    ),
}


def add_to(app: typer.Typer) -> None:
    """Register the groups with their commands."""
    for noun, (text, verbs) in _NOUNS.items():
        add_group(app, noun, text, verbs)
    verb(app, "limits")(limits)
