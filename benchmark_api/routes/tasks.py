"""What a running task calls: downloads of its files, its progress, uploads of its results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import Caller, bearer_token, count_caller, is_upload_token
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes.context import Context, Ctx, RawBody, read_small
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import (
    accepts,
    accepts_bytes,
    accepts_files,
    content,
)
from edgeyard.benchmark_api.routes.receiving import (
    ReceivedFile,
    UploadBudget,
    receive_form,
    receive_raw,
    see_received,
)
from edgeyard.benchmark_api.routes.sending import inline, stored_file
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import read_json
from edgeyard.benchmark_api.schemas.fields import file_name_problem
from edgeyard.benchmark_api.schemas.requests import ProgressIn, parse
from edgeyard.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    TooLarge,
)
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.engine.reports import check_report
from edgeyard.scheduler.model.attempt import LIVE_ATTEMPTS, Attempt
from edgeyard.scheduler.model.benchmark import TERMINAL
from edgeyard.scheduler.model.files import DownloadGrant, ResultFile
from edgeyard.scheduler.model.quotas import Quotas
from edgeyard.scheduler.model.recurring import ScheduleGrant
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.ports import UnitOfWork

logger = logging.getLogger(__name__)
router = Router(tags=["tasks"])

REPORT = "report.json"
"""Name of the report: when it has arrived, the result has."""
MAX_PROGRESS_MESSAGE = 200
"""Characters that are kept of what a task reports with its progress."""

MAX_REPORT_BYTES = 16 * 2**20
"""Parsed in memory; latencies and predictions are files of their own."""

MAX_PROGRESS_BYTES = 4096
"""A number, a phase and a short message."""

_JOB_PREFIX = "benchmark-"


@router.head("/download/{name}", include_in_schema=False)  # Nomad's getter asks so first
@router.get(
    "/download/{name}",
    responses=content(200, "application/octet-stream", "The file, or the requested range of it."),
)
def download(name: str, request: Request, context: Ctx) -> Response:
    """A task's file. The name can't be guessed and ends with its attempt, or its schedule's job."""
    services = context.services
    grant: DownloadGrant | ScheduleGrant
    with services.store.read() as uow:
        try:
            grant = uow.files.grant(name)
        except NotFound:
            grant = uow.schedules.grant(name)
    if grant.content is not None:
        return inline(request, grant.content, grant.filename)
    return stored_file(request, services, grant.sha256, grant.filename)


@router.post("/v1/runs/{job}/progress", status_code=204, openapi_extra=accepts("ProgressIn"))
async def progress(job: str, request: Request, context: Ctx) -> Response:
    """How far a task is; a task says it at most twice a second."""
    token = bearer_token(request)
    authorizer, attempt = await run_in_threadpool(_admit, context, job, token)
    _count(request, authorizer, attempt)
    body = await read_small(request, MAX_PROGRESS_BYTES)
    await run_in_threadpool(_note_progress, context, authorizer, attempt.job_id, body)
    return Response(status_code=204)


@router.put("/upload/{job}/{filename}", status_code=201, openapi_extra=accepts_bytes())
async def upload(
    job: str, filename: str, request: Request, context: Ctx
) -> Answer[shapes.UploadAnswer]:
    """Upload one result file; 200 when the same content was there already."""
    token = bearer_token(request)
    attempt = await run_in_threadpool(_admitted, context, job, token, request, filename)
    if attempt is None:
        return Answer(shapes.UploadAnswer(files=[filename]))
    if problem := file_name_problem(filename):
        raise InvalidInput.at("/filename", f"the file's name {problem}", "a plain file name")
    budget = await run_in_threadpool(_budget, context, attempt)
    received = await receive_raw(
        request,
        context.services.files,
        context.services.settings.result_limit_bytes,
        "result_limit_bytes",
        filename,
        urgent=True,
        budget=budget,
    )
    return await run_in_threadpool(_record, context, job, token, [received])


@router.post("/upload/{job}/", status_code=201, openapi_extra=accepts_files())
async def upload_form(job: str, request: Request, context: Ctx) -> Answer[shapes.UploadAnswer]:
    """Upload any number of result files as a form (field ``file``)."""
    token = bearer_token(request)
    attempt = await run_in_threadpool(_admitted, context, job, token, request, None)
    assert attempt is not None
    received = await receive_form(
        request,
        context.services.files,
        context.services.settings.result_limit_bytes,
        "result_limit_bytes",
        urgent=True,
        budget=await run_in_threadpool(_budget, context, attempt),
    )
    return await run_in_threadpool(_record, context, job, token, received)


