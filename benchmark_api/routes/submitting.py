"""Submit benchmarks: new ones, dry runs, and earlier ones again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from fastapi import Header, Query

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.content import UnseenContent
from edgeyard.benchmark_api.routes.context import (
    BenchmarkId,
    Body,
    Context,
    Ctx,
    Flag,
    RawBody,
    visible,
)
from edgeyard.benchmark_api.routes.contract import Answer, Router, documented
from edgeyard.benchmark_api.routes.documented import accepts_document
from edgeyard.benchmark_api.routes.receiving import ReceivedFile, see_received
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.description import LOAD_FIELDS, unused_fields
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.check import CheckedRequest, check, memory_warnings
from edgeyard.benchmark_api.submission.files import FileFinder, model_bytes_of, refuse_sizes
from edgeyard.benchmark_api.submission.parse import LocalFile, read_local_files
from edgeyard.benchmark_api.submission.store import StoreChecks
from edgeyard.errors import Conflict, HclError, InvalidInput
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.engine.charging import reservation
from edgeyard.scheduler.engine.intake import add_schedule
from edgeyard.scheduler.engine.preview import Candidate
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkFile,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.model.checks import CONFIRMING_TAGS
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.model.tariff import parse_tariff
from edgeyard.scheduler.model.users import User
from edgeyard.scheduler.model.wire import description_to_json
from edgeyard.scheduler.model.workload import workload_of
from edgeyard.scheduler.ports import FileStore, UnitOfWork

SizeBytes = Annotated[int | None, Query(ge=0, le=2**63 - 1)]

router = Router(prefix="/v1/benchmarks", tags=["benchmarks"])

T = TypeVar("T", bound=shapes.SubmissionAnswer | shapes.AcceptedCampaign | shapes.StoredCheck)

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
        shapes.SubmissionAnswer, idempotency_key, caller.user_id, body, "/v1/benchmarks"
    )
    if not dry_run and (earlier := idempotency.earlier(services)) is not None:
        return earlier
    now = services.clock.now()
    request = check(body.document(), caller, services, context.offers.now(), now)
    if dry_run:
        return Answer(would_happen(request, caller, services, local=local))
    return _stored(request, caller, context, idempotency, now)


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
        shapes.SubmissionAnswer, idempotency_key, caller.user_id, body, f"retry/{benchmark_id}"
    )
    return _again(benchmark_id, {}, caller, context, idempotency, retry_of=benchmark_id)


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
        request, kept = repeated(benchmark_id, body.document(), caller, context, now, retry=False)
        return Answer(would_happen(request, caller, services, kept, local))
    idempotency = IdempotencyGuard(
        shapes.SubmissionAnswer, idempotency_key, caller.user_id, body, f"clone/{benchmark_id}"
    )
    return _again(benchmark_id, body.document(), caller, context, idempotency, retry_of=None)


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
    with services.store.read() as uow:
        before = visible(uow, benchmark_id, caller)
    tree, warnings = _merged(before, body.document(), caller.user, now)
    request = check(tree, caller, services, context.offers.now(), now)
    refuse_sizes(services.settings, request, model_bytes=model_bytes, dataset_bytes=dataset_bytes)
    warnings = (*request.warnings, *warnings, *memory_warnings(request, model_bytes))
    return Answer(shapes.CheckedClone(warnings=list(warnings), description=tree))


class IdempotencyGuard(Generic[T]):
    """One POST's idempotency key: the same key and body get the same answer."""

    def __init__(
        self, shape: type[T], key: str | None, user_id: str, body: RawBody | None, what: str
    ) -> None:
        self._shape = shape
        self._key = key
        self._user_id = user_id
        data = b"" if body is None else body.data
        self._sha256 = hashlib.sha256(what.encode() + b"\0" + data).hexdigest()

    def earlier(self, services: Services) -> Answer[T] | None:
        """Return the answer that was given before, if it was.

        Raises:
            Conflict: The key came with another body.
        """
        if self._key is None:
            return None
        with services.store.read() as uow:
            return self.earlier_in(uow)

    def earlier_in(self, uow: UnitOfWork) -> Answer[T] | None:
        """Return the same as `earlier`, within a unit of work."""
        if self._key is None:
            return None
        known = uow.log.answer(self._key, self._user_id)
        if known is None:
            return None
        if known[0] != self._sha256:
            raise Conflict(
                "this Idempotency-Key was sent with another request before: send a new key"
            )
        return accepted_answer(
            msgspec.convert(known[1], self._shape), {"Idempotent-Replayed": "true"}
        )

    def remember(self, uow: UnitOfWork, accepted: T) -> None:
        """Store the answer, in the transaction that did what it reports."""
        if self._key is not None:
            stored = msgspec.to_builtins(accepted)
            uow.log.put_answer(self._key, self._user_id, self._sha256, stored)


