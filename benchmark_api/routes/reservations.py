"""Boards that are kept from the queue: leases and quarantine."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import timedelta

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Operator, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts
from edgeyard.benchmark_api.routes.lab import shown_board
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import LeaseIn, QuarantineIn, parse
from edgeyard.errors import Conflict, Forbidden, InvalidInput, NotFound
from edgeyard.scheduler.engine.quarantine import lift_quarantine, quarantine_board
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.strict_json import time_to_json
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1", tags=["lab"])

_MAX_LEASE = timedelta(days=3650)


@router.get("/leases")
def leases(caller: Submitter, context: Ctx) -> Answer[shapes.Leases]:
    """Who keeps which board, now and later."""
    with context.services.store.read() as uow:
        found = uow.reservations.leases(context.services.clock.now())
    return Answer(shapes.Leases(items=[views.lease(each, caller) for each in found]))


@router.post("/boards/{target_uid}/lease", status_code=201, openapi_extra=accepts("LeaseIn"))
def lease(target_uid: str, body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.Lease]:
    """Keep a board for a user, or from everybody, until a time; it comes free by itself.

    What runs there goes on to its end. Operators lease for anybody; others for themselves, within
    their account's ``max_lease_s``.
    """
    request = parse(LeaseIn, body.tree())
    services = context.services
    now = services.clock.now()
    _known(context, target_uid)
    since = max(request.since or now, now)
    if request.until <= since:
        raise InvalidInput.at("/until", "is not after the beginning of the lease", "a later time")
    if request.until > now + _MAX_LEASE:
        raise InvalidInput.at("/until", "is too far away", f"at most {_MAX_LEASE.days} days")
    user_id = request.user_id if caller.is_operator else caller.user_id
    if request.user_id not in (None, user_id):
        raise Forbidden("only operators may lease boards for others: leave user_id out")
    made = Lease(
        lease_id=f"lease-{secrets.token_hex(8)}",
        target_uid=target_uid,
        since=since,
        until=request.until,
        reason=request.reason,
        user_id=user_id,
        by_user_id=caller.user_id,
    )

    def add(uow: UnitOfWork) -> None:
        if user_id is not None:
            uow.accounts.user(user_id)
        uow.reservations.add_lease(made)
        if not caller.is_operator:
            _check_bound(uow, caller, context)
        uow.log.append(_event(context, caller, "board.leased", None, made))

    services.store.transact(add)
    services.engine.wake()
    return Answer(views.lease(made, caller), 201)


@router.post("/leases/{lease_id}/release")
def release(lease_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Lease]:
    """End a lease before its time; releasing twice is no error."""
    services = context.services

    def end(uow: UnitOfWork) -> Lease:
        found = uow.reservations.lease(lease_id)
        if not caller.may_see(found.user_id or ""):
            raise Forbidden("only the user of the lease, or an operator, may end it")
        ended = uow.reservations.end_lease(lease_id, services.clock.certain(), caller.user_id)
        if ended != found:
            uow.log.append(_event(context, caller, "board.released", found, ended))
        return ended

    ended = services.store.transact(end)
    services.engine.wake()
    return Answer(views.lease(ended, caller))


@router.post(
    "/boards/{target_uid}/quarantine",
    openapi_extra=accepts("QuarantineIn", required=False),
)
def quarantine(target_uid: str, body: Body, caller: Operator, context: Ctx) -> Answer[shapes.Board]:
    """Quarantine a board until an operator lifts it; the board is not probed."""
    reason = parse(QuarantineIn, body.tree()).reason or f"quarantined by {caller.user_id}"
    services = context.services
    now = services.clock.now()
    _known(context, target_uid)
    made = Quarantine(target_uid=target_uid, since=now, reason=reason, by_user_id=caller.user_id)
    services.store.transact(lambda uow: quarantine_board(uow, made, now))
    context.metrics.observe("quarantines_total", 1, {"cause": "operator"})
    services.engine.wake()
    return Answer(shown_board(target_uid, caller, context))


@router.post("/boards/{target_uid}/unquarantine")
def unquarantine(target_uid: str, caller: Operator, context: Ctx) -> Answer[shapes.Board]:
    """Let a board back; what it did before no longer counts against it."""
    services = context.services
    _known(context, target_uid)

    def end(uow: UnitOfWork) -> None:
        found = uow.reservations.quarantines().get(target_uid)
        if found is None or not found.active:
            raise Conflict(f"{target_uid} is not in quarantine")
        lift_quarantine(uow, found, services.clock.now(), caller.user_id)

    services.store.transact(end)
    services.engine.wake()
    return Answer(shown_board(target_uid, caller, context))


@router.post("/boards/{target_uid}/probe", status_code=202)
def probe(target_uid: str, caller: Operator, context: Ctx) -> Answer[shapes.Board]:
    """Probe a board that its failures put into quarantine now, not only when the next is due.

    A probe that leads to a result lifts the quarantine. What an operator put into quarantine is
    not probed.
    """
    services = context.services
    now = services.clock.now()
    _known(context, target_uid)

    def bring_forward(uow: UnitOfWork) -> None:
        found = uow.reservations.quarantines().get(target_uid)
        if found is None or not found.active:
            raise Conflict(f"{target_uid} is not in quarantine")
        if found.by_user_id is not None:
            who = found.by_user_id
            raise Conflict(f"{target_uid} was put into quarantine by {who}: lift it instead")
        if found.next_probe_at is None:
            raise Conflict(f"a probe of {target_uid} is under way")
        sooner = replace(found, next_probe_at=min(now, found.next_probe_at))
        uow.reservations.set_quarantine(sooner)
        data = {"target_uid": target_uid, **difference(found, sooner)}
        uow.log.append(Event(at=now, kind="board.probed", user_id=caller.user_id, data=data))

    services.store.transact(bring_forward)
    services.engine.wake()
    return Answer(shown_board(target_uid, caller, context), 202)


def _known(context: Context, target_uid: str) -> None:
    boards = context.services.engine.boards()
    if not any(view.board.target_uid == target_uid for view in boards):
        raise NotFound("board", target_uid)


def _check_bound(uow: UnitOfWork, caller: Caller, context: Context) -> None:
    """Check all leases of the caller, with the new one, against the account's bound."""
    now = context.services.clock.now()
    max_s = uow.accounts.user(caller.user_id).max_lease_s
    if max_s <= 0:
        raise Forbidden("your account may not lease boards: ask an operator")
    kept_s = sum(
        (each.until - max(each.since, now)).total_seconds()
        for each in uow.reservations.leases(now)
        if each.user_id == caller.user_id
    )
    if kept_s > max_s:
        raise InvalidInput.at(
            "/until",
            f"your leases would come to {kept_s:.0f} s",
            f"at most {max_s:.0f} s for your account, all its leases together",
        )


def _event(
    context: Context, caller: Caller, kind: str, before: Lease | None, lease: Lease
) -> Event:
    data = {
        "lease_id": lease.lease_id,
        "target_uid": lease.target_uid,
        "since": time_to_json(lease.since),
        "until": time_to_json(lease.until),
        **({"reason": lease.reason} if before is None else {}),  # of the lease, not of its end
        "for": lease.user_id,
        "owner_id": lease.user_id,
        **difference(before, lease),
    }
    now = context.services.clock.now()
    return Event(at=now, kind=kind, user_id=caller.user_id, data=data)
