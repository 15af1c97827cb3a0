"""The whole service under schedules of faults: what must never happen does not.

``make soak-sim`` runs thousands; here are a few, always the same.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from edgeyard.scheduler.engine.service import Step
from tests.faults.drawing import run, schedules, simulation_of
from tests.faults.invariants import Invariants
from tests.faults.schedule import (
    Fault,
    FaultKind,
    FaultSchedule,
    Submission,
    TaskEnd,
    schedule_from_json,
)
from tests.virtual_service.simulation import ServiceSimulation
from tests.virtual_service.store import InterruptPoint, ServerCrash

TWO = FaultSchedule(
    hosts=(2,),
    submissions=(Submission(at_s=1.0, run_s=20.0), Submission(at_s=2.0, run_s=20.0, user=1)),
)


@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(schedules)
def test_nothing_that_must_never_happen_happens(schedule: FaultSchedule) -> None:
    found = run(schedule)
    assert not found.violations, f"make soak-sim SCHEDULE='{schedule.to_json()}'"


def test_benchmarks_complete_where_nothing_goes_wrong() -> None:
    found = run(TWO)
    assert not found.violations
    assert found.statuses == {"completed": 2}
    assert found.crashes == 0
    assert found.checks > 10


def test_a_server_that_dies_around_its_commits_loses_nothing_and_doubles_nothing() -> None:
    crashes = tuple(
        Fault(at_s=1.0 + number, kind=kind, pick=number % 3)
        for number, kind in enumerate(
            [FaultKind.CRASH_BEFORE_COMMIT, FaultKind.CRASH_AFTER_COMMIT] * 4
        )
    )
    found = run(replace(TWO, faults=crashes))
    assert not found.violations
    assert found.statuses == {"completed": 2}
    assert found.crashes >= 2


def test_canaries_under_faults_break_nothing_and_delay_nobody() -> None:
    crashes = tuple(
        Fault(at_s=1.0 + number, kind=kind, pick=number % 3)
        for number, kind in enumerate(
            [FaultKind.CRASH_BEFORE_COMMIT, FaultKind.CRASH_AFTER_COMMIT] * 4
        )
    )
    for faults in ((), crashes):
        found = run(replace(TWO, faults=faults), canary_share=0.2)
        assert not found.violations
        assert found.statuses == {"completed": 2}


def test_the_same_schedule_gives_the_same_run() -> None:
    schedule = replace(
        TWO,
        seed=7,
        faults=(
            Fault(at_s=2.0, kind=FaultKind.CRASH_AFTER_CALL),
            Fault(at_s=10.0, kind=FaultKind.HOST_FAILS, for_s=5.0),
            Fault(at_s=12.0, kind=FaultKind.LATE_REGISTRATION, for_s=20.0),
        ),
    )
    again = schedule_from_json(schedule.to_json())
    assert again == schedule
    assert run(schedule).digest == run(again).digest


def test_a_server_that_dies_after_it_took_a_new_time_goes_on_with_it() -> None:
    """A minute after the clock was set for good the server takes its time, and saves it at once."""
    found = run(
        replace(
            TWO,
            submissions=(Submission(at_s=138.1), Submission(at_s=138.2)),
            faults=(
                Fault(at_s=70.7, kind=FaultKind.CLOCK_SET_FOR_GOOD, by_s=5.0),
                Fault(at_s=138.15, kind=FaultKind.CRASH, for_s=1.0),
            ),
        )
    )
    assert not found.violations
    assert found.statuses == {"completed": 2}


def test_a_server_that_dies_after_it_took_a_time_in_the_past_goes_on_with_it(
    tmp_path: Path,
) -> None:
    """What runs meanwhile lasts as long as it does, by the stored times too."""

    def crash_after_the_step(simulation: ServiceSimulation) -> None:
        server, was_set = simulation.server, simulation.was_clock_set
        settled = server is not None and was_set and not server.clock.disagreement_s()
        if settled and not simulation.counts.crashes:
            simulation.crash()

    schedule = replace(TWO, submissions=(Submission(at_s=60.0, run_s=90.0),))
    with simulation_of(schedule, tmp_path, crash_after_the_step) as simulation:
        simulation.actions.schedule(65.0, lambda: simulation.leader.clocks.set_wall(-40.0))
        simulation.run(until_s=600.0)
        assert simulation.counts.crashes == 1
        assert simulation.server is not None
        assert simulation.server.now() == simulation.leader.clocks.wall()
        with simulation.observer.read() as uow:
            (attempt,) = uow.attempts.of(next(iter(simulation.submitted)))
    assert attempt.started_at is not None
    assert attempt.task_ended_at is not None
    took_s = (attempt.task_ended_at - attempt.started_at).total_seconds()
    assert took_s == pytest.approx(90.0, abs=2.0)


@pytest.mark.parametrize("by_s", [-40.0, 40.0])
def test_a_step_of_the_clock_is_taken_once_by_a_server_that_dies_right_after_its_commit(
    tmp_path: Path, by_s: float
) -> None:
    """Before it has written the file from which the next process continues."""

    def die_at_the_step(simulation: ServiceSimulation) -> None:
        server = simulation.server
        if server is None or simulation.counts.crashes or not server.clock.pending_step_s():
            return
        engine = server.engine.leading
        assert engine is not None
        engine.step(Step.FULL_REPAIR)
        faults = simulation.leader.faults
        faults.interrupt(InterruptPoint.AFTER_COMMIT, 1, faults.crash)
        with suppress(ServerCrash):
            engine.step(Step.REPAIR)
        simulation.crash()

    schedule = replace(TWO, submissions=(Submission(at_s=60.0, run_s=90.0),))
    with simulation_of(schedule, tmp_path, Invariants()) as simulation:
        simulation.actions.schedule(65.0, lambda: simulation.leader.clocks.set_wall(by_s))
        for tenth in range(1200, 1400):
            simulation.actions.schedule(tenth / 10, partial(die_at_the_step, simulation))
        simulation.run(until_s=900.0)
        assert simulation.counts.crashes == 1
        with simulation.observer.read() as uow:
            (attempt,) = uow.attempts.of(next(iter(simulation.submitted)))
    assert attempt.started_at is not None
    assert attempt.task_ended_at is not None
    took_s = (attempt.task_ended_at - attempt.started_at).total_seconds()
    assert took_s == pytest.approx(90.0, abs=2.0)


def test_the_times_of_a_benchmark_that_expired_move_with_those_of_its_attempt() -> None:
    """The clock is set back while the task of a benchmark that has ended is not known to have."""
    found = run(
        replace(
            TWO,
            hosts=(1,),
            submissions=(Submission(at_s=21.0, run_s=60.0, deadline_s=30.0, max_retries=0),),
            faults=(
                Fault(at_s=17.0, kind=FaultKind.CLOCK_SET, for_s=90.0, by_s=40.0),
                Fault(at_s=28.0, kind=FaultKind.CLUSTER_AWAY, for_s=200.0),
            ),
        )
    )
    assert not found.violations
    assert found.statuses == {"expired": 1}


@pytest.mark.parametrize(
    ("reason", "is_true"), [("board_busy", True), ("board_offline", False), ("budget", False)]
)
def test_a_waiting_reason_that_is_not_true_of_the_board_is_reported(
    tmp_path: Path, reason: str, is_true: bool
) -> None:
    invariants = Invariants()
    schedule = replace(
        TWO,
        submissions=(
            Submission(at_s=1.0, run_s=95.0, pin=0),
            Submission(at_s=2.0, run_s=1.0, pin=0),
        ),
    )

    def claim() -> None:
        with sqlite3.connect(tmp_path / "edgeyard.db") as database:
            database.execute(
                "UPDATE benchmarks SET waiting_reason = ? WHERE status = 'pending'", (reason,)
            )

    with simulation_of(schedule, tmp_path, after_step=invariants) as simulation:
        simulation.actions.schedule(80.0, claim)
        simulation.run(until_s=90.0)
    assert (not invariants.violations) == is_true, invariants.violations
    assert all(f"waits for {reason}, which is not true" in each for each in invariants.violations)


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.CRASH,
        FaultKind.STALL,
        FaultKind.STORE_AWAY,
        FaultKind.HANG_BEFORE_WRITE,
        FaultKind.HANG_AFTER_COMMIT,
        FaultKind.HANG_BEFORE_CALL,
        FaultKind.HANG_AFTER_CALL,
    ],
)
def test_another_server_takes_over_from_a_leader_that_fails(kind: FaultKind) -> None:
    """And comes back late: what it was about to do is refused."""
    faults = tuple(Fault(at_s=at_s, kind=kind, for_s=30.0, pick=1) for at_s in (1.5, 60.0))
    more = (Submission(at_s=61.0), Submission(at_s=62.0), Submission(at_s=63.0))
    found = run(replace(TWO, servers=2, submissions=(*TWO.submissions, *more), faults=faults))
    assert not found.violations
    assert found.statuses == {"completed": 5}
    assert found.epochs > 1


def test_a_former_leader_that_commits_or_calls_the_cluster_is_reported(tmp_path: Path) -> None:
    invariants = Invariants()
    with simulation_of(replace(TWO, servers=2), tmp_path, invariants) as simulation:
        invariants.observe(simulation)
        simulation.run(until_s=0.5)
        first = simulation.leader
        first.stalled_until_s = 60.0
        simulation.run(until_s=60.0)
        assert simulation.leader is not first
        assert not invariants.violations
        simulation.on_commit(first, 1)
        simulation.on_call(first, next(iter(simulation.attempts)), False)
    found = invariants.violations
    assert any(f"{first.name} committed in epoch 1" in each for each in found)
    assert any(f"{first.name} calls the cluster while" in each for each in found)


def test_what_runs_while_an_older_backup_is_restored_is_adopted_and_not_started_again(
    tmp_path: Path,
) -> None:
    invariants = Invariants()
    schedule = FaultSchedule(
        hosts=(1,),
        submissions=(Submission(at_s=1.0, run_s=20.0), Submission(at_s=2.0, run_s=40.0)),
    )
    with simulation_of(schedule, tmp_path, invariants) as simulation:
        invariants.observe(simulation)
        simulation.run(until_s=10.0)
        backup = simulation.back_up()
        simulation.run(until_s=40.0)
        (job,) = simulation.cluster.live_jobs()
        simulation.restore(backup)
        invariants.note_restore(simulation)
        simulation.run(until_s=600.0)
        invariants.check_end(simulation)
        assert not invariants.violations
        with simulation.observer.read() as uow:
            events = uow.log.events(after=0, limit=1000)
            tried = uow.attempts.of(sorted(simulation.submitted)[1])
    assert [each.job_id for each in tried] == [job.state.job_id]
    assert any(each.kind == "attempt.adopted" for each in events)


def test_a_job_that_runs_twice_after_a_restore_is_reported(tmp_path: Path) -> None:
    invariants = Invariants()
    with simulation_of(TWO, tmp_path, invariants) as simulation:
        invariants.observe(simulation)
        empty = simulation.back_up()
        simulation.run(until_s=10.0)
        runs = min(simulation.attempts)
        simulation.restore(empty)
        invariants.note_restore(simulation)
        simulation.attempts["again"] = replace(simulation.attempts[runs], job_id="again")
        simulation.on_call(simulation.leader, "again", True)
    assert any(f"again is started while {runs} runs" in each for each in invariants.violations)


def test_news_of_a_late_job_is_not_lost_among_other_news() -> None:
    """Its attempt was given up, so that a comparison of what is live does not find it."""
    late = Submission(at_s=2.0, ends=(TaskEnd.TOO_LONG,), deadline_s=10.0, max_retries=0)
    others = [Submission(at_s=at_s, run_s=1.0) for at_s in (0.1, 5.0, 9.0, 13.0, 17.0, 20.0)]
    faults = (
        Fault(at_s=1.9, kind=FaultKind.LATE_REGISTRATION, for_s=1.0),
        Fault(at_s=25.0, kind=FaultKind.CLUSTER_AWAY, for_s=60.0),
    )
    found = run(replace(TWO, submissions=(late, *others), faults=faults))
    assert not found.violations
    assert found.statuses == {"expired": 1, "completed": 6}


def test_benchmarks_complete_after_the_cluster_has_forgotten_everything() -> None:
    reset = Fault(at_s=10.0, kind=FaultKind.CLUSTER_RESET)
    found = run(replace(TWO, faults=(reset,)))
    assert not found.violations
    assert found.statuses == {"completed": 2}


def test_a_result_that_is_lost_and_a_wrong_count_are_reported(tmp_path: Path) -> None:
    invariants = Invariants()
    with simulation_of(TWO, tmp_path, after_step=invariants) as simulation:
        simulation.run(until_s=600.0)
        assert not invariants.violations
        with sqlite3.connect(tmp_path / "edgeyard.db") as database:
            database.execute("DELETE FROM reports")
            database.execute("UPDATE status_counts SET stored = stored + 1")
        invariants.check_end(simulation)
    assert any("completed without a report" in each for each in invariants.violations)
    assert any("statuses are counted" in each for each in invariants.violations)
