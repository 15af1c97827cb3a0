"""``models``: the versions of models that were trained from the lab's history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.api import items, record
from edgeyard.benchmark_api.cli.exits import Exit
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
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, echo
from edgeyard.errors import InvalidInput

_KINDS = ("run_time", "failure", "loading", "measurement")

_POLL_INTERVAL_S = 0.5
"""Interval between requests for the state of a training that the command waits for."""

_ENDS = {
    "learned": "the training has ended; what it learned: edgeyard models list",
    "nothing_learned": "the training has ended; no model was registered",
    "failed": "the training failed; what was registered before stays: edgeyard models list",
    "stopped": "the training was stopped",
}
_STATUSES = {
    "learned": Exit.DONE,
    "nothing_learned": Exit.NOT_PLACEABLE,
    "failed": Exit.ERROR,
    "stopped": Exit.CANCELLED,
}

Reference = Annotated[
    str, typer.Argument(metavar="MODEL", help="KIND/VERSION, for example run_time/3.")
]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="KIND/VERSION of another one.")]
KindName = Annotated[
    str, typer.Argument(metavar="KIND", help="run_time, failure, loading or measurement.")
]

_COLUMNS = (
    Column(title="MODEL", of=lambda row: f"{row.get('kind')}/{row.get('version')}", whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="SINCE", of=lambda row: local_time(row.get("state_at"))),
    Column(title="RUNS", of=field("rows"), right=True, whole=True),
    Column(title="BOARDS", of=field("boards"), right=True, whole=True),
    Column(title="FAILED GATES", of=lambda row: _names(row.get("failed_gates"))),
    Column(title="REASON", of=field("reason"), shorten=True, from_width=110),
)
_GATES = (
    Column(title="GATE", of=field("name"), whole=True),
    Column(title="HOLDS", of=lambda row: "yes" if row.get("passed") else "no", whole=True),
    Column(title="FIGURE", of=field("sentence")),
)
_COMPARED = (
    Column(title="FIGURE", of=field("figure"), whole=True),
    Column(title="MODEL", of=field("one"), right=True),
    Column(title="OTHER", of=field("other"), right=True),
)


def models_list(session: Session) -> None:
    """List all versions with their states and the gates that do not hold (operators only)."""
    found = record(session.client.api.get("/v1/models"))
    if session.output is Output.JSON:
        emit_json(found)
        return
    emit(session.output, items(found), _COLUMNS, "no model has been trained yet")


def models_show(session: Session, model: Reference) -> None:
    """Show a version: state, gates with their figures, and its card (operators only)."""
    found = _fetched(session, model)
    if session.output is Output.JSON:
        emit_json(found)
        return
    show(
        "",
        f"{model} is {found.get('state')} since {local_time(found.get('state_at'))}: "
        f"{found.get('reason')}; file {found.get('sha256')}, features {found.get('features')}",
    )
    show(table(items(found, "gates"), _GATES, console().width))
    echo()
    echo(str(found.get("card")).rstrip())


def models_compare(session: Session, model: Reference, other: Other) -> None:
    """Compare the figures of two versions of one kind (operators only).

    Each was judged on the runs that were held out when it was trained; a difference is that of its
    loss and the history's, below 0 where it is better.
    """
    if _parts(model)[0] != _parts(other)[0]:
        raise InvalidInput.at("OTHER", f"{other} predicts something else than {model}", "one kind")
    first, second = (_figures(_fetched(session, each)) for each in (model, other))
    rows: list[Row] = [
        {"figure": name, "one": first.get(name, ""), "other": second.get(name, "")}
        for name in [*first, *(name for name in second if name not in first)]
    ]
    if session.output is Output.JSON:
        emit_json(rows)
        return
    show(table(rows, _COMPARED, console().width))


@act
def models_promote(
    session: Session,
    model: Reference,
    force: Annotated[
        bool, typer.Option("--force", help="Promote it although a gate does not hold.")
    ] = False,
) -> None:
    """Make a candidate the shadow, or the shadow active (operators only)."""
    kind, version = _parts(model)
    answer = session.client.api.post(
        f"/v1/models/{kind}/{version}/promote", params={"force": "true"} if force else {}
    )
    _report(session, answer, f"{model} is {{state}} now: {{reason}}")


def models_rollback(
    session: Session,
    kind: KindName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the event log.")] = "",
) -> None:
    """Retire the active version: the one before it, or the history, predicts (operators only)."""
    answer = session.client.api.post(
        f"/v1/models/{_kind(kind)}/rollback", params={"reason": reason}
    )
    _report(session, answer, f"{kind}/{{version}} is {{state}} now: {{reason}}")


@act
def models_retrain(
    session: Session,
    stop: Annotated[bool, typer.Option("--stop", help="End the training that is running.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")
    ] = False,
) -> None:
    """Train models from the lab's history now, in a process of the leader (operators only).

    What it learns are candidates: see edgeyard models list. The server trains by itself at the
    interval of its setting learn_every_s. The exit status is 0 if the training began, or with
    --wait if it registered a model, 1 if it could not begin or failed, 2 if it registered none, and
    5 if it was stopped. Ctrl-C ends only the waiting.
    """
    if stop and wait:
        raise InvalidInput.at("--wait", "has no effect with --stop", "one of the two")
    action = "stop" if stop else "begin"
    found = record(session.client.api.post(f"/v1/models/training/{action}"))
    while wait and found.get("running"):
        time.sleep(_POLL_INTERVAL_S)
        found = record(session.client.api.get("/v1/models/training"))
    if session.output is Output.JSON:
        emit_json(found)
    elif stop:
        session.report("the training was ended")
    elif found.get("running"):
        session.report("the training began; what it learns: edgeyard models list")
    else:
        if message := str(found.get("message")):
            session.report(message)
        session.report(_ENDS.get(str(found.get("result")), "the training has ended"))
    if wait and (status := _STATUSES.get(str(found.get("result")), Exit.ERROR)):
        raise typer.Exit(status)


def _report(session: Session, answer: object, words: str) -> None:
    found = record(answer)
    if session.output is Output.JSON:
        emit_json(found)
    else:
        session.report(words.format_map({key: str(value) for key, value in found.items()}))


def _fetched(session: Session, reference: str) -> Row:
    kind, version = _parts(reference)
    return record(session.client.api.get(f"/v1/models/{kind}/{version}"))


def _parts(reference: str) -> tuple[str, int]:
    kind, slash, version = reference.partition("/")
    if not slash or not version.isdecimal() or len(version) > 9 or kind not in _KINDS:
        raise InvalidInput.at(
            "MODEL",
            f"{reference!r} is not the name of a model",
            "KIND/VERSION, for example run_time/3",
        )
    return kind, int(version)


def _kind(kind: str) -> str:
    if kind not in _KINDS:
        raise InvalidInput.at("KIND", f"{kind!r} is not a kind of model", " or ".join(_KINDS))
    return kind


def _figures(found: Row) -> dict[str, str]:
    """Return a version's figures as text, by name."""
    figures: dict[str, str] = {"state": str(found.get("state")), "runs": str(found.get("rows"))}
    metrics = found.get("metrics")
    for case, measured in metrics.items() if isinstance(metrics, Mapping) else ():
        for name, value in measured.items() if isinstance(measured, Mapping) else ():
            if isinstance(value, Mapping):
                figures[f"{case} {name}"] = (
                    f"{value['mean']:.4f} ({value['low']:.4f} to {value['high']:.4f})"
                )
            elif isinstance(value, float):
                figures[f"{case} {name}"] = f"{value:+.3f}"
            elif value is not None:
                figures[f"{case} {name}"] = str(value)
    return figures


def _names(value: object) -> str:
    return ", ".join(str(each) for each in value) if isinstance(value, list) else ""


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    add_group(
        app,
        "models",
        "Models trained from the lab's history: states, gates, promotion, roll-back.",
        {
            "list": models_list,
            "show": models_show,
            "compare": models_compare,
            "promote": models_promote,
            "rollback": models_rollback,
            "retrain": models_retrain,
        },
    )
