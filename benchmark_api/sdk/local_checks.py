"""What is wrong with a submission, before its files are packed, hashed or sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.schemas.answers import CheckedClone
from edgeyard.benchmark_api.schemas.matrix import axes_of, positions_left_out, values_of
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.http import Api, part
from edgeyard.benchmark_api.sdk.submission import (
    JobDescription,
    campaign_of,
    combinations,
    is_matrix,
    local_files,
    split_matrix,
    with_names,
)
from edgeyard.errors import FieldError, InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.content import ContentChecks
    from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole


def check_before_upload(api: Api, description: Mapping[str, object], base: Path) -> None:
    """Check a description before its local files are uploaded, here and by the server.

    Args:
        api: Of the server.
        description: Its models and datasets are paths, URLs or names.
        base: Folder that relative paths start from.

    Raises:
        InvalidInput: As `check_locally`.
        ValidationFailed: The server refuses it, for example because of the size of a model.
    """
    local = local_files(description, base)
    sizes = {name: [_upload_bytes(path) for path in paths] for name, paths in local.items()}
    if not any(path for paths in local.values() for path in paths):
        return
    check_locally(description, base)
    named = with_names(description, base)
    if is_matrix(named):
        body = {**campaign_of(named), **_sizes_of(sizes), "model_bytes": sizes["model"]}
        api.post("/v1/campaigns/check", body, key=uuid.uuid4().hex)
        return
    api.post("/v1/benchmarks/check", named, params=_sizes_of(sizes), key=uuid.uuid4().hex)


def check_clone_before_upload(
    api: Api, benchmark_id: str, changes: Mapping[str, object], base: Path
) -> JobDescription:
    """Check the changes of a clone before its local files are uploaded, by the server and here.

    Returns:
        The description of the clone, with the names of its files; empty if no file is local.

    Raises:
        InvalidInput: As `check_locally`.
        ValidationFailed: The server refuses it, for example because of the size of a model.
    """
    local = local_files(changes, base)
    if not any(path for paths in local.values() for path in paths):
        return {}
    sizes = {name: [_upload_bytes(path) for path in paths] for name, paths in local.items()}
    where = f"/v1/benchmarks/{part(benchmark_id)}/clone/check"
    named = with_names(changes, base)
    answer = api.post(where, named, params=_sizes_of(sizes), key=uuid.uuid4().hex)
    whole = {**read_answer(answer, CheckedClone).description, **named}
    _check(whole, local)
    return whole


def sizes_and_names(paths: Iterable[Path]) -> list[tuple[Path, int, str]]:
    """Return the size and the name of what is uploaded of each file or folder."""
    from edgeyard.benchmark_api.sdk.model_folder import upload_bytes, upload_name

    return [(path, upload_bytes(path), upload_name(path)) for path in paths]


def known_inputs(description: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the inputs that a run would have, as far as its local model shows them.

    Args:
        description: Was checked; its model is a path.
    """
    from edgeyard.benchmark_api.content import ContentChecks
    from edgeyard.benchmark_api.schemas.description import parse_description, to_description
    from edgeyard.benchmark_api.sdk.model_folder import upload_name
    from edgeyard.scheduler.model.benchmark import FileRole
    from edgeyard.scheduler.model.workload import workload_of

    path = description["model"]
    assert isinstance(path, Path)
    parsed = to_description(parse_description({**description, "model": upload_name(path)}))
    files = [_file(FileRole.MODEL, path)]
    known = ContentChecks(_LocalContents()).known(parsed, files)
    inputs = workload_of(parsed, files, known)["inputs"]
    return inputs if isinstance(inputs, list) else []


def _upload_bytes(path: Path | None) -> int:
    from edgeyard.benchmark_api.sdk.model_folder import upload_bytes

    return 0 if path is None else upload_bytes(path)


def _sizes_of(sizes: Mapping[str, list[int]]) -> dict[str, object]:
    """Return the sizes of the model and of the largest dataset, if they are local files."""
    found = {
        "model_bytes": next(iter(sizes["model"]), 0),
        "dataset_bytes": max([*sizes["dataset"], *sizes["dataset_urls"]], default=0),
    }
    return {name: size for name, size in found.items() if size}


class _LocalContents:
    """The local files of a description in the place of a store, by their paths."""

    def path(self, sha256: str) -> Path:
        return Path(sha256)


