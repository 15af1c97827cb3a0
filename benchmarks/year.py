"""A database with days of benchmarks in it: rows that the service wrote once, many times over."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edgeyard.scheduler.store.tables import UtcTime, metadata

DAY_US = 86_400_000_000
_PRUNED = frozenset({"events", "cycles", "cycle_parts", "part_contents", "explanations"})
"""Tables of which a server keeps the last days alone."""
_PER_BENCHMARK = (
    *("benchmarks", "descriptions", "benchmark_files", "attempts", "outcomes", "reports"),
    *("charges", "explanations", "events"),
)
_OF_CYCLES = ("cycles", "cycle_parts", "part_contents")

Values = list[object]


@dataclass(frozen=True, slots=True)
class _Table:
    columns: tuple[str, ...]
    times: tuple[int, ...]
    rows: tuple[tuple[object, ...], ...]

    @property
    def insert(self) -> str:
        return f"({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))})"


class Block:
    """All that the service wrote of some benchmarks."""

    def __init__(self, path: Path) -> None:
        """Read them from a database that has nothing else in it."""
        connection = sqlite3.connect(path)
        self._tables = {name: _read(connection, name) for name in (*_PER_BENCHMARK, *_OF_CYCLES)}
        connection.close()
        benchmarks = self._tables["benchmarks"]
        place = benchmarks.columns.index("submit_time")
        submitted = [row[place] for row in benchmarks.rows]
        assert all(isinstance(each, int) for each in submitted)
        self._start: int = min(submitted)  # type: ignore[type-var, assignment]
        self.benchmarks = len(benchmarks.rows)
        parts = self._tables["cycle_parts"]
        shas = [row[parts.columns.index("sha256")] for row in parts.rows]
        cycles = len(self._tables["cycles"].rows)
        # what most cycles share is stored once, however many blocks there are
        self._shared = {sha for sha in set(shas) if shas.count(sha) > cycles // 2}

    def load(self, path: Path, days: int, per_day: int, kept_days: int, until: datetime) -> None:
        """Write as many benchmarks a day, the last of them before ``until``.

        Args:
            path: Of a database with the newest schema and nothing else in it.
            days: How many.
            per_day: Benchmarks; a multiple of the block's.
            kept_days: Events and cycles are there of the last days only.
            until: When the service goes on.
        """
        connection = sqlite3.connect(path)
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        begin = (until - datetime(1970, 1, 1, tzinfo=UTC)).days * DAY_US - days * DAY_US
        blocks = per_day // self.benchmarks
        number = 0
        for day in range(days):
            for block in range(blocks):
                start = begin + day * DAY_US + block * DAY_US // blocks
                tables = set(self._tables)
                if day < days - kept_days:
                    tables -= _PRUNED
                self._write(connection, number, start - self._start, tables)
                number += 1
        connection.execute(
            "UPDATE event_counter SET last_seq = (SELECT COALESCE(max(seq), 0) FROM events)"
        )
        connection.execute(
            "UPDATE status_counts SET stored ="
            " (SELECT count(*) FROM benchmarks WHERE benchmarks.status = status_counts.status)"
        )
        connection.commit()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("ANALYZE")
        connection.close()

    def _write(
        self, connection: sqlite3.Connection, number: int, shift: int, tables: set[str]
    ) -> None:
        for name in (*_PER_BENCHMARK, *_OF_CYCLES):
            if name in tables:
                table = self._tables[name]
                verb = "INSERT OR IGNORE INTO" if name == "part_contents" else "INSERT INTO"
                rows = self._copies(name, table, number, shift)
                connection.executemany(f"{verb} {name} {table.insert}", rows)

    def _copies(
        self, name: str, table: _Table, number: int, shift: int
    ) -> Iterator[Sequence[object]]:
        change: dict[int, Callable[[object], object]] = {}
        offset = number * self._count(name)
        for place, column in enumerate(table.columns):
            if column in ("benchmark_id", "job_id"):
                change[place] = lambda value: f"{value}-{number:06}"
            elif column == "sha256" and name in ("cycle_parts", "part_contents"):
                change[place] = lambda value: self._renamed(str(value), number)
            elif column == "seq":
                cycles = name in ("explanations", "cycles", "cycle_parts")
                more = number * self._count("cycles") if cycles else offset
                change[place] = lambda value, more=more: int(str(value)) + more  # type: ignore[misc]
            elif column in ("runs_first", "runs_last"):
                runs = number * self._count("outcomes")
                change[place] = lambda value, more=runs: (  # type: ignore[misc]
                    None if value is None else int(str(value)) + more
                )
        for place in table.times:
            change[place] = lambda value: None if value is None else int(str(value)) + shift
        for row in table.rows:
            copied: Values = list(row)
            for place, changed in change.items():
                copied[place] = changed(copied[place])
            yield copied

    def _count(self, name: str) -> int:
        """How far the next copy's numbers are from this one's."""
        table = self._tables[name]
        if "seq" not in table.columns:
            return len(table.rows)
        place = table.columns.index("seq")
        return max((int(str(row[place])) for row in table.rows), default=0)

    def _renamed(self, sha256: str, number: int) -> str:
        if sha256 in self._shared:
            return sha256
        return hashlib.sha256(f"{number} {sha256}".encode()).hexdigest()


def _read(connection: sqlite3.Connection, name: str) -> _Table:
    found = connection.execute(f"SELECT * FROM {name}")
    columns = tuple(each[0] for each in found.description)
    table = metadata.tables[name]
    times = tuple(
        place for place, column in enumerate(columns) if isinstance(table.c[column].type, UtcTime)
    )
    return _Table(columns, times, tuple(found.fetchall()))
