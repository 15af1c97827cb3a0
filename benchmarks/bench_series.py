"""Changes of series of results that are looked at every night: found, confirmed, and explained.

A shift of 3, 5 or 10 % by the model, the board or the engine begins after 60 to 120 nights, in
either direction, in a lab of 20 boards (`benchmarks.series_lab`). It is suspected if a look in its
first four nights suspects a change that begins within three nights of it, and confirmed if a check
confirms that one within five; the cause of a confirmed one is right or wrong. What is found wrongly
is counted on series without a shift, looked at every night for a year: a false alert is what a
check confirms there.

Peers look at the same nights: a threshold of 5 % on the last point against the median of the last
30, and mean ± 2 standard deviations of the last 30. They confirm nothing, so that each of their
suspicions is an alert.

``make bench-series`` takes some minutes; ``EDGEYARD_BENCH_SERIES=60`` series-years make it
shorter.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.series_lab import Noise, Watched, drawn_story, evidence_of
from benchmarks.tables import Row
from edgeyard.scheduler.decide.blame import Cause, blame
from edgeyard.scheduler.model.series_changes import ChangeStatus

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_SEED = int(os.environ.get("EDGEYARD_BENCH_SEED", "33"))
_SERIES_YEARS = 2000
_SHIFTED = 200
"""Series with a shift, of each size and each cause."""

_NIGHTS, _SUSPECTED_WITHIN, _CONFIRMED_WITHIN = 365, 4, 5
_NEAR = 3
"""By so many nights a suspected change may miss the true one."""

_SERIES_OF_A_BOARD, _RUN_S = 20, 120.0
"""What a board measures every night, for the share of its time that confirmations take."""

_CAUSES = (Cause.MODEL, Cause.BOARD, Cause.ENGINE)


def threshold(values: Floats) -> Bools:
    """Return for each night whether it is 5 % from the median of the 30 nights before it."""
    before, last = _windows(values)
    far: Bools = np.abs(last / np.median(before, axis=1) - 1) > 0.05
    return far


def deviations(values: Floats) -> Bools:
    """Return for each night whether it is beyond two standard deviations of the 30 before it."""
    before, last = _windows(values)
    far: Bools = np.abs(last - before.mean(axis=1)) > 2 * before.std(axis=1, ddof=1)
    return far


PEERS: dict[str, Callable[[Floats], Bools]] = {
    "5 % on the last point": threshold,
    "mean ± 2 sd of the last 30": deviations,
}
"""Each returns its suspicions from the 31st night on."""


def _windows(values: Floats) -> tuple[Floats, Floats]:
    windows = np.lib.stride_tricks.sliding_window_view(values, 31)
    return windows[:, :-1], windows[:, -1]


@dataclass(kw_only=True)
class ShiftCounts:
    """How many shifts of one size are found, confirmed and explained."""

    shifts: int = 0
    suspected: int = 0
    confirmed: int = 0
    right: int = 0
    runs: int = 0
    wrong: list[tuple[Cause, Cause]] = field(default_factory=list)
    peers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PEERS, 0))


def shifted(percent: float, count: int, seed: int = _SEED) -> ShiftCounts:
    """Return what is found of shifts.

    Args:
        percent: Their size.
        count: How many of each cause.
        seed: Of all that is random.
    """
    rng, found = np.random.default_rng((seed, int(10 * percent))), ShiftCounts()
    for number in range(count * len(_CAUSES)):
        cause = _CAUSES[number % len(_CAUSES)]
        story = drawn_story(rng, cause, percent)
        begin = int(rng.integers(60, 120))
        nights = begin + _CONFIRMED_WITHIN
        shift = np.zeros(nights)
        shift[begin:] = story.log_shift
        is_new = Cause.MODEL in (cause, story.coincidence)
        watched = Watched(
            noise=Noise(rng, nights),
            shift=shift,
            model=["old"] * begin + ["new" if is_new else "old"] * _CONFIRMED_WITHIN,
            model_shift={"new": story.log_shift if cause is Cause.MODEL else 0.0},
        )
        found.shifts += 1
        values = np.exp(watched.noise.values + shift)[begin - 30 : begin + _SUSPECTED_WITHIN]
        for name, peer in PEERS.items():
            found.peers[name] += bool(peer(values).any())
        for night in range(begin, nights):
            change = watched.look(night)
            if change is None or abs(int(change.begin_id) - begin) > _NEAR:
                continue
            found.suspected += night < begin + _SUSPECTED_WITHIN
            if change.status is ChangeStatus.CONFIRMED:
                found.confirmed += 1
                trial = watched.trials[change.change_id]
                named = blame(evidence_of(rng, story, night - begin + 1, change, trial)).cause
                found.right += named is cause
                if named is not cause:
                    found.wrong.append((cause, named))
            break
        found.runs += watched.runs
    return found


@dataclass(kw_only=True)
class FalseFindings:
    """What is found in series without a shift."""

    suspicions: int = 0
    alerts: int = 0
    runs: int = 0
    peers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PEERS, 0))


def unshifted(years: int, seed: int = _SEED) -> FalseFindings:
    """Return what is found in series-years without a shift."""
    rng, found = np.random.default_rng(seed), FalseFindings()
    for _ in range(years):
        watched = Watched(
            noise=Noise(rng, _NIGHTS),
            shift=np.zeros(_NIGHTS),
            model=["old"] * _NIGHTS,
            model_shift={},
        )
        for night in range(_NIGHTS):
            watched.look(night)
        found.suspicions += len(watched.changes)
        found.alerts += sum(each.status is ChangeStatus.CONFIRMED for each in watched.changes)
        found.runs += watched.runs
        for name, peer in PEERS.items():
            seen = peer(np.exp(watched.noise.values)).astype(int)
            found.peers[name] += int(seen[0] + (np.diff(seen) > 0).sum())
    return found


def run() -> list[Row]:
    """What is found, confirmed and explained, what is found wrongly, and a page's time."""
    years = int(os.environ.get("EDGEYARD_BENCH_SERIES", _SERIES_YEARS))
    rows, right, confirmed, wrong_causes = [], 0, 0, list[tuple[Cause, Cause]]()
    for percent in (3, 5, 10):
        found = shifted(percent, _SHIFTED)
        note = f"of {found.shifts} series, {_SHIFTED} a cause"
        share = found.suspected / found.shifts
        peers = {name: count / found.shifts for name, count in found.peers.items()}
        within = f"within {_SUSPECTED_WITHIN} nights, {note}"
        rows += _rows_next_to_peers(f"suspected {percent} %", share, peers, within)
        rows.append(
            Row(
                f"confirmed {percent} %",
                found.confirmed / found.shifts,
                "",
                note=f"within {_CONFIRMED_WITHIN} nights, {note}",
            )
        )
        right, confirmed = right + found.right, confirmed + found.confirmed
        wrong_causes += found.wrong
    mistakes = {f"{true} as {named}": 0 for true, named in wrong_causes}
    for true, named in wrong_causes:
        mistakes[f"{true} as {named}"] += 1
    listed = ", ".join(f"{count} {what}" for what, count in sorted(mistakes.items()))
    note = f"of {confirmed} confirmed; wrong: {listed or 'none'}"
    rows.append(Row("blame right", right / max(1, confirmed), "", note=note))
    wrong = unshifted(years)
    bound = f"of {years:,} without a shift; upper 95 % bound {_upper(wrong.alerts, years):.3f}"
    peers = {name: count / years for name, count in wrong.peers.items()}
    rate = wrong.alerts / years
    rows += _rows_next_to_peers("false alerts per series-year", rate, peers, bound)
    suspicions = f"which checks refuted or left undecided; of {years:,} series-years"
    rate = wrong.suspicions / years
    rows.append(Row("false suspicions per series-year", rate, "", note=suspicions))
    share = _SERIES_OF_A_BOARD * wrong.runs / years * _RUN_S / (_NIGHTS * 86400)
    of = f"of a board with {_SERIES_OF_A_BOARD} series and runs of {_RUN_S:g} s"
    rows.append(Row("board time for confirmation", share, "", note=of))
    rows.append(Row("page 500 points", _page_ms(), "ms", note="median of 10 requests, SQLite"))
    return rows


def _rows_next_to_peers(name: str, value: float, peers: dict[str, float], note: str) -> list[Row]:
    return [
        Row(name, value, "", peer, value / peer if peer else None, f"peer: {title}; {note}")
        for title, peer in peers.items()
    ]


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
