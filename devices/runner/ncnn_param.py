"""What an ncnn model's ``.param`` file states of itself, without ncnn.

A text of lines: a magic number, the numbers of layers and of blobs, then one line a layer: its
type and name, how many blobs it takes and gives, their names, and parameters ``number=value``.
Lines, layers and blobs are bounded, because ncnn itself trusts them. Only the standard library;
Python 3.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.file_kind import HEAD_BYTES, PARAM_MAGIC, mismatch
from edgeyard.errors import RunFailed

MAX_BYTES = 64 * 2**20
MAX_LINE_BYTES = 2**16
MAX_LAYERS = 100_000
MAX_BLOBS = 1_000_000
MAX_BLOBS_OF_LAYER = 4096
MAX_NAME = 255
"""Longer names overflow a buffer of older versions of ncnn."""

MAX_SIZE = 2**24
INPUT = "Input"

_COUNT = re.compile(r"[0-9]{1,9}")
_WORD = re.compile(r'[^\s"]*"[^"]*"|\S+')
"""A word; a text in quotation marks is part of one, with its blanks."""

_PARAMETER = re.compile(r"(-?[0-9]{1,9})=(.+)", re.DOTALL)
_WIDTH, _HEIGHT, _CHANNELS, _DEPTH = 0, 1, 2, 11
"""Parameters of the layer ``Input``."""


@dataclass(frozen=True)
class ParamFacts:
    """What a ``.param`` file states.

    Attributes:
        inputs: float32, with an open first dimension for the rows, which ncnn does not know; the
            shape is None where the file does not state it.
        outputs: Names of the blobs that no layer takes.
        layers: Number of them.
        operators: Number of layers by type.
    """

    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[str, ...]
    layers: int
    operators: Mapping[str, int]


def read_param(content: "bytes | memoryview", *, max_layers: int = MAX_LAYERS) -> ParamFacts:
    """Read the content of a ``.param`` file.

    Args:
        max_layers: Maximum number of layers.

    Raises:
        RunFailed: ``user_model``: not such a file, damaged, or over a limit.
    """
    if len(content) > MAX_BYTES:
        raise _wrong(f"has {len(content)} bytes; at most {MAX_BYTES} are accepted")
    text = bytes(content)
    if text.split(b"\n", 1)[0].strip() != PARAM_MAGIC:
        sentence = mismatch("the model", "an ncnn .param file", text[:HEAD_BYTES])
        if sentence is not None and not text.startswith(PARAM_MAGIC):
            raise RunFailed("user_model", sentence)
        raise _wrong("does not begin with 7767517")
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise _wrong("is no text") from error
    if any(len(line) > MAX_LINE_BYTES for line in lines):
        raise _wrong(f"has a line of more than {MAX_LINE_BYTES} characters")
    rows = [_WORD.findall(line) for line in lines[1:] if line.strip()]
    layers, blobs = _counts(rows[0] if rows else [])
    if len(rows) - 1 != layers:
        raise _wrong(f"states {layers} layers and has {len(rows) - 1}")
    if blobs > MAX_BLOBS:
        raise _wrong(f"has more than {MAX_BLOBS} blobs")
    if layers > max_layers:
        raise _wrong(f"has more than {max_layers} layers")
    return _read_layers(rows[1:], blobs)


def _read_layers(rows: Sequence[Sequence[str]], blobs: int) -> ParamFacts:
    inputs: List[TensorSpec] = []
    operators: Dict[str, int] = {}
    unused: Dict[str, None] = {}
    made = set()
    for row in rows:
        kind, name, takes, gives, parameters = _layer(row)
        operators[kind] = operators.get(kind, 0) + 1
        for blob in takes:
            if blob not in made:
                raise _wrong(f"has the layer {name!r}, which takes {blob!r} before it is made")
            unused.pop(blob, None)
        for blob in gives:
            if blob in made:
                raise _wrong(f"makes the blob {blob!r} twice")
            made.add(blob)
            unused[blob] = None
        if kind == INPUT:
            if takes or len(gives) != 1:
                raise _wrong(f"has the input {name!r}, which is not one blob")
            inputs.append(TensorSpec(gives[0], _input_shape(name, parameters), "float32"))
    if len(made) != blobs:
        raise _wrong(f"states {blobs} blobs and makes {len(made)}")
    names = {spec.name for spec in inputs}
    outputs = tuple(blob for blob in unused if blob not in names)
    if not inputs or not outputs:
        raise _wrong("has no input" if not inputs else "has no output")
    return ParamFacts(tuple(inputs), outputs, len(rows), dict(sorted(operators.items())))


def _counts(row: Sequence[str]) -> Tuple[int, int]:
    if len(row) != 2 or not all(_COUNT.fullmatch(word) for word in row):
        raise _wrong("does not state how many layers and blobs it has")
    return int(row[0]), int(row[1])


def _layer(
    row: Sequence[str],
) -> Tuple[str, str, Sequence[str], Sequence[str], Mapping[int, str]]:
    """Return type, name, blobs that it takes, blobs that it gives, and parameters."""
    if len(row) < 4 or not all(_COUNT.fullmatch(word) for word in row[2:4]):
        raise _wrong(f"has a line that is no layer: {' '.join(row)[:100]!r}")
    kind, name = row[:2]
    takes, gives = int(row[2]), int(row[3])
    blobs = row[4 : 4 + takes + gives]
    if max(takes, gives) > MAX_BLOBS_OF_LAYER or len(blobs) != takes + gives:
        raise _wrong(f"has the layer {name[:100]!r}, whose line does not name all its blobs")
    if any(len(word) > MAX_NAME for word in (kind, name, *blobs)):
        raise _wrong(f"has a name of more than {MAX_NAME} characters")
    parameters = {}
    for word in row[4 + takes + gives :]:
        match = _PARAMETER.fullmatch(word)
        if match is None:
            raise _wrong(f"has the layer {name!r} with {word[:100]!r}, which is no parameter")
        parameters[int(match.group(1))] = match.group(2)
    return kind, name, blobs[:takes], blobs[takes:], parameters


def _input_shape(name: str, parameters: Mapping[int, str]) -> "Optional[Tuple[Optional[int], ...]]":
    """Return the shape in NumPy's order, the rows first; None where it is not stated."""
    order = (_CHANNELS, _DEPTH, _HEIGHT, _WIDTH)
    stated = [parameters.get(number, "0") for number in order]
    if not all(_COUNT.fullmatch(size) and int(size) <= MAX_SIZE for size in stated):
        raise _wrong(f"has the input {name!r}, whose size is no number up to {MAX_SIZE}")
    sizes = [int(size) for size in stated if int(size)]
    return (None, *sizes) if sizes else None


def _wrong(reason: str) -> RunFailed:
    return RunFailed("user_model", f"the ncnn model {reason}")
