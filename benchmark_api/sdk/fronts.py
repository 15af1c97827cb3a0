"""The Pareto front of a sweep: the results that no other one beats in every respect."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from edgeyard.benchmark_api.sdk.comparison import WORKLOAD, metric_of_row, model_name
from edgeyard.benchmark_api.sdk.fields import Record, number, record, records, text
from edgeyard.devices.metrics import HIGHER, LOWER, Metric, standard_metrics
from edgeyard.scheduler.model.workload import request_name, request_of, settings_of

_COLUMNS = {
    "p50": "p50_ms",
    "rows_per_s": "rows_per_s",
    "runs_per_s": "runs_per_s",
    "ram_peak": "ram_peak_bytes",
    "energy_j": "energy_j",
}
"""Metrics that decide next to the primary one, and their columns of a row: latency, throughput by
rows, otherwise by runs, memory, energy."""

_ENERGY_OF_A_ROW = Metric("energy_row_j", "energy of a row", "J", LOWER)
"""A batch of more rows takes more energy, and may take less of each."""

_SWEPT = ("parameters", "inputs", "batch_size")
"""Parts of the workload that a sweep varies; engine and board may differ, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric by which results of a sweep are better or worse.

    Attributes:
        metric: With its direction.
        of: Returns the number of a row, in the metric's unit; None where it is not known.
    """

    metric: Metric
    of: Callable[[Record], float | None]

    def cost(self, row: Record) -> float:
        """Return the number of a row, negative where higher is better."""
        value = self.of(row) or 0.0
        return -value if self.metric.better == HIGHER else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The results of one sweep of a model.

    Attributes:
        objectives: The metrics that decide: those known of all its rows, the primary one first.
        rows: The results that are judged, in their order.
        on_front: Which of them are on the front: none of the others is at least as good in all
            objectives and better in one.
        invalid: Results of the sweep that are invalid, and so are not judged.
    """

    objectives: Sequence[Objective]
    rows: Sequence[Record]
    on_front: Sequence[bool]
    invalid: int = 0

    @property
    def sentence(self) -> str:
        """What decides, for people."""
        named = "; ".join(each.metric.sentence for each in self.objectives)
        left_out = f"; {self.invalid} invalid, not judged" if self.invalid else ""
        decides = "no other result is at least as good in all of these and better in one"
        return f"{decides}: {named}{left_out}"


def fronts_of(rows: Sequence[Record]) -> list[Front]:
    """Return a front for each model, type, dataset and primary metric whose parameters vary.

    The numbers themselves are compared: of two results whose intervals overlap, one may be on the
    front and the other not. Invalid results are not judged.

    Args:
        rows: Rows of results.
    """
    groups: dict[str, list[Record]] = {}
    invalid: Counter[str] = Counter()
    for row in rows:
        if number(row, "primary_value") is None:
            continue
        key = _key(row)
        if row.get("verdict") == "invalid":
            invalid[key] += 1
        else:
            groups.setdefault(key, []).append(row)
    return [_front(group, invalid[key]) for key, group in groups.items() if _is_swept(group)]


def missing_fronts(rows: Sequence[Record]) -> list[str]:
    """Return why a model whose parameters vary has no front, or why one of its requests has none.

    Args:
        rows: Rows of results.
    """
    groups: dict[str, list[Record]] = {}
    for row in rows:
        if number(row, "primary_value") is not None:
            groups.setdefault(_key(row, requests=False), []).append(row)
    found = []
    for group in filter(_varies, groups.values()):
        requests = _alike(group)
        swept = len(requests) > 1 and any(map(_is_swept, requests))
        if not swept and not fronts_of(group):
            found.append(f"{model_name(group[0])} has no front: {_why_missing(group)}")
            continue
        for alike in requests:
            if _is_swept(alike) and not fronts_of(alike):
                name = f"{model_name(alike[0])} ({request_name(record(alike[0], 'workload'))})"
                found.append(f"{name} has no front: {_why_missing(alike)}")
    return found


def _alike(rows: Sequence[Record]) -> list[list[Record]]:
    """Return the rows of each request to a language model."""
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append(row)
    return list(found.values())


def _varies(rows: Sequence[Record]) -> bool:
    """Return whether parameters differ, those of requests to a language model, too."""
    parameters = [record(record(row, "workload"), "parameters") for row in rows]
    return any(each != parameters[0] for each in parameters)


