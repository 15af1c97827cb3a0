"""Checks that run: the leading server takes their next steps, one transaction each.

A step takes the end of the last run into the check, decides, and submits the next run, all in one
transaction: however a server dies, another one finds the check as it was before or after the step,
and no version is measured twice in a pair.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from edgeyard.devices.metrics import P50, Metric, primary_metric
from edgeyard.errors import (
    EdgeyardError,
    FieldError,
    NotFound,
    QuotaExceeded,
    Unavailable,
)
from edgeyard.scheduler.decide.slowdown import judge_check, spent
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.intake import unpacked
from edgeyard.scheduler.engine.quotas import check_queue
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    FailureCategory,
    IfUnavailable,
    Status,
)
from edgeyard.scheduler.model.checks import (
    BASELINE,
    CANDIDATE,
    SIDES,
    Check,
    CheckStatus,
    Pair,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import newest_report
from edgeyard.scheduler.model.quotas import NO_QUOTAS, Quotas, quotas_of
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.model.workload import other_work, workload
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork

logger = logging.getLogger(__name__)


def advance_checks(
    store: Store, clock: Clock, quotas: Quotas = NO_QUOTAS, max_pending_total: int | None = None
) -> int:
    """Take the next step of every check that has one; a check that breaks holds up no other.

    Args:
        store: Has the checks.
        clock: Shows whether a budget is spent.
        quotas: Of users whose accounts have none of their own. While they are full, a check waits.
        max_pending_total: Pending benchmarks of all users together; None: no bound.

    Returns:
        How many runs were submitted or cancelled.

    Raises:
        Unavailable: The store can't take it now.
    """
    now = clock.certain()
    with store.read() as uow:
        due = [each.check_id for each in uow.checks.running() if _has_step(uow, each, now)]
    moved = 0
    for check_id in due:
        try:
            moved += store.transact(partial(_step, check_id, now, quotas, max_pending_total))
        except Unavailable:
            raise
        except QuotaExceeded as error:
            store.transact(partial(_note, check_id, f"it waits: {error}"))
        except Exception as error:
            logger.exception("a check broke", extra={"event": "check.broke", "check_id": check_id})
            reason = str(error) if isinstance(error, EdgeyardError) else type(error).__name__
            store.transact(partial(break_off, check_id, f"it could not go on: {reason}", now))
    return moved


def cancel_check(uow: UnitOfWork, check_id: str, now: datetime, by: str, reason: str = "") -> Check:
    """End a check, and the run that is under way; one that has ended stays as it is.

    Args:
        uow: Reads and writes.
        check_id: Which.
        now: The time.
        by: The user that cancels it.
        reason: Why, as the user states it; "": not stated.

    Raises:
        NotFound: There is no such check.
    """
    check = uow.checks.get(check_id)
    if check.status is not CheckStatus.RUNNING:
        return check
    _cancel_run(uow, check, now, by, reason)
    why = f"{by} cancelled it" + (f": {reason}" if reason else "")
    return _end(uow, check, CheckStatus.CANCELLED, why, now, kind="check.cancelled")


def break_off(check_id: str, reason: str, now: datetime, uow: UnitOfWork) -> Check:
    """End a check that can't go on, and the run that is under way; one that has ended stays so.

    Raises:
        NotFound: There is no such check.
    """
    check = uow.checks.get(check_id)
    if check.status is not CheckStatus.RUNNING:
        return check
    _cancel_run(uow, check, now, check.user_id, reason)
    return _end(uow, check, CheckStatus.ERROR, reason, now)


def metric_of_result(uow: UnitOfWork, benchmark_id: str) -> Metric:
    """Return the primary metric of a benchmark that has ended; the p50 where it reported none."""
    newest = newest_report(uow.files.reports(benchmark_id))
    found = None if newest is None else primary_metric(newest.report)
    return P50 if found is None else found.metric


def log_check(uow: UnitOfWork, check: Check, kind: str, now: datetime) -> None:
    """Record an event of a check."""
    data = {"check_id": check.check_id, "status": check.status.value, "sentence": check.reason}
    uow.log.append(Event(at=now, kind=kind, user_id=check.user_id, data=data))


def _has_step(uow: UnitOfWork, check: Check, now: datetime) -> bool:
    if not check.run_ids or now >= check.until:
        return True
    try:
        return uow.benchmarks.get(check.run_ids[-1]).status in TERMINAL
    except NotFound:
        return True


def _step(
    check_id: str,
    now: datetime,
    quotas: Quotas,
    max_pending_total: int | None,
    uow: UnitOfWork,
) -> bool:
    """Take the next step of a check; whether it submitted or cancelled a run.

    Raises:
        QuotaExceeded: The next run would be one too many.
    """
    check = uow.checks.get(check_id)
    if check.status is not CheckStatus.RUNNING:
        return False  # it was cancelled meanwhile
    if check.run_ids:
        try:
            last = uow.benchmarks.get(check.run_ids[-1])
        except NotFound:
            _end(uow, check, CheckStatus.ERROR, f"its run {check.run_ids[-1]} was removed", now)
            return False
        if last.status not in TERMINAL:
            return now >= check.until and _stop(uow, check, now)
        if _made_way(last):
            check = replace(check, run_ids=check.run_ids[:-1])
        elif last.status is not Status.COMPLETED:
            _end(uow, check, CheckStatus.ERROR, _why_ended(last), now)
            return False
        else:
            check = replace(check, target_uid=check.target_uid or last.target_uid)
    if len(check.run_ids) == check.runs_of_pair:
        check = _with_pair(uow, check)
        if check.errors:
            why = f"the baseline {check.errors[0].reason}"
            _end(uow, check, CheckStatus.ERROR, why, now)
            return False
        found = judge_check(check)
        if found.status is not CheckStatus.RUNNING:
            _end(uow, replace(check, errors=found.errors), found.status, found.reason, now)
            return False
    if now >= check.until:
        return _stop(uow, check, now)
    return _submit(uow, check, now, quotas, max_pending_total)


def _submit(
    uow: UnitOfWork, check: Check, now: datetime, quotas: Quotas, max_pending_total: int | None
) -> bool:
    """Submit the next run of a check; whether its account may."""
    try:
        owner = uow.accounts.user(check.user_id)
    except NotFound:
        owner = None
    if owner is None or not owner.may_submit:
        why = "its account is disabled, gone or may submit nothing"
        _end(uow, check, CheckStatus.ERROR, why, now)
        return False
    description, files = unpacked(check.versions[check.next_side], owner)
    description = replace(description, tags=(*description.tags, check.check_id))
    if check.target_uid is not None:
        description = replace(
            description,
            target=None,
            target_uid=check.target_uid,
            if_unavailable=IfUnavailable.NOTIFY,  # another board's number is no part of the pair
        )
    made = lifecycle.submit(uow, description, check.user_id, files, now)
    max_pending = None if owner.role is Role.OPERATOR else max_pending_total
    check_queue(uow, owner, quotas_of(owner, quotas), max_pending)
    uow.checks.save(replace(check, run_ids=(*check.run_ids, made.benchmark_id), reason=""))
    return True


def _stop(uow: UnitOfWork, check: Check, now: datetime) -> bool:
    """End a check whose budget is spent; whether a run was cancelled."""
    stopped = _cancel_run(uow, check, now, check.user_id, "the budget of its check was spent")
    why = spent(check.budget_s, len(check.pairs))
    _end(uow, replace(check, run_ids=()), CheckStatus.UNDECIDED, why, now)
    return stopped


def _cancel_run(uow: UnitOfWork, check: Check, now: datetime, by: str, reason: str) -> bool:
    """Cancel the run that is under way; whether there was one."""
    try:
        if not check.run_ids or uow.benchmarks.get(check.run_ids[-1]).status in TERMINAL:
            return False
    except NotFound:
        return False
    lifecycle.cancel(uow, check.run_ids[-1], now, by, reason)
    return True


def _with_pair(uow: UnitOfWork, check: Check) -> Check:
    """Return a check with what both runs of its pair measured, and what shows other work."""
    found = {side: _Measured.of(uow, check.run_of(side)) for side in SIDES}
    first, second = found[BASELINE], found[CANDIDATE]
    if differing := other_work(first.workload, second.workload):
        reason = f"does other work than the candidate: {', '.join(differing)}"
        error = FieldError("/baseline", reason, "a candidate with the same inputs and type")
        return replace(check, errors=(error,), run_ids=())
    metric = first.metric or second.metric
    ratio = _ratio(first.value, second.value)
    pair = Pair(
        baseline_id=first.benchmark_id,
        candidate_id=second.benchmark_id,
        baseline_value=first.value,
        candidate_value=second.value,
        ratio=ratio,
        slowdown=metric.slowdown(ratio) if metric is not None and ratio is not None else None,
        counts=ratio is not None and first.valid and second.valid,
        reasons=(*first.reasons(BASELINE), *second.reasons(CANDIDATE)),
    )
    return replace(check, pairs=(*check.pairs, pair), run_ids=(), metric=metric or check.metric)


def _ratio(before: float | None, after: float | None) -> float | None:
    """Return the candidate's number over the baseline's; None where they have no ratio."""
    if before is None or after is None or before <= 0 or after <= 0:
        return None
    ratio = after / before
    return ratio if math.isfinite(ratio) and ratio > 0 else None


class _Measured:
    """What a run of a check reported."""

    def __init__(self, benchmark: Benchmark, report: Mapping[str, object]) -> None:
        primary = primary_metric(report)
        verdict = report.get("verdict")
        self._verdict: Mapping[str, object] = verdict if isinstance(verdict, Mapping) else {}
        self.benchmark_id = benchmark.benchmark_id
        self.workload = workload(benchmark, report)
        self.metric: Metric | None = primary.metric if primary is not None else None
        self.value: float | None = primary.value if primary is not None else None

    @classmethod
    def of(cls, uow: UnitOfWork, benchmark_id: str) -> _Measured:
        """Read what a run reported.

        Raises:
            NotFound: It was removed.
        """
        newest = newest_report(uow.files.reports(benchmark_id))
        return cls(uow.benchmarks.get(benchmark_id), {} if newest is None else newest.report)

    @property
    def valid(self) -> bool:
        """Whether the run calls its own number usable."""
        return self._verdict.get("verdict") != "invalid"

    def reasons(self, side: str) -> Iterator[str]:
        """Yield why the number is invalid, with the version that it is of."""
        if self.valid:
            return
        stated = self._verdict.get("reasons")
        found = (
            [each for each in stated if isinstance(each, Mapping)]
            if isinstance(stated, list)
            else []
        )
        why = " ".join(str(each.get("sentence") or each.get("code") or "") for each in found)
        yield f"the {side} is invalid: {why.removesuffix('.')}" if why else f"the {side} is invalid"


def _made_way(run: Benchmark) -> bool:
    """Return whether a run ended for others alone, so that it is measured again.

    It was stopped too often, or it was a canary's that did not run yet: nobody has cancelled it.
    """
    failure = run.failure
    too_often = failure is not None and failure.category is FailureCategory.PREEMPTED_TOO_OFTEN
    return too_often or (run.status is Status.CANCELLED and run.stopped_by is None)


def _why_ended(run: Benchmark) -> str:
    """Return how a run ended without a result."""
    if run.status is Status.CANCELLED:
        return f"its run {run.benchmark_id} was cancelled"
    why = f": {run.failure.sentence}" if run.failure is not None else ""
    return f"its run {run.benchmark_id} {run.status.value}{why}"


def _end(
    uow: UnitOfWork,
    check: Check,
    status: CheckStatus,
    reason: str,
    now: datetime,
    kind: str = "check.ended",
) -> Check:
    ended = replace(check, status=status, reason=reason, ended_at=now)
    uow.checks.save(ended)
    log_check(uow, ended, kind, now)
    return ended


def _note(check_id: str, reason: str, uow: UnitOfWork) -> None:
    """Store why a check measures nothing now."""
    check = uow.checks.get(check_id)
    if check.status is CheckStatus.RUNNING and check.reason != reason:
        uow.checks.save(replace(check, reason=reason))
