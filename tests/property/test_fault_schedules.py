"""The whole service under schedules of faults: what must never happen does not.

``make soak-sim`` runs thousands; here are a few, always the same.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from edgeyard.scheduler.sim.service.invariants import Invariants
from edgeyard.scheduler.sim.service.schedule import (
    Fault,
    FaultKind,
    FaultSchedule,
    Submission,
    schedule_from_json,
)
from edgeyard.scheduler.sim.service.simulation import ServiceSimulation
from tests.builders.fault_schedules import run, schedules, simulation_of

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
        server, was_set = simulation.server, simulation.clocks.was_set
        settled = server is not None and was_set and not server.clock.disagreement_s()
        if settled and not simulation.tally.crashes:
            simulation.crash()

    schedule = replace(TWO, submissions=(Submission(at_s=60.0, run_s=90.0),))
    with simulation_of(schedule, tmp_path, crash_after_the_step) as simulation:
        simulation.agenda.at(65.0, lambda: simulation.clocks.set_wall(-40.0))
        simulation.run(until_s=600.0)
        assert simulation.tally.crashes == 1
        assert simulation.server is not None
        assert simulation.server.now() == simulation.clocks.wall()
        with simulation.observer.read() as uow:
            (attempt,) = uow.attempts.of(next(iter(simulation.submitted)))
    assert attempt.started_at is not None
    assert attempt.task_ended_at is not None
    took_s = (attempt.task_ended_at - attempt.started_at).total_seconds()
    assert took_s == pytest.approx(90.0, abs=2.0)


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
