"""What a decision knows apart from the state of the boards: past runs, users, hosts and leases.

It is part of the input of a cycle, so that a recorded cycle can be decided again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.history import PastRun as PastRun
from edgeyard.scheduler.model.history import RunKind as RunKind
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.model.run_bounds import DEFAULT_MAX_RUN_S
from edgeyard.scheduler.model.tariff import Tariff


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A reservation of a board for a person or for maintenance, with an end.

    Attributes:
        user_id: The user whose benchmarks may use the board; None: no user's.
        by_user_id: The user who made the lease.
        ended_by: The user who ended it before its time; None: nobody has.
    """

    lease_id: str
    target_uid: str
    since: datetime
    until: datetime
    reason: str
    user_id: str | None = None
    by_user_id: str = ""
    ended_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """Limits of a user's account, and what counts towards them.

    Attributes:
        credits_left: Neither spent nor reserved; None: unlimited.
        max_running: Maximum number of benchmarks that hold boards; None: unlimited.
        running: Number of benchmarks that hold boards.
        usage_board_s: Board-seconds used, decayed by half in each half-life; includes what running
            attempts have used so far.
        share: Weight in fair sharing.
        group_id: The user's group, whose own entitlement is in `Knowledge.groups`; None: none.
    """

    credits_left: float | None = None
    max_running: int | None = None
    running: int = 0
    usage_board_s: float = 0.0
    share: float = 1.0
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """How busy a host is with everything that runs there, including benchmarks.

    Attributes:
        cpu: Used fraction of CPU time, 0-1.
        memory: Fraction of memory that is not available to programs, 0-1.
    """

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveModel:
    """The active version of a registered model, whole, so that a decision can be repeated.

    Attributes:
        manifest: TOML; see `edgeyard.scheduler.learning.manifest`.
        content: Of its ONNX file; empty where it can't be used.
        problem: Why it can't be used, so that the history predicts; "" where it can.
    """

    kind: ModelKind
    version: int
    manifest: str
    content: bytes
    problem: str = ""

    @property
    def reference(self) -> str:
        """Return name and version, such as ``run_time/3``."""
        return f"{self.kind.value}/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What a decision knows apart from the state of the boards.

    Attributes:
        runs: Ended attempts, oldest first: `History((run, ...))`.
        entitlements: By user id; a missing user has no limits.
        groups: What the members of a group have and may have together, by its id.
        rates: Credits per board-second, by family; 1 for others.
        tariff: Factors on the rates, by hour of the day.
        max_run_s: Time limit of runs without a user_time.
        leases: Present and future ones.
        quarantined: Reason of the quarantine, by target_uid.
        host_loads: By host; hosts without a recent report are missing.
        weights: Learned weights of scorers under this policy version, by name.
        suspended: By scorer that is not called after repeated faults: why, and until when.
        models: Active registered models, at most one per kind.
    """

    runs: History = field(default_factory=History)
    entitlements: Mapping[str, Entitlement] = field(default_factory=dict)
    groups: Mapping[str, Entitlement] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    tariff: Tariff = field(default_factory=Tariff)
    max_run_s: float = DEFAULT_MAX_RUN_S
    leases: tuple[Lease, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    host_loads: Mapping[str, HostLoad] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    suspended: Mapping[str, str] = field(default_factory=dict)
    models: tuple[ActiveModel, ...] = ()

    def model(self, kind: ModelKind) -> ActiveModel | None:
        """Return the active model of a kind; None: the history alone predicts."""
        return next((each for each in self.models if each.kind is kind), None)

    def rate(self, family: str, now: datetime) -> float:
        """Return what a second on a board of a family costs an attempt that is placed now."""
        return self.rates.get(family, 1.0) * self.tariff.at(now)
