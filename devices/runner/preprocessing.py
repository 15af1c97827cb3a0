"""How a dataset's rows become a model's input: a small schema.

It is the ``dataset.json`` at the top of an image zip, or ``parameters.preprocessing`` of the job
description, whose members win over those of the file. All members may be left out::

    {"version": 1,
     "resize": [256, 256],        images: height and width; default: as the model takes them
     "crop": [224, 224],          images: the middle, after resizing
     "interpolation": "bilinear", images: or "nearest", "bicubic"
     "color": "RGB",              images: or "BGR", "L" (one channel)
     "orientation": "exif",       images: upright as the file states; or "stored"
     "alpha": [255, 255, 255],    images: the colour behind transparent pixels; or "ignore", so
                                  that their own colours count; default: they are refused
     "max_value": 65535,          images of more than 8 bits: the value that is white; default: of
                                  16 bits the largest, others are refused
     "subset": "val",             images: only those in this folder; default: all
     "class_folder": "innermost", images: or "outermost", or the number of the folder from outside;
                                  default: the only possible one
     "layout": "NCHW",            images: or "NHWC"; default: by the model's shape
     "scale": 0.00392156862745,   every value is multiplied by it; images: default 1/255
     "mean": [0.485, 0.456, 0.406], then it is subtracted, one a channel or one for all
     "std": [0.229, 0.224, 0.225],  then it is divided by it
     "labels": ["cat", "dog"],    images: class number by folder; or {"cat": 0, "dog": 1};
                                  default: folders in alphabetical order
     "top_k": [1, 5],             which accuracies are reported
     "output": "logits"}          model output with one score a class; default: the first
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import RunFailed

KEYS = (
    "version",
    "resize",
    "crop",
    "interpolation",
    "color",
    "orientation",
    "alpha",
    "max_value",
    "subset",
    "class_folder",
    "layout",
    "scale",
    "mean",
    "std",
    "labels",
    "top_k",
    "output",
)
_MAX_PIXELS = 16384
_MAX_FOLDERS = 64
INNERMOST, OUTERMOST = "innermost", "outermost"
"""Folders that may name the class of an image."""

DEFAULT_TOP_K = (1, 5)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """A checked description of the preprocessing of images; None where a step is not stated."""

    resize: Optional[Tuple[int, int]] = None
    crop: Optional[Tuple[int, int]] = None
    interpolation: str = "bilinear"
    color: str = "RGB"
    orientation: str = "exif"
    alpha: Union[str, Tuple[int, ...], None] = None
    max_value: Optional[float] = None
    subset: Optional[str] = None
    class_folder: Union[str, int, None] = None
    layout: Optional[str] = None
    scale: Optional[float] = None
    mean: Optional[Tuple[float, ...]] = None
    std: Optional[Tuple[float, ...]] = None
    labels: Optional[Mapping[str, int]] = None
    top_k: Tuple[int, ...] = DEFAULT_TOP_K
    output: Optional[str] = None

    @property
    def changes_values(self) -> bool:
        """Whether values are touched at all; if not, rows go to the model as they are."""
        return not (self.scale is None and self.mean is None and self.std is None)

    def apply(
        self, rows: NDArray[np.generic], *, channel_axis: Optional[int]
    ) -> NDArray[np.float32]:
        """Scale, then mean, then std, in float32.

        Args:
            rows: Shape (rows, ...).
            channel_axis: Where mean and std of several channels belong; None: nowhere.
        """
        values = rows.astype(np.float32)
        if self.scale is not None:
            values *= np.float32(self.scale)
        if self.mean is not None:
            values -= _along(self.mean, values, channel_axis, "mean")
        if self.std is not None:
            values /= _along(self.std, values, channel_axis, "std")
        return values


def parse_preprocessing(*documents: object) -> Preprocessing:
    """Return the schema's documents, later ones over earlier ones.

    Raises:
        RunFailed: ``user_input``, naming the member.
    """
    merged: dict[str, object] = {}
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise _wrong("", "not an object")
        merged.update(document)
    unknown = sorted(set(merged) - set(KEYS))
    if unknown:
        raise _wrong(unknown[0], f"not known; known are {', '.join(KEYS)}")
    if merged.get("version", 1) != 1:
        raise _wrong("version", "only 1 is known")
    scale = merged.get("scale")
    std = _numbers("std", merged.get("std"))
    if std is not None and 0 in std:
        raise _wrong("std", "holds a 0, which nothing can be divided by")
    return Preprocessing(
        resize=_size("resize", merged.get("resize")),
        crop=_size("crop", merged.get("crop")),
        interpolation=_choice(merged, "interpolation", ("bilinear", "nearest", "bicubic")),
        color=_choice(merged, "color", ("RGB", "BGR", "L")),
        orientation=_choice(merged, "orientation", ("exif", "stored")),
        alpha=_alpha(merged.get("alpha")),
        max_value=_max_value(merged.get("max_value")),
        subset=_text("subset", merged.get("subset")),
        class_folder=_class_folder(merged.get("class_folder")),
        layout=_choice(merged, "layout", ("NCHW", "NHWC")) if "layout" in merged else None,
        scale=None if scale is None else _number("scale", scale),
        mean=_numbers("mean", merged.get("mean")),
        std=std,
        labels=_labels(merged.get("labels")),
        top_k=_top_k(merged.get("top_k")),
        output=_text("output", merged.get("output")),
    )


def _along(
    values: Sequence[float], rows: NDArray[np.float32], axis: Optional[int], key: str
) -> NDArray[np.float32]:
    array = np.array(values, dtype=np.float32)
    if len(array) == 1:
        return array
    if axis is None or rows.shape[axis] != len(array):
        has = "no channels" if axis is None else f"{rows.shape[axis]} channels"
        raise _wrong(key, f"has {len(array)} values; the rows have {has}")
    shape = [1] * rows.ndim
    shape[axis] = len(array)
    return array.reshape(shape)


def _size(key: str, value: object) -> Optional[Tuple[int, int]]:
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(type(one) is int and 0 < one <= _MAX_PIXELS for one in value)
    ):
        raise _wrong(key, f"not [height, width] with 1 to {_MAX_PIXELS} pixels")
    return value[0], value[1]


def _alpha(value: object) -> Union[str, Tuple[int, ...], None]:
    if value is None or value == "ignore":
        return None if value is None else "ignore"
    if (
        not isinstance(value, list)
        or len(value) != 3
        or not all(type(one) is int and 0 <= one <= 255 for one in value)
    ):
        raise _wrong("alpha", "not a colour [red, green, blue], each from 0 to 255, or ignore")
    return tuple(value)


def _max_value(value: object) -> Optional[float]:
    if value is None:
        return None
    number = _number("max_value", value)
    if number <= 0:
        raise _wrong("max_value", f"{value!r} is not above 0")
    return number


def _class_folder(value: object) -> Union[str, int, None]:
    if value is None or (isinstance(value, str) and value in (INNERMOST, OUTERMOST)):
        return value
    if type(value) is not int or not 1 <= value <= _MAX_FOLDERS:
        raise _wrong(
            "class_folder",
            f"{value!r} is not {INNERMOST}, {OUTERMOST} or a whole number from 1 to {_MAX_FOLDERS}",
        )
    return value


def _choice(document: Mapping[str, object], key: str, accepted: Tuple[str, ...]) -> str:
    value = document.get(key, accepted[0])
    if not isinstance(value, str) or value not in accepted:
        raise _wrong(key, f"{value!r} is not one of {', '.join(accepted)}")
    return value


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _wrong(key, f"{value!r} is not a number")
    return float(value)


def _numbers(key: str, value: object) -> Optional[Tuple[float, ...]]:
    if value is None:
        return None
    values: Union[list[object], object] = value if isinstance(value, list) else [value]
    if not isinstance(values, list) or not values:
        raise _wrong(key, "not a number or a list of numbers")
    return tuple(_number(key, one) for one in values)


def _labels(value: object) -> Optional[Mapping[str, int]]:
    if value is None:
        return None
    if isinstance(value, list):
        value = {name: index for index, name in enumerate(value) if isinstance(name, str)}
    if not isinstance(value, dict) or not all(
        type(index) is int and index >= 0 for index in value.values()
    ):
        raise _wrong("labels", 'not a list of names or an object such as {"cat": 0}')
    return value


def _top_k(value: object) -> Tuple[int, ...]:
    if value is None:
        return DEFAULT_TOP_K
    if (
        not isinstance(value, list)
        or not value
        or not all(type(one) is int and 0 < one <= 1000 for one in value)
    ):
        raise _wrong("top_k", "not a list of whole numbers from 1 to 1000")
    return tuple(sorted({1, *value}))


def _text(key: str, value: object) -> Optional[str]:
    if value is not None and not isinstance(value, str):
        raise _wrong(key, "not a string")
    return value


def _wrong(key: str, reason: str) -> RunFailed:
    return RunFailed("user_input", f"preprocessing{'/' if key else ''}{key}: {reason}")
