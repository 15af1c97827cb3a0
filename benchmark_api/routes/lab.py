"""The lab: boards, inventory, and the queue as a whole."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import msgspec
from fastapi import Query
from fastapi.responses import Response

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.board_times import BoardTime
from edgeyard.benchmark_api.lab_inventory import LabInventory
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts, accepts_document
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import DrainIn, parse
from edgeyard.benchmark_api.services import Services
from edgeyard.devices.attributes import TEMPERATURE_C, attributes_of, meaning, members
from edgeyard.devices.inventory import Family, known_families
from edgeyard.devices.model import AttributeValue, Board
from edgeyard.errors import NotFound, Unavailable
from edgeyard.scheduler.model.accounting import BoardMonth
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.model.boards import BoardOverride, BoardStateChange
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.strict_json import time_from_json
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.twin.twin import BoardView

router = Router(prefix="/v1", tags=["lab"])

MAX_VALUES = 20
"""Maximum number of values that `attributes` lists of an attribute."""

MAX_STATES = 200
"""Newest states of a board that `board` returns."""

MAX_MONTHS = 12
"""Last months of a board that `board` returns."""

FOREIGN_REASON = "runs another user's benchmark"
"""The reason for a board's state, where the caller may not know more."""

_HOUR_S = 3600.0


@router.get("/boards")
def boards(caller: Submitter, context: Ctx) -> Answer[shapes.Boards]:
    """All boards, with their state and what they run."""
    services = context.services
    found = services.engine.boards()
    age_s = services.engine.twin_age_s()
    known = math.isfinite(age_s)
    taken_at = services.clock.now() - timedelta(seconds=age_s) if known else None
    mine = _visible_holders(context, caller, found)
    reserved = _Reservations(context, caller)
    return Answer(
        shapes.Boards(
            items=[_board(view, mine, reserved, services) for view in found],
            taken_at=taken_at,
            **views.cluster_state(services),
        )
    )


@router.get("/boards/{target_uid}")
def board(target_uid: str, caller: Submitter, context: Ctx) -> Answer[shapes.DescribedBoard]:
    """One board with its attributes, its newest states, and its use by month."""
    shown = shown_board(target_uid, caller, context)
    found = _attributes(context.services, shown.family)[target_uid]
    with context.services.store.read() as uow:
        changes = uow.accounting.board_states(target_uid, limit=MAX_STATES)
        months = uow.accounting.months_of_board(target_uid, limit=MAX_MONTHS)
        held = uow.benchmarks.get_many([each.benchmark_id for each in changes if each.benchmark_id])
    mine = {each.benchmark_id for each in held if caller.may_see(each.user_id)}
    return Answer(
        shapes.DescribedBoard(
            **msgspec.structs.asdict(shown),
            attributes=dict(sorted(found.items())),
            states=_periods(changes, mine),
            months=[_month(each) for each in months],
        )
    )


@router.get("/attributes")
def attributes(
    caller: Submitter, context: Ctx, family: str | None = None
) -> Answer[shapes.Attributes]:
    """Attributes of the lab's boards, which constraints may name, with their values."""
    counts: dict[str, Counter[AttributeValue]] = {}
    for board_attributes in _attributes(context.services, family).values():
        for name, value in board_attributes.items():
            counts.setdefault(name, Counter())[value] += 1
    items = []
    for name, found in sorted(counts.items()):
        values = sorted(found, key=lambda value: (str(type(value)), value))
        items.append(
            shapes.Attribute(
                name=name,
                meaning=meaning(name),
                boards=found.total(),
                values=values[:MAX_VALUES],
                more_values=max(0, len(values) - MAX_VALUES),
            )
        )
    return Answer(shapes.Attributes(items=items))


@router.post("/boards/{target_uid}/drain", openapi_extra=accepts("DrainIn", required=False))
def drain(target_uid: str, body: Body, caller: Operator, context: Ctx) -> Answer[shapes.Board]:
    """Take a board out: what runs on it runs to its end, nothing new is placed there."""
    reason = parse(DrainIn, body.tree()).reason
    return _overridden(target_uid, True, reason, caller, context)


@router.post("/boards/{target_uid}/resume")
def resume(target_uid: str, caller: Operator, context: Ctx) -> Answer[shapes.Board]:
    """Put a drained board back into service."""
    return _overridden(target_uid, False, "", caller, context)


