"""Layer times of an ONNX model, by onnxruntime's own profiler."""

from __future__ import annotations

import bisect
import json
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

from edgeyard.devices.runner.engine import Session
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.layers import LayerEvent, LayerRun
from edgeyard.errors import RunFailed

WARMUP_RUNS = 3
MAX_EVENTS = 200_000
"""Maximum events of all profiled runs; fewer runs of a large network are profiled."""

_NODE_SUFFIX = "_kernel_time"


def profile(
    session: Session, inner: Any, feeds: Feeds, prefix: Path, *, runs: int, max_s: float
) -> List[LayerRun]:
    """Run a session that was loaded with its profiler on, and read what it wrote.

    Args:
        inner: onnxruntime's session.
        prefix: Of the profiler's file, which is removed.
        runs: Profiled runs, after a few that are left out; fewer where the time or the number of
            events is over.

    Raises:
        RunFailed: As `Session.run`; ``engine_unsupported``: the profiler wrote nothing of use.
    """
    nodes = session.facts.get("model_nodes")
    max_runs = max(1, MAX_EVENTS // max(1, nodes if isinstance(nodes, int) else 1))
    began = time.monotonic()
    try:
        for done in range(min(runs, max_runs) + WARMUP_RUNS):
            if done > WARMUP_RUNS and time.monotonic() - began > max_s:
                break
            session.run(feeds)
    finally:
        file = Path(inner.end_profiling())
    try:
        if file.parent != prefix.parent:
            raise RunFailed("engine_unsupported", "onnxruntime's profiler wrote no file here")
        events = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise RunFailed(
            "engine_unsupported", f"onnxruntime's profile can't be read: {error}"
        ) from error
    finally:
        file.unlink(missing_ok=True)
    found = runs_of([each for each in events if isinstance(each, dict)])[WARMUP_RUNS:]
    if not any(run.events for run in found):
        raise RunFailed("engine_unsupported", "onnxruntime's profiler reported no layer")
    return found


def runs_of(events: List[Dict[str, Any]]) -> List[LayerRun]:
    """Return the runs in the events of onnxruntime's profile, each with its layers."""
    spans = sorted(
        (float(each["ts"]), float(each["dur"]))
        for each in events
        if each.get("cat") == "Session" and each.get("name") == "model_run"
    )
    starts = [start for start, _ in spans]
    layers: List[List[LayerEvent]] = [[] for _ in spans]
    threads: Dict[object, int] = {}
    for each in events:
        name = str(each.get("name", ""))
        if each.get("cat") != "Node" or not name.endswith(_NODE_SUFFIX):
            continue
        start = float(each["ts"])
        place = bisect.bisect_right(starts, start) - 1
        if place < 0 or start > sum(spans[place]):
            continue
        facts: Mapping[str, Any] = each.get("args") or {}
        operator = str(facts.get("op_name", ""))
        layers[place].append(
            LayerEvent(
                name=name[: -len(_NODE_SUFFIX)] or operator,
                operator=operator,
                provider=str(facts.get("provider", "")),
                start_us=start,
                duration_us=float(each["dur"]),
                thread=threads.setdefault(each.get("tid"), len(threads)),
                number=str(facts.get("node_index", "")),
            )
        )
    return [
        LayerRun(start, duration, found)
        for (start, duration), found in zip(spans, layers, strict=True)
    ]
