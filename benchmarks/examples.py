"""Measured runs as the scheduler would have seen them: batches, encoded by the one encoder."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.model import Board, BoardEngine
from edgeyard.plugins.testing import snapshot_of
from edgeyard.scheduler.framework.batch_builder import build_batch, kind_of
from edgeyard.scheduler.learning.features import raw
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.estimates import PastPairs

Array = NDArray[np.float64]

BEGAN = datetime(2026, 11, 21, tzinfo=UTC)

CUT_SHORT = frozenset({"timeout", "out_of_memory"})
"""Failures of runs that a limit ended: they would have lasted longer than they did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run.

    Attributes:
        group: Of systems that are truly equal; held out as a whole.
        board: Name of the board.
        family: Of the board.
        failure: Category; "" where it led to a result.
        verdict: On the result; "" where there is none.
        user_time_s: Bound that was stated; None: none.
        model_bytes: Size of the model's file; None: unknown.
        cores: That a benchmark may use; None: unknown.
    """

    group: str
    board: str
    family: str
    model: str
    engine: str
    nb_inference: int
    run_s: float
    failure: str = ""
    verdict: str = ""
    user_time_s: float | None = None
    model_bytes: int | None = None
    ram_bytes: int = 1 << 30
    cores: int | None = None


def sweep_runs(path: Path) -> list[Run]:
    """Return the lines of `benchmarks.sweep`.

    Systems are truly equal if they have the same CPUs, threads that really run at a time, and busy
    neighbours: their memory and threads beyond their CPUs make no difference to run times.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return [
        Run(
            group=f"{line['cores']} CPUs, {min(int(line['threads']), int(line['cores']))} threads, "
            f"{line['crowding']} neighbours",
            board=line["system"],
            family=f"emu{line['cores']}c{line['threads']}t",
            model=f"{line['network']}-{line['batch']}",
            engine="ort",
            nb_inference=int(line["nb_inference"]),
            run_s=float(line["run_s"]),
            failure=line["category"],
            verdict=line["verdict"],
            user_time_s=float(line["user_time_s"]),
            model_bytes=4 * int(line["parameters"]),
            ram_bytes=int(line["ram_mib"]) << 20,
            cores=int(line["cores"]),
        )
        for line in lines
    ]


def usable(runs: Sequence[Run]) -> list[Run]:
    """Return the runs to learn from: results that are not invalid, and runs that were cut short."""
    return [
        run
        for run in runs
        if (run.failure in CUT_SHORT if run.failure else run.verdict != "invalid")
    ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examples:
    """Rows for training or judging.

    Attributes:
        values: Raw columns, shape (rows,) each.
        location: Shape (rows,): middle of the history's distribution of ln seconds; NaN: nothing is
            known.
        scale: Shape (rows,), of the same distribution.
        freedom: Shape (rows,): its degrees of freedom.
        failure_rate: Shape (rows,), by the history.
        log_s: Shape (rows,): ln of the measured run time.
        censored: Shape (rows,): a limit ended the run, which would have lasted longer.
        groups: Shape (rows,).
        workloads: Shape (rows,): model and engine.
    """

    values: Mapping[str, Array]
    location: Array
    scale: Array
    freedom: Array
    failure_rate: Array
    log_s: Array
    censored: NDArray[np.bool_]
    groups: NDArray[np.str_]
    workloads: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.log_s)

    def only(self, rows: NDArray[np.bool_]) -> Examples:
        """Return some of the rows."""
        kept = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return Examples(values={name: each[rows] for name, each in self.values.items()}, **kept)


_ARRAYS = tuple(each.name for each in fields(Examples) if each.name != "values")


def joined(parts: Sequence[Examples]) -> Examples:
    """Return all rows, part after part."""
    names = parts[0].values
    whole = {name: np.concatenate([getattr(each, name) for each in parts]) for name in _ARRAYS}
    return Examples(
        values={name: np.concatenate([each.values[name] for each in parts]) for name in names},
        **whole,
    )


def examples(runs: Sequence[Run], past: Sequence[Run], columns: Sequence[str]) -> Examples:
    """Return runs as the scheduler would see them, knowing ``past``."""
    uids: dict[str, str] = {}
    for run in [*past, *runs]:
        uids.setdefault(run.board, f"{run.family}-{len(uids) + 1:04}-0001")
    history = History(
        [
            PastRun(
                benchmark_id=f"past-{index}",
                user_id="sweep",
                target_uid=uids[run.board],
                family=run.family,
                kind=kind_of(pending_of(run)),
                run_s=run.run_s,
                failure=run.failure or None,
                ended_at=BEGAN + timedelta(seconds=index),
            )
            for index, run in enumerate(past)
        ]
    )
    boards = {uids[run.board]: run for run in runs}
    batch = build_batch(
        snapshot_of([board_of(uid, run) for uid, run in boards.items()]),
        [pending_of(run) for run in runs],
        BEGAN + timedelta(days=1),
        0,
        Knowledge(runs=history),
    )
    place = {uid: row for row, uid in enumerate(boards)}
    at = np.array([place[uids[run.board]] for run in runs], dtype=np.intp)
    pairs = PastPairs(batch, batch.class_of_job, at)
    location, scale, freedom = pairs.run_time_distribution()
    return Examples(
        values=raw(batch, batch.class_of_job, at, columns),
        location=location,
        scale=scale,
        freedom=freedom,
        failure_rate=pairs.failure_rates(),
        log_s=np.log([run.run_s for run in runs]),
        censored=np.array([bool(run.failure) for run in runs], np.bool_),
        groups=np.array([run.group for run in runs], np.str_),
        workloads=np.array([f"{run.model} {run.engine}" for run in runs], np.str_),
    )


def board_of(uid: str, run: Run) -> Board:
    """Return the board of a run as its host publishes it."""
    return Board(
        target_uid=uid,
        family=run.family,
        ram_bytes=run.ram_bytes,
        storage_bytes=1 << 34,
        engines=(BoardEngine(name=run.engine, supported_types=frozenset({"TYPE1"})),),
        attributes={} if run.cores is None else {"cpu.cores": run.cores},
    )


def pending_of(run: Run) -> PendingBenchmark:
    """Return the benchmark of a run while it waited."""
    return PendingBenchmark(
        benchmark_id="one",
        user_id="sweep",
        submit_time=BEGAN,
        family=run.family,
        engine=run.engine,
        benchmark_type=BenchmarkType.TYPE1,
        model_sha256=run.model,
        nb_inference=run.nb_inference,
        user_time_s=run.user_time_s,
        model_bytes=run.model_bytes,
    )