@router.get("/strays")
def strays(caller: Operator, context: Ctx) -> Answer[shapes.StrayJobs]:
    """Live jobs under Edgeyard's names that its database does not know; they hold their boards."""
    cluster = context.services.cluster
    found = cluster.strays()
    items = [
        shapes.StrayJob(job_id=job_id, target_uid=uid, page=cluster.page_of(job_id))
        for job_id, uid in found.items()
    ]
    return Answer(shapes.StrayJobs(items=items))


@router.post("/strays/{job_id:path}/stop", status_code=204)
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


@router.get("/inventory/check")
def check(caller: Submitter, context: Ctx) -> Answer[shapes.InventoryCheck]:
    """The inventory against what hosts report: boards that are missing, unknown or different."""
    services = context.services
    found = services.engine.comparison()
    if found is None:
        raise Unavailable("the cluster has not reported any board yet")
    age_s = services.engine.twin_age_s()
    unknown_matters = found.unknown and services.settings.unknown_devices != "allow"
    return Answer(
        views.same(
            shapes.InventoryCheck,
            found,
            ok=not (found.missing or found.differing or unknown_matters),
            unknown_devices=services.settings.unknown_devices,
            taken_at=services.clock.now() - timedelta(seconds=age_s),
            age_s=round(age_s, 3),
        )
    )


@router.get("/inventory")
def inventory(caller: Submitter, context: Ctx) -> Answer[shapes.Inventory]:
    """Expected boards and the facts of their families."""
    expected = context.services.inventory
    facts = known_families()
    return Answer(
        shapes.Inventory(
            families={name: _family(name, facts.get(name)) for name in expected.families()},
            boards=[_expected(each) for each in expected.boards],
            problem=context.services.inventory_problem,
        )
    )


@router.post("/inventory/boards", status_code=201, openapi_extra=accepts_document(None))
def add_board(body: Body, caller: Operator, context: Ctx) -> Answer[shapes.ExpectedBoard]:
    """Add a board to the inventory, also of a new family; the body is an entry of its file."""
    services = context.services
    added = _changeable(services).add(body.tree(), caller.user_id, services.inventory)
    services.reload_inventory()
    services.engine.wake()
    return Answer(_expected(added), 201)


@router.delete("/inventory/boards/{target_uid}", status_code=204)
def remove_board(target_uid: str, caller: Operator, context: Ctx) -> Response:
    """Remove a board from the inventory; a run on it goes on to its end, nothing new is placed."""
    services = context.services
    _changeable(services).remove(target_uid, caller.user_id, services.inventory)
    services.reload_inventory()
    services.engine.wake()
    return Response(status_code=204)


def _changeable(services: Services) -> LabInventory:
    if services.lab_inventory is None:
        raise Unavailable("this server's inventory can't be changed")
    return services.lab_inventory


@router.get("/queue")
def queue(
    caller: Submitter,
    context: Ctx,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    user: str | None = None,
    target: str | None = None,
) -> Answer[shapes.Queue]:
    """Who waits, in which order, and why; whose, is for operators and for themselves.

    `position`: in the whole queue, also with `user` (one's own, or any for operators) and `target`
    (the family of boards); null for one that can't ever be placed as it is; no other benchmark
    waits for it.
    """
    services = context.services
    seen = services.engine.queue()
    filtered = user is not None or target is not None
    order = seen.order if filtered else seen.order[:limit]
    with services.store.read() as uow:
        found = {each.benchmark_id: each for each in uow.benchmarks.get_many(order)}
    places = itertools.count()
    pending = [
        (None if each_id in seen.never else next(places), found[each_id])
        for each_id in order
        if each_id in found and found[each_id].status is Status.PENDING
    ]
    waiting = [
        (place, each)
        for place, each in pending
        if (user is None or (each.user_id == user and caller.may_see(user)))
        and (target is None or each.description.family == target)
    ][:limit]
    parts = services.engine.priority_parts([each.benchmark_id for _, each in waiting])
    return Answer(
        shapes.Queue(
            items=[
                _queue_item(
                    services,
                    place,
                    each,
                    caller,
                    parts.get(each.benchmark_id, {}),
                )
                for place, each in waiting
            ],
            decided_at=time_from_json(seen.decided_at_iso) if seen.decided_at_iso else None,
            policy=seen.policy,
            **views.cluster_state(services),
        )
    )


