"""Series: their keys, points and changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from edgeyard.scheduler.model.series import SeriesKey, SeriesPoint
from edgeyard.scheduler.model.series_changes import SeriesChange
from tests.builders import records as make

NIGHT = timedelta(days=1)


def key(**changes: str) -> SeriesKey:
    """The key of a series of alice's."""
    known = {
        "lineage": "detector",
        "user_id": "alice",
        "target_uid": "rpi4b-0001-0001",
        "engine": "ort",
        "benchmark_type": "TYPE1",
        "work": "abc",
    }
    return SeriesKey(**(known | changes))


def nights(*levels: tuple[int, float], better: str = "lower", seed: int = 0) -> list[SeriesPoint]:
    """A point each night: so many of each level, with 0.5 % of noise."""
    values = [value for count, value in levels for _ in range(count)]
    noise = np.exp(np.random.default_rng(seed).normal(0.0, 0.005, len(values)))
    return [
        SeriesPoint(
            benchmark_id=f"b-{number}",
            ended_at=make.at(0) + number * NIGHT,
            value=float(value * factor),
            metric="p50",
            better=better,
            model_sha256="old" if value == levels[0][1] else "new",
        )
        for number, (value, factor) in enumerate(zip(values, noise, strict=True))
    ]


def change(number: int = 1, **fields: Any) -> SeriesChange:
    """A suspected change."""
    known: dict[str, Any] = {
        "change_id": f"alert-{number}",
        "key": key(),
        "begin_id": f"b-{number + 1}",
        "before_id": f"b-{number}",
        "metric": "p50",
        "worse": True,
        "size": 0.05,
        "low": 0.04,
        "high": 0.06,
        "found_at": make.at(number),
    }
    return SeriesChange(**(known | fields))
