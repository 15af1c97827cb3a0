"""From what a user writes to what is sent: job files, local files, matrices."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from edgeyard.benchmark_api.schemas.matrix import PARAMETERS, axes_of, members_of
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.home import expanded

F = TypeVar("F", bound=Callable[..., Any])

JobDescription = dict[str, object]
"""Fields of a job description, as JSON values (and `Path` where a file is meant)."""


class Filters(TypedDict, total=False):
    """Which benchmarks a list holds; all have to be met; None sets none.

    ``campaign`` is the id of a campaign, or its name, as for `Client.campaign_id`.
    """

    status: str | Sequence[str] | None
    user_id: str | None
    target: str | None
    runtime: str | None
    benchmark_type: str | None
    campaign: str | None
    target_uid: str | None
    model: str | None
    verdict: str | None
    tag: str | None
    name: str | None
    schedule_id: str | None
    submitted_from: str | None
    submitted_before: str | None


OWN_INPUT_FIELDS = ("dataset", "dataset_urls", "input", "keep_outputs", "odt_config")
"""Fields that runs on own inputs set themselves."""

SCHEDULE_FIELDS = ("cron", "prohibit_overlap", "cron_by")
"""Fields of schedules, which a single run cannot have."""

CHECK_FIELDS = ("benchmark_id", "count", "cron", "start_time")
"""Fields that the many runs of a check cannot have."""


def refuse_fields(given: Mapping[str, object], refused: Sequence[str], reason: str) -> None:
    """Refuse fields that a call sets itself, or that have no meaning there.

    Args:
        given: The fields of the call, by name.
        refused: Names of the fields that are refused.
        reason: Why, for the error of each field.

    Raises:
        InvalidInput: Naming each of them.
    """
    found = [
        FieldError(f"/{name}", reason, f"no {name}")
        for name in refused
        if given.get(name) is not None
    ]
    if found:
        raise InvalidInput(found)


def explicit_fields(fields: type, *, without: Sequence[str] = ()) -> Callable[[F], F]:
    """Show the fields of a `TypedDict` as keyword arguments, so that shells can complete them.

    A keyword that is neither a field nor an argument of the function, but has a name like one of
    its arguments, is refused with this name; the server refuses other unknown fields.

    Args:
        without: Fields that the function does not take.
    """
    kinds = inspect.get_annotations(fields)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=f"{getattr(kind, '__forward_arg__', kind)} | None",
            )
            for name, kind in kinds.items()
            if name not in without
        ]
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        arguments = {one.name for one in own}

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in given.keys() - kinds.keys() - arguments:
                near = difflib.get_close_matches(name, [*arguments, *kinds], n=1)
                if near and near[0] in arguments:
                    reason = "no such argument or field"
                    raise InvalidInput.at(f"/{name}", reason, f"did you mean {near[0]}?")
            return function(*args, **given)

        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*own, *named]
        )
        return cast("F", call)

    return decorate


MATRIX_FIELDS = ("model", "target", "runtime")
"""Fields that may be lists: one benchmark is made for each combination."""

SWEEP = "sweep"
"""The field with lists of values of parameters, by parameter: a part of the matrix, too."""

MAX_JOB_FILE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """An uploaded file, as the server describes it."""

    file_id: str
    name: str
    sha256: str
    size_bytes: int
    url: str


Upload = Callable[[Path], UploadedFile]


def read_job_file(path: Path) -> JobDescription:
    """Read a job description from a YAML or JSON file; ``version: 1`` is optional.

    Raises:
        InvalidInput: It can't be read, is none, or is of another version.
    """
    from edgeyard.benchmark_api.schemas.body import read_document

    try:
        with path.open("rb") as file:
            data = file.read(MAX_JOB_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput.at("job file", f"can't read {path}: {error.strerror}") from error
    if len(data) > MAX_JOB_FILE_BYTES:
        raise InvalidInput.at("job file", f"{path} is too big for a job file", "at most 4 MiB")
    media = "application/json" if path.suffix.lower() == ".json" else "application/yaml"
    try:
        job = read_document(data, media)
    except InvalidInput as error:
        raise InvalidInput(
            [
                FieldError(
                    one.pointer or "job file",
                    f"{path}: {one.reason}"
                    if one.pointer
                    else f"{path} {one.reason.removeprefix('the body ')}",
                    one.accepted,
                )
                for one in error.errors
            ]
        ) from None
    version = job.pop("version", 1)
    if version != 1 or isinstance(version, bool):
        raise InvalidInput.at("/version", f"{path} is of version {version!r}", "1")
    return job


def is_matrix(description: Mapping[str, object]) -> bool:
    """Return whether a description has a list in a matrix field, or a sweep: several benchmarks."""
    listed = any(isinstance(description.get(name), list) for name in MATRIX_FIELDS)
    return listed or description.get(SWEEP) is not None


def split_matrix(
    description: Mapping[str, object],
) -> tuple[dict[str, object], JobDescription]:
    """Split a description into its matrix (lists, and the sweep) and the fields of all members.

    Raises:
        InvalidInput: A list is empty, or the sweep has no lists.
    """
    matrix: dict[str, object] = {}
    common = dict(description)
    for name in MATRIX_FIELDS:
        value = common.get(name)
        if isinstance(value, list):
            if not value:
                raise InvalidInput.at(f"/{name}", "is an empty list", "at least one")
            matrix[name] = common.pop(name)
    sweep = common.pop(SWEEP, None)
    if sweep is not None:
        matrix[PARAMETERS] = _swept(sweep)
    return matrix, common


def _swept(sweep: object) -> dict[str, list[object]]:
    """Return the values of each parameter of a sweep.

    Raises:
        InvalidInput: It is no mapping of lists, or one of them is empty.
    """
    if not isinstance(sweep, Mapping) or not sweep:
        raise InvalidInput.at(f"/{SWEEP}", "names no parameters", "lists of values by parameter")
    found: dict[str, list[object]] = {}
    for name, values in sweep.items():
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
            raise InvalidInput.at(f"/{SWEEP}/{name}", "is no list of values", "at least one value")
        found[str(name)] = list(values)
    return found


def campaign_of(description: Mapping[str, object]) -> dict[str, object]:
    """Return the body of a campaign: the matrix, and the fields that all its members share."""
    matrix, common = split_matrix(description)
    return {"matrix": matrix, "description": common}


def combinations(description: Mapping[str, object]) -> list[JobDescription]:
    """Return one description for each combination of the matrix's values."""
    matrix, common = split_matrix(description)
    return list(members_of(axes_of(matrix), common))


