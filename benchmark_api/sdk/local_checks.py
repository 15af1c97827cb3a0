"""What this machine can know to be wrong with a submission, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.sdk.submission import combinations, local_files
from edgeyard.errors import FieldError, InvalidInput

if TYPE_CHECKING:
    from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole


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
        InvalidInput: Naming each field that is wrong, in all combinations of a matrix.
    """
    from edgeyard.benchmark_api.content import ContentChecks
    from edgeyard.benchmark_api.schemas.description import parse_description, to_description
    from edgeyard.scheduler.model.benchmark import FileRole

    with_paths = {name: value for name, value in description.items() if value is not None}
    for name, paths in local_files(with_paths, base).items():
        if name in with_paths:
            given = with_paths[name]
            items = given if isinstance(given, list) else [given]
            found = [path or item for path, item in zip(paths, items, strict=True)]
            with_paths[name] = found if isinstance(given, list) else found[0]
    checks = ContentChecks(_LocalContents())
    several = isinstance(with_paths.get("model"), list)
    problems: list[FieldError] = []
    for one in combinations(with_paths):
        paths_of = {name: value for name, value in one.items() if isinstance(value, Path)}
        named = {**one, **{name: path.name for name, path in paths_of.items()}}
        try:
            asked = to_description(parse_description(named))
            checks.check(asked, [_file(FileRole(name), path) for name, path in paths_of.items()])
        except InvalidInput as error:
            problems += [_about(each, named) if several else each for each in error.errors]
    if problems:
        raise InvalidInput(list(dict.fromkeys(problems)))


def _file(role: FileRole, path: Path) -> BenchmarkFile:
    from edgeyard.scheduler.model.benchmark import BenchmarkFile

    size_bytes = path.stat().st_size
    if size_bytes == 0:
        accepted = f"a {role.value} with content"
        raise InvalidInput.at(f"/{role.value}", f"{path.name} is empty", accepted)
    return BenchmarkFile(
        role=role, position=0, name=path.name, sha256=str(path), size_bytes=size_bytes
    )


def _about(error: FieldError, one: Mapping[str, object]) -> FieldError:
    """Name the model of a matrix that an error is about."""
    if error.pointer == "/model" or error.pointer.startswith("/input/"):
        return replace(error, reason=f"{one.get('model')}: {error.reason}")
    return error