def accepted(
    services: Services,
    made: Sequence[Benchmark],
    warnings: tuple[str, ...],
    forecast: shapes.Forecast | None,
) -> shapes.SubmissionAnswer:
    """Return what a submission answers.

    Args:
        services: Of the server.
        made: The benchmark, or all of its gang.
        warnings: About the submission.
        forecast: Of the benchmark.
    """
    first = made[0]
    return shapes.SubmissionAnswer(
        benchmark_id=first.benchmark_id,
        status=first.status.value,
        forecast=forecast,
        links=views.links(services, first.benchmark_id),
        warnings=list(warnings),
        campaign_id=first.gang_id,
        benchmark_ids=[] if first.gang_id is None else [each.benchmark_id for each in made],
    )


def accepted_answer(accepted: T, headers: Mapping[str, str] | None = None) -> Answer[T]:
    """Answer 202, with the URL of what was made as its location."""
    return Answer(accepted, 202, {**(headers or {}), "Location": accepted.links["self"]})


_BELONGS: Mapping[str, tuple[str, ...]] = {
    "model": ("model_url",),
    "model_url": ("model",),
    "dataset": ("dataset_urls",),
    "dataset_urls": ("dataset",),
    "target": ("target_uid", "if_unavailable"),
    "target_uid": ("target", "count"),
    "preemptible": ("preemptible_measuring",),
    "precision": ("nb_inference", "soak", "soak_window", "concurrency", *LOAD_FIELDS),
    "nb_inference": ("precision", "soak", "soak_window"),
    "soak": ("nb_inference", "precision", "concurrency", *LOAD_FIELDS),
    "concurrency": ("precision", "soak", "soak_window", *LOAD_FIELDS),
    "load": ("precision", "soak", "soak_window", "concurrency", *LOAD_FIELDS[1:]),
}
"""A change of one field makes the old value of the other meaningless."""

_FIELDS_OF_ROLE = {
    FileRole.MODEL: ("model", "model_url"),
    FileRole.LANGUAGE_MODEL: ("model", "model_url"),
    FileRole.DATASET: ("dataset", "dataset_urls"),
    FileRole.ODT_CONFIG: ("odt_config",),
}


def _again(
    benchmark_id: str,
    changes: Mapping[str, object],
    caller: Caller,
    context: Context,
    idempotency: IdempotencyGuard[shapes.SubmissionAnswer],
    *,
    retry_of: str | None,
) -> Answer[shapes.SubmissionAnswer]:
    services = context.services
    if (earlier := idempotency.earlier(services)) is not None:
        return earlier
    now = services.clock.now()
    request, kept = repeated(
        benchmark_id, changes, caller, context, now, retry=retry_of is not None
    )
    return _stored(request, caller, context, idempotency, now, kept=kept, retry_of=retry_of)


def repeated(
    benchmark_id: str,
    changes: Mapping[str, object],
    caller: Caller,
    context: Context,
    now: datetime,
    *,
    retry: bool,
) -> tuple[CheckedRequest, list[BenchmarkFile]]:
    """Return an earlier benchmark with changes, checked, and the files that it keeps.

    Raises:
        Conflict: It is a retry, and the benchmark has not ended or a file of it was deleted.
        InvalidInput: As `check`.
    """
    services = context.services
    with services.store.read() as uow:
        before = visible(uow, benchmark_id, caller)
    if retry and before.status not in TERMINAL:
        raise Conflict(f"{benchmark_id} is {before.status.value}: only ended ones can be retried")
    tree, warnings = _merged(before, changes, caller.user, now)
    request = check(tree, caller, services, context.offers.now(), now)
    kept = [
        _still_there(services.files, file, of_retry=benchmark_id if retry else None)
        for file in before.files
        if not _touches(file.role, changes) and _reads(request.description, file.role)
    ]
    return replace(request, warnings=(*request.warnings, *warnings)), kept


