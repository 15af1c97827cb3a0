"""Time of each layer, from the events of an engine's own profiler.

A layer is what the engine runs as one step: after its optimisations, which fuse operators. Times of
layers that hold others (loops, branches) are without those.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

MAX_REPORTED = 100
"""Layers in the report, by time; ``layers.json`` has all."""

TRACED_RUNS = 3
MAX_NAME = 200


@dataclass(frozen=True)
class LayerEvent:
    """One execution of a layer.

    Attributes:
        start_us: On the profiler's clock.
        thread: Number of the thread that ran it.
        number: Of the layer in the engine's graph, where it states one; tells equal names apart.
    """

    name: str
    operator: str
    provider: str
    start_us: float
    duration_us: float
    thread: int
    number: str = ""


@dataclass(frozen=True)
class LayerRun:
    """One profiled inference with its layers."""

    start_us: float
    duration_us: float
    events: Sequence[LayerEvent]


Layer = Dict[str, object]


def layer_report(runs: Sequence[LayerRun], timed_p50_ms: float) -> Tuple[Layer, List[Layer]]:
    """Summarise profiled runs.

    The time of a layer is the median over the runs that execute it, of all its calls in a run; its
    share is that of this time, weighted by how many of the runs these are.

    Args:
        runs: At least one.
        timed_p50_ms: Of the timed runs, without the profiler.

    Returns:
        What the report holds, and all layers by time.
    """
    count = len(runs)
    times_us: Dict[Tuple[str, str, str, str], List[float]] = {}
    calls: Dict[Tuple[str, str, str, str], int] = {}
    outside_us: List[float] = []
    for run in runs:
        own_us: Dict[Tuple[str, str, str, str], float] = {}
        for event, spent_us in _own_times(run.events):
            key = (event.name[:MAX_NAME], event.operator, event.provider, event.number)
            own_us[key] = own_us.get(key, 0.0) + spent_us
            calls[key] = calls.get(key, 0) + 1
        for key, spent_us in own_us.items():
            times_us.setdefault(key, []).append(spent_us)
        outside_us.append(max(0.0, run.duration_us - sum(own_us.values())))
    # Not the mean: one run that was interrupted would decide which layer takes longest.
    p50_us = {key: _median(values) for key, values in times_us.items()}
    weight = {key: p50 * len(times_us[key]) / count for key, p50 in p50_us.items()}
    whole = sum(weight.values())
    layers: List[Layer] = [
        {
            "name": key[0],
            "operator": key[1],
            "provider": key[2],
            "time_ms": p50_us[key] / 1e3,
            "share": weight[key] / whole if whole > 0 else 0.0,
            "calls_per_run": calls[key] / count,
        }
        for key in sorted(p50_us, key=lambda each: (-p50_us[each], each))
    ]
    profiled_ms = _median([run.duration_us for run in runs]) / 1e3
    report: Layer = {
        "runs": count,
        "count": len(layers),
        "profiled_p50_ms": profiled_ms,
        "overhead": profiled_ms / timed_p50_ms - 1 if timed_p50_ms > 0 else None,
        "outside_ms": _median(outside_us) / 1e3,
        "layers": layers[:MAX_REPORTED],
        "operators": _by(layers, "operator"),
        "providers": _by(layers, "provider"),
    }
    return report, layers


def write_trace(path: Path, runs: Sequence[LayerRun]) -> None:
    """Write the last runs in the format of Chrome's tracing, which Perfetto reads too."""
    events: List[Layer] = []
    for number, run in enumerate(runs[-TRACED_RUNS:]):
        events.append(_traced(f"run {number + 1}", "run", run.start_us, run.duration_us, 0, {}))
        events += [
            _traced(
                each.name[:MAX_NAME],
                each.operator,
                each.start_us,
                each.duration_us,
                each.thread,
                {"operator": each.operator, "provider": each.provider},
            )
            for each in run.events
        ]
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), "utf-8")


def _own_times(events: Sequence[LayerEvent]) -> List[Tuple[LayerEvent, float]]:
    """Return each event with its duration less that of the events inside it, on the same thread."""
    own = {index: each.duration_us for index, each in enumerate(events)}
    order = sorted(
        own, key=lambda index: (events[index].thread, events[index].start_us, -own[index])
    )
    open_ones: List[int] = []
    for index in order:
        event = events[index]
        while open_ones and not _contains(events[open_ones[-1]], event):
            open_ones.pop()
        if open_ones:
            own[open_ones[-1]] -= event.duration_us
        open_ones.append(index)
    return [(each, max(0.0, own[index])) for index, each in enumerate(events)]


def _contains(outer: LayerEvent, inner: LayerEvent) -> bool:
    # clocks have whole microseconds: what has no length lies in nothing
    return (
        outer.thread == inner.thread
        and inner.start_us >= outer.start_us
        and inner.start_us + inner.duration_us <= outer.start_us + outer.duration_us
        and inner.start_us < outer.start_us + outer.duration_us
    )


def _by(layers: Sequence[Layer], name: str) -> List[Layer]:
    groups: Dict[str, List[Layer]] = {}
    for each in layers:
        groups.setdefault(str(each[name]), []).append(each)
    found: List[Layer] = [
        {
            name: value,
            "layers": len(group),
            "time_ms": sum(float(str(each["time_ms"])) for each in group),
            "share": sum(float(str(each["share"])) for each in group),
        }
        for value, group in groups.items()
    ]
    return sorted(found, key=lambda one: -float(str(one["share"])))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _traced(
    name: str, kind: str, start_us: float, duration_us: float, thread: int, facts: Layer
) -> Layer:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": start_us,
        "dur": duration_us,
        "pid": 1,
        "tid": thread,
        "args": facts,
    }
