"""How good forecasts are on run times that no model of ours made: coverage, width, interval score.

For each log, in order of submission and in blocks: quantiles at 10 and 90 % of the next runs'
times, from the runs that had ended before the block, as forecasts draw them
(`edgeyard.scheduler.prediction.distributions`) and by what anybody would try first, the plain
empirical quantiles of what ran before: of the same kind, where it ran five times; else of the same
user or model; else of all. Ours are widened as those of the runs turned out that had ended when
each was submitted.

Interval score (Gneiting & Raftery 2007, equation 43), for the 80 % interval [l, u] and x seen::

    (u - l) + (2 / 0.2) (l - x) [x < l] + (2 / 0.2) (x - u) [x > u]

lower is better; of logarithms, since run times span six orders of magnitude (and run times are
what users read as "about twice as long").

Jobs of the logs state a bound on their run time, as benchmarks do; both sides keep to it. Jobs that
passed theirs (up to 8 %) are left out: Edgeyard ends such runs, and they say nothing of run times.

The row ``queue``: every few hundred jobs of a log the next 64 wait for 8 boards at once; each one's
end is predicted by `edgeyard.scheduler.prediction.forecast`, widened as its forecasts of the
queues before turned out, and by the same list schedule with run times drawn from those plain
past runs; the truth is the list schedule of the times that they took.
The logs are not part of Edgeyard; see `TRACES`.

Intervals are bootstraps that draw whole parts with replacement, the same ones for both sides:
blocks of 500 runs in order, since jobs of one afternoon are alike, queues, and the systems with one
processor or accelerator for MLPerf.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import math
import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifted_queues import Change, Outcomes, joined, shifted
from benchmarks.tables import Row
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.framework.batch import pairs_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import CycleInput, PendingBenchmark
from edgeyard.scheduler.model.forecast import HIGH, LOW, Compared, ForecastResult
from edgeyard.scheduler.model.history import History, PastRun, RunKind
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.calibration import (
    REMEMBERED,
    IntervalScale,
    drawn_widths,
    interval_scale_of,
    interval_scales_of,
    rescaled,
    result_of,
)
from edgeyard.scheduler.prediction.distributions import history_distributions
from edgeyard.scheduler.prediction.forecast import SAMPLES, forecasts
from edgeyard.scheduler.prediction.simulated_lab import RunSampler

TRACES = Path(os.environ.get("EDGEYARD_TRACES") or Path(__file__).parents[2] / "shared" / "traces")
"""Folder of the Parallel Workloads Archive's logs and MLPerf's latencies; skipped where missing."""

ALPHA = 1.0 - (HIGH - LOW)
BLOCK = 500
MAX_RUNS = 20_000
MIN_RUNS = 5
DRAWS = 2_000
CLUSTER = "cluster"
"""Family of the logs' machines."""

COVERED = (0.75, 0.85)
"""What the interval of each coverage of 80 % must touch."""

SHIFTED_QUEUES = 70
"""For each change: 210 in all."""

MIN_SHIFTED_COVERAGE, MAX_SHIFTED_RATIO = 0.7, 1.1
"""Least lower bound of a coverage, and largest ratio of interval scores, of all queues that change;
rows of one change state what they hold, of too few starts to bound it."""

BOARDS, QUEUE = 8, 64
POLICY = replace(load_policy("default"), filters=("family",), scorers=(), fallback=None)
_START = datetime(2020, 1, 1, tzinfo=UTC)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PastRunRow:
    """A run of a log.

    Attributes:
        kind: What it ran: model (or user's programme), variant.
        broader: What else it is like: the user, or the model.
        bound_s: It was not to run longer.
    """

    submit_s: float
    end_s: float
    run_s: float
    family: str
    uid: str
    kind: RunKind
    broader: str
    bound_s: float


