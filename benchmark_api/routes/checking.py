"""From a body to a checked job description with its files: all that can be known at submission."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Annotated

from fastapi import Query

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.content import size_problem
from edgeyard.benchmark_api.fetch import own_path
from edgeyard.benchmark_api.routes.offers import Offer
from edgeyard.benchmark_api.schemas import parameters
from edgeyard.benchmark_api.schemas.description import (
    JobDescriptionIn,
    name_from_url,
    parse_description,
    to_description,
)
from edgeyard.benchmark_api.schemas.fields import file_name_problem, is_url
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.settings import Settings
from edgeyard.devices.runner.arrivals import trial_s
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError, InvalidInput, NotFound
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.engine.crontab import next_fire
from edgeyard.scheduler.model.benchmark import (
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
    model_of,
)
from edgeyard.scheduler.model.files import StoredFile, UserFile
from edgeyard.scheduler.model.run_bounds import (
    MIN_INFERENCE_S,
    MIN_RUN_S,
    load_s,
    min_run_s,
    run_bound_s,
)
from edgeyard.scheduler.model.tariff import parse_tariff
from edgeyard.scheduler.ports import UnitOfWork

UPLOADED_OR_URL = "the name of a file that you uploaded (`edgeyard files list`), or a URL"


LocalFiles = Annotated[
    list[str] | None,
    Query(
        description="A file that is not uploaded, as SIZE:SHA256:NAME; the SHA-256 may be empty. "
        "The description names it. With dry_run only; may be repeated."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A file that a client has and has not uploaded; ``sha256`` is "" where it is not known."""

    name: str
    size_bytes: int
    sha256: str


_LOCAL_FILE = re.compile("([0-9]{1,18}):((?:[0-9a-f]{64})?):(.+)", re.DOTALL)


def read_local_files(given: Sequence[str] | None, *, dry_run: bool) -> dict[str, LocalFile]:
    """Return the files that a client states, by their names; of equal names the largest.

    Raises:
        InvalidInput: One is malformed, or it is no dry run.
    """
    if given and not dry_run:
        raise InvalidInput.at("/local_file", "has an effect with dry_run only", "an upload")
    found: dict[str, LocalFile] = {}
    for text in given or ():
        parts = _LOCAL_FILE.fullmatch(text)
        if parts is None:
            raise InvalidInput.at("/local_file", "is malformed", "SIZE:SHA256:NAME")
        file = LocalFile(size_bytes=int(parts[1]), sha256=parts[2], name=parts[3])
        known = found.get(file.name)
        if known is None or known.size_bytes < file.size_bytes:
            found[file.name] = file
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """What a body asks for, checked but for its files.

    Attributes:
        names_model: The user named the model; else its name comes from where it is.
        ram_bytes: The least and the most memory of the boards that may run it; None: not known.
    """

    description: JobDescription
    benchmark_id: str | None
    names_model: bool
    warnings: tuple[str, ...]
    ram_bytes: tuple[int, int] | None = None

    @property
    def max_ram_bytes(self) -> int | None:
        """The most memory of a board that may run it; None: not known."""
        return None if self.ram_bytes is None else self.ram_bytes[1]