def check_locally(description: Mapping[str, object], base: Path) -> None:
    """Refuse a description as the server would, as far as that needs no server.

    Its fields are checked, and what its local files hold: their kind, the model's inputs against
    ``input`` and the arrays of the dataset.

    Args:
        description: Its models and datasets are paths, URLs or names.
        base: Folder that relative paths start from.

    Raises:
        InvalidInput: Naming each field that is wrong. Of a matrix only if a value works in no
            combination: the server names the combinations that it leaves out.
    """
    given = {name: value for name, value in description.items() if value is not None}
    _check(given, local_files(given, base))


def _check(description: Mapping[str, object], local: Mapping[str, list[Path | None]]) -> None:
    from edgeyard.benchmark_api.content import ContentChecks
    from edgeyard.benchmark_api.schemas.description import parse_description, to_description
    from edgeyard.benchmark_api.sdk.model_folder import upload_name
    from edgeyard.scheduler.model.benchmark import FileRole

    with_paths = dict(description)
    for name, paths in local.items():
        if paths:  # none where a clone takes the field over
            given = with_paths[name]
            items = given if isinstance(given, list) else [given]
            found = [path or item for path, item in zip(paths, items, strict=True)]
            with_paths[name] = found if isinstance(given, list) else found[0]
    if any(local["dataset_urls"]):  # they have no URLs before they are uploaded
        datasets = local["dataset_urls"]
        del with_paths["dataset_urls"]
        with_paths["dataset"] = datasets[0] if len(datasets) == 1 else "several"
    checks = ContentChecks(_LocalContents())
    several = isinstance(with_paths.get("model"), list)
    foreign = _foreign_inputs(checks, with_paths) if several else {}
    problems: list[FieldError] = []
    wrong = set[int]()
    every = combinations(with_paths)
    for position, one in enumerate(every):
        paths_of = {name: value for name, value in one.items() if isinstance(value, Path)}
        named = {**one, **{name: upload_name(path) for name, path in paths_of.items()}}
        given = one.get("input")
        if isinstance(given, Mapping) and (others := foreign.get(paths_of.get("model"))):
            named["input"] = {name: spec for name, spec in given.items() if name not in others}
        try:
            submitted = to_description(parse_description(named))
            checks.check(
                submitted, [_file(FileRole(name), path) for name, path in paths_of.items()]
            )
        except InvalidInput as error:
            wrong.add(position)
            problems += [
                _about(each, named) if several or each.pointer == "/model" else each
                for each in error.errors
            ]
    axes = axes_of(split_matrix(with_paths)[0])
    if problems and not positions_left_out(list(values_of(axes)), wrong):
        raise InvalidInput(list(dict.fromkeys(problems)))


def _foreign_inputs(
    checks: ContentChecks, description: Mapping[str, object]
) -> dict[Path | None, set[str]]:
    """Return for each local model of a matrix the given inputs that only others of it may have.

    The models share one ``input``, which may name inputs of all of them.
    """
    given, models = description.get("input"), description.get("model")
    if not isinstance(given, Mapping) or not isinstance(models, list):
        return {}
    own = {path: checks.inputs_of(str(path)) for path in models if isinstance(path, Path)}
    known = {name for names in own.values() for name in names}
    if len(own) < len(models):
        known |= set(given)  # the server knows the inputs of its models
    return {path: known - names for path, names in own.items() if names}


def _file(role: FileRole, path: Path) -> BenchmarkFile:
    from edgeyard.benchmark_api.sdk.model_folder import upload_bytes
    from edgeyard.scheduler.model.benchmark import BenchmarkFile

    size_bytes = upload_bytes(path)
    if size_bytes == 0:
        accepted = f"a {role.value} with content"
        raise InvalidInput.at(f"/{role.value}", f"{path.name} is empty", accepted)
    return BenchmarkFile(
        role=role, position=0, name=path.name, sha256=str(path), size_bytes=size_bytes
    )


def _about(error: FieldError, one: Mapping[str, object]) -> FieldError:
    """Name the model that an error is about."""
    if str(one.get("model")) in error.reason:
        return error
    if error.pointer == "/model" or error.pointer.startswith("/input/"):
        return replace(error, reason=f"{one.get('model')}: {error.reason}")
    return error
