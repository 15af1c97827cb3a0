"""Datasets of TYPE2: arrays in an ``.npz``, or images in a zip with a folder for each class.

Nothing is unpacked to the disk: images are decoded straight out of the archive, batch by batch.
"""

from __future__ import annotations

import json
import math
import stat
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.arrays import array_names, converted, read_arrays
from edgeyard.devices.runner.class_folders import Entry, images_by_class
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.feeds import Feeds
from edgeyard.devices.runner.file_kind import HEAD_BYTES, mismatch
from edgeyard.devices.runner.image_decoding import Decoder
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.devices.runner.preprocessing import Preprocessing, parse_preprocessing
from edgeyard.devices.runner.quantization import Clipping, input_values, real_range
from edgeyard.devices.runner.trust import Reason, input_range
from edgeyard.errors import RunFailed

MAX_ENTRIES = 200_000
MAX_UNPACKED_BYTES = 16 * 1024**3
MAX_ENTRY_BYTES = 256 * 1024**2
MAX_DESCRIPTION_BYTES = 4 * 1024**2
MAX_RATIO = 1000
"""Unpacked to packed size; images hardly shrink at all, bombs by more than this."""

_DEFAULT_RANGE, _RANGE_TOLERANCE = (0.0, 1.0), 0.05
"""Pixels as numbers where no scale is stated, and how far a quantised input's range may be off."""

TRUTH = "y"
"""Name of the array with what is right, where ``parameters/truth`` names no other."""

_DESCRIPTION = "dataset.json"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Rows with class numbers, ready for the model.

    Attributes:
        labels: Shape (rows,), int64; None: the dataset has none, so that nothing can be right.
        batch: ``batch(first, last)``: feeds of rows first to last - 1.
        class_names: By class number, where the dataset names them.
        truth: Shape (rows, ...): what a metric other than of classes compares outputs with.
        shared: By input that takes a scalar: its value, which is one for all rows.
        folders: Of images that no ``labels`` number: in the order that numbers them; else none.
        input_reasons: What speaks against the values of the batches that were taken so far.
    """

    rows: int
    labels: Optional[NDArray[np.int64]]
    batch: Callable[[int, int], Feeds]
    preprocessing: Preprocessing
    class_names: Mapping[int, str]
    folders: Tuple[str, ...] = ()
    truth: Optional[NDArray[np.generic]] = None
    input_reasons: Callable[[], Sequence[Reason]] = tuple
    shared: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


def open_dataset(
    path: Path,
    inputs: Sequence[TensorSpec],
    wishes: object,
    *,
    raw: bool = False,
    classes: bool = True,
    truth: str = TRUTH,
) -> Dataset:
    """Return the dataset in a file, prepared for a model's inputs.

    Args:
        raw: What is no zip is rows of the model's only input, as NumPy's ``tofile`` writes them.
        wishes: The job description's ``parameters.preprocessing``; None: none.
        classes: The truth holds class numbers; otherwise what a metric compares outputs with.
        truth: Name of the array with the truth.

    Raises:
        RunFailed: ``user_input``: not a dataset, unsafe, or not of the model's shape (which names
            what is expected and what was found).
    """
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory leads zipfile to errors of many kinds
        if raw and isinstance(error, zipfile.BadZipFile):
            return _raw(path, inputs, parse_preprocessing(wishes))
        raise RunFailed("user_input", _no_dataset(path, error)) from error
    if array_names(archive):
        archive.close()
        return _arrays(path, inputs, parse_preprocessing(wishes), classes, truth)
    if not classes:
        raise _wrong(path, f"holds images; this metric takes an .npz with x and {truth}")
    return _images(archive, path, inputs, wishes)


def open_datasets(
    paths: Sequence[Path],
    inputs: Sequence[TensorSpec],
    wishes: object,
    *,
    raw: bool = False,
    classes: bool = True,
    truth: str = TRUTH,
) -> Dataset:
    """Return the rows of several files as one dataset, in the order of the files.

    Arguments and errors are those of `open_dataset`.

    Raises:
        RunFailed: ``user_input``: also if only some of the files have labels, or if their folders
            or targets do not fit together.
    """
    parts = [
        open_dataset(path, inputs, wishes, raw=raw, classes=classes, truth=truth) for path in paths
    ]
    first = parts[0]
    if len(parts) == 1:
        return first
    for path, part in zip(paths[1:], parts[1:], strict=True):
        if (part.labels is None) != (first.labels is None):
            raise _wrong(path, f"and {paths[0].name!r} do not both have labels")
        if part.class_names != first.class_names or part.folders != first.folders:
            raise _wrong(path, f"and {paths[0].name!r} do not have the same folders of classes")
        if _row_shape(part.truth) != _row_shape(first.truth):
            raise _wrong(path, f"and {paths[0].name!r} have {truth!r} with rows of other shapes")
        for name, value in part.shared.items():
            if not np.array_equal(value, first.shared[name]):
                raise _wrong(path, f"and {paths[0].name!r} have different values of {name!r}")
    starts = np.cumsum([0, *(part.rows for part in parts)]).tolist()

    def batch(begin: int, end: int) -> Feeds:
        pieces = [
            part.batch(max(begin, start) - start, min(end, stop) - start)
            for part, start, stop in zip(parts, starts[:-1], starts[1:], strict=True)
            if begin < stop and end > start
        ]
        return {
            name: first.shared[name]
            if name in first.shared
            else np.concatenate([piece[name] for piece in pieces])
            for name in pieces[0]
        }

    return replace(
        first,
        rows=starts[-1],
        labels=_joined([part.labels for part in parts]),
        truth=_joined([part.truth for part in parts]),
        batch=batch,
        input_reasons=lambda: [reason for part in parts for reason in part.input_reasons()],
    )


def _row_shape(truth: Optional[NDArray[Any]]) -> Optional[Tuple[int, ...]]:
    return None if truth is None else truth.shape[1:]


def _joined(columns: Sequence[Optional[NDArray[Any]]]) -> Optional[NDArray[Any]]:
    present = [column for column in columns if column is not None]
    return np.concatenate(present) if present else None


def _no_dataset(path: Path, error: Exception) -> str:
    """Say why a file that is no archive is no dataset."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    damaged = head.startswith(b"PK")
    found = None if damaged else mismatch(f"dataset {path.name!r}", "an .npz or a ZIP file", head)
    return found or f"dataset {path.name!r} is neither an .npz nor a ZIP file of images: {error}"


