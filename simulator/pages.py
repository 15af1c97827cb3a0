"""Pages of stored simulations, for browsers."""

from __future__ import annotations

import json
from collections.abc import Callable

from fastapi import Request
from fastapi.responses import Response
from markupsafe import Markup

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.pages.filters import stated
from edgeyard.benchmark_api.pages.page import MAX_TEXT, duration, number, page, words
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.simulator import routes

router = PageRouter()

PAGE = 50
_TEXTS = ("scenario", "policy", "kind")

FIGURES = {
    "jobs": "Jobs",
    "completed": "Completed",
    "mean_wait_s": "Mean wait",
    "utilisation": "Utilisation",
    "deadline_misses": "Deadlines missed",
}
"""Metrics that the list shows where a simulation has them, with their headings."""

_SHORT = 40
"""Characters of a metric that is no number, in the list."""


@router.get("/ui/simulations")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Stored simulations, newest first, as filtered."""
    query = stated(request)
    wrong: dict[str, str] = {}
    found: shapes.SimulationPage | None = None
    try:
        found = routes.list_simulations(
            caller,
            context,
            **{name: query.get(name) for name in _TEXTS},
            limit=PAGE,
            cursor=query.get("cursor"),
        ).content
    except NotFound:
        wrong["scenario"] = "is the name or hash of no stored scenario"
    except InvalidInput as error:
        wrong["cursor"] = str(error)
    items = found.items if found else []
    columns = [
        (name, heading, _format_of(name))
        for name, heading in FIGURES.items()
        if any(each.metrics.get(name) is not None for each in items)
    ]
    return page(
        request,
        "simulations",
        caller,
        status=422 if wrong else 200,
        found=found,
        headings=[heading for _, heading, _ in columns],
        rows=[
            (
                each,
                [
                    (heading, _figure_text(each.metrics.get(name), in_words, _SHORT))
                    for name, heading, in_words in columns
                ],
            )
            for each in items
        ],
        query=query,
        wrong=wrong,
        filtered=bool(set(query) - {"cursor"}),
    )


@router.get("/ui/simulations/{run_id}")
def one(request: Request, run_id: str, caller: BrowserUser, context: Ctx) -> Response:
    """The report of a simulation: all of its metrics."""
    found = routes.simulation(run_id, caller, context).content
    metrics = [
        (name, _figure_text(value, _format_of(name)))
        for name, value in found.metrics.items()
        if value is not None
    ]
    return page(request, "simulation", caller, simulation=found, metrics=metrics)


def _format_of(name: str) -> Callable[[float], str]:
    """Return how the numbers of a metric are written: durations by the name's end."""
    return duration if name.endswith(("_s", "_s_low", "_s_high")) else number


def _figure_text(
    value: object, in_words: Callable[[float], str], limit: int = MAX_TEXT
) -> Markup | str:
    """Return a metric as HTML.

    Args:
        in_words: Writes a number.
        limit: Characters of what is no number.
    """
    if type(value) is float or type(value) is int:
        return in_words(value)
    if value is None:
        return "–"
    return words(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), limit)