def _still_there(files: FileStore, file: BenchmarkFile, *, of_retry: str | None) -> BenchmarkFile:
    """The file of an earlier benchmark; what was pruned meanwhile is fetched again from its URL.

    Args:
        files: Where it is stored.
        of_retry: The benchmark, if it is retried: a retry can't name another file.

    Raises:
        Conflict: It was deleted or pruned, and it is a retry.
        InvalidInput: It was deleted or pruned, and it is a clone.
    """
    if file.sha256 is None:
        return file
    if files.contains(file.sha256):
        return file
    if file.url is not None:
        return replace(file, sha256=None, size_bytes=None)
    gone = "is no longer stored: it was deleted, or pruned because it was unused"
    if of_retry is None:
        accepted = "upload it again and submit with its name"
        raise InvalidInput.at(f"/{file.role.field}", f"{file.name} {gone}", accepted)
    flag = f"--{file.role.field.replace('_', '-')}"
    raise Conflict(
        f"{file.name}, the {file.role.field} of {of_retry}, {gone}; name another file: "
        f"edgeyard submit --clone {of_retry} {flag} FILE"
    )


def _stored(
    request: CheckedRequest,
    caller: Caller,
    context: Context,
    idempotency: IdempotencyGuard[shapes.SubmissionAnswer],
    now: datetime,
    *,
    kept: Sequence[BenchmarkFile] = (),
    retry_of: str | None = None,
) -> Answer[shapes.SubmissionAnswer]:
    done = enqueue(
        request, caller, context, now, idempotency=idempotency, kept=kept, retry_of=retry_of
    )
    return done if isinstance(done, Answer) else accepted_answer(done)


def enqueue(
    request: CheckedRequest,
    caller: Caller,
    context: Context,
    now: datetime,
    *,
    idempotency: IdempotencyGuard[shapes.SubmissionAnswer],
    kept: Sequence[BenchmarkFile] = (),
    received: Sequence[ReceivedFile] = (),
    retry_of: str | None = None,
) -> Answer[shapes.SubmissionAnswer] | shapes.SubmissionAnswer:
    """Put it into the queue, or its cron among the schedules.

    Args:
        request: What was checked.
        caller: Whose it is.
        context: Of the app.
        now: The time of submission.
        idempotency: Its idempotency key, if it has one.
        kept: Files of roles that need not be looked up.
        received: What came with the request and is among ``kept``.
        retry_of: The benchmark that it repeats.

    Returns:
        What is reported of it; the earlier answer where the key was used before.
    """
    services = context.services

    unread = True

    def find(
        checks: StoreChecks,
    ) -> Answer[shapes.SubmissionAnswer] | tuple[JobDescription, Sequence[BenchmarkFile]]:
        earlier = idempotency.earlier_in(checks.uow)
        if earlier is not None:
            return earlier
        with services.content.from_memory() if unread else nullcontext():
            return checks.files_of(request, caller, kept)

    allowed = quotas_of(caller.user, services.settings.quotas)
    wanted_id = _wanted_id(request, caller)
    seen = see_received(services, received)
    # Before it is written: no other request waits, and the candidate is not in the queue yet.
    forecast = _forecast(request, caller, services, kept)

    def change(
        uow: UnitOfWork,
        found: Answer[shapes.SubmissionAnswer] | tuple[JobDescription, Sequence[BenchmarkFile]],
    ) -> Answer[shapes.SubmissionAnswer] | shapes.SubmissionAnswer:
        if isinstance(found, Answer):
            return found
        description, files = found
        warnings = (*request.warnings, *memory_warnings(request, model_bytes_of(files)))
        seen.check(uow)
        refuse_taken_id(uow, request, caller)
        if description.cron is not None:
            schedule = add_schedule(uow, description, caller.user_id, files, now)
            quotas.check_schedules(uow, caller.user_id, allowed)
            quotas.check_stored(uow, caller.user_id, allowed)
            answer = shapes.SubmissionAnswer(
                benchmark_id=None,
                schedule_id=schedule.schedule_id,
                status="scheduled",
                forecast=None,
                next_fire=schedule.next_fire,
                links={"self": views.url(services, "v1", "schedules", schedule.schedule_id)},
                warnings=list(warnings),
            )
        else:
            campaign = None
            if description.count > 1:
                campaign = lifecycle.add_campaign(uow, caller.user_id, description.name, now)
            made = [
                lifecycle.submit(
                    uow,
                    description,
                    caller.user_id,
                    files,
                    now,
                    benchmark_id=wanted_id,
                    campaign_id=None if campaign is None else campaign.campaign_id,
                    retry_of=retry_of,
                )
                for _ in range(description.count)
            ]
            if received:
                quotas.check_stored(uow, caller.user_id, allowed)
            quotas.check_queue(uow, caller.user, allowed, services.max_pending_for(caller.user))
            if description.start_time is not None:
                quotas.check_bookings(uow, caller.user_id, allowed, now)
            answer = accepted(services, made, warnings, forecast)
        idempotency.remember(uow, answer)
        return answer

    services.check_room(caller.user)
    try:
        done = context.group.run(find, change, caller.user_id)
    except UnseenContent:
        _look_into(request, caller, services, kept)
        unread = False  # what was changed meanwhile is read after all
        done = context.group.run(find, change, caller.user_id)
    if not isinstance(done, Answer):
        submitted = context.metrics.submitted.labels(request.description.benchmark_type.value)
        submitted.inc(request.description.count)
        services.engine.wake()
    return done


