"""Time series of a Prometheus, and the form of a function that queries them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One time series.

    Attributes:
        labels: Its labels.
        times: Unix times, ascending.
        values: Finite numbers, as many.
    """

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]


QueryRange = Callable[[str, datetime, datetime, float], Sequence[Series]]
"""Runs a query over a range of time with a step in seconds.

Raises `Unavailable` where Prometheus does not answer or refuses the query.
"""
