"""What must never happen, checked on the store and the cluster after every step that commits."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from sqlalchemy import select

from edgeyard.scheduler.clock import TOLERANCE_S
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
from edgeyard.scheduler.store.tables import (
    attempts,
    balances,
    benchmarks,
    charges,
    leases,
    reports,
    status_counts,
)
from tests.virtual_service.simulation import (
    ServiceSimulation,
    SimMachine,
    is_known,
)

MAX_ATTEMPTS = 60
"""Of one benchmark, whatever goes wrong: retries, losses in a row and preemptions are bounded."""

MAX_VIOLATIONS = 10
"""That are kept."""

RECENT_S = 60.0
"""A waiting reason may state what was true so long ago: the twin learns of a change late."""

RUN_BOUND_S = 100.0
"""Time limit of the runs of these simulations, and what they may cost at most."""

_Row = Mapping[str, Any]
_TERMINAL = frozenset(status.value for status in TERMINAL)
_NEVER = frozenset(
    {
        WaitingReason.NO_SUCH_FAMILY,
        WaitingReason.ENGINE_MISSING,
        WaitingReason.TYPE_UNSUPPORTED,
        WaitingReason.TYPE_UNDECLARED,
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
        epochs: How often a server began to lead and committed something.
    """

    def __init__(self, credits: float | None = None) -> None:
        """Check nothing before the first call.

        Args:
            credits: That each user began with; None: unlimited.
        """
        self.violations: list[str] = []
        self.checks = self.epochs = 0
        self._credits = credits
        self._ended: dict[str, tuple[str, datetime | None]] = {}
        self._descriptions: dict[str, JobDescription] = {}
        self._known: set[tuple[str, int]] = set()
        self._leases: list[Lease] = []
        self._truths: dict[tuple[str, str], float] = {}
        self._blind_s = 0.0
        self._late_s = -math.inf
        self._leaders: dict[int, str] = {}
        self._seen: set[str] = set()

    def observe(self, simulation: ServiceSimulation) -> None:
        """Check each commit of an engine and each call of the cluster too."""
        simulation.on_commit = partial(self._check_commit, simulation)
        simulation.on_call = partial(self._check_call, simulation)

    def note_restore(self, simulation: ServiceSimulation) -> None:
        """Remember that the store is an older one: what it does not know is undone."""
        with simulation.observer.read() as uow:
            kept = {row["lease_id"] for row in uow.tx.rows(select(leases.c.lease_id))}
            tried = uow.tx.rows(select(attempts.c.benchmark_id, attempts.c.number))
        self._known &= {(cast(str, row["benchmark_id"]), cast(int, row["number"])) for row in tried}
        self._leases = [each for each in self._leases if each.lease_id in kept]
        self._ended.clear()
        self._leaders.clear()
        self._blind_s = simulation.time.now_s

    def note_lease(self, lease: Lease) -> None:
        """Remember a lease that was made."""
        self._leases.append(lease)

    def add_credits(self, more: float) -> None:
        """Remember that each user gets more."""
        self._credits = None if self._credits is None else self._credits + more

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
        moved = before is not None and before[1] != row["ended_at"]
        if before is not None and (before[0] != status or (moved and not simulation.was_clock_set)):
            self._violated(simulation, f"{benchmark_id} was {before[0]} and is {status}")
        if status in _TERMINAL:
            self._ended[benchmark_id] = (status, row["ended_at"])
        live = [each for each in tried if each["state"] != AttemptState.ENDED.value]
        if len(live) > 1:
            self._violated(simulation, f"{benchmark_id} has {len(live)} live attempts")
        description = self._descriptions[benchmark_id]
        counted = sum(
            bool(each["counts"])
            for each in tried
            if each["state"] == AttemptState.ENDED.value and each["failure_category"] is not None
        )
        if counted > description.max_retries + 1 or len(tried) > MAX_ATTEMPTS:
            self._violated(
                simulation,
                f"{benchmark_id} had {counted} attempts that count of {len(tried)}, "
                f"and {description.max_retries} retries",
            )
        for each in tried:
            key = (benchmark_id, each["number"])
            if key not in self._known:
                self._known.add(key)
                self._check_new_attempt(simulation, row, each, description)
            started = each["started_at"]
            if started is not None and self._is_before(simulation, started, row["submit_time"]):
                self._violated(simulation, f"{key} started before its submission")
        if status == Status.PENDING.value and live:
            self._violated(simulation, f"{benchmark_id} is pending with a live attempt")
        if status in (Status.SCHEDULED.value, Status.RUNNING.value) and not live:
            self._violated(simulation, f"{benchmark_id} is {status} without a live attempt")
        may_expire = description.deadline is not None or description.queue_timeout_s is not None
        if status == Status.EXPIRED.value and not may_expire:
            self._violated(simulation, f"{benchmark_id} expired without a reason")
        if status == Status.PENDING.value and row["waiting_reason"] is not None:
            self._check_reason(simulation, row, tried, description)

    def _check_new_attempt(
        self, simulation: ServiceSimulation, row: _Row, tried: _Row, description: JobDescription
    ) -> None:
        created = tried["created_at"]
        if self._is_before(simulation, created, row["submit_time"]):
            self._violated(simulation, f"{tried['job_id']} was made before its submission")
        first = tried["number"] == 1
        start_time = description.start_time
        if first and start_time is not None and self._is_before(simulation, created, start_time):
            self._violated(simulation, f"{tried['job_id']} was made before its start time")
        for lease in self._leases:
            began = not self._is_before(simulation, created, lease.since)
            is_over = not self._is_before(simulation, created, lease.until)
            if lease.target_uid == tried["target_uid"] and began and not is_over:
                self._violated(
                    simulation,
                    f"{tried['job_id']} was placed on {lease.target_uid}, which is leased",
                )
        if tried["binding"] == Binding.STRICT.value and tried["target_uid"] is None:
            self._violated(simulation, f"{tried['job_id']} is strict and has no board")

    def _is_before(self, simulation: ServiceSimulation, one: datetime, other: datetime) -> bool:
        """Return whether one stored time is certainly before another one.

        Several servers' clocks agree within a tolerance. A backup from before a clock was set has
        times of the clock as it was.
        """
        if simulation.restores and simulation.was_clock_set:
            return False
        tolerance_s = TOLERANCE_S if len(simulation.machines) > 1 else 0.0
        return one < other - timedelta(seconds=tolerance_s)

    def _check_reason(
        self,
        simulation: ServiceSimulation,
        row: _Row,
        tried: Sequence[_Row],
        description: JobDescription,
    ) -> None:
        reason = WaitingReason(row["waiting_reason"])
        now_s, cluster = simulation.time.now_s, simulation.cluster
        pinned = None if row["unpinned"] else description.target_uid
        uids = [each.target_uid for each in cluster.boards() if pinned in (None, each.target_uid)]

        def recently(what: str, names: Sequence[str]) -> bool:
            last_s = max(self._truths.get((what, name), -math.inf) for name in names)
            return now_s - max(last_s, self._blind_s) <= RECENT_S

        true = {
            WaitingReason.START_TIME: description.start_time is not None or bool(tried),
            WaitingReason.BUDGET: recently("poor", [row["user_id"]]),
            WaitingReason.DEADLINE_UNREACHABLE: description.deadline is not None,
            WaitingReason.BOARD_DRAINED: recently("drained", uids),
            WaitingReason.RESERVED: recently("reserved", uids)
            or any(
                other.start_time is not None or other.job_completion_threshold is not None
                for other in self._descriptions.values()
            ),
            WaitingReason.BOARD_OFFLINE: recently("offline", uids),
            WaitingReason.BOARD_UNHEALTHY: recently("unhealthy", uids),
            WaitingReason.CLUSTER_UNREACHABLE: recently("unreachable", [""]),
            WaitingReason.BOARD_BUSY: recently("busy", uids),
        }.get(reason, reason not in _NEVER)
        if not true:
            self._violated(
                simulation,
                f"{row['benchmark_id']} waits for {reason.value}, which is not true: "
                f"{row['waiting_sentence']}",
            )

    def _note_truths(self, simulation: ServiceSimulation) -> None:
        """Note what is true now of each board and user, in the cluster and in the store."""
        now_s, cluster, leader = simulation.time.now_s, simulation.cluster, simulation.leader
        server = leader.server
        if not leader.is_available or leader.faults.full or leader.faults.away:
            self._blind_s = now_s  # no reason is brought up to date
        self._blind_s = max(self._blind_s, leader.since_s, min(now_s, leader.stalled_until_s))
        if cluster.faults.stale or cluster.faults.registers_late_s:
            self._late_s = now_s
        if cluster.faults.away or cluster.faults.stale or cluster.faults.registers_late_s:
            self._blind_s = now_s
        if server is not None and (server.clock.disagreement_s() or server.engine.leading is None):
            self._blind_s = now_s
        if cluster.faults.away or server is None:
            self._truths["unreachable", ""] = now_s
        with simulation.observer.read() as uow:
            quarantined = {
                uid for uid, each in uow.reservations.quarantines().items() if each.active
            }
            drained = {uid for uid, each in uow.board_overrides.all().items() if each.drained}
            held = cluster.holders.keys() | uow.attempts.holders().keys()
            accounts = uow.tx.rows(select(balances))
        now = simulation.now()
        # Before a lease begins, too: a run would not end in time.
        leased = {each.target_uid for each in self._leases if each.until > now}
        truths: dict[str, Iterable[str]] = {
            "offline": cluster.offline(),
            "unhealthy": cluster.unhealthy() | quarantined,
            "drained": drained,
            "reserved": leased,
            "busy": {each for uid in held for each in cluster.sharing(uid)},
            "poor": {
                cast(str, row["user_id"])
                for row in accounts
                if row["credits"] is not None
                and cast(float, row["credits"]) - cast(float, row["reserved"]) < RUN_BOUND_S
            },
        }
        for what, names in truths.items():
            for name in names:
                self._truths[what, name] = now_s

    # --- the servers ---------------------------------------------------------------------------

    def _check_commit(self, simulation: ServiceSimulation, machine: SimMachine, epoch: int) -> None:
        """Check that only the server that leads by the store commits, and one in each epoch."""
        with simulation.observer.read() as uow:
            lead = uow.leadership.current()
        if lead.epoch != epoch:
            what = f"{machine.name} committed in epoch {epoch} after epoch {lead.epoch} had begun"
            self._violated(simulation, what)
        self.epochs += epoch not in self._leaders
        other = self._leaders.setdefault(epoch, machine.name)
        if other != machine.name:
            self._violated(simulation, f"{other} and {machine.name} committed in epoch {epoch}")

    def _check_call(
        self, simulation: ServiceSimulation, machine: SimMachine, job_id: str, creates: bool
    ) -> None:
        """Check who calls the cluster, and that nothing is started that is known to run.

        A job that the cluster has, even one that has ended, is not created again.
        """
        with simulation.observer.read() as uow:
            lead = uow.leadership.current()
            running = [
                job.state.job_id
                for job in simulation.cluster.live_jobs()
                if simulation.restores
                and not job.stopping
                and job.state.job_id != job_id
                and not is_known(uow, job.state.job_id)
            ]
        if lead.server_id not in ("", machine.name):
            what = f"{machine.name} calls the cluster while {lead.server_id} leads"
            self._violated(simulation, what)
        registers_late = simulation.time.now_s - self._late_s <= RECENT_S
        if not creates or registers_late or job_id in simulation.cluster.jobs:
            return
        wanted = simulation.attempts[job_id].benchmark_id
        for other in running:
            if simulation.attempts[other].benchmark_id == wanted:
                self._violated(simulation, f"{job_id} is started while {other} runs")

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
                if began + slack < ended and not simulation.was_clock_set:
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
            self.violations.append(f"at {simulation.time.now_s:.3f} s: {what}")


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
