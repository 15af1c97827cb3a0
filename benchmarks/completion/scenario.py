"""What is submitted, to which boards and under what: the recordings of the completion benchmark."""

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

CLOCK_MHZ = 1600
"""What a board of speed 1 states as its clock; the others state so much less."""

HOSTS = 2

FAMILIES = {1.0: "emufull", 0.5: "emuhalf", 0.25: "emuquarter"}
"""Of the boards by their speed, where families are fixed."""

ANY = "emuany"
"""The family of all boards, where families are interchangeable."""

_SEED = 1000
"""Block 0 and those before it have seeds, too."""

PEER = "native"
"""The arm that all others are compared with, and that makes the history before the blocks."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What decides in a run.

    Attributes:
        policy: A built-in policy.
        affinities: Of each submission: as an operator writes them who knows the boards' clocks.
        scorers: Of the policy, each with the one that takes its place.
    """

    name: str
    policy: str
    affinities: tuple[Mapping[str, object], ...] = ()
    scorers: tuple[tuple[str, str], ...] = ()


FASTER = tuple(
    {"attribute": "clock_mhz", "operator": ">=", "value": int(CLOCK_MHZ * speed), "weight": weight}
    for speed, weight in ((1.0, 100), (0.5, 50))
)
NATIVE = Arm(PEER, "native")
NATIVE_AFFINITY = Arm("native affinity", "native", affinities=FASTER)
DEFAULT = Arm("default", "default")
TRAINED = Arm(
    "default trained",
    "default",
    scorers=(("fastest", "run_time_model"), ("reliable", "failure_model")),
)
LEARNED = Arm("learned", "learned")


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

SHORT = (Kind("digits", 120, 3.0), Kind("digits_new_head", 250, 6.0))
LONG = (Kind("digits", 250, 6.0), Kind("digits_new_head", 500, 12.0))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A recording: blocks of one run for each arm, all with the same submissions.

    Attributes:
        row: Name of its rows.
        load: Share of the boards' speed that the submissions take, by the run times of `kinds`.
        jobs: Submissions of a run.
        kinds: Equally frequent.
        blocks: How many belong to it.
        is_fixed: Whether each submission asks for one family, whose boards are equally fast.
    """

    name: str
    row: str
    load: float
    jobs: int
    kinds: tuple[Kind, ...]
    arms: tuple[Arm, ...]
    blocks: int
    is_fixed: bool = False


ARMS = (NATIVE, NATIVE_AFFINITY, DEFAULT, TRAINED)
SCENARIOS = {
    each.name: each
    for each in (
        Scenario("low", "completion 0.35", 0.35, 60, LONG, ARMS, 8),
        Scenario("high", "completion 0.8", 0.8, 60, LONG, ARMS, 8),
        Scenario("families", "completion families", 0.35, 60, LONG, ARMS, 8, is_fixed=True),
        # Those of 28 November 2026, of two arms.
        Scenario("interchangeable", "completion", 0.35, 20, SHORT, (NATIVE, LEARNED), 10),
        Scenario(
            "fixed",
            "completion fixed family",
            0.35,
            20,
            SHORT,
            (NATIVE, LEARNED),
            10,
            is_fixed=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission.

    Attributes:
        at_s: Seconds after the beginning of the run.
    """

    at_s: float
    kind: Kind
    family: str


def boards(scenario: Scenario, cpus: Sequence[int], engine: BoardEngine) -> list[list[Board]]:
    """Return the boards of each host.

    Args:
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
                attributes={"clock_mhz": int(CLOCK_MHZ * speed)},
            )
        )
    return hosts


def family_of(scenario: Scenario, speed: float) -> str:
    """Return the family of the boards of a speed."""
    return FAMILIES[speed] if scenario.is_fixed else ANY


def speed_of(board: str) -> float:
    """Return the speed of a board by its name, which ends with its number."""
    return SPEEDS[int(board.rsplit("-", 1)[1]) - 1]


def submissions(scenario: Scenario, block: int) -> list[Submission]:
    """Return what is submitted in each run of a block, the same at each call.

    Arrivals are a Poisson process; all kinds are equally frequent. With fixed families a family
    is drawn in proportion to the speed of its boards, so that all have the same load.

    Args:
        block: Decides the draws; 0 and below: of runs that make history.
    """
    drawn = np.random.default_rng(_SEED + block)
    kinds = scenario.kinds
    mean_run_s = float(np.mean([kind.run_s for kind in kinds]))
    between_s = mean_run_s / (scenario.load * sum(SPEEDS))
    at_s = np.cumsum(drawn.exponential(between_s, scenario.jobs))
    chosen = drawn.integers(0, len(kinds), scenario.jobs)
    shares: Mapping[float, float] = {
        speed: speed * SPEEDS.count(speed) / sum(SPEEDS) for speed in FAMILIES
    }
    speeds = drawn.choice(list(shares), scenario.jobs, p=list(shares.values()))
    return [
        Submission(float(at), kinds[kind], family_of(scenario, float(speed)))
        for at, kind, speed in zip(at_s, chosen, speeds, strict=True)
    ]


def order(scenario: Scenario, block: int) -> tuple[Arm, ...]:
    """Return the arms in the order of a block's runs: each is at each place equally often.

    A block begins with the next arm, and every other round is backwards, so that no arm always
    follows the same one.
    """
    arms, first = scenario.arms, (block - 1) % len(scenario.arms)
    turned = (*arms[first:], *arms[:first])
    return turned if (block - 1) // len(arms) % 2 == 0 else turned[::-1]