def _wanted_id(request: CheckedRequest, caller: Caller) -> str | None:
    """Return the whole id for the beginning that the request states; None: it states none."""
    if request.benchmark_id is None:
        return None
    return lifecycle.own_benchmark_id(request.benchmark_id, caller.user_id)


def refuse_taken_id(uow: UnitOfWork, request: CheckedRequest, caller: Caller) -> None:
    """Refuse a whole id, or the beginning of one, that the user has used.

    Raises:
        Conflict: The user has that benchmark; benchmarks of other users are not disclosed.
    """
    wanted_id = _wanted_id(request, caller)
    if wanted_id is None or request.benchmark_id is None:
        return
    for each in uow.benchmarks.get_many([wanted_id, request.benchmark_id]):
        if each.user_id == caller.user_id:
            raise Conflict(f"benchmark {each.benchmark_id} already exists")


def _look_into(
    request: CheckedRequest, caller: Caller, services: Services, kept: Sequence[BenchmarkFile]
) -> None:
    """Look into the files of a submission, while no unit of work is open; it is remembered.

    Raises:
        InvalidInput: As `StoreChecks.files_of`.
    """
    with services.store.read() as uow:
        description, files = FileFinder(uow, caller, services).files_of(request, kept)
    services.content.check(description, files, request.max_ram_bytes)


def _reads(description: JobDescription, role: FileRole) -> bool:
    """Whether a description has a file of this role; another type than before may not."""
    if role is FileRole.DATASET:
        return description.dataset is not None or bool(description.dataset_urls)
    return role is not FileRole.ODT_CONFIG or description.odt_config is not None


def _touches(role: FileRole, changes: Mapping[str, object]) -> bool:
    return any(name in changes for name in _FIELDS_OF_ROLE[role])


def _merged(
    before: Benchmark, changes: Mapping[str, object], user: User, now: datetime
) -> tuple[dict[str, object], tuple[str, ...]]:
    """The old description with changes, without what has lost its meaning."""
    tags = tuple(each for each in before.description.tags if each not in CONFIRMING_TAGS)
    tree = description_to_json(replace(before.description, tags=tags))
    dropped = {other for name in changes for other in _BELONGS.get(name, ())}
    if before.description.precision is not None or before.description.soak_s is not None:
        dropped.add("nb_inference")
    warnings = []
    for name, value in (
        ("deadline", before.description.deadline),
        ("start_time", before.description.start_time),
    ):
        if value is not None and value <= now and name not in changes:
            dropped.add(name)
            warnings.append(f"{name} has passed and was left out")
    if before.description.user_priority > user.max_priority:
        dropped.add("user_priority")
    merged = {**tree, **changes}
    outputs = merged.get("keep_outputs") is True
    unused = unused_fields(merged.get("benchmark_type"), keep_outputs=outputs)
    dropped |= unused - changes.keys()
    kept = {name: value for name, value in tree.items() if name not in dropped}
    merged = {**kept, **changes}
    return {name: value for name, value in merged.items() if value is not None}, tuple(warnings)


