"""Input of the decision core (pending benchmarks, a snapshot), and its output (a decision)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.model import AttributeValue
from edgeyard.scheduler.model.benchmark import (
    Affinity,
    BenchmarkType,
    Binding,
    Constraint,
    IfUnavailable,
    Spread,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.knowledge import Knowledge, RunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PinGrace:
    """What happens to a benchmark that names a board while that one is unavailable.

    Attributes:
        if_unavailable: What its owner wants after the grace time.
        grace_s: The grace time, seconds.
        is_due: Its stated start has come: from then on a busy board counts as unavailable too.
        is_over: The grace time has passed since the board became unavailable.
        is_notified: The event of that has been recorded already.
    """

    if_unavailable: IfUnavailable
    grace_s: float
    is_due: bool = False
    is_over: bool = False
    is_notified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBenchmark:
    """What a decision depends on of one benchmark in the queue.

    Attributes:
        family: Required family, from ``target`` or ``target_uid``.
        not_ready: Why it may not be placed, whichever board is free (fetching, held); None: it may.
        campaign_started: Whether another benchmark of its campaign has started.
        tried_uids: Boards on which an attempt of it failed; other boards are preferred.
        avoid_until: Boards on which it has just failed, and from when they may try it again.
        user_priority: 1-10, bounded by the account.
        job_completion_threshold: It may preempt a less urgent benchmark whose progress is lower,
            0-100; None: it does not preempt.
        variant: Digest of everything else in its description on which its run time may depend: the
            engine's parameters, input shapes, precision, dataset, training configuration. Where
            its load lasts for a stated time, that stands before it
            (`edgeyard.scheduler.model.history.with_load`).
        budget: Maximum cost in credits; None: no limit of its own.
        ends_in_time: At its time limit a run ends with what it has measured, as TYPE1 with a
            precision does, so that no prediction of its run time keeps it from a board.
        probe: Edgeyard submitted it to test a board in quarantine.
        model_bytes: Size of its model file; None until it is known.
        pin: Of a benchmark that runs on ``target_uid`` alone; None: it is not pinned, or nobody
            waits for it yet.
        extra: Its description's ``extra`` as JSON with sorted keys; "": it has none.
        spread_group: Its campaign, over whose benchmarks ``spreads`` count; "": it has no spreads,
            or is in no campaign.
        spread_counts: By board, how many other benchmarks of ``spread_group`` run or have completed
            there, sorted.
        gang_id: Benchmarks of the same gang start in one cycle or not at all; None: it starts by
            itself.
        gang_size: How many benchmarks its gang has; 1 without a gang.
        gang_uids: Boards that the others of its gang have or had, once it has started; it gets none
            of them.
        cleared_uid: Board that was cleared for it by a preemption, and is reserved for it; None.
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
    affinities: tuple[Affinity, ...] = ()
    spreads: tuple[Spread, ...] = ()
    spread_group: str = ""
    spread_counts: tuple[tuple[str, int], ...] = ()
    user_priority: int = 5
    deadline: datetime | None = None
    start_time: datetime | None = None
    user_time_s: float | None = None
    binding: Binding | None = None
    not_ready: WaitReason | None = None
    campaign_id: str | None = None
    campaign_started: bool = False
    tried_uids: frozenset[str] = frozenset()
    avoid_until: tuple[tuple[str, datetime], ...] = ()
    model_sha256: str | None = None
    job_completion_threshold: int | None = None
    nb_inference: int = 20
    variant: str = ""
    budget: float | None = None
    ends_in_time: bool = False
    probe: bool = False
    model_bytes: int | None = None
    pin: PinGrace | None = None
    extra: str = ""
    gang_id: str | None = None
    gang_size: int = 1
    gang_uids: frozenset[str] = frozenset()
    cleared_uid: str | None = None

    @property
    def has_own_policy(self) -> bool:
        """Whether another policy than the present one decides it."""
        return self.not_ready is not None and self.not_ready.reason is WaitingReason.OWN_POLICY

    @property
    def avoids_boards(self) -> bool:
        """Whether there may be `avoided_uids`."""
        return bool(self.avoid_until or self.gang_uids)

    def avoided_uids(self, now: datetime) -> frozenset[str]:
        """Return the boards that may not try it again yet, and those of its gang."""
        return self.gang_uids.union(uid for uid, until in self.avoid_until if now < until)


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
        "avoid_until",
        "job_completion_threshold",
        "model_bytes",
        "pin",
        "gang_id",
        "gang_size",
        "gang_uids",
        "cleared_uid",
    }
)
"""Fields of `PendingBenchmark` that do not separate classes: filters and scorers do not depend on
them, except that ``model_bytes`` follows from ``model_sha256``. Benchmarks that are equal in all
other fields form a class, for which boards are filtered and scored once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardHolder:
    """A live attempt that holds a board.

    Attributes:
        priority: At its dispatch.
        progress: 0-100; None before its task runs, or if it reports none.
        preemptible: It may be preempted: its description allows it, and it was not preempted too
            often.
        ending: Its task has ended or is being stopped, so its board will be free anyway.
        preempted: It is being stopped for a more urgent benchmark.
        user_id: Its owner.
        started_at: When its task started; None: not yet.
        kind: What it runs; None if that is no longer known.
        phase: Phase that its task reports; None: none yet.
        preemptible_measuring: It may be preempted while it measures, too.
        time_limit_s: Maximum run time of its task; None: the server's limit.
        deadline: None: it has none.
        strict: Whether its job names the board.
        canary: It makes way for every other benchmark, see `edgeyard.scheduler.decide.canaries`.
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
    canary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIdle:
    """A free board that a benchmark waits for, kept from it by a booking or a lease.

    Attributes:
        keeper_id: Id of the benchmark that states a start, or of the lease.
        user_id: Whose it is.
    """

    keeper_id: str
    user_id: str
    family: str
    target_uid: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """All boards at one instant, in columns; row b of every column is board ``uids[b]``.

    Attributes:
        taken_at: When the twin was last refreshed from the cluster.
        age_s: Age of that state when the snapshot was made; inf if the cluster never answered.
        uids: Shape (boards,).
        families: Shape (boards,).
        hosts: Shape (boards,); "" for an expected board that no host reports.
        ram_bytes: Shape (boards,), int64.
        storage_bytes: Shape (boards,), int64.
        expected: Shape (boards,), in the inventory, or admitted although it lacks them.
        online: Shape (boards,), reported by a ready host.
        healthy: Shape (boards,).
        drained: Shape (boards,), drained by an operator.
        busy: Shape (boards,), held by an allocation, by an assumed placement, or by a board that
            shares its cores.
        progress: Shape (boards,), 0-100, NaN if the board reports none.
        supports: ``(engine, type)`` to a bool column: boards whose engine lists the type.
        engines: Engine name to a bool column.
        reasons: Per board, for people, why it is busy or unusable; "" otherwise.
        attributes: Per board, for users' constraints; of its node (``${node.class}``) only those
            that the benchmarks of the queue name.
        conflicts: Shape (boards, boards), bool: pairs that must not measure at the same time;
            None: no pair.
        guarded: Boards that must not be used may appear later, so a job whose board the cluster
            chooses is always limited to a list of known boards.
        undeclared: ``(engine, type)`` to a bool column, of types beyond Edgeyard's own: boards
            whose engine lists the type and does not declare what it means. They never run it.
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
    undeclared: Mapping[tuple[str, str], NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def offers(self) -> Mapping[tuple[str, str], NDArray[np.bool_]]:
        """Return ``supports`` without the boards that list a type and do not declare it."""
        return {
            pair: column & ~self.undeclared[pair] if pair in self.undeclared else column
            for pair, column in self.supports.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CycleInput:
    """Everything on which a decision depends, except the policy and its plugins.

    Attributes:
        snapshot: The boards.
        pending: The benchmarks of the queue, with unique ids, in any order.
        now: Aware UTC.
        holders: Live attempts that hold a board.
        knowledge: Users, leases, past runs and the like.
        seed: Seed of everything random.
    """

    snapshot: Snapshot
    pending: Sequence[PendingBenchmark]
    now: datetime
    holders: Sequence[BoardHolder] = ()
    knowledge: Knowledge = field(default_factory=Knowledge)
    seed: int = 0


class Placement(NamedTuple):
    """The decision to run one benchmark now.

    A tuple, because a cycle makes one for each benchmark that starts.

    Attributes:
        target_uid: The chosen board; with a loose binding the one that is expected to be free.
        allowed_uids: Boards that the job must be limited to because a matching board is excluded
            (unknown, drained, unhealthy, or sharing cores with another one); empty where no limit
            is needed or the binding is strict.
        priority: 1-100.
        binding_reason: Why the job is bound more strictly than was asked for; "" if it is not.
    """

    benchmark_id: str
    target_uid: str
    family: str
    binding: Binding
    priority: int
    allowed_uids: tuple[str, ...] = ()
    binding_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The decision to stop one benchmark for another, which then gets its board by the queue.

    Attributes:
        benchmark_id: The more urgent benchmark.
        victim_id: The benchmark to stop.
        threshold: Threshold of the more urgent one; ``progress`` is below it.
        progress: Last known progress of the victim.
        while_measuring: It may be stopped even if it has begun to measure by then.
        of_canary: The victim is a canary, which ends: it does not go back into the queue.
    """

    benchmark_id: str
    victim_id: str
    target_uid: str
    priority: int
    victim_priority: int
    threshold: int
    progress: float
    while_measuring: bool = True
    of_canary: bool = False


