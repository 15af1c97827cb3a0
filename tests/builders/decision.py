"""Cycles to test: the default policy with what a test changes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.decide.cycle import CycleResult, decide
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
