"""Every move of a benchmark and its attempts, as functions on an open unit of work.

The API and the engine both call these, so that there is one place where a status changes. None of
them calls the cluster: stopping a task is the reconciler's, who sees that a benchmark is at its end
while an attempt of it is live.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from edgeyard.devices.metrics import measured_metrics, primary_metric
from edgeyard.devices.power_rails import OF_A_PART
from edgeyard.errors import ConcurrentUpdate, Conflict
from edgeyard.scheduler.engine import charging
from edgeyard.scheduler.engine.retry import (
    budget_of,
    decide_retry,
    history_of,
    is_retryable,
    losses_after,
)
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.accounts import Charge
from edgeyard.scheduler.model.attempt import (
    LIVE_ATTEMPTS,
    Attempt,
    AttemptState,
    Outcome,
)
from edgeyard.scheduler.model.benchmark import (
    ABSENCE,
    TERMINAL,
    Benchmark,
    BenchmarkFile,
    Failure,
    FailureCategory,
    IfUnavailable,
    JobDescription,
    Status,
    WaitReason,
)
from edgeyard.scheduler.model.checks import CHECK_TAG
from edgeyard.scheduler.model.decision import Preemption
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import Report
from edgeyard.scheduler.model.preemption import (
    is_below_threshold,
    is_preemptible,
    is_preemption,
)
from edgeyard.scheduler.model.run_bounds import DEFAULT_MAX_RUN_S
from edgeyard.scheduler.model.submissions import Campaign
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.model.workload import work_of_series, workload_digest
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.prediction.history import variant_of
from edgeyard.scheduler.prediction.repeatability import reported_number

OWN_TASK = "task"
"""Sender of what came with an attempt's own token."""

HARMLESS = ABSENCE | {FailureCategory.PREEMPTED, FailureCategory.UNKNOWN}
"""How a task may end without harm to the result that it had reported before.

``UNKNOWN`` is an exit status without a meaning: the report is the last file that a runner uploads,
so its result was whole by then. An agent that was killed may start a task again whose first process
lives: the second one fails when the first has reported and removed their folder.
"""

_MANY_EVENTS = 10_000

NewId = Callable[[str, str, datetime], str]
"""Makes the id of a benchmark of a family and an engine that is submitted at a time."""

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_MADE_ID = re.compile(rf"-[0-9]{{14}}-[{_ID_ALPHABET}]{{10}}$", re.ASCII)


def new_benchmark_id(family: str, runtime: str, now: datetime) -> str:
    """``<family>-<runtime>-<YYYYMMDDHHMMSS>-<10 random characters>`` (50 bits)."""
    suffix = "".join(secrets.choice(_ID_ALPHABET) for _ in range(10))
    return f"{family}-{runtime}-{now:%Y%m%d%H%M%S}-{suffix}"


def own_benchmark_id(wanted: str, user_id: str) -> str:
    """Return the id of a benchmark whose user chose its beginning.

    It ends with 8 characters (40 bits) that all ids of the user have which they chose: nobody
    takes an id of another user's, or finds out whether there is one. Ids that `new_benchmark_id`
    makes end otherwise. An id that ends so already stays as it is: it is the same benchmark's.
    """
    ending = f"-{_own_ending(user_id)}"
    return wanted if wanted.endswith(ending) else wanted + ending


def is_whole_id(benchmark_id: str, user_id: str) -> bool:
    """Return whether an id ends as those do that the server makes, for this user or for all."""
    return _MADE_ID.search(benchmark_id) is not None or benchmark_id.endswith(
        f"-{_own_ending(user_id)}"
    )


def _own_ending(user_id: str) -> str:
    digest = hashlib.sha256(user_id.encode()).digest()
    return base64.b32encode(digest[:5]).decode("ascii").lower()


def submit(
    uow: UnitOfWork,
    description: JobDescription,
    user_id: str,
    files: Sequence[BenchmarkFile],
    now: datetime,
    *,
    benchmark_id: str | None = None,
    campaign_id: str | None = None,
    retry_of: str | None = None,
    schedule_id: str | None = None,
) -> Benchmark:
    """Put a checked job description into the queue.

    Args:
        schedule_id: The schedule whose firing this is.

    Raises:
        Conflict: ``benchmark_id`` is taken.
    """
    benchmark = Benchmark(
        benchmark_id=benchmark_id or new_benchmark_id(description.family, description.runtime, now),
        user_id=user_id,
        description=description,
        submit_time=now,
        campaign_id=campaign_id,
        files=tuple(files),
        retry_of=retry_of,
        schedule_id=schedule_id,
    )
    uow.benchmarks.add(benchmark)
    uow.log.append(
        Event(
            at=now,
            kind="benchmark.submitted",
            benchmark_id=benchmark.benchmark_id,
            user_id=user_id,
            data={
                "status": benchmark.status.value,
                "benchmark_type": description.benchmark_type.value,
                "runtime": description.runtime,
                "target": description.family,
                **({"schedule_id": schedule_id} if schedule_id else {}),
            },
        )
    )
    return benchmark


def cancel(
    uow: UnitOfWork, benchmark_id: str, now: datetime, by: str, reason: str = ""
) -> Benchmark:
    """End a benchmark that is not at its end yet.

    Args:
        by: Who wants it.
        reason: Why, in their words; "": they do not state it.

    Raises:
        NotFound: No such benchmark.
        Conflict: It is at its end.
    """
    benchmark = _live(uow, benchmark_id, "cancelled")
    cancelled = replace(benchmark, stopped_by=by, stopped_reason=reason or None)
    return _move(uow, cancelled, Status.CANCELLED, now, {"by": by})


def cancel_with_gang(uow: UnitOfWork, benchmark_id: str, now: datetime, why: str) -> Benchmark:
    """End a benchmark because another one of its gang ended without a result.

    Raises:
        Conflict: It is at its end.
    """
    benchmark = _live(uow, benchmark_id, "cancelled")
    cancelled = replace(benchmark, stopped_by=None, stopped_reason=why)
    return _move(uow, cancelled, Status.CANCELLED, now, {"sentence": why})


