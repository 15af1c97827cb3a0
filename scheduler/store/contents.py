"""Names of stored content: users' files, download grants, results and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Text,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    update,
)

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.model.checks import CheckStatus
from edgeyard.scheduler.model.files import (
    ContentRemoval,
    DownloadGrant,
    Report,
    ResultFile,
    UserFile,
)
from edgeyard.scheduler.ports import Files
from edgeyard.scheduler.store.cursors import newest_page
from edgeyard.scheduler.store.prune import content_in_use
from edgeyard.scheduler.store.rows import Row, flat_row, report_of
from edgeyard.scheduler.store.tables import (
    LIVE_STATES,
    UtcTime,
    attempts,
    benchmark_files,
    benchmarks,
    checks,
    content_removals,
    file_store,
    grants,
    reports,
    result_files,
    schedules,
    upload_pieces,
    user_files,
)
from edgeyard.scheduler.store.transaction import Transaction, among

_MARK = select(file_store.c.mark, file_store.c.placed)
_GRANT = (
    select(grants)
    .join(
        attempts,
        (attempts.c.benchmark_id == grants.c.benchmark_id)
        & (attempts.c.number == grants.c.attempt),
    )
    .where(grants.c.name == bindparam("name"), text(LIVE_STATES))
)
_NEWEST = (user_files.c.created_at.desc(), user_files.c.file_id.desc())
_NAMED = (
    select(user_files)
    .where(user_files.c.user_id == bindparam("user_id"), user_files.c.name == bindparam("name"))
    .order_by(*_NEWEST)
    .limit(1)
)
_SHA256 = bindparam("sha256", type_=Text)
_REFERENCED = select(
    or_(
        *(
            exists().where(table.c.sha256 == _SHA256)
            for table in (user_files, result_files, upload_pieces)
        ),
        exists().where(
            grants.c.sha256 == _SHA256,
            attempts.c.benchmark_id == grants.c.benchmark_id,
            attempts.c.number == grants.c.attempt,
            text(LIVE_STATES),
        ),
        content_in_use(_SHA256),
    )
)
_RENEW = (
    update(user_files)
    .where(user_files.c.file_id == bindparam("id"))
    .values(created_at=bindparam("at", type_=UtcTime))
    .returning(user_files)
)
_FORGET = delete(user_files).where(user_files.c.file_id == bindparam("id")).returning(user_files)
_OTHER_NAME = (
    select(user_files.c.file_id)
    .where(user_files.c.user_id == bindparam("user_id"), user_files.c.sha256 == _SHA256)
    .limit(1)
)
_SCHEDULE_WITH = (
    select(schedules.c.schedule_id)
    .where(
        schedules.c.user_id == bindparam("user_id"),
        schedules.c.active,
        schedules.c.description.contains(_SHA256),
    )
    .limit(1)
)
_CHECK_WITH = (
    select(checks.c.check_id)
    .where(
        checks.c.user_id == bindparam("user_id"),
        checks.c.status == CheckStatus.RUNNING.value,
        checks.c.versions.contains(_SHA256),
    )
    .limit(1)
)
_DROPPED = update(benchmark_files).values(kept=False).returning(benchmark_files)
_KEPT = (benchmark_files.c.kept, benchmark_files.c.sha256.is_not(None))
_DROP_OF_ENDED = _DROPPED.where(
    *_KEPT,
    benchmark_files.c.sha256 == bindparam("of_sha256", type_=Text),
    exists().where(
        benchmarks.c.benchmark_id == benchmark_files.c.benchmark_id,
        benchmarks.c.user_id == bindparam("of_user", type_=Text),
        benchmarks.c.status.in_([status.value for status in TERMINAL]),
    ),
)
_DROP_INPUTS = _DROPPED.where(*_KEPT, benchmark_files.c.benchmark_id == bindparam("id"))
_DROP_RESULTS = (
    delete(result_files)
    .where(result_files.c.benchmark_id == bindparam("id"))
    .returning(result_files)
)
_REPORTS_OF_MANY = select(reports).where(among(reports.c.benchmark_id))
_REMOVALS = select(content_removals).where(among(content_removals.c.sha256))
_REMOVAL_NUMBER = select(content_removals.c.number).where(content_removals.c.sha256 == _SHA256)
_FORGET_REMOVALS = delete(content_removals).where(content_removals.c.at < bindparam("before"))
_MAX_REMOVAL = timedelta(minutes=1)
"""Maximum time between announcing and removing; the process of an older announcement has died."""

_REMOVALS_KEPT = timedelta(days=1)
"""Longer than any process takes from finding content to adding a name for it."""

_OWNER = select(benchmarks.c.user_id).where(benchmarks.c.benchmark_id == bindparam("id"))
_REPORTS = (
    select(reports).where(reports.c.benchmark_id == bindparam("id")).order_by(reports.c.attempt)
)


class SqlFiles(Files):
    """`Files` in SQL."""

    def __init__(self, tx: Transaction, now: Callable[[], datetime]) -> None:
        self._tx, self._now = tx, now

    def store_mark(self, proposed: str) -> tuple[str, bool]:
        self._tx.insert(file_store, {"only": 1, "mark": proposed, "placed": False})
        row = self._tx.row(_MARK)
        assert row is not None
        return cast(str, row["mark"]), bool(row["placed"])

    def note_mark_placed(self) -> None:
        self._tx.run(update(file_store).values(placed=True))

    def add_user_file(self, file: UserFile) -> UserFile:
        self._tx.lock_names()
        newest = self._tx.row(_NAMED, {"user_id": file.user_id, "name": file.name})
        if newest is not None and newest["sha256"] == file.sha256:
            values = {"id": newest["file_id"], "at": file.created_at}
            if renewed := self._tx.changed(_RENEW, values):
                return _user_file(renewed[0], file.name)
        if not self._tx.insert(user_files, flat_row(file)):
            raise Conflict(f"file {file.file_id} already exists")
        self._tx.name(file.user_id, file.sha256, file.size_bytes)
        return file

    def user_file(self, user_id: str, name: str) -> UserFile:
        self._tx.lock_names()
        return _user_file(self._tx.row(_NAMED, {"user_id": user_id, "name": name}), name)

    def user_content(self, user_id: str, sha256: str) -> UserFile:
        query = select(user_files).order_by(*_NEWEST).limit(1)
        owned = query.where(user_files.c.user_id == user_id, user_files.c.sha256 == sha256)
        return _user_file(self._tx.row(owned), sha256)

    def user_file_by_id(self, file_id: str) -> UserFile:
        self._tx.lock_names()
        return _user_file(
            self._tx.row(select(user_files).where(user_files.c.file_id == file_id)), file_id
        )

    def user_files(self, user_id: str) -> Sequence[UserFile]:
        query = select(user_files).where(*_of_user(user_id, None)).order_by(*_NEWEST)
        return [_user_file(row, "") for row in self._tx.rows(query)]

    def user_file_page(
        self, *, user_id: str | None, name: str | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[UserFile], str | None]:
        query = select(user_files).where(*_of_user(user_id, name))
        rows, following = newest_page(self._tx, query, user_files.c.file_id, limit, cursor)
        return [_user_file(row, "") for row in rows], following

    def count_user_files(self, *, user_id: str | None, name: str | None) -> int:
        query = select(func.count()).select_from(user_files).where(*_of_user(user_id, name))
        return cast(int, self._tx.value(query))

    def remove_user_file(self, file_id: str) -> UserFile:
        rows = self._tx.changed(_FORGET, {"id": file_id})
        if not rows:
            raise NotFound("file", file_id)
        gone = _user_file(rows[0], file_id)
        self._tx.name(gone.user_id, gone.sha256, gone.size_bytes, -1)
        named = {"user_id": gone.user_id, "sha256": gone.sha256}
        if not self._tx.value(_OTHER_NAME, named):
            schedule = self._tx.value(_SCHEDULE_WITH, named)
            if schedule is not None:
                raise Conflict(f"schedule {schedule} uses file {file_id}: end the schedule first")
            check = self._tx.value(_CHECK_WITH, named)
            if check is not None:
                raise Conflict(f"{check} uses file {file_id}: cancel the check first")
            ended = {"of_user": gone.user_id, "of_sha256": gone.sha256}
            self._drop(self._tx.changed(_DROP_OF_ENDED, ended), gone.user_id)
        return gone

    def drop_files(self, benchmark_id: str, user_id: str) -> Sequence[str]:
        self._tx.lock([benchmark_id])
        self._tx.lock_names()
        rows = [
            *self._tx.changed(_DROP_INPUTS, {"id": benchmark_id}),
            *self._tx.changed(_DROP_RESULTS, {"id": benchmark_id}),
        ]
        self._drop(rows, user_id)
        return sorted({cast(str, row["sha256"]) for row in rows})

    def drop_reports(self, benchmark_id: str) -> None:
        self._tx.run(delete(reports).where(reports.c.benchmark_id == benchmark_id))

    def _drop(self, rows: Sequence[Row], user_id: str) -> None:
        for row in rows:
            size_bytes = cast("int | None", row["size_bytes"]) or 0
            self._tx.name(user_id, cast(str, row["sha256"]), size_bytes, -1)

    def add_grants(self, opened: Sequence[DownloadGrant]) -> None:
        if opened and not self._tx.insert(grants, [flat_row(grant) for grant in opened]):
            raise Conflict("a download name already exists")

    def grant(self, name: str) -> DownloadGrant:
        row = self._tx.row(_GRANT, {"name": name})
        if row is None:
            raise NotFound("download", name)
        return DownloadGrant(**cast("dict[str, Any]", dict(row)))

    def add_result(self, result: ResultFile) -> bool:
        self._tx.lock([result.benchmark_id])
        self._tx.lock_names()
        was = self._tx.row(
            select(result_files.c.sha256, result_files.c.size_bytes).where(
                result_files.c.benchmark_id == result.benchmark_id,
                result_files.c.attempt == result.attempt,
                result_files.c.name == result.name,
            )
        )
        if was is not None and was["sha256"] == result.sha256:
            return False
        owner = cast(str, self._tx.value(_OWNER, {"id": result.benchmark_id}))
        if was is not None:
            self._tx.name(owner, cast(str, was["sha256"]), cast(int, was["size_bytes"]), -1)
        self._tx.name(owner, result.sha256, result.size_bytes)
        self._tx.replace(result_files, flat_row(result))
        return True

    def results(self, benchmark_id: str) -> Sequence[ResultFile]:
        query = (
            select(result_files)
            .where(result_files.c.benchmark_id == benchmark_id)
            .order_by(result_files.c.attempt, result_files.c.name)
        )
        return [ResultFile(**cast("dict[str, Any]", dict(row))) for row in self._tx.rows(query)]

    def add_report(self, report: Report) -> None:
        body = strict_json.dumps(report.report, "/report")
        row = {**flat_row(report), "report": body}
        if self._tx.insert(reports, row):
            return
        stored = self._tx.value(
            select(reports.c.report).where(
                reports.c.benchmark_id == report.benchmark_id,
                reports.c.attempt == report.attempt,
            )
        )
        if strict_json.loads(cast(str, stored)) != strict_json.loads(body):
            raise Conflict(
                f"attempt {report.attempt} of benchmark {report.benchmark_id} already has a "
                "different report"
            )

    def amend_report(self, report: Report) -> None:
        self._tx.run(
            update(reports)
            .where(
                reports.c.benchmark_id == report.benchmark_id, reports.c.attempt == report.attempt
            )
            .values(report=strict_json.dumps(report.report, "/report"))
        )

    def reports(self, benchmark_id: str) -> Sequence[Report]:
        return [report_of(row) for row in self._tx.rows(_REPORTS, {"id": benchmark_id})]

    def reports_of_many(self, benchmark_ids: Sequence[str]) -> Sequence[Report]:
        return [report_of(row) for row in self._tx.rows_of(_REPORTS_OF_MANY, benchmark_ids)]

    def referenced(self, sha256: str) -> bool:
        self._tx.lock_names(exclusively=True)
        return bool(self._tx.value(_REFERENCED, {"sha256": sha256}))

    def begin_removal(self, sha256: str) -> bool:
        if self.referenced(sha256):
            return False
        now = self._now()
        self._tx.run(_FORGET_REMOVALS, {"before": now - _REMOVALS_KEPT})
        self._note_removal(sha256, now, under_way=True, more=1)
        return True

    def end_removal(self, sha256: str) -> None:
        self._tx.lock_names(exclusively=True)
        self._note_removal(sha256, self._now(), under_way=False, more=0)

    def removals(self, sha256s: Sequence[str]) -> Mapping[str, ContentRemoval]:
        self._tx.lock_names()
        now = self._now()
        return {
            cast(str, row["sha256"]): ContentRemoval(
                number=cast(int, row["number"]),
                is_under_way=bool(row["under_way"])
                and now - cast(datetime, row["at"]) < _MAX_REMOVAL,
            )
            for row in self._tx.rows_of(_REMOVALS, sha256s)
        }

    def _note_removal(self, sha256: str, now: datetime, *, under_way: bool, more: int) -> None:
        was = self._tx.value(_REMOVAL_NUMBER, {"sha256": sha256})
        number = more if was is None else cast(int, was) + more
        row = {"sha256": sha256, "number": number, "under_way": under_way, "at": now}
        self._tx.replace(content_removals, row)


def _of_user(user_id: str | None, name: str | None) -> list[ColumnElement[bool]]:
    """Return the conditions of a user's files, and of those of a name."""
    conditions = ((user_files.c.user_id, user_id), (user_files.c.name, name))
    return [column == value for column, value in conditions if value is not None]


def _user_file(row: Row | None, name: str) -> UserFile:
    if row is None:
        raise NotFound("file", name)
    return UserFile(**cast("dict[str, Any]", dict(row)))
