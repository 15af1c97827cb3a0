"""``policies``: list, compare and activate policies."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from edgeyard.benchmark_api.cli.api import api_path, items, record
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
    three_digits,
)
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, echo
from edgeyard.benchmark_api.cli.replaying import Since, StopRule, show_differences, utc
from edgeyard.errors import InvalidInput, reason_of

_WHICH = "A name, NAME/VERSION, or a TOML file."
Name = Annotated[str, typer.Argument(metavar="POLICY", help=_WHICH)]
Other = Annotated[str, typer.Argument(metavar="OTHER", help=_WHICH)]

OneBenchmark = Annotated[
    str | None,
    typer.Option("--for", metavar="BENCHMARK", help="Only this benchmark (operators only)."),
]

_COLUMNS = (
    Column(title="POLICY", of=field("name"), whole=True),
    Column(title="VERSION", of=field("version"), right=True, whole=True),
    Column(title="ROLE", of=lambda row: _roles(row)),
    Column(title="SINCE", of=lambda row: local_time(row.get("since"))),
    Column(title="FROM", of=field("source"), shorten=True),
)
_OVERRIDES = (
    Column(title="BENCHMARK", of=field("benchmark_id"), whole=True),
    Column(title="POLICY", of=lambda row: f"{row.get('policy')}/{row.get('version')}"),
    Column(title="SINCE", of=lambda row: local_time(row.get("since"))),
    Column(title="FROM", of=field("by_user_id"), shorten=True),
)


def _roles(row: Row) -> str:
    roles = row.get("roles")
    return ", ".join(str(one) for one in roles) if isinstance(roles, list) else ""


def policies_list(session: Session) -> None:
    """List policies and show which is active and which is the shadow."""
    found = record(session.client.api.get("/v1/policies"))
    if session.output is Output.JSON:
        emit_json(found)
        return
    emit(session.output, items(found), _COLUMNS, "no policies")
    if overrides := items(found, "overrides"):
        echo()
        emit(session.output, overrides, _OVERRIDES, "")


def policies_show(session: Session, policy: Name) -> None:
    """Print a policy's TOML."""
    if session.output is Output.JSON:
        emit_json(_fetched(session, policy))
    else:
        echo(_text(session, policy).rstrip())


def policies_diff(session: Session, policy: Name, other: Other) -> None:
    """Show how two policies differ, key by key.

    Of lists only the entries are shown that the other policy lacks, or all if the order differs.
    """
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
            Column(title=_title(policy), of=lambda row: _shown(row["policy"], row["other"])),
            Column(title=_title(other), of=lambda row: _shown(row["other"], row["policy"])),
        )
        show(table(rows, columns, console().width))
    else:
        session.report("the policies are the same")


@act
def policies_activate(
    session: Session,
    policy: Name,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Activate it as the shadow, which decides without effect."),
    ] = False,
    benchmark: OneBenchmark = None,
) -> None:
    """Activate a policy from the next cycle on.

    With --for it decides only on that benchmark, before the active policy decides on the others.
    """
    path = Path(policy)
    if path.suffix == ".toml" and not path.is_file():
        accepted = "a TOML file, or a name that `edgeyard policies list` shows"
        raise InvalidInput.at("POLICY", f"there is no file {path}", accepted)
    body = {"text": _file(path)} if path.is_file() else {"name": policy}
    if benchmark is not None:
        _one(session, benchmark, shadow=shadow, body=body)
        session.report(f"{policy} decides on {benchmark} from now on")
        return
    role = "shadow" if shadow else "active"
    answer = record(session.client.api.put(f"/v1/policies/{role}", body))
    if session.output is Output.JSON:
        emit_json(answer)
    else:
        role = "the shadow policy" if shadow else "the active policy"
        session.report(f"{answer['name']} version {answer['version']} is {role} from now on")


@act
def policies_deactivate(
    session: Session,
    shadow: Annotated[bool, typer.Option("--shadow", help="Deactivate the shadow policy.")] = False,
    benchmark: OneBenchmark = None,
) -> None:
    """Return to the policy of the server's settings; with --for to the active policy."""
    if benchmark is not None:
        _one(session, benchmark, shadow=shadow, body=None)
        session.report(f"the active policy decides on {benchmark} again")
        return
    session.client.api.request("DELETE", f"/v1/policies/{'shadow' if shadow else 'active'}")
    session.report(
        "there is no shadow policy any more"
        if shadow
        else "the policy of the server's settings is active again"
    )


def policies_compare(session: Session, since: Since = None, until: StopRule = None) -> None:
    """Compare policies by the benchmarks that ended under them, and the shadow with the active one.

    Policies that decided at different times met different benchmarks; a simulation compares them
    on the same ones. The shadow's decisions are compared in the newest 1,000 cycles with a shadow;
    "expected" is the total predicted run time of the benchmarks that both policies placed, on the
    boards that each of them chose.
    """
    found = record(session.client.api.get("/v1/policies/comparison", params=_times(since, until)))
    cycles, figures = items(found, "cycles"), items(found, "policies")
    if session.output is Output.JSON:
        emit_json(found)
        return
    if figures:
        emit(session.output, [_figures_row(each) for each in figures], _FIGURES, "")
    else:
        session.report("no benchmark has ended in this time")
    if not cycles:
        session.report(
            "no cycle was decided by a shadow policy; activate one with: "
            "edgeyard policies activate POLICY --shadow"
        )
        return
    for totals in items(found, "shadows"):
        echo()
        _show_compared(totals, [each for each in cycles if each["policy"] == totals["policy"]])


