"""The last step: what a submission needs of the store, and its place in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.content import UnseenContent
from edgeyard.benchmark_api.metrics import Metrics
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.fields import is_url
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.account import AccountLimits
from edgeyard.benchmark_api.submission.check import CheckedRequest, memory_warnings
from edgeyard.benchmark_api.submission.files import FileFinder, model_bytes_of
from edgeyard.benchmark_api.submission.group_commit import GroupCommit
from edgeyard.benchmark_api.submission.idempotency import Accepted, IdempotencyGuard
from edgeyard.benchmark_api.submission.parse import LocalFile
from edgeyard.errors import Conflict, InvalidInput
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.engine.contents import SeenContent
from edgeyard.scheduler.engine.intake import add_schedule
from edgeyard.scheduler.engine.preview import Candidate
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkFile, JobDescription
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.ports import UnitOfWork

_Files = tuple[JobDescription, Sequence[BenchmarkFile]]
"""A description with the final name of its model, and its files."""


class StoreChecks:
    """What submissions of one unit of work need of the store; each thing is looked up once.

    That holds while none of them changes accounts, credits or files.
    """

    def __init__(
        self,
        uow: UnitOfWork,
        services: Services,
        local: Mapping[str, LocalFile] = MappingProxyType({}),
    ) -> None:
        """Look nothing up before it is needed.

        Args:
            uow: Looks things up.
            services: Of the server.
            local: Files that are not uploaded, by their names.
        """
        self.uow = uow
        self._services = services
        self._local = local
        self._of: dict[Caller, tuple[AccountLimits, FileFinder]] = {}

    def files_of(
        self, request: CheckedRequest, caller: Caller, kept: Sequence[BenchmarkFile] = ()
    ) -> tuple[JobDescription, tuple[BenchmarkFile, ...]]:
        """Return what `FileFinder.files_of` does, if account and boards can bear it.

        Raises:
            InvalidInput: As there, `AccountLimits.check` and `ContentChecks.check`.
        """
        if caller not in self._of:
            self._of[caller] = (
                AccountLimits(self.uow, caller, self._services),
                FileFinder(self.uow, caller, self._services, self._local),
            )
        account_limits, finder = self._of[caller]
        account_limits.check(request.description)
        description, files = finder.files_of(request, kept)
        self._services.content.check(description, files, request.max_ram_bytes)
        return _with_memory(request, description, files), files

    def shown(self, value: str, caller: Caller) -> str:
        """Return how people know a value of a matrix: a URL by the name of its file."""
        if not is_url(value):
            return value
        return FileFinder(self.uow, caller, self._services).name_at(value)

    def with_own_inputs(
        self, members: Sequence[CheckedRequest], caller: Caller
    ) -> list[CheckedRequest]:
        """Give each member of a matrix the ``input`` of its own model.

        The members share one description, whose ``input`` may name inputs of all their models. What
        no model has stays everywhere, so that it is refused; what is left over may be that of a
        model that is not here yet.
        """
        content = self._services.content
        known: frozenset[str] = frozenset()
        own: list[frozenset[str] | None] = []
        finder = FileFinder(self.uow, caller, self._services, self._local)
        for each in members:
            try:
                description, files = finder.files_of(each)
            except InvalidInput:
                own.append(None)
                continue
            names = content.input_names(description, files)
            is_here = any(file.role.is_model and file.sha256 for file in files)
            known |= (names or frozenset()) if is_here else description.input.keys()
            own.append(names)
        return [
            each if names is None else _with_inputs(each, known - names)
            for each, names in zip(members, own, strict=True)
        ]


def _with_memory(
    request: CheckedRequest, description: JobDescription, files: Sequence[BenchmarkFile]
) -> JobDescription:
    """Return a description that keeps a model from those boards whose memory it exceeds."""
    size_bytes = model_bytes_of(files) or 0
    if request.ram_bytes is None or size_bytes <= request.ram_bytes[0]:
        return description
    return replace(description, ram=size_bytes)


def _with_inputs(request: CheckedRequest, foreign: frozenset[str]) -> CheckedRequest:
    """Return a request without the inputs that only other models of its matrix have."""
    kept = {name: spec for name, spec in request.description.input.items() if name not in foreign}
    return replace(request, description=replace(request.description, input=kept))


class Submissions:
    """Puts checked submissions into the queue, those of many requests in one transaction.

    Thread-safe.
    """

    def __init__(self, services: Services, metrics: Metrics) -> None:
        """Write nothing before `enqueue`."""
        self._services = services
        self._metrics = metrics
        self._group = GroupCommit(services.store, lambda uow: StoreChecks(uow, services))

    def enqueue(
        self,
        request: CheckedRequest,
        caller: Caller,
        now: datetime,
        *,
        idempotency: IdempotencyGuard[shapes.SubmissionAnswer],
        kept: Sequence[BenchmarkFile] = (),
        received: SeenContent | None = None,
        retry_of: str | None = None,
    ) -> Accepted[shapes.SubmissionAnswer]:
        """Put it into the queue, or its cron among the schedules.

        Args:
            request: What was checked.
            caller: Whose it is.
            now: The time of submission.
            idempotency: Its idempotency key, if it has one.
            kept: Files of roles that need not be looked up.
            received: What came with the request and is among ``kept``.
            retry_of: The benchmark that it repeats.

        Returns:
            What is reported of it; the earlier answer where the key was used before.
        """
        services = self._services
        unread = True

        def find(checks: StoreChecks) -> Accepted[shapes.SubmissionAnswer] | _Files:
            earlier = idempotency.earlier_in(checks.uow)
            if earlier is not None:
                return earlier
            with services.content.from_memory() if unread else nullcontext():
                return checks.files_of(request, caller, kept)

        # Before it is written: no other request waits, and the candidate is not in the queue yet.
        forecast = _forecast(request, caller, services, kept)

        def change(
            uow: UnitOfWork, found: Accepted[shapes.SubmissionAnswer] | _Files
        ) -> Accepted[shapes.SubmissionAnswer]:
            if isinstance(found, Accepted):
                return found
            description, files = found
            warnings = (*request.warnings, *memory_warnings(request, model_bytes_of(files)))
            if received is not None:
                received.check(uow)
            refuse_taken_id(uow, request, caller)
            if description.cron is not None:
                schedule = _add_schedule(uow, description, files, caller, services, now)
                answer = _scheduled(services, schedule, warnings)
            else:
                wanted_id = _wanted_id(request, caller)
                made = _add_benchmarks(
                    uow, description, files, caller, services, now, wanted_id, retry_of
                )
                answer = _accepted(services, made, warnings, forecast)
            idempotency.remember(uow, answer)
            return Accepted(answer)

        services.check_room(caller.user)
        try:
            done = self._group.run(find, change, caller.user_id)
        except UnseenContent:
            _look_into(request, caller, services, kept)
            unread = False  # what has changed since is read after all
            done = self._group.run(find, change, caller.user_id)
        if not done.is_replayed:
            kind = request.description.benchmark_type.value
            self._metrics.submitted.labels(kind).inc(request.description.count)
            services.engine.wake()
        return done


def _add_schedule(
    uow: UnitOfWork,
    description: JobDescription,
    files: Sequence[BenchmarkFile],
    caller: Caller,
    services: Services,
    now: datetime,
) -> CronSchedule:
    schedule = add_schedule(uow, description, caller.user_id, files, now)
    allowed = quotas_of(caller.user, services.settings.quotas)
    quotas.check_schedules(uow, caller.user_id, allowed)
    quotas.check_stored(uow, caller.user_id, allowed)
    return schedule


def _add_benchmarks(
    uow: UnitOfWork,
    description: JobDescription,
    files: Sequence[BenchmarkFile],
    caller: Caller,
    services: Services,
    now: datetime,
    wanted_id: str | None,
    retry_of: str | None,
) -> list[Benchmark]:
    """Add a benchmark or, with a count above 1, a gang, which is a campaign."""
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
    allowed = quotas_of(caller.user, services.settings.quotas)
    quotas.check_queue(uow, caller.user, allowed, services.max_pending_for(caller.user))
    if description.start_time is not None:
        quotas.check_bookings(uow, caller.user_id, allowed, now)
    return made


def _scheduled(
    services: Services, schedule: CronSchedule, warnings: Sequence[str]
) -> shapes.SubmissionAnswer:
    """Return what the submission of a schedule answers."""
    return shapes.SubmissionAnswer(
        benchmark_id=None,
        schedule_id=schedule.schedule_id,
        status="scheduled",
        forecast=None,
        next_fire=schedule.next_fire,
        links={"self": views.url(services, "v1", "schedules", schedule.schedule_id)},
        warnings=list(warnings),
    )


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


def _forecast(
    request: CheckedRequest, caller: Caller, services: Services, kept: Sequence[BenchmarkFile]
) -> shapes.Forecast | None:
    """Predict when a submission is expected to start and end."""

    def find() -> tuple[JobDescription, Sequence[BenchmarkFile]]:
        with services.store.read() as uow:
            return FileFinder(uow, caller, services).files_of(request, kept)

    candidate = Candidate((request.description, tuple(kept)), find)
    return views.forecast(services, services.engine.forecast_submission(candidate, caller.user_id))


def _accepted(
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
