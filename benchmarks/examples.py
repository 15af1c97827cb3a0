"""Measured runs as what the scheduler would have seen: batches, encoded by the one encoder."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge
from edgeyard.scheduler.prediction.estimates import failure_rates, run_times

Array = NDArray[np.float64]

BEGAN = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run.

    Attributes:
        system: What is held out as a whole.
        board: Name of the board; "": the system is one.
        family: Of the board.
        failure: Category; "" where it led to a result.
        model_bytes: None: unknown.
        threads: None: unknown.
        host_cpu: Load of the host when it began, 0-1; None: unknown.
    """

    system: str
    family: str
    model: str
    engine: str
    variant: str
    nb_inference: int
    run_s: float
    failure: str = ""
    user_time_s: float | None = None
    model_bytes: int | None = None
    ram_bytes: int = 1 << 30
    threads: int | None = None
    host_cpu: float | None = None
    board: str = ""


def sweep_runs(path: Path) -> list[Run]:
    """The lines of `benchmarks.sweep`.

    A board's family is what the emulated boards call it: CPUs and threads. The load of its host is
    the share of its CPUs that the sweep's own busy processes want; other users of the machine
    come on top, more than its CPUs hold in every line alike. A model's size is that of its file
    with the weights inside, which the light models make up when they are loaded.
    """
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return [
        Run(
            system=line["system"],
            family=f"emu{line['cores']}c{line['threads']}t",
            model=f"{line['network']}-{line['batch']}",
            engine="ort",
            variant="",
            nb_inference=int(line["nb_inference"]),
            run_s=float(line["run_s"]),
            failure=line["category"],
            user_time_s=float(line["user_time_s"]),
            model_bytes=4 * int(line["parameters"]),
            ram_bytes=int(line["ram_mib"]) << 20,
            threads=min(int(line["threads"]), int(line["cores"])),
            host_cpu=min(1.0, int(line["crowding"]) / int(line["cores"])),
        )
        for line in lines
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Rows for training or judging.

    Attributes:
        values: Raw columns, shape (rows,) each.
        history_s: Shape (rows, quantiles): what the plain estimator says; NaN where nothing.
        failure_rate: Shape (rows,): as the plain estimator says.
        log_s: Shape (rows,): ln of the measured run time.
        failed: Shape (rows,), 0 or 1.
        systems: Shape (rows,).
        models: Shape (rows,).
    """

    values: Mapping[str, Array]
    history_s: Array
    failure_rate: Array
    log_s: Array
    failed: Array
    systems: NDArray[np.str_]
    models: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.log_s)

    def only(self, rows: NDArray[np.bool_]) -> Examples:
        """Some of them."""
        return Examples(
            {name: value[rows] for name, value in self.values.items()},
            self.history_s[rows],
            self.failure_rate[rows],
            self.log_s[rows],
            self.failed[rows],
            self.systems[rows],
            self.models[rows],
        )


def joined(parts: Sequence[Examples]) -> Examples:
    """One after the other."""
    return Examples(
        {name: np.concatenate([each.values[name] for each in parts]) for name in parts[0].values},
        np.concatenate([each.history_s for each in parts]),
        np.concatenate([each.failure_rate for each in parts]),
        np.concatenate([each.log_s for each in parts]),
        np.concatenate([each.failed for each in parts]),
        np.concatenate([each.systems for each in parts]),
        np.concatenate([each.models for each in parts]),
    )


def examples(
    runs: Sequence[Run],
    past: Sequence[Run],
    columns: Sequence[str],
    quantiles: Sequence[float],
) -> Examples:
    """Runs as the scheduler would see them, knowing ``past``."""
    uids: dict[str, str] = {}
    for run in [*past, *runs]:
        uids.setdefault(run.board or run.system, f"{run.family}-{len(uids) + 1:04}-0001")
    history = History(
        [
            PastRun(
                benchmark_id=f"past-{index}",
                user_id="sweep",
                target_uid=uids[run.board or run.system],
                family=run.family,
                kind=kind_of(_pending(run)),
                run_s=run.run_s,
                failure=run.failure or None,
                ended_at=BEGAN + timedelta(seconds=index),
            )
            for index, run in enumerate(past)
        ]
    )
    values: list[Mapping[str, Array]] = []
    history_s: list[Array] = []
    rates: list[Array] = []
    for group in _at_once(runs):
        boards = {uids[run.board or run.system]: run for run in group}
        loads = {
            uid: HostLoad(cpu=run.host_cpu, memory=np.nan)
            for uid, run in boards.items()
            if run.host_cpu is not None
        }
        batch = build_batch(
            snapshot_of(
                [_board(uid, run) for uid, run in boards.items()],
                hosts={uid: uid for uid in boards},
            ),
            [_pending(run) for run in group],
            BEGAN + timedelta(days=1),
            0,
            Knowledge(runs=history, host_loads=loads),
        )
        place = {uid: row for row, uid in enumerate(boards)}
        its = np.array([place[uids[run.board or run.system]] for run in group], dtype=np.intp)
        values.append(raw(batch, batch.class_of_job, its, columns))
        history_s.append(
            np.stack([run_times(batch, batch.class_of_job, its, q) for q in quantiles], axis=1)
        )
        rates.append(failure_rates(batch, batch.class_of_job, its))
    return Examples(
        {name: np.concatenate([each[name] for each in values]) for name in columns},
        np.concatenate(history_s),
        np.concatenate(rates),
        np.log([run.run_s for run in runs]),
        np.array([bool(run.failure) for run in runs], np.float64),
        np.array([run.system for run in runs], np.str_),
        np.array([run.model for run in runs], np.str_),
    )


def _at_once(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that one snapshot can show: all, where no host's load changes between them."""
    if all(run.host_cpu is None for run in runs):
        return [list(runs)]
    return [[run] for run in runs]


def _board(uid: str, run: Run) -> Board:
    return Board(
        target_uid=uid,
        family=run.family,
        ram_bytes=run.ram_bytes,
        storage_bytes=1 << 34,
        engines=(BoardEngine(name=run.engine, supported_types=frozenset({"TYPE1"})),),
        attributes={} if run.threads is None else {"cpu.threads": run.threads},
    )


def _pending(run: Run) -> PendingBenchmark:
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
        variant=run.variant,
    )
