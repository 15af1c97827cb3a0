"""Benchmarks, as the platform's client starts, follows and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.problems import ProblemAnswer, client_problem
from edgeyard.benchmark_api.routes.context import BenchmarkId, Context, Ctx, Flag, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import PROBLEMS, accepts_fields, content
from edgeyard.benchmark_api.routes.files import removed_if_refused, upload_budget
from edgeyard.benchmark_api.routes.inspection import whole_log
from edgeyard.benchmark_api.routes.platform import arrays, catalogue, translation
from edgeyard.benchmark_api.routes.receiving import ReceivedFile, receive_fields, see_received
from edgeyard.benchmark_api.routes.results import drop_contents, with_drift
from edgeyard.benchmark_api.routes.sending import stored_file
from edgeyard.benchmark_api.schemas import platform as shapes
from edgeyard.benchmark_api.schemas.answers import SubmissionAnswer
from edgeyard.benchmark_api.submission.check import check
from edgeyard.benchmark_api.submission.idempotency import IdempotencyGuard
from edgeyard.devices.benchmark_types import ACCEPTED_TYPES, BENCHMARK_TYPE_PATTERN
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.model.acts import stated_reason
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS
from edgeyard.scheduler.model.benchmark import LIVE, Benchmark, BenchmarkFile, FileRole, Status
from edgeyard.scheduler.model.files import Report, ResultFile, StoredFile, newest_report
from edgeyard.scheduler.model.registration import RegistrationKind
from edgeyard.scheduler.model.strict_json import JsonObject
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/api/benchmarks", tags=["platform"])

NONE: dict[int | str, dict[str, Any]] = {204: {"description": "The benchmark has no such output."}}

API_VERSION = "1.2"
"""Version of the contract; the client accepts versions that begin with ``1.``."""

TRAINING_DATA = "training_data.npz"
_OUTPUT, _LATENCIES = "raw_output.bin", "latencies.npy"
_FL = "federated learning is not built: Edgeyard runs TYPE1, TYPE2, TYPE3 and GENAI"
_NOT_BUILT: dict[int | str, dict[str, Any]] = {501: PROBLEMS["5XX"] | {"description": _FL}}

_Started = Answer[shapes.StartAnswer]


class _Filters(BaseModel):
    """The filters and the page of a list."""

    engine: str | None = None
    platform: str | None = None
    benchmark_type: str | None = None
    model: str | None = None
    status: str | None = Field(None, max_length=20)
    page: int = Field(1, ge=1, le=1_000_000)
    page_length: int = Field(100, ge=1, le=1000)

    def statuses(self) -> frozenset[Status] | None:
        """Return the statuses that the client's word stands for; None: all.

        Raises:
            InvalidInput: It is no status.
        """
        if self.status is None:
            return None
        names = translation.STATUSES
        found = frozenset(ours for ours, theirs in names.items() if theirs == self.status)
        if not found:
            raise InvalidInput.at(
                "/status", "is not a status", ", ".join(dict.fromkeys(names.values()))
            )
        return found

    def type(self) -> str | None:
        """Return the benchmark type; None: all.

        Raises:
            InvalidInput: It is no type.
        """
        named = self.benchmark_type
        if named is not None and not BENCHMARK_TYPE_PATTERN.fullmatch(named):
            raise InvalidInput.at("/benchmark_type", "is not a benchmark type", ACCEPTED_TYPES)
        return named


Filters = Annotated[_Filters, Query()]


@router.get("/status")
async def status() -> Answer[shapes.ApiStatus]:
    """The version of this contract; needs no token."""
    return Answer(shapes.ApiStatus(version=API_VERSION, status="OK"))


@router.get("/config")
def config(caller: Submitter, context: Ctx, full: Flag = False) -> Answer[shapes.PlatformObject]:
    """Families of boards with their engines, and what each engine takes."""
    return Answer(catalogue.configurations(context.services, full=full))


@router.post("/run", openapi_extra=accepts_fields("device", "engine", files=("model",)))
async def run(request: Request, caller: Submitter, context: Ctx) -> Answer[shapes.StartAnswer]:
    """Start a TYPE1 benchmark, or with a dataset a TYPE2 one."""
    return await _received(request, caller, context, _run)


@router.post("/train", openapi_extra=accepts_fields("device", "engine", "config", files=("model",)))
async def train(request: Request, caller: Submitter, context: Ctx) -> Answer[shapes.StartAnswer]:
    """Start an on-device training (TYPE3)."""
    return await _received(request, caller, context, _train)


async def _received(
    request: Request,
    caller: Caller,
    context: Context,
    start: Callable[[Mapping[str, str], Mapping[str, ReceivedFile], Caller, Context], _Started],
) -> _Started:
    """Receive the form, and start what it describes."""
    limits = {"model": context.services.settings.model_limit_bytes}
    budget = await run_in_threadpool(upload_budget, context, caller)
    fields, files = await receive_fields(
        request, context.services.files, limits, "model_limit_bytes", budget
    )

    def kept() -> _Started:
        with removed_if_refused(context, files.values()):
            return start(fields, files, caller, context)

    return await run_in_threadpool(kept)


def _run(
    fields: Mapping[str, str], files: Mapping[str, ReceivedFile], caller: Caller, context: Context
) -> _Started:
    dataset = fields.get("dataset_name")
    benchmark_type = "TYPE2" if dataset else "TYPE1"
    tree = translation.description_of(fields, benchmark_type, context.offers.now())
    if dataset:
        tree["dataset"] = dataset
        tree.pop("nb_inference", None)  # each row is one inference
        parameters = tree["parameters"]
        assert isinstance(parameters, dict)
        tree["parameters"] = parameters | {translation.RAW: True}
    return _started(tree, fields, files, caller, context)


def _train(
    fields: Mapping[str, str], files: Mapping[str, ReceivedFile], caller: Caller, context: Context
) -> _Started:
    tree = translation.description_of(fields, "TYPE3", context.offers.now())
    learning, sections = translation.training_of(fields.get("config", ""))
    found = {}
    with context.services.store.read() as uow:
        for section in sections.values():
            for key in ("train_file", "test_file"):
                name = section.get(key)
                if isinstance(name, str):
                    try:
                        found[name] = uow.files.user_file(caller.user_id, name)
                    except NotFound:
                        continue
    tree.pop("nb_inference", None)  # the client always sends it
    # Before the data is copied: most mistakes are found without it.
    tree |= {"odt_config": learning, "dataset": TRAINING_DATA}
    _model_of(tree, fields, files)
    _checked(tree, caller, context)
    data = arrays.combined(context.services, sections, found)
    with removed_if_refused(context, [ReceivedFile(TRAINING_DATA, data)]):
        return _started(tree, fields, files, caller, context, data)


def _model_of(
    tree: dict[str, object], fields: Mapping[str, str], files: Mapping[str, ReceivedFile]
) -> None:
    """Say in the description which model it is.

    Raises:
        InvalidInput: None, an empty one, or two.
    """
    model, reference = files.get("model"), fields.get("model_ref")
    if (model is None) == (reference is None):
        raise InvalidInput.at("/model", "is needed", "a file, or model_ref with its reference")
    if model is not None and model.stored.size_bytes == 0:
        raise InvalidInput.at("/model", "the file is empty", "a model with content")
    tree["model"] = reference if model is None else model.name


def _checked(tree: Mapping[str, object], caller: Caller, context: Context) -> None:
    services = context.services
    try:
        check(tree, caller, services, context.offers.now(), services.clock.now())
    except InvalidInput as error:
        raise _as_client(error, tree, context) from None


def _as_client(error: InvalidInput, tree: Mapping[str, object], context: Context) -> InvalidInput:
    """Return the error in the client's words, which name what is registered and has no board.

    Args:
        error: What is wrong with the description.
        tree: The description.
        context: Of the request.
    """
    renamed = translation.as_client(error)
    services = context.services
    with services.store.read() as uow:
        kinds = {
            "/device": (tree["target"], RegistrationKind.FAMILY, catalogue.families(services)),
            "/engine": (tree["runtime"], RegistrationKind.ENGINE, catalogue.engines(services)),
        }
        announced = {
            pointer
            for pointer, (name, kind, own) in kinds.items()
            if name not in own and name in catalogue.registered(uow.registrations.of_kind(kind))
        }
    reason = "is registered, but the lab has no board for it"
    return InvalidInput(
        [
            replace(each, reason=reason) if each.pointer in announced else each
            for each in renamed.errors
        ]
    )


def _started(
    tree: dict[str, object],
    fields: Mapping[str, str],
    files: Mapping[str, ReceivedFile],
    caller: Caller,
    context: Context,
    data: StoredFile | None = None,
) -> _Started:
    _model_of(tree, fields, files)
    received = list(files.values())
    kept = [_file(FileRole.MODEL, each) for each in received]
    if data is not None:
        received.append(ReceivedFile(TRAINING_DATA, data))
        kept.append(_file(FileRole.DATASET, received[-1]))
    services = context.services
    now = services.clock.now()
    try:
        request = check(tree, caller, services, context.offers.now(), now)
        idempotency = IdempotencyGuard(SubmissionAnswer, None, caller.user_id, b"", "")
        seen = see_received(services, received)
        made = context.submissions.enqueue(
            request, caller, now, idempotency=idempotency, kept=kept, received=seen
        ).answer
    except InvalidInput as error:
        raise _as_client(error, tree, context) from None
    assert made.benchmark_id is not None
    return Answer(shapes.StartAnswer(id=made.benchmark_id, status="queued", warnings=made.warnings))


def _file(role: FileRole, received: ReceivedFile) -> BenchmarkFile:
    return BenchmarkFile(
        role=role,
        position=0,
        name=received.name,
        sha256=received.stored.sha256,
        size_bytes=received.stored.size_bytes,
    )


@router.get("")
def list_benchmarks(
    caller: Submitter, context: Ctx, filters: Filters
) -> Answer[shapes.BenchmarkList] | ProblemAnswer:
    """Your benchmarks, newest first."""
    which = BenchmarkFilter(
        user_id=caller.user_id,
        status=filters.statuses(),
        family=filters.platform,
        engine=filters.engine,
        benchmark_type=filters.type(),
        model=filters.model,
        include_deleted=False,
    )
    page, page_length = filters.page, filters.page_length
    with context.services.store.read() as uow:
        total = uow.benchmarks.count(which)
        pages = max(1, -(-total // page_length))
        if page > pages:
            return _no_such_page(page, pages)
        skip = (page - 1) * page_length
        found, _ = uow.benchmarks.page(which, limit=page_length, cursor=None, skip=skip)
    shown = [translation.summary(context.services, each) for each in found]
    return Answer(_listed(shown, page, page_length, pages, total))


@router.get("/public")
def list_public(
    caller: Submitter, filters: Filters
) -> Answer[shapes.BenchmarkList] | ProblemAnswer:
    """Benchmarks that everybody may see: in Edgeyard there are none."""
    filters.statuses()
    filters.type()
    if filters.page > 1:
        return _no_such_page(filters.page, 1)
    return Answer(_listed((), 1, filters.page_length, 1, 0))


def _no_such_page(page: int, pages: int) -> ProblemAnswer:
    count = "there is 1 page" if pages == 1 else f"there are {pages} pages"
    return client_problem(404, "not_found", f"page {page} does not exist: {count}")


def _listed(
    shown: Sequence[JsonObject], page: int, page_length: int, pages: int, total: int
) -> shapes.BenchmarkList:
    return shapes.BenchmarkList(
        benchmarks=list(shown),
        page=page,
        page_length=page_length,
        pages=pages,
        total=total,
    )


@router.api_route("/fl", methods=["GET"], responses=_NOT_BUILT)
def fl_history(caller: Submitter) -> Response:
    """Federated learning is not built."""
    return client_problem(501, "not_implemented", _FL)


@router.post("/fl/run", responses=_NOT_BUILT)
def fl_run(caller: Submitter) -> Response:
    """Federated learning is not built."""
    return client_problem(501, "not_implemented", _FL)


@router.get("/fl/{experiment_id}/{part}", responses=_NOT_BUILT)
def fl_experiment(experiment_id: str, part: str, caller: Submitter) -> Response:
    """Federated learning is not built."""
    return client_problem(501, "not_implemented", _FL)


@router.get("/{benchmark_id}")
def info(
    benchmark_id: BenchmarkId, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """One benchmark."""
    with context.services.store.read() as uow:
        return Answer(translation.summary(context.services, _visible(uow, benchmark_id, caller)))


@router.get("/{benchmark_id}/status")
def state(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Answer[shapes.State]:
    """Where it is: queued, pending, running, success, failed or canceled."""
    with context.services.store.read() as uow:
        return Answer(translation.state(context.services, _visible(uow, benchmark_id, caller)))


@router.get("/{benchmark_id}/results")
def results(
    benchmark_id: BenchmarkId, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject] | ProblemAnswer:
    """The report, with the platform's keys."""
    with context.services.store.read() as uow:
        benchmark = _visible(uow, benchmark_id, caller)
        report = newest_report(with_drift(uow, [benchmark], uow.files.reports(benchmark_id)))
        files = uow.files.results(benchmark_id)
    if benchmark.status in LIVE:
        return _not_yet(benchmark, "report")
    if report is None:
        why = translation.error_log(benchmark, ()).strip() or "it was canceled before it ran"
        return client_problem(404, "not_found", f"{benchmark_id} has no report: {why}")
    path = None
    if file := _result(files, report, _LATENCIES):
        try:
            path = context.services.files.path(file.sha256)
        except NotFound:
            path = None
    return Answer(translation.report(benchmark, report, path))


