"""Log replays on one core, next to a plain model in SimPy; and steps of the environment.

20,000 jobs of HPC2N under FCFS and SJF without backfilling and under FCFS with EASY, through
`edgeyard.training.worlds.replay`, as ``edgeyard sim replay`` runs them. The peer is what one writes
first with SimPy: a process for each job, a sorted list as the queue, one scheduling pass after
each event. Both make the same schedule, which is checked.

Reading the log and compilation are left out. The log is not part of Edgeyard; see `TRACES`.

The rows ``paper env`` are steps per second of ``edgeyard/Cluster-v0`` with random actions, alone
through Gymnasium and vectorised (64 side by side), observations included.

``service day`` is a day of a lab of 100 boards and about 5,000 benchmarks, simulated by the whole
service in virtual time: the real engine, SQLite (without syncing to disk) and HCL, as the
tests run it. ``small cycle`` and ``lab day`` are decisions alone; they
and ``service day`` are processor time. ``lab week`` takes minutes: `benchmarks.bench_lab_week`.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import insort
from collections.abc import Callable, Generator
from pathlib import Path

import gymnasium
import numpy as np
import simpy
from numpy.typing import NDArray

import edgeyard.training.cluster_environment  # noqa: F401  # registers them with Gymnasium
from benchmarks.lab_days import lab_day, small_cycle
from benchmarks.tables import Row, median_interval
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.framework.protocols import QueuePolicy
from edgeyard.scheduler.kernel.compiled import COMPILED
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    JobKind,
    LabScenario,
    Scenario,
)
from edgeyard.training.worlds.replay import Backfilling, replay
from edgeyard.training.worlds.swf import Log, read_swf
from tests.virtual_service.start import simulate_whole_service

TRACES = Path(os.environ.get("EDGEYARD_TRACES") or Path(__file__).parents[2] / "shared" / "traces")
"""Folder of the Parallel Workloads Archive's logs; skipped where missing."""

FILE = "HPC2N-2002-2.2-cln.swf.gz"
JOBS = 20_000
ROUNDS = 5
PEER_ROUNDS = 3
SERVICE_DAY = Scenario(
    name="service-day",
    world="boards",
    duration_s=86400.0,
    lab=LabScenario(
        boards=(
            BoardGroup(family="rpi4b", count=60, speed=0.5, speed_spread=0.05),
            BoardGroup(family="rpi5", count=40, speed_spread=0.05),
        ),
        arrivals=Arrivals(
            rate_per_hour=5000 / 24,
            mix=(
                JobKind(model="squeezenet", share=5, run_s=300, run_spread=0.3),
                JobKind(model="resnet50", share=2, run_s=900, run_spread=0.5),
            ),
        ),
    ),
)

SINGLE_STEPS, VECTOR_STEPS, ENVS = 20_000, 2_000, 64

CASES = (
    ("fcfs", "fifo", Backfilling.NONE),
    ("sjf", "shortest_first", Backfilling.NONE),
    ("easy", "fifo", Backfilling.EASY),
)


def run() -> list[Row]:
    """All rows."""
    lab = [small_cycle(), lab_day()]
    return [*_replays(), _paper_env(), _paper_env_vectorised(), *lab, _service_day()]


def _service_day() -> Row:
    began = time.process_time()
    run = simulate_whole_service(SERVICE_DAY, load_policy("default"))
    took_s = time.process_time() - began
    figures = run.meta.figures
    note = (
        f"{len(run.boards)} boards, {len(run.jobs):,} benchmarks, {run.meta.cycles:,} cycles; "
        f"{figures['jobs_rendered']:,.0f} jobs rendered, {figures['jobs_read_back']:,.0f} read "
        "back; SQLite with synchronous=OFF; processor time; once"
    )
    return Row("service day", took_s, "s", note=note)


def _replays() -> list[Row]:
    path = TRACES / FILE
    if not path.is_file():
        print(f"skipped: there is no {path} (set EDGEYARD_TRACES)", file=sys.stderr)
        return []
    log = read_swf(path).part(0, JOBS)
    known = registry(entry_points=False)
    return [_row(name, log, known.queue_policy(queue), how) for name, queue, how in CASES]