def check(
    tree: Mapping[str, object],
    caller: Caller,
    services: Services,
    offer: Offer,
    now: datetime,
    prefix: tuple[str, ...] = (),
) -> CheckedRequest:
    """Everything about a job description that needs no store.

    Args:
        offer: Of the boards that may be used.
        prefix: Of the pointers to what is wrong.

    Raises:
        InvalidInput: Naming each field that is wrong, why, and what would be accepted.
    """
    body = parse_description(tree, prefix)
    bound = caller.user.max_priority
    description = to_description(body, default_priority=min(5, bound))
    description = replace(
        description,
        queue_timeout_s=description.queue_timeout_s or services.settings.default_queue_timeout_s,
        user_time_s=_user_time_s(description, services.settings.default_user_time_s),
    )
    found = [
        *offer.problems(description),
        *_parameter_problems(description),
        *_account_problems(description, caller),
        *_time_problems(description, now),
        *_schedule_problems(body, services),
        *_run_problems(description, now, services.settings.default_user_time_s),
        *_url_problems(description, services),
    ]
    if found:
        at = "".join(f"/{part}" for part in prefix)
        raise InvalidInput([replace(each, pointer=at + each.pointer) for each in found])
    return CheckedRequest(
        description=description,
        benchmark_id=body.benchmark_id,
        names_model=body.model is not None and not is_url(body.model),
        warnings=(*_warnings(body, caller), *offer.warnings(description)),
        ram_bytes=offer.ram_bytes(description),
    )


_ASK = "ask an operator"


class AccountLimits:
    """What one user's account, and group, can bear at most, whatever is running now."""

    def __init__(self, uow: UnitOfWork, caller: Caller, services: Services) -> None:
        group = quotas.group_of(uow, caller.user)
        limits = [("your account", caller.user.max_running)]
        credits = [("your account", uow.credits.balance(caller.user_id).credits)]
        if group is not None:
            limits.append((f"your group {group.group_id}", group.max_running))
            credits.append((f"your group {group.group_id}", group.credits))
        self._max_running = [(whose, boards) for whose, boards in limits if boards is not None]
        self._credits = [(whose, left) for whose, left in credits if left is not None]
        self._uow = uow
        self._max_run_s = services.settings.default_user_time_s
        self._factor = min(parse_tariff(services.settings.tariff).factors, default=1.0)

    @cached_property
    def _rates(self) -> Mapping[str, float]:
        return self._uow.credits.rates()

    def check(self, description: JobDescription) -> None:
        """Refuse what could never be placed.

        Raises:
            InvalidInput: The account has too few credits for it even when nothing else runs, or may
                not run anything; or the benchmark's own budget pays for no run.
        """
        for whose, boards in self._max_running:
            if boards == 0:
                raise InvalidInput.at("", f"{whose} may have no benchmarks on boards", _ASK)
            if description.count > boards:
                raise InvalidInput.at(
                    "/count",
                    f"is {description.count}, more than {whose} may have on boards at once",
                    f"at most {boards}",
                )
        if not self._credits and description.user_budget is None:
            return
        rate = self._rates.get(description.family, 1.0) * self._factor
        if rate <= 0:
            return
        min_s = _min_run_s(description)
        if description.user_budget is not None and description.user_budget / rate < min_s:
            raise InvalidInput.at(
                "/user_budget",
                f"{description.user_budget:g} credits are too few for any run: the shortest takes "
                f"{min_s:g} s at {rate:g} credits a second",
                f"at least {rate * min_s:g}",
            )
        bound_s = run_bound_s(
            description.user_time_s, description.user_budget, rate, self._max_run_s
        )
        count = description.count
        for whose, left in self._credits:
            if round(count * rate * bound_s, 6) > left:
                runs = "a run" if count == 1 else f"{count} runs"
                raise InvalidInput.at(
                    "/user_time",
                    f"{runs} of {bound_s:g} s may cost {count * rate * bound_s:g} credits, and "
                    f"{whose} has {left:g}",
                    f"at most {left / rate / count:g} s, or more credits",
                )