def array_of_input(inputs: Sequence[TensorSpec], truth: str) -> Dict[str, TensorSpec]:
    """Return by the name of each array of a dataset the input that takes it.

    Args:
        truth: Name of the array with what is right.

    Raises:
        RunFailed: ``user_input``: an input has the name of the truth; or the only one is a scalar.
    """
    if len(inputs) == 1:
        if inputs[0].shape == ():
            raise RunFailed(
                "user_input",
                f"input {inputs[0].name!r} takes one value and no rows, so that there is no "
                "accuracy over rows; run it with own inputs (keep_outputs)",
            )
        names = ["x"]
    else:
        names = [spec.name for spec in inputs]
    if truth in names:
        raise RunFailed(
            "user_input",
            f"the model has an input {truth!r}, so that the array {truth!r} can't hold what is "
            "right as well; put that into an array of another name, and state the name by "
            'parameters/truth, e.g. {"truth": "labels"}',
        )
    return dict(zip(names, inputs, strict=True))


def _arrays(
    path: Path, inputs: Sequence[TensorSpec], how: Preprocessing, classes: bool, truth_name: str
) -> Dataset:
    specs = array_of_input(inputs, truth_name)
    single = len(specs) == 1
    arrays = read_arrays(path, [*specs, truth_name])
    truth = arrays.pop(truth_name)
    labels = _labels(truth, path, truth_name) if classes else None
    if truth.ndim == 0 or len(truth) == 0 or truth.dtype.kind not in "biuf":
        raise _wrong(
            path, f"has {truth_name!r} of shape {list(truth.shape)} and type {truth.dtype}"
        )
    feeds: Dict[str, NDArray[np.generic]] = {}
    shared: Dict[str, NDArray[np.generic]] = {}
    clippings = [Clipping(spec) for spec in specs.values()]
    for (name, spec), clipping in zip(specs.items(), clippings, strict=True):
        rows = arrays[name]
        if rows.ndim == 0 and not spec.shape and not single:
            clipping.count(rows)
            shared[spec.name] = input_values(rows, spec, _input(spec, path))
            continue
        if rows.ndim == 0 or len(rows) != len(truth):
            has = len(rows) if rows.ndim else 0
            takes = "; this input takes one value for all rows" if spec.shape == () else ""
            raise _wrong(
                path, f"has {has} rows of {name!r} and {len(truth)} of {truth_name!r}{takes}"
            )
        if single and how.changes_values:
            rows = how.apply(rows, channel_axis=_channel_axis(spec, how.layout))
        _check_shape(rows, spec, f"array {name!r}", path)
        clipping.count(rows)
        feeds[spec.name] = input_values(rows, spec, _input(spec, path))

    def batch(first: int, last: int) -> Feeds:
        return {**{name: rows[first:last] for name, rows in feeds.items()}, **shared}

    return Dataset(
        rows=len(truth),
        labels=labels,
        batch=batch,
        preprocessing=how,
        class_names={},
        truth=None if classes else truth,
        input_reasons=lambda: [reason for each in clippings for reason in each.reasons()],
        shared=shared,
    )


