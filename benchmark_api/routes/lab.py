"""The lab: boards, inventory, and the queue as a whole."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.routes import views
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, answer
from edgeyard.benchmark_api.routes.documented import accepts, answers
from edgeyard.benchmark_api.routes.views import lease as shown_lease
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import DrainIn, parse
from edgeyard.benchmark_api.services import Services
from edgeyard.devices.inventory import known_families
from edgeyard.devices.model import Board
from edgeyard.errors import NotFound, Unavailable
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.wire import (
    JsonObject,
    quarantine_to_json,
    time_to_json,
    waiting_to_json,
)
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.twin.comparison import Finding
from edgeyard.scheduler.twin.twin import BoardView

router = APIRouter(prefix="/v1", tags=["lab"])


@router.get("/boards", responses=answers(200, shapes.Boards))
def boards(caller: Submitter, context: Ctx) -> Response:
    """All boards, with their state and what they run."""
    services = context.services
    views = services.engine.boards()
    age_s = services.engine.twin_age_s()
    known = math.isfinite(age_s)
    taken_at = services.clock.now() - timedelta(seconds=age_s) if known else None
    mine = _visible_holders(context, caller, views)
    kept = _Kept(context, caller)
    return answer(
        {
            "items": [_board(view, mine, kept) for view in views],
            "taken_at": time_to_json(taken_at),
            "age_s": round(age_s, 3) if known else None,
            "cluster_problem": services.engine.trouble(),
        }
    )


@router.get("/boards/{target_uid}", responses=answers(200, shapes.Board))
def board(target_uid: str, caller: Submitter, context: Ctx) -> Response:
    """One board."""
    return answer(shown_board(target_uid, caller, context))


@router.post(
    "/boards/{target_uid}/drain",
    responses=answers(200, shapes.Board),
    openapi_extra=accepts("DrainIn", required=False),
)
def drain(target_uid: str, body: Body, caller: Operator, context: Ctx) -> Response:
    """Take a board out: what runs on it ends, nothing new is placed there."""
    reason = parse(DrainIn, body.tree()).reason
    return _overridden(target_uid, True, reason, caller, context)


@router.post("/boards/{target_uid}/resume", responses=answers(200, shapes.Board))
def resume(target_uid: str, caller: Operator, context: Ctx) -> Response:
    """Put a drained board back into service."""
    return _overridden(target_uid, False, "", caller, context)


@router.get("/strays", responses=answers(200, shapes.StrayJobs))
def strays(caller: Operator, context: Ctx) -> Response:
    """Live jobs under Edgeyard's names that its database does not know; they hold their boards."""
    cluster = context.services.cluster
    found = cluster.strays()
    return answer(
        {
            "items": [
                {"job_id": job_id, "target_uid": uid, "page": cluster.page_of(job_id)}
                for job_id, uid in found.items()
            ]
        }
    )


@router.post("/strays/{job_id}/stop", status_code=204)
def stop_stray(job_id: str, caller: Operator, context: Ctx) -> Response:
    """Stop such a job, which frees its board; what it measured is lost."""
    services = context.services
    found = services.cluster.strays()
    if job_id not in found:
        raise NotFound("stray job", job_id)
    services.cluster.stop(job_id)
    event = Event(
        at=services.clock.now(),
        kind="cluster.stray_stopped",
        user_id=caller.user_id,
        data={"job_id": job_id, "target_uid": found[job_id]},
    )
    services.store.transact(lambda uow: uow.log.append(event))
    return Response(status_code=204)


@router.get("/inventory/check", responses=answers(200, shapes.InventoryCheck))
def check(caller: Submitter, context: Ctx) -> Response:
    """The inventory against what hosts report: boards that are missing, unknown or different."""
    services = context.services
    found = services.engine.comparison()
    if found is None:
        raise Unavailable("the cluster has not told of any board yet")
    age_s = services.engine.twin_age_s()
    unknown_matters = found.unknown and services.settings.unknown_devices != "allow"
    return answer(
        {
            "ok": not (found.missing or found.differing or unknown_matters),
            "unknown_devices": services.settings.unknown_devices,
            "missing": [_finding(each) for each in found.missing],
            "unknown": [_finding(each) for each in found.unknown],
            "differing": [_finding(each) for each in found.differing],
            "taken_at": time_to_json(services.clock.now() - timedelta(seconds=age_s)),
            "age_s": round(age_s, 3),
        }
    )


@router.get("/inventory", responses=answers(200, shapes.Inventory))
def inventory(caller: Submitter, context: Ctx) -> Response:
    """Expected boards and the facts of their families."""
    expected = context.services.inventory
    facts = known_families()
    told: JsonObject = {
        "families": {
            name: asdict(facts[name]) if name in facts else {"family": name}
            for name in expected.families()
        },
        "boards": [_expected(each) for each in expected.boards],
    }
    return answer(told)


@router.get("/queue", responses=answers(200, shapes.Queue))
def queue(
    caller: Submitter, context: Ctx, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000
) -> Response:
    """Who waits, in which order, and why; whose, is for operators and for themselves.

    `position`: null for one that can't ever be placed as it is; it holds nobody up.
    """
    services = context.services
    seen = services.engine.queue()
    with services.store.read() as uow:
        found = {each.benchmark_id: each for each in uow.benchmarks.get_many(seen.order[:limit])}
    waiting = [
        found[each_id]
        for each_id in seen.order[:limit]
        if each_id in found and found[each_id].status is Status.PENDING
    ]
    places = itertools.count()
    age_s = services.engine.twin_age_s()
    return answer(
        {
            "items": [
                _waiting(
                    services,
                    None if each.benchmark_id in seen.never else next(places),
                    each,
                    caller,
                )
                for each in waiting
            ],
            "decided_at": seen.decided_at_iso or None,
            "policy": seen.policy,
            "age_s": round(age_s, 3) if math.isfinite(age_s) else None,
            "cluster_problem": services.engine.trouble(),
        }
    )


