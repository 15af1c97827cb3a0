"""The scheduler controller as a service; it has the models that are trained."""

from __future__ import annotations

import re
import threading
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.errors import ConfigError, Conflict, FieldError, InvalidInput, NotFound
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.training.ste.driver import LocalTraining
from edgeyard.training.ste.scheduling import SchedulerController
from edgeyard.training.ste.steps import Notice, Round
from edgeyard.training.ste_services.common import (
    Health,
    accepts,
    decoded,
    read_body,
    service_app,
)

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class TrainingIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a run trains.

    Attributes:
        model: Its name.
        new: Register it; it knows nothing yet.
        resume: Go on with what was stored of this run.
    """

    model: str
    new: bool = False
    resume: bool = False


class PublicationIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the manifest states of the training."""

    trained_on: str = ""


class TrainingState(msgspec.Struct, kw_only=True):
    """The run that trains now."""

    run: str


class Publication(msgspec.Struct, kw_only=True):
    """The version of the model that was written."""

    version: int


class SchedulerHealth(Health, kw_only=True):
    """What the scheduler controller is.

    Attributes:
        policy: Its scorers are the registered schedulers.
        training: The run that trains a model; "": none.
    """

    policy: str
    training: str = ""


def scheduler_app(
    controller: SchedulerController, token: str = "", training: LocalTraining | None = None
) -> FastAPI:
    """Return the app of the scheduler controller.

    Args:
        controller: Decides.
        token: Of callers; "": all who reach the service may call.
        training: Trains models; None: requests for it are refused.
    """
    router = Router(tags=["scheduler"])
    lock = threading.Lock()

    @router.get("/health_check", summary="Health Check")
    def health_check() -> Answer[SchedulerHealth]:
        """Whether the service answers, and which policy decides."""
        run_id = training.run_id if training else ""
        return Answer(
            SchedulerHealth(service="scheduler", policy=controller.policy().name, training=run_id)
        )

    @router.get("/policy")
    def policy() -> Answer[Policy]:
        """The policy that decides."""
        return Answer(controller.policy())

    @router.get("/schedulers")
    def schedulers() -> Answer[list[dict[str, Any]]]:
        """The registered schedulers."""
        return Answer([dict(each) for each in controller.schedulers])

    @router.post("/notify", openapi_extra=accepts("Notice"))
    async def notify(request: Request) -> Answer[Round]:
        """Pull the state of a version from the twin and decide on it: steps 6 to 13."""
        notice = decoded(await read_body(request), Notice)
        run_id = notice.run.partition("/")[0]
        if notice.train and (training is None or training.run_id != run_id):
            raise Conflict(f"run {run_id[:128]} has not begun to train a model here")
        return Answer(await run_in_threadpool(controller.notify, notice))

    @router.put("/training/{run_id}", openapi_extra=accepts("TrainingIn"))
    async def begin(run_id: str, request: Request) -> Answer[TrainingState]:
        """Make the rewards of step 12 update a model in the rounds of a run."""
        given = decoded(await read_body(request), TrainingIn)
        return await run_in_threadpool(_begin, run_id, given)

    def _begin(run_id: str, given: TrainingIn) -> Answer[TrainingState]:
        try:
            with lock:
                of(run_id).begin(run_id, given.model, new=given.new, resume=given.resume)
        except ConfigError as error:
            raise InvalidInput.at("/model", "; ".join(error.problems)) from error
        except InvalidInput as error:
            fields = [FieldError("/model", each.reason, each.accepted) for each in error.errors]
            raise InvalidInput(fields) from error
        return Answer(TrainingState(run=run_id))

    @router.post("/training/{run_id}/keep")
    def keep(run_id: str) -> Answer[TrainingState]:
        """Store what was learned, so that the run can be resumed."""
        with lock:
            of(run_id).keep(run_id)
        return Answer(TrainingState(run=run_id))

    @router.post("/training/{run_id}/publish", openapi_extra=accepts("PublicationIn"))
    async def publish(run_id: str, request: Request) -> Answer[Publication]:
        """Write the model with a higher version."""
        given = decoded(await read_body(request), PublicationIn)
        return await run_in_threadpool(_publish, run_id, given)

    def _publish(run_id: str, given: PublicationIn) -> Answer[Publication]:
        with lock:
            version = of(run_id).publish(run_id, given.trained_on)
        return Answer(Publication(version=version))

    def of(run_id: str) -> LocalTraining:
        if not _RUN_ID.fullmatch(run_id):
            raise NotFound("run", run_id[:128])
        if training is None:
            raise InvalidInput.at("/model", "there is no folder of models to train", "--models DIR")
        return training

    bodies = [Notice, TrainingIn, PublicationIn]
    return service_app("Scheduler controller", router, token=token, bodies=bodies)
