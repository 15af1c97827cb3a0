"""LiteRT's interpreter behind engine ``tflite``: parameters, loading, errors translated."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeyard.devices.runner.engine_parameters import bad_parameter, check_names, read_threads
from edgeyard.devices.runner.file_kind import HEAD_BYTES, mismatch
from edgeyard.errors import RunFailed

PARAMETERS = ("threads", "xnnpack", "signature")

_MAX_FILE_BYTES = 2**31 - 1
_IDENTIFIER = b"TFL3"

_NEWER_OPERATOR = re.compile(r"Didn't find op for builtin opcode '([^']+)' version '(\d+)'")
_CUSTOM_OPERATOR = re.compile(r"unresolved custom op: (\S+?)\.?\s")
_TENSORFLOW_OPERATOR = re.compile(
    r"Select TensorFlow op\(s\).*Node number \d+ \((\S+)\)", re.DOTALL
)
"""How LiteRT reports operators that it lacks; the last ones are of models that were converted with
TensorFlow's own operators allowed."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The engine's parameters, checked."""

    threads: int
    xnnpack: bool = True
    signature: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, object], threads: int) -> "Options":
        """Read the job description's parameters.

        Raises:
            RunFailed: ``user_input``: a parameter that is unknown, or has a wrong value.
        """
        check_names(parameters, PARAMETERS, "tflite")
        xnnpack = parameters.get("xnnpack", True)
        if not isinstance(xnnpack, bool):
            raise bad_parameter("xnnpack", "is not true or false")
        signature = parameters.get("signature", "")
        if not isinstance(signature, str):
            raise bad_parameter("signature", "is not the name of a signature")
        return cls(threads=read_threads(parameters, threads), xnnpack=xnnpack, signature=signature)


def read_model(model: Path) -> bytes:
    """Return the file's content.

    Raises:
        RunFailed: ``user_model``: empty, over the format's limit, or no tflite file.
    """
    size = model.stat().st_size
    if size == 0:
        raise RunFailed("user_model", "the model file is empty")
    if size > _MAX_FILE_BYTES:
        raise RunFailed("user_model", f"the tflite file has {size} bytes, over {_MAX_FILE_BYTES}")
    content = model.read_bytes()
    if content[4:8] != _IDENTIFIER:
        found = mismatch("the model", "a TensorFlow Lite file", content[:HEAD_BYTES])
        raise RunFailed(
            "user_model",
            found or "the model is not a TensorFlow Lite file: its identifier TFL3 is missing",
        )
    return content


def interpreter_of(content: bytes, options: Options) -> Any:
    """Return an interpreter of ai-edge-litert with the model loaded.

    Raises:
        RunFailed: ``engine_unsupported`` where the package is missing; ``user_model``.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError as error:
        raise RunFailed(
            "engine_unsupported",
            f"engine tflite needs the package ai-edge-litert ({error}): pip install ai-edge-litert",
        ) from error
    resolver = OpResolverType.AUTO
    if not options.xnnpack:
        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return translated(
        "load",
        lambda: Interpreter(
            model_content=content,
            num_threads=options.threads,
            experimental_op_resolver_type=resolver,
        ),
    )


def translated(doing: str, call: Callable[..., Any], *arguments: object) -> Any:
    """Return what a call into LiteRT returns, its errors as ours.

    Raises:
        RunFailed: ``out_of_memory``, ``engine_unsupported`` or ``user_model``.
    """
    try:
        return call(*arguments)
    except MemoryError as error:
        raise RunFailed("out_of_memory", f"no memory left to {doing} the model") from error
    except (RuntimeError, ValueError, TypeError, LookupError, OSError) as error:
        text = " ".join(str(error).split())[:300] or "it is damaged"
        if "bad_alloc" in text or ("llocat" in text and "fail" in text.lower()):
            raise RunFailed("out_of_memory", f"no memory left to {doing} the model") from error
        if missing := _missing_operator(str(error)):
            raise RunFailed("engine_unsupported", f"this LiteRT has no {missing}") from error
        raise RunFailed("user_model", f"LiteRT can't {doing} the model: {text}") from error


def _missing_operator(text: str) -> str:
    """Return which operator an error of LiteRT reports as missing; "" where it reports none."""
    if found := _NEWER_OPERATOR.search(text):
        return f"operator {found[1]!r} of version {found[2]}"
    if found := _CUSTOM_OPERATOR.search(text):
        return f"operator {found[1]!r}"
    found = _TENSORFLOW_OPERATOR.search(text)
    return f"operator {found[1]!r}, which is TensorFlow's own" if found else ""
