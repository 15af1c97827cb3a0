"""Names of stored content: users' files, download grants, results and reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Text, bindparam, delete, exists, or_, select, text, update

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.model import wire
from edgeyard.scheduler.model.records import DownloadGrant, Report, ResultFile, UserFile
from edgeyard.scheduler.store.prune import content_in_use
from edgeyard.scheduler.store.rows import Row, flat_row, report_of
from edgeyard.scheduler.store.tables import (
    LIVE_STATES,
    attempts,
    grants,
    reports,
    result_files,
    user_files,
)
from edgeyard.scheduler.store.transaction import Transaction

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
            for table in (user_files, grants, result_files)
        ),
        content_in_use(_SHA256),
    )
)
_EVER = datetime(1, 1, 1, tzinfo=UTC)

_CHUNK = 5_000  # ids in one statement; SQLite takes 32,766 values at most


class SqlFiles:
    """`edgeyard.scheduler.ports.Files` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add_user_file(self, file: UserFile) -> None:
        """Give content a name.

        Raises:
            Conflict: The file's id is taken.
        """
        self._tx.lock_names()
        if not self._tx.insert(user_files, flat_row(file)):
            raise Conflict(f"file {file.file_id} is already there")

    def user_file(self, user_id: str, name: str) -> UserFile:
        """Newest of that name.

        Raises:
            NotFound: The user has none.
        """
        self._tx.lock_names()
        return _user_file(self._tx.row(_NAMED, {"user_id": user_id, "name": name}), name)

    def user_file_by_id(self, file_id: str) -> UserFile:
        """Raises NotFound."""
        self._tx.lock_names()
        return _user_file(
            self._tx.row(select(user_files).where(user_files.c.file_id == file_id)), file_id
        )

    def user_files(self, user_id: str | None, *, limit: int) -> Sequence[UserFile]:
        """Newest first; None: everybody's."""
        query = select(user_files).order_by(*_NEWEST).limit(limit)
        if user_id is not None:
            query = query.where(user_files.c.user_id == user_id)
        return [_user_file(row, "") for row in self._tx.rows(query)]

    def remove_user_file(self, file_id: str) -> None:
        """Forget the name; content stays while others use it.

        Raises:
            NotFound: No such file.
        """
        gone = self._tx.run(delete(user_files).where(user_files.c.file_id == file_id))
        if not gone.rowcount:
            raise NotFound("file", file_id)

    def add_grants(self, opened: Sequence[DownloadGrant]) -> None:
        """Open names under ``/download/``, each for one attempt.

        Raises:
            Conflict: One is taken.
        """
        if opened and not self._tx.insert(grants, [flat_row(grant) for grant in opened]):
            raise Conflict("a download name is already there")

    def grant(self, name: str) -> DownloadGrant:
        """Of a live attempt only.

        Raises:
            NotFound: No such name, or its attempt has ended.
        """
        row = self._tx.row(_GRANT, {"name": name})
        if row is None:
            raise NotFound("download", name)
        return DownloadGrant(**cast("dict[str, Any]", dict(row)))

    def add_result(self, result: ResultFile) -> bool:
        """Replace one of the same name; False if the same content was there already."""
        self._tx.lock([result.benchmark_id])
        self._tx.lock_names()
        was = self._tx.value(
            select(result_files.c.sha256).where(
                result_files.c.benchmark_id == result.benchmark_id,
                result_files.c.attempt == result.attempt,
                result_files.c.name == result.name,
            )
        )
        if was == result.sha256:
            return False
        self._tx.replace(result_files, flat_row(result))
        return True

    def results(self, benchmark_id: str) -> Sequence[ResultFile]:
        """In order of attempt and name."""
        query = (
            select(result_files)
            .where(result_files.c.benchmark_id == benchmark_id)
            .order_by(result_files.c.attempt, result_files.c.name)
        )
        return [ResultFile(**cast("dict[str, Any]", dict(row))) for row in self._tx.rows(query)]

    def add_report(self, report: Report) -> None:
        """The first of an attempt stays; the same content again changes nothing.

        Raises:
            Conflict: Another content is there.
            InvalidInput: It holds what JSON text can't.
        """
        body = wire.dumps(report.report, "/report")
        row = {**flat_row(report), "report": body}
        if self._tx.insert(reports, row):
            return
        stored = self._tx.value(
            select(reports.c.report).where(
                reports.c.benchmark_id == report.benchmark_id,
                reports.c.attempt == report.attempt,
            )
        )
        if wire.loads(cast(str, stored)) != wire.loads(body):
            raise Conflict(
                f"attempt {report.attempt} of benchmark {report.benchmark_id} has another report"
            )

    def amend_report(self, report: Report) -> None:
        """Replace what a stored report says; the file that arrived stays as it is."""
        self._tx.run(
            update(reports)
            .where(
                reports.c.benchmark_id == report.benchmark_id, reports.c.attempt == report.attempt
            )
            .values(report=wire.dumps(report.report, "/report"))
        )

    def reports(self, benchmark_id: str) -> Sequence[Report]:
        """In order of attempt."""
        query = (
            select(reports)
            .where(reports.c.benchmark_id == benchmark_id)
            .order_by(reports.c.attempt)
        )
        return [report_of(row) for row in self._tx.rows(query)]

    def reports_of_many(self, benchmark_ids: Sequence[str]) -> Sequence[Report]:
        """All reports of all of them, in no order."""
        found: list[Report] = []
        for start in range(0, len(benchmark_ids), _CHUNK):
            ids = benchmark_ids[start : start + _CHUNK]
            query = select(reports).where(reports.c.benchmark_id.in_(ids))
            found += [report_of(row) for row in self._tx.rows(query)]
        return found

    def referenced(self, sha256: str, *, before: datetime | None = None) -> bool:
        """Whether any name, grant, result or benchmark still uses the content.

        Args:
            sha256: Of the content.
            before: Benchmarks that ended earlier count no longer; None: all count.
        """
        self._tx.lock_names(exclusively=True)
        return bool(self._tx.value(_REFERENCED, {"sha256": sha256, "before": before or _EVER}))


def _user_file(row: Row | None, name: str) -> UserFile:
    if row is None:
        raise NotFound("file", name)
    return UserFile(**cast("dict[str, Any]", dict(row)))


if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Files

    _: Files = SqlFiles(cast(Transaction, None))