@dataclass
class FileFinder:
    """Finds the files of one user's descriptions; each name is looked up once.

    Lives within one unit of work.
    """

    uow: UnitOfWork
    caller: Caller
    services: Services
    local: Mapping[str, LocalFile] = field(default_factory=dict)
    _known: dict[str, UserFile | StoredFile | None] = field(default_factory=dict)

    def files_of(
        self, request: CheckedRequest, kept: Sequence[BenchmarkFile] = ()
    ) -> tuple[JobDescription, tuple[BenchmarkFile, ...]]:
        """The files that a description needs, and the description with its model's final name.

        Args:
            kept: Files of the roles that are taken over from another benchmark as they are.

        Raises:
            InvalidInput: A file is not there, empty, too large, or two have one name.
        """
        fields = {file.role.field for file in kept}
        description = request.description
        role = description.model_role
        files = [replace(file, role=role) if file.role.is_model else file for file in kept]
        if "model" not in fields:
            name = description.model if request.names_model else None
            url = description.model_url
            files.append(self._file(role, 0, name, url, "/model", "/model_url"))
        if "dataset" not in fields:
            files += self._datasets(description)
        config = description.odt_config
        if "odt_config" not in fields and isinstance(config, str):
            config_url = config if is_url(config) else None
            config_name = None if config_url else config
            files.append(
                self._file(
                    FileRole.ODT_CONFIG, 0, config_name, config_url, "/odt_config", "/odt_config"
                )
            )
        _refuse_clashes(files)
        model = next(file.name for file in files if file.role.is_model)
        return replace(description, model=model), tuple(files)

    def _datasets(self, description: JobDescription) -> list[BenchmarkFile]:
        name, urls = description.dataset, description.dataset_urls
        if not urls:
            if name is None:
                return []
            return [self._file(FileRole.DATASET, 0, name, None, "/dataset", "/dataset")]
        return [
            self._file(
                FileRole.DATASET,
                position,
                name if position == 0 else None,
                each,
                "/dataset",
                f"/dataset_urls/{position}",
            )
            for position, each in enumerate(urls)
        ]

    def _file(
        self,
        role: FileRole,
        position: int,
        name: str | None,
        url: str | None,
        name_pointer: str,
        url_pointer: str,
    ) -> BenchmarkFile:
        pointer = name_pointer if url is None else url_pointer
        if url is None and (file := self.local.get(name or "")) is not None:
            return self._local(role, position, file, pointer)
        own = None if url is None else own_path(url, self.services.public_url)
        if url is not None and own is None:
            return BenchmarkFile(
                role=role,
                position=position,
                name=name or name_from_url(url, role.value),
                url=url,
            )
        stored = self._stored(name or "") if own is None else self._at(own)
        if stored is None:
            shown = f"you have no file {name!r}" if own is None else "names no file of yours here"
            raise InvalidInput.at(pointer, shown, UPLOADED_OR_URL)
        refuse_size(self.services.settings, role, stored.size_bytes, pointer)
        given = stored.name if isinstance(stored, UserFile) else name_from_url(own or "", "file")
        return BenchmarkFile(
            role=role,
            position=position,
            name=name or given,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
        )

    def _local(self, role: FileRole, position: int, file: LocalFile, pointer: str) -> BenchmarkFile:
        """Return a file that is not uploaded; its hash counts if the user has this content."""
        refuse_size(self.services.settings, role, file.size_bytes, pointer)
        known = None
        if file.sha256 and self.services.files.contains(file.sha256):
            with suppress(NotFound):
                known = self.uow.files.user_content(self.caller.user_id, file.sha256)
        return BenchmarkFile(
            role=role,
            position=position,
            name=file.name,
            sha256=None if known is None else known.sha256,
            size_bytes=file.size_bytes if known is None else known.size_bytes,
        )

    def name_at(self, url: str) -> str:
        """Return the name of the file that a URL leads to."""
        own = own_path(url, self.services.public_url)
        stored = None if own is None else self._at(own)
        return stored.name if isinstance(stored, UserFile) else name_from_url(url, url)

    def _stored(self, name: str) -> UserFile | StoredFile | None:
        if name not in self._known:
            try:
                self._known[name] = self.uow.files.user_file(self.caller.user_id, name)
            except NotFound:
                self._known[name] = None
        return self._known[name]

    def _at(self, path: str) -> UserFile | StoredFile | None:
        """What a URL of ours leads to; a download's name is its own key, as over HTTP."""
        parts = path.strip("/").split("/")
        try:
            if parts[:2] == ["v1", "files"] and len(parts) in (3, 4):
                found = self.uow.files.user_file_by_id(parts[2])
                return found if self.caller.may_see(found.user_id) else None
            if parts[0] == "download" and len(parts) == 2:
                try:
                    grant = self.uow.files.grant(parts[1])
                except NotFound:
                    return self._stored(parts[1])
                if grant.content is None:
                    return StoredFile(sha256=grant.sha256, size_bytes=grant.size_bytes)
        except NotFound:
            pass
        return None