def add_campaign(uow: UnitOfWork, user_id: str, name: str, now: datetime) -> Campaign:
    """Store a new campaign, to which benchmarks are then submitted."""
    campaign = Campaign(
        campaign_id=f"campaign-{secrets.token_hex(8)}",
        user_id=user_id,
        name=name,
        created_at=now,
    )
    uow.campaigns.add(campaign)
    return campaign


def expire(
    uow: UnitOfWork, benchmark_id: str, now: datetime, why: str, *, deadline: bool
) -> Benchmark:
    """End a benchmark whose deadline or queue time-out has passed.

    A queue time-out counts until the task starts.

    Raises:
        Conflict: It is at its end, or its task has started before its queue time-out was stored.
    """
    benchmark = _live(uow, benchmark_id, "expired")
    if benchmark.status is Status.RUNNING and not deadline:
        raise Conflict(f"{benchmark_id} is running: its queue time-out no longer applies")
    failure = Failure(category=FailureCategory.TIMEOUT, sentence=why)
    return _move(
        uow,
        replace(benchmark, failure=failure),
        Status.EXPIRED,
        now,
        {**_failure_data(failure), "deadline_missed": deadline},
    )


def fail(uow: UnitOfWork, benchmark_id: str, failure: Failure, now: datetime) -> Benchmark:
    """End a benchmark that can't be run, without an attempt.

    Raises:
        Conflict: It is at its end.
    """
    benchmark = _live(uow, benchmark_id, "failed")
    return _move(
        uow, replace(benchmark, failure=failure), Status.FAILED, now, _failure_data(failure)
    )


def hold(
    uow: UnitOfWork, benchmark_id: str, now: datetime, by: str, held: bool, reason: str = ""
) -> Benchmark:
    """Keep a pending benchmark from being placed, or release it.

    Args:
        by: Who wants it.
        held: False: it is released.
        reason: Why, in their words; "": they do not state it.

    Raises:
        Conflict: It is not pending.
    """
    benchmark = uow.benchmarks.get(benchmark_id)
    if benchmark.status is not Status.PENDING:
        raise Conflict(f"{benchmark_id} is {benchmark.status.value}: only pending ones can be held")
    if benchmark.held == held:
        return benchmark
    waiting = waiting_reasons.held(by, reason) if held else None  # the next cycle finds another
    saved = uow.benchmarks.save(
        replace(
            benchmark,
            held=held,
            waiting=waiting,
            stopped_by=by if held else None,
            stopped_reason=(reason or None) if held else None,
        )
    )
    kind = "benchmark.held" if held else "benchmark.released"
    _log(uow, saved, now, kind, {"by": by})
    if waiting is not None:
        _log_waiting(uow, saved, now, waiting)
    return saved


def prioritise(
    uow: UnitOfWork, benchmark_id: str, now: datetime, by: str, user_priority: int
) -> Benchmark:
    """Give a pending benchmark another user priority.

    Args:
        user_priority: 1-10; that the account allows it is the caller's to check.

    Raises:
        Conflict: It is not pending.
    """
    benchmark = uow.benchmarks.get(benchmark_id)
    if benchmark.status is not Status.PENDING:
        raise Conflict(
            f"{benchmark_id} is {benchmark.status.value}: only pending ones can be re-prioritised"
        )
    before = benchmark.user_priority or benchmark.description.user_priority
    if before == user_priority:
        return benchmark
    saved = uow.benchmarks.save(replace(benchmark, user_priority=user_priority))
    data = {
        "by": by,
        "before": {"user_priority": before},
        "after": {"user_priority": user_priority},
    }
    _log(uow, saved, now, "benchmark.prioritised", data)
    return saved


def wait(
    uow: UnitOfWork,
    reasons: Sequence[tuple[Benchmark, WaitReason, int]],
    now: datetime,
) -> Sequence[Benchmark]:
    """Store why benchmarks wait, and their priorities.

    A new reason code is an event, a new sentence is not.

    Returns:
        The benchmarks as they are now, without those that changed meanwhile.
    """
    unchanged = uow.benchmarks.unchanged([benchmark for benchmark, _, _ in reasons])
    news = [
        (benchmark, waiting, priority)
        for benchmark, waiting, priority in reasons
        if benchmark.benchmark_id in unchanged
        and (benchmark.waiting, benchmark.priority) != (waiting, priority)
    ]
    saved = uow.benchmarks.save_waiting(
        [
            replace(benchmark, waiting=waiting, priority=priority)
            for benchmark, waiting, priority in news
        ]
    )
    for benchmark, (before, waiting, _) in zip(saved, news, strict=True):
        if before.waiting is None or before.waiting.reason is not waiting.reason:
            _log_waiting(uow, benchmark, now, waiting)
    saved_by_id = {benchmark.benchmark_id: benchmark for benchmark in saved}
    return [
        saved_by_id.get(benchmark.benchmark_id, benchmark)
        for benchmark, _, _ in reasons
        if benchmark.benchmark_id in unchanged
    ]


def _log_waiting(uow: UnitOfWork, benchmark: Benchmark, now: datetime, waiting: WaitReason) -> None:
    data = {"reason": waiting.reason.value, "sentence": waiting.sentence}
    _log(uow, benchmark, now, "benchmark.waiting", data)


