"""Policies by name and version, and which of them operators have put to work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from sqlalchemy import delete, select

from edgeyard.errors import Conflict
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.policies import (
    PolicyActivation,
    PolicyOverride,
    PolicySeat,
    StoredPolicy,
)
from edgeyard.scheduler.ports import Policies
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import activations, benchmarks, policies, policy_overrides
from edgeyard.scheduler.store.transaction import Transaction

_OVERRIDES = (
    select(policy_overrides)
    .join(benchmarks, benchmarks.c.benchmark_id == policy_overrides.c.benchmark_id)
    .where(benchmarks.c.status == Status.PENDING.value)
)


class SqlPolicies(Policies):
    """`Policies` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def activate(self, activation: PolicyActivation) -> None:
        self.deactivate(activation.seat)
        self._tx.insert(activations, flat_row(activation))

    def deactivate(self, seat: PolicySeat) -> None:
        self._tx.run(delete(activations).where(activations.c.seat == seat.value))

    def activated(self) -> Mapping[PolicySeat, PolicyActivation]:
        rows = [
            {**row, "seat": PolicySeat(cast(str, row["seat"]))}
            for row in self._tx.rows(select(activations))
        ]
        return {cast(PolicySeat, row["seat"]): PolicyActivation(**row) for row in rows}  # type: ignore[arg-type]

    def add(self, policy: StoredPolicy, *, replace: bool = False) -> None:
        if self._tx.insert(policies, flat_row(policy)):
            return
        kept = self._tx.row(
            select(policies.c.text).where(
                policies.c.name == policy.name, policies.c.version == policy.version
            )
        )
        if kept is not None and kept["text"] == policy.text:
            return
        if not replace:
            raise Conflict(
                f"policy {policy.name}/{policy.version} is known with another text: "
                "give this one a new version"
            )
        self._tx.replace(policies, flat_row(policy))

    def all(self) -> Sequence[StoredPolicy]:
        rows = self._tx.rows(select(policies).order_by(policies.c.name, policies.c.version))
        return [StoredPolicy(**row) for row in rows]  # type: ignore[arg-type]

    def override(self, benchmark_id: str, override: PolicyOverride | None) -> None:
        self._tx.run(
            delete(policy_overrides).where(policy_overrides.c.benchmark_id == benchmark_id)
        )
        if override is not None:
            self._tx.insert(policy_overrides, flat_row(override))

    def overrides(self) -> Mapping[str, PolicyOverride]:
        rows = self._tx.rows(_OVERRIDES)
        return {cast(str, row["benchmark_id"]): PolicyOverride(**row) for row in rows}  # type: ignore[arg-type]
