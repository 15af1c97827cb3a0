"""Boards: all of them by host, one of them, and what may be done with it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserOperator, BrowserUser, Caller
from edgeyard.benchmark_api.pages.filters import check_choice, stated
from edgeyard.benchmark_api.pages.forms import Form, SignedInForm, json_body
from edgeyard.benchmark_api.pages.page import items_of_page, page, page_number, see_other
from edgeyard.benchmark_api.pages.results import results_of
from edgeyard.benchmark_api.pages.sign_in import own_page
from edgeyard.benchmark_api.routes import acts, benchmarks, lab, reservations
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.twin.joined import BoardState

router = PageRouter()

NEAR_LIMIT = 0.9
"""Share of its time limit from which on a run is marked."""

PAGE = 100
"""Boards that one page lists."""

RECENT = 20
"""Benchmarks, and lines of its history, that the page of a board lists."""

_IN_SERVICE = ("idle", "busy", "leased")
"""States that follow one another all day: the history of a board shows them as one."""


@dataclass(frozen=True, slots=True)
class Job:
    """What runs on a board, and how much of its time limit is used: 0-1, None: it has none."""

    benchmark: shapes.ListedBenchmark
    used: float | None
    left_s: float | None

    @property
    def near_limit(self) -> bool:
        """Return whether it has nearly used its time up."""
        return self.used is not None and self.used >= NEAR_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a board's history: an act, or a time in a state.

    Attributes:
        state: "": an act. Times in which it was idle, leased or busy are one of ``in service``.
        until: End of that time; None: it is still so, or an act.
        duration_s: Of that time until now.
        busy: How often it ran something.
        busy_s: How long, in seconds.
        act: Who did what.
    """

    at: datetime
    state: str = ""
    reason: str = ""
    until: datetime | None = None
    duration_s: float = 0.0
    busy: int = 0
    busy_s: float = 0.0
    act: shapes.Act | None = None


