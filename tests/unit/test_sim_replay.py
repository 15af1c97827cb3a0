"""Replays that can be checked by hand."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.batch import Queue
from edgeyard.training.worlds.replay import Backfilling, replay
from tests.builders.logs import Job, log_of

POLICIES = registry(entry_points=False)
FIFO = POLICIES.queue_policy("fifo")
SJF = POLICIES.queue_policy("shortest_first")


def starts(
    jobs: list[Job],
    queue: str = "fifo",
    backfilling: Backfilling = Backfilling.NONE,
    *,
    processors: int = 4,
    commit: bool = False,
    ask_each_time: bool = False,
) -> list[float]:
    found = replay(
        log_of(jobs),
        POLICIES.queue_policy(queue),
        processors=processors,
        backfilling=backfilling,
        commit=commit,
        ask_each_time=ask_each_time,
    )
    return [float(start) for start in found.schedule.start]


BLOCKED: list[Job] = [(0, 100, 3), (1, 50, 4), (2, 90, 1), (3, 200, 1)]
"""The second waits for the first; the third ends before it could start, the fourth after."""


@pytest.mark.parametrize("ask_each_time", [False, True])
@pytest.mark.parametrize(
    ("backfilling", "expected"),
    [
        (Backfilling.NONE, [0, 100, 150, 150]),
        (Backfilling.EASY, [0, 100, 2, 150]),
        (Backfilling.CONSERVATIVE, [0, 100, 2, 150]),
        (Backfilling.RLSCHEDULER, [0, 100, 2, 150]),
    ],
)
def test_a_short_job_fills_the_gap_and_a_long_one_does_not(
    backfilling: Backfilling, expected: list[float], ask_each_time: bool
) -> None:
    assert starts(BLOCKED, "fifo", backfilling, ask_each_time=ask_each_time) == expected


def test_easy_uses_processors_that_the_reservation_spares() -> None:
    jobs: list[Job] = [(0, 100, 3), (1, 50, 3), (2, 500, 1)]
    assert starts(jobs, "fifo", Backfilling.EASY) == [0, 100, 2]
    assert starts(jobs, "fifo", Backfilling.RLSCHEDULER) == [0, 100, 100]


def test_all_jobs_that_end_by_the_reservation_count_as_spare() -> None:
    jobs: list[Job] = [(0, 100, 2), (0, 100, 2), (1, 50, 2), (2, 500, 2)]
    assert starts(jobs, "fifo", Backfilling.EASY) == [0, 0, 100, 100]
    jobs = [(0, 100, 2), (0, 100, 1), (1, 50, 2), (2, 500, 1)]
    assert starts(jobs, "fifo", Backfilling.EASY) == [0, 0, 100, 2]


def test_a_reservation_counts_on_requested_times() -> None:
    jobs: list[Job] = [(0, 50, 3, 100), (1, 10, 4), (2, 90, 1)]
    assert starts(jobs, "fifo", Backfilling.EASY) == [0, 92, 2]
    assert starts(jobs, "fifo", Backfilling.NONE) == [0, 50, 60]


def test_a_job_that_outruns_its_request_holds_its_processors_to_its_end() -> None:
    jobs: list[Job] = [(0, 100, 3, 10), (1, 10, 4), (2, 90, 1)]
    assert starts(jobs, "fifo", Backfilling.EASY) == [0, 100, 2]
    assert starts(jobs, "fifo", Backfilling.RLSCHEDULER) == [0, 100, 110]


def test_a_shorter_job_overtakes_unless_the_choice_is_committed() -> None:
    jobs: list[Job] = [(0, 100, 4), (1, 50, 4), (2, 10, 4)]
    assert starts(jobs, "shortest_first") == [0, 110, 100]
    assert starts(jobs, "shortest_first", commit=True) == [0, 100, 150]


def test_at_one_instant_arrivals_come_before_ends_and_each_has_its_pass() -> None:
    # at 10 the second and the third arrive before the first ends: the shorter starts first
    jobs: list[Job] = [(0, 10, 4), (10, 50, 4), (10, 20, 4)]
    assert starts(jobs, "shortest_first") == [0, 30, 10]
    # on an empty machine the first to arrive starts at once, though the second is shorter
    assert starts([(0, 50, 4), (0, 20, 4)], "shortest_first") == [0, 50]


def test_a_job_that_no_event_could_start_earlier_waits_for_both_ends() -> None:
    jobs: list[Job] = [(0, 10, 2), (0, 10, 2), (1, 5, 4), (2, 3, 2)]
    assert starts(jobs, "fifo", Backfilling.CONSERVATIVE) == [0, 0, 10, 15]


def test_a_conservative_reservation_moves_up_when_a_job_ends_early() -> None:
    jobs: list[Job] = [(0, 20, 4, 100), (1, 10, 4, 50), (2, 10, 4, 50)]
    found = replay(log_of(jobs), FIFO, processors=4, backfilling=Backfilling.CONSERVATIVE)
    assert found.first_reservation.tolist() == [0, 100, 150]
    assert found.schedule.start.tolist() == [0, 20, 30]


def test_conservative_delays_nobody_who_came_earlier_where_easy_does() -> None:
    # the third has no reservation with EASY, so the fourth delays it
    jobs: list[Job] = [(0, 100, 3), (1, 10, 4), (2, 200, 2), (3, 300, 1), (4, 95, 1)]
    conservative = starts(jobs, "fifo", Backfilling.CONSERVATIVE)
    assert conservative == [0, 100, 110, 110, 4]


def test_ties_go_by_submission_then_by_job_number() -> None:
    jobs: list[Job] = [(0, 10, 4), (2, 5, 4), (1, 5, 4), (1, 5, 4)]
    assert starts(jobs, "shortest_first") == [0, 20, 10, 15]


def test_an_unsorted_log_begins_with_its_first_submission() -> None:
    assert starts([(50, 10, 4), (0, 20, 4)]) == [50, 0]


def test_a_job_that_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"line 2: fields 5 and 8 .*job 2 needs 5.*--procs 5"):
        replay(log_of([(0, 1, 1), (0, 1, 5)]), FIFO, processors=4)


def test_commit_and_conservative_backfilling_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="--commit has no effect"):
        replay(
            log_of([(0, 1, 1)]), FIFO, processors=4, backfilling=Backfilling.CONSERVATIVE,
            commit=True,
        )  # fmt: skip


class LargestFirst:
    """A policy of a researcher."""

    name = "largest_first"

    def order(self, queue: Queue) -> NDArray[np.intp]:
        return np.argsort(np.lexsort((queue.submit_times_s, -queue.processors)))

    def reason(self, queue: Queue, job: int) -> str:
        return ""


class Raises(LargestFirst):
    def order(self, queue: Queue) -> NDArray[np.intp]:
        raise ValueError("no idea")


class Repeats(LargestFirst):
    def order(self, queue: Queue) -> NDArray[np.intp]:
        return np.zeros(len(queue.ids), dtype=np.intp)


def test_a_policy_of_ones_own_orders_a_log() -> None:
    jobs: list[Job] = [(0, 10, 4), (1, 10, 1), (2, 10, 4), (3, 10, 2)]
    found = replay(log_of(jobs), LargestFirst(), processors=4)
    assert found.schedule.start.tolist() == [0, 20, 10, 20]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Raises(), r"'largest_first' failed at second 2 of the log: ValueError\('no idea'\)"),
        (Repeats(), "did not rank the 2 jobs that waited at second 2"),
    ],
)
def test_a_policy_that_fails_is_named_with_the_time(policy: LargestFirst, message: str) -> None:
    jobs: list[Job] = [(0, 10, 4), (1, 10, 1), (2, 10, 4)]
    with pytest.raises(ConfigError, match=message):
        replay(log_of(jobs), policy, processors=4)


def test_a_log_may_run_past_the_last_date_that_there_is() -> None:
    jobs: list[Job] = [(1e11, 1e11, 4), (1e11, 9e10, 4), (1e11, 1e11, 4), (1e11, 5, 4)]
    assert starts(jobs, "wfp3")[:1] == [1e11]


@pytest.mark.slow
def test_without_numba_the_same_starts_come_out() -> None:
    rng = np.random.default_rng(1)
    columns = rng.integers(1, [900, 90, 5, 120], size=(200, 4)).tolist()
    jobs: list[Job] = [(float(s), float(r), int(n), float(q)) for s, r, n, q in columns]
    script = (
        "import sys, json; sys.modules['numba'] = None\n"
        "from tests.unit.test_sim_replay import starts\n"
        "from edgeyard.scheduler.kernel.compiled import COMPILED\n"
        "from edgeyard.training.worlds.replay import Backfilling\n"
        "jobs = [tuple(job) for job in json.loads(sys.argv[1])]\n"
        "found = [starts(jobs, 'f1', how) for how in Backfilling]\n"
        "print(json.dumps([COMPILED, found]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(jobs)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
    )  # fmt: skip
    compiled, found = json.loads(done.stdout)
    assert compiled is False
    assert found == [starts(jobs, "f1", how) for how in Backfilling]


def test_fair_share_remembers_who_used_the_machine() -> None:
    jobs: list[Job] = [(0, 100, 4), (1, 10, 4), (2, 10, 4)]
    log = log_of(jobs, users=[1, 1, 2])
    found = replay(log, POLICIES.queue_policy("fair_share"), processors=4)
    assert found.schedule.start.tolist() == [0, 110, 100]


def test_policies_of_logs_use_the_clock_of_the_log() -> None:
    # F1: log10(r) n + 870 log10(s); the later job is smaller, and wins only far from s = 0
    near: list[Job] = [(0, 100, 4), (1, 1000, 4), (50, 10, 4)]
    far: list[Job] = [(submit + 1e6, run, procs) for submit, run, procs in near]  # type: ignore[misc]
    assert starts(near, "f1") == [0, 100, 1100]
    assert starts(far, "f1") == [1e6, 1e6 + 110, 1e6 + 100]


def test_wfp3_and_unicep_go_by_the_true_waiting_time() -> None:
    # at 100 the second has waited 90 of 100 s, the third 10 of 50 s
    jobs: list[Job] = [(0, 100, 4), (10, 100, 4), (90, 50, 4)]
    assert starts(jobs, "wfp3") == [0, 100, 200]
    assert starts(jobs, "unicep") == [0, 100, 200]
    # and here 10 of 1000 s against 5 of 20 s
    jobs = [(0, 100, 4), (90, 1000, 4), (95, 20, 4)]
    assert starts(jobs, "wfp3") == [0, 120, 100]
    assert starts(jobs, "unicep") == [0, 120, 100]
