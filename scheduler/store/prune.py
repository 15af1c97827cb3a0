"""Retention: old rows are found by reading along an index, and removed a few at a time.

Nothing is searched for in a transaction that writes. Each such transaction removes a handful of
rows by their keys, so that others who write wait for some milliseconds at most, however much is
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Delete,
    Select,
    Table,
    Text,
    TextClause,
    Update,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)

from edgeyard.scheduler.model.benchmark import LIVE, TERMINAL, Status
from edgeyard.scheduler.model.checks import CheckStatus
from edgeyard.scheduler.model.recurring import ScheduleJobState
from edgeyard.scheduler.model.retention import Limits, RetentionClass
from edgeyard.scheduler.store.cycles import PARTS_LOCK
from edgeyard.scheduler.store.log import IDEMPOTENCY_KEY_LIFETIME
from edgeyard.scheduler.store.tables import (
    HAS_HCL,
    LIVE_STATES,
    LIVE_STATUSES,
    UtcTime,
    acts,
    attempts,
    benchmark_files,
    benchmarks,
    board_states,
    campaigns,
    charges,
    checks,
    cycle_parts,
    cycles,
    deleted_benchmarks,
    deliveries,
    events,
    explanations,
    grants,
    metadata,
    outcomes,
    part_contents,
    placement_ratings,
    policy_overrides,
    remembered,
    reports,
    result_files,
    reward_rounds,
    schedule_grants,
    schedule_jobs,
    schedules,
    series_changes,
    upload_pieces,
    uploads,
    user_files,
    watched_series,
)
from edgeyard.scheduler.store.transaction import Row, Transaction, among

PAGE = 1000
"""Rows that are read in one transaction."""

_STEP = 100  # rows that go in one transaction
_SMALL_PAGE = 5  # benchmarks or cycles, with all that belongs to each

MIN_OUTCOME_AGE = timedelta(days=366)
"""Outcomes and charges of deleted benchmarks stay as long: run times are learned from the former,
and reports of usage add up the latter."""

_KEPT_A_YEAR = frozenset({"outcomes", "charges"})

_OTHER = benchmarks.alias("other")
_LIVE_OTHER = _OTHER.c.status.in_([status.value for status in LIVE])
# What a live benchmark is a retry of, and the campaigns of live benchmarks, are still needed.
_NEEDED = or_(
    exists().where(_OTHER.c.retry_of == benchmarks.c.benchmark_id, _LIVE_OTHER),
    exists().where(_OTHER.c.campaign_id == benchmarks.c.campaign_id, _LIVE_OTHER),
)

_FIRST = {Text: "", UtcTime: datetime(1, 1, 1, tzinfo=UTC)}

_BEFORE = bindparam("before", type_=UtcTime)
_ENDED = benchmarks.c.status.in_([status.value for status in TERMINAL])
_LONG_ENDED = and_(_ENDED, benchmarks.c.ended_at < _BEFORE)

Remove = Callable[[Transaction, Sequence[Row], datetime], int]


@dataclass(frozen=True, slots=True)
class Rule:
    """How old rows of one table are pruned.

    Attributes:
        limit: Class whose limit applies.
        page: Rows after ``after0``, ``after1``, ... in the order of an index, with the columns
            ``k0``, ``k1``, ... (the cursor), ``size``, ``young`` (so are all that follow) and
            ``kept``.
        first: Cursor before all rows.
        remove: Removes the rows of these keys, if nothing speaks against it any more.
        step: Rows that go in one transaction.
    """

    limit: RetentionClass
    page: Select[Any]
    first: tuple[object, ...]
    remove: Remove
    step: int = _STEP


def rows_to_prune(
    rule: Rule, before: datetime, read: Callable[[Select[Any], Row], Sequence[Row]]
) -> Iterator[list[Row]]:
    """Yield the rows to prune, a page at a time.

    Args:
        rule: The rule of the table.
        before: What is older goes.
        read: Answers a statement in a transaction of its own.
    """
    cursor = rule.first
    while True:
        values = {f"after{place}": value for place, value in enumerate(cursor)}
        rows = read(rule.page, {**values, "before": before, "limit": PAGE})
        old = list(takewhile(lambda row: not row["young"], rows))
        yield [row for row in old if not row["kept"]]
        if len(old) < PAGE:
            return
        cursor = tuple(rows[-1][f"k{place}"] for place in range(len(cursor)))


def limit_of(name: str, limits: Limits, now: datetime) -> datetime | None:
    """Return the time before which rows of a table are pruned; None: none are."""
    kind = RULES[name].limit
    if kind is RetentionClass.EXPIRED:
        return now - IDEMPOTENCY_KEY_LIFETIME
    before = limits.get(kind)
    return min(before, now - MIN_OUTCOME_AGE) if before and name in _KEPT_A_YEAR else before


def _rule(
    limit: RetentionClass,
    keys: Sequence[ColumnElement[Any]],
    remove: Remove | None = None,
    *,
    where: ColumnElement[bool] | None = None,
    young: ColumnElement[bool] | None = None,
    kept: ColumnElement[bool] | None = None,
    size: ColumnElement[int] | None = None,
    step: int = _STEP,
) -> Rule:
    """Make a rule; without a ``remove`` the rows of its keys are deleted."""
    marks = [bindparam(f"after{place}", type_=key.type) for place, key in enumerate(keys)]
    later = keys[0] > marks[0] if len(keys) == 1 else tuple_(*keys) > tuple_(*marks)
    page = (
        select(
            *(key.label(f"k{place}") for place, key in enumerate(keys)),
            (literal(0) if size is None else size).label("size"),
            (false() if young is None else young).label("young"),
            (false() if kept is None else kept).label("kept"),
        )
        .where(later, *([] if where is None else [where]))
        .order_by(*keys)
        .limit(bindparam("limit"))
    )
    first = tuple(_FIRST.get(type(key.type), -1) for key in keys)
    return Rule(
        limit, page, first, remove or _each(delete(keys[0].table).where(*_keys_equal(*keys))), step
    )


def _unnamed(kind: Table, *keys: ColumnElement[Any], kept: bool = False) -> Remove:
    """Delete rows that name content by these keys, and count their users' names.

    Args:
        kept: The rows stay, and name the content no longer.
    """
    where = _keys_equal(*keys)
    changing = (
        update(kind).where(*where, kind.c.kept).values(kept=False).returning(kind)
        if kept
        else delete(kind).where(*where).returning(kind)
    )

    def remove(tx: Transaction, rows: Sequence[Row], before: datetime) -> int:
        gone: list[Row] = []
        for row in rows:
            values = {f"key{place}": row[f"k{place}"] for place in range(len(keys))}
            gone += tx.changed(changing, values)
        _forget_names(tx, gone)
        return len(gone)

    return remove


def _forget_names(tx: Transaction, gone: Sequence[Row]) -> None:
    """Subtract the names that pruned uploads, results or files of benchmarks gave to content."""
    ids = sorted({cast(str, row["benchmark_id"]) for row in gone if "benchmark_id" in row})
    found = tx.rows(_OWNERS, {"ids": ids}) if ids else ()
    owners = {row["benchmark_id"]: cast(str, row["user_id"]) for row in found}
    for row in gone:
        user_id = row["user_id"] if "user_id" in row else owners.get(row["benchmark_id"])
        if user_id is not None and row["sha256"] is not None:
            size_bytes = cast("int | None", row["size_bytes"]) or 0
            tx.name(cast(str, user_id), cast(str, row["sha256"]), size_bytes, -1)


def _each(statement: Delete | Update) -> Remove:
    """Remove rows by their keys ``k0``, ``k1``, ..."""

    def remove(tx: Transaction, rows: Sequence[Row], before: datetime) -> int:
        names = [name for name in rows[0] if name.startswith("k") and name[1:].isdigit()]
        return tx.run(statement, [{f"key{n[1:]}": row[n] for n in names} for row in rows]).rowcount

    return remove


def _keys_equal(*keys: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    return [key == bindparam(f"key{place}", type_=key.type) for place, key in enumerate(keys)]


def _of_live(column: ColumnElement[Any]) -> ColumnElement[bool]:
    return exists().where(benchmarks.c.benchmark_id == column, text(LIVE_STATUSES))


def _not_long_ended(column: ColumnElement[Any]) -> ColumnElement[bool]:
    return ~exists().where(benchmarks.c.benchmark_id == column, _LONG_ENDED)


def _remove_cycles(tx: Transaction, rows: Sequence[Row], before: datetime) -> int:
    """Remove cycles that explain no benchmark, and the parts that no other cycle has."""
    if tx.dialect == "postgresql":
        tx.run(select(func.pg_advisory_xact_lock(PARTS_LOCK)))
    named = tx.rows(
        select(explanations.c.seq).where(among(explanations.c.seq)),
        {"ids": [row["k1"] for row in rows]},
    )
    seqs = sorted({row["k1"] for row in rows} - {row["seq"] for row in named})  # type: ignore[type-var]
    if not seqs:
        return 0
    parts = tx.rows(
        select(cycle_parts.c.sha256).distinct().where(among(cycle_parts.c.seq)), {"ids": seqs}
    )
    tx.run(delete(cycle_parts).where(among(cycle_parts.c.seq)), {"ids": seqs})
    tx.run(
        delete(part_contents).where(
            among(part_contents.c.sha256),
            ~exists().where(cycle_parts.c.sha256 == part_contents.c.sha256),
        ),
        {"ids": [row["sha256"] for row in parts]},
    )
    return tx.run(delete(cycles).where(among(cycles.c.seq)), {"ids": seqs}).rowcount


def _of_benchmarks(table: Table) -> Select[Any]:
    return select(table).where(among(table.c.benchmark_id))


_OWNERS = select(benchmarks.c.benchmark_id, benchmarks.c.user_id).where(
    among(benchmarks.c.benchmark_id)
)

_BENCHMARK_PARTS = (
    *(
        table
        for table in reversed(metadata.sorted_tables)
        if any(key.column.table is benchmarks for key in table.foreign_keys)
    ),
    placement_ratings,
    events,
)
"""Tables whose rows are pruned together with their benchmark."""


def _remove_benchmarks(tx: Transaction, rows: Sequence[Row], before: datetime) -> int:
    """Remove benchmarks with everything that belongs to them, except the outcomes of their runs."""
    found = tx.rows(
        select(benchmarks.c.benchmark_id, benchmarks.c.status, benchmarks.c.campaign_id)
        .where(among(benchmarks.c.benchmark_id), _LONG_ENDED, ~_NEEDED)
        .with_for_update(),
        {"ids": [row["k1"] for row in rows], "before": before},
    )
    if not found:
        return 0
    ids = [row["benchmark_id"] for row in found]
    kept = benchmark_files.c.kept
    _forget_names(tx, tx.rows(_of_benchmarks(benchmark_files).where(kept), {"ids": ids}))
    _forget_names(tx, tx.rows(_of_benchmarks(result_files), {"ids": ids}))
    for table in _BENCHMARK_PARTS:
        tx.run(delete(table).where(among(table.c.benchmark_id)), {"ids": ids})
    gone = tx.run(delete(benchmarks).where(among(benchmarks.c.benchmark_id)), {"ids": ids})
    for row in found:
        tx.count_gone(Status(cast(str, row["status"])))
    left = sorted({cast(str, row["campaign_id"]) for row in found if row["campaign_id"]})
    if left:
        member = exists().where(benchmarks.c.campaign_id == campaigns.c.campaign_id)
        tx.run(delete(campaigns).where(among(campaigns.c.campaign_id), ~member), {"ids": left})
    return gone.rowcount


_PIECES = select(upload_pieces).where(among(upload_pieces.c.upload_id))
_LEFT = (
    delete(uploads)
    .where(
        uploads.c.upload_id == bindparam("id", type_=Text),
        uploads.c.touched_at == bindparam("at", type_=UtcTime),
    )
    .returning(uploads)
)


def _remove_uploads(tx: Transaction, rows: Sequence[Row], before: datetime) -> int:
    """Remove uploads that got no piece since they were read, with their pieces."""
    gone = [left for row in rows for left in tx.changed(_LEFT, {"id": row["k1"], "at": row["k0"]})]
    owners = {row["upload_id"]: row["user_id"] for row in gone}
    if not owners:
        return 0
    pieces = tx.rows(_PIECES, {"ids": sorted(cast("list[str]", list(owners)))})
    _forget_names(tx, [{**row, "user_id": owners[row["upload_id"]]} for row in pieces])
    tx.run(delete(upload_pieces).where(among(upload_pieces.c.upload_id)), {"ids": [*owners]})
    return len(gone)


def _has_rows(table: Table, *where: ColumnElement[bool] | TextClause) -> ColumnElement[bool]:
    """Return the condition that a deleted benchmark has such rows."""
    return exists().where(table.c.benchmark_id == deleted_benchmarks.c.benchmark_id, *where)


_DATA = {
    benchmark_files: (benchmark_files.c.kept, benchmark_files.c.sha256.is_not(None)),
    result_files: (),
    reports: (),
}
"""Rows with data of a benchmark that its user may delete, by table."""


def _remove_data(tx: Transaction, rows: Sequence[Row], before: datetime) -> int:
    """Remove the files and results of ended benchmarks; their records stay."""
    ids = {"ids": [row["k0"] for row in rows]}
    inputs = update(benchmark_files).values(kept=False).returning(benchmark_files)
    where = among(benchmark_files.c.benchmark_id)
    _forget_names(tx, tx.changed(inputs.where(where, *_DATA[benchmark_files]), ids))
    results = delete(result_files).where(among(result_files.c.benchmark_id))
    _forget_names(tx, tx.changed(results.returning(result_files), ids))
    tx.run(delete(reports).where(among(reports.c.benchmark_id)), ids)
    return len(rows)


def content_in_use(sha256: ColumnElement[str]) -> ColumnElement[bool]:
    """Return whether a benchmark needs the content.

    Or a schedule or a check that submits others: they name their files inside their descriptions; a
    hash is found there as it is.
    """
    return or_(
        exists().where(benchmark_files.c.sha256 == sha256, benchmark_files.c.kept),
        _to_be_submitted(sha256),
    )


def _to_be_submitted(sha256: ColumnElement[str]) -> ColumnElement[bool]:
    return or_(
        exists().where(schedules.c.active, schedules.c.description.contains(sha256)),
        exists().where(
            checks.c.status == CheckStatus.RUNNING.value, checks.c.versions.contains(sha256)
        ),
    )


_OLD_CYCLE = (
    select(cycles.c.seq)
    .where(cycles.c.decided_at < _BEFORE)
    .order_by(cycles.c.decided_at.desc())
    .limit(1)
    .scalar_subquery()
)
_EXPLAINS = exists().where(
    explanations.c.seq == cycles.c.seq, _not_long_ended(explanations.c.benchmark_id)
)
_FIRST_KNOWN = select(func.min(cycles.c.runs_first)).scalar_subquery()
_LAST_OUTCOME = select(func.max(outcomes.c.seq)).scalar_subquery()

_NEWEST_ACT = acts.alias("newest_act")  # the next one's number follows it

_LATER_JOB = schedule_jobs.alias("later")
_LATER_STATE = board_states.alias("later_state")

_KINDS = RetentionClass
RULES: Mapping[str, Rule] = {
    "grants": _rule(
        _KINDS.EXPIRED,
        [grants.c.name],
        kept=exists().where(
            attempts.c.benchmark_id == grants.c.benchmark_id,
            attempts.c.number == grants.c.attempt,
            text(LIVE_STATES),
        ),
        size=func.coalesce(func.length(grants.c.content), 0),
    ),
    "schedule_grants": _rule(
        _KINDS.EXPIRED,
        [schedule_grants.c.name],
        kept=exists().where(
            schedule_jobs.c.job_id == schedule_grants.c.job_id,
            schedule_jobs.c.state != ScheduleJobState.ENDED.value,
        ),
        size=func.coalesce(func.length(schedule_grants.c.content), 0),
    ),
    "schedule_jobs": _rule(
        _KINDS.EXPIRED,
        [schedule_jobs.c.job_id],
        kept=or_(
            schedule_jobs.c.created_at >= _BEFORE,
            schedule_jobs.c.state != ScheduleJobState.ENDED.value,
            # an active schedule's next job gets the number after that of the last one
            and_(
                exists().where(
                    schedules.c.schedule_id == schedule_jobs.c.schedule_id, schedules.c.active
                ),
                ~exists().where(
                    _LATER_JOB.c.schedule_id == schedule_jobs.c.schedule_id,
                    _LATER_JOB.c.version > schedule_jobs.c.version,
                ),
            ),
        ),
        size=func.length(schedule_jobs.c.hcl),
    ),
    "deleted_benchmarks": _rule(
        _KINDS.EXPIRED,
        [deleted_benchmarks.c.benchmark_id],
        _remove_data,
        where=or_(*(_has_rows(table, *where) for table, where in _DATA.items())),
        kept=or_(
            _has_rows(benchmarks, text(LIVE_STATUSES)), _has_rows(attempts, text(LIVE_STATES))
        ),
        step=_SMALL_PAGE,
    ),
    "remembered": _rule(
        _KINDS.EXPIRED,
        [remembered.c.at, remembered.c.user_id, remembered.c.key],
        where=remembered.c.at < _BEFORE,
    ),
    "events": _rule(
        _KINDS.EVENTS,
        [events.c.seq],
        young=events.c.at >= _BEFORE,
        kept=and_(events.c.benchmark_id.is_not(None), _of_live(events.c.benchmark_id)),
        size=func.length(events.c.data),
    ),
    "board_states": _rule(
        _KINDS.EVENTS,
        [board_states.c.at, board_states.c.target_uid],
        where=board_states.c.at < _BEFORE,
        kept=~exists().where(  # the board is still in this state
            _LATER_STATE.c.target_uid == board_states.c.target_uid,
            _LATER_STATE.c.at > board_states.c.at,
        ),
        size=func.length(board_states.c.reason),
    ),
    "deliveries": _rule(
        _KINDS.EVENTS,
        [deliveries.c.created_at, deliveries.c.delivery_id],
        where=and_(deliveries.c.created_at < _BEFORE, deliveries.c.next_at.is_(None)),
        size=func.length(deliveries.c.body),
    ),
    "acts": _rule(
        _KINDS.ACTS,
        [acts.c.seq],
        young=acts.c.at >= _BEFORE,
        kept=acts.c.seq == select(func.max(_NEWEST_ACT.c.seq)).scalar_subquery(),
        size=func.length(acts.c.before) + func.length(acts.c.after) + func.length(acts.c.data),
    ),
    "explanations": _rule(
        _KINDS.CYCLES,
        [explanations.c.seq, explanations.c.benchmark_id],
        where=explanations.c.seq <= _OLD_CYCLE,
        kept=_not_long_ended(explanations.c.benchmark_id),
    ),
    "policy_overrides": _rule(
        _KINDS.CYCLES,
        [policy_overrides.c.benchmark_id],
        kept=_not_long_ended(policy_overrides.c.benchmark_id),
    ),
    "cycles": _rule(
        _KINDS.CYCLES,
        [cycles.c.decided_at, cycles.c.seq],
        _remove_cycles,
        where=cycles.c.decided_at < _BEFORE,
        kept=_EXPLAINS,
        size=cycles.c.size_bytes,
        step=_SMALL_PAGE,
    ),
    "reward_rounds": _rule(
        _KINDS.CYCLES,
        [reward_rounds.c.at, reward_rounds.c.seq],
        where=reward_rounds.c.at < _BEFORE,
    ),
    "hcl": _rule(
        _KINDS.HCL,
        [attempts.c.ended_at, attempts.c.benchmark_id, attempts.c.number],
        _each(
            update(attempts)
            .where(
                text(HAS_HCL),
                *_keys_equal(attempts.c.ended_at, attempts.c.benchmark_id, attempts.c.number),
            )
            .values(hcl="")
        ),
        where=and_(text(HAS_HCL), attempts.c.ended_at < _BEFORE),
        kept=_of_live(attempts.c.benchmark_id),
        size=func.length(attempts.c.hcl),
    ),
    "uploads": _rule(
        _KINDS.UPLOADS,
        [uploads.c.touched_at, uploads.c.upload_id],
        _remove_uploads,
        where=uploads.c.touched_at < _BEFORE,
        size=uploads.c.offset_bytes,
        step=_SMALL_PAGE,
    ),
    "result_files": _rule(
        _KINDS.RESULTS,
        [
            result_files.c.received_at,
            result_files.c.benchmark_id,
            result_files.c.attempt,
            result_files.c.name,
        ],
        _unnamed(
            result_files,
            result_files.c.received_at,
            result_files.c.benchmark_id,
            result_files.c.attempt,
            result_files.c.name,
        ),
        where=result_files.c.received_at < _BEFORE,
        kept=_not_long_ended(result_files.c.benchmark_id),
        size=result_files.c.size_bytes,
    ),
    "benchmark_files": _rule(
        _KINDS.FILES,
        [benchmark_files.c.benchmark_id, benchmark_files.c.role, benchmark_files.c.position],
        _unnamed(
            benchmark_files,
            benchmark_files.c.benchmark_id,
            benchmark_files.c.role,
            benchmark_files.c.position,
            kept=True,
        ),
        where=and_(benchmark_files.c.kept, benchmark_files.c.sha256.is_not(None)),
        kept=_not_long_ended(benchmark_files.c.benchmark_id),
    ),
    "user_files": _rule(
        _KINDS.FILES,
        [user_files.c.created_at, user_files.c.file_id],
        _unnamed(user_files, user_files.c.created_at, user_files.c.file_id),
        where=user_files.c.created_at < _BEFORE,
        kept=or_(
            _to_be_submitted(user_files.c.sha256),
            exists().where(
                benchmark_files.c.sha256 == user_files.c.sha256,
                benchmark_files.c.kept,
                _not_long_ended(benchmark_files.c.benchmark_id),
            ),
        ),
        size=user_files.c.size_bytes,
    ),
    "benchmarks": _rule(
        _KINDS.BENCHMARKS,
        [benchmarks.c.ended_at, benchmarks.c.benchmark_id],
        _remove_benchmarks,
        where=benchmarks.c.ended_at < _BEFORE,
        kept=_NEEDED,
        step=_SMALL_PAGE,
    ),
    "schedules": _rule(
        _KINDS.BENCHMARKS,
        [schedules.c.schedule_id],
        where=and_(~schedules.c.active, schedules.c.created_at < _BEFORE),
        kept=or_(
            exists().where(schedule_jobs.c.schedule_id == schedules.c.schedule_id),
            exists().where(
                benchmarks.c.schedule_id.is_not(None),
                benchmarks.c.schedule_id == schedules.c.schedule_id,
            ),
        ),
        size=func.length(schedules.c.description),
    ),
    "checks": _rule(
        _KINDS.BENCHMARKS,
        [checks.c.ended_at, checks.c.check_id],
        where=checks.c.ended_at < _BEFORE,
        size=func.length(checks.c.versions) + func.length(checks.c.pairs),
    ),
    "series_changes": _rule(
        _KINDS.BENCHMARKS,
        [series_changes.c.ended_at, series_changes.c.change_id],
        where=series_changes.c.ended_at < _BEFORE,
    ),
    "watched_series": _rule(
        _KINDS.BENCHMARKS,
        [watched_series.c.looked_at, watched_series.c.series_id],
        where=watched_series.c.looked_at < _BEFORE,
        kept=watched_series.c.due_since.is_not(None),
    ),
    "outcomes": _rule(
        _KINDS.BENCHMARKS,
        [outcomes.c.seq],
        # the last one stays: the next gets the number after it
        where=outcomes.c.seq < func.coalesce(_FIRST_KNOWN, _LAST_OUTCOME),
        young=outcomes.c.ended_at >= _BEFORE,
        kept=exists().where(benchmarks.c.benchmark_id == outcomes.c.benchmark_id),
    ),
    "charges": _rule(
        _KINDS.BENCHMARKS,
        [charges.c.settled_at, charges.c.benchmark_id, charges.c.attempt],
        where=charges.c.settled_at < _BEFORE,
        kept=exists().where(benchmarks.c.benchmark_id == charges.c.benchmark_id),
    ),
}
"""The rule of each table, in the order in which they are applied."""