def unavailable(
    uow: UnitOfWork, benchmark: Benchmark, waiting: WaitReason, now: datetime
) -> Benchmark:
    """Act on the end of the grace time of a pinned benchmark.

    As its ``if_unavailable`` says, it loses its pin (``benchmark.unpinned``), or an event is
    recorded once for each reason (``benchmark.unavailable``).

    Raises:
        Conflict: It changed meanwhile.
    """
    description = benchmark.description
    data: dict[str, object] = {
        "target_uid": description.target_uid,
        "reason": waiting.reason.value,
        "sentence": waiting.sentence,
    }
    if description.if_unavailable is IfUnavailable.RESCHEDULE:
        benchmark = uow.benchmarks.save(replace(benchmark, unpinned=True))
        _log(uow, benchmark, now, "benchmark.unpinned", data)
        return benchmark
    events = uow.log.events(after=0, limit=_MANY_EVENTS, benchmark_id=benchmark.benchmark_id)
    if not any(
        event.kind == "benchmark.unavailable" and event.data.get("reason") == data["reason"]
        for event in events
    ):
        _log(uow, benchmark, now, "benchmark.unavailable", data)
    return benchmark


def prepare(
    uow: UnitOfWork,
    wanted: Sequence[tuple[Benchmark, Attempt]],
    now: datetime,
    *,
    max_run_s: float = DEFAULT_MAX_RUN_S,
    tariff: Tariff | None = None,
) -> Sequence[tuple[Benchmark, Attempt]]:
    """Prepare attempts: each benchmark is scheduled, and its credits are reserved.

    Left out is who changed meanwhile (cancelled, say), whom its user's account can't bear, and
    whose attempt can't be stored; the others are prepared all the same. Of a gang that has not
    started all are left out if one is.

    Args:
        wanted: Pending benchmarks, each with its next attempt; the first come first.
        max_run_s: Bound on a run that states no ``user_time``.
        tariff: Factors on the rates by hour of the day; None: 1 at all hours.

    Returns:
        As they are now.

    Raises:
        ConcurrentUpdate: A board of a gang was taken meanwhile.
    """
    unchanged = uow.benchmarks.unchanged([benchmark for benchmark, _ in wanted])
    wanted = [each for each in wanted if each[0].benchmark_id in unchanged]
    if any(benchmark.waits_for_gang for benchmark, _ in wanted):
        taken = uow.attempts.holders()
        wanted = _whole_gangs([each for each in wanted if _may_start(each, taken)])
    charges, balances = charging.affordable(uow, wanted, now, max_run_s, tariff or Tariff())
    charge_by_id = {charge.benchmark_id: charge for charge in charges}
    wanted = _whole_gangs([each for each in wanted if each[0].benchmark_id in charge_by_id])
    attempts = [
        replace(attempt, time_limit_s=charge_by_id[attempt.benchmark_id].time_limit_s)
        for _, attempt in wanted
    ]
    added = uow.attempts.add_all(attempts)
    added_ids = {attempt.benchmark_id for attempt in added}
    stored = [each for each in wanted if each[0].benchmark_id in added_ids]
    if len(_whole_gangs(stored)) != len(stored):
        raise ConcurrentUpdate("a board of a gang was taken meanwhile")
    charging.reserve(uow, [charge_by_id[attempt.benchmark_id] for attempt in added], balances)
    benchmark_by_id = {benchmark.benchmark_id: benchmark for benchmark, _ in wanted}
    scheduled = [_scheduled(benchmark_by_id[attempt.benchmark_id], attempt) for attempt in added]
    saved = uow.benchmarks.save_all(scheduled, Status.PENDING)
    prepared = list(zip(saved, added, strict=True))
    for benchmark, attempt in prepared:
        _log_prepared(uow, benchmark, attempt, now)
    return prepared


def _may_start(wanted: tuple[Benchmark, Attempt], taken: Mapping[str, str]) -> bool:
    """Return whether the board of one of a gang is still free."""
    benchmark, attempt = wanted
    return not benchmark.waits_for_gang or attempt.target_uid not in taken


def _whole_gangs(
    wanted: Sequence[tuple[Benchmark, Attempt]],
) -> Sequence[tuple[Benchmark, Attempt]]:
    """Return all but those of gangs that wait for their start and of which one is missing."""
    counts = Counter(benchmark.gang_id for benchmark, _ in wanted if benchmark.waits_for_gang)
    return [
        (benchmark, attempt)
        for benchmark, attempt in wanted
        if not benchmark.waits_for_gang or counts[benchmark.gang_id] == benchmark.description.count
    ]


def _scheduled(benchmark: Benchmark, attempt: Attempt) -> Benchmark:
    return replace(
        benchmark,
        status=Status.SCHEDULED,
        waiting=None,
        unavailable_since=None,
        cleared_uid=None,
        priority=attempt.priority,
        target_uid=attempt.target_uid,
        phase=None,
        progress=None,
        started_at=None,
    )


def _log_prepared(uow: UnitOfWork, benchmark: Benchmark, attempt: Attempt, now: datetime) -> None:
    data = {"attempt": attempt.number, "target_uid": attempt.target_uid}
    _log_move(uow, benchmark, Status.PENDING, now, data)
    _attempt_event(uow, benchmark, attempt, now)
    pinned = benchmark.description.target_uid
    if pinned is not None and attempt.target_uid not in (pinned, None):
        _log(uow, benchmark, now, "benchmark.rescheduled", {**data, "from": pinned})


def preempt_by_operator(
    uow: UnitOfWork, benchmark_id: str, now: datetime, by: str, reason: str = ""
) -> Benchmark:
    """Stop a running benchmark for an operator, whatever its priority.

    It goes back into the queue, its age kept and no retry used up, when its task has ended.

    Args:
        by: The operator.
        reason: Why, in their words; "": they do not state it.

    Raises:
        Conflict: It does not run, has its result already, or is being stopped.
    """
    benchmark = uow.benchmarks.get(benchmark_id)
    if benchmark.status is not Status.RUNNING:
        raise Conflict(
            f"{benchmark_id} is {benchmark.status.value}: only running ones can be preempted"
        )
    attempt = uow.attempts.of(benchmark_id)[-1]
    if attempt.stopping is not None or attempt.result_at is not None:
        raise Conflict(f"{benchmark_id} is about to end: there is nothing to preempt")
    sentence = waiting_reasons.stopped("stopped", by, reason)
    why = Failure(category=FailureCategory.PREEMPTED, sentence=sentence)
    uow.attempts.save(replace(attempt, stopping=why, counts=False))
    data = {
        "attempt": attempt.number,
        "by": by,
        "target_uid": attempt.target_uid,
        "progress": attempt.progress,
    }
    _log(uow, benchmark, now, "benchmark.preempted", data)
    return benchmark


