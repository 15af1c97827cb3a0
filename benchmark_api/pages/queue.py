"""The queue, in the order of the decision."""

from __future__ import annotations

import csv
import io

from fastapi import APIRouter, Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.pages.page import page
from edgeyard.benchmark_api.routes import lab
from edgeyard.benchmark_api.routes.context import Ctx

router = APIRouter(include_in_schema=False)

LIMIT = 500
"""Benchmarks that the page lists; the CSV lists `MAX_CSV`."""
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
    return page(request, "queue", caller, queue=found, limit=LIMIT)


@router.get("/ui/queue.csv")
def queue_csv(caller: BrowserUser, context: Ctx) -> Response:
    """The queue as a table for spreadsheets."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    for each in lab.queue(caller, context, limit=MAX_CSV).content.items:
        reason, forecast = each.waiting_reason, each.forecast
        row = (
            *(each.position, each.benchmark_id, each.user_id, each.priority),
            *((reason.code, reason.sentence) if reason else ("", "")),
            *(each.target, each.runtime, each.benchmark_type, each.model),
            each.submit_time.isoformat(),
            *(
                (each_time.isoformat() for each_time in times)
                if forecast and (times := (forecast.start, forecast.start_low, forecast.start_high))
                else ("", "", "")
            ),
        )
        writer.writerow(["" if cell is None else _inert(cell) for cell in row])
    headers = {
        "Content-Disposition": 'attachment; filename="queue.csv"',
        "Cache-Control": "no-store",
    }
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


def _inert(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula."""
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{cell}"
    return cell
