"""Policies by name and version, and which of them operators have put to work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

from sqlalchemy import case, delete, func, select

from edgeyard.errors import Conflict
from edgeyard.scheduler.model import wire
from edgeyard.scheduler.model.benchmark import FailureCategory, Status
from edgeyard.scheduler.model.ended import EndedBenchmark
from edgeyard.scheduler.model.policies import (
    PolicyActivation,
    PolicyOverride,
    PolicyRole,
    StoredPolicy,
)
from edgeyard.scheduler.ports import Policies
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import (
    activations,
    attempts,
    benchmarks,
    cycles,
    descriptions,
    explanations,
    policies,
    policy_overrides,
)
from edgeyard.scheduler.store.transaction import Transaction, among

_PREEMPTED = FailureCategory.PREEMPTED.value
_OVERRIDES = (
    select(policy_overrides)
    .join(benchmarks, benchmarks.c.benchmark_id == policy_overrides.c.benchmark_id)
    .where(benchmarks.c.status == Status.PENDING.value)
)


_ATTEMPTS = (
    select(
        attempts.c.benchmark_id,
        func.count(attempts.c.started_at).label("attempts"),
        func.sum(case((attempts.c.failure_category == _PREEMPTED, 1), else_=0)).label(
            "preemptions"
        ),
        func.sum(
            case(
                (
                    attempts.c.failure_category.is_not(None)
                    & (attempts.c.failure_category != _PREEMPTED),
                    1,
                ),
                else_=0,
            )
        ).label("failed_attempts"),
    )
    .where(among(attempts.c.benchmark_id))
    .group_by(attempts.c.benchmark_id)
)
_ENDED = (
    select(
        benchmarks.c.benchmark_id,
        benchmarks.c.user_id,
        benchmarks.c.status,
        benchmarks.c.submit_time,
        benchmarks.c.started_at,
        benchmarks.c.ended_at,
        descriptions.c.body,
        cycles.c.policy,
    )
    .join(descriptions, descriptions.c.benchmark_id == benchmarks.c.benchmark_id)
    .outerjoin(explanations, explanations.c.benchmark_id == benchmarks.c.benchmark_id)
    .outerjoin(cycles, cycles.c.seq == explanations.c.seq)
    .where(benchmarks.c.ended_at.is_not(None))
    .order_by(benchmarks.c.ended_at.desc(), benchmarks.c.benchmark_id)
)
_ACTIVATIONS = select(activations)


class SqlPolicies(Policies):
    """`Policies` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def activate(self, activation: PolicyActivation) -> None:
        self.deactivate(activation.role)
        self._tx.insert(activations, flat_row(activation))

    def deactivate(self, role: PolicyRole) -> None:
        self._tx.run(delete(activations).where(activations.c.role == role.value))

    def activated(self) -> Mapping[PolicyRole, PolicyActivation]:
        rows = [
            {**row, "role": PolicyRole(cast(str, row["role"]))}
            for row in self._tx.rows(_ACTIVATIONS)
        ]
        return {cast(PolicyRole, row["role"]): PolicyActivation(**row) for row in rows}  # type: ignore[arg-type]

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
                f"policy {policy.name}/{policy.version} already exists with another text: "
                "give this text a new version"
            )
        self._tx.replace(policies, flat_row(policy))

    def all(self) -> Sequence[StoredPolicy]:
        rows = self._tx.rows(select(policies).order_by(policies.c.name, policies.c.version))
        return [StoredPolicy(**row) for row in rows]  # type: ignore[arg-type]

    def ended(
        self, *, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[EndedBenchmark]:
        wanted = _ENDED.limit(limit)
        if since is not None:
            wanted = wanted.where(benchmarks.c.ended_at >= since)
        if until is not None:
            wanted = wanted.where(benchmarks.c.ended_at < until)
        rows = self._tx.rows(wanted)
        ids = [row["benchmark_id"] for row in rows]
        counts = {row["benchmark_id"]: row for row in self._tx.rows_of(_ATTEMPTS, ids)}
        nothing = dict.fromkeys(("attempts", "preemptions", "failed_attempts"), 0)
        return [
            EndedBenchmark(
                benchmark_id=cast(str, row["benchmark_id"]),
                user_id=cast(str, row["user_id"]),
                policy=cast("str | None", row["policy"]) or "",
                status=Status(cast(str, row["status"])),
                submit_time=cast(datetime, row["submit_time"]),
                started_at=cast("datetime | None", row["started_at"]),
                ended_at=cast(datetime, row["ended_at"]),
                deadline=wire.deadline_of(cast(str, row["body"])),
                **{
                    name: int(cast(int, counts.get(row["benchmark_id"], nothing)[name]))
                    for name in nothing
                },
            )
            for row in rows
        ]

    def override(self, benchmark_id: str, override: PolicyOverride | None) -> None:
        self._tx.run(
            delete(policy_overrides).where(policy_overrides.c.benchmark_id == benchmark_id)
        )
        if override is not None:
            self._tx.insert(policy_overrides, flat_row(override))

    def overrides(self) -> Mapping[str, PolicyOverride]:
        rows = self._tx.rows(_OVERRIDES)
        return {cast(str, row["benchmark_id"]): PolicyOverride(**row) for row in rows}  # type: ignore[arg-type]
