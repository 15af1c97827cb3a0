"""Predict when benchmarks start and end: simulate the queue many times at once.

Pure, in virtual time. The cycle's own order of the queue, its filters and its scores are used as
they are. What is simulated is list scheduling by events, since a whole decision for each board that
comes free would take hours: from first to last in the queue, each benchmark takes, among the boards
that its filters would let it use if they were free, the one that comes free first (of those free at
the same time the one with the best score). With all benchmarks ready that is what the cycle does,
step by step: no later benchmark ever delays one that starts by itself. Before a reservation or a
lease only those get the board that have certainly ended by then
(`edgeyard.scheduler.prediction.timeline`).

Each *sample* is one possible future (`edgeyard.scheduler.prediction.simulated_lab`). A run never
takes longer than its bound, which is enforced.

The benchmarks of a gang start together (`edgeyard.scheduler.prediction.simulated_gangs`).

Not predicted: benchmarks that will be submitted later and overtake, preemption, failures and
retries, boards that go or come back; and runs of a queue resemble each other more than past runs
show. How wrong earlier predictions were determines how far waits are widened for all of that
(`edgeyard.scheduler.prediction.calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.model.decision import PlannedStart
from edgeyard.scheduler.model.forecast import HIGH, LOW, MIDDLE, Forecast
from edgeyard.scheduler.prediction.calibration import (
    AS_DRAWN,
    START_RESOLUTION_S,
    IntervalScales,
    drawn_widths,
    rescaled,
)
from edgeyard.scheduler.prediction.simulated_gangs import SimulatedGangs
from edgeyard.scheduler.prediction.simulated_lab import ForecastInput, RunSampler, SimulatedLab
from edgeyard.scheduler.prediction.timeline import bounds_left

SAMPLES = 64
"""Number of futures, with which quantiles at 10 % and 90 % are mostly off by up to 4 points."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitSamples:
    """Possible futures; times are seconds from now, inf where a benchmark never starts.

    Attributes:
        jobs: Shape (simulated,): rows of the pending benchmarks, first to last.
        starts: Shape (simulated, samples): when their tasks start, a time of loading after their
            placement.
        finishes: Shape (simulated, samples).
        ends: Shape (holders, samples): when those that run now end.
        grounded: Shape (simulated,): whether past runs say something of it.
        earliest_start: Shape (simulated,): earliest start that its start time and leases allow;
            inf where they never do.
    """

    jobs: NDArray[np.intp]
    starts: Floats
    finishes: Floats
    ends: Floats
    grounded: NDArray[np.bool_]
    earliest_start: Floats


def forecasts(
    given: ForecastInput, *, samples: int = SAMPLES, interval_scales: IntervalScales = AS_DRAWN
) -> dict[str, Forecast]:
    """Predict start and end of all benchmarks that run or wait.

    Args:
        given: What a cycle found out.
        samples: Futures to draw.
        interval_scales: By how much intervals are widened.

    Returns:
        By id of the benchmark. Those of which no time is known are missing.
    """
    futures = sample_futures(given, samples=samples)
    now = given.batch.now
    unready_gangs = {each.gang_id for each in given.pending if each.not_ready is not None} - {None}
    found = {}
    for number, job in enumerate(futures.jobs.tolist()):
        each = given.pending[job]
        # while its files are fetched its start is unknown, but its place counts
        if (
            each.not_ready is None
            and each.gang_id not in unready_gangs
            and np.isfinite(futures.finishes[number]).all()
        ):
            found[each.benchmark_id] = _forecast(given, futures, number, interval_scales)
    shown = [
        row
        for row, holder in enumerate(given.holders)
        if holder.started_at is not None and not holder.ending
    ]
    drawn, left_s = futures.ends[shown], bounds_left(given.batch, given.holders)[shown]
    ends_of = np.array(
        [
            np.minimum(rescaled(each, 0.0, interval_scales.run), bound_s)
            for each, bound_s in zip(drawn, left_s.tolist(), strict=True)
        ]
    ).reshape(drawn.shape)
    for row, ends, raw, (low, middle, high) in zip(
        shown, ends_of, drawn, _moments(ends_of, now), strict=True
    ):
        holder = given.holders[row]
        assert holder.started_at is not None
        found[holder.benchmark_id] = Forecast(
            benchmark_id=holder.benchmark_id,
            made_at=now,
            place=None,
            start=holder.started_at,
            start_low=holder.started_at,
            start_high=holder.started_at,
            finish=middle,
            finish_low=low,
            finish_high=high,
            deadline_chance=_chance(ends, holder.deadline, now),
            grounded=bool(np.isfinite(ends).all()),
            finish_widths=drawn_widths(raw),
        )
    return found


def forecast_of(
    given: ForecastInput,
    benchmark_id: str,
    *,
    samples: int = SAMPLES,
    interval_scales: IntervalScales = AS_DRAWN,
) -> Forecast | None:
    """Predict start and end of one benchmark that waits, or was placed now.

    Benchmarks behind it in the queue are simulated only where a gang waits that they may delay.

    Args:
        given: As for `forecasts`.
        benchmark_id: Of a pending benchmark.
        samples: As for `forecasts`.
        interval_scales: As for `forecasts`.

    Returns:
        None where no time is known.
    """
    futures = sample_futures(given, samples=samples, last=benchmark_id)
    places = np.flatnonzero(futures.jobs == given.row_of_id[benchmark_id])
    if not len(places) or not np.isfinite(futures.finishes[places[0]]).all():
        return None
    return _forecast(given, futures, int(places[0]), interval_scales)