def _queue_item(
    services: Services,
    position: int | None,
    benchmark: Benchmark,
    caller: Caller,
    parts: Mapping[str, float],
) -> shapes.QueueItem:
    mine = caller.may_see(benchmark.user_id)
    description = benchmark.description
    return shapes.QueueItem(
        position=position,
        benchmark_id=benchmark.benchmark_id if mine else None,
        user_id=benchmark.user_id if mine else None,
        priority=int(sum(parts.values())) if parts else benchmark.priority,
        priority_parts=dict(parts),
        # The sentence may name others' benchmarks.
        waiting_reason=views.waiting_reason(services, benchmark.waiting) if mine else None,
        submit_time=benchmark.submit_time,
        target=description.family,
        runtime=description.runtime,
        benchmark_type=description.benchmark_type.value,
        model=description.model if mine else None,
        name=description.name if mine else None,
        forecast=views.forecast(services, services.engine.forecast(benchmark.benchmark_id)),
        planned=views.planned_start(
            services, services.engine.planned(benchmark.benchmark_id) if mine else None
        ),
    )


def _overridden(
    target_uid: str, drained: bool, reason: str, caller: Caller, context: Context
) -> Answer[shapes.Board]:
    services = context.services
    if not any(view.board.target_uid == target_uid for view in services.engine.boards()):
        raise NotFound("board", target_uid)
    now = services.clock.now()

    made = BoardOverride(
        target_uid=target_uid, drained=drained, reason=reason, by_user_id=caller.user_id, at=now
    )

    def change(uow: UnitOfWork) -> None:
        in_use = replace(made, drained=False, reason="")  # a board that was never drained
        before = uow.board_overrides.all().get(target_uid, in_use)
        uow.board_overrides.put(made)
        uow.log.append(
            Event(
                at=now,
                kind="board.drained" if drained else "board.resumed",
                user_id=caller.user_id,
                data={"target_uid": target_uid, "reason": reason, **difference(before, made)},
            )
        )

    services.store.transact(change)
    services.engine.wake()
    return Answer(shown_board(target_uid, caller, context))


def shown_board(target_uid: str, caller: Caller, context: Context) -> shapes.Board:
    """Return one board as it is now.

    Raises:
        NotFound: There is none.
    """
    for view in context.services.engine.boards():
        if view.board.target_uid == target_uid:
            mine = _visible_holders(context, caller, [view])
            reserved = _Reservations(context, caller)
            return _board(view, mine, reserved, context.services)
    raise NotFound("board", target_uid)


def _attributes(services: Services, family: str | None) -> dict[str, Mapping[str, AttributeValue]]:
    """Return the attributes of each board of a family; None: of all boards."""
    joined = services.joined()
    return {
        view.board.target_uid: joined[view.board.target_uid].attributes
        if view.board.target_uid in joined
        else attributes_of(view.board)
        for view in services.engine.boards()
        if family in (None, view.board.family)
    }


class _Reservations:
    """Leases and quarantines of all boards, as a caller may see them."""

    def __init__(self, context: Context, caller: Caller) -> None:
        with context.services.store.read() as uow:
            leases = uow.reservations.leases(context.services.clock.now())
            quarantines = uow.reservations.quarantines()
        self._leases: dict[str, list[shapes.Lease]] = {}
        for each in leases:
            self._leases.setdefault(each.target_uid, []).append(views.lease(each, caller))
        self._quarantines = {
            uid: views.quarantine(each, caller) for uid, each in quarantines.items() if each.active
        }

    def leases(self, target_uid: str) -> list[shapes.Lease]:
        """Return the present and future leases of a board."""
        return self._leases.get(target_uid, [])

    def quarantine(self, target_uid: str) -> shapes.Quarantine | None:
        """Return why a board is in quarantine; None where it is not."""
        return self._quarantines.get(target_uid)


def _visible_holders(
    context: Context, caller: Caller, views: Sequence[BoardView]
) -> frozenset[str]:
    """Return the benchmarks that hold boards and that the caller may know."""
    holders = [view.holder for view in views if view.holder is not None]
    if caller.is_operator or not holders:
        return frozenset(holders)
    with context.services.store.read() as uow:
        found = uow.benchmarks.get_many(holders)
    return frozenset(each.benchmark_id for each in found if caller.may_see(each.user_id))


