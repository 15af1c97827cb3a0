"""Comparing results: only what measured the same thing, with the interval of each ratio."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.schemas.answers import ResultRow
from edgeyard.benchmark_api.sdk.fields import Record, number, record, records, text, whole
from edgeyard.devices.metrics import HIGHER, Metric
from edgeyard.scheduler.model import workload

if TYPE_CHECKING:
    from edgeyard.devices.runner.generation_request import GenerationRequest
    from edgeyard.scheduler.prediction.repeatability import MeasuredNumber

WORKLOAD = workload.PARTS
"""What has to be equal for a ratio: keys of a row's ``workload``, with their names for people."""

VERSIONS = ("model_sha256", "engine_version")
"""Parts of the workload that may change within a series."""

_ENDING = re.compile(r"(?:\.ncnn)?(?:\.(?:onnx|xml|param))?\.[A-Za-z]\w*$", re.ASCII)
"""Of the name of a model's file or archive; in ``qwen-0.5b`` there is none."""

_ALTERNATIVES = workload.VERSION_PARTS
"""Parts of the workload in which a row may differ from a baseline that a user chose: other ways to
do the same work. If the models differ, `relative_to` lets their inputs differ, too."""


def compare(rows: Sequence[Record]) -> list[dict[str, object]]:
    """Compare rows of results, each within the group that measured the same thing.

    Args:
        rows: Rows as the server gives them.

    Returns:
        The rows, by model and group, the best of each first, each with ``group`` (equal workloads
        have the same number, from 1 on), ``ratio`` (the primary metric over the best one of the
        group: 1 or more where lower is better, 1 or less where higher is better; None for an
        invalid number, and where there is nothing to compare with), and ``ratio_low`` and
        ``ratio_high``, its 95 % interval (None where an interval is unknown, and for the best
        itself).
    """
    groups: dict[str, list[Record]] = {}
    for row in rows:
        groups.setdefault(workload_key(row), []).append(row)
    ordered = sorted(groups.values(), key=lambda group: text(group[0], "model") or "")
    compared: list[dict[str, object]] = []
    for position, group in enumerate(ordered, start=1):
        valid = [row for row in group if valid_value(row) is not None]
        best = min(valid, key=_badness, default=None)
        for row in sorted(group, key=_badness):
            alone = best is None or len(valid) < 2
            ratio, low, high = (None, None, None) if alone else ratio_of(row, best or row)
            compared.append(
                {
                    **row,
                    "group": position,
                    "ratio": ratio,
                    "ratio_low": low,
                    "ratio_high": high,
                }
            )
    return compared


def relative_to(rows: Sequence[Record], baseline: Record) -> list[dict[str, object]]:
    """Compare rows of results with one of them that a user chose.

    A row has a ratio if its primary metric, type, data set, batch size, training and request to a
    language model are those of the baseline; model, engine and other parameters may differ.

    Returns:
        The rows in their order, each with ``differs`` (the parts of the workload in which it
        differs from the baseline, in the order of `WORKLOAD`), ``ratio`` (its primary metric over
        the baseline's; None without one), ``ratio_low`` and ``ratio_high`` (its 95 % interval; None
        where one is unknown, and for the baseline), and ``shown_to_differ``: whether this interval
        leaves out 1.
    """
    metric, request, compared = metric_of_row(baseline), _request(baseline), []
    for row in rows:
        differs = _differing(row, baseline)
        allowed = _ALTERNATIVES | ({"inputs"} if "model_sha256" in differs else set())
        same = metric is not None and metric_of_row(row) == metric and allowed.issuperset(differs)
        same = same and _request(row) == request
        ratio, low, high = ratio_of(row, baseline) if same else (None, None, None)
        compared.append(
            {
                **row,
                "differs": differs,
                "ratio": ratio,
                "ratio_low": low,
                "ratio_high": high,
                "shown_to_differ": _leaves_out_one(low, high),
            }
        )
    return compared


def why_no_ratio(row: Record, baseline: Record) -> str:
    """Return why a row of `relative_to` has no ratio to the baseline, in words; "": it has one."""
    if row.get("ratio") is not None:
        return ""
    if "invalid" in (row.get("verdict"), baseline.get("verdict")):
        return "a number is invalid"
    if row.get("primary_value") is None or baseline.get("primary_value") is None:
        return "no number"
    if metric_of_row(row) != metric_of_row(baseline):
        return "another metric"
    return "other work" if _request(row) == _request(baseline) else "another request"


