"""Figures of a result whose load is more than one caller for a number of runs."""

from __future__ import annotations

from edgeyard.benchmark_api.figures.concurrency import concurrency_figures, concurrency_sentence
from edgeyard.benchmark_api.figures.lines import LineFigure
from edgeyard.benchmark_api.figures.load import load_sentence, load_test_figures
from edgeyard.benchmark_api.figures.soaks import is_steady, soak_figures, soak_sentence
from edgeyard.benchmark_api.schemas.answers import Results, as_json


def load_figures(found: Results) -> list[LineFigure]:
    """Return the figures of a soak, of several callers, or of a load by LoadGen's rules."""
    if found.soak is not None:
        return soak_figures(found.soak)
    if found.load_test is not None:
        return load_test_figures(found.load_test)
    return [] if found.concurrency is None else concurrency_figures(found.concurrency)


def load_sentence_of(found: Results) -> str:
    """Return what such a load showed, in words; "" of other results."""
    if found.soak is not None:
        return soak_sentence(found.soak)
    if found.load_test is not None:
        return load_sentence(found.load_test)
    return "" if found.concurrency is None else concurrency_sentence(found.concurrency)


def load_rows(found: Results) -> list[dict[str, object]]:
    """Return the numbers of each window of a soak, number of callers, or trial.

    Names begin with ``window_``, ``level_`` and ``trial_``. Other results have none.
    """
    if found.soak is not None:
        return [
            {
                **_prefixed("window", as_json(each)),
                "window_steady": is_steady(each, found.soak.steady),
            }
            for each in found.soak.windows
        ]
    if found.load_test is not None:
        return [_prefixed("trial", as_json(each)) for each in found.load_test.trials]
    if found.concurrency is not None:
        return [_prefixed("level", as_json(each)) for each in found.concurrency.levels]
    return []


def _prefixed(prefix: str, row: dict[str, object]) -> dict[str, object]:
    return {f"{prefix}_{name}": value for name, value in row.items()}