class PlanReason(StrEnum):
    """Why a benchmark is planned for this board and this start."""

    NOW = "now"  # the board is free, and the benchmark starts in this cycle
    NEXT_FREE = "next_free"  # no board is free for it; this one costs it least
    BETTER_BOARD = "better_board"  # a board is free, but waiting for this one costs less
    BOOKED = "booked"  # the board is reserved for it from then on
    QUIET_HOST = "quiet_host"  # nothing else is expected to run on the host by then
    CHEAP_HOUR = "cheap_hour"  # credits cost less from then on


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStart:
    """The board and the start that a cycle plans for a benchmark; the next cycle plans anew.

    Attributes:
        start: Expected; a reservation's own start where the board is booked.
        sentence: The reason in words.
        gain_s: What it saves against the best start now, in seconds of expected cost; None where
            no board is free now.
        error_s: Standard error of ``gain_s``.
    """

    target_uid: str
    start: datetime
    reason: PlanReason
    sentence: str
    gain_s: float | None = None
    error_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of filters and scorers for one benchmark and one board.

    Attributes:
        reason: None when the board fits and is free.
        never: The board can never run it as it is described.
        score: Aggregated score in [0, 1]; None if a filter refused the board.
        scores: By scorer, in its unit; None where it abstained.
        cost_s: What a run there is expected to cost, in seconds; None where nothing is known.
        cost_error_s: Its standard error.
        cost_parts_s: What it is made of, by name; None where a part is unknown.
        energy_j: Predicted energy of the run there, joules; None where no run stated its energy.
        energy_low_j: Lower end of the 95 % interval of the next run's energy.
        energy_high_j: Upper end.
    """

    target_uid: str
    reason: WaitingReason | None
    sentence: str
    never: bool = False
    score: float | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    cost_s: float | None = None
    cost_error_s: float | None = None
    cost_parts_s: Mapping[str, float | None] = field(default_factory=dict)
    energy_j: float | None = None
    energy_low_j: float | None = None
    energy_high_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerPart:
    """The part of one scorer in a decision.

    Attributes:
        unit: What its numbers mean.
        weight: Its weight.
        reward: Its reward in this cycle, in [0, 1]; None: it was not rated.
        absent: Why it did not answer, or can't rate this benchmark; "" if it did.
        fallback: What it answered instead of what its kind states, and why; "" otherwise.
        late: How long it took, and its time, if it took too long: the answer counts all the same,
            so that no decision depends on the clock. "" otherwise.
        model: The active registered model that it answered by, ``run_time/3``; "": by none.
    """

    scorer: str
    objective: str
    unit: str
    weight: float
    reward: float | None
    absent: str = ""
    fallback: str = ""
    late: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one benchmark was placed or waits.

    Attributes:
        rank: Place in the queue, from 0.
        rank_reason: Why it has this place, for people.
        never_ahead: Number of benchmarks before it that no expected board can ever run, and that
            therefore delay no other benchmark.
        priority: 1-100.
        priority_parts: Points by term; they add up to ``priority``, because what its bounds cut off
            is a term, too.
        verdicts: One for each board, in the snapshot's order.
        placement: None if it waits.
        waiting: None if it was placed.
        never: No expected board can ever run it.
        scorers: The policy's scorers, in its order.
        choice: What is expected on its board, compared with others, for people; "" if it waits.
        planned: Board and start that are planned for it while it waits; None where there is none.
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
    choice: str = ""
    planned: PlannedStart | None = None

    @property
    def agreement(self) -> float | None:
        """The share of scorers that rate no usable board above the chosen one, 0 to 1.

        Counts scorers that rated the chosen board; None if there is none, or the benchmark waits.
        It is for people: no decision, weight or reward depends on it.
        """
        if self.placement is None:
            return None
        uid = self.placement.target_uid
        usable = [each for each in self.verdicts if each.reason is None or each.target_uid == uid]
        chosen = next((each.scores for each in usable if each.target_uid == uid), {})
        agrees = []
        for part in self.scorers:
            own = chosen.get(part.scorer)
            if own is None:
                continue
            sign = 1.0 if part.unit == "preference" else -1.0  # all other units: less is better
            scores = (each.scores.get(part.scorer) for each in usable)
            agrees.append(all(score is None or sign * score <= sign * own for score in scores))
        return sum(agrees) / len(agrees) if agrees else None