def preempt(uow: UnitOfWork, preemption: Preemption, now: datetime) -> tuple[Attempt, Benchmark]:
    """Stop a running attempt for a more urgent benchmark, for which its board is reserved.

    It goes back into the queue, its age kept and no retry used up, when its task has ended.

    Returns:
        The attempt that is being stopped, and the more urgent benchmark.

    Raises:
        Conflict: One of the two is no longer what was decided about.
    """
    victim = uow.benchmarks.get(preemption.victim_id)
    urgent = uow.benchmarks.get(preemption.benchmark_id)
    attempt = uow.attempts.of(preemption.victim_id)[-1]
    if (
        urgent.status is not Status.PENDING
        or urgent.held
        or victim.status is not Status.RUNNING
        or not is_preemptible(victim.description, attempt)
        or attempt.target_uid != preemption.target_uid
        or not is_below_threshold(
            attempt.progress,
            attempt.phase,
            preemption.threshold,
            while_measuring=preemption.while_measuring,
        )
    ):
        raise Conflict(f"{preemption.victim_id} is no longer to be preempted")
    why = Failure(
        category=FailureCategory.PREEMPTED,
        sentence=f"stopped at {attempt.progress:.0f} % for a benchmark of priority "
        f"{preemption.priority}, its own was {preemption.victim_priority}",
    )
    saved = uow.attempts.save(replace(attempt, stopping=why, counts=False))
    waits = uow.benchmarks.save(replace(urgent, cleared_uid=preemption.target_uid))
    data: dict[str, object] = {
        "target_uid": preemption.target_uid,
        "priority": preemption.priority,
        "victim_priority": preemption.victim_priority,
        "progress": attempt.progress,
    }
    # Users do not learn the names of others' benchmarks.
    same = urgent.user_id == victim.user_id
    by = {"by": urgent.benchmark_id} if same else {}
    _log(uow, victim, now, "benchmark.preempted", {"attempt": attempt.number, **data, **by})
    whom = {"victim": victim.benchmark_id} if same else {}
    _log(uow, urgent, now, "benchmark.preempts", {**data, **whom})
    return saved, waits


def preempt_canary(
    uow: UnitOfWork, preemption: Preemption, now: datetime
) -> tuple[Attempt, Benchmark]:
    """Stop a canary for a benchmark that gets its board, in whatever state its attempt is.

    The canary is cancelled. A running one that belongs to a check goes back into the queue instead,
    because the check would end with it. The board is reserved for the benchmark unless that starts
    together with others.

    Returns:
        The attempt that is being stopped, and the benchmark.

    Raises:
        Conflict: One of the two is no longer what was decided about.
    """
    canary = _live(uow, preemption.victim_id, "stopped")
    served = uow.benchmarks.get(preemption.benchmark_id)
    if served.status is not Status.PENDING or served.held:
        raise Conflict(f"{served.benchmark_id} no longer waits for a board")
    attempt = uow.attempts.of(canary.benchmark_id)[-1]
    sentence = "it made way for another benchmark"
    data = {"sentence": sentence, "target_uid": attempt.target_uid, "progress": attempt.progress}
    if CHECK_TAG in canary.description.tags and attempt.state is AttemptState.RUNNING:
        why = Failure(category=FailureCategory.PREEMPTED, sentence=sentence)
        if attempt.stopping is None:
            attempt = uow.attempts.save(replace(attempt, stopping=why, counts=False))
        _log(uow, canary, now, "benchmark.preempted", {"attempt": attempt.number, **data})
    else:
        ended = replace(canary, stopped_by=None, stopped_reason=sentence)
        _move(uow, ended, Status.CANCELLED, now, data)
    if not served.waits_for_gang:
        served = uow.benchmarks.save(replace(served, cleared_uid=preemption.target_uid))
    return attempt, served


def all_to_state(
    uow: UnitOfWork,
    moved: Sequence[tuple[Attempt, Benchmark]],
    state: AttemptState,
    now: datetime,
) -> Sequence[Attempt]:
    """Move attempts on to a state that none of them is in; their benchmarks stay.

    Raises:
        Conflict: One of them changed meanwhile.
    """
    queued = state is AttemptState.QUEUED
    saved = uow.attempts.save_all(
        [
            replace(attempt, state=state, queued_at=now if queued else attempt.queued_at)
            for attempt, _ in moved
        ]
    )
    for attempt, (_, benchmark) in zip(saved, moved, strict=True):
        _attempt_event(uow, benchmark, attempt, now)
    return saved


def to_state(uow: UnitOfWork, attempt: Attempt, state: AttemptState, now: datetime) -> Attempt:
    """Move an attempt on, other fields as given; its benchmark stays."""
    if state is AttemptState.QUEUED:
        attempt = replace(attempt, queued_at=now)
    saved = uow.attempts.save(replace(attempt, state=state))
    if attempt.state is not state:  # dispatcher and reconciler may both have news of one call
        _attempt_event(uow, uow.benchmarks.get(attempt.benchmark_id), saved, now)
    return saved


def blocked(uow: UnitOfWork, jobs: Sequence[tuple[Benchmark, Attempt, str]], now: datetime) -> None:
    """Store why the cluster does not start jobs that it has, in its own words."""
    waiting = [
        (
            benchmark,
            waiting_reasons.not_started(why),
            attempt.priority,
        )
        for benchmark, attempt, why in jobs
        if benchmark.status is Status.SCHEDULED
    ]
    wait(uow, waiting, now)


