"""The repository of names of stored content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeyard.scheduler.model.files import DownloadGrant, Report, ResultFile, UserFile


class Files(Protocol):
    """Names of stored content: users' files, downloads, results."""

    def add_user_file(self, file: UserFile) -> UserFile:
        """Give content a name; the same content under its newest name again renews that one."""
        ...

    def user_file(self, user_id: str, name: str) -> UserFile:
        """Newest of that name. Raises NotFound."""
        ...

    def user_file_by_id(self, file_id: str) -> UserFile:
        """Raises NotFound."""
        ...

    def user_files(self, user_id: str | None, *, limit: int) -> Sequence[UserFile]:
        """Newest first; None: everybody's."""
        ...

    def remove_user_file(self, file_id: str) -> UserFile:
        """Forget the name; returns what it was.

        With the user's last name of a content, their ended benchmarks stop keeping it, too.
        Raises NotFound, and Conflict where an active schedule of the user runs with it.
        """
        ...

    def drop_files(self, benchmark_id: str, user_id: str) -> Sequence[str]:
        """Let an ended benchmark keep no files and results but its report; returns their hashes."""
        ...

    def add_grants(self, opened: Sequence[DownloadGrant]) -> None:
        """Open names under ``/download/`` for attempts. Raises Conflict: one is taken."""
        ...

    def grant(self, name: str) -> DownloadGrant:
        """Of a live attempt only. Raises NotFound."""
        ...

    def add_result(self, result: ResultFile) -> bool:
        """Replace one of the same name; False if the same content was there already."""
        ...

    def results(self, benchmark_id: str) -> Sequence[ResultFile]: ...

    def add_report(self, report: Report) -> None:
        """The first of an attempt stays; another content is a Conflict."""
        ...

    def amend_report(self, report: Report) -> None:
        """Replace what a stored report says; the file that arrived stays as it is."""
        ...

    def reports(self, benchmark_id: str) -> Sequence[Report]: ...

    def reports_of_many(self, benchmark_ids: Sequence[str]) -> Sequence[Report]:
        """All reports of all of them, in no order; for tables."""
        ...

    def referenced(self, sha256: str) -> bool:
        """Whether any name, grant, result, benchmark or schedule still uses the content."""
        ...