def with_start_of(forecast: Forecast | None, planned: PlannedStart) -> PlannedStart:
    """Return a plan with the start that is predicted, so that one start is shown.

    A plan goes by medians of single runs; a forecast of the same cycle, which keeps to its boards,
    by the whole queue in many futures.
    """
    return planned if forecast is None else replace(planned, start=forecast.start)


def sample_futures(
    given: ForecastInput, *, samples: int = SAMPLES, last: str | None = None
) -> WaitSamples:
    """Draw futures; the same arguments give the same ones.

    Args:
        given: As for `forecasts`.
        samples: As for `forecasts`; 1: the one future in which each run takes its median.
        last: Stop after this benchmark where later ones do not delay it.
    """
    rng = np.random.default_rng(given.batch.seed)
    lab = SimulatedLab(given, samples, rng)
    jobs = lab.queue(last)
    lab.close_reserved_slots_of_others(jobs)
    runs = RunSampler(lab.batch, lab.pairs, given.distributions(lab.batch, lab.pairs), samples, rng)
    starts = np.full((len(jobs), samples), np.inf)
    finishes = starts.copy()
    grounded = np.zeros(len(jobs), dtype=np.bool_)
    earliest_start = np.full(len(jobs), np.inf)
    gangs = SimulatedGangs(given, lab, runs, jobs)
    for number, job in enumerate(jobs.tolist()):
        if job in gangs:
            gangs.reach(job)
            continue
        row = int(lab.batch.class_of_job[job])
        pairs, slots = lab.choices(job, row)
        if not len(pairs):
            continue
        earliest_start[number] = lab.earliest_start(job, pairs, slots)
        while True:
            start = lab.starts(job, pairs, slots)
            choice = start.argmin(axis=1)
            begins = start[lab.samples, choice]
            if not gangs.start_before(job, pairs, begins):
                break
        taken = pairs[choice]
        loading_s, run_s = runs.draw(job, taken)
        starts[number] = begins + loading_s
        finishes[number] = starts[number] + run_s
        lab.hold(job, slots[choice], finishes[number])
        grounded[number] = runs.known[taken].all()
    gangs.start_all()
    number_of_job = {job: number for number, job in enumerate(jobs.tolist())}
    for gang in gangs.all:
        numbers = [number_of_job[job] for job in gang.jobs]
        starts[numbers], finishes[numbers] = gang.task_starts, gang.ends
        grounded[numbers], earliest_start[numbers] = gang.grounded, gang.soonest_s
    return WaitSamples(
        jobs=jobs,
        starts=starts,
        finishes=finishes,
        ends=lab.ends,
        grounded=grounded,
        earliest_start=earliest_start,
    )


def _forecast(
    given: ForecastInput, futures: WaitSamples, number: int, interval_scales: IntervalScales
) -> Forecast:
    """Summarise the futures of one benchmark, the ``number``-th that was simulated."""
    job, now = int(futures.jobs[number]), given.batch.now
    each = given.pending[job]
    starts, finishes = futures.starts[number], futures.finishes[number]
    run_s = finishes - starts
    waits = given.board_of_job[job] == NO_ROW
    widths = None
    if waits:
        drawn = np.maximum(starts, START_RESOLUTION_S)  # in the next cycle, if the board is free
        widths = drawn_widths(drawn, START_RESOLUTION_S)
        soonest_s = float(futures.earliest_start[number])
        starts = rescaled(drawn, soonest_s, interval_scales.start, START_RESOLUTION_S)
    bound_s = float(given.batch.time_limits_s[given.batch.class_of_job[job]])
    scale = interval_scales.end if waits else interval_scales.run
    ends = rescaled(finishes, starts + float(run_s.min()), scale)
    ends = np.minimum(ends, starts + max(bound_s, float(run_s.max())))
    (start_low, start, start_high), (finish_low, finish, finish_high) = _moments(
        np.stack((starts, ends)), now
    )
    if not waits:
        start_high = max(start_high, start + timedelta(seconds=START_RESOLUTION_S))
    return Forecast(
        benchmark_id=each.benchmark_id,
        made_at=now,
        place=int(given.places[job]),
        start=start,
        start_low=start_low,
        start_high=start_high,
        finish=finish,
        finish_low=finish_low,
        finish_high=finish_high,
        deadline_chance=_chance(ends, each.deadline, now),
        grounded=bool(futures.grounded[number]),
        start_widths=widths,
        finish_widths=drawn_widths(finishes),
    )


def _moments(seconds: Floats, now: datetime) -> list[tuple[datetime, datetime, datetime]]:
    """Return the low end, the middle and the high end of each row of samples.

    Of all rows at once: a call of `numpy.quantile` takes longer than its work on a row.
    """
    return [
        (
            now + timedelta(seconds=low),
            now + timedelta(seconds=middle),
            now + timedelta(seconds=high),
        )
        for low, middle, high in np.quantile(seconds, (LOW, MIDDLE, HIGH), axis=1).T.tolist()
    ]


def _chance(finishes: Floats, deadline: datetime | None, now: datetime) -> float | None:
    if deadline is None:
        return None
    return float((finishes <= (deadline - now).total_seconds()).mean())