def refuse_size(settings: Settings, role: FileRole, size_bytes: int, pointer: str) -> None:
    """Refuse a file that is empty or over the limit of its role.

    Raises:
        InvalidInput: At ``pointer``, with the limit.
    """
    if problem := _limit_problem(settings, role, size_bytes, pointer):
        raise InvalidInput([problem])


def refuse_sizes(
    settings: Settings,
    request: CheckedRequest,
    *,
    model_bytes: int | None = None,
    dataset_bytes: int | None = None,
) -> None:
    """Refuse files that are empty, over the limit of their role, or larger than a board's memory.

    Args:
        model_bytes: Size of the model that would be uploaded; None: there is none.
        dataset_bytes: That of the largest dataset.

    Raises:
        InvalidInput: With each of these that holds.
    """
    found: list[FieldError | None] = []
    if model_bytes is not None:
        role = request.description.model_role
        found += [
            _limit_problem(settings, role, model_bytes, "/model"),
            size_problem(request.description, model_bytes, request.max_ram_bytes),
        ]
    if dataset_bytes is not None:
        found.append(_limit_problem(settings, FileRole.DATASET, dataset_bytes, "/dataset"))
    if problems := [each for each in found if each is not None]:
        raise InvalidInput(problems)


def _limit_problem(
    settings: Settings, role: FileRole, size_bytes: int, pointer: str
) -> FieldError | None:
    limit = settings.file_limits[role]
    what = role.value.replace("_", " ")
    if size_bytes == 0:
        return FieldError(pointer, "the file is empty", f"a {what} with content")
    if size_bytes > limit:
        reason = f"the file has {size_text(size_bytes)}, more than the server's limit"
        return FieldError(pointer, reason, f"at most {size_text(limit)} as a {what}")
    return None


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
        """As `FileFinder.files_of`, of what the account can bear and a board can run.

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


def memory_warnings(request: CheckedRequest, model_bytes: int | None) -> tuple[str, ...]:
    """Warn of a model that takes more than half of the memory of boards that may run it."""
    if request.ram_bytes is None or not model_bytes:
        return ()
    min_bytes, max_bytes = request.ram_bytes
    ram = min_bytes if model_bytes <= min_bytes else max_bytes
    if model_bytes * 2 <= ram:
        return ()
    uid = request.description.target_uid
    who = f"{uid} has" if uid else f"boards of {request.description.family} that may run it have"
    return (
        f"the model has {size_text(model_bytes)}, and {who} {size_text(ram)} of memory: "
        "loading may take twice the size of the model",
    )


def model_bytes_of(files: Sequence[BenchmarkFile]) -> int | None:
    """Return the size of the model among these files; None: not known yet."""
    model = model_of(files)
    return None if model is None else model.size_bytes


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


def _refuse_clashes(files: Sequence[BenchmarkFile]) -> None:
    """All files of a task lie in one folder."""
    seen: set[str] = set()
    for file in files:
        pointer = f"/{file.role.field}"
        if problem := file_name_problem(file.name):
            raise InvalidInput.at(pointer, f"the file's name {problem}", "a plain file name")
        if file.name in seen:
            raise InvalidInput.at(
                pointer, f"two files are named {file.name!r}", "a name of its own for each file"
            )
        seen.add(file.name)


def _parameter_problems(description: JobDescription) -> list[FieldError]:
    kind = description.benchmark_type
    if kind.is_declared:  # the offers of the boards know its parameters
        return []
    no_dataset: tuple[str, str] | None = (
        f"describes how a dataset is read, and {kind.value} reads none",
        "TYPE2, or no such parameter",
    )
    if kind is BenchmarkType.TYPE2 or (kind is BenchmarkType.TYPE1 and description.keep_outputs):
        no_dataset = None
    elif kind is BenchmarkType.TYPE3:
        no_dataset = (f"has no effect in {kind.value}", "odt_config describes the training")
    found = parameters.problems(
        description.runtime,
        description.parameters,
        no_dataset=no_dataset,
        without_dataset=("batch_size",) if kind is BenchmarkType.TYPE1 else (),
        generates=kind is BenchmarkType.GENAI,
        others=(parameters.RAW, parameters.METRIC, parameters.TRUTH),
    )
    if kind is BenchmarkType.TYPE1 and no_dataset is None:
        found += [
            FieldError(
                f"/parameters/{key}", "describes a dataset of TYPE2", "TYPE2, or no such parameter"
            )
            for key in ("raw", "preprocessing", "metric", "truth")
            if key in description.parameters
        ]
    return found


def _account_problems(description: JobDescription, caller: Caller) -> list[FieldError]:
    user = caller.user
    found = []
    if description.user_priority > user.max_priority:
        found.append(
            FieldError(
                "/user_priority", "is above your account's limit", f"1 to {user.max_priority}"
            )
        )
    budget = description.user_budget
    if budget is not None and user.max_budget is not None and budget > user.max_budget:
        found.append(
            FieldError(
                "/user_budget", "is above your account's limit", f"at most {user.max_budget:g}"
            )
        )
    return found


def _time_problems(description: JobDescription, now: datetime) -> list[FieldError]:
    found = [
        FieldError(f"/{name}", "is in the past", f"a time after {now:%Y-%m-%dT%H:%M:%SZ}")
        for name, value in (
            ("deadline", description.deadline),
            ("start_time", description.start_time),
        )
        if value is not None and value <= now
    ]
    if description.cron is not None:
        try:
            next_fire(description.cron, now)
        except InvalidInput as error:
            found += error.errors
        if description.deadline is not None or description.start_time is not None:
            found.append(
                FieldError(
                    "/cron", "can't be combined with a deadline or start_time", "one of them"
                )
            )
    return found


def _schedule_problems(body: JobDescriptionIn, services: Services) -> list[FieldError]:
    """What a schedule can't have here whose runs Nomad starts by itself."""
    if body.cron_by == "edgeyard":
        return []
    kind = services.settings.cluster.kind
    if kind != "nomad":
        reason = f"leaves the starts to Nomad, and this server's cluster is {kind}"
        return [FieldError("/cron_by", reason, "edgeyard, or no cron_by")]
    addresses = {
        "/model": body.model,
        "/model_url": body.model_url,
        "/dataset": body.dataset,
        **{f"/dataset_urls/{index}": each for index, each in enumerate(body.dataset_urls)},
        "/odt_config": body.odt_config,
    }
    return [
        FieldError(
            pointer,
            "is fetched anew for each firing, which only Edgeyard does",
            "an uploaded file, or cron_by edgeyard",
        )
        for pointer, value in addresses.items()
        if isinstance(value, str)
        and is_url(value)
        and own_path(value, services.public_url) is None  # an uploaded file has a URL here, too
    ]


