"""Benchmarks, their descriptions, files and tags; pages by key and counts that stay cheap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Table,
    Text,
    TextClause,
    Update,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    tuple_,
    type_coerce,
    union_all,
    update,
)

from edgeyard.errors import ConcurrentUpdate, Conflict, NotFound
from edgeyard.scheduler.model import strict_json, wire
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    ALLOWED_MOVES,
    Benchmark,
    BenchmarkFile,
    Status,
    WaitingReason,
)
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.ports import BenchmarkFilter, Benchmarks, StoredSeries
from edgeyard.scheduler.store import tables
from edgeyard.scheduler.store.canaries import HAS_DRIFTED
from edgeyard.scheduler.store.cursors import (
    cursor_of,
    key_cursor_of,
    read_cursor,
    read_key_cursor,
)
from edgeyard.scheduler.store.progress import ProgressBuffer
from edgeyard.scheduler.store.rows import Row, benchmark_of, benchmark_row, file_of, file_row
from edgeyard.scheduler.store.tables import (
    IS_POINT,
    UtcTime,
    attempts,
    benchmark_files,
    benchmark_tags,
    benchmarks,
    deleted_benchmarks,
    outcomes,
)
from edgeyard.scheduler.store.transaction import Transaction, among

_WITH_BODY = select(benchmarks, tables.descriptions.c.body).join(tables.descriptions)
_GET = _WITH_BODY.where(benchmarks.c.benchmark_id == bindparam("id"))
_FILES = (
    select(benchmark_files)
    .where(benchmark_files.c.benchmark_id == bindparam("id"))
    .order_by(benchmark_files.c.role, benchmark_files.c.position)
)
_FORGET_FILES = (
    delete(benchmark_files)
    .where(benchmark_files.c.benchmark_id == bindparam("id"))
    .returning(benchmark_files)
)
_STATE = select(benchmarks.c.status, benchmarks.c.version).where(
    benchmarks.c.benchmark_id == bindparam("id")
)
_SERIES = {
    "user_id": benchmarks.c.user_id,
    "lineage": benchmarks.c.series,
    "target_uid": benchmarks.c.target_uid,
    "engine": benchmarks.c.engine,
    "benchmark_type": benchmarks.c.benchmark_type,
    "work": benchmarks.c.work,
}
"""What benchmarks of one series have in common, in the order of lists."""

_IMMUTABLE = frozenset(
    {
        "benchmark_id",
        "user_id",
        "campaign_id",
        "schedule_id",
        "name",
        "submit_time",
        "family",
        "engine",
        "benchmark_type",
        "model",
        "start_time",
        "retry_of",
        "series",
    }
)
_LIFE = tuple(column.name for column in benchmarks.c if column.name not in _IMMUTABLE)
# No index is on these but that of live ones, so the others stay as they are.
_WAITING = ("waiting_reason", "waiting_sentence", "priority", "unavailable_since", "version")


def _saving(names: Sequence[str]) -> Update:
    """Change a benchmark whose version is the one that was seen; the values are `_life`'s."""
    return (
        update(benchmarks)
        .where(
            benchmarks.c.benchmark_id == bindparam("id"),
            benchmarks.c.version == bindparam("was"),
        )
        .values({name: bindparam(name) for name in names})
    )


_SAVE = _saving(_LIFE)
_SAVE_ALL = _SAVE.where(benchmarks.c.status == bindparam("before"))
_SAVE_WAITING = _saving(_WAITING)
_GET_MANY = _WITH_BODY.where(among(benchmarks.c.benchmark_id))
_FILES_OF_MANY = (
    select(benchmark_files)
    .where(among(benchmark_files.c.benchmark_id))
    .order_by(benchmark_files.c.role, benchmark_files.c.position)
)
_VERSIONS = select(benchmarks.c.benchmark_id, benchmarks.c.version).where(
    among(benchmarks.c.benchmark_id)
)
_DELETED = select(deleted_benchmarks.c.benchmark_id).where(among(deleted_benchmarks.c.benchmark_id))
_LIVE_VERSIONS = select(benchmarks.c.benchmark_id, benchmarks.c.version).where(
    text(tables.LIVE_STATUSES)
)
# Also those that have ended and whose attempt still runs: the times of both stay in one scale.
_UNSETTLED = or_(
    cast("ColumnElement[bool]", text(f"benchmarks.{tables.LIVE_STATUSES}")),
    benchmarks.c.benchmark_id.in_(
        select(attempts.c.benchmark_id).where(attempts.c.state != AttemptState.ENDED.value)
    ),
)
_UNSETTLED_IDS = select(benchmarks.c.benchmark_id).where(_UNSETTLED)