@router.get(
    "/{benchmark_id}/user-log", responses=content(200, "text/plain", "What the task wrote.") | NONE
)
def user_log(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Response:
    """The task's log; 204 where there is none, 428 before the benchmark's end."""
    with context.services.store.read() as uow:
        benchmark = _visible(uow, benchmark_id, caller)
        attempts = uow.attempts.of(benchmark_id)
    if benchmark.status in LIVE:
        return _not_yet(benchmark, "user log")
    text = whole_log(context.services, attempts[-1]) if attempts else b""
    return PlainTextResponse(text) if text else Response(status_code=204)


@router.get(
    "/{benchmark_id}/error-log", responses=content(200, "text/plain", "Why it failed.") | NONE
)
def error_log(benchmark_id: BenchmarkId, caller: Submitter, context: Ctx) -> Response:
    """Why it failed; 204 where it did not, 428 before the benchmark's end."""
    with context.services.store.read() as uow:
        benchmark = _visible(uow, benchmark_id, caller)
        attempts = uow.attempts.of(benchmark_id)
    if benchmark.status in LIVE:
        return _not_yet(benchmark, "error log")
    failures = [
        f"attempt {each.number}: {each.failure.category.value}: {each.failure.sentence}"
        for each in attempts[:-1]
        if each.failure is not None
    ]
    text = translation.error_log(benchmark, failures)
    return PlainTextResponse(text) if text else Response(status_code=204)


@router.get(
    "/{benchmark_id}/binary",
    responses=content(200, "application/octet-stream", "The model's raw outputs, row by row.")
    | NONE,
)
def binary(
    benchmark_id: BenchmarkId, request: Request, caller: Submitter, context: Ctx
) -> Response:
    """The model's outputs on the dataset; 204 where there are none, 428 before the end."""
    return _result_file(benchmark_id, request, caller, context, "binary output", _OUTPUT)


@router.get(
    "/{benchmark_id}/trained-model",
    responses=content(200, "application/octet-stream", "The trained model.") | NONE,
)
def trained_model(
    benchmark_id: BenchmarkId, request: Request, caller: Submitter, context: Ctx
) -> Response:
    """The trained model; 204 where there is none, 428 before the benchmark's end."""
    return _result_file(benchmark_id, request, caller, context, "trained model", None)


def _result_file(
    benchmark_id: str,
    request: Request,
    caller: Caller,
    context: Context,
    what: str,
    name: str | None,
) -> Response:
    """Send a file of the newest report; without a name the one that the training wrote."""
    with context.services.store.read() as uow:
        benchmark = _visible(uow, benchmark_id, caller)
        report = newest_report(uow.files.reports(benchmark_id))
        files = uow.files.results(benchmark_id)
    if benchmark.status in LIVE:
        return _not_yet(benchmark, what)
    if name is None and report is not None:
        training = report.report.get("training")
        written = training.get("model_file") if isinstance(training, Mapping) else None
        name = written if isinstance(written, str) else None
    file = _result(files, report, name)
    if file is None:
        return Response(status_code=204)
    return stored_file(request, context.services, file.sha256, file.name)


@router.delete("/{benchmark_id}")
def delete(
    benchmark_id: BenchmarkId, caller: Submitter, context: Ctx
) -> Answer[shapes.DeletionAnswer]:
    """Delete a benchmark with its files, reports and logs, and cancel it if it is live.

    Where a run of it is still ending, its data go with the next garbage collection after that.
    The record of what ran where and when stays at ``/v1``.
    """
    services = context.services

    def change(uow: UnitOfWork) -> dict[str, datetime]:
        benchmark = _visible(uow, benchmark_id, caller)
        now = services.clock.now()
        if benchmark.status in LIVE:
            benchmark = lifecycle.cancel(uow, benchmark_id, now, caller.user_id, stated_reason())
        uow.benchmarks.delete(benchmark_id, now)
        if any(each.state in LIVE_ATTEMPTS for each in uow.attempts.of(benchmark_id)):
            return {}
        uow.files.drop_reports(benchmark_id)
        return drop_contents(uow, benchmark, benchmark.ended_at or now)

    dropped = services.store.transact(change, frees_space=True)
    services.engine.wake()
    release(services.store, services.files, dropped)
    return Answer(shapes.DeletionAnswer(id=benchmark_id, deleted=True))


def _visible(uow: UnitOfWork, benchmark_id: str, caller: Caller) -> Benchmark:
    """Return the benchmark, if the caller may see it and did not delete it. Raises NotFound."""
    benchmark = visible(uow, benchmark_id, caller)
    if uow.benchmarks.deleted([benchmark_id]):
        raise NotFound("benchmark", benchmark_id)
    return benchmark


def _result(
    files: Sequence[ResultFile], report: Report | None, name: str | None
) -> ResultFile | None:
    if report is None or name is None:
        return None
    for file in files:
        if (file.attempt, file.name) == (report.attempt, name):
            return file
    return None


def _not_yet(benchmark: Benchmark, what: str) -> ProblemAnswer:
    word = translation.STATUSES[benchmark.status]
    return client_problem(
        428, "not_yet", f"there is no {what} yet: {benchmark.benchmark_id} is {word}"
    )