def _user_time_s(description: JobDescription, default_s: float) -> float | None:
    """Return the bound of a run: the stated one, or that of a load longer than the default.

    Whoever states a soak of 30 min states its time: the default is then for what it takes beyond.
    """
    if description.user_time_s is not None or _min_run_s(description) <= default_s:
        return description.user_time_s
    load_time_s = load_s(description)
    return load_time_s + default_s if load_time_s else None


def _run_problems(
    description: JobDescription, now: datetime, default_user_time_s: float
) -> list[FieldError]:
    """Bounds that no run can keep, whatever the board: these are facts, no predictions."""
    min_s = _min_run_s(description)
    found = []
    bound_s = default_user_time_s if description.user_time_s is None else description.user_time_s
    if bound_s < min_s:
        found.append(
            FieldError(
                _too_long(description),
                f"no board runs {_work(description)} within {bound_s:g} s",
                f"a user_time of at least {min_s:g} s" + _fewer(description, bound_s),
            )
        )
    begin = max(now, description.start_time or now)
    if description.deadline is not None and now < description.deadline < begin + timedelta(
        seconds=min_s
    ):
        soonest = begin + timedelta(seconds=math.ceil(min_s))
        found.append(
            FieldError(
                "/deadline",
                f"no board can end {_work(description)} by then"
                + ("" if description.start_time is None else " if it starts at its start_time"),
                f"a time after {soonest:%Y-%m-%dT%H:%M:%SZ}",
            )
        )
    return found


