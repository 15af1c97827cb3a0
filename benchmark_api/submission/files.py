"""The files of a submission: which they are, and whether they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.content import size_problem
from edgeyard.benchmark_api.fetch import own_path
from edgeyard.benchmark_api.schemas.description import name_from_url
from edgeyard.benchmark_api.schemas.fields import file_name_problem, is_url
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.settings import Settings
from edgeyard.benchmark_api.submission.check import CheckedRequest
from edgeyard.benchmark_api.submission.parse import LocalFile
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError, InvalidInput, NotFound
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole, JobDescription, model_of
from edgeyard.scheduler.model.files import StoredFile, UserFile
from edgeyard.scheduler.ports import UnitOfWork

UPLOADED_OR_URL = "the name of a file that you uploaded (`edgeyard files list`), or a URL"


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
        """Return a description with its model's final name, and the files that it needs.

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
        """Return what a URL of ours leads to; a download's name is its own key, as over HTTP."""
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


def model_bytes_of(files: Sequence[BenchmarkFile]) -> int | None:
    """Return the size of the model among these files; None: not known yet."""
    model = model_of(files)
    return None if model is None else model.size_bytes


def _refuse_clashes(files: Sequence[BenchmarkFile]) -> None:
    """Refuse files with one name: all files of a task lie in one folder."""
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