def _moving(table: Table, names: Sequence[str], moved_rows: ColumnElement[bool]) -> Update:
    """Add ``by_us`` to these times of rows."""
    by = bindparam("by_us", type_=BigInteger)
    moved = {name: type_coerce(table.c[name], BigInteger) + by for name in names}
    if "version" in table.c:  # who has read them reads them again
        moved["version"] = table.c.version + 1
    return update(table).where(moved_rows).values(moved)


_MOVE_TIMES = (
    _moving(benchmark_tags, ("submit_time",), benchmark_tags.c.benchmark_id.in_(_UNSETTLED_IDS)),
    _moving(
        attempts,
        ("created_at", "queued_at", "started_at", "task_ended_at", "result_at", "ended_at"),
        attempts.c.benchmark_id.in_(_UNSETTLED_IDS),
    ),
    _moving(benchmarks, ("submit_time", "started_at", "unavailable_since", "ended_at"), _UNSETTLED),
)


class SqlBenchmarks(Benchmarks):
    """`Benchmarks` in SQL.

    What was submitted does not change: `save` writes the life of a benchmark, not its description,
    owner, campaign or time; nor its files, which `save_files` writes.
    """

    def __init__(self, tx: Transaction, progress: ProgressBuffer) -> None:
        self._tx = tx
        self._progress = progress

    def add(self, benchmark: Benchmark) -> None:
        benchmark_id = benchmark.benchmark_id
        body = strict_json.dumps(wire.description_to_json(benchmark.description))
        if not self._tx.insert(benchmarks, benchmark_row(benchmark)):
            raise Conflict(f"benchmark {benchmark_id} already exists")
        self._tx.insert_all(tables.descriptions, [{"benchmark_id": benchmark_id, "body": body}])
        self._add_files(benchmark)
        self._tx.insert_all(
            benchmark_tags,
            [
                {"tag": tag, "submit_time": benchmark.submit_time, "benchmark_id": benchmark_id}
                for tag in dict.fromkeys(benchmark.description.tags)
            ],
        )
        self._tx.count_move(None, benchmark.status)

    def bound_pending(self, max_pending: int) -> None:
        self._tx.bound_pending(max_pending)

    def lock(self, benchmark_ids: Iterable[str]) -> None:
        self._tx.lock(benchmark_ids)

    def move_times(self, by_s: float) -> None:
        self._tx.lock(cast(str, row["benchmark_id"]) for row in self._tx.rows(_UNSETTLED_IDS))
        for statement in _MOVE_TIMES:
            self._tx.run(statement, {"by_us": round(by_s * 1e6)})

    def get(self, benchmark_id: str) -> Benchmark:
        self._tx.lock([benchmark_id])
        row = self._tx.row(_GET, {"id": benchmark_id})
        if row is None:
            raise NotFound("benchmark", benchmark_id)
        return self._progress.on_benchmark(benchmark_of(row, self._files(benchmark_id)))

    def save(self, benchmark: Benchmark) -> Benchmark:
        benchmark_id = benchmark.benchmark_id
        self._tx.lock([benchmark_id])
        stored = self._tx.row(_STATE, {"id": benchmark_id})
        if stored is None:
            raise NotFound("benchmark", benchmark_id)
        was = Status(cast(str, stored["status"]))
        if stored["version"] != benchmark.version:
            raise ConcurrentUpdate(f"benchmark {benchmark_id} was changed by another request")
        if benchmark.status is not was and benchmark.status not in ALLOWED_MOVES[was]:
            raise Conflict(f"benchmark {benchmark_id} is {was} and can't become {benchmark.status}")
        saved = replace(benchmark, version=benchmark.version + 1)
        self._tx.run(_SAVE, _life(saved))
        if benchmark.status is not was:
            self._tx.count_move(was, benchmark.status)
        return saved

    def save_all(self, changed: Sequence[Benchmark], before: Status) -> Sequence[Benchmark]:
        if not changed:
            return ()
        self._tx.lock(benchmark.benchmark_id for benchmark in changed)
        (status,) = {benchmark.status for benchmark in changed}
        saved = [replace(benchmark, version=benchmark.version + 1) for benchmark in changed]
        rows = [{**_life(benchmark), "before": before.value} for benchmark in saved]
        allowed = status in ALLOWED_MOVES[before]
        if not allowed or self._tx.run(_SAVE_ALL, rows).rowcount != len(rows):
            raise ConcurrentUpdate(f"one of {len(rows)} benchmarks can't become {status}")
        self._tx.count_move(before, status, len(saved))
        return saved

    def save_waiting(self, changed: Sequence[Benchmark]) -> Sequence[Benchmark]:
        if not changed:
            return ()
        saved = [replace(benchmark, version=benchmark.version + 1) for benchmark in changed]
        self._tx.lock(benchmark.benchmark_id for benchmark in changed)
        rows = [_life(benchmark, _WAITING) for benchmark in saved]
        if self._tx.run(_SAVE_WAITING, rows).rowcount != len(rows):
            raise ConcurrentUpdate(f"one of {len(saved)} benchmarks was changed by another request")
        return saved

    def save_files(self, benchmark: Benchmark) -> Benchmark:
        saved = self.save(benchmark)
        for row in self._tx.changed(_FORGET_FILES, {"id": benchmark.benchmark_id}):
            if row["kept"] and row["sha256"] is not None:
                self._tx.name(
                    benchmark.user_id,
                    cast(str, row["sha256"]),
                    cast("int | None", row["size_bytes"]) or 0,
                    -1,
                )
        self._add_files(benchmark)
        return saved

    def unchanged(self, seen: Sequence[Benchmark]) -> frozenset[str]:
        self._tx.lock(benchmark.benchmark_id for benchmark in seen)
        version_by_id = {each.benchmark_id: each.version for each in seen}
        rows = self._tx.rows_of(_VERSIONS, list(version_by_id))
        stored = {cast(str, row["benchmark_id"]): row["version"] for row in rows}
        return frozenset(key for key, version in stored.items() if version_by_id[key] == version)

    def live_versions(self) -> Mapping[str, int]:
        return {
            cast(str, row["benchmark_id"]): cast(int, row["version"])
            for row in self._tx.rows(_LIVE_VERSIONS)
        }

    def pending_after_losses(self) -> Sequence[str]:
        rows = self._tx.rows(
            select(benchmarks.c.benchmark_id).where(
                benchmarks.c.status == Status.PENDING.value, benchmarks.c.lost_in_a_row > 0
            )
        )
        return [cast(str, row["benchmark_id"]) for row in rows]

    def get_many(self, benchmark_ids: Sequence[str]) -> Sequence[Benchmark]:
        self._tx.lock(benchmark_ids)
        return self._with_files(self._tx.rows_of(_GET_MANY, benchmark_ids))

    def page(
        self, which: BenchmarkFilter, *, limit: int, cursor: str | None, skip: int = 0
    ) -> tuple[Sequence[Benchmark], str | None]:
        after = None if cursor is None else read_cursor(cursor)
        keys = _page_keys(which, limit + 1, after, skip)
        if keys is None:
            return [], None
        found = keys.subquery("page")
        rows = self._tx.rows(
            _WITH_BODY.join(found, found.c.benchmark_id == benchmarks.c.benchmark_id).order_by(
                found.c.submit_time.desc(), found.c.benchmark_id.desc()
            )
        )
        shown = self._with_files(rows[:limit])
        if not shown or len(rows) <= limit:
            return shown, None
        return shown, cursor_of(shown[-1].submit_time, shown[-1].benchmark_id)

    def delete(self, benchmark_id: str, at: datetime) -> None:
        if not self._tx.insert(deleted_benchmarks, {"benchmark_id": benchmark_id, "at": at}):
            raise NotFound("benchmark", benchmark_id)

    def deleted(self, benchmark_ids: Sequence[str]) -> frozenset[str]:
        rows = self._tx.rows_of(_DELETED, benchmark_ids)
        return frozenset(cast(str, row["benchmark_id"]) for row in rows)

    def series(
        self, which: BenchmarkFilter, *, limit: int, cursor: str | None
    ) -> tuple[Sequence[StoredSeries], str | None]:
        query = (
            _selected(
                which,
                *(column.label(name) for name, column in _SERIES.items()),
                func.count().label("points"),
                func.min(benchmarks.c.ended_at).label("first_at"),
                func.max(benchmarks.c.ended_at).label("last_at"),
                func.max(benchmarks.c.benchmark_id).label("member_id"),
            )
            .where(*_is_point(which), *_conditions(which))
            .group_by(*_SERIES.values())
            .order_by(*_SERIES.values())
            .limit(limit + 1)
        )
        if cursor is not None:
            after = read_key_cursor(cursor, len(_SERIES))
            query = query.where(tuple_(*_SERIES.values()) > tuple_(*after))
        found = [_stored_series(row) for row in self._tx.rows(query)]
        shown = found[:limit]
        if len(found) <= limit:
            return shown, None
        return shown, key_cursor_of([getattr(shown[-1].key, name) for name in _SERIES])

    def count(self, which: BenchmarkFilter) -> int:
        if which == BenchmarkFilter(status=which.status):
            stored = self.counts_by_status()
            return sum(
                stored[status] for status in (stored if which.status is None else which.status)
            )
        conditions = _conditions(which)
        if which.status is not None:
            conditions.append(benchmarks.c.status.in_([s.value for s in which.status]))
        return cast(int, self._tx.value(_selected(which, func.count()).where(*conditions)))

    def counts_by_status(self) -> Mapping[Status, int]:
        return {
            Status(cast(str, row["status"])): cast(int, row["stored"])
            for row in self._tx.rows(select(tables.status_counts))
        }

    def counts_by_waiting_reason(self) -> Mapping[WaitingReason, int]:
        rows = self._tx.rows(
            select(benchmarks.c.waiting_reason, func.count().label("waiting"))
            .where(
                benchmarks.c.status == Status.PENDING.value,
                benchmarks.c.waiting_reason.is_not(None),
            )
            .group_by(benchmarks.c.waiting_reason)
        )
        return {
            WaitingReason(cast(str, row["waiting_reason"])): cast(int, row["waiting"])
            for row in rows
        }

    def _files(self, benchmark_id: str) -> list[BenchmarkFile]:
        return [file_of(row) for row in self._tx.rows(_FILES, {"id": benchmark_id})]

    def _add_files(self, benchmark: Benchmark) -> None:
        self._tx.lock_names()
        self._tx.insert_all(
            benchmark_files, [file_row(benchmark.benchmark_id, file) for file in benchmark.files]
        )
        for file in benchmark.files:
            if file.sha256 is not None:
                self._tx.name(benchmark.user_id, file.sha256, file.size_bytes or 0)

    def _with_files(self, rows: Sequence[Row]) -> list[Benchmark]:
        files: dict[object, list[BenchmarkFile]] = {row["benchmark_id"]: [] for row in rows}
        for row in self._tx.rows_of(_FILES_OF_MANY, list(files)):
            files[row["benchmark_id"]].append(file_of(row))
        return [
            self._progress.on_benchmark(benchmark_of(row, files[row["benchmark_id"]]))
            for row in rows
        ]


