"""Scenarios of a lab of boards: steady and changing load, bursts, families that come and go.

A lab has boards of three families of different speed and a mix of short and long benchmarks. The
load is what arrives over what the boards can run: at 1 they are just busy all the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.simulator.importers.machines import checked
from edgeyard.simulator.lab.jobs import can_run
from edgeyard.simulator.scenario import (
    DAY_S,
    Arrivals,
    BoardGroup,
    Change,
    Faults,
    JobKind,
    LabScenario,
    Scenario,
    User,
)

DEFAULT_LOAD = 0.7
OVERLOAD = 1.5
"""Load during the middle third of `overload`."""

_HOUR_S = 3600.0
_SHARES = (("rpi4b", 0.6, 0.5), ("rpi5", 0.3, 1.0), ("jetsonorinnano", 0.1, 3.0))
"""Family, its share of the boards, and its speed."""
_JOINING = ("rk3588", 2.0)
"""The family that joins and its speed."""
_MIX = (
    JobKind(model="squeezenet", share=5, run_s=120, run_spread=0.3),
    JobKind(
        model="mobilenet", share=3, run_s=300, run_spread=0.3, deadline_s=3600, deadline_share=0.5
    ),
    JobKind(
        model="resnet50",
        share=2,
        run_s=900,
        run_spread=0.5,
        benchmark_type=BenchmarkType.TYPE2,
        user_priority=3,
    ),
)
_USERS = (User(name="ada", weight=2), User(name="grace"), User(name="linus"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabOptions:
    """What is generated.

    Attributes:
        name: Of the scenario.
        seed: Of its arrivals and faults.
        boards: How many boards there are at the beginning.
        duration_s: Time in which benchmarks arrive.
        rate_per_hour: Mean rate of arrivals, without bursts; None: by `load`.
        load: What arrives over what the boards can run; None: `DEFAULT_LOAD`.
        at_s: When the change of `new-family` and `topology` happens; None: half-way.
    """

    name: str
    seed: int = 1
    boards: int = 20
    duration_s: float = DAY_S
    rate_per_hour: float | None = None
    load: float | None = None
    at_s: float | None = None


def mean_run_s(mix: tuple[JobKind, ...] = _MIX) -> float:
    """Return the mean run time of a mix on a board of speed 1."""
    shares = sum(kind.share for kind in mix)
    return sum(kind.share / shares * kind.run_s * math.exp(kind.run_spread**2 / 2) for kind in mix)


def capacity_per_hour(boards: tuple[BoardGroup, ...]) -> float:
    """Return how many benchmarks of the mix some boards can run in an hour."""
    return sum(group.count * group.speed for group in boards) * _HOUR_S / mean_run_s()


def poisson(options: LabOptions) -> Scenario:
    """Steady load: Poisson arrivals."""
    return _scenario(options, "Poisson arrivals at a steady rate.", "poisson")


def bernoulli(options: LabOptions) -> Scenario:
    """Steady load: in each step of a second or less a benchmark arrives with a probability."""
    return _scenario(options, "In each step a benchmark arrives or does not.", "bernoulli")


def diurnal(options: LabOptions) -> Scenario:
    """Return arrivals whose rate follows the hour of the day."""
    return _scenario(options, "The rate follows the hour of the day.", "diurnal")


def bursts(options: LabOptions) -> Scenario:
    """Return arrivals at a steady rate, and many benchmarks at once every few hours."""
    return _scenario(
        options,
        "Steady arrivals, and many benchmarks at once every two hours on average.",
        "bursts",
        burst_every_s=2 * _HOUR_S,
        burst_size=2.0 * options.boards,
        load=0.5,
    )


def overload(options: LabOptions) -> Scenario:
    """More arrives than the boards can run, in the middle third of the time."""
    third = options.duration_s / 3
    boards = _boards(options.boards)
    rate = _rate(options, boards, DEFAULT_LOAD)
    factor = max(OVERLOAD * capacity_per_hour(boards) / rate, 1.0)
    return _scenario(
        options,
        "In the middle third of the time more arrives than the boards can run.",
        "poisson",
        changes=(
            Change(at_s=third, what="load", factor=factor),
            Change(at_s=2 * third, what="load", factor=1.0),
        ),
    )


def new_family(options: LabOptions) -> Scenario:
    """Return a lab that a family without past runs joins."""
    family, speed = _JOINING
    joins = BoardGroup(family=family, count=max(options.boards // 5, 1), speed=speed)
    return _scenario(
        options,
        f"Boards of the new family {family} join the lab.",
        "poisson",
        changes=(Change(at_s=_at(options), what="boards_join", group=joins),),
    )


def topology(options: LabOptions) -> Scenario:
    """Hosts lose their networks now and then; half of a family leaves and others join."""
    family, _, _ = _SHARES[0]
    boards = _boards(options.boards)
    joins = BoardGroup(family=_SHARES[1][0], count=max(boards[0].count // 4, 1), per_host=2)
    return _scenario(
        options,
        f"Half of the {family} leave, other boards join, and networks of hosts fail.",
        "poisson",
        changes=(
            Change(
                at_s=_at(options),
                what="boards_leave",
                family=family,
                count=max(boards[0].count // 2, 1),
            ),
            Change(at_s=_at(options), what="boards_join", group=joins),
        ),
        faults=Faults(
            host_mean_between_s=DAY_S,
            host_mean_repair_s=1800.0,
            network_mean_between_s=8 * _HOUR_S,
            network_mean_repair_s=300.0,
        ),
    )


def default_scenario(boards: Sequence[BoardGroup], rate_per_hour: float) -> Scenario:
    """Return what `poisson` generates for boards that exist, with nothing else known of them.

    Args:
        boards: Their names, hosts, engines and memory are kept.
        rate_per_hour: Of arrivals.
    """
    speeds = {family: speed for family, _, speed in _SHARES}
    groups = tuple(
        BoardGroup(
            family=group.family,
            count=group.count,
            uids=group.uids,
            hosts=group.hosts,
            engines=group.engines,
            ram_mib=group.ram_mib,
            storage_mib=group.storage_mib,
            sharing=group.sharing,
            speed=speeds.get(group.family, 1.0),
        )
        for group in boards
    )
    offered = [(engine, its[0]) for group in groups for engine, its in group.engines.items() if its]
    mix = tuple(
        kind
        if any(can_run(group, kind) for group in groups)
        else msgspec.structs.replace(kind, engine=offered[0][0], benchmark_type=offered[0][1])
        for kind in _MIX
    )
    arrivals = Arrivals(rate_per_hour=rate_per_hour, mix=mix, users=_USERS)
    return checked(
        Scenario(
            name="default",
            world="boards",
            duration_s=DAY_S,
            lab=LabScenario(boards=groups, arrivals=arrivals),
        )
    )


LAB_KINDS: Mapping[str, Callable[[LabOptions], Scenario]] = {
    "poisson": poisson,
    "bernoulli": bernoulli,
    "diurnal": diurnal,
    "bursts": bursts,
    "overload": overload,
    "new-family": new_family,
    "topology": topology,
}


def _boards(count: int) -> tuple[BoardGroup, ...]:
    """Return so many boards of the families, at least one of the first."""
    counts = [int(count * share) for _, share, _ in _SHARES]
    counts[0] += count - sum(counts)
    return tuple(
        BoardGroup(family=family, count=boards, speed=speed, speed_spread=0.05)
        for (family, _, speed), boards in zip(_SHARES, counts, strict=True)
        if boards
    )


def _rate(options: LabOptions, boards: tuple[BoardGroup, ...], load: float) -> float:
    if options.rate_per_hour is not None:
        return options.rate_per_hour
    return (options.load if options.load is not None else load) * capacity_per_hour(boards)


def _at(options: LabOptions) -> float:
    at_s = options.duration_s / 2 if options.at_s is None else options.at_s
    if not 0 <= at_s < options.duration_s:
        accepted = f"a time before --duration, {options.duration_s:g} s"
        raise InvalidInput.at("--at", f"is {at_s:g} s", accepted)
    return at_s


def _scenario(
    options: LabOptions,
    description: str,
    process: str,
    *,
    changes: tuple[Change, ...] = (),
    faults: Faults | None = None,
    burst_every_s: float = 3600.0,
    burst_size: float = 50.0,
    load: float = DEFAULT_LOAD,
) -> Scenario:
    boards = _boards(options.boards)
    rate = round(_rate(options, boards, load), 6)
    arrivals = Arrivals(
        process=process,  # type: ignore[arg-type]  # one of its words
        rate_per_hour=rate,
        step_s=min(1.0, _HOUR_S / 2 / rate) if process == "bernoulli" else 1.0,
        burst_every_s=burst_every_s,
        burst_size=burst_size,
        mix=_MIX,
        users=_USERS,
    )
    return checked(
        Scenario(
            name=options.name,
            world="boards",
            seed=options.seed,
            duration_s=options.duration_s,
            description=description,
            tags=("generated",),
            lab=LabScenario(
                boards=boards, arrivals=arrivals, changes=changes, faults=faults or Faults()
            ),
        )
    )
