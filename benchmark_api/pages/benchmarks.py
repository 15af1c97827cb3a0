"""Benchmarks: a list with filters, one of them with its result and why, and what may be done."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from fastapi.responses import Response
from msgspec import UNSET
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import BrowserUser, Caller
from edgeyard.benchmark_api.pages.compare import comparison_query, pack
from edgeyard.benchmark_api.pages.filters import check_choice, stated, time_of, type_choices
from edgeyard.benchmark_api.pages.forms import Form, SignedInForm, json_body
from edgeyard.benchmark_api.pages.highlighting import highlighted
from edgeyard.benchmark_api.pages.page import page, see_other, type_text
from edgeyard.benchmark_api.pages.results import result_figures, results_of, stated_fields
from edgeyard.benchmark_api.pages.sign_in import own_page
from edgeyard.benchmark_api.pages.timeline import by_reason, steps_of, waits_of
from edgeyard.benchmark_api.routes import benchmarks, inspection, results, submitting
from edgeyard.benchmark_api.routes.benchmarks import VERDICTS
from edgeyard.benchmark_api.routes.context import Context, Ctx, whole_id
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import Conflict, EdgeyardError, InvalidInput, NotFound
from edgeyard.scheduler.model.benchmark import TERMINAL, Status

router = PageRouter()

PAGE = 50
MAX_BOARDS = 300
"""Boards that the page of reasons lists."""
MAX_LOG_LINES = 5000
"""Lines of a log that its page shows, the last ones."""

_TEXTS = ("model", "target", "runtime", "target_uid", "tag", "campaign_id", "name", "user_id")
"""Filters that take any text."""

_CHOSEN = ("ids", "benchmark_id")
"""What the address states of benchmarks that are ticked to be compared."""

_SHOWN_FIRST = ("status", "verdict", "type", "model", "target", "target_uid")
"""Filters that are not among the further ones."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
"""Sequences by which programs colour a terminal."""


async def _whole(request: Request, benchmark_id: str, caller: BrowserUser) -> str:
    context: Context = request.app.state.context
    return await run_in_threadpool(whole_id, context.services, benchmark_id, caller)


_Id = Annotated[str, Depends(_whole)]