@dataclass(frozen=True, slots=True)
class UploadAuthorizer:
    """Who knocks: with which token, and whether any network is trusted.

    Attributes:
        caller: Whose token it is; None where it is an attempt's, or there is none. Known before
            any unit of work, which must not take a second connection to the database.
    """

    job: str
    token: str | None
    caller: Caller | None
    trusted_network: bool

    def sender(self, attempt: Attempt) -> str:
        """Return the sender's name for events, once it has been admitted."""
        if self.token is None:
            return "anybody on the trusted network"
        if is_upload_token(attempt, self.token):
            return lifecycle.OWN_TASK
        return self._known_caller().user_id

    def admit(self, attempt: Attempt | None) -> Attempt:
        """Return the attempt to which the token may write.

        Raises:
            NotAuthenticated: No token, a bad one, or that of an attempt that has ended.
            Forbidden: A token of an account that does not serve the attempt's board.
            NotFound: No such job, for those who may know.
        """
        if self.token is None:
            if not self.trusted_network:
                raise NotAuthenticated("the attempt's upload token is needed")
        elif attempt is not None and is_upload_token(attempt, self.token):
            if not _is_open(attempt):
                raise NotAuthenticated(
                    "the attempt has ended, so its upload token is no longer valid"
                )
        else:
            # Unknown jobs and wrong tokens look the same to those who have no account.
            caller = self._known_caller()
            serves = attempt is None or caller.user.serves(attempt.target_uid)
            if caller.role is not Role.HOST or not serves:
                raise Forbidden(
                    "results are accepted with the attempt's own token, or from the account of "
                    "the host "
                    "of its board"
                )
        if attempt is None:
            raise NotFound("job", self.job)
        if not _is_open(attempt):
            raise Conflict(f"attempt {attempt.number} of {attempt.benchmark_id} has ended")
        return attempt

    def _known_caller(self) -> Caller:
        if self.caller is None:
            raise NotAuthenticated("the token is not known")
        return self.caller

    def admit_now(self, uow: UnitOfWork, job_id: str) -> Attempt:
        """Return the attempt within a unit of work that writes to it; it may have ended by now.

        Raises:
            NotAuthenticated: See `admit`; also where the benchmark is at its end, cancelled for
                example, and its task was not stopped yet.
        """
        attempt = self.admit(uow.attempts.by_job_id(job_id))
        status = uow.benchmarks.get(attempt.benchmark_id).status
        if status in TERMINAL:
            raise NotAuthenticated(
                f"the benchmark is {status.value}, so the upload token is no longer valid"
            )
        return attempt


def _is_open(attempt: Attempt) -> bool:
    """Return whether results of an attempt are wanted, also of one that was given up for lost."""
    return attempt.state in LIVE_ATTEMPTS or attempt.takes_late_result


def _authorizer_of(
    context: Context, job: str, token: str | None, attempt: Attempt | None
) -> UploadAuthorizer:
    """Make the authorizer of a request for an attempt, outside of any unit of work.

    Raises:
        NotAuthenticated: The token is neither the attempt's nor that of an account.
    """
    caller = None
    if token is not None and (attempt is None or not is_upload_token(attempt, token)):
        caller = context.authenticator.caller(token)
    return UploadAuthorizer(job, token, caller, context.services.settings.trusted_network)


def _find(context: Context, job: str, token: str | None) -> Attempt | None:
    """Return the attempt that a path names: by its job's id, or by its benchmark's.

    Of a benchmark's attempts it is the one of the token, otherwise the newest.
    """
    job_id = job if job.startswith(_JOB_PREFIX) else _JOB_PREFIX + job
    with context.services.store.read() as uow:
        try:
            return uow.attempts.by_job_id(job_id)
        except NotFound:
            attempts = uow.attempts.of(job)
    if token is not None:
        for attempt in attempts:
            if is_upload_token(attempt, token):
                return attempt
    return attempts[-1] if attempts else None


def _admitted(
    context: Context, job: str, token: str | None, request: Request, filename: str | None
) -> Attempt | None:
    """Return the attempt; None where this very file of it is safe, and nothing is left to do."""
    attempt = _find(context, job, token)
    known = attempt is not None and token is not None and is_upload_token(attempt, token)
    if attempt is not None and known and filename is not None:
        # The answer to the first upload may have been lost, and the attempt have ended meanwhile.
        stated = request.headers.get("x-content-sha256", "").lower()
        if stated and _has(context, attempt, filename, stated):
            return None
    authorizer = _authorizer_of(context, job, token, attempt)
    admitted = authorizer.admit(attempt)
    _count(request, authorizer, admitted)
    return admitted


def _has(context: Context, attempt: Attempt, filename: str, sha256: str) -> bool:
    with context.services.store.read() as uow:
        return any(
            (file.attempt, file.name, file.sha256) == (attempt.number, filename, sha256)
            for file in uow.files.results(attempt.benchmark_id)
        )


def _count(request: Request, authorizer: UploadAuthorizer, attempt: Attempt) -> None:
    """Count a request of a task, or of the account that serves its board.

    Raises:
        RateLimited: There were too many.
    """
    rate_limits: RateLimits = request.app.state.rate_limits
    if authorizer.caller is not None and authorizer.token is not None:
        count_caller(rate_limits, authorizer.caller, authorizer.token)
    else:
        rate_limits.count_task(attempt.job_id)


