"""The first step: what a request states, as a job description and files that are not here yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.schemas.description import (
    JobDescriptionIn,
    parse_description,
    to_description,
)
from edgeyard.benchmark_api.settings import Settings
from edgeyard.benchmark_api.submission.run_times import user_time_s
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import JobDescription


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


def parse(
    tree: Mapping[str, object], caller: Caller, settings: Settings
) -> tuple[JobDescriptionIn, JobDescription]:
    """Return the fields of a request as they were sent, and with their defaults.

    Args:
        tree: The fields.
        caller: Whose it is.
        settings: Of the server.

    Raises:
        InvalidInput: Naming each field that is no field, or has no such value.
    """
    body = parse_description(tree)
    description = to_description(body, default_priority=min(5, caller.user.max_priority))
    description = replace(
        description,
        queue_timeout_s=description.queue_timeout_s or settings.default_queue_timeout_s,
        user_time_s=user_time_s(description, settings.default_user_time_s),
    )
    return body, description