def local_files(description: Mapping[str, object], base: Path) -> dict[str, list[Path | None]]:
    """Return the local files of each field that names files; None for what the server has to find.

    A model may be a folder, which is not packed here; half of a pair, such as a ``.param`` file
    with its ``.bin``, becomes an archive of both.

    Raises:
        InvalidInput: A path without a file, or a folder that is no model.
    """
    return {
        name: [_local(name, item, base) for item in _items(description.get(name))]
        for name in ("model", "dataset", "dataset_urls", "odt_config")
    }


def with_names(description: Mapping[str, object], base: Path) -> JobDescription:
    """Return a description with the names of its local files.

    Raises:
        InvalidInput: A path without a file.
    """
    named = {name: value for name, value in description.items() if value is not None}
    for name, paths in local_files(named, base).items():
        if name == "dataset_urls" and any(paths):  # they have no URLs before they are uploaded
            named["dataset"] = next(path.name for path in paths if path)
            del named[name]
            continue
        items = [
            _upload_name(path) if path else item
            for path, item in zip(paths, _items(named.get(name)), strict=True)
        ]
        if name in named:
            named[name] = items if isinstance(named[name], list) else items[0]
    return named


def with_uploads(description: Mapping[str, object], base: Path, upload: Upload) -> JobDescription:
    """Upload a description's local files, and return it with the server's names for them.

    ``model``, ``dataset``, ``dataset_urls`` and ``odt_config`` are a local file (a `Path`, or text
    that names an existing file, seen from ``base``), a URL, or else, but for ``dataset_urls``, the
    name of a file that was uploaded before.
    All are looked for before the first is uploaded.

    Raises:
        InvalidInput: A path without a file.
    """
    found = local_files(description, base)
    sent: dict[Path, UploadedFile] = {}

    def uploaded(path: Path) -> UploadedFile:
        if path not in sent:
            sent[path] = upload(_packed(path) if path.is_dir() else path)
        return sent[path]

    ready = {name: value for name, value in description.items() if value is not None}
    if isinstance(ready.get("model"), list):
        models = zip(_items(ready["model"]), found["model"], strict=True)
        ready["model"] = [uploaded(path).url if path else item for item, path in models]
    elif path := next(iter(found["model"]), None):
        file = uploaded(path)
        ready |= {"model": file.name, "model_url": file.url}
    if path := next(iter(found["dataset"]), None):
        file = uploaded(path)
        ready |= {"dataset": file.name, "dataset_urls": [file.url]}
    elif any(found["dataset_urls"]):
        items = zip(_items(ready["dataset_urls"]), found["dataset_urls"], strict=True)
        ready["dataset_urls"] = [uploaded(path).url if path else item for item, path in items]
    if path := next(iter(found["odt_config"]), None):
        ready["odt_config"] = uploaded(path).url
    return ready


