"""Series: results of one lineage over time that measured the same thing on one board."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import astuple, dataclass
from datetime import datetime

from edgeyard.scheduler.model.benchmark import Benchmark

_ID_PREFIX = "series-"
_ID = re.compile(rf"{_ID_PREFIX}[0-9a-f]{{16}}")

MAX_THRESHOLD = 0.1
"""Largest threshold of a series: a change of 10 % is always worth a confirmation."""

THRESHOLD_FACTOR = 1.25
"""A refuted change of 4 % raises the threshold to 1.25 x 4 %: noise of that size is known."""

THRESHOLD_HALF_LIFE_S = 30 * 86400.0
"""A threshold falls to a half in this time, so that one bad night does not blind a series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesKey:
    """What all points of a series have in common.

    Attributes:
        lineage: See `Benchmark.series`.
        engine: Its name; versions may differ.
        work: Digest of parameters, inputs and so on; "": it was not recorded.
    """

    lineage: str
    user_id: str
    target_uid: str
    engine: str
    benchmark_type: str
    work: str

    @classmethod
    def of(cls, benchmark: Benchmark) -> SeriesKey | None:
        """Return the series of a completed benchmark; None: it is no point of any."""
        if benchmark.series is None or benchmark.target_uid is None:
            return None
        return cls(
            lineage=benchmark.series,
            user_id=benchmark.user_id,
            target_uid=benchmark.target_uid,
            engine=benchmark.description.runtime,
            benchmark_type=benchmark.description.benchmark_type.value,
            work=benchmark.work,
        )

    @property
    def series_id(self) -> str:
        """Short id, the same on every server."""
        digest = hashlib.blake2b(json.dumps(astuple(self)).encode(), digest_size=8)
        return f"{_ID_PREFIX}{digest.hexdigest()}"


def is_series_id(text: str) -> bool:
    """Return whether a text has the form of the id of a series; a lineage of this form has none."""
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """One result of a series.

    Attributes:
        value: Its primary metric; None: it is invalid, or has none.
        better: Which numbers are better, as `edgeyard.devices.metrics.Metric.better`.
        metric: Name of the primary metric; "": none.
        model_sha256: Content of its model; None: not known.
    """

    benchmark_id: str
    ended_at: datetime
    value: float | None
    better: str = ""
    metric: str = ""
    model_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedSeries:
    """The watch's state of a series, next to its points.

    Attributes:
        due_since: Since when it has points that were not looked at; None: it has none.
        looked_at: When it was looked at last; None: never.
        threshold: Size of a change below which nothing was suspected at ``threshold_at``, a share.
        threshold_at: When it was raised; None: never, or it was reset.
        alert_unconfirmed: Whether changes that could not be confirmed become alerts, too.
    """

    key: SeriesKey
    due_since: datetime | None = None
    looked_at: datetime | None = None
    threshold: float = 0.0
    threshold_at: datetime | None = None
    alert_unconfirmed: bool = False

    def threshold_now(self, now: datetime) -> float:
        """Return the size below which nothing is suspected now: half after each half-life."""
        if self.threshold_at is None:
            return 0.0
        age_s = max(0.0, (now - self.threshold_at).total_seconds())
        return float(self.threshold * 2.0 ** -(age_s / THRESHOLD_HALF_LIFE_S))


def raised_threshold(before: float, refuted: float) -> float:
    """Return the threshold after a suspected change of this size was refuted.

    Args:
        before: The threshold until then.
        refuted: Size of the change: 0.05 for 5 % more, and so is 1/1.05 - 1.
    """
    return min(MAX_THRESHOLD, max(before, THRESHOLD_FACTOR * magnitude(refuted)))


MIN_CHANGE = math.nextafter(-1.0, 0.0)
"""The smallest change, as a share, that leaves a level above 0."""


def magnitude(size: float) -> float:
    """Return by how much the larger level exceeds the smaller one, for a change of this size."""
    return math.expm1(abs(math.log1p(max(size, MIN_CHANGE))))
