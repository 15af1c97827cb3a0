"""Confirmation of suspected changes by runs that Edgeyard submits, which may refute them too.

The experiment is a check on the board of the series. Where the model's content changed, its old
version is run against the new one, in turns. Where it did not, or where that shows no difference,
the present version is run against the recorded results of the old level: this shows that the new
level is real even if its cause cannot be run again.

Where the old and the new version differ, and others came between them, a bisection measures some of
these against the old one, by the same check, to find the first that differs.

A step is one transaction: if a server dies, the next one finds the change as it was before or after
the step, together with its check, and no check is started twice.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from edgeyard.errors import EdgeyardError, NotFound, Unavailable
from edgeyard.scheduler.decide.blame import Blame, next_version
from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.decide.series_watch import MAX_EARLIER_CHANGES
from edgeyard.scheduler.decide.slowdown import judge_check
from edgeyard.scheduler.engine.blame import blame, blame_by_checks
from edgeyard.scheduler.engine.checks import break_off, log_check, metric_of_result
from edgeyard.scheduler.engine.intake import packed
from edgeyard.scheduler.engine.series_watch import log_change
from edgeyard.scheduler.engine.versions import (
    Version,
    checks_of_versions,
    ends_of_change,
    measured_versions,
    versions_between,
)
from edgeyard.scheduler.model.accounts import ChargeKind
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    IfUnavailable,
    JobDescription,
)
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.checks import (
    BASELINE,
    BISECTION_TAG,
    CANDIDATE,
    CHECK_TAG,
    CONFIRMATION_TAG,
    MIN_PAIRS,
    Check,
    CheckStatus,
)
from edgeyard.scheduler.model.series import raised_threshold
from edgeyard.scheduler.model.series_changes import (
    ACTIVE_ALERTS,
    CONFIRM_PAIRS,
    UNDECIDED_CHANGES,
    ChangeStatus,
    SeriesChange,
)
from edgeyard.scheduler.ports import Clock, FileStore, Store, UnitOfWork
from edgeyard.scheduler.twin.twin import BoardState, BoardView

logger = logging.getLogger(__name__)

MAX_CONFIRMATIONS = 4
"""Changes that are confirmed at a time, in all; on a board it is one. Those whose board is away do
not count."""

MAX_BOARD_SHARE = 0.02
SHARE_WINDOW = timedelta(days=30)
"""Of this time, a board spends at most `MAX_BOARD_SHARE` with confirmations."""

MAX_WAIT = timedelta(days=7)
"""Maximum wait for the first check; later the points that showed a change are too old."""

_PRIORITY = 10  # an account's own limit bounds it
_AWAY = frozenset(
    {BoardState.OFFLINE, BoardState.DRAINED, BoardState.QUARANTINED, BoardState.UNHEALTHY}
)
_OLD_GONE = "the old version of the model: its file is no longer stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What a step needs beyond the store.

    Attributes:
        boards: Every board as the twin knows it now, by its id.
        budget_s: Time for a check; 0: none is started.
        stored: Hashes of the files of the versions of a change, and of those between them, that are
            still stored; None: they were not looked up, because the change waits.
    """

    boards: Mapping[str, BoardView]
    budget_s: float
    now: datetime
    stored: frozenset[str] | None = None


def advance_changes(
    store: Store,
    files: FileStore,
    clock: Clock,
    boards: Sequence[BoardView],
    budget_s: float,
) -> int:
    """Take the next step of changes that have one; an error ends only its own change.

    Args:
        store: Has the changes and the checks.
        files: Has the content of models.
        clock: The server's.
        boards: Every board as the twin knows it now.
        budget_s: Time for a check with its waiting, seconds; 0: none is started.

    Returns:
        How many changes moved on.

    Raises:
        Unavailable: The store can't take it now.
    """
    context = _Context(
        boards={each.board.target_uid: each for each in boards},
        budget_s=budget_s,
        now=clock.certain(),
    )
    with store.read() as uow:
        due = [each for each in _in_turn(uow, context) if _has_step(uow, each, context)]
    moved = 0
    for each in due:
        change_id = each.change_id
        try:
            stored = _stored_files(store, files, each, context)
            moved += store.transact(partial(_step, change_id, replace(context, stored=stored)))
        except Unavailable:
            raise
        except Exception as error:
            logger.exception(
                "a confirmation broke", extra={"event": "series.broke", "change_id": change_id}
            )
            reason = str(error) if isinstance(error, EdgeyardError) else type(error).__name__
            store.transact(partial(_break_off, change_id, reason, context.now))
    return moved