def run() -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    for name, log in (
        ("KTH-SP2", "KTH-SP2-1996-2.1-cln.swf.gz"),
        ("SDSC-SP2", "SDSC-SP2-1998-4.2-cln.swf.gz"),
        ("HPC2N", "HPC2N-2002-2.2-cln.swf.gz"),
    ):
        seen = list(_swf(log))
        rows += _judged(name, seen) + _queues(f"{name} queue", seen)
    rows += _judged("MLPerf edge", list(_mlperf("mlperf_inference_latency.csv.gz")))
    return rows + _shifted()


def _shifted() -> list[Row]:
    """Starts and ends in queues that change in the middle, see `benchmarks.shifted_queues`."""
    found: dict[str, list[Outcomes]] = {"starts": [], "ends": []}
    for change in Change:
        began = time.perf_counter()
        for of, seen in zip(found, shifted(change, SHIFTED_QUEUES), strict=True):
            found[of].append(seen)
        print(f"coverage shift, {change}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    rows: list[Row] = []
    for of, by_change in found.items():
        rows += _shifted_rows(
            f"coverage shift, {of}",
            joined(by_change),
            [f"{n} {queue}" for n, seen in enumerate(by_change) for queue in seen.queues.tolist()],
            min_coverage=MIN_SHIFTED_COVERAGE,
            max_ratio=MAX_SHIFTED_RATIO,
        )
        for change, seen in zip(Change, by_change, strict=True):
            queues = seen.queues.astype(str).tolist()
            rows += _shifted_rows(f"coverage shift, {change}, {of}", seen, queues, min_coverage=0.0)
    return rows


def _shifted_rows(
    name: str,
    seen: Outcomes,
    queues: Sequence[str],
    *,
    min_coverage: float,
    max_ratio: float | None = None,
) -> list[Row]:
    x, (low, high), (plain_low, plain_high) = (
        np.log(np.maximum(each, 1.0)) for each in (seen.came, seen.ours, seen.plain)
    )
    return forecast_rows(
        name,
        x,
        (low, high),
        (plain_low, plain_high),
        queues,
        f"peer: plain past runs, same schedule; {len(set(queues))} queues, {len(x):,} predictions",
        min_coverage=min_coverage,
        max_ratio=max_ratio,
    )


def _judged(name: str, seen: Sequence[PastRunRow]) -> list[Row]:
    if not seen:
        print(f"skipped: {name} is not in {TRACES}", file=sys.stderr)
        return []
    began = time.perf_counter()
    truth, ours, plain = [], [], []
    parts: list[str] = []
    learned = _RunScale()
    for start in range(len(seen) // 4, len(seen), BLOCK):
        block = seen[start : start + BLOCK]
        past = [each for each in seen[:start] if each.end_s <= block[0].submit_s]
        parts += [str(start) if each.family == CLUSTER else each.family for each in block]
        truth.append(np.log([each.run_s for each in block]))
        drawn = _ours(past, block)
        ours.append(
            np.array([learned.interval(*each) for each in zip(block, drawn, strict=True)]).T
        )
        plain.append(_plain(past, block))
    x = np.concatenate(truth)
    low, high = np.log(np.concatenate(ours, axis=1))
    plain_low, plain_high = np.log(np.concatenate(plain, axis=1))
    note = f"peer: plain empirical quantiles; {len(x):,} runs, in order"
    print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    return forecast_rows(name, x, (low, high), (plain_low, plain_high), parts, note)


def forecast_rows(
    name: str,
    x: Floats,
    ours: tuple[Floats, Floats],
    plain: tuple[Floats, Floats],
    parts: Sequence[str],
    note: str,
    *,
    min_coverage: float | None = None,
    max_ratio: float | None = None,
) -> list[Row]:
    """Return a row for coverage, width and interval score, with 95 % intervals in their notes.

    Args:
        name: Of the runs.
        x: What was seen, shape (runs,), as of all others.
        ours: Lower and upper ends.
        plain: Those of the peer.
        parts: The part that is drawn as a whole, of each run.
        note: For each row.
        min_coverage: Least lower end of the coverage's interval; None: it must touch `COVERED`.
        max_ratio: Largest ratio of interval scores; None: that is not significantly above 1.
    """
    rows = []
    for figure, unit, of in (
        ("coverage of 80 %", "", _covered),
        ("mean width", "ln s", _width),
        ("interval score", "ln s", interval_scores),
    ):
        values, peers = of(x, *ours), of(x, *plain)
        value, peer = float(values.mean()), float(peers.mean())
        (low, high), (ratio_low, ratio_high) = drawn_parts(values, peers, parts)
        intervals = f"95 %: {low:.2f}-{high:.2f}, ratio {ratio_low:.2f}-{ratio_high:.2f}"
        verdict = ""
        if figure == "interval score":
            if ratio_low > 1.0:
                verdict = "; significantly worse than the peer"
            if max_ratio is not None and value / peer > max_ratio:
                verdict += f"; MISSED: at most {max_ratio} times the peer's"
        elif of is _covered:
            if min_coverage is None and (high < COVERED[0] or low > COVERED[1]):
                verdict = f"; MISSED: {COVERED[0]} to {COVERED[1]}"
            if min_coverage is not None and low < min_coverage:
                verdict = f"; MISSED: at least {min_coverage}"
        rows.append(
            Row(
                f"{name}: {figure}",
                value,
                unit,
                peer,
                value / peer,
                f"{intervals}{verdict}; {note}",
            )
        )
    return rows


def drawn_parts(
    values: Floats, peers: Floats, parts: Sequence[str]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the 95 % intervals of the mean, and of its ratio to the peer's."""
    _, of_run = np.unique(parts, return_inverse=True)
    totals, others, counts = (np.bincount(of_run, weights) for weights in (values, peers, None))
    drawn = np.random.default_rng(0).integers(0, len(totals), (DRAWS, len(totals)))
    sums = totals[drawn].sum(axis=1)
    means = sums / counts[drawn].sum(axis=1)
    ratios = sums / others[drawn].sum(axis=1)
    return _ends_of_95(means), _ends_of_95(ratios)


def _ends_of_95(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


class _RunScale:
    """Widens intervals of runs as those before turned out that had ended by then."""

    def __init__(self) -> None:
        self._running: list[tuple[float, int, Compared]] = []
        self._ended: deque[Compared] = deque(maxlen=REMEMBERED)
        self._scale: IntervalScale | None = None
        self._count = 0

    def interval(self, one: PastRunRow, drawn: Floats) -> tuple[float, float]:
        """Return the ends of the interval of a run that starts as it was submitted, seconds."""
        news = False
        while self._running and self._running[0][0] <= one.submit_s:
            self._ended.append(heapq.heappop(self._running)[2])
            news = True
        if news:
            self._scale = interval_scale_of(self._ended)
        widths = drawn_widths(drawn)
        times = np.minimum(rescaled(drawn, 0.0, self._scale), one.bound_s)
        low, high = np.quantile(times, (LOW, HIGH)).tolist()
        error = math.log(one.run_s / float(np.median(drawn)))
        assert widths is not None
        score = error / (widths.late if error >= 0.0 else widths.early)
        compared = Compared(score=score, held=low <= one.run_s <= high)
        heapq.heappush(self._running, (one.end_s, self._count, compared))
        self._count += 1
        return low, high


def _queues(name: str, seen: Sequence[PastRunRow]) -> list[Row]:
    """Ends of whole queues."""
    if not seen:
        return []
    rng = np.random.default_rng(0)
    began = time.perf_counter()
    snapshot = snapshot_of(
        [
            replace(board("a-0001-0001"), target_uid=f"cluster-0001-{n:04}", family=CLUSTER)
            for n in range(BOARDS)
        ]
    )
    truth, ours, plain = [], [], []
    results: deque[ForecastResult] = deque(maxlen=REMEMBERED)
    for start in range(len(seen) // 4, len(seen) - QUEUE, 2 * BLOCK):
        block = seen[start : start + QUEUE]
        past = [each for each in seen[:start] if each.end_s <= block[0].submit_s]
        jobs = [
            replace(
                each, benchmark_id=str(number), submit_time=NOW - timedelta(hours=QUEUE - number)
            )
            for number, each in enumerate(_jobs(block))
        ]
        known = Knowledge(runs=_history(past), max_run_s=1e8)
        result = decide(
            CycleInput(snapshot=snapshot, pending=jobs, now=NOW, knowledge=known),
            POLICY,
            registry(entry_points=False).resolve(POLICY),
        )
        scales = interval_scales_of(results)
        found = forecasts(result.decided.forecast_input, interval_scales=scales)
        order = [int(each) for each in result.order]
        run_s = np.array([block[k].run_s for k in order])
        truth.append(_ends(run_s[:, None])[:, 0])
        drawn = np.array(
            [np.minimum(rng.choice(_alike(past, block[k]), 200), block[k].bound_s) for k in order]
        )
        plain.append(np.quantile(_ends(drawn), (LOW, HIGH), axis=1))
        predicted = [found[str(k)] for k in order]
        for row in np.argsort(truth[-1]).tolist():
            ended_at = NOW + timedelta(seconds=float(truth[-1][row]))
            started_at = ended_at - timedelta(seconds=float(run_s[row]))
            results.append(result_of(predicted[row], started_at, ended_at, completed=True))
        ours.append(
            [
                [(each.finish_low - NOW).total_seconds() for each in predicted],
                [(each.finish_high - NOW).total_seconds() for each in predicted],
            ]
        )
    x = np.log(np.concatenate(truth))
    low, high = np.log(np.concatenate(ours, axis=1))
    plain_low, plain_high = np.log(np.concatenate(plain, axis=1))
    note = f"peer: plain past runs, same schedule; {len(x):,} ends"
    print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
    parts = np.repeat(np.arange(len(truth)), [len(each) for each in truth]).astype(str).tolist()
    return forecast_rows(name, x, (low, high), (plain_low, plain_high), parts, note)


def _ends(run_s: Floats) -> Floats:
    """Shape (jobs, samples): of a list schedule in the order of the rows."""
    free = np.zeros((run_s.shape[1], BOARDS))
    samples = np.arange(run_s.shape[1])
    ends = np.empty_like(run_s)
    for job, times in enumerate(run_s):
        first = free.argmin(axis=1)
        ends[job] = free[samples, first] + times
        free[samples, first] = ends[job]
    return ends


def interval_scores(x: Floats, low: Floats, high: Floats) -> Floats:
    """Return the score of each run; see the module."""
    below, above = np.maximum(low - x, 0.0), np.maximum(x - high, 0.0)
    return np.asarray(high - low + (2.0 / ALPHA) * (below + above), dtype=np.float64)


def _covered(x: Floats, low: Floats, high: Floats) -> Floats:
    return ((low <= x) & (x <= high)).astype(np.float64)


def _width(x: Floats, low: Floats, high: Floats) -> Floats:
    return np.asarray(high - low, dtype=np.float64)


def _ours(past: Sequence[PastRunRow], block: Sequence[PastRunRow]) -> Floats:
    """Possible run times, shape (block, samples), seconds."""
    uids = sorted({(each.uid, each.family) for each in block})
    jobs = _jobs(block)
    snapshot = snapshot_of(
        [replace(board("a-0001-0001"), target_uid=uid, family=family) for uid, family in uids]
    )
    batch = build_batch(snapshot, jobs, NOW, 0, Knowledge(runs=_history(past)))
    row_of_uid = {uid: row for row, uid in enumerate(snapshot.uids)}
    boards = np.array([row_of_uid[each.uid] for each in block], dtype=np.intp)
    fits = np.zeros(batch.shape, dtype=np.bool_)
    fits[batch.class_of_job, boards] = True
    pairs, rng = pairs_of(fits), np.random.default_rng(0)
    runs = RunSampler(batch, pairs, history_distributions(batch, pairs), SAMPLES, rng)
    drawn = []
    for job, (row, on) in enumerate(zip(batch.class_of_job.tolist(), boards.tolist(), strict=True)):
        loading_s, run_s = runs.draw(job, np.full(SAMPLES, pairs.at(row, on)))
        drawn.append(loading_s + run_s)
    return np.array(drawn)


def _history(past: Sequence[PastRunRow]) -> History:
    return History(
        PastRun(
            benchmark_id=str(number),
            user_id=each.broader,
            target_uid=each.uid,
            family=each.family,
            kind=each.kind,
            run_s=each.run_s,
            failure=None,
            ended_at=_START + timedelta(seconds=each.end_s),
        )
        for number, each in enumerate(past)
    )


def _jobs(block: Sequence[PastRunRow]) -> list[PendingBenchmark]:
    return [
        pending(
            str(number),
            family=each.family,
            engine=each.kind.engine,
            model_sha256=each.kind.model_sha256,
            variant=each.kind.variant,
            user_time_s=each.bound_s,
            user_id=each.broader,
        )
        for number, each in enumerate(block)
    ]


def _alike(past: Sequence[PastRunRow], one: PastRunRow) -> list[float]:
    """Past run times of the narrowest group that has enough."""
    for alike in (
        [each.run_s for each in past if each.kind == one.kind],
        [each.run_s for each in past if each.broader == one.broader],
    ):
        if len(alike) >= MIN_RUNS:
            return alike
    return [each.run_s for each in past]


def _plain(past: Sequence[PastRunRow], block: Sequence[PastRunRow]) -> Floats:
    """Shape (2, block), seconds."""
    by_kind: dict[object, list[float]] = defaultdict(list)
    for each in past:
        for group in ((each.uid, each.kind), each.broader, None):
            by_kind[group].append(each.run_s)
    known: dict[object, Floats] = {}
    found = np.empty((2, len(block)))
    key: object = None
    for number, each in enumerate(block):
        for key in ((each.uid, each.kind), each.broader, None):
            if len(by_kind[key]) >= MIN_RUNS:
                break
        if key not in known:
            known[key] = np.quantile(by_kind[key], (LOW, HIGH))
        found[:, number] = np.minimum(known[key], each.bound_s)
    return found


def _swf(file: str) -> Iterator[PastRunRow]:
    """Jobs of a log in the Standard Workload Format (Feitelson); those that ran at all."""
    path = TRACES / file
    if not path.is_file():
        return
    count = 0
    with gzip.open(path, "rt", encoding="latin-1") as lines:
        for line in lines:
            if line.startswith(";"):
                continue
            field = [float(each) for each in line.split()]
            submit_s, wait_s, run_s, processors, asked_s = (field[k] for k in (1, 2, 3, 7, 8))
            user, program = int(field[11]), int(field[13])
            if not 1.0 <= run_s <= asked_s:
                continue
            yield PastRunRow(
                submit_s=submit_s,
                end_s=submit_s + max(wait_s, 0.0) + run_s,
                run_s=run_s,
                family=CLUSTER,
                uid="cluster-0001-0001",
                kind=RunKind(
                    engine="ort",
                    benchmark_type=BenchmarkType.TYPE1,
                    model_sha256=f"{user}/{program}",
                    variant=f"{processors:g}/{asked_s:g}",
                ),
                broader=str(user),
                bound_s=asked_s,
            )
            count += 1
            if count == MAX_RUNS:
                return


def _mlperf(file: str) -> Iterator[PastRunRow]:
    """Single-stream latencies of edge systems, in a shuffled order that a seed fixes."""
    path = TRACES / file
    if not path.is_file():
        return
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        found = [
            each
            for each in csv.DictReader(lines)
            if each["scenario"] == "singlestream" and float(each["lat_mean_ns"] or 0) > 0
        ]
    np.random.default_rng(0).shuffle(found)
    for number, each in enumerate(found):
        yield PastRunRow(
            submit_s=float(number),
            end_s=float(number),
            run_s=float(each["lat_mean_ns"]) / 1e9,
            family=(each["accel"] or each["processor"])[:60] or "unknown",
            uid=each["system"],
            kind=RunKind(
                engine=(each["framework"].split() or ["none"])[0].lower(),
                benchmark_type=BenchmarkType.TYPE1,
                model_sha256=each["model"],
            ),
            broader=each["model"],
            bound_s=1e8,
        )
