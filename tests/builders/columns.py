"""A fixed sample of pairs, by which a column of models is recognised: all of it is written down.

Every column has a value somewhere and, where it may be missing, is missing somewhere. No random
numbers: libraries may draw others one day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.plugins.testing import (
    NOW,
    all_pairs,
    board,
    past_run,
    pending,
    snapshot_of,
)
from edgeyard.scheduler.framework.batch import Batch, Resources
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.learning.features import Column, ColumnAxis, View
from edgeyard.scheduler.model.benchmark import BenchmarkType, FailureCategory
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge

GIB = 1 << 30
AT = NOW + timedelta(hours=2.5)
FAMILIES = ("rpi4b", "rpi5", "x86")
FAILURES = (FailureCategory.TIMEOUT, FailureCategory.BOARD_FAULT, FailureCategory.PREEMPTED)


def sample() -> Batch:
    """Return nine kinds of benchmarks on twelve boards, with a past of 150 runs."""
    boards = [
        board(
            f"{FAMILIES[number % 3]}-0001-{number // 3 + 1:04}",
            ram_bytes=(1 + number % 4) * GIB,
            busy=number % 5 == 0,
            attributes={} if number % 4 == 1 else {"cpu.cores": 1 + number % 4},
        )
        for number in range(12)
    ]
    jobs = [
        pending(
            f"b-{number}",
            family=FAMILIES[number % 3],
            engine=("ort", "tflite")[number % 2],
            benchmark_type=list(BenchmarkType)[number % 3],
            nb_inference=5 * (number + 1),
            model_sha256=None if number == 8 else f"{number // 2:064x}",
            model_bytes=None if number % 4 == 3 else 10_000 * (number + 1) ** 3,
            ram_bytes=0 if number % 2 else GIB // (number + 1),
            user_time_s=None if number % 3 == 2 else 7.5 * (number + 1),
            budget=None if number % 4 else 40.0,
            variant="" if number % 5 else "0123456789abcdef",
        )
        for number in range(9)
    ]
    runs = [
        replace(
            past_run(
                boards[number * 5 % 12].target_uid,
                ago_s=86400.0 * (150 - number) / 7.0,
                run_s=2.0 + (number * number % 97) / 10.0 + number % 12,
                failure=FAILURES[number // 7 % 3].value if number % 7 == 3 else None,
                of=replace(jobs[number * 2 % 8], family=FAMILIES[number * 5 % 3]),
            ),
            loading_s=1.0 + (number * 3 % 11) / 4.0 + number % 5 if number % 6 else None,
            comparable=number * number % 7 > 1 if number % 7 != 3 else None,
        )
        for number in range(150)
    ]
    hosts = {each.target_uid: f"host-{row // 3}" for row, each in enumerate(boards)}
    loads = {f"host-{row}": HostLoad(cpu=0.2 + 0.3 * row, memory=0.9 - 0.3 * row) for row in (0, 2)}
    knowledge = Knowledge(runs=History(runs), host_loads=loads, rates={"rpi4b": 2.0})
    batch = build_batch(snapshot_of(boards, hosts=hosts), jobs, AT, 0, knowledge)
    rows = np.arange(12.0)
    total = np.column_stack((4.0 + rows % 3, 16.0 + rows, np.where(rows % 4 == 1, 0.0, 2.0)))
    needs = np.column_stack((0.5 + np.arange(9.0) / 4, 1.0 + np.arange(9.0), np.arange(9.0) % 2))
    free = total * (1.0 - rows % 5 / 5.0)[:, None]
    names = ("cpus", "memory", "gpus")
    return replace(batch, resources=Resources(names=names, total=total, free=free, needs=needs))


def digest_of(column: Column, change: Callable[[float], float] = float) -> str:
    """Return the digest of a column's values for the sample, each value changed."""
    batch = sample()
    pairs = all_pairs(batch)
    values = column.read(View(batch, pairs.rows, pairs.boards))
    size = {ColumnAxis.CLASS: 9, ColumnAxis.BOARD: 12, ColumnAxis.PAIR: len(pairs)}[column.along]
    assert values.shape == (size,)
    changed: NDArray[np.float64] = np.array([change(each) for each in values.tolist()])
    text = " ".join(f"{each:.5f}" for each in (np.round(changed, 5) + 0.0).tolist())
    return hashlib.sha256(text.encode()).hexdigest()[:8]