def task_started(
    uow: UnitOfWork, attempt: Attempt, target_uid: str | None, started_at: datetime, now: datetime
) -> Attempt:
    """Note that the task runs.

    Args:
        target_uid: Board that the cluster names; None where only the task itself was heard.
    """
    if attempt.state in (AttemptState.RUNNING, AttemptState.UPLOADING, AttemptState.ENDED):
        return placed(uow, attempt, target_uid, now)
    on_board = attempt.on_board(placed=target_uid)
    saved = to_state(
        uow, replace(on_board, started_at=started_at, progress=0.0), AttemptState.RUNNING, now
    )
    if saved.target_uid != attempt.target_uid:
        _log_board(uow, saved, attempt.target_uid, now)
    benchmark = uow.benchmarks.get(attempt.benchmark_id)
    if benchmark.status is Status.SCHEDULED:
        _move(
            uow,
            replace(
                benchmark,
                started_at=started_at,
                target_uid=saved.target_uid,
                waiting=None,
                progress=0.0,
                phase="starting",
            ),
            Status.RUNNING,
            now,
            {
                "attempt": saved.number,
                "target_uid": saved.target_uid,
                "wait_s": max(0.0, (started_at - benchmark.submit_time).total_seconds()),
            },
        )
    return saved


def placed(uow: UnitOfWork, attempt: Attempt, target_uid: str | None, now: datetime) -> Attempt:
    """Note the board that the cluster gave to an attempt's job, whatever was decided or assumed.

    Args:
        target_uid: None changes nothing.
    """
    if target_uid is None or attempt.placed_uid == target_uid:
        return attempt
    return _save_board(uow, attempt, attempt.on_board(placed=target_uid), now)


def _save_board(uow: UnitOfWork, before: Attempt, after: Attempt, now: datetime) -> Attempt:
    saved = uow.attempts.save(after)
    if saved.target_uid != before.target_uid and saved.state is not AttemptState.ENDED:
        _log_board(uow, saved, before.target_uid, now)
        benchmark = uow.benchmarks.get(saved.benchmark_id)
        if benchmark.status in (Status.SCHEDULED, Status.RUNNING):
            uow.benchmarks.save(replace(benchmark, target_uid=saved.target_uid))
    return saved


def _log_board(uow: UnitOfWork, attempt: Attempt, before: str | None, now: datetime) -> None:
    """Record the event that an attempt has another board than was assumed."""
    data = {"attempt": attempt.number, "target_uid": attempt.target_uid, "before": before}
    _log(uow, uow.benchmarks.get(attempt.benchmark_id), now, "attempt.board", data)


def is_tick(attempt: Attempt, phase: str) -> bool:
    """Return whether a report of this phase changes nothing of the attempt but its progress."""
    return (
        attempt.state is AttemptState.RUNNING
        and attempt.phase == phase
        and attempt.result_at is None
    )


def progress_received(
    uow: UnitOfWork,
    attempt: Attempt,
    progress: float,
    phase: str,
    now: datetime,
    message: str | None = None,
) -> None:
    """Store how far a task is; a new phase is an event, mere progress is not.

    Args:
        message: What the task reports with it, for people; None: nothing.
    """
    benchmark = uow.benchmarks.get(attempt.benchmark_id)
    if benchmark.status in TERMINAL or attempt.state is AttemptState.ENDED:
        return
    if attempt.state in (AttemptState.DISPATCHING, AttemptState.UNKNOWN, AttemptState.QUEUED):
        # The task is quicker than the cluster's word that it runs.
        attempt = task_started(uow, attempt, None, now, now)
        benchmark = uow.benchmarks.get(attempt.benchmark_id)
    uow.attempts.save(replace(attempt, progress=progress, phase=phase))
    uow.benchmarks.save(
        replace(benchmark, progress=progress, phase=phase, progress_message=message)
    )
    if phase != benchmark.phase:
        _log(uow, benchmark, now, "benchmark.phase", {"phase": phase, "progress": progress})


def result_received(
    uow: UnitOfWork,
    attempt: Attempt,
    report: Mapping[str, object],
    now: datetime,
    sender: str = OWN_TASK,
) -> None:
    """Take in the report of an attempt, whose files are safe.

    Args:
        sender: Who sent it: the attempt's own task, or the account of its board.

    Raises:
        Conflict: Another report of it is there, or the attempt has ended.
    """
    benchmark = uow.benchmarks.get(attempt.benchmark_id)
    uow.files.add_report(
        Report(
            benchmark_id=attempt.benchmark_id,
            attempt=attempt.number,
            report=report,
            received_at=now,
        )
    )
    if attempt.result_at is not None:
        return
    if attempt.state is AttemptState.ENDED:
        _late_result(uow, attempt, benchmark, report, now, sender)
        return
    if attempt.state in (AttemptState.DISPATCHING, AttemptState.UNKNOWN, AttemptState.QUEUED):
        attempt = task_started(uow, attempt, None, now, now)
    on_board = attempt.on_board(reported=_board_of(report))
    attempt = _save_board(uow, attempt, replace(on_board, result_at=now), now)
    _log(uow, benchmark, now, "result.received", {"attempt": attempt.number, "sender": sender})
    if attempt.task_ended_at is not None:
        settle(uow, attempt, now)


def _keeps_out(uow: UnitOfWork, other: Attempt) -> bool:
    """Return whether an attempt's report excludes a late result of another attempt."""
    if other.result_at is None:
        return False
    report = _report(uow, other)
    return other.state is not AttemptState.ENDED or (
        report is not None and _reported_failure(report) is None
    )


