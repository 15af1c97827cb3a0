"""In place of the first step: an earlier benchmark with changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.own_urls import with_own_urls
from edgeyard.benchmark_api.schemas.description import LOAD_FIELDS, unused_fields
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.check import CheckedRequest, check
from edgeyard.benchmark_api.submission.offer import Offer
from edgeyard.errors import Conflict, InvalidInput
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkFile,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.model.checks import CONFIRMING_TAGS
from edgeyard.scheduler.model.users import User
from edgeyard.scheduler.model.wire import description_to_json
from edgeyard.scheduler.ports import FileStore

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


def repeated(
    before: Benchmark,
    changes: Mapping[str, object],
    caller: Caller,
    services: Services,
    offer: Offer,
    now: datetime,
    *,
    retry: bool,
) -> tuple[CheckedRequest, list[BenchmarkFile]]:
    """Return an earlier benchmark with changes, checked, and the files that it keeps.

    Args:
        before: The earlier benchmark, which the caller may see.
        changes: The fields that differ.
        caller: Whose the new one is.
        services: Of the server.
        offer: Of the boards that may be used.
        now: The time of submission.
        retry: It is the same once more; otherwise it is a clone.

    Raises:
        Conflict: It is a retry, and the benchmark has not ended or a file of it was deleted.
        InvalidInput: As `check`.
    """
    benchmark_id = before.benchmark_id
    if retry and before.status not in TERMINAL:
        raise Conflict(f"{benchmark_id} is {before.status.value}: only ended ones can be retried")
    tree, warnings = merged(before, changes, caller.user, services, now)
    request = check(tree, caller, services, offer, now)
    kept = [
        _still_there(services.files, file, of_retry=benchmark_id if retry else None)
        for file in before.files
        if not _touches(file.role, changes) and _reads(request.description, file.role)
    ]
    return replace(request, warnings=(*request.warnings, *warnings)), kept


def merged(
    before: Benchmark,
    changes: Mapping[str, object],
    user: User,
    services: Services,
    now: datetime,
) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the old description with changes, without what has lost its meaning, and warnings."""
    tags = tuple(each for each in before.description.tags if each not in CONFIRMING_TAGS)
    stated = with_own_urls(before, services.public_url)
    tree = description_to_json(replace(stated, tags=tags))
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


def _still_there(files: FileStore, file: BenchmarkFile, *, of_retry: str | None) -> BenchmarkFile:
    """Return the file of an earlier benchmark, or its URL where it was pruned since.

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


def _reads(description: JobDescription, role: FileRole) -> bool:
    """Return whether a description has a file of this role; another type than before may not."""
    if role is FileRole.DATASET:
        return description.dataset is not None or bool(description.dataset_urls)
    return role is not FileRole.ODT_CONFIG or description.odt_config is not None


def _touches(role: FileRole, changes: Mapping[str, object]) -> bool:
    return any(name in changes for name in _FIELDS_OF_ROLE[role])