def _raw(path: Path, inputs: Sequence[TensorSpec], how: Preprocessing) -> Dataset:
    """Rows of the model's only input, one after another, without a header."""
    if len(inputs) != 1:
        raise _wrong(path, f"is raw, and the model has {len(inputs)} inputs, not one")
    (spec,) = inputs
    shape = [size for size in (spec.shape or ())[1:] if isinstance(size, int) and size > 0]
    if not spec.shape:
        raise _wrong(path, f"is raw, and input {spec.name!r} ({spec.shape_text()}) has no rows")
    if len(shape) != len(spec.shape) - 1:
        raise _wrong(
            path, f"is raw, and input {spec.name!r} {_show(spec)} leaves a size open or at 0"
        )
    if how.changes_values:
        raise _wrong(path, "is raw: its values are taken as they are, without preprocessing")
    dtype = np.dtype(spec.dtype)
    row_bytes = math.prod(shape) * dtype.itemsize
    size = path.stat().st_size
    if size == 0 or size % row_bytes:
        raise _wrong(
            path,
            f"is not a zip file, and its {size} bytes are not whole rows: input {spec.name!r} "
            "takes rows of "
            f"{_show(spec)} {dtype}, {row_bytes} bytes each",
        )
    rows = np.memmap(path, dtype=dtype.newbyteorder("<"), mode="r").reshape(-1, *shape)
    return Dataset(
        rows=len(rows),
        labels=None,
        batch=lambda first, last: {spec.name: np.array(rows[first:last], dtype=dtype)},
        preprocessing=how,
        class_names={},
    )


def _images(
    archive: zipfile.ZipFile, path: Path, inputs: Sequence[TensorSpec], wishes: object
) -> Dataset:
    if len(inputs) != 1:
        raise _wrong(path, f"holds images; the model has {len(inputs)} inputs, not one")
    (spec,) = inputs
    members = _safe_members(archive, path)
    how = parse_preprocessing(_description(archive, members, path), wishes)
    size = how.resize or how.crop or _spatial(spec, how, path)
    decode = Decoder(f"dataset {path.name!r}", how, size)
    entries = _classes_of_images(members, path, how)
    labels, numbers, folders = _labels_of_images(entries, path, how)
    clipping = Clipping(spec)

    def batch(first: int, last: int) -> Feeds:
        pixels = np.stack([decode(archive, info) for _, info in entries[first:last]])
        nhwc = _image_values(pixels, spec, how)
        rows = nhwc if _layout(spec, how) == "NHWC" else nhwc.transpose(0, 3, 1, 2)
        _check_shape(rows, spec, "images", path)
        clipping.count(rows)
        return {spec.name: np.ascontiguousarray(input_values(rows, spec, _input(spec, path)))}

    batch(0, 1)  # a wrong shape is reported before the model runs
    return Dataset(
        rows=len(labels),
        labels=labels,
        batch=batch,
        preprocessing=how,
        class_names={number: name for name, number in numbers.items()},
        folders=folders,
        input_reasons=lambda: [*_default_scale_reasons(spec, how), *clipping.reasons()],
    )


def _classes_of_images(
    members: Sequence[zipfile.ZipInfo], path: Path, how: Preprocessing
) -> List[Entry]:
    what = f"dataset {path.name!r}"
    return images_by_class(members, what, subset=how.subset, level=how.class_folder)


