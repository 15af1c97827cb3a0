"""The queue, in the order of the decision."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.pages.page import (
    items_of_page,
    number,
    page,
    page_number,
    type_words,
)
from edgeyard.benchmark_api.pages.spreadsheets import csv_file
from edgeyard.benchmark_api.routes import lab
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes

router = PageRouter()

PAGE = 100
"""Benchmarks that one page lists."""
LIMIT = 500
"""Benchmarks that all pages list; the CSV lists `MAX_CSV`."""
MAX_CSV = 10_000

_COLUMNS = (
    *("position", "benchmark_id", "user_id", "priority", "waiting_reason", "waiting_sentence"),
    *("target", "runtime", "benchmark_type", "model", "submit_time"),
    *("start", "start_low", "start_high"),
)


@router.get("/ui/queue")
def queue(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Who waits, why, and when each is expected to start."""
    found = lab.queue(caller, context, limit=LIMIT).content
    here = page_number(request.query_params.get("page", ""))
    shown, last = items_of_page(found.items, here, PAGE)
    return page(
        request,
        "queue",
        caller,
        queue=found,
        rows=[(each, _about(each), _parts(each)) for each in shown],
        waiting=len(found.items),
        limit=LIMIT,
        here=here,
        last=last,
        own_page=f"/ui/queue?page={here}" if here > 1 else "/ui/queue",
    )


def _about(item: shapes.QueueItem) -> str:
    measured = item.benchmark_type and type_words(item.benchmark_type)
    parts = (item.model if item.name else None, measured, item.runtime, item.target, item.user_id)
    return " · ".join(each for each in parts if each)


def _parts(item: shapes.QueueItem) -> str:
    """Return what the priority is the sum of."""
    parts = sorted((item.priority_parts or {}).items())
    return " + ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in parts)


@router.get("/ui/queue.csv")
def queue_csv(caller: BrowserUser, context: Ctx) -> Response:
    """The queue as a table for spreadsheets."""
    rows = []
    for each in lab.queue(caller, context, limit=MAX_CSV).content.items:
        reason, forecast = each.waiting_reason, each.forecast
        rows.append(
            (
                *(each.position, each.benchmark_id, each.user_id, each.priority),
                *((reason.code, reason.sentence) if reason else (None, None)),
                *(each.target, each.runtime, each.benchmark_type, each.model, each.submit_time),
                *(
                    (forecast.start, forecast.start_low, forecast.start_high)
                    if forecast
                    else (None, None, None)
                ),
            )
        )
    return csv_file("queue.csv", _COLUMNS, rows)
