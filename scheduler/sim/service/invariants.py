"""What must never happen, checked on the store and the cluster after every step that commits."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import select

from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    ABSENCE,
    TERMINAL,
    Binding,
    FailureCategory,
    JobDescription,
    Status,
    WaitingReason,
)
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.sim.service.simulation import ServiceSimulation
from edgeyard.scheduler.store.tables import (
    attempts,
    balances,
    benchmarks,
    charges,
    reports,
    status_counts,
)

MAX_ATTEMPTS = 60
"""Of one benchmark, whatever goes wrong: retries, losses in a row and preemptions are bounded."""

MAX_VIOLATIONS = 10
"""That are kept."""

RECENT_S = 120.0
"""A waiting reason may state what was true so long ago: the twin learns of a change late."""

_Row = Mapping[str, Any]
_TERMINAL = frozenset(status.value for status in TERMINAL)
_NEVER = frozenset(
    {
        WaitingReason.NO_SUCH_FAMILY,
        WaitingReason.ENGINE_MISSING,
        WaitingReason.TYPE_UNSUPPORTED,
        WaitingReason.MEMORY,
        WaitingReason.STORAGE,
        WaitingReason.UNKNOWN_BOARD,
        WaitingReason.FILTER_FAILED,
        WaitingReason.QUOTA,
        WaitingReason.OWN_POLICY,
        WaitingReason.FETCHING,
        WaitingReason.HELD,
    }
)
"""Reasons for which these simulations give no cause."""


class Invariants:
    """Checks a simulation; what it finds is kept.

    Attributes:
        violations: In words, with the virtual time; the first ones only.
        checks: How often all was checked.
    """

    def __init__(self, credits: float | None = None) -> None:
        """Check nothing before the first call.

        Args:
            credits: That each user began with; None: unlimited.
        """
        self.violations: list[str] = []
        self.checks = 0
        self._credits = credits
        self._ended: dict[str, tuple[str, datetime | None]] = {}
        self._descriptions: dict[str, JobDescription] = {}
        self._known: set[tuple[str, int]] = set()
        self._leases: list[Lease] = []
        self._truths: dict[str, float] = {}
        self._seen: set[str] = set()

    def note_lease(self, lease: Lease) -> None:
        """Remember a lease that was made."""
        self._leases.append(lease)

    def add_credits(self, more: float) -> None:
        """Remember that each user gets more."""
        self._credits = None if self._credits is None else self._credits + more

    def note(self, what: str, now_s: float) -> None:
        """Remember that something was true, which a waiting reason may state."""
        self._truths[what] = now_s

    def __call__(self, simulation: ServiceSimulation) -> None:
        """Check all that must hold at any time."""
        self.checks += 1
        self._note_truths(simulation)
        with simulation.observer.read() as uow:
            rows = uow.tx.rows(select(benchmarks))
            tried = uow.tx.rows(select(*_ATTEMPT))
            accounts = uow.tx.rows(select(balances))
            open_charges = uow.tx.rows(select(charges))
            missing = [
                row["benchmark_id"] for row in rows if row["benchmark_id"] not in self._descriptions
            ]
            for found in uow.benchmarks.get_many(cast("list[str]", missing)):
                self._descriptions[found.benchmark_id] = found.description
        by_benchmark: defaultdict[str, list[_Row]] = defaultdict(list)
        for row in tried:
            by_benchmark[cast(str, row["benchmark_id"])].append(row)
        for row in rows:
            self._check_benchmark(simulation, row, by_benchmark[cast(str, row["benchmark_id"])])
        self._check_boards(simulation, tried)
        self._check_credits(simulation, accounts, open_charges)

    def check_end(self, simulation: ServiceSimulation) -> None:
        """Check what must hold once faults have stopped and everything has ended."""
        if not simulation.is_over():
            with simulation.observer.read() as uow:
                left = uow.benchmarks.get_many(list(uow.benchmarks.live_versions()))
            words = ", ".join(
                f"{each.benchmark_id} is {each.status.value}"
                + (
                    f" ({each.waiting.reason.value}: {each.waiting.sentence})"
                    if each.waiting
                    else ""
                )
                for each in left
            )
            jobs = ", ".join(str(job.state) for job in simulation.cluster.live_jobs())
            self._violated(simulation, f"it does not end: {words}; jobs: {jobs}")
            return
        self(simulation)
        with simulation.observer.read() as uow:
            rows = uow.tx.rows(select(benchmarks))
            tried = uow.tx.rows(select(*_ATTEMPT))
            counted = uow.tx.rows(select(status_counts))
            unsettled = uow.tx.rows(select(charges).where(charges.c.settled_at.is_(None)))
            reported = {
                (row["benchmark_id"], row["attempt"])
                for row in uow.tx.rows(select(reports.c.benchmark_id, reports.c.attempt))
            }
        found = Counter(cast(str, row["status"]) for row in rows)
        stored = {row["status"]: row["stored"] for row in counted if row["stored"]}
        if stored != found:
            self._violated(simulation, f"statuses are counted as {stored}, and are {dict(found)}")
        if unsettled:
            self._violated(simulation, f"{len(unsettled)} charges are not settled")
        if len(rows) < len(simulation.submitted):
            self._violated(simulation, "a benchmark that was taken is gone")
        for row in rows:
            with_report = [key for key in reported if key[0] == row["benchmark_id"]]
            if row["status"] == Status.COMPLETED.value and not with_report:
                self._violated(simulation, f"{row['benchmark_id']} is completed without a report")
        self._check_occupancy(simulation, tried)

    # --- one benchmark -------------------------------------------------------------------------

    def _check_benchmark(
        self, simulation: ServiceSimulation, row: _Row, tried: Sequence[_Row]
    ) -> None:
        benchmark_id, status = row["benchmark_id"], row["status"]
        before = self._ended.get(benchmark_id)
        if before is not None and before != (status, row["ended_at"]):
            self._violated(simulation, f"{benchmark_id} was {before[0]} and is {status}")
        if status in _TERMINAL:
            self._ended[benchmark_id] = (status, row["ended_at"])
        live = [each for each in tried if each["state"] != AttemptState.ENDED.value]
        if len(live) > 1:
            self._violated(simulation, f"{benchmark_id} has {len(live)} live attempts")
        asked = self._descriptions[benchmark_id]
        counted = sum(
            bool(each["counts"])
            for each in tried
            if each["state"] == AttemptState.ENDED.value and each["failure_category"] is not None
        )
        if counted > asked.max_retries + 1 or len(tried) > MAX_ATTEMPTS:
            self._violated(
                simulation,
                f"{benchmark_id} had {counted} attempts that count of {len(tried)}, "
                f"and {asked.max_retries} retries",
            )
        for each in tried:
            key = (benchmark_id, each["number"])
            if key not in self._known:
                self._known.add(key)
                self._check_new_attempt(simulation, row, each, asked)
            started = each["started_at"]
            if started is not None and started < row["submit_time"]:
                self._violated(simulation, f"{key} started before its submission")
        if status == Status.PENDING.value and live:
            self._violated(simulation, f"{benchmark_id} is pending with a live attempt")
        if status in (Status.SCHEDULED.value, Status.RUNNING.value) and not live:
            self._violated(simulation, f"{benchmark_id} is {status} without a live attempt")
        may_expire = asked.deadline is not None or asked.queue_timeout_s is not None
        if status == Status.EXPIRED.value and not may_expire:
            self._violated(simulation, f"{benchmark_id} expired without a reason")
        if status == Status.PENDING.value and row["waiting_reason"] is not None:
            self._check_reason(simulation, row, tried, asked)

    def _check_new_attempt(
        self, simulation: ServiceSimulation, row: _Row, tried: _Row, asked: JobDescription
    ) -> None:
        created = tried["created_at"]
        if created < row["submit_time"]:
            self._violated(simulation, f"{tried['job_id']} was made before its submission")
        first = tried["number"] == 1
        if first and asked.start_time is not None and created < asked.start_time:
            self._violated(simulation, f"{tried['job_id']} was made before its start time")
        for lease in self._leases:
            if lease.target_uid == tried["target_uid"] and lease.since <= created < lease.until:
                self._violated(
                    simulation,
                    f"{tried['job_id']} was placed on {lease.target_uid}, which is leased",
                )
        if tried["binding"] == Binding.STRICT.value and tried["target_uid"] is None:
            self._violated(simulation, f"{tried['job_id']} is strict and has no board")

    def _check_reason(
        self,
        simulation: ServiceSimulation,
        row: _Row,
        tried: Sequence[_Row],
        asked: JobDescription,
    ) -> None:
        reason = WaitingReason(row["waiting_reason"])
        now_s = simulation.clocks.now_s

        def recently(what: str) -> bool:
            return now_s - self._truths.get(what, -RECENT_S - 1.0) <= RECENT_S

        true = {
            WaitingReason.START_TIME: asked.start_time is not None or bool(tried),
            WaitingReason.BUDGET: self._credits is not None,
            WaitingReason.DEADLINE_UNREACHABLE: asked.deadline is not None,
            WaitingReason.RESERVED: recently("reserved")
            or recently("quarantine")
            or any(other.start_time is not None for other in self._descriptions.values()),
            WaitingReason.BOARD_OFFLINE: recently("offline") or recently("unreachable"),
            WaitingReason.BOARD_UNHEALTHY: recently("unhealthy") or recently("quarantine"),
            WaitingReason.CLUSTER_UNREACHABLE: recently("unreachable"),
            WaitingReason.BOARD_BUSY: recently("busy"),
        }.get(reason, reason not in _NEVER)
        if not true:
            self._violated(
                simulation,
                f"{row['benchmark_id']} waits for {reason.value}, which is not true: "
                f"{row['waiting_sentence']}",
            )

    def _note_truths(self, simulation: ServiceSimulation) -> None:
        now_s, cluster = simulation.clocks.now_s, simulation.cluster
        truths = {
            "offline": bool(cluster.down_hosts()),
            "unhealthy": cluster.is_unhealthy(),
            "busy": bool(cluster.holders),
            "unreachable": cluster.faults.away or simulation.server is None,
        }
        for what, true in truths.items():
            if true:
                self._truths[what] = now_s
        with simulation.observer.read() as uow:
            if any(each.active for each in uow.reservations.quarantines().values()):
                self._truths["quarantine"] = now_s
            if uow.attempts.live_versions():
                self._truths["busy"] = now_s

    # --- the lab -------------------------------------------------------------------------------

    def _check_boards(self, simulation: ServiceSimulation, tried: Sequence[_Row]) -> None:
        """Check that no benchmark runs twice, unless its attempt was given up before."""
        live = {
            each["job_id"]: each["benchmark_id"]
            for each in tried
            if each["state"] != AttemptState.ENDED.value
        }
        running = Counter(
            live[job.state.job_id]
            for job in simulation.cluster.live_jobs()
            if job.state.job_id in live
        )
        for benchmark_id, count in running.items():
            if count > 1:
                self._violated(simulation, f"{benchmark_id} runs {count} times at once")
        held = Counter(
            each["target_uid"]
            for each in tried
            if each["state"] != AttemptState.ENDED.value
            and each["binding"] == Binding.STRICT.value
            and each["target_uid"] is not None
        )
        for uid, count in held.items():
            if count > 1:
                self._violated(simulation, f"{uid} is given to {count} benchmarks at once")

    def _check_occupancy(self, simulation: ServiceSimulation, tried: Sequence[_Row]) -> None:
        """Check that no two attempts ran on one board at once, by the stored times."""
        absent = {category.value for category in ABSENCE} | {FailureCategory.PREEMPTED.value}
        by_board: defaultdict[str, list[tuple[datetime, datetime, str]]] = defaultdict(list)
        for each in tried:
            ended = each["task_ended_at"]
            if each["started_at"] is None or ended is None or each["placed_uid"] is None:
                continue
            if each["failure_category"] in absent:
                continue  # its end is when it was learned of
            by_board[each["placed_uid"]].append((each["started_at"], ended, each["job_id"]))
        slack = timedelta(seconds=1)
        for uid, spans in by_board.items():
            spans.sort()
            for (_, ended, one), (began, _, other) in itertools.pairwise(spans):
                if began + slack < ended and not simulation.clocks.was_set:
                    self._violated(simulation, f"{one} and {other} ran on {uid} at once")

    def _check_credits(
        self, simulation: ServiceSimulation, accounts: Sequence[_Row], found: Sequence[_Row]
    ) -> None:
        reserved: defaultdict[str, float] = defaultdict(float)
        charged: defaultdict[str, float] = defaultdict(float)
        for each in found:
            if each["settled_at"] is None:
                reserved[each["user_id"]] += each["reserved"]
            else:
                charged[each["user_id"]] += each["charged"] or 0.0
        for account in accounts:
            user_id, left = account["user_id"], account["credits"]
            if abs(account["reserved"] - reserved[user_id]) > 1e-6:
                self._violated(
                    simulation,
                    f"{user_id} has {account['reserved']} reserved for {reserved[user_id]}",
                )
            if left is None:
                continue
            if left < account["reserved"] - 1e-6 or account["reserved"] < 0:
                self._violated(simulation, f"{user_id} has {left} credits, less than reserved")
            if self._credits is not None and abs(left + charged[user_id] - self._credits) > 1e-6:
                self._violated(
                    simulation, f"{user_id} has {left} credits after {charged[user_id]} charged"
                )

    def _violated(self, simulation: ServiceSimulation, what: str) -> None:
        if what not in self._seen and len(self.violations) < MAX_VIOLATIONS:
            self._seen.add(what)
            self.violations.append(f"at {simulation.clocks.now_s:.3f} s: {what}")


_ATTEMPT = (
    attempts.c.benchmark_id,
    attempts.c.number,
    attempts.c.job_id,
    attempts.c.state,
    attempts.c.binding,
    attempts.c.counts,
    attempts.c.created_at,
    attempts.c.started_at,
    attempts.c.task_ended_at,
    attempts.c.target_uid,
    attempts.c.placed_uid,
    attempts.c.failure_category,
)