def _request(row: Record) -> GenerationRequest | None:
    return workload.request_of(record(row, "workload"))


def _leaves_out_one(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and not low <= 1 <= high


def _differing(row: Record, other: Record) -> list[str]:
    """Return the parts of the workload in which two rows differ; a model without a hash is its
    name."""
    found = [name for name in WORKLOAD if _part(row, name) != _part(other, name)]
    unnamed = _part(row, "model_sha256") is None and _part(other, "model_sha256") is None
    if unnamed and row.get("model") != other.get("model"):
        found.insert(0, "model_sha256")
    return found


def over_time(rows: Sequence[Record]) -> list[dict[str, object]]:
    """Compare each point of a series with the one before it.

    Args:
        rows: Results with their ``series_id``; those without a primary metric are left out.

    Returns:
        The rows by time, each with ``group`` (the number of its series, from 1 on), ``ratio``,
        ``ratio_low``, ``ratio_high`` and ``shown_to_differ`` as in `relative_to`, to the last valid
        one of its series, and ``changes``: what changed since the run before it on its board, such
        as "kernel 6.6".
    """
    ordered = sorted(
        (row for row in rows if row.get("primary_value")), key=lambda row: str(row.get("ended_at"))
    )
    groups: dict[str, int] = {}
    last: dict[str, Record] = {}
    shown: list[dict[str, object]] = []
    for row, changes in zip(ordered, changes_on_boards(ordered), strict=True):
        series = text(row, "series_id") or ""
        before = last.get(series)
        ratio, low, high = (None, None, None) if before is None else ratio_of(row, before)
        shown.append(
            {
                **row,
                "group": groups.setdefault(series, len(groups) + 1),
                "ratio": ratio,
                "ratio_low": low,
                "ratio_high": high,
                "shown_to_differ": _leaves_out_one(low, high),
                "changes": changes,
            }
        )
        if row.get("verdict") != "invalid":
            last[series] = row
    return shown


def changes_on_boards(rows: Sequence[Record]) -> list[list[str]]:
    """Return for each row what changed since the run before it on the same board.

    Compared are the model's content, within its series, and the engine's version, firmware and
    kernel; what a run does not state counts as unchanged.

    Args:
        rows: By time.
    """
    last: dict[tuple[str, str], str] = {}
    found = []
    for row in rows:
        board, engine = text(row, "target_uid") or "", text(row, "runtime") or ""
        facts = {
            "model": workload_text(row, "model_sha256"),
            engine: workload_text(row, "engine_version"),
            "firmware": text(row, "firmware") or "",
            "kernel": text(row, "kernel") or "",
        }
        series = f"{board} {text(row, 'series_id') or row.get('group')}"
        changed = []
        for name, now in facts.items():
            whose = series if name == "model" else board
            before = last.get((whose, name))
            if now and before and now != before:
                changed.append(f"{name} {now}")
            if now:
                last[whose, name] = now
        found.append(changed)
    return found


def model_name(row: Record) -> str:
    """Return the name that files of one model in several formats share: without its ending."""
    name = PurePath(text(row, "model") or "").name
    return _ENDING.sub("", name) or name


def board_name(row: Record) -> str:
    """Return the board of a row; its family while it has none, "" where neither is known."""
    return text(row, "target_uid") or text(row, "target") or ""


def _badness(row: Record) -> float:
    """Return a number that is lower for a better row; infinite for a row without a number."""
    value = number(row, "primary_value")
    if value is None or value <= 0:
        return math.inf
    return -value if row.get("primary_better") == HIGHER else value


def workload_key(row: Record) -> str:
    """Return a text that is equal for rows whose numbers may be compared."""
    work = record(row, "workload")
    key = {name: work.get(name) for name in WORKLOAD}
    if key.get("model_sha256") is None:
        key["model_sha256"] = row.get("model")
    return json.dumps(key, sort_keys=True, default=str)


def differences(rows: Sequence[Record]) -> list[str]:
    """Name the parts of the workload in which rows differ, in the order of `WORKLOAD`."""
    return [
        name
        for name in WORKLOAD
        if any(_part(row, name) != _part(rows[0], name) for row in rows[1:])
    ]


def workload_text(row: Record, name: str) -> str:
    """Show one part of a row's workload in a few words; empty where it is not known."""
    return workload.part_text(record(row, "workload"), name)


NUMBERS = (
    *(name for name, kind in ResultRow.__annotations__.items() if "float" in str(kind)),
    "batch_size",
    "between_runs",
    "group",
    "inner_loops",
    "nb_inference",
    "ratio",
    "ratio_low",
    "ratio_high",
)
"""Columns of numbers of a table of results."""


def frame_row(row: Record) -> dict[str, object]:
    """Return a row of results with numbers and texts only, for a data frame or CSV.

    Args:
        row: A row as `compare` returns it.
    """
    parts = {name: workload_text(row, name) for name in WORKLOAD if name not in NUMBERS}
    for name in ("model_sha256", "dataset_sha256"):  # whole, so that they can be looked up
        value = _part(row, name)
        hashes = value if isinstance(value, list) else [value]
        parts[name] = ", ".join(one for one in hashes if isinstance(one, str))
    reasons = [text(each, "sentence") or "" for each in records(row, "reasons")]
    kept = {name: value for name, value in row.items() if name != "workload"}
    return {
        **kept,
        **parts,
        "batch_size": _part(row, "batch_size"),
        "between_runs": number(record(row, "between_runs"), "share"),
        "reasons": "; ".join(reasons),
    }


def series_frame_row(row: Record) -> dict[str, object]:
    """Return a point of a series with numbers and texts only, as `frame_row` does."""
    suspected = record(row, "suspected")
    return {
        **frame_row(row),
        "changes": "; ".join(map(str, row.get("changes") or ())),  # type: ignore[call-overload]
        "suspected": number(suspected, "size"),
        "suspected_low": number(suspected, "low"),
        "suspected_high": number(suspected, "high"),
    }


def suspected_text(row: Record) -> str:
    """Return the change of the level that begins with a point, with its interval; "" of none."""
    ends = [number(record(row, "suspected"), name) for name in ("size", "low", "high")]
    if None in ends:
        return ""
    size, low, high = (f"{100 * (each or 0.0):+.1f}" for each in ends)
    return f"{size} % ({low} to {high})"


def change_text(change: Record) -> str:
    """Return the size of a change of a series with its interval, as it is known best."""
    sizes = [change.get(f"confirmed_{name}") for name in ("size", "low", "high")]
    if None in sizes:
        sizes = [change.get(name) for name in ("size", "low", "high")]
    size, low, high = (f"{100 * float(str(each)):+.1f}" for each in sizes)
    return f"{size} % ({low} to {high})"


def failure_text(run: Record) -> str:
    """Return the kind of failure of a run in words, such as "failed: out of memory"."""
    category = text(record(run, "failure"), "category")
    return f"failed: {category.replace('_', ' ')}" if category else "failed"


def changes_by_begin(changes: Sequence[Record]) -> dict[str, Record]:
    """Return changes of series by the benchmark that they begin with; of several, the newest.

    Args:
        changes: The newest first.
    """
    return {text(each, "begin_id") or "": each for each in reversed(changes)}


def level_text(row: Record, change: Record | None) -> str:
    """Return the change of the level that begins with a point, and what became of it; "": none.

    Args:
        row: The point.
        change: The change of `changes_by_begin` that begins with it; None: the lab knows of none.
    """
    suspected = suspected_text(row)
    status = "suspected" if change is None else text(change, "status") or ""
    if change is None:
        return f"{suspected} suspected" if suspected else ""
    if not suspected and status in _NO_CHANGES:
        return ""
    return f"{change_text(change)} {_OUTCOMES.get(status, status)}"


_NO_CHANGES = frozenset({"noise", "unconfirmed"})
_OUTCOMES = {
    "confirming": "being confirmed",
    "open": "not confirmed",
    "unconfirmed": "not confirmed",
    "merged": "confirmed",
}
"""What became of a change, where its status is not the word for it."""


def parameters_apart(rows: Sequence[Record], *, requests: bool = True) -> list[str]:
    """Return the parameters of each row in which the rows differ.

    Args:
        rows: Rows of results.
        requests: Whether to begin with the request to a language model, where these differ.
    """
    works = [record(row, "workload") for row in rows]
    settings = [workload.settings_of(work) for work in works]
    names = dict.fromkeys(name for each in settings for name in each)
    apart = {
        name for name in names if any(each.get(name) != settings[0].get(name) for each in settings)
    }
    request_names = [workload.request_name(work) if requests else "" for work in works]
    several = len(set(request_names)) > 1
    return [
        ", ".join(
            [
                *([request] if several and request else []),
                *(f"{name}={value}" for name, value in own.items() if name in apart),
            ]
        )
        for own, request in zip(settings, request_names, strict=True)
    ]


def model_labels(rows: Sequence[Record], without: Collection[str] = ()) -> list[str]:
    """Name the model of each row, with what sets it apart from others of the same name.

    Args:
        rows: Rows of results.
        without: Parts of the workload that are named elsewhere.
    """
    by_name: dict[str, list[Record]] = {}
    for row in rows:
        by_name.setdefault(text(row, "model") or "", []).append(row)
    apart_by_name = {name: differences(group) for name, group in by_name.items()}
    parameters = {
        name: iter(parameters_apart(by_name[name]))
        for name, apart in apart_by_name.items()
        if "parameters" in apart
    }
    labels = []
    for row in rows:
        name = text(row, "model") or ""
        own = next(parameters[name]) if name in parameters else ""
        apart_in = (part for part in apart_by_name[name] if part not in without)
        parts = (own if part == "parameters" else workload_text(row, part) for part in apart_in)
        apart = ", ".join(filter(None, parts))
        labels.append(f"{name} ({apart})" if apart else name)
    return labels


def _part(row: Record, name: str) -> object:
    return record(row, "workload").get(name)


def ratio_of(row: Record, reference: Record) -> tuple[float | None, float | None, float | None]:
    """Return the ratio of the primary metrics of a row and a reference, and its 95 % interval.

    Each is None if it is not known: the ratio for an invalid number, the interval also if a run
    states none.
    """
    value, reference_value = valid_value(row), valid_value(reference)
    if value is None or reference_value is None:
        return None, None, None
    ratio = value / reference_value
    own, other = _measured(row), _measured(reference)
    if row is reference or own is None or other is None:
        return ratio, None, None
    return ratio, *(own.ratio_interval(other) or (None, None))


def _measured(row: Record) -> MeasuredNumber | None:
    """Return a row's number with its errors; None where its run states no interval."""
    from edgeyard.scheduler.prediction.repeatability import (
        RunVariation,
        VariationSource,
        measured_number,
    )

    between = record(row, "between_runs")
    share, known = number(between, "share"), number(between, "degrees")
    variation = None
    if share is not None and known is not None:
        variation = RunVariation(
            share=share,
            degrees=known,
            source=VariationSource(text(between, "source") or ""),
            numbers=whole(between, "numbers") or 0,
        )
    return measured_number(
        number(row, "primary_value"),
        number(row, "primary_low"),
        number(row, "primary_high"),
        number(row, "primary_degrees"),
        target_uid=text(row, "target_uid") or "",
        variation=variation,
    )


def valid_value(row: Mapping[str, object]) -> float | None:
    """Return the primary metric of a row of results; None if it is invalid or has none."""
    value = number(row, "primary_value")
    return value if value is not None and value > 0 and row.get("verdict") != "invalid" else None


def metric_of_row(row: Record) -> Metric | None:
    """Return what the primary metric of a row of results is; None where it has none."""
    name = text(row, "primary_metric")
    if name is None:
        return None
    title, unit, better = (
        text(row, f"primary_{each}") or "" for each in ("title", "unit", "better")
    )
    return Metric(name, title, unit, better)


def interval_of_row(row: Record) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a row's primary metric, of a repeated run where it is known."""
    own = number(row, "primary_low"), number(row, "primary_high")
    return (
        (number(row, "primary_repeat_low"), number(row, "primary_repeat_high"))
        if has_interval_of_repetition(row)
        else own
    )


def has_interval_of_repetition(row: Record) -> bool:
    """Return whether it is known between which values a repeated run would be."""
    return None not in (number(row, "primary_repeat_low"), number(row, "primary_repeat_high"))


def shared_metric(rows: Sequence[Record]) -> Metric | None:
    """Return the primary metric of all rows that have one; None where there are several."""
    found = {metric for row in rows if (metric := metric_of_row(row)) is not None}
    return found.pop() if len(found) == 1 else None
