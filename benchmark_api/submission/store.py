"""The last step: what a submission needs of the store, and its place in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.schemas.fields import is_url
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.account import AccountLimits
from edgeyard.benchmark_api.submission.check import CheckedRequest
from edgeyard.benchmark_api.submission.files import FileFinder, model_bytes_of
from edgeyard.benchmark_api.submission.parse import LocalFile
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import BenchmarkFile, JobDescription
from edgeyard.scheduler.ports import UnitOfWork


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
