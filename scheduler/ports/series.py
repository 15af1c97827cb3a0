"""The repository of series: their points, what the watch knows of them, and their changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.series import SeriesKey, SeriesPoint, WatchedSeries
from edgeyard.scheduler.model.series_changes import ChangeStatus, SeriesChange


class SeriesStore(Protocol):
    """Stores what is known of series beyond the benchmarks that are their points."""

    def seen_seq(self) -> int:
        """Return the number of the last event that the watch has followed."""
        ...

    def set_seen_seq(self, seq: int) -> None:
        """Store that number."""
        ...

    def points(self, key: SeriesKey, *, until: datetime, limit: int) -> Sequence[SeriesPoint]:
        """Return the newest points of a series, the oldest of them first.

        Args:
            key: The series.
            until: Points that ended later, by a clock that was wrong, are left out.
            limit: Maximum number.
        """
        ...

    def watched(self, series_id: str) -> WatchedSeries:
        """Return the state of a series; a unit of work that writes locks it until its end.

        Raises:
            NotFound: The watch has seen no point of such a series.
        """
        ...

    def watched_many(self, series_ids: Collection[str]) -> Sequence[WatchedSeries]:
        """Return the states of these series, without those that the watch has not seen."""
        ...

    def save_watched(self, series: WatchedSeries) -> None:
        """Store the state of a series, new or not."""
        ...

    def mark_due(self, keys: Collection[SeriesKey], now: datetime) -> None:
        """Store that these series have new points; one that is due already stays as it is."""
        ...

    def due(self, limit: int) -> Sequence[WatchedSeries]:
        """Return series with points that were not looked at, those that wait longest first."""
        ...

    def add_change(self, change: SeriesChange) -> None:
        """Store a new change.

        Raises:
            Conflict: Its id is taken.
        """
        ...

    def save_change(self, change: SeriesChange) -> None:
        """Store a change again.

        Raises:
            NotFound: There is no such change.
            Conflict: `CHANGE_MOVES` does not allow its new status.
        """
        ...

    def change(self, change_id: str) -> SeriesChange:
        """Return a change; a unit of work that writes locks it until its end.

        Raises:
            NotFound: There is no such change.
        """
        ...

    def changes_of(
        self,
        series_ids: Collection[str],
        *,
        limit: int,
        status: Collection[ChangeStatus] = frozenset(ChangeStatus),
    ) -> Sequence[SeriesChange]:
        """Return changes of these series, newest first: only those that have one of these."""
        ...

    def undecided(self) -> Sequence[SeriesChange]:
        """Return all changes that are being confirmed, and of each board the oldest suspected one
        of each owner.

        They are in the order in which they were found.
        """
        ...

    def confirming(self) -> Sequence[SeriesChange]:
        """Return all changes that are being confirmed."""
        ...

    def owners(self, target_uid: str, since: datetime) -> frozenset[str]:
        """Return the users with series on a board that had results from a time on."""
        ...

    def move_times(self, by_s: float) -> None:
        """Shift when changes that are not decided were found.

        The server's clock was set by ``by_s`` seconds; how long they have waited stays right.
        """
        ...

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
        """Return changes, newest first, and the cursor of the next page; None: there is none.

        Args:
            user_id: Whose; None: everybody's.
            status: Only those that have one of these.
            lineage: Only of this; None: of all.
            target_uid: Only on this board; None: on all.
            limit: Maximum number.
            cursor: As an earlier page returned it; None: begin with the newest.

        Raises:
            InvalidInput: The cursor is malformed.
        """
        ...

    def count_alerts(self, user_id: str | None) -> int:
        """Return how many alerts of a user are confirmed or open; None: of all users."""
        ...
