"""Changes of series of results that are looked at every night: found, and suspected wrongly.

A shift of 3, 5 or 10 % begins after 60 to 120 nights, in either direction; it counts as found if
a look in its first four nights suspects a change that begins within three nights of it. A false
suspicion is one that no look suspected the night before; it is counted on series without a shift.
The detection sees the number of each night alone, so that a cause (model, board or engine) makes
no difference to it. Peers look at the same nights: a threshold of 5 % on the last point against
the median of the last 30, and mean ± 2 standard deviations of the last 30.

``make bench-series`` takes some ten minutes; ``EDGEYARD_BENCH_SERIES=60`` series-years make it
shorter.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import Row
from edgeyard.scheduler.decide.change_points import LOOK_BACK, change_points

Floats = NDArray[np.float64]
Look = Callable[[Floats], list[int]]
"""Returns the places of the suspected changes of a series, whose last value is the newest."""

_SEED = 33
_SERIES_YEARS = 2000
_SHIFTED = 600
"""Series with a shift, of each size: as many as 200 for each of three causes."""

_NIGHTS, _WITHIN = 365, 4
_NEAR = 3
"""By so many nights a suspected change may miss the true one."""


def noise(rng: np.random.Generator, nights: int) -> Floats:
    """Logarithms of the results of a series whose level does not change.

    Each has a noise of 0.5 to 1.5 %, temperatures that drift over weeks, a week's rhythm, and
    outliers: one night in forty is 5 to 40 % slower.
    """
    spread = rng.uniform(0.005, 0.015)
    values = rng.normal(0.0, spread, nights)
    drift = np.zeros(nights)
    for night in range(1, nights):
        drift[night] = 0.9 * drift[night - 1] + rng.normal(0.0, 0.1 * spread)
    week = 0.2 * spread * np.sin(2 * np.pi * (np.arange(nights) + rng.integers(7)) / 7)
    outliers = np.where(rng.random(nights) < 1 / 40, rng.uniform(0.05, 0.4, nights), 0.0)
    return values + drift + week + np.log1p(outliers)


def edgeyard(values: Floats) -> list[int]:
    """What a nightly look suspects: in the newest `LOOK_BACK` points."""
    start = max(0, len(values) - LOOK_BACK)
    return [start + each.position for each in change_points(values[start:].tolist())]


def threshold(values: Floats) -> list[int]:
    """Suspect the last point if it is 5 % from the median of the 30 before it."""
    before = values[-31:-1]
    if len(before) < 5:
        return []
    return [len(values) - 1] if abs(values[-1] / np.median(before) - 1) > 0.05 else []


def deviations(values: Floats) -> list[int]:
    """Suspect the last point if it is beyond two standard deviations of the 30 before it."""
    before = values[-31:-1]
    if len(before) < 5:
        return []
    far = abs(values[-1] - before.mean()) > 2 * before.std(ddof=1)
    return [len(values) - 1] if far else []


LOOKS: dict[str, Look] = {
    "edgeyard": edgeyard,
    "5 % on the last point": threshold,
    "mean ± 2 sd of the last 30": deviations,
}


def found_within(look: Look, values: Floats, begin: int) -> bool:
    """Return whether a change is suspected in its first nights."""
    for nights in range(1, _WITHIN + 1):
        if any(abs(at - begin) <= _NEAR for at in look(values[: begin + nights])):
            return True
    return False


def false_suspicions(look: Look, values: Floats) -> int:
    """Return how often a look suspects what no look did the night before."""
    count, before = 0, list[int]()
    for night in range(1, len(values) + 1):
        now = look(values[:night])
        count += sum(all(abs(at - seen) > _NEAR for seen in before) for at in now)
        before = now
    return count


def run() -> list[Row]:
    """What is found, what is suspected wrongly, each next to both peers, and a page's time."""
    years = int(os.environ.get("EDGEYARD_BENCH_SERIES", _SERIES_YEARS))
    rows = []
    for percent in (3, 5, 10):
        shares = {name: _share_found(look, percent) for name, look in LOOKS.items()}
        note = f"within {_WITHIN} nights, of {_SHIFTED} series"
        rows += _rows_next_to_peers(f"suspected {percent} %", shares, "", note)
    counts = {name: _count_false(look, years) for name, look in LOOKS.items()}
    rates = {name: count / years for name, count in counts.items()}
    note = f"of {years:,} without a shift; upper 95 % bound {_upper(counts['edgeyard'], years):.3f}"
    rows += _rows_next_to_peers("false suspicions per series-year", rates, "", note)
    rows.append(Row("page 500 points", _page_ms(), "ms", note="median of 10 requests, SQLite"))
    return rows


def _rows_next_to_peers(name: str, values: dict[str, float], unit: str, note: str) -> list[Row]:
    own = values["edgeyard"]
    return [
        Row(name, own, unit, value, own / value if value else None, f"peer: {peer}; {note}")
        for peer, value in values.items()
        if peer != "edgeyard"
    ]


def _share_found(look: Look, percent: int) -> float:
    rng = np.random.default_rng((_SEED, percent))
    hits = 0
    for number in range(_SHIFTED):
        begin = int(rng.integers(60, 120))
        logs = noise(rng, begin + _WITHIN)
        logs[begin:] += (1 if number % 2 else -1) * np.log1p(percent / 100)
        hits += found_within(look, np.exp(logs), begin)
    return hits / _SHIFTED


def _count_false(look: Look, years: int) -> int:
    rng = np.random.default_rng(_SEED)
    return sum(false_suspicions(look, np.exp(noise(rng, _NIGHTS))) for _ in range(years))


def _upper(count: int, years: int) -> float:
    """Return the upper 95 % bound of a rate (Garwood, Biometrika 28, 1936)."""
    from scipy.stats import chi2

    return float(chi2.ppf(0.95, 2 * (count + 1))) / 2 / years


def _page_ms() -> float:
    """Return the median time of the API's answer with 500 points, milliseconds."""
    from tests.builders.api import running
    from tests.builders.measured import DAY, Measured, store_measured

    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as api:
        points = [
            Measured(benchmark_id=f"b-{n}", series="one", ended_at=DAY + timedelta(days=n))
            for n in range(500)
        ]
        store_measured(api.store, points)
        client, took = api.as_(), []
        for _ in range(12):
            began = time.perf_counter()
            answer = client.get("/v1/series/points", params={"series": "one"})
            took.append(1000 * (time.perf_counter() - began))
            assert len(answer.json()["items"]) == 500
        return float(np.median(took[2:]))