def _admit(context: Context, job: str, token: str | None) -> tuple[UploadAuthorizer, Attempt]:
    """Return the authorizer of a request, and the attempt that the request may report on."""
    found = _find(context, job, token)
    authorizer = _authorizer_of(context, job, token, found)
    return authorizer, authorizer.admit(found)


def _note_progress(
    context: Context, authorizer: UploadAuthorizer, job_id: str, body: RawBody
) -> None:
    reported = parse(ProgressIn, body.tree())
    services = context.services
    phase = reported.phase[:64]
    message = printable(reported.message[:MAX_PROGRESS_MESSAGE]) or None
    with services.store.read() as uow:
        attempt = authorizer.admit_now(uow, job_id)
    if lifecycle.is_tick(attempt, phase):
        services.store.record_progress(attempt, reported.progress, message)
        return

    def note(uow: UnitOfWork) -> None:
        attempt = authorizer.admit_now(uow, job_id)
        lifecycle.progress_received(
            uow, attempt, reported.progress, phase, services.clock.now(), message
        )

    services.store.transact(note)


def _record(
    context: Context, job: str, token: str | None, received: Sequence[ReceivedFile]
) -> Answer[shapes.UploadAnswer]:
    """Make received files results of the attempt: all of them or none; the report comes last."""
    services = context.services
    now = services.clock.now()
    report = _report(context, received)
    found = _find(context, job, token)
    authorizer = _authorizer_of(context, job, token, found)
    job_id = authorizer.admit(found).job_id

    seen = see_received(services, received)

    def record(uow: UnitOfWork) -> tuple[Attempt, bool]:
        new = False
        attempt = authorizer.admit_now(uow, job_id)
        if attempt.result_at is not None:
            _refuse_other_report(uow.files.results(attempt.benchmark_id), attempt, received)
        for each in sorted(received, key=lambda one: one.name == REPORT):
            new |= uow.files.add_result(
                ResultFile(
                    benchmark_id=attempt.benchmark_id,
                    attempt=attempt.number,
                    name=each.name,
                    sha256=each.stored.sha256,
                    size_bytes=each.stored.size_bytes,
                    received_at=now,
                )
            )
        seen.check(uow)
        if any(each.name != REPORT for each in received):  # the numbers themselves are never lost
            owner, allowed = _quotas(uow, attempt, services.settings.quotas)
            quotas.check_run(uow, attempt.benchmark_id, attempt.number, owner, allowed)
        if report is not None and attempt.result_at is None:
            check_report(report, uow.benchmarks.get(attempt.benchmark_id))
            sender = authorizer.sender(attempt)
            lifecycle.result_received(uow, attempt, report, now, sender)
        return attempt, new

    try:
        attempt, new = services.store.transact(record)
    except TooLarge:
        release(services.store, services.files, {each.stored.sha256: now for each in received})
        raise
    context.metrics.uploaded.labels("result").inc(sum(one.stored.size_bytes for one in received))
    if report is not None:
        logger.info(
            "result received",
            extra={
                "event": "result.received",
                "benchmark_id": attempt.benchmark_id,
                "job_id": attempt.job_id,
            },
        )
        services.engine.wake()
    return Answer(shapes.UploadAnswer(files=[each.name for each in received]), 201 if new else 200)


def _quotas(uow: UnitOfWork, attempt: Attempt, defaults: Quotas) -> tuple[str, Quotas]:
    """Return whose an attempt is, and the quotas that hold for them."""
    owner = uow.benchmarks.get(attempt.benchmark_id).user_id
    return owner, quotas.of_account(uow, owner, defaults)


def _budget(context: Context, attempt: Attempt) -> UploadBudget | None:
    """Return what bounds the uploads of an attempt that are under way."""
    with context.services.store.read() as uow:
        _, allowed = _quotas(uow, attempt, context.services.settings.quotas)
    whose = f"the run {attempt.job_id}"
    return context.uploads.budget("max_run_bytes", allowed.max_run_bytes, whose)


def _report(context: Context, received: Sequence[ReceivedFile]) -> dict[str, object] | None:
    """Return the parsed report among the files, if it is there.

    Raises:
        InvalidInput: It is no JSON object, or far too long.
    """
    for each in received:
        if each.name != REPORT:
            continue
        if each.stored.size_bytes > MAX_REPORT_BYTES:
            raise InvalidInput.at("", "the report is too long", f"{MAX_REPORT_BYTES} bytes")
        tree = read_json(context.services.files.path(each.stored.sha256).read_bytes())
        if not isinstance(tree, dict):
            raise InvalidInput.at("", "the report is not an object", "a result of schema v1")
        return tree
    return None


def _refuse_other_report(
    stored: Sequence[ResultFile], attempt: Attempt, received: Sequence[ReceivedFile]
) -> None:
    """A final report stays what it is: other content under its name is refused, the rest too."""
    known = {file.name: file.sha256 for file in stored if file.attempt == attempt.number}
    for each in received:
        if known.get(each.name) != each.stored.sha256:
            raise Conflict(f"the result is final: {each.name} can't be added or changed any more")