def _in_turn(uow: UnitOfWork, context: _Context) -> list[SeriesChange]:
    """Return the undecided changes in the order in which they get what is free.

    Owners take turns: first comes the one with the fewest confirmations under way, then the one
    that used the board least. Of a board, only the first suspected change of all owners has a step,
    and others that cost no look at files: those whose owner used its part, and those that do not
    state yet why they wait.
    """
    undecided = uow.series.undecided()
    suspected = [each for each in undecided if each.status is ChangeStatus.SUSPECTED]
    confirming = [each for each in undecided if each.status is ChangeStatus.CONFIRMING]
    taken = Counter(each.key.user_id for each in confirming if not _away(uow, each, context))
    contended = Counter(each.key.target_uid for each in suspected)
    shares = {uid: _Share(uow, uid, context.now) for uid, owners in contended.items() if owners > 1}
    placed = []
    for each in suspected:
        share, user_id = shares.get(each.key.target_uid), each.key.user_id
        used_s = 0.0 if share is None else share.used_s(user_id)
        placed.append((taken[user_id], used_s, each.found_at, each.change_id, each))
        taken[user_id] += 1
    found, boards = confirming, set[str]()
    for *_, each in sorted(placed, key=lambda one: one[:4]):
        share = shares.get(each.key.target_uid)
        if share is not None and share.is_used_up_by(each.key.user_id):
            found.append(each)
        elif each.key.target_uid not in boards:
            boards.add(each.key.target_uid)
            found.append(each)
        elif not each.reason:
            found.append(each)
    return found


def _can_run(change: SeriesChange, context: _Context) -> bool:
    """Return whether its board can run something now; in quarantine it may run canaries."""
    view = context.boards.get(change.key.target_uid)
    return view is not None and view.state not in _AWAY - {BoardState.QUARANTINED}


def _stored_files(
    store: Store, files: FileStore, change: SeriesChange, context: _Context
) -> frozenset[str] | None:
    """Return the files of all versions that are still stored, or None; see `_Context`.

    No transaction is open while the files are looked up.
    """
    if not _can_run(change, context):
        return frozenset()
    now = context.now
    with store.read() as uow:
        if change.status is ChangeStatus.SUSPECTED and _obstacle(uow, change, context):
            return None
        ends = _ends(uow, change, now)
        is_bisected = change.status is ChangeStatus.CONFIRMING
        between = versions_between(uow, change, *ends, now) if is_bisected else ()
        versions = [_found(uow, each) for each in (*ends, *(each.benchmark_id for each in between))]
    named = {
        file.sha256
        for each in versions
        if each is not None
        for file in each.files
        if file.sha256 is not None
    }
    return frozenset(filter(files.contains, named))


def _has_step(uow: UnitOfWork, change: SeriesChange, context: _Context) -> bool:
    if change.status is not ChangeStatus.CONFIRMING:
        return True
    try:
        if uow.checks.get(change.check_ids[-1]).status is not CheckStatus.RUNNING:
            return True
    except NotFound:
        return True
    is_gone = change.key.target_uid not in context.boards
    return is_gone or change.reason != _reason_while_measured(uow, change, context)


def _step(change_id: str, context: _Context, uow: UnitOfWork) -> bool:
    change = uow.series.change(change_id)
    if change.status is ChangeStatus.SUSPECTED:
        return _begin(uow, change, context)
    if change.status is ChangeStatus.CONFIRMING:
        return _follow(uow, change, context)
    return False


