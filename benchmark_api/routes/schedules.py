"""Cron schedules of job descriptions."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.routes.context import Ctx, Flag, answer
from edgeyard.benchmark_api.routes.documented import answers
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import NotFound
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.model.wire import JsonObject, schedule_to_json
from edgeyard.scheduler.ports import UnitOfWork

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.get("", responses=answers(200, shapes.Schedules))
def schedules(caller: Submitter, context: Ctx, all: Flag = False) -> Response:
    """Your schedules, newest first; operators see everybody's. Ended ones only with ``all``."""
    with context.services.store.read() as uow:
        found = uow.schedules.all(None if caller.is_operator else caller.user_id)
    return answer({"items": [_shown(each) for each in found if all or each.active]})


@router.get("/{schedule_id}", responses=answers(200, shapes.Schedule))
def show(schedule_id: str, caller: Submitter, context: Ctx) -> Response:
    """One schedule."""
    with context.services.store.read() as uow:
        found = uow.schedules.get(schedule_id)
    if not caller.may_see(found.user_id):
        raise NotFound("schedule", schedule_id)
    return answer(_shown(found))


@router.delete("/{schedule_id}", status_code=204)
def stop(schedule_id: str, caller: Submitter, context: Ctx) -> Response:
    """End a schedule; benchmarks that it made stay."""

    def end(uow: UnitOfWork) -> None:
        found = uow.schedules.get(schedule_id)
        if not caller.may_see(found.user_id):
            raise NotFound("schedule", schedule_id)
        uow.schedules.save(replace(found, active=False))

    context.services.store.transact(end, frees_space=True)
    return Response(status_code=204)


def _shown(schedule: CronSchedule) -> JsonObject:
    """Its files are stored beside the description, which is what users know."""
    return schedule_to_json(schedule) | {"description": schedule.description.get("description")}
