"""What a cycle did: the one value that the engine, metrics, forecasts and tests read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.engine.downloads import Download
from edgeyard.scheduler.engine.policies import LoadedPolicy
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import WaitReason
from edgeyard.scheduler.model.decision import CycleInput


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue as the last cycle saw it, best first.

    Attributes:
        decided_at_iso: RFC 3339; "" before the first cycle.
        policy: Name of the policy that ordered it.
        order: Ids of benchmarks.
        never: Those that no known board could ever run; no other benchmark waits for them.
    """

    decided_at_iso: str
    policy: str
    order: tuple[str, ...]
    never: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCommit:
    """What one policy decided in a cycle, and what of it was committed.

    Attributes:
        policy: The policy, with its plugins.
        given: What the decision depended on.
        result: The decision.
        waiting: Why each benchmark that this policy decides waits, by id.
        seq: Number of the recorded cycle. None: nothing was new, so nothing was committed.
        placed: Attempts that are prepared, first in the queue to last.
        refused: Benchmarks that got a board and no attempt: they changed meanwhile, or their
            user's account can't pay.
        preempted: Ids of jobs that the reconciler is to stop.
        expired: Benchmarks whose deadline or queue time-out passed.
        new_reasons: Reason and priority of those that wait and whose reason or priority changed.
        pin_timeouts: Reasons of those whose pinned board was unavailable for the grace time.
        unavailable_since: Since when a pinned board is unavailable, where that changed.
        explained_parts: How many parts of the new reasons are stored already.
    """

    policy: LoadedPolicy
    given: CycleInput
    result: CycleResult
    waiting: Mapping[str, WaitReason] = field(default_factory=dict)
    seq: int | None = None
    placed: tuple[Attempt, ...] = ()
    refused: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    new_reasons: Mapping[str, tuple[WaitReason, int]] = field(default_factory=dict)
    pin_timeouts: Mapping[str, WaitReason] = field(default_factory=dict)
    unavailable_since: Mapping[str, datetime | None] = field(default_factory=dict)
    explained_parts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """What a cycle did.

    Attributes:
        at: Time that it decided at.
        commits: One a policy: those of single benchmarks first, the active one last.
        shadow: The policy that is to decide the same without effect; None: there is none.
        queue: The order of the active policy.
        downloads: Files that pending benchmarks miss.
        live: The benchmarks that wait or run, by id.
        seconds: Time that deciding and committing took.
        canaries: The commit of canaries, after all others; None: none waits.
        idle: Nothing waited, so nothing was decided: ``commits`` are those of the last decision,
            without what it committed.
    """

    at: datetime
    commits: tuple[PolicyCommit, ...]
    shadow: LoadedPolicy | None
    queue: QueueView
    downloads: tuple[Download, ...]
    live: Mapping[str, object]
    seconds: float = 0.0
    canaries: PolicyCommit | None = None
    idle: bool = False

    @property
    def all_commits(self) -> tuple[PolicyCommit, ...]:
        """The commits, and that of canaries."""
        return self.commits if self.canaries is None else (*self.commits, self.canaries)

    @property
    def active(self) -> PolicyCommit:
        """The commit of the active policy."""
        return self.commits[-1]

    @property
    def decided(self) -> Decisions:
        """The arrays of the active policy's decision."""
        return self.active.result.decided

    @property
    def placed(self) -> tuple[str, ...]:
        """Job ids of attempts that are prepared, to be dispatched."""
        return tuple(attempt.job_id for commit in self.all_commits for attempt in commit.placed)

    @property
    def preempted(self) -> tuple[str, ...]:
        """Ids of jobs that are to be stopped; the reconciler does that."""
        return tuple(job_id for commit in self.all_commits for job_id in commit.preempted)

    @property
    def waiting(self) -> Mapping[str, WaitReason]:
        """Return the waiting reasons of the benchmarks that were not placed, by id."""
        return {each: why for commit in self.all_commits for each, why in commit.waiting.items()}
