"""Plans for a window of 50 jobs and 20 boards, and how late a solver is dead that has no limit."""

import sys
import time

import numpy as np

from benchmarks.tables import Row, median
from edgeyard.scheduler.solvers.assignment import assign_one_each, prepare
from edgeyard.scheduler.solvers.document import Document, check_plan
from edgeyard.scheduler.solvers.programmes import solve
from edgeyard.scheduler.solvers.run import Limits, start_solver

JOBS, BOARDS = 50, 20
INSTANCES = 7
LIMIT_S, GAP = 2.0, 0.01
KILL_AFTER_S = 0.2
SOLVER_WITHOUT_LIMIT = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print(end='+', flush=True); time.sleep(600)"
)


def document(objective: str, seed: int, jobs: int = JOBS, boards: int = BOARDS) -> Document:
    """Run times of unlike boards, seven of ten pairs allowed, deadlines for most."""
    rng = np.random.default_rng(seed)
    run_s = rng.lognormal(3.0, 0.8, (jobs, 1)) * rng.lognormal(0.0, 0.5, (jobs, boards))
    run_s[rng.random(run_s.shape) > 0.7] = np.nan
    return Document(
        objective=objective,
        boards=tuple(f"board-{each}" for each in range(boards)),
        run_s=run_s,
        deadlines_s=np.where(rng.random(jobs) > 0.2, rng.uniform(10, 120, jobs), np.nan),
        users=rng.integers(0, 6, jobs),
        usage_board_s=rng.uniform(0, 5000, 6),
        shares=np.ones(6),
        ready_s=np.where(rng.random(boards) < 0.5, 0.0, rng.uniform(0, 60, boards)),
        closes_s=np.full(boards, np.inf),
        weights=rng.integers(1, 11, jobs).astype(np.float64),
    )


def run() -> list[Row]:
    """One row an objective: wall time from document to plan, and the worst gap."""
    prepare()
    start_solver()
    solve(document("deadlines", 0), Limits(time_s=60.0))  # the first one is slower
    rows = [_planned("exact completion", "completion")]
    rows += [_planned(each, each) for each in ("deadlines", "fairness")]
    return [*rows, _assignment(), _kill()]


def _planned(name: str, objective: str) -> Row:
    took, gaps, statuses = [], [], []
    limits = Limits(time_s=LIMIT_S, gap=GAP)
    for seed in range(INSTANCES):
        wanted = document(objective, seed)
        began = time.perf_counter()
        plan = solve(wanted, limits)
        took.append(time.perf_counter() - began)
        check_plan(wanted, plan)
        gaps.append(plan.gap)
        statuses.append(plan.status.value)
    reached = sum(gap <= GAP for gap in gaps)
    return Row(
        name,
        median(took),
        "s",
        note=f"{JOBS} jobs x {BOARDS} boards, {INSTANCES} instances; slowest {max(took):.3f} s; "
        f"gap of at most {GAP:.0%} reached by {reached}, worst {max(gaps):.4f}; "
        f"{statuses.count('optimal')} optimal, {statuses.count('greedy')} greedy",
    )


def _assignment() -> Row:
    wanted = document("run time", 0, 1000, 30)
    took = []
    for _ in range(INSTANCES):
        began = time.perf_counter()
        check_plan(wanted, assign_one_each(wanted))
        took.append(time.perf_counter() - began)
    return Row("assignment 1000x30", median(took), "s", note="SciPy, one job a board, optimal")


def _kill() -> Row:
    """How long after its budget a solver is dead that ignores its limit and SIGTERM."""
    wanted = document("deadlines", 0)
    command = (sys.executable, "-c", SOLVER_WITHOUT_LIMIT)
    late = []
    for _ in range(INSTANCES):
        plan = solve(wanted, Limits(time_s=KILL_AFTER_S, command=command))
        assert plan.status == "greedy", plan.status
        late.append((plan.solver_s - KILL_AFTER_S) * 1000)
    return Row(
        "solver killed after its budget",
        max(late),
        "ms",
        note=f"slowest of {INSTANCES}; budget {KILL_AFTER_S} s, median {median(late):.1f} ms",
    )