@router.get("/ui/boards")
def boards(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """All boards by host, with what runs there."""
    query = stated(request)
    state, family = query.get("state", ""), query.get("family", "")
    found = lab.boards(caller, context).content
    states = [each.value for each in BoardState]
    families = sorted({each.family for each in found.items})
    wrong: dict[str, str] = {}
    check_choice(query, "state", states, wrong)
    check_choice(query, "family", families, wrong)
    matching = sorted(
        (each for each in found.items if state in ("", each.state) and family in ("", each.family)),
        key=lambda each: (each.host, each.target_uid),
    )
    number = page_number(query.get("page", ""))
    shown, last = items_of_page(matching, number, PAGE)
    hosts: dict[str, list[shapes.Board]] = {}
    for each in shown:
        hosts.setdefault(each.host, []).append(each)
    return page(
        request,
        "boards",
        caller,
        status=422 if wrong else 200,
        boards=found,
        hosts=list(hosts.items()),
        matching=len(matching),
        number=number,
        last=last,
        states=states,
        families=families,
        wrong=wrong,
        state_wanted=state,
        family=family,
        jobs=_jobs(caller, context),
    )


@router.get("/ui/boards/{target_uid}")
def board(request: Request, target_uid: str, caller: BrowserUser, context: Ctx) -> Response:
    """One board: facts, what runs, who has it, recent benchmarks, and what may be done."""
    found = lab.board(target_uid, caller, context).content
    recent = benchmarks.list_benchmarks(
        caller, context, target_uid=target_uid, limit=RECENT
    ).content
    return page(
        request,
        "board",
        caller,
        board=found,
        job=_jobs(caller, context, target_uid).get(found.benchmark_id or ""),
        recent=recent.items,
        results=results_of(recent.items, caller, context),
        history=_history(found, caller, context),
        months=found.months,
        may_lease=caller.is_operator or (caller.may_submit and caller.user.max_lease_s > 0),
    )


@router.post("/ui/boards/{target_uid}/drain")
def drain(target_uid: str, form: SignedInForm, caller: BrowserOperator, context: Ctx) -> Response:
    """Drain a board."""
    lab.drain(target_uid, json_body(reason=form.text("reason")), caller, context)
    return _back(form, target_uid, "drained")


@router.post("/ui/boards/{target_uid}/resume")
def resume(target_uid: str, form: SignedInForm, caller: BrowserOperator, context: Ctx) -> Response:
    """Put a drained board back into service."""
    lab.resume(target_uid, caller, context)
    return _back(form, target_uid, "resumed")


@router.post("/ui/boards/{target_uid}/quarantine")
def quarantine(
    target_uid: str, form: SignedInForm, caller: BrowserOperator, context: Ctx
) -> Response:
    """Put a board into quarantine."""
    reservations.quarantine(target_uid, json_body(reason=form.text("reason")), caller, context)
    return _back(form, target_uid, "quarantined")


@router.post("/ui/boards/{target_uid}/unquarantine")
def unquarantine(
    target_uid: str, form: SignedInForm, caller: BrowserOperator, context: Ctx
) -> Response:
    """Lift the quarantine of a board."""
    reservations.unquarantine(target_uid, caller, context)
    return _back(form, target_uid, "lifted")


@router.post("/ui/boards/{target_uid}/probe")
def probe(target_uid: str, form: SignedInForm, caller: BrowserOperator, context: Ctx) -> Response:
    """Probe a quarantined board now."""
    reservations.probe(target_uid, caller, context)
    return _back(form, target_uid, "probed")


@router.post("/ui/boards/{target_uid}/lease")
def lease(target_uid: str, form: SignedInForm, caller: BrowserUser, context: Ctx) -> Response:
    """Lease a board for some hours from now on."""
    try:
        hours = float(form.text("hours"))
        until = context.services.clock.now() + timedelta(hours=hours)
    except (ValueError, OverflowError):
        reason = "is no number of hours"
        raise InvalidInput.at("/hours", reason, "a number such as 1.5") from None
    body = json_body(until=until, reason=form.text("reason"))
    reservations.lease(target_uid, body, caller, context)
    return _back(form, target_uid, "leased")


@router.post("/ui/leases/{lease_id}/release")
def release(lease_id: str, form: SignedInForm, caller: BrowserUser, context: Ctx) -> Response:
    """End a lease."""
    ended = reservations.release(lease_id, caller, context).content
    return _back(form, ended.target_uid, "lease-released")


def _history(board: shapes.DescribedBoard, caller: Caller, context: Context) -> list[Entry]:
    """Return what happened to a board, newest first, as far as the caller may see it."""
    now = context.services.clock.now()
    found = acts.acts(
        caller, context, board=board.target_uid, limit=RECENT, cursor=None, after=None
    )
    done = [
        Entry(at=each.at, act=each)
        for each in found.content.items
        if each.kind.startswith("board.")
    ]
    times = [
        _entry(list(periods), now)
        for _, periods in itertools.groupby(
            board.states, lambda each: "in service" if each.state in _IN_SERVICE else each
        )
    ]
    both = sorted([*done, *times], key=lambda each: each.at, reverse=True)
    return both[:RECENT]


def _entry(periods: Sequence[shapes.BoardPeriod], now: datetime) -> Entry:
    """Return times that follow one another, newest first, as one line."""
    newest, oldest = periods[0], periods[-1]
    busy = [each for each in periods if each.state == "busy"]
    return Entry(
        at=oldest.since,
        state=newest.state if newest.state not in _IN_SERVICE else "in service",
        reason=newest.reason if newest.state not in _IN_SERVICE else "",
        until=newest.until,
        duration_s=((newest.until or now) - oldest.since).total_seconds(),
        busy=len(busy),
        busy_s=sum(((each.until or now) - each.since).total_seconds() for each in busy),
    )


def _back(form: Form, target_uid: str, done: str) -> Response:
    wanted = form.text("next")
    return see_other(
        own_page(wanted) if wanted else f"/ui/boards/{quote(target_uid, safe='')}", done
    )


def _jobs(caller: Caller, context: Context, target_uid: str | None = None) -> dict[str, Job]:
    """Return what the caller may see of what runs, by benchmark."""
    live = benchmarks.list_benchmarks(
        caller,
        context,
        status=[Status.RUNNING, Status.SCHEDULED],
        target_uid=target_uid,
        limit=benchmarks.MAX_PAGE,
    ).content
    now = context.services.clock.now()
    default_s = context.services.settings.default_user_time_s
    return {each.benchmark_id: _job(each, now, default_s) for each in live.items}


def _job(benchmark: shapes.ListedBenchmark, now: datetime, default_s: float) -> Job:
    limit_s = benchmark.description.get("user_time") or default_s
    if benchmark.started_at is None or not isinstance(limit_s, int | float):
        return Job(benchmark, None, None)
    ran_s = (now - benchmark.started_at).total_seconds()
    return Job(benchmark, min(1.0, max(0.0, ran_s / limit_s)), max(0.0, limit_s - ran_s))