def _begin(uow: UnitOfWork, change: SeriesChange, context: _Context) -> bool:
    """Start the first check of a change, or end it where there can be none."""
    if why := _permanent_obstacle(uow, change, context):
        return _give_up(uow, change, why, context.now)
    if why := _present_obstacle(uow, change, context):
        if context.now - change.found_at > MAX_WAIT:
            return _give_up(uow, change, f"it waited for {MAX_WAIT.days} days: {why}", context.now)
        if change.reason != f"it waits: {why}":
            uow.series.save_change(replace(change, reason=f"it waits: {why}"))
        return False
    if context.stored is None:
        return False  # it no longer waits: its files are looked up in the next turn
    old, new = (_found(uow, each) for each in _ends(uow, change, context.now))
    if old is not None and new is not None and _model(old) == _model(new):
        return _compare_with_recorded(uow, change, context)
    if old is None or not _is_stored(old, context):
        unknown = replace(change, not_tested=(*change.not_tested, _OLD_GONE))
        return _compare_with_recorded(uow, unknown, context)
    if new is None or not _is_stored(new, context):
        return _give_up(uow, change, _files_removed(change), context.now)
    check = _check(change, context, {BASELINE: old, CANDIDATE: new})
    return _start(uow, change, check, context.now)


def _ends(uow: UnitOfWork, change: SeriesChange, now: datetime) -> tuple[str, str]:
    """Return a benchmark of the version before a change, and one of the version after it."""
    return ends_of_change(uow.series.points(change.key, until=now, limit=LOOK_BACK), change)


def _obstacle(uow: UnitOfWork, change: SeriesChange, context: _Context) -> str:
    """Return why nothing can be run for a change now; "": it can."""
    return _permanent_obstacle(uow, change, context) or _present_obstacle(uow, change, context)


def _permanent_obstacle(uow: UnitOfWork, change: SeriesChange, context: _Context) -> str:
    """Return why a change can't be confirmed; "": it can."""
    user_id, uid = change.key.user_id, change.key.target_uid
    if context.budget_s <= 0:
        return "the lab confirms no changes (confirm_budget_s is 0)"
    if uid not in context.boards:
        return _away(uow, change, context)
    try:
        owner = uow.accounts.user(user_id)
    except NotFound:
        return f"the account {user_id} is gone"
    if not owner.may_submit:
        return f"the account {user_id} is disabled or may submit nothing"
    credits_left = uow.credits.balance(user_id).credits_left
    if credits_left is not None and credits_left <= 0:
        return f"the account {user_id} has no credits left"
    return ""


def _present_obstacle(uow: UnitOfWork, change: SeriesChange, context: _Context) -> str:
    """Return why a change can't be confirmed yet; "": it can."""
    uid = change.key.target_uid
    if why := _away(uow, change, context):
        return why
    if why := _Share(uow, uid, context.now).why_used_up(change.key.user_id):
        return why
    confirming = [each for each in uow.series.confirming() if each.change_id != change.change_id]
    if any(each.key.target_uid == uid for each in confirming):
        return f"another change is being confirmed on {uid}"
    if sum(not _away(uow, each, context) for each in confirming) >= MAX_CONFIRMATIONS:
        return f"{MAX_CONFIRMATIONS} other changes are being confirmed"
    return ""


def _away(uow: UnitOfWork, change: SeriesChange, context: _Context) -> str:
    """Return why the board of a change runs nothing for it now; "": it does."""
    uid = change.key.target_uid
    view = context.boards.get(uid)
    if view is None:
        return f"the board {uid} is no longer in the lab"
    if view.state not in _AWAY or _is_for_its_drift(uow, change, view):
        return ""
    why = f" ({view.reason})" if view.reason else ""
    return f"the board {uid} is {view.state.value}{why}"


class _Share:
    """The time that a board spends with confirmations, and the part of it of each owner.

    The owners that have series on it get equal parts. One alone gets half, so that there is time
    for another one who begins to measure there.
    """

    def __init__(self, uow: UnitOfWork, target_uid: str, now: datetime) -> None:
        since = now - SHARE_WINDOW
        kind = ChargeKind.CONFIRMATION
        self._used_s = uow.accounting.board_s_by_user(kind, target_uid, since)
        owners = len(uow.series.owners(target_uid, since)) if self._used_s else 0
        self._uid = target_uid
        self._share_s = MAX_BOARD_SHARE * SHARE_WINDOW.total_seconds()
        self._part_s = self._share_s / max(2, owners)

    def used_s(self, user_id: str) -> float:
        """Return how much of it an owner used."""
        return self._used_s.get(user_id, 0.0)

    def is_used_up_by(self, user_id: str) -> bool:
        """Return whether an owner has nothing left of its part."""
        return self.used_s(user_id) >= self._part_s

    def why_used_up(self, user_id: str) -> str:
        """Return why an owner gets nothing of it now; "": it gets some."""
        days, window_s = SHARE_WINDOW.days, SHARE_WINDOW.total_seconds()
        what = f"of the time of {self._uid} within {days} days"
        if sum(self._used_s.values()) >= self._share_s:
            return f"confirmations took {MAX_BOARD_SHARE:.0%} {what}"
        if self.is_used_up_by(user_id):
            used, part = self.used_s(user_id) / window_s, self._part_s / window_s
            return (
                f"confirmations of {user_id} took {used:.2%} {what}, and the part of an owner of "
                f"series there is {part:.2%}"
            )
        return ""


