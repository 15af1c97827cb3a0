"""What a decision may know beside the boards' state: the past, users, hosts and leases.

All of it is part of a cycle's input, so that a recorded cycle can be decided again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.history import PastRun as PastRun
from edgeyard.scheduler.model.history import RunKind as RunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A board kept for a person or for maintenance; it ends by itself.

    Attributes:
        user_id: Whose benchmarks may use it meanwhile; None: nobody's.
        by_user_id: Who made it.
    """

    lease_id: str
    target_uid: str
    since: datetime
    until: datetime
    reason: str
    user_id: str | None = None
    by_user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitlement:
    """What a user may have, and has.

    Attributes:
        credits_left: Not yet spent nor reserved; None: no account of credits is kept.
        max_running: Benchmarks that may hold boards at once; None: no bound.
        running: Benchmarks that hold boards now.
        usage_board_s: Board-seconds used, each halved per half-life since; those of running
            attempts as far as they have run.
        share: Weight in fair sharing.
    """

    credits_left: float | None = None
    max_running: int | None = None
    running: int = 0
    usage_board_s: float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """How busy a host is, with all that runs there: benchmarks too.

    Attributes:
        cpu: Share of its CPUs' time that was used, 0-1.
        memory: Share of its memory that programs could not get, 0-1.
    """

    cpu: float
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """See the module.

    Attributes:
        runs: Ended attempts, oldest first: `History((run, ...))`.
        entitlements: By user id; who is missing is bounded by nothing.
        rates: Credits a board-second, by family; 1 for others.
        max_run_s: Bound on a run that states no user_time.
        leases: Present and future ones.
        quarantined: By target_uid, why it is set aside.
        host_loads: By host; those that did not tell lately are missing.
        weights: Of scorers, by name, as learned so far under this policy version.
        benched: By scorer that is not asked after repeated faults, why and until when.
    """

    runs: History = field(default_factory=History)
    entitlements: Mapping[str, Entitlement] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    max_run_s: float = 900.0
    leases: tuple[Lease, ...] = ()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    host_loads: Mapping[str, HostLoad] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    benched: Mapping[str, str] = field(default_factory=dict)