def _min_run_s(description: JobDescription) -> float:
    return min_run_s(
        description.benchmark_type,
        description.nb_inference,
        precision=description.precision,
        soak_s=description.soak_s,
        levels=len(description.concurrency),
        load_s=_trial_s(description),
    )


def _trial_s(description: JobDescription) -> float:
    """Return how long a trial of a load lasts at least, seconds; 0 without one."""
    rules = description.load_rules
    return 0.0 if rules is None else trial_s(rules, description.nb_inference)


def _too_long(description: JobDescription) -> str:
    """Return the pointer of what can be changed so that a run ends in its time."""
    if description.user_time_s is not None:
        return "/user_time"
    if description.concurrency:
        return "/concurrency"
    if description.load is not None:
        return "/load_duration"
    return "/nb_inference" if description.soak_s is None else "/soak"


def _work(description: JobDescription) -> str:
    """Return what the shortest run consists of, in words."""
    if description.soak_s is not None:
        return f"a soak of {description.soak_s:g} s"
    if description.concurrency:
        return f"{len(description.concurrency)} numbers of callers, one after another,"
    if description.load is not None:
        return f"a trial of {_trial_s(description):g} s"
    if description.benchmark_type is BenchmarkType.TYPE1 and description.precision is None:
        return f"{description.nb_inference:,} timed inferences"
    return "anything"


def _fewer(description: JobDescription, bound_s: float) -> str:
    max_runs = int((bound_s - MIN_RUN_S) / MIN_INFERENCE_S)
    if (
        description.benchmark_type is not BenchmarkType.TYPE1
        or description.precision is not None
        or description.soak_s is not None
        or description.concurrency
        or description.load is not None
        or max_runs < 1
    ):
        return ""
    return f", or an nb_inference of at most {max_runs:,}"


def _url_problems(description: JobDescription, services: Services) -> list[FieldError]:
    """What can be said of URLs without asking a name server."""
    urls = [("/model_url", description.model_url)]
    urls += [
        (f"/dataset_urls/{index}", each) for index, each in enumerate(description.dataset_urls)
    ]
    if isinstance(description.odt_config, str) and is_url(description.odt_config):
        urls.append(("/odt_config", description.odt_config))
    found: list[FieldError] = []
    for pointer, each in urls:
        if each is not None and own_path(each, services.public_url) is None:
            try:
                services.rules.check(each, pointer)
            except InvalidInput as error:
                found += error.errors
    return found


def _warnings(body: JobDescriptionIn, caller: Caller) -> tuple[str, ...]:
    found = []
    if body.user_id is not None and body.user_id != caller.user_id:
        found.append("user_id is ignored: the token says who you are")
    if body.submit_time is not None:
        found.append("submit_time is ignored: the server's clock says it")
    return tuple(found)
