"""The repository of names of stored content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgeyard.scheduler.model.files import (
    ContentRemoval,
    DownloadGrant,
    Report,
    ResultFile,
    UserFile,
)


class Files(Protocol):
    """Stores the names of content: users' files, downloads, results and reports."""

    def store_mark(self, proposed: str) -> tuple[str, bool]:
        """Return the mark of the file store that belongs to this database.

        Args:
            proposed: Becomes the mark if there is none yet.

        Returns:
            The mark, and whether `note_mark_placed` was called: the file store has it.
        """
        ...

    def note_mark_placed(self) -> None:
        """Note that the file store has the mark."""
        ...

    def add_user_file(self, file: UserFile) -> UserFile:
        """Give content a name, and return the file as stored.

        If the newest file of that name has the same content, it is renewed.

        Raises:
            Conflict: The file's id is taken.
        """
        ...

    def user_file(self, user_id: str, name: str) -> UserFile:
        """Return a user's newest file of that name.

        Raises:
            NotFound: The user has no such file.
        """
        ...

    def user_content(self, user_id: str, sha256: str) -> UserFile:
        """Return a user's newest file with this content.

        Raises:
            NotFound: The user has no such file.
        """
        ...

    def user_file_by_id(self, file_id: str) -> UserFile:
        """Return a file.

        Raises:
            NotFound: There is no such file.
        """
        ...

    def user_files(self, user_id: str) -> Sequence[UserFile]:
        """Return all uploaded files of a user, newest first."""
        ...

    def user_file_page(
        self, *, user_id: str | None, name: str | None, limit: int, cursor: str | None
    ) -> tuple[Sequence[UserFile], str | None]:
        """Return uploaded files, newest first, and the cursor of the next page if there is one.

        Args:
            user_id: Whose; None: everybody's.
            name: Only those of this name; None: all.
            limit: Maximum number of files.
            cursor: Of the page; None: the first one.

        Raises:
            InvalidInput: The cursor is none of this method.
        """
        ...

    def count_user_files(self, *, user_id: str | None, name: str | None) -> int:
        """Count uploaded files; the arguments are those of `user_file_page`."""
        ...

    def remove_user_file(self, file_id: str) -> UserFile:
        """Remove a name, and return the file that it was.

        With the user's last name of a content, their ended benchmarks no longer keep that content;
        live ones do.

        Raises:
            NotFound: There is no such file.
            Conflict: An active schedule of the user needs it.
        """
        ...

    def drop_files(self, benchmark_id: str, user_id: str) -> Sequence[str]:
        """Remove files and results of an ended benchmark, not its report; return their hashes."""
        ...

    def drop_reports(self, benchmark_id: str) -> None:
        """Remove the reports of a benchmark."""
        ...

    def add_grants(self, opened: Sequence[DownloadGrant]) -> None:
        """Create download names under ``/download/``, each for one attempt.

        Raises:
            Conflict: A name is taken.
        """
        ...

    def grant(self, name: str) -> DownloadGrant:
        """Return the grant of a download name.

        Raises:
            NotFound: There is no such name, or its attempt has ended.
        """
        ...

    def add_result(self, result: ResultFile) -> bool:
        """Store a result file, replacing one of the same name; return whether it is new content."""
        ...

    def results(self, benchmark_id: str) -> Sequence[ResultFile]:
        """Return a benchmark's result files, in order of attempt and name."""
        ...

    def add_report(self, report: Report) -> None:
        """Store the report of an attempt; the same report again changes nothing.

        Raises:
            Conflict: The attempt has another report.
            InvalidInput: It holds values that JSON text cannot represent.
        """
        ...

    def amend_report(self, report: Report) -> None:
        """Replace the content of a stored report; the uploaded file stays as it is."""
        ...

    def reports(self, benchmark_id: str) -> Sequence[Report]:
        """Return a benchmark's reports, in order of attempt."""
        ...

    def reports_of_many(self, benchmark_ids: Sequence[str]) -> Sequence[Report]:
        """Return all reports of these benchmarks, in no particular order."""
        ...

    def referenced(self, sha256: str) -> bool:
        """Return whether a name, grant, result, benchmark or schedule still uses the content."""
        ...

    def begin_removal(self, sha256: str) -> bool:
        """Announce that content is about to be removed; return False if something uses it.

        Once this is committed, no transaction names the content until `end_removal`, or for a
        minute if the process that announced the removal dies.
        """
        ...

    def end_removal(self, sha256: str) -> None:
        """Record that the removal of content is over, whether or not it is gone."""
        ...

    def removals(self, sha256s: Sequence[str]) -> Mapping[str, ContentRemoval]:
        """Return the newest removal of each content, by hash.

        In a unit of work that writes no other one is announced until its end. Those of more than a
        day ago are forgotten.
        """
        ...
