"""A cache of the queue: each cycle reads only those benchmarks that changed in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from edgeyard.scheduler.clock import Stopwatches
from edgeyard.scheduler.engine.charging import PROBER
from edgeyard.scheduler.engine.downloads import Download
from edgeyard.scheduler.engine.pins import PinTimers
from edgeyard.scheduler.engine.retry import FREE_LOSSES, past_decisions
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS, Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    MAX_COUNT,
    Benchmark,
    Binding,
    Status,
    WaitingReason,
    model_of,
)
from edgeyard.scheduler.model.canaries import CANARY_USER, PROBE_TAG
from edgeyard.scheduler.model.checks import CHECK_TAG
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark
from edgeyard.scheduler.model.preemption import is_preemptible, is_preemption
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.ports import BenchmarkFilter, Clock, UnitOfWork
from edgeyard.scheduler.prediction.history import variant_of


@dataclass(frozen=True, slots=True)
class LiveBenchmark:
    """A benchmark that waits or runs, with the values on which decisions depend.

    Attributes:
        queued_at: When it came into the queue last: submission, or the end of its last attempt.
        retry_at: It is not tried again before then; None: it may be tried at once.
        adopted: Its job was in the cluster before the database knew of it.
    """

    benchmark: Benchmark
    pending: PendingBenchmark
    queued_at: datetime
    retry_at: datetime | None = None
    adopted: bool = False

    @property
    def is_canary(self) -> bool:
        """Whether it runs only where nothing else would."""
        return self.benchmark.user_id == CANARY_USER

    def changed(self, benchmark: Benchmark) -> LiveBenchmark:
        """Return it after a cycle's own change.

        Of what decisions read of one that waits, a cycle changes the board that is cleared for it.
        """
        pending = self.pending
        if pending.cleared_uid != benchmark.cleared_uid:
            pending = replace(pending, cleared_uid=benchmark.cleared_uid)
        return replace(self, benchmark=benchmark, pending=pending)


@dataclass(frozen=True, slots=True)
class Expiry:
    """Why a benchmark's time is up.

    Attributes:
        deadline: Its deadline passed; otherwise its queue time-out.
        with_gang: Neither passed: another benchmark of its gang ended without a result.
    """

    sentence: str
    deadline: bool
    with_gang: bool = False


class QueueCache:
    """Live benchmarks and attempts. `reload` on one thread at a time, the rest on any.

    Attributes:
        live: Benchmarks that wait or run, by id; replaced as a whole.
    """

    def __init__(self, clock: Clock, pins: PinTimers, start_lead_s: float = 0.0) -> None:
        """Read nothing before `reload`.

        Args:
            clock: Decides what is due.
            pins: Measures the grace times of pinned benchmarks.
            start_lead_s: How long before its start time a benchmark may be handed to the cluster.
        """
        self._clock = clock
        self._pins = pins
        self._start_lead = timedelta(seconds=start_lead_s)
        self._attempts: Mapping[str, Attempt] = {}
        self._owners: Mapping[str, str] = {}
        self._waits: Stopwatches[str] = Stopwatches(clock)
        self._gang_counts: Mapping[str, Mapping[Status, int]] = {}
        self._gang_boards: dict[str, dict[str, tuple[int, frozenset[str]]]] = {}
        self.live: Mapping[str, LiveBenchmark] = {}

    def reload(self, uow: UnitOfWork) -> None:
        """Read benchmarks that are new or changed, and forget those that ended."""
        versions = uow.benchmarks.live_versions()
        live = {key: value for key, value in self.live.items() if key in versions}
        changed = [
            benchmark_id
            for benchmark_id, version in versions.items()
            if benchmark_id not in live or live[benchmark_id].benchmark.version != version
        ]
        for benchmark in uow.benchmarks.get_many(changed):
            earlier = _earlier_attempts(uow, benchmark)
            live[benchmark.benchmark_id] = self._live_benchmark(benchmark, earlier)
        for benchmark_id, known in live.items():
            if known.pending.target_uid is not None:
                pin = self._pins.grace_of(known.benchmark)
                if pin != known.pending.pin:
                    live[benchmark_id] = replace(known, pending=replace(known.pending, pin=pin))
        gangs = {each.benchmark.gang_id for each in live.values()} - {None}
        self._gang_counts = uow.campaigns.counts(sorted(filter(None, gangs))) if gangs else {}
        self._gang_boards = {key: value for key, value in self._gang_boards.items() if key in gangs}
        self.live = live  # one assignment: previews read it on other threads
        self._pins.retain(live)
        self._waits.retain(live.__contains__)

    def update(self, benchmarks: Sequence[Benchmark]) -> None:
        """Take in changes that the cycle itself committed: the next one need not read them."""
        self.live = {
            **self.live,
            **{
                each.benchmark_id: self.live[each.benchmark_id].changed(each) for each in benchmarks
            },
        }

    def pending(
        self, uow: UnitOfWork, decides: Callable[[str], bool] | None
    ) -> list[PendingBenchmark]:
        """Return all benchmarks that wait, without canaries.

        Args:
            uow: Open for reading.
            decides: Whether the policy decides a benchmark. One that another policy decides keeps
                its reservations, but is not ready. None: the policy decides all of them.
        """
        now = self._clock.now()
        found = [
            each.pending
            if each.retry_at is None or now >= each.retry_at
            else _backing_off(each.benchmark, each.pending, each.retry_at)
            for each in self.live.values()
            if each.benchmark.status is Status.PENDING and not each.is_canary
        ]
        if decides is not None:
            found = [
                each
                if decides(each.benchmark_id)
                else replace(each, not_ready=each.not_ready or waiting_reasons.own_policy())
                for each in found
            ]
        found = [self._with_gang(uow, each) for each in found]
        if groups := sorted({each.spread_group for each in found} - {""}):
            boards = uow.campaigns.boards(groups)
            found = [
                replace(each, spread_counts=tuple(sorted(boards[each.spread_group].items())))
                if each.spread_group
                else each
                for each in found
            ]
        campaigns = sorted({each.campaign_id for each in found if each.campaign_id})
        if not campaigns:
            return found
        started = uow.campaigns.started(campaigns)
        return [
            replace(each, campaign_started=True) if each.campaign_id in started else each
            for each in found
        ]

    def canaries(self) -> list[PendingBenchmark]:
        """Return the canaries that wait."""
        return [
            each.pending
            for each in self.live.values()
            if each.is_canary and each.benchmark.status is Status.PENDING
        ]

    def _with_gang(self, uow: UnitOfWork, pending: PendingBenchmark) -> PendingBenchmark:
        """Add the boards that others of its gang have used to a benchmark that starts again."""
        live = self.live.get(pending.benchmark_id)
        if live is None or live.benchmark.gang_id is None or live.benchmark.waits_for_gang:
            return pending
        gang = BenchmarkFilter(campaign_id=live.benchmark.gang_id)
        members, _ = uow.benchmarks.page(gang, limit=MAX_COUNT, cursor=None)
        known = self._gang_boards.setdefault(live.benchmark.gang_id, {})
        used: set[str] = set()
        for each in members:
            if each.benchmark_id == pending.benchmark_id or each.target_uid is None:
                continue
            version, uids = known.get(each.benchmark_id, (None, frozenset[str]()))
            if version != each.version:
                attempts = uow.attempts.of(each.benchmark_id)
                uids = frozenset(one.target_uid for one in attempts if one.target_uid is not None)
                known[each.benchmark_id] = each.version, uids
            used |= uids
        return replace(pending, gang_uids=frozenset(used))

    def holders(self, uow: UnitOfWork, max_preemptions: int) -> tuple[BoardHolder, ...]:
        """Return the live attempts that have boards, oldest first.

        Args:
            uow: Open for reading.
            max_preemptions: A benchmark that was preempted so often is no longer preemptible.
        """
        versions = uow.attempts.live_versions()
        unchanged = [
            attempt
            for job_id, attempt in self._attempts.items()
            if versions.get(job_id) == attempt.version
        ]
        same = {attempt.job_id for attempt in unchanged}
        changed = [job_id for job_id in versions if job_id not in same]
        attempts = sorted(
            [*unchanged, *uow.attempts.live(changed)], key=lambda each: each.created_at
        )
        progress = uow.attempts.progress()  # changes no version
        attempts = [
            each
            if (reached := progress.get(each.job_id, each.progress)) == each.progress
            else replace(each, progress=reached)
            for each in attempts
        ]
        # One assignment: previews do the same on other threads.
        self._attempts = {attempt.job_id: attempt for attempt in attempts}
        self._owners = self._owners_of(uow, {attempt.benchmark_id for attempt in attempts})
        return tuple(
            self._holder(uow, attempt, attempt.target_uid, max_preemptions)
            for attempt in attempts
            if attempt.target_uid is not None
        )

    def _owners_of(self, uow: UnitOfWork, benchmark_ids: set[str]) -> Mapping[str, str]:
        """Return the owners of benchmarks, of those too that have ended before their attempt."""
        known = {key: user_id for key, user_id in self._owners.items() if key in benchmark_ids}
        for benchmark_id in benchmark_ids - known.keys():
            if (live := self.live.get(benchmark_id)) is not None:
                known[benchmark_id] = live.benchmark.user_id
        ended = sorted(benchmark_ids - known.keys())
        if ended:
            known |= {each.benchmark_id: each.user_id for each in uow.benchmarks.get_many(ended)}
        return known

    def has_pending(self) -> bool:
        """Return whether any benchmark waits."""
        return any(each.benchmark.status is Status.PENDING for each in self.live.values())

    def expired(self) -> Mapping[str, Expiry]:
        """Return the benchmarks whose time is up, or that end with their gang, by id."""
        found = {each: self._expiry(live) for each, live in self.live.items()}
        return {each: expiry for each, expiry in found.items() if expiry is not None}

    def downloads(self) -> tuple[Download, ...]:
        """Return the downloads of pending benchmarks that miss a file."""
        return tuple(
            Download(benchmark_id, live.benchmark.user_id)
            for benchmark_id, live in self.live.items()
            if live.pending.not_ready is not None
            and live.pending.not_ready.reason is WaitingReason.FETCHING
            and live.benchmark.status is Status.PENDING
        )

    def _live_benchmark(self, benchmark: Benchmark, earlier: Sequence[Attempt]) -> LiveBenchmark:
        decisions = past_decisions(benchmark, earlier)
        waits = [each.not_before for each in decisions if each.not_before is not None]
        avoid_until = {
            each.tried_uid: each.avoid_until
            for each in decisions
            if each.tried_uid is not None and each.avoid_until is not None
        }
        tried = frozenset(each.tried_uid for each in decisions if each.tried_uid is not None)
        return LiveBenchmark(
            benchmark,
            replace(
                pending_of(benchmark, tried, self._start_lead),
                avoid_until=tuple(avoid_until.items()),
            ),
            max([benchmark.submit_time, *(each.ended_at for each in earlier if each.ended_at)]),
            max(waits, default=None),
            bool(earlier) and earlier[-1].adopted and earlier[-1].state in LIVE_ATTEMPTS,
        )

    def _expiry(self, live: LiveBenchmark) -> Expiry | None:
        benchmark, description = live.benchmark, live.benchmark.description
        if ended := self._end_of_gang(benchmark):
            return Expiry(ended, False, with_gang=True)
        if description.deadline is not None and self._clock.certain() >= description.deadline:
            when = time_text(description.deadline)
            return Expiry(f"its deadline {when} passed while it was {benchmark.status}", True)
        waits = benchmark.status in (Status.PENDING, Status.SCHEDULED)  # until its task starts
        waits = waits and not live.adopted  # which may have happened already
        if not waits or description.queue_timeout_s is None or self._clock.disagreement_s():
            return None
        due = max(live.queued_at, description.start_time or live.queued_at)
        if self._waits.elapsed_s(benchmark.benchmark_id, due) < description.queue_timeout_s:
            return None
        timeout = f"it waited longer than its queue time-out of {description.queue_timeout_s:g} s"
        return Expiry(timeout, False)

    def _end_of_gang(self, benchmark: Benchmark) -> str:
        """Return why a benchmark ends with its gang; "": it does not.

        One that was cancelled ends all. Otherwise each runs to its own end once all have started.
        """
        counts = self._gang_counts.get(benchmark.gang_id or "", {})
        if counts.get(Status.CANCELLED):
            return "another benchmark of its gang was cancelled"
        if not benchmark.waits_for_gang:
            return ""
        ended = [each.value for each in (Status.FAILED, Status.EXPIRED) if counts.get(each)]
        return f"another benchmark of its gang has {ended[0]} before the start" if ended else ""

    def _holder(
        self, uow: UnitOfWork, attempt: Attempt, target_uid: str, max_preemptions: int
    ) -> BoardHolder:
        live = self.live.get(attempt.benchmark_id)  # None: it is at its end
        stopping = attempt.stopping
        return BoardHolder(
            benchmark_id=attempt.benchmark_id,
            target_uid=target_uid,
            priority=attempt.priority,
            progress=attempt.progress,
            preemptible=live is not None
            and is_preemptible(live.benchmark.description, attempt)
            and not _is_spared(uow, attempt, max_preemptions),
            ending=live is None
            or stopping is not None
            or attempt.state is AttemptState.UPLOADING
            or attempt.result_at is not None,
            preempted=is_preemption(stopping),
            user_id="" if live is None else live.benchmark.user_id,
            started_at=attempt.started_at,
            kind=None if live is None else kind_of(live.pending),
            phase=attempt.phase,
            preemptible_measuring=live is not None
            and live.benchmark.description.preemptible_measuring,
            time_limit_s=attempt.time_limit_s,
            deadline=None if live is None else live.benchmark.description.deadline,
            strict=attempt.binding is Binding.STRICT,
            canary=self._owners.get(attempt.benchmark_id) == CANARY_USER,
        )


def _is_spared(uow: UnitOfWork, attempt: Attempt, max_preemptions: int) -> bool:
    """Return whether a benchmark was preempted as often as the policy allows."""
    if attempt.number <= max_preemptions:  # most need no query
        return False
    attempts = uow.attempts.of(attempt.benchmark_id)
    return sum(is_preemption(each.failure) for each in attempts) >= max_preemptions


def board_holds(uow: UnitOfWork) -> tuple[dict[str, str], dict[str, str]]:
    """Return the reason of each drained board, and the benchmark of each held one."""
    drained = {
        uid: override.reason or f"taken out by {override.by_user_id}"
        for uid, override in uow.board_overrides.all().items()
        if override.drained
    }
    return drained, dict(uow.attempts.holders())


def pending_of(
    benchmark: Benchmark,
    tried_uids: frozenset[str] = frozenset(),
    start_lead: timedelta = timedelta(0),
) -> PendingBenchmark:
    """Return the part of a benchmark that decisions need."""
    description = benchmark.description
    model = model_of(benchmark.files)
    not_ready = None
    if benchmark.held:
        not_ready = waiting_reasons.held(benchmark.stopped_by, benchmark.stopped_reason)
    elif missing := [file.name for file in benchmark.files if file.sha256 is None]:
        not_ready = waiting_reasons.fetching(missing)
    start_time = description.start_time
    if start_time is not None:
        # Who had a board has had its start: what is tried again waits like all others.
        start_time = None if benchmark.target_uid is not None else start_time - start_lead
    return PendingBenchmark(
        benchmark_id=benchmark.benchmark_id,
        user_id=benchmark.user_id,
        submit_time=benchmark.submit_time,
        family=description.family,
        engine=description.runtime,
        benchmark_type=description.benchmark_type,
        ram_bytes=description.ram,
        storage_bytes=description.storage,
        target_uid=None if benchmark.unpinned else description.target_uid,
        constraints=description.all_constraints,
        affinities=description.affinities,
        spreads=description.spreads,
        spread_group=(benchmark.campaign_id or "") if description.spreads else "",
        user_priority=benchmark.user_priority or description.user_priority,
        deadline=description.deadline,
        start_time=start_time,
        user_time_s=description.user_time_s,
        binding=description.binding,
        not_ready=not_ready,
        campaign_id=benchmark.campaign_id,
        tried_uids=tried_uids,
        model_sha256=benchmark.model_sha256,
        job_completion_threshold=description.job_completion_threshold,
        nb_inference=description.nb_inference,
        variant=variant_of(benchmark),
        budget=description.user_budget,
        extra=json.dumps(description.extra, sort_keys=True) if description.extra else "",
        gang_id=benchmark.gang_id if benchmark.waits_for_gang else None,
        gang_size=description.count if benchmark.waits_for_gang else 1,
        ends_in_time=description.precision is not None
        or description.soak_s is not None
        or bool(description.concurrency)
        or description.load is not None,
        probe=benchmark.user_id == PROBER
        or (
            benchmark.user_id == CANARY_USER
            and not {PROBE_TAG, CHECK_TAG}.isdisjoint(description.tags)
        ),
        cleared_uid=benchmark.cleared_uid,
        model_bytes=None if model is None else model.size_bytes,
    )


def _earlier_attempts(uow: UnitOfWork, benchmark: Benchmark) -> Sequence[Attempt]:
    # A pending benchmark that never had an attempt has no board: most need no query.
    never_tried = benchmark.status is Status.PENDING and benchmark.target_uid is None
    if benchmark.status is Status.RUNNING or never_tried:
        return ()
    return uow.attempts.of(benchmark.benchmark_id)


def _backing_off(benchmark: Benchmark, pending: PendingBenchmark, at: datetime) -> PendingBenchmark:
    if benchmark.lost_in_a_row > FREE_LOSSES:
        waiting = waiting_reasons.lost_too_often(benchmark.lost_in_a_row, at)
    else:
        waiting = waiting_reasons.pinned_board_failed(pending.target_uid, at)
    return replace(pending, not_ready=pending.not_ready or waiting)
