"""Models that were trained from the lab's history: shown, promoted and rolled back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from msgspec.structs import asdict

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Operator
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.fields import LongText
from edgeyard.benchmark_api.services import Services
from edgeyard.errors import ConfigError, Conflict
from edgeyard.scheduler.engine.registered_models import load_registered, promote, roll_back
from edgeyard.scheduler.engine.retraining import Retraining
from edgeyard.scheduler.model.registered_models import ModelKind, RegisteredModel

router = Router(prefix="/v1/models", tags=["models"])


@router.get("")
def models(caller: Operator, context: Ctx) -> Answer[shapes.Models]:
    """All versions of the models that were trained from the lab's history."""
    with context.services.store.read() as uow:
        return Answer(shapes.Models(items=[_item(each) for each in uow.models.all()]))


@router.get("/training")
def training(caller: Operator, context: Ctx) -> Answer[shapes.Training]:
    """The last training that this server began; with it, whether one is running.

    409 where another server leads.
    """
    return Answer(views.same(shapes.Training, _retraining(context.services).state))


@router.post("/training/begin", status_code=202)
def begin_training(caller: Operator, context: Ctx) -> Answer[shapes.Training]:
    """Train models from the ended runs now, in a process of its own.

    What it learns are candidates in `GET /v1/models`. 409 while one is running, where another
    server leads, and where too few runs have ended; 503 where the process can't be started.
    """
    retraining = _retraining(context.services)
    _refuse_without_runs(context.services)
    began = retraining.begin()
    try:
        _retraining(context.services)
    except Conflict:  # the lead was lost meanwhile, and trainings may have been ended before this
        retraining.leave()
        raise
    return Answer(views.same(shapes.Training, began), 202)


@router.post("/training/stop")
def stop_training(caller: Operator, context: Ctx) -> Answer[shapes.Training]:
    """End the running training; what it registered before stays.

    409 where none is running, and where another server leads.
    """
    return Answer(views.same(shapes.Training, _retraining(context.services).stop()))


@router.get("/{kind}/{version}")
def model(
    kind: ModelKind, version: int, caller: Operator, context: Ctx
) -> Answer[shapes.ModelDetails]:
    """One version with its figures, gates and card."""
    with context.services.store.read() as uow:
        return Answer(_details(uow.models.get(kind, version)))


@router.post("/{kind}/{version}/promote")
def promote_model(
    kind: ModelKind,
    version: int,
    caller: Operator,
    context: Ctx,
    force: Annotated[bool, Query(description="Promote it although a gate does not hold.")] = False,
) -> Answer[shapes.ModelDetails]:
    """Make a candidate the shadow, or the shadow active.

    409 where a gate does not hold, or where its file was replaced or can't be used.
    """
    services = context.services
    with services.store.read() as uow:
        chosen = uow.models.get(kind, version)
        try:
            load_registered(uow, chosen)
        except ConfigError as error:
            raise Conflict("; ".join(error.problems)) from error
    now = services.clock.now()
    promoted = services.store.transact(
        lambda uow: promote(uow, kind, version, now, by_user_id=caller.user_id, force=force)
    )
    return Answer(_details(promoted))


@router.post("/{kind}/rollback")
def roll_back_model(
    kind: ModelKind,
    caller: Operator,
    context: Ctx,
    reason: Annotated[LongText | None, Query(min_length=1, max_length=500)] = None,
) -> Answer[shapes.ModelDetails]:
    """Retire the active version; the one that it replaced becomes active, otherwise the history.

    The answer is the retired version.
    """
    services = context.services
    now = services.clock.now()
    why = reason or f"by {caller.user_id}"
    retired, _ = services.store.transact(
        lambda uow: roll_back(uow, kind, now, by_user_id=caller.user_id, reason=why)
    )
    return Answer(_details(retired))


def _retraining(services: Services) -> Retraining:
    """Return what begins and ends trainings, which only the leader does.

    Raises:
        Conflict: Another server leads.
    """
    leader = services.leader()
    if leader.leads:
        return services.retraining
    if not leader.server_id:
        raise Conflict("models are trained by the server that leads, and none does: try again")
    raise Conflict(
        f"models are trained by the server that leads, {leader.server_id} at {leader.url}: "
        "send this there"
    )


def _refuse_without_runs(services: Services) -> None:
    """Refuse a training that could learn nothing.

    Raises:
        Conflict: Too few runs have ended.
    """
    from edgeyard.scheduler.outcomes.learning import MIN_RUNS  # NumPy: not at each start

    with services.store.read() as uow:
        ended = len(uow.attempts.past_runs_after(0, newest=MIN_RUNS).seqs)
    if ended < MIN_RUNS:
        raise Conflict(
            f"{ended} runs have ended on known boards, and {MIN_RUNS} are needed to learn from: "
            "begin the training when there are more; until then past runs predict"
        )


def _item(model: RegisteredModel) -> shapes.Model:
    data: dict[str, Any] = dict(model.data)
    return views.same(
        shapes.Model,
        model,
        rows=int(data.get("rows", 0)),
        boards=int(data.get("boards", 0)),
        failed_gates=[each.name for each in model.failed_gates],
    )


def _details(model: RegisteredModel) -> shapes.ModelDetails:
    return views.same(shapes.ModelDetails, model, **asdict(_item(model)))
