"""What is submitted, and to which boards: the two scenarios of the completion benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeyard.devices.model import Board, BoardEngine, LocalSlice

SPEEDS = (1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25)
"""Of the eight boards. A board of speed 1 computes for `FULL_DUTY_CYCLE` of the time, the others
for so much less: real inference, and then idle."""

FULL_DUTY_CYCLE = 0.04
"""The eight together compute for 0.17 of one core, so that they share none."""

HOSTS = 2
JOBS = 20
"""Submissions of a run."""

LOAD = 0.35
"""Share of the boards' speed that the submissions take, by the run times of `KINDS`."""

FAMILIES = {1.0: "emufull", 0.5: "emuhalf", 0.25: "emuquarter"}
"""Of the boards by their speed, where families are fixed."""

ANY = "emuany"
"""The family of all boards, where families are interchangeable."""

_SEED = 1000
"""Pair 0 and those before it have seeds, too."""

SCENARIOS = ("interchangeable", "fixed")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of benchmark.

    Attributes:
        model: A network in ``deploy/demo``.
        inferences: How many are measured, after a warm-up.
        run_s: About how long it takes on a board of speed 1 of an idle machine, seconds.
    """

    model: str
    inferences: int
    run_s: float


ROWS = 512
"""Images of an inference: one takes about a millisecond of processor time."""

KINDS = (Kind("digits", 120, 3.0), Kind("digits_new_head", 250, 6.0))


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission.

    Attributes:
        at_s: Seconds after the beginning of the run.
    """

    at_s: float
    kind: Kind
    family: str


def boards(scenario: str, cpus: Sequence[int], engine: BoardEngine) -> list[list[Board]]:
    """Return the boards of each host.

    Args:
        scenario: One of `SCENARIOS`.
        cpus: On which all boards run.
        engine: What they offer.
    """
    hosts: list[list[Board]] = [[] for _ in range(HOSTS)]
    for number, speed in enumerate(SPEEDS):
        host = number % HOSTS
        family = family_of(scenario, speed)
        hosts[host].append(
            Board(
                target_uid=f"{family}-{host + 1:04}-{number + 1:04}",
                family=family,
                ram_bytes=2 * 2**30,
                storage_bytes=2**30,
                engines=(engine,),
                local=LocalSlice(tuple(cpus), threads=1, duty_cycle=speed * FULL_DUTY_CYCLE),
            )
        )
    return hosts


def family_of(scenario: str, speed: float) -> str:
    """Return the family of the boards of a speed."""
    return FAMILIES[speed] if scenario == "fixed" else ANY


def speed_of(board: str) -> float:
    """Return the speed of a board by its name, which ends with its number."""
    return SPEEDS[int(board.rsplit("-", 1)[1]) - 1]


def submissions(scenario: str, pair: int) -> list[Submission]:
    """Return what is submitted in both runs of a pair, the same at each call.

    Arrivals are a Poisson process; both kinds are equally frequent. With fixed families a family
    is drawn in proportion to the speed of its boards, so that all have the same load.

    Args:
        pair: Decides the draws; 0 and below: of runs that make history.
    """
    drawn = np.random.default_rng(_SEED + pair)
    mean_run_s = float(np.mean([kind.run_s for kind in KINDS]))
    between_s = mean_run_s / (LOAD * sum(SPEEDS))
    at_s = np.cumsum(drawn.exponential(between_s, JOBS))
    kinds = drawn.integers(0, len(KINDS), JOBS)
    shares: Mapping[float, float] = {
        speed: speed * SPEEDS.count(speed) / sum(SPEEDS) for speed in FAMILIES
    }
    speeds = drawn.choice(list(shares), JOBS, p=list(shares.values()))
    return [
        Submission(float(at), KINDS[kind], family_of(scenario, float(speed)))
        for at, kind, speed in zip(at_s, kinds, speeds, strict=True)
    ]