def _is_for_its_drift(uow: UnitOfWork, change: SeriesChange, view: BoardView) -> bool:
    """Return whether a board is in quarantine for a drift, which a canary may show to be over."""
    if view.state is not BoardState.QUARANTINED or change.key.user_id != CANARY_USER:
        return False
    quarantine = uow.reservations.quarantines().get(change.key.target_uid)
    return quarantine is not None and quarantine.of_drift


def _compare_with_recorded(uow: UnitOfWork, change: SeriesChange, context: _Context) -> bool:
    """Start a check of the present version against results of the old level."""
    if not _can_run(change, context):
        return _give_up(uow, change, _obstacle(uow, change, context), context.now)
    new = _found(uow, _ends(uow, change, context.now)[1])
    if new is None or not _is_stored(new, context):
        return _give_up(uow, change, _files_removed(change), context.now)
    recorded = _old_level(uow, change, context.now)[:CONFIRM_PAIRS]
    if len(recorded) < MIN_PAIRS:
        why = f"{len(recorded)} valid results of the old level are left, fewer than {MIN_PAIRS}"
        return _give_up(uow, change, why, context.now)
    check = _check(change, context, {CANDIDATE: new}, recorded)
    return _start(uow, change, check, context.now)


def _old_level(uow: UnitOfWork, change: SeriesChange, now: datetime) -> list[str]:
    """Return the valid points of the level before a change, newest first.

    What was found to be noise is no level: its points, until that was found, are left out.
    """
    points = uow.series.points(change.key, until=now, limit=LOOK_BACK)
    earlier = uow.series.changes_of([change.key.series_id], limit=MAX_EARLIER_CHANGES)
    others = {each.begin_id: each for each in earlier if each.change_id != change.change_id}
    found: list[str] = []
    noise_until: datetime | None = None
    for each in points:
        if each.benchmark_id == change.begin_id:
            return found[::-1]
        if (other := others.get(each.benchmark_id)) is not None:
            if other.status is ChangeStatus.NOISE:
                noise_until = other.ended_at
            else:
                found, noise_until = [], None
        if noise_until is not None and each.ended_at <= noise_until:
            continue
        if each.value is not None and each.value > 0:
            found.append(each.benchmark_id)
    return []


