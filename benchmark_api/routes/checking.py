"""From a body to a checked job description with its files: all that can be known at submission."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.fetch import own_path
from edgeyard.benchmark_api.schemas.description import (
    JobDescriptionIn,
    name_from_url,
    parse_description,
    to_description,
)
from edgeyard.benchmark_api.schemas.fields import file_name_problem, is_url
from edgeyard.benchmark_api.services import Services
from edgeyard.devices.attributes import attributes_of, compare
from edgeyard.devices.model import AttributeValue, Board
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError, InvalidInput, NotFound
from edgeyard.scheduler.engine.intake import next_fire
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole, JobDescription
from edgeyard.scheduler.model.records import StoredFile, UserFile
from edgeyard.scheduler.ports import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a body asks for, checked but for its files.

    Attributes:
        names_model: The user named the model; else its name comes from where it is.
    """

    description: JobDescription
    benchmark_id: str | None
    names_model: bool
    warnings: tuple[str, ...]


def check(
    tree: Mapping[str, object],
    caller: Caller,
    services: Services,
    now: datetime,
    prefix: tuple[str, ...] = (),
) -> Asked:
    """Everything about a job description that needs no store.

    Raises:
        InvalidInput: Naming each field that is wrong, why, and what would be accepted.
    """
    body = parse_description(tree, prefix)
    bound = caller.user.max_priority
    description = to_description(body, default_priority=min(5, bound))
    description = replace(
        description,
        queue_timeout_s=description.queue_timeout_s or services.settings.default_queue_timeout_s,
    )
    found = [
        *_lab_problems(description, services.usable_boards()),
        *_account_problems(description, caller),
        *_time_problems(description, now),
        *_url_problems(description, services),
    ]
    if found:
        at = "".join(f"/{part}" for part in prefix)
        raise InvalidInput([replace(each, pointer=at + each.pointer) for each in found])
    return Asked(
        description=description,
        benchmark_id=body.benchmark_id,
        names_model=body.model is not None and not is_url(body.model),
        warnings=_warnings(body, description, caller),
    )


@dataclass
class FileFinder:
    """Finds the files of one user's descriptions; each name is looked up once.

    Lives within one unit of work.
    """

    uow: UnitOfWork
    caller: Caller
    services: Services
    _known: dict[str, UserFile | StoredFile | None] = field(default_factory=dict)

    def files_of(
        self, asked: Asked, kept: Sequence[BenchmarkFile] = ()
    ) -> tuple[JobDescription, tuple[BenchmarkFile, ...]]:
        """The files that a description needs, and the description with its model's final name.

        Args:
            kept: Files of the roles that are taken over from another benchmark as they are.

        Raises:
            InvalidInput: A file is not there, empty, too large, or two have one name.
        """
        roles = {file.role for file in kept}
        description = asked.description
        files = list(kept)
        if FileRole.MODEL not in roles:
            name = description.model if asked.names_model else None
            files.append(
                self._file(FileRole.MODEL, 0, name, description.model_url, "/model", "/model_url")
            )
        if FileRole.DATASET not in roles:
            files += self._datasets(description)
        config = description.odt_config
        if FileRole.ODT_CONFIG not in roles and isinstance(config, str):
            config_url = config if is_url(config) else None
            config_name = None if config_url else config
            files.append(
                self._file(
                    FileRole.ODT_CONFIG, 0, config_name, config_url, "/odt_config", "/odt_config"
                )
            )
        _refuse_clashes(files)
        model = next(file.name for file in files if file.role is FileRole.MODEL)
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
            hint = "a file that you uploaded (POST /v1/files), or a URL"
            shown = f"you have no file {name!r}" if own is None else "names no file of yours here"
            raise InvalidInput.at(pointer, shown, hint)
        self._refuse_size(role, stored.size_bytes, pointer)
        given = stored.name if isinstance(stored, UserFile) else name_from_url(own or "", "file")
        return BenchmarkFile(
            role=role,
            position=position,
            name=name or given,
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
        )

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

    def _refuse_size(self, role: FileRole, size_bytes: int, pointer: str) -> None:
        settings = self.services.settings
        limit = (
            settings.model_limit_bytes if role is FileRole.MODEL else settings.dataset_limit_bytes
        )
        if size_bytes == 0:
            raise InvalidInput.at(pointer, "the file is empty", f"a {role.value} with content")
        if size_bytes > limit:
            raise InvalidInput.at(
                pointer,
                f"the file has {size_text(size_bytes)}",
                f"at most {size_text(limit)} as a {role.value}",
            )


def _refuse_clashes(files: Sequence[BenchmarkFile]) -> None:
    """All files of a task lie in one folder."""
    seen: set[str] = set()
    for file in files:
        pointer = f"/{file.role.value}"
        if problem := file_name_problem(file.name):
            raise InvalidInput.at(pointer, f"the file's name {problem}", "a plain file name")
        if file.name in seen:
            raise InvalidInput.at(
                pointer, f"two files are named {file.name!r}", "a name of its own for each file"
            )
        seen.add(file.name)


