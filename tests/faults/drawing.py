"""Runs fault schedules on the whole service, and draws them by Hypothesis."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from edgeyard.benchmark_api.settings import Settings
from edgeyard.scheduler.store import SqlStore
from tests.faults.fault_run import FaultRun, prepare, run_schedule
from tests.faults.schedule import (
    Fault,
    FaultKind,
    FaultSchedule,
    Submission,
    TaskEnd,
)
from tests.virtual_service.simulation import AfterStep, ServerFactory, ServiceSimulation
from tests.virtual_service.start import simulated_server


@cache
def _template() -> Path:
    """A migrated, empty database; copying it is quicker than migrating."""
    path = Path(tempfile.mkdtemp(prefix="edgeyard-sim-")) / "edgeyard.db"
    SqlStore(f"sqlite:///{path}").close()
    return path


def run(schedule: FaultSchedule, **bounds: float) -> FaultRun:
    """Run a schedule in a folder of its own; ``bounds`` are settings of its servers."""
    folder = Path(tempfile.mkdtemp(prefix="edgeyard-sim-", dir=_template().parent))
    try:
        return run_schedule(schedule, _new_database(folder), _server_factory(folder, **bounds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def simulation_of(
    schedule: FaultSchedule, folder: Path, after_step: AfterStep
) -> Iterator[ServiceSimulation]:
    """A simulation of a schedule's benchmarks, without its faults."""
    made = prepare(schedule, _new_database(folder), _server_factory(folder), after_step)
    try:
        yield made
    finally:
        made.close()


def _new_database(folder: Path) -> str:
    path = folder / "edgeyard.db"
    shutil.copy(_template(), path)
    return f"sqlite:///{path}"


def _server_factory(folder: Path, **more: float) -> ServerFactory:
    bounds: dict[str, Any] = {
        "default_user_time_s": 100.0,
        "start_grace_s": 60.0,
        "setup_grace_s": 120.0,
        "pin_grace_s": 60.0,
        **more,
    }
    settings = Settings(data_dir=folder, **bounds)
    return partial(simulated_server, settings=settings)


_LAST_S = 240.0
_times = st.floats(0.0, _LAST_S).map(lambda each: round(each, 1))
_lasting = st.sampled_from([2.0, 10.0, 30.0, 90.0])

submissions = st.builds(
    Submission,
    at_s=_times,
    run_s=st.sampled_from([1.0, 5.0, 20.0, 60.0]),
    user=st.integers(0, 1),
    ends=st.lists(st.sampled_from(list(TaskEnd)), max_size=2).map(tuple),
    max_retries=st.integers(0, 2),
    pin=st.none() | st.integers(0, 3),
    start_s=st.none() | st.sampled_from([10.0, 60.0]),
    deadline_s=st.none() | st.sampled_from([30.0, 200.0]),
    queue_timeout_s=st.none() | st.sampled_from([20.0, 100.0]),
    priority=st.sampled_from([1, 5, 5, 9]),
    urgent=st.booleans(),
    binding=st.sampled_from([None, None, "loose", "filtered", "strict"]),
)
faults = st.builds(
    Fault,
    at_s=_times,
    kind=st.sampled_from(list(FaultKind)),
    for_s=_lasting,
    pick=st.integers(0, 20),
    by_s=st.sampled_from([-3600.0, -40.0, 5.0, 40.0, 3600.0]),
)
schedules = st.builds(
    FaultSchedule,
    seed=st.integers(0, 2**16),
    servers=st.sampled_from([1, 2]),
    hosts=st.sampled_from([(1,), (2,), (2, 1), (1, 1, 1)]),
    sharing=st.booleans(),
    credits=st.none() | st.sampled_from([150.0, 1000.0]),
    submissions=st.lists(submissions, min_size=1, max_size=8).map(tuple),
    faults=st.lists(faults, max_size=8).map(tuple),
)


_DENSE_S = 90.0


def dense_schedule(number: int) -> FaultSchedule:
    """Draw a schedule with up to 16 faults within 90 s; the same number draws the same one.

    Hypothesis prefers few and simple faults; here many overlap.
    """
    draw = random.Random(number)

    def at_s() -> float:
        return round(draw.uniform(0.0, _DENSE_S), 1)

    def submission() -> Submission:
        return Submission(
            at_s=at_s(),
            run_s=draw.choice([1.0, 5.0, 20.0, 60.0]),
            user=draw.randint(0, 1),
            ends=tuple(draw.choice(list(TaskEnd)) for _ in range(draw.randint(0, 2))),
            max_retries=draw.randint(0, 2),
            pin=draw.choice([None, None, 0, 1, 2]),
            start_s=draw.choice([None, None, 10.0, 60.0]),
            deadline_s=draw.choice([None, None, 30.0, 200.0]),
            queue_timeout_s=draw.choice([None, None, 20.0, 100.0]),
            priority=draw.choice([1, 5, 5, 9]),
            urgent=draw.random() < 0.3,
            binding=draw.choice([None, None, "loose", "filtered", "strict"]),
        )

    def fault() -> Fault:
        return Fault(
            at_s=at_s(),
            kind=draw.choice(list(FaultKind)),
            for_s=draw.choice([2.0, 10.0, 30.0, 90.0]),
            pick=draw.randint(0, 20),
            by_s=draw.choice([-3600.0, -40.0, 5.0, 40.0, 3600.0]),
        )

    return FaultSchedule(
        seed=number,
        servers=draw.choice([1, 2]),
        hosts=draw.choice([(1,), (2,), (2, 1), (1, 1, 1)]),
        sharing=draw.random() < 0.3,
        credits=draw.choice([None, 150.0, 1000.0]),
        submissions=tuple(submission() for _ in range(draw.randint(2, 8))),
        faults=tuple(fault() for _ in range(draw.randint(4, 16))),
    )
