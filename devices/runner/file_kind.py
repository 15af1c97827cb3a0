"""Recognise by its first bytes what a file is instead of a model or a dataset.

Only the standard library; Python 3.10.
"""

from typing import Optional

HEAD_BYTES = 512
"""Number of bytes from the start of a file that `foreign_kind` needs."""

TFLITE = "a TensorFlow Lite model"
IR = "an OpenVINO IR model"
PARAM = "an ncnn model (.param)"
GENAI = "a language model with genai_config.json"
PARAM_MAGIC = b"7767517"
"""First line of the text form of ncnn's models."""

_SIGNATURES = (
    (0, b"PK\x03\x04", "a ZIP archive (of PyTorch or Keras, for example)"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (of Keras, for example)"),
    (0, b"version https://git-lfs", "a Git LFS pointer"),
    (4, b"TFL3", TFLITE),
    (0, PARAM_MAGIC, PARAM),
)
_ADVICE = {
    "a web page": "check that the URL it comes from leads to the file itself and needs no login",
    "JSON text": "check that the URL it comes from leads to the file itself and needs no login",
    "a Git LFS pointer": "fetch the file itself with `git lfs pull`",
}


def foreign_kind(head: bytes) -> Optional[str]:
    """Name the kind of a file that is not what it should be.

    Args:
        head: Its first `HEAD_BYTES`, or all of it.

    Returns:
        The kind with its article, for example "a web page"; None where it is not recognised.
    """
    for position, signature, kind in _SIGNATURES:
        if head[position : position + len(signature)] == signature:
            return kind
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if is_ir(head):
        return IR
    if text.startswith((b"<!doctype html", b"<html", b"<?xml")):
        return "a web page"
    return "JSON text" if text.startswith((b"{", b"[")) else None


def is_ir(head: bytes) -> bool:
    """Return whether a file begins as an OpenVINO IR model: XML whose root is ``net``."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<?xml"):
        text = text.partition(b"?>")[2].lstrip()
    return text.startswith((b"<net ", b"<net>"))


def mismatch(what: str, expected: str, head: bytes) -> Optional[str]:
    """Say what a file is instead of what is expected, and what to do about it.

    Args:
        what: The file as the subject of the sentence, for example "the model".
        expected: The expected kind with its article, for example "an ONNX file".
        head: Its first `HEAD_BYTES`, or all of it.

    Returns:
        A sentence; None where the kind of the file is not recognised.
    """
    kind = foreign_kind(head)
    if kind is None:
        return None
    advice = _ADVICE.get(kind)
    return f"{what} is {kind}, not {expected}" + (f": {advice}" if advice else "")