def _lab_problems(asked: JobDescription, boards: Sequence[Board]) -> list[FieldError]:
    """What no expected board could ever satisfy."""
    families = sorted({board.family for board in boards})
    if asked.family not in families:
        where = "/target" if asked.target is not None else "/target_uid"
        return [FieldError(where, "no such family is known", _choice(asked.family, families))]
    fitting = [board for board in boards if board.family == asked.family]
    who = f"board of {asked.family}"
    if asked.target_uid is not None:
        uids = [board.target_uid for board in fitting]
        if asked.target_uid not in uids:
            return [FieldError("/target_uid", "no such board", _choice(asked.target_uid, uids))]
        fitting = [board for board in fitting if board.target_uid == asked.target_uid]
        who = asked.target_uid
    offered = {engine.name for board in fitting for engine in board.engines}
    if asked.runtime not in offered:
        anywhere = {engine.name for board in boards for engine in board.engines}
        reason = f"no {who} offers it" if asked.runtime in anywhere else "no such engine is known"
        reason = reason.replace(f"no {asked.target_uid}", f"{asked.target_uid} does not")
        return [FieldError("/runtime", reason, _choice(asked.runtime, sorted(offered)))]
    kinds = {
        kind
        for board in fitting
        for engine in board.engines
        if engine.name == asked.runtime
        for kind in engine.supported_types
    }
    found = []
    if asked.benchmark_type.value not in kinds:
        found.append(
            FieldError(
                "/benchmark_type",
                f"{asked.runtime} on {asked.family} does not support it",
                "one of " + ", ".join(sorted(kinds)) if kinds else "nothing",
            )
        )
    for name, wanted, most in (
        ("ram", asked.ram, max(board.ram_bytes for board in fitting)),
        ("storage", asked.storage, max(board.storage_bytes for board in fitting)),
    ):
        if wanted > most:
            found.append(
                FieldError(
                    f"/{name}",
                    f"{size_text(wanted)} is more than any known {who} has",
                    f"at most {size_text(most)} ({most} bytes)",
                )
            )
    return [*found, *_constraint_problems(asked, fitting, who)]


_STATIC = ("memory.ram", "memory.storage", "family", "engines", "target_uid")
"""Attributes that the inventory tells for good; hosts publish the others as they run."""


def _constraint_problems(
    asked: JobDescription, fitting: Sequence[Board], who: str
) -> list[FieldError]:
    """Constraints on static attributes that none of the fitting boards meets."""
    found = []
    published = [attributes_of(board) for board in fitting]
    for number, each in enumerate(asked.constraints):
        if each.attribute not in _STATIC:
            continue
        values = [attributes[each.attribute] for attributes in published]
        if any(compare(value, each.operator, each.value) for value in values):
            continue
        found.append(
            FieldError(
                f"/constraints/{number}",
                f"{each.attribute} {each.operator} {each.value[:100]}".rstrip()
                + f" holds for no known {who}",
                f"what holds for {each.attribute} of " + _listed(values),
            )
        )
    return found


def _listed(values: Collection[AttributeValue]) -> str:
    """Attributes' values, each once; memory is in bytes, as constraints compare it."""
    numbers = sorted({value for value in values if isinstance(value, int)})
    if numbers:
        return " or ".join(f"{value} (bytes: {size_text(value)})" for value in numbers)
    return " or ".join(sorted({repr(value) for value in values}))


def _account_problems(asked: JobDescription, caller: Caller) -> list[FieldError]:
    user = caller.user
    found = []
    if asked.user_priority > user.max_priority:
        found.append(
            FieldError(
                "/user_priority", "is above your account's bound", f"1 to {user.max_priority}"
            )
        )
    budget = asked.user_budget
    if budget is not None and user.max_budget is not None and budget > user.max_budget:
        found.append(
            FieldError(
                "/user_budget", "is above your account's bound", f"at most {user.max_budget:g}"
            )
        )
    return found


def _time_problems(asked: JobDescription, now: datetime) -> list[FieldError]:
    found = [
        FieldError(f"/{name}", "is in the past", f"a time after {now:%Y-%m-%dT%H:%M:%SZ}")
        for name, value in (("deadline", asked.deadline), ("start_time", asked.start_time))
        if value is not None and value <= now
    ]
    if asked.cron is not None:
        try:
            next_fire(asked.cron, now)
        except InvalidInput as error:
            found += error.errors
        if asked.deadline is not None or asked.start_time is not None:
            found.append(
                FieldError("/cron", "is given beside a deadline or start_time", "one of them")
            )
    return found


def _url_problems(asked: JobDescription, services: Services) -> list[FieldError]:
    """What can be said of URLs without asking a name server."""
    urls = [("/model_url", asked.model_url)]
    urls += [(f"/dataset_urls/{index}", each) for index, each in enumerate(asked.dataset_urls)]
    if isinstance(asked.odt_config, str) and is_url(asked.odt_config):
        urls.append(("/odt_config", asked.odt_config))
    found: list[FieldError] = []
    for pointer, each in urls:
        if each is not None and own_path(each, services.public_url) is None:
            try:
                services.rules.check(each, pointer)
            except InvalidInput as error:
                found += error.errors
    return found


def _warnings(
    body: JobDescriptionIn, description: JobDescription, caller: Caller
) -> tuple[str, ...]:
    found = []
    if body.user_id is not None and body.user_id != caller.user_id:
        found.append("user_id is ignored: the token says who you are")
    if body.submit_time is not None:
        found.append("submit_time is ignored: the server's clock says it")
    if description.benchmark_type.value == "TYPE1" and (
        description.dataset is not None or description.dataset_urls
    ):
        found.append("TYPE1 runs on random data: the dataset is not used")
    return tuple(found)


def _choice(word: str, known: Collection[str]) -> str:
    listed = "one of " + ", ".join(known) if known else "nothing"
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"{listed}; did you mean {close[0]}?" if close else listed