@router.get("/ui/benchmarks")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Benchmarks, newest first, as filtered; campaigns are folded."""
    query = stated(request, without=_CHOSEN)
    wrong: dict[str, str] = {}
    chosen: tuple[str, ...] = ()
    try:
        chosen = comparison_query(request).ids
    except InvalidInput as error:
        wrong["ids"] = str(error)
    found: shapes.BenchmarkPage | None = None
    status, types = query.get("status", ""), type_choices(query, context)
    check_choice(query, "status", list(Status), wrong)
    check_choice(query, "type", types, wrong)
    check_choice(query, "verdict", VERDICTS, wrong)
    times = {
        name: time_of(query.get(name, ""), wrong, name)
        for name in ("submitted_from", "submitted_before")
    }
    if not wrong:
        try:
            found = benchmarks.list_benchmarks(
                caller,
                context,
                status=[Status(status)] if status else None,
                benchmark_type=query.get("type"),
                verdict=query.get("verdict"),  # type: ignore[arg-type]  # checked above
                **{name: query[name] for name in _TEXTS if name in query},  # type: ignore[arg-type]
                submitted_from=times["submitted_from"],
                submitted_before=times["submitted_before"],
                limit=PAGE,
                cursor=query.get("cursor"),
            ).content
        except InvalidInput as error:
            wrong["cursor"] = str(error)
    return page(
        request,
        "benchmarks",
        caller,
        status=422 if wrong else 200,
        found=found,
        groups=_folded(found.items if found else []),
        results=results_of(found.items if found else [], caller, context),
        query=query,
        wrong=wrong,
        statuses=list(Status),
        types=types,
        type_texts={each: type_text(each) for each in types},
        verdicts=VERDICTS,
        chosen=chosen,
        chosen_elsewhere=_elsewhere(chosen, found),
        more_filters=not set(query) <= {*_SHOWN_FIRST, "cursor", "done"},
        filtered=bool(set(query) - {"cursor", "done"}),
    )


@router.get("/ui/benchmarks/{benchmark_id}")
def one(request: Request, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """One benchmark: how it went, what it measured, its files, its job, and why there."""
    shown = benchmarks.show(benchmark_id, caller, context).content
    found = results.results(shown.benchmark_id, caller, context).content
    explanation = _explanation(shown.benchmark_id, caller, context)
    now = context.services.clock.now()
    waits = waits_of(shown, inspection.happened(shown.benchmark_id, caller, context), now)
    return page(
        request,
        "benchmark",
        caller,
        benchmark=shown,
        results=found,
        explanation=explanation,
        figures=result_figures(found, context),
        steps=steps_of(shown, waits),
        waits=by_reason(waits),
        stated_fields=stated_fields(shown.description),
        hcl=_hcl(shown.benchmark_id, caller, context),
        ended=shown.status in TERMINAL,
    )


@router.get("/ui/benchmarks/{benchmark_id}/why")
async def why(request: Request, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """Why there, why not elsewhere, and what would change it: boards, costs, scorers."""
    shown = (await run_in_threadpool(benchmarks.show, benchmark_id, caller, context)).content
    trouble, found = "", None
    try:
        found = (
            await inspection.explanation(shown.benchmark_id, caller, context, changes=True)
        ).content
    except NotFound:
        kept = "any more" if shown.status in TERMINAL else "yet"
        trouble = f"No decision on it is known {kept}."
    except Conflict as error:
        trouble = str(error)
    verdicts = found.verdicts if found else []
    chosen = found.chosen_uid if found else None
    verdicts = sorted(
        verdicts, key=lambda each: (each.target_uid != chosen, each.reason is not None, each.never)
    )
    return await run_in_threadpool(
        page,
        request,
        "why",
        caller,
        benchmark=shown,
        explanation=found,
        trouble=trouble,
        changes=found.changes if found and found.changes is not UNSET else None,
        reasons=Counter((each.reason or "", each.never) for each in verdicts).most_common(),
        parts=_named(each.cost_parts_s for each in verdicts),
        scorers=_named(each.scores for each in verdicts),
        verdicts=verdicts,
        limit=MAX_BOARDS,
    )


@router.get("/ui/benchmarks/{benchmark_id}/log")
def log(request: Request, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """The log of the newest attempt, with numbered lines."""
    shown = benchmarks.show(benchmark_id, caller, context).content
    wanted = request.query_params.get("contains", "").strip()
    trouble, text = "", ""
    try:
        data = inspection.newest_log(shown.benchmark_id, caller, context)
        text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    except (NotFound, Conflict) as error:
        trouble = str(error)
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if wanted.lower() in line.lower()
    ]
    return page(
        request,
        "log",
        caller,
        benchmark=shown,
        lines=lines[-MAX_LOG_LINES:],
        left_out=max(0, len(lines) - MAX_LOG_LINES),
        contains=wanted,
        trouble=trouble,
        ended=shown.status in TERMINAL,
    )


@router.get("/ui/benchmarks/{benchmark_id}/files/{attempt}/{name}")
def file(
    request: Request, benchmark_id: _Id, attempt: int, name: str, caller: BrowserUser, context: Ctx
) -> Response:
    """A file that an attempt uploaded; saved, never shown."""
    return results.result_file(benchmark_id, attempt, name, request, caller, context)


@router.post("/ui/benchmarks/{benchmark_id}/cancel")
def cancel(form: SignedInForm, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """Cancel a benchmark."""
    benchmarks.cancel(benchmark_id, caller, context)
    return _back(form, benchmark_id, "cancelled")


@router.post("/ui/benchmarks/{benchmark_id}/hold")
def hold(form: SignedInForm, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """Keep a waiting benchmark from being placed."""
    benchmarks.hold(benchmark_id, caller, context)
    return _back(form, benchmark_id, "held")


@router.post("/ui/benchmarks/{benchmark_id}/release")
def release(form: SignedInForm, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """Let a held benchmark go on."""
    benchmarks.release(benchmark_id, caller, context)
    return _back(form, benchmark_id, "released")


@router.post("/ui/benchmarks/{benchmark_id}/priority")
def prioritise(
    form: SignedInForm, benchmark_id: _Id, caller: BrowserUser, context: Ctx
) -> Response:
    """Give a waiting benchmark another user priority."""
    text = form.text("user_priority")
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise InvalidInput.at("/user_priority", "is no whole number", "1 to 10")
    benchmarks.prioritise(benchmark_id, json_body(user_priority=int(text)), caller, context)
    return _back(form, benchmark_id, "prioritised")


@router.post("/ui/benchmarks/{benchmark_id}/retry")
def retry(form: SignedInForm, benchmark_id: _Id, caller: BrowserUser, context: Ctx) -> Response:
    """Run a benchmark that has ended once more, as a new one."""
    made = submitting.retry(benchmark_id, json_body(), caller, context).content
    return see_other(f"/ui/benchmarks/{quote(made.benchmark_id or benchmark_id)}", "retried")


def _back(form: Form, benchmark_id: str, done: str) -> Response:
    wanted = form.text("next")
    return see_other(own_page(wanted) if wanted else f"/ui/benchmarks/{quote(benchmark_id)}", done)


def _elsewhere(chosen: Sequence[str], found: shapes.BenchmarkPage | None) -> str:
    """Return those that are ticked on other pages of the list, packed; "" for none."""
    here = {each.benchmark_id for each in found.items} if found else set()
    others = [each for each in chosen if each not in here]
    return pack(others) if others else ""


def _folded(
    items: list[shapes.ListedBenchmark],
) -> list[tuple[str | None, list[shapes.ListedBenchmark]]]:
    """Return runs of benchmarks of one campaign, and what belongs to none."""
    return [
        (campaign_id, list(members))
        for campaign_id, members in itertools.groupby(items, lambda each: each.campaign_id)
    ]


def _named(values: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the names that have a value for a board, in their order."""
    return list(
        dict.fromkeys(name for each in values for name, value in each.items() if value is not None)
    )


def _explanation(benchmark_id: str, caller: Caller, context: Context) -> shapes.Explanation | None:
    try:
        return inspection.explained(benchmark_id, caller, context, False).content
    except NotFound:
        return None


def _hcl(benchmark_id: str, caller: Caller, context: Context) -> object:
    try:
        answer = inspection.hcl(benchmark_id, caller, context)
    except EdgeyardError:
        return None
    return highlighted(bytes(answer.body).decode())