def _why_missing(rows: Sequence[Record]) -> str:
    """Return why results whose parameters differ are on no front."""
    if not any(map(_is_swept, _alike(rows))):
        return "prompts and outputs of other lengths are other work"
    valid = sum(row.get("verdict") != "invalid" for row in rows)
    return f"{valid} of {len(rows)} results are valid, and it takes two with different parameters"


def with_fronts(rows: Sequence[Record]) -> list[dict[str, object]]:
    """Return the rows, each with ``on_front``: whether it is on its front; None: not judged."""
    known = {
        id(row): on_front
        for front in fronts_of(rows)
        for row, on_front in zip(front.rows, front.on_front, strict=True)
    }
    return [{**row, "on_front": known.get(id(row))} for row in rows]


def front_text(row: Record) -> str:
    """Return ``yes`` or ``no`` for a row of `with_fronts`; "" where it is not judged."""
    on_front = row.get("on_front")
    return "" if on_front is None else "yes" if on_front else "no"


def _energy_of_a_row(row: Record) -> float | None:
    joules, runs, rows = (number(row, name) for name in ("energy_j", "runs_per_s", "rows_per_s"))
    return joules * runs / rows if joules is not None and runs and rows else None


def _key(row: Record, *, requests: bool = True) -> str:
    """Return what is equal for results of one sweep.

    Args:
        row: A row of results.
        requests: Whether other requests of a language model are other work, as they are.
    """
    work = record(row, "workload")
    same = {name: work.get(name) for name in WORKLOAD if name not in _SWEPT}
    for name in ("engine", "engine_version", "model_sha256"):  # formats of one model share a name
        same.pop(name, None)
    own = [(each.get("name"), _sizes_of_a_row(each, row)) for each in records(work, "inputs")]
    metric = metric_of_row(row)
    asked_for = [metric.sentence if metric is not None else "", request_of(work)]
    if not requests and request_of(work) is not None:  # its lengths decide the metric
        same.pop("metric", None)
        asked_for = []
    return json.dumps([same, model_name(row), own, asked_for], sort_keys=True, default=str)


def _sizes_of_a_row(one: Record, row: Record) -> object:
    """Return the shape of an input, without the number of rows where parameters state it."""
    shape = one.get("shape")
    stated = "batch_size" in record(record(row, "workload"), "parameters")
    return shape[1:] if stated and isinstance(shape, list) else shape


def _is_swept(rows: Sequence[Record]) -> bool:
    parameters = [settings_of(record(row, "workload")) for row in rows]
    return any(each != parameters[0] for each in parameters)


def _front(rows: Sequence[Record], invalid: int) -> Front:
    objectives = _objectives(rows)
    costs = [[each.cost(row) for each in objectives] for row in rows]
    return Front(
        objectives=objectives,
        rows=rows,
        on_front=[not any(_dominates(other, own) for other in costs) for own in costs],
        invalid=invalid,
    )


def _dominates(other: Sequence[float], own: Sequence[float]) -> bool:
    pairs = list(zip(other, own, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _objectives(rows: Sequence[Record]) -> list[Objective]:
    primary = metric_of_row(rows[0])
    found = {}
    if primary is not None and primary.better:
        found[primary.name] = Objective(metric=primary, of=partial(number, key="primary_value"))
    kind, name = text(rows[0], "benchmark_type"), text(rows[0], "primary_metric")
    for each in standard_metrics(kind or "TYPE1", name):
        metric, column = each.metric, _COLUMNS.get(each.metric.name)
        if column is not None and metric.name not in found:
            known = all(number(row, column) is not None for row in rows)
            # what a processor takes can't be compared with what a board takes
            scopes = {text(row, "energy_scope") for row in rows}
            if known and (column != "energy_j" or len(scopes) == 1):
                found[metric.name] = Objective(metric=metric, of=partial(number, key=column))
    if "rows_per_s" in found:
        if primary is None or primary.name != "runs_per_s":
            found.pop("runs_per_s", None)
        if "energy_j" in found:
            found["energy_j"] = Objective(metric=_ENERGY_OF_A_ROW, of=_energy_of_a_row)
    return list(found.values())