def _late_result(
    uow: UnitOfWork,
    attempt: Attempt,
    benchmark: Benchmark,
    report: Mapping[str, object],
    now: datetime,
    sender: str,
) -> None:
    """Take the report of an attempt that was given up for being absent.

    A good one completes the benchmark wherever it is by now; a later attempt of it is stopped. A
    failed one is kept, and the benchmark is tried again as was decided. Either way the attempt's
    outcome is what its report says, and takes the place of what was learned when it was given up.

    Raises:
        Conflict: It is not wanted any more.
    """
    if (
        not attempt.takes_late_result
        or benchmark.status in TERMINAL
        or any(_keeps_out(uow, other) for other in uow.attempts.of(attempt.benchmark_id))
    ):
        raise Conflict(f"attempt {attempt.number} of {attempt.benchmark_id} has ended")
    failure, before = _reported_failure(report), attempt.failure
    named = replace(attempt, result_at=now, failure=failure)
    saved = uow.attempts.save(named.on_board(reported=_board_of(report)))
    if saved.boards_differ:
        report = _amended(uow, saved, report, now)
    run_s = _reported_run_s(saved, report, now)
    uow.attempts.replace_outcome(replace(_outcome(benchmark, saved, report, now), run_s=run_s))
    charging.amend(uow, saved, run_s, _joules(report))
    data: dict[str, object] = {"attempt": saved.number, "target_uid": saved.target_uid}
    late: dict[str, object] = {"sender": sender, "run_s": run_s}
    if before is not None:
        late["given_up_as"] = _failure_data(before)
    if failure is not None:
        late |= _failure_data(failure)
    _log(uow, benchmark, now, "result.late", {**data, **late})
    if failure is None:
        done = replace(
            benchmark,
            progress=100.0,
            phase=None,
            target_uid=saved.target_uid,
            started_at=saved.started_at,
            work=work_of_series(benchmark, report),
        )
        _move(uow, done, Status.COMPLETED, now, data)


def _reported_run_s(attempt: Attempt, report: Mapping[str, object], now: datetime) -> float | None:
    """Return for how long a task ran whose end was not seen: by its report, on its host's clock.

    Returns:
        Seconds; where the report does not say, until the report arrived. None: it never started.
    """
    if attempt.started_at is None:
        return None
    max_s = max(0.0, (now - attempt.started_at).total_seconds())
    try:
        began, ended = (
            datetime.fromisoformat(str(report.get(name))) for name in ("started_at", "ended_at")
        )
        ran_s = (ended - began).total_seconds()
    except (ValueError, TypeError):
        return max_s
    return min(ran_s, max_s) if ran_s >= 0 else max_s


def task_ended(
    uow: UnitOfWork,
    attempt: Attempt,
    failure: Failure | None,
    ended_at: datetime,
    now: datetime,
    *,
    target_uid: str | None = None,
    started_at: datetime | None = None,
    stopped: bool = False,
) -> Attempt:
    """Note that the cluster says that the task has ended, well or not.

    Args:
        target_uid: Board that the cluster names.
        started_at: When the cluster says that it began; None: it never did, or that is not known.
        stopped: Whether it was stopped, by Edgeyard or by an operator; ``failure`` says why.
    """
    if attempt.task_ended_at is not None or attempt.state is AttemptState.ENDED:
        return settle(uow, attempt, now)
    if started_at is not None and attempt.state in LIVE_ATTEMPTS - {
        AttemptState.RUNNING,
        AttemptState.UPLOADING,
    }:
        # It ran between two looks; the benchmark still went through running.
        attempt = task_started(uow, attempt, target_uid, started_at, now)
    on_board = attempt.on_board(placed=target_uid)
    if on_board.target_uid != attempt.target_uid:
        on_board = _save_board(uow, attempt, on_board, now)
    attempt = replace(on_board, task_ended_at=ended_at, task_failure=failure)
    if stopped and failure is not None:
        attempt = _stopped(attempt, failure)
    settled = settle(uow, attempt, now)
    if settled.state is AttemptState.ENDED:
        return settled
    return to_state(uow, attempt, AttemptState.UPLOADING, now)


def never_ran(
    uow: UnitOfWork,
    attempt: Attempt,
    failure: Failure,
    now: datetime,
    *,
    stopped: bool = False,
    unavailable_since: datetime | None = None,
) -> None:
    """End an attempt whose task never began; it uses up no retry.

    Args:
        stopped: Whether its job was stopped, by Edgeyard or by an operator.
        unavailable_since: Since when the job waited in the cluster for the board that the
            benchmark names; if that is still not available, its grace time began then.
    """
    if attempt.state is AttemptState.ENDED:
        return
    if stopped:
        attempt = _stopped(attempt, failure)
    uncounted = replace(attempt, counts=False)
    _end(uow, uncounted, failure, now, unavailable_since=unavailable_since)


def _stopped(attempt: Attempt, why: Failure) -> Attempt:
    """Return the attempt of a job that was stopped; what an operator stops is nobody's failure."""
    return attempt if attempt.stopping else replace(attempt, stopping=why, counts=False)


def lost(uow: UnitOfWork, attempt: Attempt, sentence: str, now: datetime, *, counts: bool) -> None:
    """End an attempt whose job the cluster no longer knows; a result that arrived still counts."""
    if attempt.state is AttemptState.ENDED:
        return
    report = _report(uow, attempt)
    if report is not None:
        _end(uow, attempt, _failure_by_report(attempt, report), now, report)
        return
    failure = attempt.stopping or Failure(category=FailureCategory.CLUSTER, sentence=sentence)
    _end(uow, replace(attempt, counts=attempt.counts and counts), failure, now)


def reported(uow: UnitOfWork, attempt: Attempt, now: datetime) -> None:
    """End an attempt whose report is there, although the cluster reports no end of its task.

    One that would be tried again is left alone: its task could still run beside the next attempt's.
    """
    report = _report(uow, attempt)
    if report is None or attempt.state is AttemptState.ENDED:
        return
    failure = _failure_by_report(attempt, report)
    if failure is None or not (is_retryable(failure) or is_preemption(failure)):
        _end(uow, attempt, failure, now, report)


def reset_losses(uow: UnitOfWork) -> None:
    """Forget the losses of benchmarks that waited when the server died: others kill it."""
    for benchmark in uow.benchmarks.get_many(uow.benchmarks.pending_after_losses()):
        if benchmark.status is Status.PENDING:
            uow.benchmarks.save(replace(benchmark, lost_in_a_row=0))