def _forecast(
    request: CheckedRequest, caller: Caller, services: Services, kept: Sequence[BenchmarkFile]
) -> shapes.Forecast | None:
    """Predict when a submission is expected to start and end."""

    def find() -> tuple[JobDescription, Sequence[BenchmarkFile]]:
        with services.store.read() as uow:
            return FileFinder(uow, caller, services).files_of(request, kept)

    candidate = Candidate((request.description, tuple(kept)), find)
    return views.forecast(services, services.engine.forecast_submission(candidate, caller.user_id))


def would_happen(
    request: CheckedRequest,
    caller: Caller,
    services: Services,
    kept: Sequence[BenchmarkFile] = (),
    local: Mapping[str, LocalFile] = MappingProxyType({}),
    members: int = 1,
) -> shapes.DryRun:
    """Return a dry run's answer; files are looked up, nothing is stored.

    Args:
        request: What was checked.
        caller: Whose it would be.
        services: Of the server.
        kept: Files of roles that need not be looked up.
        local: Files that are not uploaded, by their names.
        members: Members of the matrix of which it is one.

    Raises:
        Conflict: As `refuse_taken_id`.
        InvalidInput: As `StoreChecks.files_of`.
        QuotaExceeded: What is not uploaded, or waits in the queue (the user's or all), would be too
            much.
    """
    allowed = quotas_of(caller.user, services.settings.quotas)
    with services.store.read() as uow:
        refuse_taken_id(uow, request, caller)
        rates = uow.credits.rates()
        if request.description.cron is None:
            count = members * request.description.count
            quotas.check_room_of_all(uow, services.max_pending_for(caller.user), count)
            quotas.check_room(uow, caller.user_id, allowed, count)
            start, now = request.description.start_time, services.clock.now()
            if start is not None and start > now:
                quotas.check_bookings(uow, caller.user_id, allowed, now, count)
        description, files = StoreChecks(uow, services, local).files_of(request, caller, kept)
        unseen = [file for file in files if file.sha256 is None and file.url is None]
        if unseen:
            quotas.check_planned(
                uow,
                caller.user_id,
                allowed,
                more_bytes=sum(file.size_bytes or 0 for file in unseen),
                more_files=len(unseen),
            )
    try:
        preview = services.engine.preview(description, files, caller.user_id)
    except (HclError, InvalidInput) as error:
        raise InvalidInput.at("", f"the job can't be rendered: {error}") from error
    explanation = preview.explanation
    states = {view.board.target_uid: view for view in services.engine.boards()}
    factor = parse_tariff(services.settings.tariff).at(services.clock.now())
    boards = []
    for verdict in explanation.verdicts:
        view = states.get(verdict.target_uid)
        family = view.board.family if view else verdict.target_uid.split("-", 1)[0]
        rate = factor * rates.get(family, 1.0)
        _, credits = reservation(description, rate, services.settings.default_user_time_s)
        boards.append(
            shapes.BoardVerdict(
                target_uid=verdict.target_uid,
                family=family,
                state=view.state.value if view else "unknown",
                fits=verdict.reason is None,
                never=verdict.never,
                reason=verdict.reason.value if verdict.reason else None,
                sentence=verdict.sentence,
                cost_s=verdict.cost_s,
                cost_error_s=verdict.cost_error_s,
                energy_j=verdict.energy_j,
                energy_low_j=verdict.energy_low_j,
                energy_high_j=verdict.energy_high_j,
                max_credits=credits,
            )
        )
    would: Literal["run", "wait", "never"] = (
        "run" if explanation.placement else "never" if explanation.never else "wait"
    )
    if would == "run" and any(_unfetched(file) for file in files):
        would = "wait"
    return shapes.DryRun(
        would=would,
        boards=boards,
        waiting_reason=views.waiting_reason(services, explanation.waiting),
        priority=explanation.priority,
        priority_parts=dict(explanation.priority_parts),
        hcl=preview.hcl,
        forecast=views.forecast(services, preview.forecast),
        planned=views.planned_start(services, explanation.planned),
        description=description_to_json(description),
        workload=msgspec.convert(
            workload_of(description, files, services.content.known(description, files)),
            shapes.Workload,
        ),
        not_uploaded=[
            shapes.LocalFile(name=file.name, size_bytes=file.size_bytes or 0) for file in unseen
        ],
        warnings=[*request.warnings, *memory_warnings(request, model_bytes_of(files))],
    )


def _unfetched(file: BenchmarkFile) -> bool:
    return file.sha256 is None and file.url is not None