def _check(
    change: SeriesChange,
    context: _Context,
    versions: Mapping[str, Benchmark],
    recorded: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Check:
    """Return a check of whether half of a suspected change is there.

    Args:
        change: That is suspected.
        context: Has the budget.
        versions: What is run, by side.
        recorded: Results that are the baseline instead of runs of it.
        tags: Further tags of its runs.
    """
    half = (abs(change.size) if change.worse else -abs(change.size)) / 2
    uid = change.key.target_uid
    return Check(
        check_id=f"check-{secrets.token_hex(8)}",
        user_id=change.key.user_id,
        baseline=versions[BASELINE].benchmark_id if BASELINE in versions else change.before_id,
        candidate=versions[CANDIDATE].description.model,
        max_slowdown=half,
        budget_s=context.budget_s,
        max_pairs=len(recorded) or CONFIRM_PAIRS,
        versions={
            side: packed(_confirming(each.description, uid, tags), each.files)
            for side, each in versions.items()
        },
        created_at=context.now,
        target_uid=uid,
        recorded_ids=tuple(recorded),
    )


def _confirming(
    description: JobDescription, target_uid: str, tags: Sequence[str]
) -> JobDescription:
    """Return a description of the same work, to be run soon on one board."""
    return replace(
        description,
        target=None,
        target_uid=target_uid,
        if_unavailable=IfUnavailable.NOTIFY,
        name="",
        series="",
        tags=(CHECK_TAG, CONFIRMATION_TAG, *tags),
        user_priority=_PRIORITY,
        deadline=None,
        start_time=None,
        queue_timeout_s=None,
        cron=None,
        count=1,
        affinities=(),
        spreads=(),
        job_completion_threshold=None,
    )


def _start(uow: UnitOfWork, change: SeriesChange, check: Check, now: datetime) -> bool:
    check = replace(check, metric=metric_of_result(uow, change.begin_id))
    uow.checks.add(check)
    log_check(uow, check, "check.started", now)
    uow.series.save_change(
        replace(
            change,
            status=ChangeStatus.CONFIRMING,
            check_ids=(*change.check_ids, check.check_id),
            reason=change.reason if change.confirmed_size is not None else "",
        )
    )
    return True


def _follow(uow: UnitOfWork, change: SeriesChange, context: _Context) -> bool:
    """Take the outcome of a change's newest check."""
    try:
        check = uow.checks.get(change.check_ids[-1])
    except NotFound:
        if change.confirmed_size is not None:
            return _confirm(uow, change, context.now)
        return _give_up(uow, change, "its check was removed", context.now)
    if check.status is CheckStatus.RUNNING:
        if change.key.target_uid in context.boards:
            reason = _reason_while_measured(uow, change, context)
            uow.series.save_change(replace(change, reason=reason))
            return False
        why = _away(uow, change, context)
        check = break_off(check.check_id, why, context.now, uow)
    if change.confirmed_size is not None:  # it is known to be the model's
        return _bisect(uow, change, context)
    if check.confirms is True:
        confirmed = replace(_measured(change, check), reason=check.reason)
        if check.recorded_ids:
            return _confirm(uow, confirmed, context.now)
        return _bisect(uow, confirmed, context)
    if check.recorded_ids and check.confirms is False:
        return _refute(uow, change, check, context.now)
    if check.recorded_ids or check.status is CheckStatus.CANCELLED:
        return _give_up(uow, change, check.reason, context.now)
    if check.confirms is None:
        open_question = f"whether the model is the cause: {check.reason}"
        change = replace(change, not_tested=(*change.not_tested, open_question))
    return _compare_with_recorded(uow, change, context)


def _reason_while_measured(uow: UnitOfWork, change: SeriesChange, context: _Context) -> str:
    """Return the reason of a change whose check runs: why nothing is measured now, or ""."""
    if change.confirmed_size is not None:
        return change.reason  # that of the check that confirmed it
    why = _away(uow, change, context)
    return f"it waits: {why}" if why else ""


def _bisect(uow: UnitOfWork, change: SeriesChange, context: _Context) -> bool:
    """Measure the next version between the old and the new one, or confirm with what is known.

    It does not wait: a version that can't be run now is left out, and the alert states that.
    """
    if _alert(uow, change) is not None:
        return _confirm(uow, change, context.now)  # the alert that it belongs to has its cause
    ends = _ends(uow, change, context.now)
    between = versions_between(uow, change, *ends, context.now)
    if not between:
        return _confirm(uow, change, context.now)
    if why := _obstacle(uow, change, context):
        left = f"Which of {len(between)} versions between them is the first was not found out"
        return _confirm(uow, change, context.now, between, (f"{left}: {why}.",))
    old, new = (_found(uow, each) for each in ends)
    if old is None or new is None or not (_is_stored(old, context) and _is_stored(new, context)):
        return _confirm(uow, change, context.now, between, (f"Not tested: {_OLD_GONE}.",))
    there = {each.sha256: _as_version(uow, each, new) for each in between}
    usable = {
        sha256: made
        for sha256, made in there.items()
        if made is not None and _is_stored(made, context)
    }
    untested = tuple(
        f"Version {each.sha256[:12]} ({each.benchmark_id}) between them was not measured: "
        f"its files are no longer stored."
        for each in between
        if each.sha256 not in usable
    )
    measured = measured_versions(checks_of_versions(uow, change), between)
    differs = {each.sha256: each.differs for each in measured if each.differs is not None}
    sha256 = next_version((*usable, _model(new) or ""), differs)
    if sha256 is None or any(each.sha256 == sha256 for each in measured):
        return _confirm(uow, change, context.now, between, untested)
    versions = {BASELINE: old, CANDIDATE: usable[sha256]}
    check = _check(change, context, versions, tags=(BISECTION_TAG,))
    return _start(uow, change, check, context.now)


def _as_version(uow: UnitOfWork, version: Version, new: Benchmark) -> Benchmark | None:
    """Return a benchmark with another version of its model; None: it is no longer stored."""
    other = _found(uow, version.benchmark_id)
    if other is None:
        return None
    stated = other.description
    return replace(
        new,
        description=replace(new.description, model=stated.model, model_url=stated.model_url),
        files=(
            *(each for each in other.files if each.role.is_model),
            *(each for each in new.files if not each.role.is_model),
        ),
    )


def _confirm(
    uow: UnitOfWork,
    change: SeriesChange,
    now: datetime,
    between: Sequence[Version] = (),
    untested: Sequence[str] = (),
) -> bool:
    """Name the cause of a change, and make an alert of it; see `_conclude`.

    Args:
        uow: Reads and writes.
        change: With its size as a check has measured it, and the reason of that check.
        now: The time.
        between: The versions that a bisection of it considered.
        untested: What the bisection left out, as sentences.
    """
    return _conclude(uow, _blamed(change, blame(uow, change, now, between), untested), now)


def _blamed(change: SeriesChange, found: Blame, untested: Sequence[str]) -> SeriesChange:
    return replace(
        change,
        cause=found.cause.value,
        blame=found.sentence,
        not_tested=(*found.not_tested, *untested),
    )


def _conclude(uow: UnitOfWork, change: SeriesChange, now: datetime) -> bool:
    """Make an alert of a change whose cause is named, or end or bring back its alert."""
    alert = _alert(uow, change)
    if alert is None:
        made = replace(change, status=ChangeStatus.CONFIRMED, alert_id=None)
        uow.series.save_change(made)
        log_change(uow, made, "alert.confirmed", now)
        _end_alerts_before(uow, made, now)
        return True
    uow.series.save_change(replace(change, status=ChangeStatus.MERGED, ended_at=now))
    comes_back = (alert.size > 0) == (change.size > 0)
    if alert.status in ACTIVE_ALERTS and not comes_back:
        reason = f"the level before it is back since {change.begin_id}"
        resolved = replace(alert, status=ChangeStatus.RESOLVED, reason=reason, ended_at=now)
        uow.series.save_change(resolved)
        log_change(uow, resolved, "alert.resolved", now)
    elif alert.status is ChangeStatus.RESOLVED and comes_back:
        reopened = replace(
            change,
            change_id=alert.change_id,
            alert_id=None,
            status=ChangeStatus.CONFIRMED,
            reason=f"it came back with {change.begin_id}",
            found_at=alert.found_at,
            reopened_at=now,
        )
        before = replace(
            alert,
            change_id=f"alert-{secrets.token_hex(8)}",
            alert_id=alert.change_id,
            status=ChangeStatus.MERGED,
            reason=f"what {alert.change_id} was before it came back with {change.begin_id}",
        )
        uow.series.save_change(reopened)
        uow.series.add_change(before)
        log_change(uow, reopened, "alert.reopened", now)
    return True


def _end_alerts_before(uow: UnitOfWork, alert: SeriesChange, now: datetime) -> None:
    """Resolve the alerts in the same direction that another alert of the series goes beyond."""
    key = alert.key.series_id
    for each in uow.series.changes_of([key], limit=MAX_EARLIER_CHANGES, status=ACTIVE_ALERTS):
        if each.change_id != alert.change_id and (each.size > 0) == (alert.size > 0):
            reason = f"the level moved on since {alert.begin_id}: {alert.change_id}"
            ended = replace(each, status=ChangeStatus.RESOLVED, reason=reason, ended_at=now)
            uow.series.save_change(ended)
            log_change(uow, ended, "alert.resolved", now)


def _alert(uow: UnitOfWork, change: SeriesChange) -> SeriesChange | None:
    """Return the alert that a change takes back or brings back; None: it is a new one."""
    try:
        return None if change.alert_id is None else uow.series.change(change.alert_id)
    except NotFound:
        return None  # it was removed by its age


def _measured(change: SeriesChange, check: Check) -> SeriesChange:
    """Return a change with its size as a check has measured it."""
    found = judge_check(check)
    if found.slowdown is None or found.low is None or found.high is None:
        return change
    is_lower_better = change.worse == (change.size > 0)
    ends = (found.low, found.high) if is_lower_better else (-found.high, -found.low)
    return replace(
        change,
        confirmed_size=found.slowdown if is_lower_better else -found.slowdown,
        confirmed_low=ends[0],
        confirmed_high=ends[1],
    )


def _refute(uow: UnitOfWork, change: SeriesChange, check: Check, now: datetime) -> bool:
    """End a change as noise, which raises the threshold of its series."""
    noise = replace(
        _measured(change, check), status=ChangeStatus.NOISE, reason=check.reason, ended_at=now
    )
    uow.series.save_change(noise)
    series = uow.series.watched(change.key.series_id)
    threshold = raised_threshold(series.threshold_now(now), change.size)
    uow.series.save_watched(replace(series, threshold=threshold, threshold_at=now))
    log_change(uow, noise, "series.noise", now)
    return True


def _give_up(uow: UnitOfWork, change: SeriesChange, why: str, now: datetime) -> bool:
    """End a change that can't be confirmed: an alert only if the series' owner asked for these.

    Such a change of a canary is always an alert: operators end the drift by resolving it. What
    takes back an alert is none: that alert goes on.
    """
    try:
        is_wanted = uow.series.watched(change.key.series_id).alert_unconfirmed
    except NotFound:
        is_wanted = False
    is_wanted = is_wanted or change.key.user_id == CANARY_USER
    earlier = _alert(uow, change)
    if is_wanted and (earlier is None or (earlier.size > 0) == (change.size > 0)):
        opened = replace(change, status=ChangeStatus.OPEN, alert_id=None, reason=why)
        uow.series.save_change(opened)
        log_change(uow, opened, "alert.open", now)
        return True
    ended = replace(change, status=ChangeStatus.UNCONFIRMED, reason=why, ended_at=now)
    uow.series.save_change(ended)
    log_change(uow, ended, "series.unconfirmed", now)
    return True


def _break_off(change_id: str, why: str, now: datetime, uow: UnitOfWork) -> None:
    """End a change whose step broke: what its checks have confirmed is confirmed all the same."""
    change = uow.series.change(change_id)
    if change.status not in UNDECIDED_CHANGES:
        return
    confirmed = _confirmed_by_check(uow, change)
    if confirmed is None:
        _give_up(uow, change, f"its confirmation could not go on: {why}", now)
        return
    found = blame_by_checks(uow, confirmed)
    rest = f"No further version and no other cause was looked for, because of an error: {why}."
    _conclude(uow, _blamed(confirmed, found, (rest,)), now)


def _confirmed_by_check(uow: UnitOfWork, change: SeriesChange) -> SeriesChange | None:
    """Return a change with its size as its checks have confirmed it; None: none has."""
    if change.confirmed_size is not None:
        return change
    try:
        check = uow.checks.get(change.check_ids[-1] if change.check_ids else "")
    except NotFound:
        return None
    return replace(_measured(change, check), reason=check.reason) if check.confirms else None


def _found(uow: UnitOfWork, benchmark_id: str) -> Benchmark | None:
    """Return a benchmark that is still stored."""
    if uow.benchmarks.deleted([benchmark_id]):
        return None
    try:
        return uow.benchmarks.get(benchmark_id)
    except NotFound:
        return None


def _model(benchmark: Benchmark | None) -> str | None:
    """Return the hash of a benchmark's model."""
    return None if benchmark is None else benchmark.model_sha256


def _is_stored(benchmark: Benchmark, context: _Context) -> bool:
    """Return whether all files of a benchmark are stored: a URL may have another content now."""
    stored = context.stored or frozenset()
    return all(each.sha256 in stored for each in benchmark.files)


def _files_removed(change: SeriesChange) -> str:
    return f"the files of {change.begin_id} are no longer stored, so that nothing can be run"
