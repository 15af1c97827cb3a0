"""Series: their points, what the watch knows of them, and their changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Select,
    bindparam,
    exists,
    func,
    or_,
    select,
    text,
    type_coerce,
    update,
)

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.series import SeriesKey, SeriesPoint, WatchedSeries
from edgeyard.scheduler.model.series_changes import (
    ACTIVE_ALERTS,
    CHANGE_MOVES,
    ChangeStatus,
    SeriesChange,
)
from edgeyard.scheduler.ports import SeriesStore
from edgeyard.scheduler.store.cursors import newest_page
from edgeyard.scheduler.store.rows import Row, flat_row
from edgeyard.scheduler.store.tables import (
    IS_POINT,
    IS_UNDECIDED,
    benchmarks,
    deleted_benchmarks,
    outcomes,
    series_changes,
    series_cursor,
    watched_series,
)
from edgeyard.scheduler.store.transaction import Transaction, among

_KEY = tuple(field.name for field in fields(SeriesKey))
_COLUMNS_OF_POINTS = {
    "lineage": benchmarks.c.series,
    **{name: benchmarks.c[name] for name in _KEY if name != "lineage"},
}
_MEASURED = (
    select(
        outcomes.c.benchmark_id,
        outcomes.c.primary_value,
        outcomes.c.primary_metric,
        outcomes.c.primary_better,
        outcomes.c.verdict,
        outcomes.c.model_sha256,
    )
    .where(among(outcomes.c.benchmark_id), outcomes.c.failure_category.is_(None))
    .order_by(outcomes.c.seq)
)
_PLACED = (
    select(
        series_changes.c.change_id,
        func.row_number()
        .over(
            partition_by=(
                series_changes.c.status,
                series_changes.c.target_uid,
                series_changes.c.user_id,
            ),
            order_by=(series_changes.c.found_at, series_changes.c.change_id),
        )
        .label("place"),
    )
    .where(text(IS_UNDECIDED))
    .subquery()
)
_UNDECIDED = (
    select(series_changes)
    .join(_PLACED, _PLACED.c.change_id == series_changes.c.change_id)
    .where(or_(_PLACED.c.place == 1, series_changes.c.status == ChangeStatus.CONFIRMING.value))
    .order_by(series_changes.c.found_at, series_changes.c.change_id)
)
_CONFIRMING = select(series_changes).where(
    text(IS_UNDECIDED), series_changes.c.status == ChangeStatus.CONFIRMING.value
)
_ACTIVE = [each.value for each in ACTIVE_ALERTS]


class SqlSeries(SeriesStore):
    """`SeriesStore` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def seen_seq(self) -> int:
        return cast(int, self._tx.value(select(func.max(series_cursor.c.seen_seq))) or 0)

    def set_seen_seq(self, seq: int) -> None:
        self._tx.replace(series_cursor, {"only": 1, "seen_seq": seq})

    def points(self, key: SeriesKey, *, until: datetime, limit: int) -> Sequence[SeriesPoint]:
        ended_at = benchmarks.c.ended_at
        deleted = deleted_benchmarks.c.benchmark_id == benchmarks.c.benchmark_id
        rows = self._tx.rows(
            select(benchmarks.c.benchmark_id, ended_at)
            .where(
                text(IS_POINT),
                *(column == getattr(key, name) for name, column in _COLUMNS_OF_POINTS.items()),
                ended_at <= until,
                ~exists().where(deleted),
            )
            .order_by(ended_at.desc(), benchmarks.c.benchmark_id.desc())
            .limit(limit)
        )
        ids = [row["benchmark_id"] for row in rows]
        measured = {row["benchmark_id"]: row for row in self._tx.rows_of(_MEASURED, ids)}
        return [_point(row, measured.get(row["benchmark_id"], {})) for row in reversed(rows)]

    def watched(self, series_id: str) -> WatchedSeries:
        query = select(watched_series).where(watched_series.c.series_id == series_id)
        row = self._tx.row(self._locking(query))
        if row is None:
            raise NotFound("series", series_id)
        return _watched(row)

    def watched_many(self, series_ids: Collection[str]) -> Sequence[WatchedSeries]:
        query = select(watched_series).where(among(watched_series.c.series_id))
        return [_watched(row) for row in self._tx.rows_of(query, sorted(series_ids))]

    def save_watched(self, series: WatchedSeries) -> None:
        self._tx.replace(watched_series, with_flat_key(series))

    def mark_due(self, keys: Collection[SeriesKey], now: datetime) -> None:
        for key in sorted(keys, key=lambda each: each.series_id):  # all lock in one order
            self._tx.insert(watched_series, with_flat_key(WatchedSeries(key=key)))
            mine = watched_series.c.series_id == key.series_id
            not_due = watched_series.c.due_since.is_(None)
            self._tx.run(update(watched_series).where(mine, not_due).values(due_since=now))

    def due(self, limit: int) -> Sequence[WatchedSeries]:
        due_since = watched_series.c.due_since
        rows = self._tx.rows(
            select(watched_series)
            .where(due_since.is_not(None))
            .order_by(due_since, watched_series.c.series_id)
            .limit(limit)
        )
        return [_watched(row) for row in rows]

    def add_change(self, change: SeriesChange) -> None:
        if not self._tx.insert(series_changes, _change_row(change)):
            raise Conflict(
                f"the change {change.change_id} is stored already, or its series has one"
            )

    def save_change(self, change: SeriesChange) -> None:
        was = self.change(change.change_id).status
        if change.status is not was and change.status not in CHANGE_MOVES[was]:
            raise Conflict(f"{change.change_id} is {was} and can't become {change.status}")
        mine = series_changes.c.change_id == change.change_id
        self._tx.run(update(series_changes).where(mine).values(_change_row(change)))

    def change(self, change_id: str) -> SeriesChange:
        query = select(series_changes).where(series_changes.c.change_id == change_id)
        row = self._tx.row(self._locking(query))
        if row is None:
            raise NotFound("alert", change_id)
        return _change(row)

    def changes_of(
        self,
        series_ids: Collection[str],
        *,
        limit: int,
        status: Collection[ChangeStatus] = frozenset(ChangeStatus),
    ) -> Sequence[SeriesChange]:
        query = select(series_changes).where(
            among(series_changes.c.series_id),
            series_changes.c.status.in_(sorted(each.value for each in status)),
        )
        found = [_change(row) for row in self._tx.rows_of(query, sorted(series_ids))]
        return sorted(found, key=lambda each: (each.found_at, each.change_id), reverse=True)[:limit]

    def undecided(self) -> Sequence[SeriesChange]:
        return [_change(row) for row in self._tx.rows(_UNDECIDED)]

    def confirming(self) -> Sequence[SeriesChange]:
        return [_change(row) for row in self._tx.rows(_CONFIRMING)]

    def owners(self, target_uid: str, since: datetime) -> frozenset[str]:
        query = (
            select(watched_series.c.user_id)
            .distinct()
            .where(
                watched_series.c.target_uid == target_uid,
                or_(watched_series.c.looked_at >= since, watched_series.c.due_since.is_not(None)),
            )
        )
        return frozenset(cast(str, row["user_id"]) for row in self._tx.rows(query))

    def move_times(self, by_s: float) -> None:
        by = bindparam("by_us", type_=BigInteger)
        found_at = type_coerce(series_changes.c.found_at, BigInteger) + by
        moving = update(series_changes).where(text(IS_UNDECIDED)).values(found_at=found_at)
        self._tx.run(moving, {"by_us": round(by_s * 1e6)})

    def changes_page(
        self,
        *,
        user_id: str | None,
        status: Collection[ChangeStatus],
        lineage: str | None,
        target_uid: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[Sequence[SeriesChange], str | None]:
        query = select(series_changes).where(
            series_changes.c.status.in_([each.value for each in status])
        )
        for column, wanted in (
            (series_changes.c.user_id, user_id),
            (series_changes.c.lineage, lineage),
            (series_changes.c.target_uid, target_uid),
        ):
            if wanted is not None:
                query = query.where(column == wanted)
        rows, following = newest_page(
            self._tx,
            query,
            series_changes.c.change_id,
            limit,
            cursor,
            time_name="found_at",
        )
        return [_change(row) for row in rows], following

    def count_alerts(self, user_id: str | None) -> int:
        query = (
            select(func.count())
            .select_from(series_changes)
            .where(series_changes.c.status.in_(_ACTIVE))
        )
        if user_id is not None:
            query = query.where(series_changes.c.user_id == user_id)
        return cast(int, self._tx.value(query))

    def _locking(self, query: Select[Any]) -> Select[Any]:
        return query.with_for_update() if self._tx.locks else query


def _point(row: Row, measured: Row) -> SeriesPoint:
    value = cast("float | None", measured.get("primary_value"))
    return SeriesPoint(
        benchmark_id=cast(str, row["benchmark_id"]),
        ended_at=cast(datetime, row["ended_at"]),
        value=None if measured.get("verdict") == "invalid" else value,
        better=cast(str, measured.get("primary_better") or ""),
        metric=cast(str, measured.get("primary_metric") or ""),
        model_sha256=cast("str | None", measured.get("model_sha256")),
    )


def with_flat_key(series: WatchedSeries | SeriesChange) -> dict[str, object]:
    """Return the row of what is stored with the key of its series."""
    row = flat_row(series)
    del row["key"]
    return {**row, **flat_row(series.key), "series_id": series.key.series_id}


def _change_row(change: SeriesChange) -> dict[str, object]:
    return {
        **with_flat_key(change),
        "not_tested": strict_json.dumps(list(change.not_tested), "/not_tested"),
    }


def _nested(row: Row) -> dict[str, Any]:
    """Return the values of a row with its series as `SeriesKey`."""
    values = cast("dict[str, Any]", dict(row))
    del values["series_id"]
    key = SeriesKey(**{name: values.pop(name) for name in _KEY})
    return {**values, "key": key}


def _watched(row: Row) -> WatchedSeries:
    return WatchedSeries(**_nested(row))


def _change(row: Row) -> SeriesChange:
    values = _nested(row)
    return SeriesChange(
        **{
            **values,
            "status": ChangeStatus(values["status"]),
            "not_tested": tuple(strict_json.loads(values["not_tested"])),
        }
    )