_FIGURES = (
    Column(title="POLICY", of=field("policy"), whole=True),
    Column(title="ENDED", of=field("benchmarks"), right=True, whole=True),
    Column(title="COMPLETED", of=field("completed"), right=True, whole=True),
    Column(title="WAIT, s", of=field("wait_s"), right=True, whole=True),
    Column(title="95 %", of=field("wait_s_interval"), right=True, whole=True, from_width=110),
    Column(title="TURNAROUND, s", of=field("turnaround_s"), right=True, whole=True, from_width=90),
    Column(title="BOUNDED SLOWDOWN", of=field("bounded_slowdown"), right=True, whole=True),
    Column(title="MISSED", of=field("missed"), right=True, whole=True, from_width=90),
    Column(title="PREEMPTED", of=field("preemptions"), right=True, whole=True, from_width=120),
    Column(title="FAIRNESS", of=field("fairness"), right=True, whole=True, from_width=100),
)


def _figures_row(row: Row) -> Row:
    """Return a policy's figures as cells."""
    statuses, figures = row.get("statuses"), row.get("figures")
    assert isinstance(statuses, Mapping)
    assert isinstance(figures, Mapping)
    shown: dict[str, object] = {
        "policy": row.get("policy") or "(not known)",
        "benchmarks": row.get("benchmarks"),
        "completed": statuses.get("completed", 0),
        "missed": f"{row.get('deadline_misses')} of {row.get('deadlines')}",
        "preemptions": row.get("preemptions"),
        "fairness": three_digits(row.get("fairness")),
    }
    for name, figure in figures.items():
        bound = "≥ " if figure.get("at_least") else ""
        mean = figure.get("mean")
        shown[name] = "" if mean is None else f"{bound}{three_digits(mean)}"
        if figure.get("low") is not None:
            low, high = three_digits(figure["low"]), three_digits(figure["high"])
            shown[f"{name}_interval"] = f"{low} to {high}"
    return shown


def _show_compared(totals: Row, cycles: list[Row]) -> None:
    echo(
        f"{totals['policy']} as the shadow: {totals['cycles']} cycles, "
        f"{totals['same']} decided the same"
    )
    expected = [f"{float(str(totals[f'expected_{when}_s'])):.1f} s" for when in ("then", "now")]
    echo(
        f"benchmarks placed {totals['placed_then']}, shadow {totals['placed_now']}; "
        f"expected {expected[0]}, shadow {expected[1]}; "
        f"{totals['reordered']} with another place in the queue"
    )
    rows = [
        {"cycle": each["seq"], "at": each["decided_at"], **difference}
        for each in cycles
        for difference in items(each, "differences")
    ]
    show_differences(rows, then="ACTIVE", now="SHADOW")


def _times(since: datetime | None, until: datetime | None) -> dict[str, str]:
    given = {"since": utc(since), "until": utc(until)}
    return {name: when.isoformat() for name, when in given.items() if when is not None}


def _one(session: Session, benchmark: str, *, shadow: bool, body: Mapping[str, str] | None) -> None:
    if shadow:
        raise InvalidInput.at(
            "", "--shadow cannot be combined with --for: a shadow decides on whole cycles"
        )
    path = api_path("benchmarks", benchmark, "policy")
    if body is None:
        session.client.api.request("DELETE", path)
    else:
        session.client.api.put(path, body)


def _fetched(session: Session, name: str) -> Row:
    first, slash, last = name.rpartition("/")
    stated = bool(slash) and last.isdecimal()
    path = api_path("policies", first if stated else name)
    return record(session.client.api.get(path, {"version": last} if stated else None))


def _text(session: Session, policy: str) -> str:
    path = Path(policy)
    return _file(path) if path.is_file() else str(_fetched(session, policy).get("text", ""))


def _file(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        tomllib.loads(text)
    except OSError as error:
        raise InvalidInput.at("POLICY", f"can't be read: {reason_of(error)}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput.at("POLICY", f"{path} is not a TOML file: {error}") from error
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


def _title(policy: str) -> str:
    return (Path(policy).stem if Path(policy).is_file() else policy).upper()


def _shown(value: object, other: object) -> str:
    if isinstance(value, list):
        known = other if isinstance(other, list) else []
        alone = [one for one in value if one not in known]
        if not alone and all(one in value for one in known):
            alone = value  # in another order
        return ", ".join(str(one) for one in alone)
    return "" if value is None else str(value)


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    add_group(
        app,
        "policies",
        "Policies: the active one, the shadow and others.",
        {
            "list": policies_list,
            "show": policies_show,
            "diff": policies_diff,
            "activate": policies_activate,
            "deactivate": policies_deactivate,
            "compare": policies_compare,
        },
    )
