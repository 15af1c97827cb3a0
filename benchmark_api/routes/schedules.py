"""Cron schedules of job descriptions."""

from __future__ import annotations

from dataclasses import replace

from fastapi.responses import Response

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.routes.context import Ctx, Flag
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import NotFound
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/schedules", tags=["schedules"])


@router.get("")
def schedules(caller: Submitter, context: Ctx, all: Flag = False) -> Answer[shapes.Schedules]:
    """Your schedules, newest first; operators see everybody's. Ended ones only with ``all``."""
    with context.services.store.read() as uow:
        found = uow.schedules.all(None if caller.is_operator else caller.user_id)
    return Answer(
        shapes.Schedules(items=[views.schedule(each) for each in found if all or each.active])
    )


@router.get("/{schedule_id}")
def show(schedule_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Schedule]:
    """One schedule."""
    with context.services.store.read() as uow:
        found = uow.schedules.get(schedule_id)
    if not caller.may_see(found.user_id):
        raise NotFound("schedule", schedule_id)
    return Answer(views.schedule(found))


@router.delete("/{schedule_id}", status_code=204)
def stop(schedule_id: str, caller: Submitter, context: Ctx) -> Response:
    """End a schedule; benchmarks that it made stay."""

    def end(uow: UnitOfWork) -> None:
        found = uow.schedules.get(schedule_id)
        if not caller.may_see(found.user_id):
            raise NotFound("schedule", schedule_id)
        if found.active:
            uow.schedules.save(replace(found, active=False, problem=None, retry_at=None))

    context.services.store.transact(end, frees_space=True)
    return Response(status_code=204)
