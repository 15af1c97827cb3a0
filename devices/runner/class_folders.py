"""Which folder of an image in an archive is its class."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import PurePosixPath
from typing import Dict, List, Optional, Sequence, Set, Tuple, Union

from edgeyard.devices.runner.preprocessing import INNERMOST, OUTERMOST
from edgeyard.errors import RunFailed

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")

Level = Union[int, str]
"""`INNERMOST`, `OUTERMOST`, or the number of a folder from outside, from 1 on."""

_IGNORED = ("__macosx", "@eadir", "@__thumb", "#recycle", "$recycle.bin", "lost+found")
"""Folders that systems add to those of users, in lower case."""

_PARTS = re.compile(r"[a-z]+")
_OF_A_DATASET = frozenset({
    "train", "training", "trainval", "val", "valid", "validation", "test", "testing", "dev", "eval",
    "evaluation", "holdout",
})  # fmt: skip
"""Names of parts of a dataset."""

_BESIDE = frozenset(("set", "data", "dataset", "images", "imgs", "img", "split", "part", "fold"))
"""Words that may stand next to them."""

Path = Tuple[str, ...]
Entry = Tuple[str, zipfile.ZipInfo]
"""Class and image."""


def images_by_class(
    members: Sequence[zipfile.ZipInfo],
    what: str,
    *,
    subset: Optional[str] = None,
    level: Optional[Level] = None,
) -> List[Entry]:
    """Return the images with their classes, in the order of their paths.

    Folders that all images share say nothing and are left out first.

    Args:
        members: Of the archive.
        what: The archive, for errors: "dataset 'test.zip'".
        subset: Folder whose images are used, without those of others, such as ``val``; None: all.
        level: Which folder is the class; None: the only possible one.

    Raises:
        RunFailed: ``user_input``: there are none, not all lie in a folder of that level, or which
            folder is meant is not clear.
    """
    images = sorted(_images(members), key=lambda one: one[1].filename)
    if subset is not None:
        found = _of_subset(images, subset)
        if not found:
            has = _shown({part for path, _ in images for part in path})
            raise RunFailed(
                "user_input", f"{what} has no images in a folder {subset!r} (subset); it has {has}"
            )
        images = found
    paths = _without_shared([path for path, _ in images])
    if not images or () in paths:
        raise RunFailed("user_input", f"{what} does not hold images in one folder for each class")
    if level is None:
        if problem := _unclear(paths):
            raise RunFailed("user_input", f"{what} {problem}")
        level = INNERMOST
    if isinstance(level, int) and any(len(path) < level for path in paths):
        raise RunFailed(
            "user_input", f"{what} has images in fewer than {level} folders (class_folder)"
        )
    return [(_class_of(path, level), info) for path, (_, info) in zip(paths, images, strict=True)]


def _class_of(path: Path, level: Level) -> str:
    if isinstance(level, int):
        return path[level - 1]
    return path[-1] if level == INNERMOST else path[0]


def _images(members: Sequence[zipfile.ZipInfo]) -> List[Tuple[Path, zipfile.ZipInfo]]:
    found = []
    for info in members:
        path = PurePosixPath(info.filename)
        ignored = any(part.startswith(".") or part.lower() in _IGNORED for part in path.parts)
        if path.suffix.lower() in SUFFIXES and not ignored:
            found.append((path.parent.parts, info))
    return found


def _without_shared(paths: Sequence[Path]) -> List[Path]:
    """Leave out the outer folders that all images share; each keeps its innermost one."""
    shared = max(0, min((len(path) for path in paths), default=1) - 1)
    while len({path[:shared] for path in paths}) > 1:
        shared -= 1
    return [path[shared:] for path in paths]


def _of_subset(
    images: Sequence[Tuple[Path, zipfile.ZipInfo]], subset: str
) -> List[Tuple[Path, zipfile.ZipInfo]]:
    """Return the images below a folder, wherever it is, with its own path left out."""
    wanted = PurePosixPath(subset.strip("/")).parts
    found = []
    for path, info in images:
        for start in range(len(path) - len(wanted) + 1):
            if path[start : start + len(wanted)] == wanted:
                found.append((path[:start] + path[start + len(wanted) :], info))
                break
    return found


def _unclear(paths: Sequence[Path]) -> str:
    """Return why it is not clear which folder is the class, and what states it; "" if it is."""
    found = {name for path in paths for name in path if _looks_like_a_part(name)}
    if len(found) > 1:
        last = max(found)
        count = sum(last in path for path in paths)
        return (
            f"has the folders {_shown(found)}, which look like parts of a dataset. State by "
            f'preprocessing which images count: {{"subset": {json.dumps(last)}}} '
            f"({count} of {len(paths)} images), or {_readings(paths)}"
        )
    parents: Dict[str, Set[Path]] = {}
    for path in paths:
        parents.setdefault(path[-1], set()).add(path[:-1])
    twice = sorted(name for name, above in parents.items() if len(above) > 1)
    if twice:
        first, second = ("/".join((*above, twice[0])) for above in sorted(parents[twice[0]])[:2])
        why = f"has a folder {twice[0]!r} in several folders ({first}, {second}, ...)"
    else:
        holding = set(paths)
        around = sorted(
            path[:depth]
            for path in holding
            for depth in range(1, len(path))
            if path[:depth] in holding
        )
        if not around:
            return ""
        why = f"has images both in {'/'.join(around[0])!r} and in folders inside it"
    return f"{why}, so that it is not clear which is the class. State it by {_readings(paths)}"


def _readings(paths: Sequence[Path]) -> str:
    """Return what each level would mean, in words."""
    found = []
    for level in (INNERMOST, OUTERMOST):
        names = {_class_of(path, level) for path in paths}
        found.append(
            f'preprocessing {{"class_folder": "{level}"}} (all {len(paths)} images, '
            f"{len(names)} class{'es' if len(names) > 1 else ''}: {_shown(names)})"
        )
    return " or ".join(found)


def _looks_like_a_part(name: str) -> bool:
    """Return whether a name such as ``train``, ``val2017`` or ``test_set`` is that of a part."""
    words = _PARTS.findall(name.lower())
    return any(word in _OF_A_DATASET for word in words) and all(
        word in _OF_A_DATASET or word in _BESIDE for word in words
    )


def _shown(names: "Set[str] | Sequence[str]") -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 5} more" if len(ordered) > 5 else ""
    return ", ".join(repr(name[:40]) for name in ordered[:5]) + more
