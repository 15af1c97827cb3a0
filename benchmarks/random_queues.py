"""Random queues: how much worse the look-ahead is than the best of the rules that it chooses among.

``python -m benchmarks.random_queues [COUNT]``. Each queue is drawn from its number: a machine of 8
to 256 processors, one to six users, and 50 to 200 jobs of a few seconds to hours, most of them
short and narrow, a few long or as wide as the machine. Requests are right or up to 1,000 times too
long, and jobs come one by one, in bursts or all at once. Nothing of it is chosen by how a policy
does there. The peers are the rules with the same predictions of run times, each alone for the whole
queue; the best of them is known in hindsight only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import Row
from edgeyard.scheduler.kernel.rollouts import RULES
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.simulator.fitting.estimates import share_interval
from edgeyard.training.windows import Window, candidate_ends, lookahead_ends, slowdowns
from edgeyard.training.worlds.processors import Jobs

Floats = NDArray[np.float64]

QUEUES = 2000
MAX_RATIO = 1.2
"""Mean bounded slowdown, to that of the best rule."""
MAX_SHARE = 0.01
"""This share of the queues may be above `MAX_RATIO`."""

PROCESSORS = (8, 16, 32, 64, 128, 256)
JOBS = (50, 200)
MAX_USERS = 6
SHORT_S, LONG_S = (2.0, 120.0), (600.0, 36_000.0)
MAX_LONG_SHARE, MAX_WIDE_SHARE = 0.2, 0.1
MAX_FACTOR = 1000.0
"""By which requests are too long at most."""
LOADS = (0.4, 1.6)


class Requests(StrEnum):
    """How long jobs ask for."""

    RIGHT = "right"
    BY_USER = "by user"  # each user by a factor of their own
    BY_JOB = "by job"  # each job by another factor
    ALIKE = "alike"  # all the same, as long as the longest may run


class Coming(StrEnum):
    """How jobs arrive."""

    SINGLE = "one by one"
    BURSTS = "bursts"
    AT_ONCE = "at once"


def random_queue(number: int) -> Window:
    """Draw a queue."""
    random = stream(number, "random queues")
    processors = int(random.choice(PROCESSORS))
    count = int(random.integers(JOBS[0], JOBS[1] + 1))
    users = random.integers(int(random.integers(1, MAX_USERS + 1)), size=count)
    typical_s = _log_uniform(random, SHORT_S, MAX_USERS)
    long = random.random(count) < random.uniform(0.0, MAX_LONG_SHARE)
    typical = np.where(long, _log_uniform(random, LONG_S, MAX_USERS)[users], typical_s[users])
    spread = random.uniform(0.0, 1.0)
    run_s = np.ceil(typical * np.exp(spread * random.standard_normal(count)))
    wide = random.random(count) < random.uniform(0.0, MAX_WIDE_SHARE)
    narrow = np.ceil(processors ** random.uniform(0.0, 0.6, count))
    procs = np.where(wide, random.integers(processors // 2, processors + 1, count), narrow)
    work_s = float((run_s * procs).sum()) / processors
    submit_s = _arrivals(random, work_s / random.uniform(*LOADS), count)
    requested_s = _requests(random, run_s, users)
    jobs = Jobs(submit_s, run_s, requested_s, requested_s, procs.astype(np.int64))
    return Window(jobs, users.astype(np.int64), processors)


def _arrivals(random: np.random.Generator, duration_s: float, count: int) -> Floats:
    """Return when the jobs arrive, ascending; from 1 s on, as rules take logarithms."""
    coming = random.choice(list(Coming))
    if coming == Coming.AT_ONCE:
        return np.full(count, 1.0)
    moments = count if coming == Coming.SINGLE else int(random.integers(2, 12))
    at = np.sort(random.uniform(0.0, duration_s, moments))
    if coming == Coming.BURSTS:
        at = np.sort(at[random.integers(moments, size=count)] + random.uniform(0.0, 60.0, count))
    found: Floats = 1.0 + np.floor(at)
    return found


def _requests(random: np.random.Generator, run_s: Floats, users: NDArray[np.int64]) -> Floats:
    requests = random.choice(list(Requests))
    if requests == Requests.RIGHT:
        return run_s
    if requests == Requests.ALIKE:
        return np.full(len(run_s), run_s.max())
    factors = _log_uniform(random, (1.0, MAX_FACTOR), len(run_s))
    found: Floats = np.ceil(run_s * (factors[users] if requests == Requests.BY_USER else factors))
    return found


def _log_uniform(random: np.random.Generator, between: tuple[float, float], size: int) -> Floats:
    low, high = np.log(between)
    found: Floats = np.exp(random.uniform(low, high, size))
    return found


def means(number: int) -> list[float]:
    """Return a queue's mean bounded slowdown by the look-ahead, then by each of its rules."""
    window = random_queue(number)
    ends = [lookahead_ends(window), *(candidate_ends(window, rule) for rule in range(len(RULES)))]
    return [float(slowdowns(window, each).mean()) for each in ends]


def measured(numbers: Sequence[int]) -> Floats:
    """Return `means` of queues, shape (queues, rules + 1)."""
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as processes:
        return np.array(list(processes.map(means, numbers, chunksize=8)))


def row(found: Floats) -> Row:
    """Return ``worst of candidates``; the peer is the base alone.

    Args:
        found: As of `measured`.
    """
    ratios, base = _ratios(found)[:, :2].T
    count, above = len(found), int((ratios > MAX_RATIO).sum())
    share, peer = above / count, float((base > MAX_RATIO).mean())
    low, high = share_interval(above, count)
    note = (
        f"share of {count} random queues above {MAX_RATIO} times the best of the {len(RULES)} "
        f"rules in hindsight ({low:.3f} to {high:.3f}; at most {MAX_SHARE}); ratio: "
        f"median {np.median(ratios):.2f}, p95 {np.quantile(ratios, 0.95):.2f}, worst "
        f"{ratios.max():.2f}; peer: {RULES[0]} alone"
    )
    return Row("worst of candidates", share, "share", peer, share / peer if peer else None, note)


def _ratios(found: Floats) -> Floats:
    """Return what `measured` returns, relative to the best rule of each queue."""
    ratios: Floats = found / found[:, 1:].min(axis=1, keepdims=True)
    return ratios


def rows() -> list[Row]:
    """Return the row of ``bench-learn``."""
    return [row(measured(range(1, QUEUES + 1)))]


def main(arguments: list[str]) -> int:
    """Print the row, and the worst queues by their numbers."""
    found = measured(range(1, int(arguments[0] if arguments else QUEUES) + 1))
    ratios = _ratios(found)[:, 0]
    for place in np.argsort(-ratios)[:10].tolist():
        by_rule = dict(zip(("look-ahead", *RULES), found[place].round(2).tolist(), strict=True))
        print(f"queue {place + 1}: {ratios[place]:.2f} {json.dumps(by_rule)}")
    its = row(found)
    print(f"{its.name}: {its.value:.4f}; {its.note}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
