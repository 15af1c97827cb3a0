"""A lab's past in a store: recorded cycles, attempts and outcomes, made by the real decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from edgeyard.devices.model import Board
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.record import Recorder
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.builders.decision import policy

BASES = {"small": 5.0, "medium": 20.0, "large": 60.0}
"""Seconds of a run on an idle board, by the hash of the model."""


@dataclass(frozen=True, slots=True)
class Run:
    """What decides how a run ends.

    Attributes:
        load: Of the host's CPUs, 0-1.
        slowness: Of the board, a factor.
        normal: A draw of the standard normal distribution.
        uniform: A draw of the uniform distribution on 0-1.
    """

    number: int
    user: str
    board: int
    model: str
    load: float
    slowness: float
    normal: float
    uniform: float


def slowed_by_load(run: Run) -> tuple[float | None, str | None]:
    """Run times double on a busy host, which the history does not know; one run in ten fails.

    On a busy host four times as many fail.
    """
    run_s = BASES[run.model] * run.slowness * math.exp(1.2 * run.load + 0.1 * run.normal)
    failed = run.uniform < 0.05 + 0.25 * run.load
    return run_s, "board_fault" if failed else None


def as_the_history_expects(run: Run) -> tuple[float | None, str | None]:
    """Nothing but the model and the board makes a difference."""
    run_s = BASES[run.model] * run.slowness * math.exp(0.1 * run.normal)
    return run_s, "board_fault" if run.uniform < 0.15 else None


def quiet(run: Run) -> tuple[float | None, str | None]:
    """Nothing is known of loading, and all numbers are comparable."""
    return None, "comparable"


def disturbed_by_load(run: Run) -> tuple[float | None, str | None]:
    """Loading takes three times as long on a busy host, where most numbers are not comparable."""
    loading_s = 4.0 * run.slowness * math.exp(1.1 * run.load + 0.1 * run.normal)
    return loading_s, "suspect" if run.uniform < 0.9 * run.load else "comparable"


End = Callable[[Run], tuple[float | None, str | None]]


def add_past(
    store: SqlStore,
    cycles: int,
    *,
    boards: int = 8,
    end: End = slowed_by_load,
    quality: End = quiet,
    users: tuple[str, ...] = ("ada", "ben", "cy"),
    begin: datetime = NOW,
    first: int = 0,
    seed: int = 0,
    by: Policy | None = None,
    knowledge: Callable[[Knowledge], Knowledge] = lambda known: known,
    family: str = "rpi4b",
    models: tuple[str, ...] = tuple(BASES),
    idle: tuple[Board, ...] = (),
) -> int:
    """Decide cycles and end their runs; return the number of all runs up to now.

    Args:
        cycles: Each an hour after the last, with one benchmark a board.
        boards: Of the family.
        end: Returns seconds and the category of the failure of each run.
        quality: Returns the seconds of loading of each run, and its verdict.
        users: Who submit in turn.
        begin: Time of the first cycle.
        first: Number of the first run.
        seed: Of all draws.
        by: Decides; None: the policy of the tests, in the order of age and without a planner.
        knowledge: What the cycles know beyond the past and the hosts.
        family: Of the boards, and what benchmarks ask for.
        models: Hashes, of which each benchmark has one.
        idle: Further boards that cycles see, and that run nothing.
    """
    rng, others = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    chosen = by or replace(policy(), queue_policy="priority_age", planner=None)
    plugins, recorder, past = registry(entry_points=False).resolve(chosen), Recorder(), PastRuns()
    uids = [f"{family}-{number + 1:04}-0001" for number in range(boards)]
    slowness = np.exp(np.random.default_rng(7).normal(0.0, 0.2, boards))
    number = first
    for cycle in range(cycles):
        now = begin + timedelta(hours=cycle)
        loads = rng.uniform(0.0, 1.0, boards)
        jobs = []
        for place in range(boards):
            jobs.append(
                pending(
                    f"b-{number + place}",
                    user_id=users[(number + place) % len(users)],
                    submit_time=now,
                    family=family,
                    model_sha256=models[int(rng.integers(len(models)))],
                    model_bytes=1_000_000,
                    user_time_s=3600.0,
                )
            )
        with store.read() as uow:
            runs = past.read(uow, now)
        known = Knowledge(
            runs=runs,
            host_loads={
                f"host-of-{uid}": HostLoad(cpu=load, memory=0.5)
                for uid, load in zip(uids, loads.tolist(), strict=True)
            },
        )
        given = CycleInput(
            snapshot=snapshot_of([*(board(uid) for uid in uids), *idle], now=now),
            pending=jobs,
            now=now,
            seed=cycle,
            knowledge=knowledge(known),
        )
        result = decide(given, chosen, plugins)
        of_id = {each.benchmark_id: each for each in jobs}
        with store.write() as uow:
            uow.cycles.add(recorder.record(given, result))
            for placement in result.placements:
                job = of_id[placement.benchmark_id]
                place = uids.index(str(placement.target_uid))
                run = Run(
                    number=int(job.benchmark_id[2:]),
                    user=job.user_id,
                    board=place,
                    model=str(job.model_sha256),
                    load=float(loads[place]),
                    slowness=float(slowness[place]),
                    normal=float(rng.normal()),
                    uniform=float(rng.uniform()),
                )
                run_s, failure = end(run)
                loading_s, verdict = quality(
                    replace(run, normal=float(others.normal()), uniform=float(others.uniform()))
                )
                lasted_s = run_s if run_s is not None and math.isfinite(run_s) else 1.0
                ended_at = now + timedelta(seconds=2.0 + max(lasted_s, 0.0))
                uow.benchmarks.add(
                    make.a_benchmark(
                        job.benchmark_id,
                        user_id=job.user_id,
                        status=Status.COMPLETED if failure is None else Status.FAILED,
                        submit_time=now,
                        ended_at=ended_at,
                    )
                )
                uow.attempts.add_all(
                    [
                        make.an_attempt(
                            job.benchmark_id,
                            state=AttemptState.ENDED,
                            created_at=now + timedelta(seconds=1),
                            ended_at=ended_at,
                        )
                    ]
                )
                uow.attempts.add_outcome(
                    make.an_outcome(
                        job.benchmark_id,
                        target_uid=placement.target_uid,
                        user_id=job.user_id,
                        model_sha256=job.model_sha256,
                        run_s=run_s,
                        loading_s=loading_s,
                        verdict=None if failure else verdict,
                        failure_category=failure,
                        family=family,
                        ended_at=ended_at,
                    )
                )
        number += len(jobs)
    return number
