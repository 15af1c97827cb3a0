"""What holds for every log: no trace is needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bench_sim import plain_simpy
from edgeyard.plugins.builtin import registry
from edgeyard.training.worlds.replay import Backfilling, Replay, replay
from edgeyard.training.worlds.swf import Log
from tests.builders.logs import Job, log_of
from tests.fakes.plain_replay import max_in_use, plain_starts

PROCESSORS = 8
POLICIES = registry(entry_points=False)
FIXED = ("fifo", "shortest_first", "f1", "f2", "f3", "f4")
EVERY = (*FIXED, "wfp3", "unicep", "fair_share", "priority_age", "earliest_deadline")
KEYS = {
    "fifo": lambda s, r, n: s,
    "shortest_first": lambda s, r, n: r,
    "f1": lambda s, r, n: math.log10(r or 0.1) * n + 870 * math.log10(s or 0.1),
}

JOBS: st.SearchStrategy[Job] = st.tuples(
    st.integers(0, 60).map(float),
    st.integers(1, 40).map(float),
    st.integers(1, PROCESSORS),
    st.integers(0, 50).map(float),
)
LOGS = st.lists(JOBS, min_size=1, max_size=40).map(log_of)


def replayed(
    log: Log, queue: str, backfilling: Backfilling, commit: bool, *, ask_each_time: bool = False
) -> Replay:
    return replay(
        log,
        POLICIES.queue_policy(queue),
        processors=PROCESSORS,
        backfilling=backfilling,
        commit=commit and backfilling is not Backfilling.CONSERVATIVE,
        ask_each_time=ask_each_time,
    )


@settings(max_examples=150, deadline=None)
@given(
    log=LOGS,
    queue=st.sampled_from(FIXED),
    backfilling=st.sampled_from(Backfilling),
    commit=st.booleans(),
)
def test_asking_once_and_asking_each_time_lead_to_the_same_starts(
    log: Log, queue: str, backfilling: Backfilling, commit: bool
) -> None:
    once = replayed(log, queue, backfilling, commit)
    each_time = replayed(log, queue, backfilling, commit, ask_each_time=True)
    assert once.schedule.start.tolist() == each_time.schedule.start.tolist()
    assert np.array_equal(once.first_reservation, each_time.first_reservation, equal_nan=True)


@settings(max_examples=150, deadline=None)
@given(
    log=LOGS,
    queue=st.sampled_from(sorted(KEYS)),
    backfilling=st.sampled_from(("none", "easy", "rlscheduler")),
    commit=st.booleans(),
)
def test_a_replay_written_in_another_way_leads_to_the_same_starts(
    log: Log, queue: str, backfilling: str, commit: bool
) -> None:
    ours = replayed(log, queue, Backfilling(backfilling), commit)
    plain = plain_starts(
        log, KEYS[queue], processors=PROCESSORS, backfilling=backfilling, commit=commit
    )
    assert ours.schedule.start.tolist() == plain


@settings(max_examples=100, deadline=None)
@given(
    log=LOGS,
    queue=st.sampled_from(EVERY),
    backfilling=st.sampled_from(Backfilling),
    commit=st.booleans(),
)
def test_every_job_runs_once_in_its_time_within_the_machine(
    log: Log, queue: str, backfilling: Backfilling, commit: bool
) -> None:
    schedule = replayed(log, queue, backfilling, commit).schedule
    assert np.isfinite(schedule.start).all()
    assert (schedule.start >= log.submit).all()
    assert np.array_equal(schedule.end, schedule.start + log.run)
    assert max_in_use(schedule) <= PROCESSORS


@settings(max_examples=100, deadline=None)
@given(log=LOGS, queue=st.sampled_from(EVERY))
def test_conservative_backfilling_never_delays_a_reservation(log: Log, queue: str) -> None:
    found = replayed(log, queue, Backfilling.CONSERVATIVE, commit=False)
    assert np.isfinite(found.first_reservation).all()
    assert (found.schedule.start <= found.first_reservation).all()


@settings(max_examples=150, deadline=None)
@given(log=LOGS, queue=st.sampled_from(EVERY), commit=st.booleans())
def test_easy_never_delays_the_reservation_of_the_first(log: Log, queue: str, commit: bool) -> None:
    """The first stays first in order of submission, and where the choice is committed."""
    commit = commit or queue != "fifo"
    found = replayed(log, queue, Backfilling.EASY, commit)
    held = np.isfinite(found.first_reservation)
    assert (found.schedule.start[held] <= found.first_reservation[held]).all()


@settings(max_examples=100, deadline=None)
@given(log=LOGS, queue=st.sampled_from(EVERY), backfilling=st.sampled_from(Backfilling))
def test_the_machine_is_not_idle_while_a_job_waits(
    log: Log, queue: str, backfilling: Backfilling
) -> None:
    schedule = replayed(log, queue, backfilling, commit=False).schedule
    for job in range(len(log)):
        running = (schedule.start < schedule.start[job]) & (schedule.end >= schedule.start[job])
        waited = schedule.start[job] > schedule.submit[job]
        assert running.any() or not waited


@settings(max_examples=60, deadline=None)
@given(log=LOGS)
def test_in_order_of_submission_nobody_who_fits_first_is_kept_waiting(log: Log) -> None:
    """Work conservation without backfilling: a wait ends when an earlier one starts or one ends."""
    schedule = replayed(log, "fifo", Backfilling.NONE, commit=False).schedule
    order = np.lexsort((log.job, log.submit))
    assert (np.diff(schedule.start[order]) >= 0).all()
    before = schedule.submit.min()
    for job in order.tolist():
        wanted = max(before, float(schedule.submit[job]))
        if schedule.start[job] > wanted:  # then it did not fit until just before it started
            at = float(schedule.start[job])
            busy = (schedule.start < at) & (schedule.end >= at)
            assert log.procs[busy].sum() + log.procs[job] > PROCESSORS
        before = float(schedule.start[job])


@pytest.mark.parametrize("backfilling", Backfilling)
def test_a_replay_is_the_same_each_time(backfilling: Backfilling) -> None:
    rng = np.random.default_rng(1)
    log = log_of(
        [
            (float(submit), float(run), int(procs), float(asked))
            for submit, run, procs, asked in rng.integers(1, 9, size=(300, 4))
        ]
    )
    first, second = (replayed(log, "unicep", backfilling, False) for _ in range(2))
    assert first.schedule.start.tolist() == second.schedule.start.tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("queue", "easy"), [("fifo", False), ("fifo", True), ("shortest_first", 0)]
)
def test_the_peer_of_the_benchmark_makes_the_same_schedule(
    seed: int, queue: str, easy: bool
) -> None:
    rng = np.random.default_rng(seed)
    # times that no two events share: SimPy has another order of the events of one instant
    log = log_of(
        [
            (float(submit) + rng.random(), float(run), int(procs), float(asked))
            for submit, run, procs, asked in rng.integers(1, 9, size=(200, 4)) * [100, 20, 1, 30]
        ]
    )
    backfilling = Backfilling.EASY if easy else Backfilling.NONE
    ours = replayed(log, queue, backfilling, commit=False)
    peer = plain_simpy(log, PROCESSORS, by_run_time=queue == "shortest_first", easy=easy)
    assert ours.schedule.start == pytest.approx(peer, abs=1e-6)