def _board(
    view: BoardView, visible: frozenset[str], reservations: _Reservations, services: Services
) -> shapes.Board:
    board = view.board
    mine = view.holder if view.holder in visible else None
    foreign = view.holder is not None and mine is None
    return shapes.Board(
        target_uid=board.target_uid,
        family=board.family,
        state=view.state.value,
        reason=FOREIGN_REASON if foreign and view.reason else view.reason,
        engines=_engines(board),
        ram_bytes=board.ram_bytes,
        storage_bytes=board.storage_bytes,
        cluster=services.settings.cluster_name,
        host=view.host,
        host_clock_offset_s=view.clock_offset_s,
        progress=board.progress,
        benchmark_id=mine,
        emulated=board.local is not None,
        expected=view.expected,
        quarantine=reservations.quarantine(board.target_uid),
        leases=reservations.leases(board.target_uid),
        cpu=_text(board, "cpu.model") or _text(board, "cpu.arch"),
        cores=cores if isinstance(cores := board.attributes.get("cpu.cores"), int) else None,
        os=_text(board, "os.name"),
        accelerators=_accelerators(board),
        times=_times(services.board_times.of_board(board.target_uid)),
        temperature_c=_temperature_c(board),
    )


def _periods(
    changes: Sequence[BoardStateChange], mine: Collection[str]
) -> list[shapes.BoardPeriod]:
    """Return states, newest first, without facts about other users' benchmarks."""
    ends = (None, *(each.at for each in changes))
    return [
        shapes.BoardPeriod(
            state=each.state,  # type: ignore[arg-type]  # stored from BoardState
            reason=each.reason
            if each.benchmark_id is None or each.benchmark_id in mine or not each.reason
            else FOREIGN_REASON,
            benchmark_id=each.benchmark_id if each.benchmark_id in mine else None,
            since=each.at,
            until=until,
        )
        for each, until in zip(changes, ends, strict=False)
    ]


def _month(times: BoardMonth) -> shapes.BoardMonthTimes:
    return shapes.BoardMonthTimes(
        month=times.month,
        busy_hours=times.busy_s / _HOUR_S,
        idle_hours=times.idle_s / _HOUR_S,
        down_hours=times.down_s / _HOUR_S,
        known_hours=times.known_s / _HOUR_S,
        utilisation=times.utilisation,
        availability=times.availability,
    )


def _times(found: BoardTime | None) -> shapes.BoardTimes | None:
    if found is None:
        return None
    seconds = {f"{use.value}_s": value for use, value in found.seconds.items()}
    return shapes.BoardTimes(since=found.since, **seconds)


def _temperature_c(board: Board) -> float | None:
    value = board.attributes.get(TEMPERATURE_C)
    return None if isinstance(value, str | bool | None) else float(value)


def _text(board: Board, name: str) -> str | None:
    value = board.attributes.get(name)
    return value if isinstance(value, str) else None


def _accelerators(board: Board) -> list[str] | None:
    stated = _text(board, "accelerators")
    return None if stated is None else sorted(members(stated) - {"none", ""})


def _family(name: str, facts: Family | None) -> shapes.FamilyFacts:
    if facts is None:
        return shapes.FamilyFacts(family=name)
    return views.same(shapes.FamilyFacts, facts)


def _expected(board: Board) -> shapes.ExpectedBoard:
    return shapes.ExpectedBoard(
        target_uid=board.target_uid,
        family=board.family,
        engines=_engines(board),
        ram_bytes=board.ram_bytes,
        storage_bytes=board.storage_bytes,
        emulated=board.local is not None,
        shares_with=sorted(board.shares_with),
    )


def _providers(board: Board, engine: str) -> list[str]:
    stated = _text(board, f"engine.{engine}.execution_providers") or ""
    return [each.strip() for each in stated.split(",") if each.strip()]


def _engines(board: Board) -> list[shapes.Engine]:
    return [
        shapes.Engine(
            name=engine.name,
            version=engine.version or _text(board, f"engine.{engine.name}.version") or "",
            supported_types=sorted(engine.supported_types),
            declared_types={each.name: each.as_json() for each in engine.declared_types},
            execution_providers=_providers(board, engine.name),
        )
        for engine in board.engines
    ]
