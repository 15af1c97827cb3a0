"""What has arrived so far, as queue policies see it: from past runs, running and waiting ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np

from edgeyard.plugins.testing import NOW, board, past_run, pending, snapshot_of
from edgeyard.scheduler.decide.queue import build_queue
from edgeyard.scheduler.framework.batch import PastArrivals
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge

BOARDS = (board("rpi4b-0001-0001"), board("rpi5-0001-0001"))


def ended(name: str, *, ago_s: float, run_s: float | None = 10.0, wait_s: float = 5.0) -> PastRun:
    """A run of a benchmark on the first board, which ended ``ago_s`` before now."""
    run = past_run("rpi4b-0001-0001", ago_s=ago_s, run_s=run_s)
    return replace(run, benchmark_id=name, wait_s=None if run_s is None else wait_s)


def waiting(name: str, ago_s: float) -> PendingBenchmark:
    return pending(name, submit_time=NOW - timedelta(seconds=ago_s), user_time_s=30.0)


def arrivals(
    runs: list[PastRun], jobs: list[PendingBenchmark], holders: tuple[BoardHolder, ...] = ()
) -> PastArrivals:
    count = len(jobs)
    ages = np.array([(NOW - each.submit_time).total_seconds() for each in jobs])
    knowledge = Knowledge(runs=History(runs))
    queue = build_queue(
        jobs,
        NOW,
        np.full(count, 50),
        ages,
        np.full(count, np.nan),
        batch=build_batch(snapshot_of(BOARDS), jobs, NOW, 0, knowledge),
        base_priorities=None,
        holders=holders,
    )
    assert queue.outlook is not None
    assert queue.outlook.past is not None
    return queue.outlook.past


def test_ended_running_and_waiting_benchmarks_have_arrived_the_oldest_first() -> None:
    holder = BoardHolder(
        benchmark_id="running",
        target_uid="rpi4b-0001-0001",
        priority=50,
        started_at=NOW - timedelta(seconds=7),
        time_limit_s=60.0,
    )
    past = arrivals(
        [ended("first", ago_s=100.0), ended("second", ago_s=50.0, run_s=20.0)],
        [waiting("waiting", 40.0)],
        (holder,),
    )
    # an ended one was submitted before its run and its wait
    assert past.ago_s.tolist() == [100.0 + 10.0 + 5.0, 50.0 + 20.0 + 5.0, 40.0, 7.0]
    assert past.run_s[:2].tolist() == [10.0, 20.0]
    assert np.isnan(past.run_s[2:]).all()
    assert past.requested_s[:2].tolist() == [15.0, 15.0]  # the mean of runs of the kind
    assert past.pools.tolist() == [0, 0, 0, 0]


def test_a_benchmark_arrives_once_however_often_it_ran() -> None:
    again = [
        ended("again", ago_s=100.0),
        ended("again", ago_s=50.0, wait_s=55.0),
        ended("back in the queue", ago_s=30.0),
        ended("never started", ago_s=20.0, run_s=None),
    ]
    past = arrivals(again, [waiting("back in the queue", 45.0)])
    assert past.ago_s.tolist() == [115.0, 45.0]


def test_of_a_long_past_only_the_time_counts_whose_arrivals_are_all_known() -> None:
    """One who waits for a day does not make the past a day long in which nobody else arrived."""
    runs = [ended(f"r{number}", ago_s=3000.0 - number) for number in range(2500)]
    past = arrivals(runs, [waiting("old", 86400.0), waiting("young", 1.0)])
    assert past.ago_s.max() <= 3000.0
    assert past.ago_s[-1] == 1.0
    assert len(past.ago_s) <= 500


def test_without_a_past_nothing_has_arrived_but_what_waits() -> None:
    assert arrivals([], [waiting("first", 3.0)]).ago_s.tolist() == [3.0]
    assert len(arrivals([], []).ago_s) == 0
