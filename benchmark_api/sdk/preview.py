"""Dry runs, for which only those local files are uploaded that the server has to see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from edgeyard.benchmark_api.schemas.answers import DryRun
from edgeyard.benchmark_api.sdk.local_checks import known_inputs, sizes_and_names
from edgeyard.benchmark_api.sdk.submission import (
    JobDescription,
    Upload,
    combinations,
    local_files,
    with_names,
    with_uploads,
)
from edgeyard.errors import InvalidInput

MAX_QUERY_CHARACTERS = 6000
"""Maximum length of names, sizes and hashes in a URL; proxies refuse longer ones. The files of a
description with more of them are uploaded."""

_BLOCK_BYTES = 2**20
_DATASETS = ("dataset", "dataset_urls")


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunInput:
    """A description for a dry run.

    Attributes:
        ready: What is sent.
        local: The local files that are not uploaded, of each field.
        hashes: Their SHA-256; "" of a folder.
    """

    ready: JobDescription
    local: Mapping[str, Sequence[Path | None]]
    hashes: Mapping[Path, str]

    @property
    def params(self) -> dict[str, object]:
        """Query parameters of the dry run."""
        return {"dry_run": "true", "local_file": _stated(self.hashes)}


def prepare(
    description: Mapping[str, object],
    base: Path,
    *,
    url: str,
    upload: Upload,
    hash_file: Callable[[Path], str],
    origin: Mapping[str, object] | None = None,
) -> DryRunInput:
    """Upload what the server has to compare with files that it has, and name all other files.

    Args:
        description: Was checked here; its files are paths, URLs or names.
        base: Folder that relative paths start from.
        url: Of the server.
        upload: Uploads a file.
        hash_file: Returns the SHA-256 of a file.
        origin: The description of which this one holds the changes; None: it is whole.
    """
    given = {name: value for name, value in description.items() if value is not None}
    local = local_files(given, base)
    here = {name for name, paths in local.items() if any(paths)}
    needed = _needed({**(origin or {}), **given}, local, url) & here
    paths = {path for name in here - needed for path in local[name] if path}
    hashes = {path: "" if path.is_dir() else hash_file(path) for path in sorted(paths)}
    if sum(map(len, _stated(hashes))) > MAX_QUERY_CHARACTERS:
        needed, hashes = here, {}
    sent = with_uploads({name: given[name] for name in needed}, base, upload)
    others = {name: value for name, value in given.items() if name not in needed}
    unsent = {name: found for name, found in local.items() if name in here - needed}
    return DryRunInput(ready={**with_names(others, base), **sent}, local=unsent, hashes=hashes)


def with_local_content(
    answers: Sequence[DryRun],
    whole: Mapping[str, object],
    prepared: DryRunInput,
    left_out: Collection[int] = (),
) -> list[DryRun]:
    """Return answers that also state what the files show that were not uploaded.

    Args:
        answers: Of the server, one for each combination that is not left out.
        whole: The description of which they are, with paths.
        prepared: What was sent.
        left_out: Positions of combinations.
    """
    found = []
    models = list(prepared.local.get("model", ()))
    every = combinations({**whole, **_paths(prepared)})
    kept = [one for position, one in enumerate(every) if position not in left_out]
    for answer, one in zip(answers, kept, strict=True):
        known: dict[str, Any] = {}
        model = one.get("model")
        if models and isinstance(model, Path):
            known["model_sha256"] = prepared.hashes.get(model) or None
            known["inputs"] = answer.workload.inputs or known_inputs(one)
        if dataset := next(iter(prepared.local.get("dataset", ())), None):
            known["dataset_sha256"] = [prepared.hashes[dataset]]
        found.append(replace(answer, workload=replace(answer.workload, **known)))
    return found


def sha256_of(path: Path, on_read: Callable[[int], object] = lambda done: None) -> str:
    """Return the SHA-256 of a file.

    Args:
        path: The file.
        on_read: Receives the number of bytes read so far.

    Raises:
        InvalidInput: It cannot be read.
    """
    digest = hashlib.sha256()
    done = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                done += len(block)
                on_read(done)
    except OSError as error:
        raise InvalidInput.at("/file", f"can't read {path}: {error.strerror}") from error
    return digest.hexdigest()


def _stated(hashes: Mapping[Path, str]) -> list[str]:
    """Return files as the server reads them from a query."""
    return [f"{size}:{hashes[path]}:{name}" for path, size, name in sizes_and_names(hashes)]


def _needed(
    description: Mapping[str, object], local: Mapping[str, Sequence[Path | None]], url: str
) -> set[str]:
    """Return the fields whose local files the server compares with what it has.

    Several datasets are named by their URLs, so that they are among them.
    """
    found: set[str] = {"dataset_urls"}
    if _is_there("model", description, local, url):
        found.add("dataset")
    alone = len(local["dataset_urls"]) == 1  # several are not compared with the model
    if alone or any(_is_there(name, description, local, url) for name in _DATASETS):
        found.add("model")
    return found


def _is_there(
    name: str,
    description: Mapping[str, object],
    local: Mapping[str, Sequence[Path | None]],
    url: str,
) -> bool:
    """Return whether the server has a file of this field."""
    value = description.get(name)
    if value is None:
        return False
    if not local[name]:
        return True  # it is a field of the origin
    items = value if isinstance(value, list) else [value]
    return any(
        path is None and not _is_elsewhere(item, url)
        for path, item in zip(local[name], items, strict=True)
    )


def _is_elsewhere(item: object, url: str) -> bool:
    """Return whether it is a URL of another server, which is not fetched for a dry run."""
    text = str(item)
    return text.lower().startswith(("http://", "https://")) and not text.startswith(url)


def _paths(prepared: DryRunInput) -> dict[str, object]:
    """Return what was sent, with paths for the models that were not uploaded."""
    ready = dict(prepared.ready)
    models = prepared.local.get("model")
    if not models:
        return {}
    given = ready["model"]
    items = given if isinstance(given, list) else [given]
    found = [path or item for path, item in zip(models, items, strict=True)]
    return {"model": found if isinstance(given, list) else found[0]}