def _stored_series(row: Row) -> StoredSeries:
    values = cast("dict[str, Any]", dict(row))
    key = SeriesKey(**{name: values.pop(name) for name in _SERIES})
    return StoredSeries(key=key, **values)


def _life(saved: Benchmark, names: Sequence[str] = _LIFE) -> Row:
    """Return the values of `_saving`, for a benchmark whose version is the next one."""
    row = benchmark_row(saved)
    values = {name: row[name] for name in names}
    return {**values, "id": saved.benchmark_id, "was": saved.version - 1}


def _selected(which: BenchmarkFilter, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select from the tags' own table where a tag is asked for: it has few rows, in page order."""
    if which.tag is None:
        return select(*columns).select_from(benchmarks)
    return select(*columns).select_from(benchmark_tags.join(benchmarks))


def _conditions(which: BenchmarkFilter) -> list[ColumnElement[bool]]:
    """Return all but the status."""
    wanted = {
        benchmarks.c.user_id: which.user_id,
        benchmarks.c.family: which.family,
        benchmarks.c.engine: which.engine,
        benchmarks.c.benchmark_type: which.benchmark_type,
        benchmarks.c.campaign_id: which.campaign_id,
        benchmarks.c.schedule_id: which.schedule_id,
        benchmarks.c.name: which.name,
        benchmarks.c.target_uid: which.target_uid,
        benchmarks.c.model: which.model,
        benchmarks.c.series: which.series,
        benchmark_tags.c.tag: which.tag,
    }
    found = [column == value for column, value in wanted.items() if value is not None]
    if which.verdict is not None:
        found.append(_has_verdict(which.verdict))
    time = (benchmarks if which.tag is None else benchmark_tags).c.submit_time
    if which.submitted_from is not None:
        found.append(time >= which.submitted_from)
    if which.submitted_before is not None:
        found.append(time < which.submitted_before)
    if not which.include_deleted:
        deleted = deleted_benchmarks.c.benchmark_id
        found.append(~exists().where(deleted == benchmarks.c.benchmark_id))
    return found


def _is_point(which: BenchmarkFilter) -> Sequence[ColumnElement[bool] | TextClause]:
    """Return the conditions of points, by which a database reads these in the order of series.

    One lineage of all users is read by its own index.
    """
    if which.series is None or which.user_id is not None:
        return [text(IS_POINT)]
    completed = _unindexed(benchmarks.c.status) == Status.COMPLETED.value
    return [completed, benchmarks.c.target_uid.is_not(None)]


def _unindexed(column: ColumnElement[str]) -> ColumnElement[str]:
    """Return a value that no index has: SQLite, which knows no numbers of rows, would read all of a
    user or status by the index of that, instead of the few rows of a lineage."""
    return column.concat("")


def _has_verdict(verdict: str) -> ColumnElement[bool]:
    """Return whether a benchmark has a verdict as it is shown: see `drifted` of canaries."""

    def measured(word: str) -> ColumnElement[bool]:
        return exists().where(
            outcomes.c.benchmark_id == benchmarks.c.benchmark_id, outcomes.c.verdict == word
        )

    if verdict == "suspect":
        return or_(measured(verdict), and_(measured("comparable"), HAS_DRIFTED))
    if verdict == "comparable":
        return and_(measured(verdict), ~HAS_DRIFTED)
    return measured(verdict)


def _page_keys(
    which: BenchmarkFilter, limit: int, after: tuple[datetime, str] | None, skip: int
) -> Select[Any] | None:
    """Return the time and id of a page's rows; None where the filter asks for no status at all.

    One branch a status: each walks its own index in page order and ends after ``limit`` rows,
    where ``status IN (…)`` would read and sort everything that matches.
    """
    key = benchmarks if which.tag is None else benchmark_tags
    time, benchmark_id = key.c.submit_time, key.c.benchmark_id
    query = _selected(which, time, benchmark_id)
    of_status: ColumnElement[str] = benchmarks.c.status
    if which.series is None:
        query = query.where(*_conditions(which))
    else:
        of_status = _unindexed(benchmarks.c.status)
        query = query.where(*_conditions(replace(which, user_id=None)))
        if which.user_id is not None:
            query = query.where(_unindexed(benchmarks.c.user_id) == which.user_id)
    if after is not None:
        query = query.where(tuple_(time, benchmark_id) < tuple_(*after, types=[UtcTime(), Text()]))
    query = query.order_by(time.desc(), benchmark_id.desc()).limit(limit + skip)
    if which.status is None:
        return query.limit(limit).offset(skip) if skip else query
    branches = [
        select(query.where(of_status == status.value).subquery()) for status in sorted(which.status)
    ]
    if not branches:
        return None
    merged = union_all(*branches).subquery()
    return (
        select(merged)
        .order_by(merged.c.submit_time.desc(), merged.c.benchmark_id.desc())
        .limit(limit)
        .offset(skip)
    )