def refused(uow: UnitOfWork, attempt: Attempt, failure: Failure, now: datetime) -> None:
    """End an attempt whose job the cluster did not take."""
    _end(uow, attempt, failure, now)


def settle(
    uow: UnitOfWork,
    attempt: Attempt,
    now: datetime,
    *,
    upload_grace_over: bool = False,
    reason: str = "",
) -> Attempt:
    """End an attempt whose task has ended, as soon as what it led to is certain.

    Args:
        upload_grace_over: Whether a result is no longer waited for.
        reason: Why the cluster does not know how the task ended; "" where it does.

    ======== ============ ==================== =======================================
    task     report       attempt ends as      note
    ======== ============ ==================== =======================================
    well     good         success
    any      failed       the report's failure
    badly    good         the task's failure   the result is kept; success if it was preempted, its
                                               host or job was lost, or its exit status says nothing
    badly    none         the task's failure   or why we stopped it
    well     none         waits                ``upload`` when the grace time is over
    ======== ============ ==================== =======================================
    """
    if attempt.state is AttemptState.ENDED or attempt.task_ended_at is None:
        return attempt
    report = _report(uow, attempt)
    if report is not None:
        failure = _failure_by_report(attempt, report)
        ended_by = attempt.task_failure
        if failure is None and ended_by is not None and ended_by.category not in HARMLESS:
            failure = ended_by
        return _end(uow, attempt, failure, now, report)
    if attempt.task_failure is not None or attempt.stopping is not None:
        return _end(uow, attempt, attempt.stopping or attempt.task_failure, now)
    if upload_grace_over:
        sentence = "the task ended, but its result did not arrive in the grace time"
        if reason:
            sentence += f"; {reason}"
        failure = Failure(category=FailureCategory.UPLOAD, sentence=sentence)
        return _end(uow, attempt, failure, now)
    return attempt


def _end(
    uow: UnitOfWork,
    attempt: Attempt,
    failure: Failure | None,
    now: datetime,
    report: Mapping[str, object] | None = None,
    *,
    unavailable_since: datetime | None = None,
) -> Attempt:
    """End the attempt, then its benchmark: completed, tried again, or failed."""
    if is_preemption(failure):
        attempt = replace(attempt, counts=False)
    benchmark = uow.benchmarks.get(attempt.benchmark_id)
    # Stopped because its owner wanted it, or because an earlier attempt's result came after all:
    # no failure, and nothing to learn from.
    cancelled = benchmark.status in (Status.CANCELLED, Status.COMPLETED)
    if report is not None and attempt.boards_differ:
        report = _amended(uow, attempt, report, now)
    saved = uow.attempts.save(
        replace(
            attempt,
            state=AttemptState.ENDED,
            # What a looser job was assumed to run on is not a fact: nothing is learned from it.
            target_uid=attempt.target_uid if attempt.board_is_known else None,
            ended_at=now,
            failure=None if cancelled else failure,
        )
    )
    charge = charging.settle(uow, benchmark, saved, failure, now, joules=_joules(report))
    _attempt_event(uow, benchmark, saved, now, charge)
    if not cancelled:
        uow.attempts.add_outcome(_outcome(benchmark, saved, report, now))
    if benchmark.status in TERMINAL:
        return saved
    if failure is None:
        done = replace(
            benchmark,
            progress=100.0,
            phase=None,
            target_uid=saved.target_uid,
            work=work_of_series(benchmark, report or {}),
        )
        _move(uow, done, Status.COMPLETED, now, {})
        return saved
    if is_preemption(failure) and saved.stopping is None:
        data = {"attempt": saved.number, "target_uid": saved.target_uid, "by": "the cluster"}
        _log(uow, benchmark, now, "benchmark.preempted", data)
    lost_in_a_row = losses_after(benchmark.lost_in_a_row, budget_of(failure, saved))
    history = history_of(benchmark, uow.attempts.of(attempt.benchmark_id), lost_in_a_row)
    decision = decide_retry(failure, saved, benchmark.description, history)
    failure = decision.failure
    if decision.retry:
        again = replace(
            benchmark,
            waiting=None,
            phase=None,
            progress=None,
            started_at=None,
            lost_in_a_row=lost_in_a_row,
            unavailable_since=unavailable_since,
        )
        _move(uow, again, Status.PENDING, now, {"retry": True, **_failure_data(failure)})
    else:
        failed = replace(benchmark, failure=failure, phase=None)
        _move(uow, failed, Status.FAILED, now, _failure_data(failure))
    return saved


def _move(
    uow: UnitOfWork,
    benchmark: Benchmark,
    status: Status,
    now: datetime,
    data: Mapping[str, object],
) -> Benchmark:
    before = benchmark.status
    if status is not Status.RUNNING:
        benchmark = replace(benchmark, progress_message=None)
    if status in TERMINAL:
        benchmark = replace(benchmark, ended_at=now, waiting=None)
    saved = uow.benchmarks.save(replace(benchmark, status=status))
    _log_move(uow, saved, before, now, data)
    return saved


def _log_move(
    uow: UnitOfWork,
    benchmark: Benchmark,
    before: Status,
    now: datetime,
    data: Mapping[str, object],
) -> None:
    states = {"status": benchmark.status.value, "before": before.value}
    _log(uow, benchmark, now, "benchmark.status", {**states, **data})


def _live(uow: UnitOfWork, benchmark_id: str, verb: str) -> Benchmark:
    benchmark = uow.benchmarks.get(benchmark_id)
    if benchmark.status in TERMINAL:
        raise Conflict(f"{benchmark_id} is {benchmark.status.value}: it can't be {verb} any more")
    return benchmark


def _log(
    uow: UnitOfWork, benchmark: Benchmark, now: datetime, kind: str, data: Mapping[str, object]
) -> None:
    uow.log.append(
        Event(
            at=now,
            kind=kind,
            benchmark_id=benchmark.benchmark_id,
            user_id=benchmark.user_id,
            data=data,
        )
    )