def _labels_of_images(
    entries: Sequence[Entry], path: Path, how: Preprocessing
) -> Tuple[NDArray[np.int64], Mapping[str, int], Tuple[str, ...]]:
    """Return the class numbers of images, those of the folders, and `Dataset.folders`."""
    folders = {folder for folder, _ in entries}
    numbers = how.labels or {name: index for index, name in enumerate(sorted(folders))}
    unnamed = sorted(folders - set(numbers))
    if unnamed:
        raise _wrong(path, f"has a folder {unnamed[0]!r} that preprocessing/labels does not name")
    labels = np.array([numbers[folder] for folder, _ in entries], dtype=np.int64)
    return labels, numbers, () if how.labels else tuple(sorted(folders))


def _image_values(
    pixels: NDArray[Any], spec: TensorSpec, how: Preprocessing
) -> NDArray[np.generic]:
    """Return pixels of 0 to 255 as an input takes them, but for quantization.

    Inputs of whole numbers that state no quantization get the pixels themselves, or what a stated
    preprocessing makes of them, rounded.
    """
    whole = np.dtype(spec.dtype).kind in "iu" and spec.quantization is None
    if whole and not how.changes_values:
        values: NDArray[np.generic] = pixels
    else:
        scaled = how if how.scale is not None else replace(how, scale=1 / 255)
        values = scaled.apply(pixels, channel_axis=3)
    return np.rint(values).astype(np.int64) if whole else values


def _default_scale_reasons(spec: TensorSpec, how: Preprocessing) -> Sequence[Reason]:
    """State where nobody said how pixels become the numbers that a quantised input is made for."""
    if spec.quantization is None or how.changes_values:
        return ()
    found = real_range(spec)
    near = all(
        abs(one - other) <= _RANGE_TOLERANCE
        for one, other in zip(found, _DEFAULT_RANGE, strict=True)
    )
    return () if near else (input_range(spec.name, *found),)


def numbered(dataset: Dataset, classes: int) -> Dataset:
    """Return the dataset with the class numbers that a model of so many classes means.

    Names that are numbers are the classes themselves; other folders give class numbers by their
    alphabetical order, and only where there is one for each class.

    Args:
        classes: 0: the model does not state how many it has.

    Raises:
        RunFailed: ``user_input``: nothing states which folder is which class.
    """
    if not dataset.folders or dataset.labels is None:
        return dataset
    numbers = _folder_numbers(dataset.folders, classes)
    if numbers is None:
        return dataset
    return replace(
        dataset,
        labels=numbers[dataset.labels],
        class_names=dict(zip(numbers.tolist(), dataset.folders, strict=True)),
    )


def _folder_numbers(folders: Sequence[str], classes: int) -> Optional[NDArray[np.int64]]:
    """Return the class number of each folder by its name; None: their order gives it.

    Raises:
        RunFailed: As of `numbered`.
    """
    numeric = all(name.isascii() and name.isdigit() and len(name) <= 9 for name in folders)
    if not numeric and len(folders) == (classes or len(folders)):
        return None
    if not numeric or (classes and max(map(int, folders)) >= classes):
        shown = ", ".join(repr(name[:40]) for name in folders[:8])
        more = f" and {len(folders) - 8} more" if len(folders) > 8 else ""
        raise RunFailed(
            "user_input",
            f"the dataset has {len(folders)} class folders ({shown}{more}), the model has "
            f"{classes} classes: name the folders by class number, 0 to {classes - 1}, or map them "
            f'by "labels" in {_DESCRIPTION}, e.g. {json.dumps({"labels": {folders[0]: 0}})}',
        )
    return np.array([int(name) for name in folders], dtype=np.int64)


def labels_of(
    path: Path, wishes: object, truth: str, classes: int, limit_bytes: int
) -> NDArray[np.int64]:
    """Return the class numbers of a dataset's rows, without its inputs.

    Args:
        path: Of an ``.npz``, or of a zip of images with a folder for each class.
        wishes: The job description's ``parameters.preprocessing``; None: none.
        truth: Name of the array with the class numbers.
        classes: Of the model; 0: it does not state how many it has.
        limit_bytes: Maximum size of the array, unpacked.

    Raises:
        RunFailed: ``user_input``: as of `open_dataset` and `numbered`, or over the limit.
    """
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # as in open_dataset
        raise RunFailed("user_input", _no_dataset(path, error)) from error
    with archive:
        if array_names(archive):
            return _labels(read_arrays(path, [truth], limit_bytes=limit_bytes)[truth], path, truth)
        members = _safe_members(archive, path)
        how = parse_preprocessing(_description(archive, members, path), wishes)
        labels, _, folders = _labels_of_images(_classes_of_images(members, path, how), path, how)
        numbers = _folder_numbers(folders, classes) if folders else None
        return labels if numbers is None else numbers[labels]


