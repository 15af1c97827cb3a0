"""Rows of figures: printed as a table, written as JSON."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

OUT = Path("build/bench")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure next to its peer's, measured in the same run.

    Attributes:
        value: Ours.
        peer: The peer's, in the same unit; None where there is no peer.
        ratio: Ours / the peer's; None where there is no peer.
        note: What the peer is, how often both were measured, the spread.
    """

    name: str
    value: float
    unit: str
    peer: float | None = None
    ratio: float | None = None
    note: str = ""


def publish(name: str, rows: Sequence[Row]) -> None:
    """Print the table and write ``build/bench/NAME.json``."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    width = max(len(row.name) for row in rows)
    print(f"\nbench-{name}")
    print(f"  {'row':<{width}}  {'value':>11} {'unit':<6} {'peer':>11} {'ratio':>7}  note")
    for row in rows:
        peer = f"{_shown(row.peer):>11}" if row.peer is not None else " " * 11
        ratio = f"{row.ratio:7.3f}" if row.ratio is not None else " " * 7
        value = f"{_shown(row.value):>11}"
        print(f"  {row.name:<{width}}  {value} {row.unit:<6} {peer} {ratio}  {row.note}")
    print(f"  written to {path}")


def _shown(value: float) -> str:
    """Four figures, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def median_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Median and its 95 % percentile-bootstrap interval (2,000 resamples).

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 13.3.
    """
    rng = np.random.default_rng(seed)
    data = np.asarray(values, dtype=np.float64)
    medians = np.median(rng.choice(data, size=(2000, data.size)), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(data)), float(low), float(high)


def median(values: Sequence[float]) -> float:
    """Shorthand for the statistics module's."""
    return statistics.median(values)
