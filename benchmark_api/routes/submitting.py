"""Submit benchmarks: new ones, dry runs, and earlier ones again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Header, Query

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import BenchmarkId, Body, Context, Ctx, Flag, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router, documented
from edgeyard.benchmark_api.routes.documented import accepts_document
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.check import check, memory_warnings
from edgeyard.benchmark_api.submission.dry_run import would_happen
from edgeyard.benchmark_api.submission.files import refuse_sizes
from edgeyard.benchmark_api.submission.idempotency import Accepted, IdempotencyGuard, T
from edgeyard.benchmark_api.submission.parse import read_local_files
from edgeyard.benchmark_api.submission.repeat import merged, repeated
from edgeyard.benchmark_api.submission.store import refuse_taken_id
from edgeyard.scheduler.model.benchmark import Benchmark

SizeBytes = Annotated[int | None, Query(ge=0, le=2**63 - 1)]

router = Router(prefix="/v1/benchmarks", tags=["benchmarks"])

LocalFiles = Annotated[
    list[str] | None,
    Query(
        description="A file that is not uploaded, as SIZE:SHA256:NAME; the SHA-256 may be empty. "
        "The description names it. With dry_run only; may be repeated."
    ),
]

IdempotencyKey = Annotated[str | None, Header(max_length=255, pattern=r"^[\x21-\x7e]+$")]


@router.post(
    "",
    status_code=202,
    responses=documented(200, shapes.DryRun),
    openapi_extra=accepts_document("JobDescriptionIn"),
)
def submit(
    body: Body,
    caller: Submitter,
    context: Ctx,
    dry_run: Flag = False,
    local_file: LocalFiles = None,
    idempotency_key: IdempotencyKey = None,
) -> Answer[shapes.SubmissionAnswer] | Answer[shapes.DryRun]:
    """Submit a benchmark, or ask what would happen to it (``dry_run``)."""
    services = context.services
    local = read_local_files(local_file, dry_run=dry_run)
    idempotency = IdempotencyGuard(
        shapes.SubmissionAnswer, idempotency_key, caller.user_id, body.data, "/v1/benchmarks"
    )
    if not dry_run and (earlier := idempotency.earlier(services)) is not None:
        return accepted_answer(earlier)
    now = services.clock.now()
    request = check(body.document(), caller, services, context.offers.now(), now)
    if dry_run:
        return Answer(would_happen(request, caller, services, local=local))
    done = context.submissions.enqueue(request, caller, now, idempotency=idempotency)
    return accepted_answer(done)


@router.post("/check", openapi_extra=accepts_document("JobDescriptionIn"))
def check_description(
    body: Body,
    caller: Submitter,
    context: Ctx,
    model_bytes: SizeBytes = None,
    dataset_bytes: SizeBytes = None,
) -> Answer[shapes.CheckedDescription]:
    """Check a description before its files are uploaded: all that needs no file, and its id.

    ``model_bytes`` is the size of the model that would be uploaded, ``dataset_bytes`` that of the
    largest dataset.
    """
    services = context.services
    request = check(body.document(), caller, services, context.offers.now(), services.clock.now())
    with services.store.read() as uow:
        refuse_taken_id(uow, request, caller)
    refuse_sizes(services.settings, request, model_bytes=model_bytes, dataset_bytes=dataset_bytes)
    warnings = [*request.warnings, *memory_warnings(request, model_bytes)]
    return Answer(shapes.CheckedDescription(warnings=warnings))


@router.post("/{benchmark_id}/retry", status_code=202)
def retry(
    benchmark_id: BenchmarkId,
    body: Body,
    caller: Submitter,
    context: Ctx,
    idempotency_key: IdempotencyKey = None,
) -> Answer[shapes.SubmissionAnswer]:
    """Run a benchmark that is at its end once more, as a new one."""
    idempotency = IdempotencyGuard(
        shapes.SubmissionAnswer, idempotency_key, caller.user_id, body.data, f"retry/{benchmark_id}"
    )
    return _again(benchmark_id, {}, caller, context, idempotency, retry=True)


@router.post(
    "/{benchmark_id}/clone",
    status_code=202,
    responses=documented(200, shapes.DryRun),
    openapi_extra=accepts_document(None),
)
def clone(
    benchmark_id: BenchmarkId,
    body: Body,
    caller: Submitter,
    context: Ctx,
    dry_run: Flag = False,
    local_file: LocalFiles = None,
    idempotency_key: IdempotencyKey = None,
) -> Answer[shapes.SubmissionAnswer] | Answer[shapes.DryRun]:
    """Submit a benchmark again with changes: the body holds the fields that differ.

    With ``dry_run`` nothing is submitted, and the answer is what would happen.
    """
    local = read_local_files(local_file, dry_run=dry_run)
    if dry_run:
        services = context.services
        now = services.clock.now()
        changes = body.document()
        before = _benchmark(benchmark_id, caller, services)
        request, kept = repeated(
            before, changes, caller, services, context.offers.now(), now, retry=False
        )
        return Answer(would_happen(request, caller, services, kept, local))
    idempotency = IdempotencyGuard(
        shapes.SubmissionAnswer, idempotency_key, caller.user_id, body.data, f"clone/{benchmark_id}"
    )
    return _again(benchmark_id, body.document(), caller, context, idempotency, retry=False)


@router.post("/{benchmark_id}/clone/check", openapi_extra=accepts_document(None))
def check_clone(
    benchmark_id: BenchmarkId,
    body: Body,
    caller: Submitter,
    context: Ctx,
    model_bytes: SizeBytes = None,
    dataset_bytes: SizeBytes = None,
) -> Answer[shapes.CheckedClone]:
    """Check the changes of a clone before their files are uploaded: all that needs no file.

    ``model_bytes`` is the size of the model that would be uploaded, ``dataset_bytes`` that of the
    largest dataset.
    """
    services = context.services
    now = services.clock.now()
    before = _benchmark(benchmark_id, caller, services)
    tree, warnings = merged(before, body.document(), caller.user, services, now)
    request = check(tree, caller, services, context.offers.now(), now)
    refuse_sizes(services.settings, request, model_bytes=model_bytes, dataset_bytes=dataset_bytes)
    warnings = (*request.warnings, *warnings, *memory_warnings(request, model_bytes))
    return Answer(shapes.CheckedClone(warnings=list(warnings), description=tree))


def accepted_answer(accepted: Accepted[T]) -> Answer[T]:
    """Answer 202, with the URL of what was made as its location."""
    headers = {"Idempotent-Replayed": "true"} if accepted.is_replayed else {}
    answer = accepted.answer
    return Answer(answer, 202, {**headers, "Location": answer.links["self"]})


def _again(
    benchmark_id: str,
    changes: Mapping[str, object],
    caller: Caller,
    context: Context,
    idempotency: IdempotencyGuard[shapes.SubmissionAnswer],
    *,
    retry: bool,
) -> Answer[shapes.SubmissionAnswer]:
    services = context.services
    if (earlier := idempotency.earlier(services)) is not None:
        return accepted_answer(earlier)
    now = services.clock.now()
    before = _benchmark(benchmark_id, caller, services)
    request, kept = repeated(
        before, changes, caller, services, context.offers.now(), now, retry=retry
    )
    retry_of = benchmark_id if retry else None
    return accepted_answer(
        context.submissions.enqueue(
            request, caller, now, idempotency=idempotency, kept=kept, retry_of=retry_of
        )
    )


def _benchmark(benchmark_id: str, caller: Caller, services: Services) -> Benchmark:
    with services.store.read() as uow:
        return visible(uow, benchmark_id, caller)