def _safe_members(archive: zipfile.ZipFile, path: Path) -> List[zipfile.ZipInfo]:
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise _wrong(path, f"has more than {MAX_ENTRIES} entries")
    total = sum(info.file_size for info in infos)
    packed = sum(info.compress_size for info in infos)
    if total > MAX_UNPACKED_BYTES:
        raise _wrong(path, f"unpacks to {total} bytes; at most {MAX_UNPACKED_BYTES} are taken")
    if total > MAX_RATIO * max(packed, 1):
        raise _wrong(path, f"unpacks to over {MAX_RATIO} times its size")
    for info in infos:
        name = info.filename
        if name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts:
            raise _wrong(path, f"has an entry {name!r} that leads out of it")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise _wrong(path, f"has a link, {name!r}")
        if info.file_size > MAX_ENTRY_BYTES:
            raise _wrong(path, f"entry {name!r} is over {MAX_ENTRY_BYTES} bytes")
        if info.flag_bits & 1:
            raise _wrong(path, f"entry {name!r} is encrypted")
    return [info for info in infos if not info.is_dir()]


def _description(
    archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo], path: Path
) -> Optional[object]:
    tops = [one for one in members if PurePosixPath(one.filename).name == _DESCRIPTION]
    if not tops:
        return None
    nearest = min(tops, key=lambda one: one.filename.count("/"))
    if nearest.file_size > MAX_DESCRIPTION_BYTES:
        raise _wrong(path, f"has a {_DESCRIPTION} of over {MAX_DESCRIPTION_BYTES} bytes")
    try:
        found = parse_json(archive.read(nearest))
    except Exception as error:  # of the archive's decompressors too
        raise _wrong(path, f"has a {_DESCRIPTION} that is not JSON: {error}") from error
    return found


def _layout(spec: TensorSpec, how: Preprocessing) -> str:
    if how.layout is not None:
        return how.layout
    # channels are few: a last dimension of 1 or 3 with another second one means NHWC
    shape = spec.shape or ()
    last_is_channels = len(shape) == 4 and shape[3] in (1, 3)
    return "NHWC" if last_is_channels and shape[1] not in (1, 3) else "NCHW"


def _channel_axis(spec: TensorSpec, layout: Optional[str]) -> Optional[int]:
    if spec.shape is None or len(spec.shape) != 4:
        return 1 if spec.shape is not None and len(spec.shape) == 2 else None
    return 3 if _layout(spec, Preprocessing(layout=layout)) == "NHWC" else 1


def _spatial(spec: TensorSpec, how: Preprocessing, path: Path) -> Tuple[int, int]:
    if spec.shape is not None and len(spec.shape) == 4:
        first = 1 if _layout(spec, how) == "NHWC" else 2
        height, width = spec.shape[first], spec.shape[first + 1]
        if isinstance(height, int) and isinstance(width, int):
            return height, width
    raise _wrong(
        path,
        f"holds images, and input {spec.name!r} {_show(spec)} does not state their size; "
        'state it by preprocessing: {"resize": [height, width]}',
    )


def _labels(y: NDArray[np.generic], path: Path, name: str) -> NDArray[np.int64]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) == 0:
        raise _wrong(
            path,
            f"has {name!r} of shape {y.shape} and type {y.dtype}; expected class numbers, "
            "shape (rows,)",
        )
    labels = converted(y, np.dtype(np.int64), f"dataset {path.name!r}: {name!r}").astype(np.int64)
    if labels.min() < 0:
        raise _wrong(path, f"has a class number below 0 in {name!r}")
    return labels


def _check_shape(rows: NDArray[np.generic], spec: TensorSpec, what: str, path: Path) -> None:
    if not spec.takes(rows.shape, first=1):
        raise _wrong(
            path,
            f"has {what} with rows of shape {list(rows.shape[1:])}; "
            f"input {spec.name!r} expects rows of {_show(spec)}",
        )


def _input(spec: TensorSpec, path: Path) -> str:
    return f"dataset {path.name!r}: input {spec.name!r}"


def _show(spec: TensorSpec) -> str:
    return spec.shape_text(first=1)


def _wrong(path: Path, reason: str) -> RunFailed:
    return RunFailed("user_input", f"dataset {path.name!r} {reason}")
