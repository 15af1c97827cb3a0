"""A database with days of benchmarks in it: rows that the service wrote once, many times over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from edgeyard.scheduler.store.tables import UtcTime, metadata

DAY_US = 86_400_000_000
CACHE_KIB = 512 * 1024
_PRUNED = frozenset({"events", "cycles", "cycle_parts", "part_contents", "explanations"})
"""Tables of which a server keeps the last days alone."""
_PER_BENCHMARK = (
    *("benchmarks", "descriptions", "benchmark_files", "attempts", "outcomes", "reports"),
    *("charges", "explanations", "events"),
)
_OF_CYCLES = ("cycles", "cycle_parts", "part_contents")


class Block:
    """All that the service wrote of some benchmarks."""

    def __init__(self, path: Path) -> None:
        """Count what is in a database that has nothing else in it."""
        self._path = path
        with closing(sqlite3.connect(path)) as connection:
            self._columns = {
                name: tuple(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
                for name in (*_PER_BENCHMARK, *_OF_CYCLES)
            }
            self._step = {
                name: _one(connection, f"SELECT COALESCE(max(seq), 0) FROM {name}")
                for name, columns in self._columns.items()
                if "seq" in columns
            }
            self._start = _one(connection, "SELECT min(submit_time) FROM benchmarks")
            self.benchmarks = _one(connection, "SELECT count(*) FROM benchmarks")

    def load(self, path: Path, days: int, per_day: int, kept_days: int, until: datetime) -> None:
        """Write as many benchmarks a day, the last of them before ``until``.

        The database copies the rows itself, and builds its indexes when all are there: a year
        takes a minute.

        Args:
            path: Of a database with the newest schema and nothing else in it.
            days: How many.
            per_day: Benchmarks; a multiple of the block's.
            kept_days: Events and cycles are there of the last days only.
            until: When the service goes on.
        """
        begin = (until - datetime(1970, 1, 1, tzinfo=UTC)).days * DAY_US - days * DAY_US
        blocks = per_day // self.benchmarks
        copies = [
            (
                day * blocks + block,
                begin + day * DAY_US + block * DAY_US // blocks - self._start,
                day >= days - kept_days,
            )
            for day in range(days)
            for block in range(blocks)
        ]
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;"
                f"PRAGMA cache_size = -{CACHE_KIB}; PRAGMA locking_mode = EXCLUSIVE;"
            )
            connection.execute("ATTACH ? AS block", (str(self._path),))
            indexes = connection.execute(
                "SELECT name, sql FROM main.sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
            ).fetchall()
            connection.execute("BEGIN")
            for name, _ in indexes:
                connection.execute(f"DROP INDEX main.{name}")
            connection.execute("CREATE TEMP TABLE copies (number, shift, kept)")
            connection.executemany("INSERT INTO copies VALUES (?, ?, ?)", copies)
            # What most cycles share is stored once, however many blocks there are.
            connection.execute(
                "CREATE TEMP TABLE shared AS SELECT sha256 FROM block.cycle_parts GROUP BY sha256"
                " HAVING count(*) > (SELECT count(*) FROM block.cycles) / 2"
            )
            for name in self._columns:
                connection.execute(self._copy(name))
            for _, sql in indexes:
                connection.execute(sql)
            connection.execute(
                "UPDATE event_counter SET last_seq = (SELECT COALESCE(max(seq), 0) FROM events)"
            )
            connection.execute(
                "UPDATE status_counts SET stored = (SELECT count(*) FROM benchmarks"
                " WHERE benchmarks.status = status_counts.status)"
            )
            connection.execute("COMMIT")
            connection.execute("DETACH block")
            connection.execute("PRAGMA locking_mode = NORMAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("ANALYZE")

    def _copy(self, name: str) -> str:
        """Statement that copies a table's rows as often as wanted, oldest first."""
        table = metadata.tables[name]
        values: list[str] = []
        for column in self._columns[name]:
            value = f"rows.{column}"
            if column in ("benchmark_id", "job_id"):
                value = f"{value} || printf('-%06d', copies.number)"
            elif column == "sha256" and name in ("cycle_parts", "part_contents"):
                renamed = f"substr({value}, 1, 58) || printf('%06d', copies.number)"
                value = (
                    f"CASE WHEN {value} IN (SELECT sha256 FROM shared) THEN {value}"
                    f" ELSE {renamed} END"
                )
            elif column == "seq":
                counted = "cycles" if name in ("explanations", "cycles", "cycle_parts") else name
                value = f"{value} + copies.number * {self._step[counted]}"
            elif column in ("runs_first", "runs_last"):
                value = f"{value} + copies.number * {self._step['outcomes']}"
            elif isinstance(table.c[column].type, UtcTime):
                value = f"{value} + copies.shift"
            values.append(value)
        verb = "INSERT OR IGNORE" if name == "part_contents" else "INSERT"
        return (
            f"{verb} INTO main.{name} ({', '.join(self._columns[name])})"
            f" SELECT {', '.join(values)} FROM copies CROSS JOIN block.{name} AS rows"
            f"{' WHERE copies.kept' if name in _PRUNED else ''}"
        )


def _one(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
