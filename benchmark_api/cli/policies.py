"""``policies``: what decides, what else could, and how the two differ."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit,
    emit_json,
    field,
    local_time,
    show,
    table,
)
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.errors import InvalidInput

Name = Annotated[str, typer.Argument(metavar="POLICY", help="A name, or a TOML file.")]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="A name, or a TOML file.")]

_COLUMNS = (
    Column(title="POLICY", of=field("name"), whole=True),
    Column(title="VERSION", of=field("version"), right=True, whole=True),
    Column(title="DOES", of=lambda row: _does(row)),
    Column(title="SINCE", of=lambda row: local_time(row.get("since"))),
    Column(title="FROM", of=field("source"), shorten=True),
)
_DOES = {"active": "decides", "shadow": "decides in the shadow"}


def _does(row: Row) -> str:
    seats = row.get("seats")
    named = seats if isinstance(seats, list) else []
    return ", ".join(_DOES.get(str(one), str(one)) for one in named)


def policies_list(session: Session) -> None:
    """List policies, and which of them decides."""
    answer = session.client.api.get("/v1/policies")
    items = answer.get("items") if isinstance(answer, dict) else None
    emit(session.output, items if isinstance(items, list) else [], _COLUMNS, "no policies")


def policies_show(session: Session, policy: Name) -> None:
    """Print a policy's TOML."""
    if session.output is Output.JSON:
        emit_json(_fetched(session, policy))
    else:
        typer.echo(_text(session, policy).rstrip())


def policies_diff(session: Session, policy: Name, other: Other) -> None:
    """Tell how a policy differs from another, key by key."""
    first, second = (dict(_flat(tomllib.loads(_text(session, each)))) for each in (policy, other))
    rows = [
        {"key": key, "policy": first.get(key), "other": second.get(key)}
        for key in [*first, *(key for key in second if key not in first)]
        if first.get(key) != second.get(key)
    ]
    if session.output is Output.JSON:
        emit_json(rows)
    elif rows:
        columns = (
            Column(title="KEY", of=field("key"), whole=True),
            Column(title=Path(policy).stem.upper(), of=lambda row: _shown(row["policy"])),
            Column(title=Path(other).stem.upper(), of=lambda row: _shown(row["other"])),
        )
        show(table(rows, columns, console().width))
    else:
        session.say("they are the same")


def policies_activate(
    session: Session,
    policy: Name,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Only beside the active one: nothing comes of it.")
    ] = False,
) -> None:
    """Let a policy decide, from the next cycle on."""
    path = Path(policy)
    body = {"text": _file(path)} if path.is_file() else {"name": policy}
    seat = "shadow" if shadow else "active"
    answer = session.client.api.request(
        "PUT",
        f"/v1/policies/{seat}",
        make_body=lambda: {"json": body},
        idempotent=True,
    ).json()
    if session.output is Output.JSON:
        emit_json(answer)
    else:
        session.say(f"{answer['name']} version {answer['version']} {_DOES[seat]} from now on")


def policies_deactivate(
    session: Session,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="The one that decides in the shadow.")
    ] = False,
) -> None:
    """Go back to the policy of the server's settings."""
    session.client.api.request("DELETE", f"/v1/policies/{'shadow' if shadow else 'active'}")
    session.say(
        "nothing decides in the shadow" if shadow else "the policy of the settings decides again"
    )


def _fetched(session: Session, name: str) -> Row:
    from edgeyard.benchmark_api.sdk.http import part

    answer = session.client.api.get(f"/v1/policies/{part(name)}")
    return answer if isinstance(answer, dict) else {}


def _text(session: Session, policy: str) -> str:
    path = Path(policy)
    return _file(path) if path.is_file() else str(_fetched(session, policy).get("text", ""))


def _file(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput.at("", f"{path}: {error}") from error
    return text


def _flat(tree: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            for one in value:
                rest = {inner: of for inner, of in one.items() if inner != "name"}
                yield from _flat(rest, f"{path}{key}.{one.get('name', '')}.")
        else:
            yield f"{path}{key}", value


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)


def add_to(app: typer.Typer) -> None:
    """Register the noun with its verbs."""
    group = typer.Typer(
        help="Policies: what decides, and what else could.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verbs: Mapping[str, Callable[..., None]] = {
        "list": policies_list,
        "show": policies_show,
        "diff": policies_diff,
        "activate": policies_activate,
        "deactivate": policies_deactivate,
    }
    for name, function in verbs.items():
        verb(group, name)(function)
    app.add_typer(group, name="policies")
