"""Cycles to test: the default policy with what a test changes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, board, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.framework.policy import Policy, load_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    CycleInput,
    PendingBenchmark,
    Snapshot,
)
from edgeyard.scheduler.model.knowledge import Knowledge


@cache
def policy(name: str = "default") -> Policy:
    return load_policy(name)


@cache
def plugins(name: str = "default") -> Plugins:
    return registry(entry_points=False).resolve(policy(name))


def cycle(
    snapshot: Snapshot,
    pending: Sequence[PendingBenchmark],
    *,
    of: str = "default",
    holders: Sequence[BoardHolder] = (),
    seed: int = 0,
    now: datetime = NOW,
    knowledge: Knowledge | None = None,
    more_plugins: Mapping[str, Any] | None = None,
    **changes: Any,
) -> CycleResult:
    """Decide; ``changes`` are of the policy, ``more_plugins`` of its plugins."""
    return decide(
        CycleInput(
            snapshot=snapshot,
            pending=pending,
            now=now,
            holders=holders,
            knowledge=knowledge or Knowledge(),
            seed=seed,
        ),
        replace(policy(of), **changes),
        replace(plugins(of), **(more_plugins or {})),
    )


def places(result: CycleResult) -> dict[str, str]:
    """Board by benchmark."""
    return {each.benchmark_id: each.target_uid for each in result.placements}


def lab(*free: str, busy: tuple[str, ...] = (), one_host: bool = False) -> Snapshot:
    """Boards that are free and busy, each on a host of its own or all on one."""
    return snapshot_of(
        [board(uid) for uid in free] + [board(uid, busy=True) for uid in busy],
        hosts={uid: "host" if one_host else f"host-{uid}" for uid in (*free, *busy)},
    )


def runs_on(uid: str, ran_s: float, of: PendingBenchmark, **more: Any) -> BoardHolder:
    """What has held a board for so long: another run of the same kind."""
    return BoardHolder(
        benchmark_id=f"on-{uid}",
        target_uid=uid,
        priority=50,
        user_id="user-2",
        started_at=NOW - timedelta(seconds=ran_s),
        kind=kind_of(of),
        **more,
    )
