"""Checks that the server drives: start, show, list and cancel them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Query

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Body, Ctx, named, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts_document
from edgeyard.benchmark_api.routes.submitting import IdempotencyKey, accepted_answer
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.submission.idempotency import IdempotencyGuard
from edgeyard.benchmark_api.submission.versions import checked_versions, parse_check, store_check
from edgeyard.errors import NotFound
from edgeyard.scheduler.engine.checks import cancel_check
from edgeyard.scheduler.model.acts import stated_reason
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.checks import Check, CheckStatus
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/checks", tags=["checks"])

_PAGE = 100


@router.post("", status_code=202, openapi_extra=accepts_document("CheckIn"))
def start(
    body: Body, caller: Submitter, context: Ctx, idempotency_key: IdempotencyKey = None
) -> Answer[shapes.StoredCheck]:
    """Start a check: both versions are measured alternately on one board until it is decided.

    The server drives it to its end, also if no client asks for its state. Two versions that do
    different work, or that no board can run, are refused before a board is used, as far as that is
    known. Two of which nothing differs are refused with the code `nothing_differs`, unless it is a
    self-test.
    """
    services = context.services
    idempotency = IdempotencyGuard(
        shapes.StoredCheck, idempotency_key, caller.user_id, body.data, "/v1/checks"
    )
    if (earlier := idempotency.earlier(services)) is not None:
        return accepted_answer(earlier)
    request = parse_check(body.document())
    now = services.clock.now()
    origin = None
    if request.baseline.benchmark_id is not None:
        with services.store.read() as uow:
            (wanted,) = named(uow, [request.baseline.benchmark_id], caller)
            origin = visible(uow, wanted, caller)
    versions = checked_versions(request, origin, caller, services, context.offers.now(), now)
    return accepted_answer(store_check(request, versions, caller, services, now, idempotency))


@router.get("")
def list_checks(
    caller: Submitter,
    context: Ctx,
    status: CheckStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 50,
    cursor: str | None = None,
) -> Answer[shapes.StoredChecks]:
    """Your checks, newest first; operators see everybody's."""
    services = context.services
    user_id = None if caller.is_operator else caller.user_id
    with services.store.read() as uow:
        found, following = uow.checks.page(
            user_id=user_id, status=status, limit=limit, cursor=cursor
        )
        runs = _running(uow, found)
    items = [views.check(services, each, runs.get(each.check_id)) for each in found]
    return Answer(shapes.StoredChecks(items=items, next_cursor=following))


@router.get("/{check_id}")
def show(check_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.StoredCheck]:
    """One check, with what its pairs mean so far."""
    with context.services.store.read() as uow:
        found = _visible(uow, check_id, caller)
        run = _running(uow, [found]).get(check_id)
    return Answer(views.check(context.services, found, run))


@router.post("/{check_id}/cancel", status_code=202)
def cancel(check_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.StoredCheck]:
    """End a check, and the run that is under way; one that has ended stays as it is."""
    services = context.services

    def end(uow: UnitOfWork) -> Check:
        _visible(uow, check_id, caller)
        now = services.clock.now()
        return cancel_check(uow, check_id, now, caller.user_id, stated_reason())

    ended = services.store.transact(end, frees_space=True)
    services.engine.wake()
    return Answer(views.check(services, ended), 202)


def _visible(uow: UnitOfWork, check_id: str, caller: Caller) -> Check:
    """Return a check that the caller may see.

    Raises:
        NotFound: There is none, or it is somebody else's: the two look the same.
    """
    found = uow.checks.get(check_id)
    if not caller.may_see(found.user_id):
        raise NotFound("check", check_id)
    return found


def _running(uow: UnitOfWork, checks: Sequence[Check]) -> Mapping[str, Benchmark]:
    """Return the run of each check that is under way, by the check's id."""
    running = [each for each in checks if each.status is CheckStatus.RUNNING and each.run_ids]
    found = uow.benchmarks.get_many([each.run_ids[-1] for each in running])
    run_by_id = {each.benchmark_id: each for each in found}
    return {
        each.check_id: run_by_id[each.run_ids[-1]]
        for each in running
        if each.run_ids[-1] in run_by_id
    }