def _waiting(
    services: Services, position: int | None, benchmark: Benchmark, caller: Caller
) -> JsonObject:
    mine = caller.may_see(benchmark.user_id)
    asked = benchmark.description
    return {
        "position": position,
        "benchmark_id": benchmark.benchmark_id if mine else None,
        "user_id": benchmark.user_id if mine else None,
        "priority": benchmark.priority,
        # The sentence may name others' benchmarks.
        "waiting_reason": waiting_to_json(benchmark.waiting) if mine else None,
        "submit_time": time_to_json(benchmark.submit_time),
        "target": asked.family,
        "runtime": asked.runtime,
        "benchmark_type": asked.benchmark_type.value,
        "model": asked.model if mine else None,
        "forecast": views.forecast(services, services.engine.forecast(benchmark.benchmark_id)),
    }


def _overridden(
    target_uid: str, drained: bool, reason: str, caller: Caller, context: Context
) -> Response:
    services = context.services
    if not any(view.board.target_uid == target_uid for view in services.engine.boards()):
        raise NotFound("board", target_uid)
    now = services.clock.now()

    def change(uow: UnitOfWork) -> None:
        uow.board_overrides.put(
            BoardOverride(
                target_uid=target_uid,
                drained=drained,
                reason=reason,
                by_user_id=caller.user_id,
                at=now,
            )
        )
        uow.log.append(
            Event(
                at=now,
                kind="board.drained" if drained else "board.resumed",
                user_id=caller.user_id,
                data={"target_uid": target_uid, "reason": reason},
            )
        )

    services.store.transact(change)
    services.engine.wake()
    return answer(shown_board(target_uid, caller, context))


def shown_board(target_uid: str, caller: Caller, context: Context) -> JsonObject:
    """One board as it is now.

    Raises:
        NotFound: There is none.
    """
    for view in context.services.engine.boards():
        if view.board.target_uid == target_uid:
            mine = _visible_holders(context, caller, [view])
            return _board(view, mine, _Kept(context, caller))
    raise NotFound("board", target_uid)


class _Kept:
    """What keeps boards from the queue, as JSON, by board."""

    def __init__(self, context: Context, caller: Caller) -> None:
        with context.services.store.read() as uow:
            leases = uow.reservations.leases(context.services.clock.now())
            aside = uow.reservations.quarantines()
        self._leases: dict[str, list[JsonObject]] = {}
        for each in leases:
            self._leases.setdefault(each.target_uid, []).append(shown_lease(each, caller))
        self._aside = {uid: each for uid, each in aside.items() if each.active}
        self._caller = caller

    def of(self, target_uid: str) -> JsonObject:
        """Who did it, and the probe's id, are for operators."""
        found = self._aside.get(target_uid)
        told = None if found is None else quarantine_to_json(found)
        if told is not None and not self._caller.is_operator:
            told |= {"by_user_id": None, "probe_id": None}
        return {"quarantine": told, "leases": self._leases.get(target_uid, [])}


def _visible_holders(
    context: Context, caller: Caller, views: Sequence[BoardView]
) -> frozenset[str]:
    """Of the benchmarks that hold boards, those that the caller may know."""
    holders = [view.holder for view in views if view.holder is not None]
    if caller.is_operator or not holders:
        return frozenset(holders)
    with context.services.store.read() as uow:
        found = uow.benchmarks.get_many(holders)
    return frozenset(each.benchmark_id for each in found if caller.may_see(each.user_id))


def _board(view: BoardView, visible: frozenset[str], kept: _Kept) -> JsonObject:
    board = view.board
    mine = view.holder if view.holder in visible else None
    foreign = view.holder is not None and mine is None
    return {
        "target_uid": board.target_uid,
        "family": board.family,
        "state": view.state.value,
        "reason": "runs another user's benchmark" if foreign and view.reason else view.reason,
        "engines": _engines(board),
        "ram_bytes": board.ram_bytes,
        "storage_bytes": board.storage_bytes,
        "host": view.host,
        "host_clock_offset_s": view.clock_offset_s,
        "progress": board.progress,
        "benchmark_id": mine,
        "emulated": board.local is not None,
        "expected": view.expected,
        **kept.of(board.target_uid),
    }


def _finding(finding: Finding) -> JsonObject:
    return {
        "target_uid": finding.target_uid,
        "host": finding.host,
        "reason": finding.reason,
        "differences": [
            {"what": each.what, "expected": each.expected, "found": each.found}
            for each in finding.differences
        ],
    }


def _expected(board: Board) -> JsonObject:
    return {
        "target_uid": board.target_uid,
        "family": board.family,
        "engines": _engines(board),
        "ram_bytes": board.ram_bytes,
        "storage_bytes": board.storage_bytes,
        "emulated": board.local is not None,
        "shares_with": sorted(board.shares_with),
    }


def _engines(board: Board) -> list[JsonObject]:
    return [
        {
            "name": engine.name,
            "version": engine.version,
            "supported_types": sorted(engine.supported_types),
        }
        for engine in board.engines
    ]
