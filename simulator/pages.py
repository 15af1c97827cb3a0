"""Pages of stored simulations, for browsers."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.pages.filters import stated
from edgeyard.benchmark_api.pages.page import duration, number, page
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.simulator import routes

router = APIRouter(include_in_schema=False)

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
        name for name in FIGURES if any(each.metrics.get(name) is not None for each in items)
    ]
    return page(
        request,
        "simulations",
        caller,
        status=422 if wrong else 200,
        found=found,
        headings=[FIGURES[name] for name in columns],
        rows=[
            (
                each,
                [(FIGURES[name], figure_text(name, each.metrics.get(name))) for name in columns],
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
        (name, figure_text(name, value))
        for name, value in found.metrics.items()
        if value is not None
    ]
    return page(request, "simulation", caller, simulation=found, metrics=metrics)


def figure_text(name: str, value: object) -> str:
    """Return a metric in words: durations and shares by their names, all else as it is."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name.endswith(("_s", "_s_low", "_s_high")):
        return duration(float(value))
    return number(float(value))
