"""What the decision core reads (pending benchmarks, a snapshot) and what it says (a decision)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.model import AttributeValue
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Constraint,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.knowledge import Knowledge, RunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBenchmark:
    """What the core needs of one benchmark of the queue.

    Attributes:
        family: Asked-for family (from ``target`` or ``target_uid``).
        not_ready: Why it may not be placed whatever the boards are (fetching, held); None: it may.
        campaign_started: Some other member of its campaign has started.
        tried_uids: Boards on which an attempt of it failed: others first.
        resting: Boards that have just failed it, with the times from which they may try again.
        user_priority: 1-10, bounded by the account.
        job_completion_threshold: It may have a less urgent one stopped that is less far, 0-100;
            None: nobody.
        variant: Digest of all else in its description that its run time may depend on: the engine's
            parameters, input shapes, precision, dataset, training configuration.
        budget: Most credits that it may cost; None: no bound of its own.
        probe: Edgeyard sent it, to find out whether a board that is set aside is well again.
        model_bytes: Size of its model file; None until that is known.
    """

    benchmark_id: str
    user_id: str
    submit_time: datetime
    family: str
    engine: str
    benchmark_type: BenchmarkType
    ram_bytes: int = 0
    storage_bytes: int = 0
    target_uid: str | None = None
    constraints: tuple[Constraint, ...] = ()
    user_priority: int = 5
    deadline: datetime | None = None
    start_time: datetime | None = None
    user_time_s: float | None = None
    binding: Binding | None = None
    not_ready: WaitReason | None = None
    campaign_id: str | None = None
    campaign_started: bool = False
    tried_uids: frozenset[str] = frozenset()
    resting: tuple[tuple[str, datetime], ...] = ()
    model_sha256: str | None = None
    job_completion_threshold: int | None = None
    nb_inference: int = 20
    variant: str = ""
    budget: float | None = None
    probe: bool = False
    model_bytes: int | None = None

    @property
    def has_own_policy(self) -> bool:
        """Whether another policy than the present one decides it."""
        return self.not_ready is not None and self.not_ready.reason is WaitingReason.OWN_POLICY

    def resting_uids(self, now: datetime) -> frozenset[str]:
        """Boards that are not to try it again yet."""
        return frozenset(uid for uid, until in self.resting if now < until)


PER_BENCHMARK = frozenset(
    {
        "benchmark_id",
        "user_id",
        "submit_time",
        "user_priority",
        "start_time",
        "binding",
        "not_ready",
        "campaign_id",
        "campaign_started",
        "tried_uids",
        "resting",
        "job_completion_threshold",
        "model_bytes",
    }
)
"""Fields of `PendingBenchmark` that do not separate classes: filters and scorers do not depend on
them, except that ``model_bytes`` follows from ``model_sha256``. Benchmarks that are equal in all
other fields form a class, for which boards are filtered and scored once."""

MEASURING = frozenset({"measuring", "training"})
"""Phases of a task in which it does what it was sent for; as the runner tells them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardHolder:
    """A live attempt that has a board.

    Attributes:
        priority: As it was dispatched.
        progress: 0-100; None before its task runs, or where it isn't told.
        preemptible: It may be stopped: its description says so, and it was not too often.
        ending: Its task has ended or is being stopped: its board comes free anyway.
        preempted: It is being stopped for a more urgent one.
        user_id: Whose it is.
        started_at: When its task started; None: not yet.
        kind: What it runs; None where that is no longer known.
        phase: What its task says it is doing; None: nothing.
        preemptible_measuring: If preemptible, then also while it measures.
        time_limit_s: Longest that its task may run; None: the server's bound.
        deadline: None: none.
        strict: Its job names the board.
    """

    benchmark_id: str
    target_uid: str
    priority: int
    progress: float | None = None
    preemptible: bool = False
    ending: bool = False
    preempted: bool = False
    user_id: str = ""
    started_at: datetime | None = None
    kind: RunKind | None = None
    phase: str | None = None
    preemptible_measuring: bool = False
    time_limit_s: float | None = None
    deadline: datetime | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """All boards at one instant, in columns; row b of every column is board ``uids[b]``.

    Attributes:
        taken_at: When the twin was last told the truth by the cluster.
        age_s: Its age when the snapshot was handed out; inf when there never was an answer.
        uids: Shape (boards,).
        families: Shape (boards,).
        hosts: Shape (boards,); "" for an expected board that no host reports.
        ram_bytes: Shape (boards,), int64.
        storage_bytes: Shape (boards,), int64.
        expected: Shape (boards,), on the inventory, or let in although they are not.
        online: Shape (boards,), reported by a host that is ready.
        healthy: Shape (boards,).
        drained: Shape (boards,), taken out by an operator.
        busy: Shape (boards,), held by an allocation, by an assumed placement, or by a board that
            shares its cores.
        progress: Shape (boards,), 0-100, NaN where the board doesn't tell.
        supports: ``(engine, type)`` to a bool column.
        engines: Engine name to a bool column.
        reasons: Per board, in words, why it is not usable or busy; "" otherwise.
        attributes: Per board, for constraints of users.
        conflicts: Shape (boards, boards), bool: must not measure at the same time; None: no pair.
        guarded: Boards that must not be used may appear after this: a job whose board the cluster
            chooses is always kept to a list of known ones.
    """

    taken_at: datetime | None
    age_s: float
    uids: tuple[str, ...]
    families: tuple[str, ...]
    hosts: tuple[str, ...]
    ram_bytes: NDArray[np.int64]
    storage_bytes: NDArray[np.int64]
    expected: NDArray[np.bool_]
    online: NDArray[np.bool_]
    healthy: NDArray[np.bool_]
    drained: NDArray[np.bool_]
    busy: NDArray[np.bool_]
    progress: NDArray[np.float64]
    supports: Mapping[tuple[str, str], NDArray[np.bool_]]
    engines: Mapping[str, NDArray[np.bool_]]
    reasons: tuple[str, ...]
    attributes: tuple[Mapping[str, AttributeValue], ...] = ()
    conflicts: NDArray[np.bool_] | None = None
    guarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CycleInput:
    """Everything that a decision depends on but the policy and its plugins.

    Attributes:
        snapshot: The boards.
        pending: The queue's benchmarks, ids all different, in any order.
        now: Aware UTC.
        holders: Live attempts that have a board.
        knowledge: What is known beside the boards' state.
        seed: Of everything random.
    """

    snapshot: Snapshot
    pending: Sequence[PendingBenchmark]
    now: datetime
    holders: Sequence[BoardHolder] = ()
    knowledge: Knowledge = field(default_factory=Knowledge)
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One benchmark's decision to run now.

    Attributes:
        target_uid: The chosen board (also when bound loosely: the one that is expected to be free).
        allowed_uids: Boards that the job must be limited to because a matching board is excluded
            (unknown, drained, unhealthy, or sharing cores with another one); empty where no limit
            is needed or the binding is strict.
        priority: 1-100.
    """

    benchmark_id: str
    target_uid: str
    family: str
    binding: Binding
    priority: int
    allowed_uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """One benchmark is to be stopped for another; the board goes through the queue then.

    Attributes:
        benchmark_id: The more urgent one.
        victim_id: The one to stop.
        threshold: Of the more urgent one; ``progress`` is below it.
        progress: Of the victim, as far as it was known.
        while_measuring: It may be stopped even if it has begun to measure by then.
    """

    benchmark_id: str
    victim_id: str
    target_uid: str
    priority: int
    victim_priority: int
    threshold: int
    progress: float
    while_measuring: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the filters say of one board for one benchmark.

    Attributes:
        reason: None when the board fits and is free.
        never: The board can't ever run it as it is described.
        score: Aggregated score in [0, 1]; None when it was filtered out.
        scores: Raw score by scorer; None where a scorer abstained.
        weighted: What each makes of it: its score, spread over 0 to 1 among the boards that fit,
            times the scorer's weight.
    """

    target_uid: str
    reason: WaitingReason | None
    sentence: str
    never: bool = False
    score: float | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    weighted: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerPart:
    """What a scorer had to do with a decision.

    Attributes:
        weight: How much it counted.
        reward: Of the evaluator in this cycle, in [0, 1]; None: it was not rated.
        absent: Why it did not answer; "" where it did.
    """

    scorer: str
    objective: str
    weight: float
    reward: float | None
    absent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one benchmark was placed, or waits.

    Attributes:
        rank: Place in the queue, from 0.
        rank_reason: In words, what put it there.
        never_ahead: How many before it no expected board could ever run: they hold nobody up.
        priority: 1-100.
        priority_parts: Names and points of its terms; they add up to ``priority`` (what its bounds
            took away is a term of its own).
        verdicts: One a board, in the snapshot's order.
        placement: None when it waits.
        waiting: None when it was placed.
        never: No expected board could ever run it.
        scorers: Those of the policy, in its order.
    """

    benchmark_id: str
    decided_at: datetime
    policy: str
    rank: int
    rank_reason: str
    priority: int
    priority_parts: Mapping[str, float]
    verdicts: tuple[Verdict, ...]
    placement: Placement | None = None
    waiting: WaitReason | None = None
    never: bool = False
    never_ahead: int = 0
    scorers: tuple[ScorerPart, ...] = ()