def _upload_name(path: Path) -> str:
    from edgeyard.benchmark_api.sdk.model_folder import upload_name

    return upload_name(path)


def _packed(path: Path) -> Path:
    from edgeyard.benchmark_api.sdk.model_folder import packed

    return packed(path)


def _items(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _local(name: str, value: object, base: Path) -> Path | None:
    """Return the file that is meant; None where it is something that the server has to find."""
    if isinstance(value, Mapping) or _is_url(value):
        return None
    if not isinstance(value, str | Path):
        raise InvalidInput.at(f"/{name}", f"is a {type(value).__name__}", _accepted(value))
    path = base / expanded(value)
    if path.is_dir() and name == "model":
        from edgeyard.benchmark_api.sdk.model_folder import read_folder

        read_folder(path)
        return path
    if path.is_dir():
        raise InvalidInput.at(f"/{name}", f"{path} is a folder", "a file; pack a folder as .zip")
    if path.is_file() and name == "model":
        from edgeyard.benchmark_api.sdk.model_folder import with_weights

        return with_weights(path)
    if path.is_file():
        return path
    if path.exists():
        raise InvalidInput.at(f"/{name}", f"{path} is not a regular file", "a file")
    if isinstance(value, Path) or "/" in value:
        raise InvalidInput.at(
            f"/{name}", f"there is no file {path}", "a file here, a URL, or the name of an upload"
        )
    if name == "dataset_urls":
        raise InvalidInput.at(
            f"/{name}", f"there is no file {path}", "of several datasets, files here or URLs"
        )
    return None


def _accepted(value: object) -> str:
    """Return what would be accepted instead of a value that is no file."""
    if any(base.__module__.startswith("torch.") for base in type(value).__mro__):
        return "a file: export it first, e.g. torch.onnx.export(module, inputs, 'net.onnx')"
    return "a path, a name, a URL, bytes or an onnx.ModelProto"


def _is_url(value: object) -> bool:
    return isinstance(value, str) and value.lower().startswith(("http://", "https://"))


def rebased(description: Mapping[str, object], folder: Path) -> JobDescription:
    """Return a job file with its local files, seen from its own folder, as paths from here."""

    def found(value: object) -> object:
        if isinstance(value, list):
            return [found(item) for item in value]
        if isinstance(value, str) and not _is_url(value):
            near = folder / expanded(value)
            if near.is_file() or "/" in value:
                return near
        return value

    names = ("model", "dataset", "dataset_urls", "odt_config")
    return {
        **description,
        **{name: found(description[name]) for name in names if name in description},
    }