def _row(name: str, log: Log, policy: QueuePolicy, backfilling: Backfilling) -> Row:
    processors = log.max_procs or 0

    def ours() -> NDArray[np.float64]:
        found = replay(log, policy, processors=processors, backfilling=backfilling)
        return found.schedule.start

    by_run_time = policy.name == "shortest_first"
    easy = backfilling is Backfilling.EASY
    same = np.array_equal(ours(), plain_simpy(log, processors, by_run_time, easy))
    if not same:
        raise AssertionError(f"{name}: the schedules differ")
    rates = _rates(ours, ROUNDS)
    peer = _rates(lambda: plain_simpy(log, processors, by_run_time, easy), PEER_ROUNDS)
    value, low, high = median_interval(rates)
    note = (
        f"peer: a plain SimPy model, same starts; {JOBS:,} jobs of HPC2N, one core; median of "
        f"{ROUNDS} ({low:,.0f}-{high:,.0f}), peer of {PEER_ROUNDS}; without reading and compiling"
        + ("" if COMPILED else "; Numba is missing")
    )
    peer_rate = median_interval(peer)[0]
    return Row(name, value, "jobs/s", peer_rate, value / peer_rate, note)


def _paper_env() -> Row:
    env = gymnasium.make("edgeyard/Cluster-v0")
    actions = np.random.default_rng(1).integers(0, 6, SINGLE_STEPS)
    env.reset(seed=1)

    def steps() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return _steps_row("paper env", steps, SINGLE_STEPS, "Gymnasium's wrappers included")


def _paper_env_vectorised() -> Row:
    env = gymnasium.make_vec("edgeyard/Cluster-v0", ENVS)
    actions = np.random.default_rng(1).integers(0, 6, (VECTOR_STEPS, ENVS))
    env.reset(seed=1)

    def steps() -> None:
        for each in actions:
            env.step(each)

    count = VECTOR_STEPS * ENVS
    return _steps_row("paper env vectorised", steps, count, f"{ENVS} environments")


def _steps_row(name: str, steps: Callable[[], None], count: int, what: str) -> Row:
    steps()  # compiles
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        steps()
        rates.append(count / (time.perf_counter() - began))
    value, low, high = median_interval(rates)
    note = f"{what}; one core; median of {ROUNDS} ({low:,.0f}-{high:,.0f}); without compiling"
    return Row(name, value, "steps/s", note=note)


def _rates(run_once: Callable[[], object], rounds: int) -> list[float]:
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        run_once()
        rates.append(JOBS / (time.perf_counter() - began))
    return rates


def plain_simpy(log: Log, processors: int, by_run_time: bool, easy: bool) -> NDArray[np.float64]:
    """Starts of the jobs, by a model in SimPy as one writes it first."""
    environment = simpy.Environment()
    submit, run_s, procs = log.submit.tolist(), log.run.tolist(), log.procs.tolist()
    bound = np.maximum(log.run, log.requested).tolist()
    keys = (log.requested if by_run_time else log.submit).tolist()
    starts = np.full(len(log), np.nan)
    queue: list[tuple[float, float, int]] = []
    running: dict[int, tuple[float, int]] = {}
    free = processors
    order = np.lexsort((log.job, log.submit)).tolist()

    def start(row: int) -> None:
        nonlocal free
        free -= procs[row]
        starts[row] = environment.now
        running[row] = (environment.now + bound[row], procs[row])
        environment.process(job(row))

    def job(row: int) -> Generator[simpy.Event, object, None]:
        nonlocal free
        yield environment.timeout(run_s[row])
        free += procs[row]
        del running[row]
        schedule()

    def schedule() -> None:
        while queue and procs[queue[0][2]] <= free:
            start(queue.pop(0)[2])
        if easy and queue:
            backfill(procs[queue[0][2]])

    def backfill(wanted: int) -> None:
        at_end, when = free, environment.now
        ends = sorted(running.values())
        for end, released in ends:
            if at_end >= wanted and end > when:
                break
            at_end, when = at_end + released, end
        spare = at_end - wanted
        for waiting in queue[1:]:
            row = waiting[2]
            if procs[row] > free:
                continue
            in_time = environment.now + bound[row] <= when
            if in_time or procs[row] <= spare:
                spare -= 0 if in_time else procs[row]
                queue.remove(waiting)
                start(row)

    def arrivals() -> Generator[simpy.Event, object, None]:
        for row in order:
            yield environment.timeout(submit[row] - environment.now)
            insort(queue, (keys[row], submit[row], row))
            schedule()

    environment.process(arrivals())
    environment.run()
    return starts
