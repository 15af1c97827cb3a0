"""Labs in which policies are judged and nothing is trained."""

from __future__ import annotations

from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    Faults,
    JobKind,
    LabScenario,
    Scenario,
)

JOBS = 80

_KINDS = (
    JobKind(model="tiny", share=5, run_s=40.0, run_spread=0.3),
    JobKind(model="small", share=3, run_s=150.0, run_spread=0.3),
    JobKind(model="large", share=1, run_s=900.0, run_spread=0.4),
)
_DEADLINES = tuple(
    JobKind(
        model=each.model, share=each.share, run_s=each.run_s, run_spread=each.run_spread,
        deadline_s=3.0 * each.run_s, deadline_share=0.8,
    )
    for each in _KINDS
)  # fmt: skip
_SPEEDS = (0.4, 1.0, 1.6, 3.2)
_BOARDS_PER_SPEED = 3


def judged() -> dict[str, Scenario]:
    """Return the judged scenarios by their names: 12 boards of four speeds, and what happens."""
    return {
        "load 0.5": _scenario(0.5),
        "load 0.8": _scenario(0.8),
        "load 1.1": _scenario(1.1),
        "deadlines": _scenario(0.8, _DEADLINES),
        "failures": _scenario(0.6, task_rate=0.25),
        "new family": _scenario(0.8, joins=True),
        "drained": _scenario(0.6, drained="jetson-0004-0001"),
    }


def _scenario(
    load: float,
    kinds: tuple[JobKind, ...] = _KINDS,
    *,
    task_rate: float = 0.0,
    joins: bool = False,
    drained: str = "",
) -> Scenario:
    """Return a lab.

    Args:
        load: Share of the boards that its benchmarks need, if each takes the time that it should.
        kinds: Of benchmarks.
        task_rate: Of the faults of the two middle speeds; of the others it is a tenth.
        joins: A family that nobody knows joins half-way.
        drained: A board that is drained from a quarter of the time to three quarters.
    """
    groups = tuple(
        BoardGroup(
            family="jetson",
            count=_BOARDS_PER_SPEED,
            per_host=_BOARDS_PER_SPEED,
            speed=speed,
            faults=Faults(task_rate=task_rate if speed in _SPEEDS[1:3] else task_rate / 10.0),
        )
        for speed in _SPEEDS
    )
    work_s = sum(each.share * each.run_s for each in kinds) / sum(each.share for each in kinds)
    rate = load * _BOARDS_PER_SPEED * sum(_SPEEDS) / work_s
    duration_s = JOBS / rate
    changes: list[Change] = []
    if joins:
        group = BoardGroup(family="emufast", count=4, speed=2.5)
        changes.append(Change(at_s=duration_s / 2, what="boards_join", group=group))
    if drained:
        changes.append(Change(at_s=duration_s / 4, what="drain", target_uid=drained))
        changes.append(Change(at_s=duration_s * 3 / 4, what="resume", target_uid=drained))
    return Scenario(
        name="judged",
        world="boards",
        duration_s=duration_s,
        lab=LabScenario(
            boards=groups,
            arrivals=Arrivals(rate_per_hour=rate * 3600.0, mix=kinds),
            changes=tuple(changes),
            max_run_s=4 * 3600.0,
            history_jobs=5 * _BOARDS_PER_SPEED * len(_SPEEDS),
        ),
    )