def _attempt_event(
    uow: UnitOfWork,
    benchmark: Benchmark,
    attempt: Attempt,
    now: datetime,
    charge: Charge | None = None,
) -> None:
    data: dict[str, object] = {
        "attempt": attempt.number,
        "state": attempt.state.value,
        "job_id": attempt.job_id,
        "target_uid": attempt.target_uid,
    }
    if attempt.state is AttemptState.ENDED:
        data |= {"family": attempt.family, "engine": benchmark.description.runtime}
        run_s = attempt.run_s(now)
        if run_s is not None:
            data["run_s"] = run_s
        if attempt.failure is not None:
            data |= _failure_data(attempt.failure)
    if charge is not None and charge.rate:
        data["credits"] = charge.charged
    _log(uow, benchmark, now, "attempt.state", data)


def _failure_data(failure: Failure) -> dict[str, object]:
    return {"category": failure.category.value, "sentence": failure.sentence}


def _report(uow: UnitOfWork, attempt: Attempt) -> Mapping[str, object] | None:
    for report in uow.files.reports(attempt.benchmark_id):
        if report.attempt == attempt.number:
            return report.report
    return None


def _board_of(report: Mapping[str, object]) -> str | None:
    """Return the board that a report names; None where it names none."""
    board = report.get("board")
    uid = board.get("target_uid") if isinstance(board, Mapping) else None
    return uid if isinstance(uid, str) and uid else None


def _amended(
    uow: UnitOfWork, attempt: Attempt, report: Mapping[str, object], now: datetime
) -> Mapping[str, object]:
    """Judge a report invalid whose board is not the one that the cluster allocated."""
    verdict = report.get("verdict")
    verdict = verdict if isinstance(verdict, Mapping) else {}
    reasons = verdict.get("reasons")
    reason = {
        "code": "other_board",
        "sentence": f"the cluster ran it on {attempt.placed_uid}, "
        f"but its report says that it measured {attempt.reported_uid}.",
    }
    amended = {
        **report,
        "verdict": {
            "not_checked": [],
            **verdict,
            "verdict": "invalid",
            "reasons": [*(reasons if isinstance(reasons, list) else ()), reason],
        },
    }
    uow.files.amend_report(
        Report(
            benchmark_id=attempt.benchmark_id,
            attempt=attempt.number,
            report=amended,
            received_at=now,
        )
    )
    return amended


def _failure_by_report(attempt: Attempt, report: Mapping[str, object]) -> Failure | None:
    """Return the failure that a report states, or what stopped the task for no fault of its own."""
    failure = _reported_failure(report)
    stopped = attempt.stopping or attempt.task_failure
    if failure is None or stopped is None:
        return failure
    may_follow = is_retryable(failure) or failure.category is FailureCategory.UNKNOWN
    blameless = attempt.stopping is not None and not attempt.counts and may_follow
    return stopped if is_preemption(stopped) or blameless else failure


def _reported_failure(report: Mapping[str, object]) -> Failure | None:
    if report.get("status") != "failed":
        return None
    failure = report.get("failure")
    failure = failure if isinstance(failure, Mapping) else {}
    try:
        category = FailureCategory(str(failure.get("category")))
    except ValueError:
        category = FailureCategory.UNKNOWN
    return Failure(
        category=category,
        sentence=str(failure.get("sentence") or "the runner gave no reason")[:2000],
    )


def _joules(report: Mapping[str, object] | None) -> float | None:
    """Return the energy of a run: as an engine's own type states it, otherwise as a sensor does.

    None: neither does. That of a processor or another part alone is not the board's.
    """
    for each in measured_metrics(report or {}):
        if (each.metric.name, each.metric.unit) == ("energy", "J") and each.value >= 0:
            return each.value
    energy = (report or {}).get("energy")
    if not isinstance(energy, Mapping) or energy.get("scope") in OF_A_PART:
        return None
    joules = energy.get("joules")
    if isinstance(joules, bool) or not isinstance(joules, int | float) or joules <= 0:
        return None
    return float(joules)


def _outcome(
    benchmark: Benchmark, attempt: Attempt, report: Mapping[str, object] | None, now: datetime
) -> Outcome:
    started = attempt.started_at
    latency = (report or {}).get("inference_latency")
    p50 = latency.get("p50") if isinstance(latency, Mapping) else None
    primary = primary_metric(report or {})
    verdict = (report or {}).get("verdict")
    word = verdict.get("verdict") if isinstance(verdict, Mapping) else None
    is_repeatable = word == "comparable" and attempt.target_uid
    measured = reported_number(report) if report is not None and is_repeatable else None
    error = measured.error if measured is not None else None
    return Outcome(
        benchmark_id=benchmark.benchmark_id,
        attempt=attempt.number,
        target_uid=attempt.target_uid,
        family=attempt.family,
        engine=benchmark.description.runtime,
        benchmark_type=benchmark.description.benchmark_type.value,
        model_sha256=benchmark.model_sha256,
        wait_s=(started - benchmark.submit_time).total_seconds() if started else None,
        run_s=attempt.run_s(now),
        loading_s=(started - attempt.created_at).total_seconds() if started else None,
        failure_category=attempt.failure.category.value if attempt.failure else None,
        latency_p50_ms=float(p50) if isinstance(p50, int | float) else None,
        verdict=str(word) if word is not None else None,
        ended_at=now,
        user_id=benchmark.user_id,
        nb_inference=benchmark.description.nb_inference,
        variant=variant_of(benchmark),
        primary_metric=primary.metric.name if primary else None,
        primary_unit=primary.metric.unit if primary else None,
        primary_better=primary.metric.better if primary else None,
        primary_value=primary.value if primary else None,
        energy_j=_joules(report) or None,
        workload=workload_digest(benchmark, report) if error is not None and report else None,
        primary_error=error,
    )
