"""What a year of history costs: bytes, cycles and submissions of a day, against day 30."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.tables import Row
from benchmarks.year import Block
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.store import SqlStore
from tests.builders.engine import A, Lab
from tests.fakes.clock import FixedClock

DAYS, PEER_DAYS, PER_DAY, BLOCK = 364, 29, 1_000, 50
KEPT_DAYS = 90
"""Of events and recorded cycles, as a server keeps them by default."""
SUBMISSIONS = 300
TODAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
"""When the measured day begins."""


def run(
    days: int = DAYS,
    peer_days: int = PEER_DAYS,
    per_day: int = PER_DAY,
    block: int = BLOCK,
    kept_days: int = KEPT_DAYS,
    submissions: int = SUBMISSIONS,
) -> list[Row]:
    """Fill two databases, run one more day on each in turns, then prune a day of each.

    Args:
        days: Of history before the day that is measured.
        peer_days: The same, for the peer.
        per_day: Benchmarks a day, a multiple of ``block``.
        block: Benchmarks that the service really ran, whose rows are copied.
        kept_days: Of events and cycles.
        submissions: At least so many while a day is pruned.
    """
    with tempfile.TemporaryDirectory(prefix="edgeyard-growth-") as name:
        folder = Path(name)
        copied = _block(folder / "block", block)
        ours, peer = (
            _Year(folder / str(each), copied, each, per_day, kept_days)
            for each in (days, peer_days)
        )
        for number in range(per_day):
            first, second = (ours, peer) if number % 2 else (peer, ours)
            first.one()
            second.one()
        sizes = [each.grown_bytes() / per_day for each in (ours, peer)]
        cycles = [_p99_ms(each.cycles_s) for each in (ours, peer)]
        pruned = [each.prune(submissions) for each in (ours, peer)]
        waits = [_p99_ms(each.submissions_s) for each in (ours, peer)]
        for each in (ours, peer):
            each.lab.store.close()
    against = f"peer: day {peer_days + 1}; {per_day:,} benchmarks per day, in turns"
    return [
        _row("bytes per benchmark", sizes, "B", f"{against}; growth of the used pages"),
        _row("cycle p99", cycles, "ms", f"{against}; {len(ours.cycles_s):,} cycles each"),
        _row(
            "submit p99 while pruning",
            waits,
            "ms",
            f"{against}; {pruned[0]:,} and {pruned[1]:,} rows go meanwhile; one at a time, synced",
        ),
    ]


def _row(name: str, values: list[float], unit: str, note: str) -> Row:
    ours, peer = values
    return Row(name, ours, unit, peer, ours / peer, note)


def _p99_ms(seconds: list[float]) -> float:
    return float(np.quantile(seconds, 0.99)) * 1e3


def _lab(folder: Path) -> Lab:
    """The service without threads and HTTP, and a cluster that is played."""
    return Lab(folder, A, store=SqlStore(f"sqlite:///{folder}/lab.db"), clock=FixedClock(TODAY))


def _block(folder: Path, count: int) -> Block:
    folder.mkdir()
    lab = _lab(folder)
    for _ in range(count):
        _run_one(lab)
    lab.store.close()
    return Block(folder / "lab.db")


def _run_one(lab: Lab) -> float:
    """One benchmark from submission to its end; the seconds of the cycle that places it."""
    benchmark_id = lab.submit()
    began = time.perf_counter()
    job_ids = lab.decide()
    took = time.perf_counter() - began
    lab.dispatch(*job_ids)
    job_id = lab.attempts(benchmark_id)[-1].job_id
    lab.cluster.start(job_id, A)
    lab.reconciler.run()
    lab.clock.forward(60)
    lab.upload(job_id)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    lab.clock.forward(1)
    return took


class _Year:
    """A lab that has days of history."""

    def __init__(self, folder: Path, block: Block, days: int, per_day: int, kept_days: int) -> None:
        folder.mkdir()
        path = folder / "lab.db"
        SqlStore(f"sqlite:///{path}").close()
        self._oldest = timedelta(days=min(days, kept_days) - 1)
        block.load(path, days, per_day, kept_days, TODAY)
        self.lab = _lab(folder)
        self._path = path
        _run_one(self.lab)  # reads the past
        self._began_bytes = self._used_bytes()
        self.cycles_s: list[float] = []
        self.submissions_s: list[float] = []

    def one(self) -> None:
        """Run a benchmark."""
        self.cycles_s.append(_run_one(self.lab))

    def grown_bytes(self) -> int:
        """Since the day began."""
        return self._used_bytes() - self._began_bytes

    def prune(self, submissions: int) -> int:
        """Prune the oldest day of events and cycles while others submit; returns the rows."""
        midnight = self.lab.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
        before = midnight - self._oldest
        limits = {RetentionClass.EVENTS: before, RetentionClass.CYCLES: before}
        rows: list[int] = []

        def prune() -> None:
            rows.extend(pruned.rows for pruned in self.lab.store.prune(limits).values())

        thread = threading.Thread(target=prune, name="prune")
        thread.start()
        while thread.is_alive() or len(self.submissions_s) < submissions:
            began = time.perf_counter()
            self.lab.submit()
            self.submissions_s.append(time.perf_counter() - began)
        thread.join()
        return sum(rows)

    def _used_bytes(self) -> int:
        connection = sqlite3.connect(self._path)
        try:
            pages, free, size = (
                connection.execute(f"PRAGMA {each}").fetchone()[0]
                for each in ("page_count", "freelist_count", "page_size")
            )
        finally:
            connection.close()
        return int((pages - free) * size)
