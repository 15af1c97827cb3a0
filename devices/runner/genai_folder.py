"""Folders of language models as onnxruntime-genai reads them, in an uncompressed zip archive.

``genai_config.json`` names the decoder's ONNX file and states context, vocabulary and end tokens.
It may also name libraries and devices, so that only what is known here is let through. Only the
standard library; Python 3.10.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Mapping, Sequence, Tuple

from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.json_text import parse_json
from edgeyard.devices.runner.model_archive import (
    ModelArchive,
    is_archive,
    open_archive,
)
from edgeyard.devices.runner.onnx_file import inspect, interface_of
from edgeyard.errors import RunFailed

CONFIG = "genai_config.json"
TOKENIZER = "tokenizer.json"
MAX_CONFIG_BYTES = 2**20
MAX_TOKENIZER_BYTES = 2**24
"""Larger ones are read on the board alone."""

_MAX_INT32 = 2**31 - 1

INPUTS = TensorSpec("input_ids", (None, None), "int64")
"""What a language model takes where it is run as other models are: prompts of one length."""

_SESSION_OPTIONS = frozenset(
    (
        *("log_id", "log_severity_level", "provider_options", "graph_optimization_level"),
        *("intra_op_num_threads", "inter_op_num_threads"),
        *("enable_cpu_mem_arena", "enable_mem_pattern"),
    )
)
"""Options of onnxruntime's session that name no file, no library and no device."""

_OTHER_PARTS = ("encoder", "vision", "speech", "embedding", "encoder_decoder_init")
_DECODER_KEYS = frozenset(("filename", "inputs", "outputs", "session_options", "sliding_window"))
_MIB = 2**20


@dataclass(frozen=True)
class GenaiFolder:
    """What ``genai_config.json`` and the names of the files state.

    Attributes:
        kind: The model's architecture, e.g. ``llama``.
        decoder: Name of its ONNX file.
        context_length: Tokens of prompt and output together that it takes.
        vocabulary: Number of token ids, from 0 on.
        logits: Name of the decoder's output that the next token is chosen from.
        has_tokenizer: Whether the folder has a tokenizer.
    """

    kind: str
    decoder: str
    context_length: int
    vocabulary: int
    logits: str
    has_tokenizer: bool


def read_files(archive: ModelArchive, *, max_fields: "int | None" = None) -> GenaiFolder:
    """Check the files of a folder; weights are not read.

    Args:
        archive: Opened with the suffix `CONFIG`.
        max_fields: Of the ONNX file, as for `edgeyard.devices.runner.onnx_file.inspect`.

    Raises:
        RunFailed: ``user_model``: what is there is no language model that this engine takes;
            ``engine_unsupported``: it is made for another device.
    """
    if archive.name != CONFIG:
        raise _wrong(f"holds {archive.name[:100]!r} and no {CONFIG}")
    found = _read_config(bytes(archive.model[: MAX_CONFIG_BYTES + 1]), archive.data)
    if found.has_tokenizer:
        _check_tokenizer(archive.data[TOKENIZER])
    decoder = archive.data[found.decoder]
    inspect(decoder, archive.data, max_fields=max_fields)
    for output in interface_of(decoder, max_fields=max_fields)[1]:
        tokens = output.shape[-1] if output.name == found.logits and output.shape else None
        if isinstance(tokens, int) and tokens != found.vocabulary:
            raise _bad(
                f"states a model.vocab_size of {found.vocabulary}, and the output "
                f"{output.name[:50]!r} of {found.decoder!r} has {tokens} tokens"
            )
    return found


def tokens_problem(
    shape: Sequence[int], low: int, high: int, *, context_length: int, vocabulary: int
) -> str:
    """Return why the engine does not take an array of prompts as token ids; "": it takes it.

    Args:
        shape: Prompts and tokens of each.
        low: The lowest id.
        high: The highest one.
        context_length: Tokens of prompt and output together that the model takes.
        vocabulary: Number of token ids, from 0 on.
    """
    if len(shape) != 2 or 0 in shape or shape[1] >= context_length:
        return f"takes one or more rows of 1 to {context_length - 1} tokens, but got {list(shape)}"
    if low < 0 or high >= vocabulary:
        wrong = low if low < 0 else high
        return f"takes token ids from 0 to {vocabulary - 1}, but got {wrong}"
    return ""


def is_genai_folder(folder: Path) -> bool:
    """Return whether a folder is one of a language model."""
    return (folder / CONFIG).is_file()


def open_genai(path: Path) -> "Tuple[ModelArchive, GenaiFolder]":
    """Map an archive of a folder, and check its files.

    Raises:
        RunFailed: As `read_files` and `edgeyard.devices.runner.model_archive.open_archive`.
    """
    if not is_archive(path):
        raise RunFailed(
            "user_model",
            f"the model is no archive: a language model is a folder with {CONFIG}, submitted as "
            "the folder or as an uncompressed zip of its files",
        )
    archive = open_archive(path, (CONFIG,))
    return archive, read_files(archive)


def unpack(archive: ModelArchive, folder: Path) -> None:
    """Write the files of an archive into an empty folder; their names were checked.

    Raises:
        RunFailed: ``out_of_memory``: there is no room for them; ``board_fault``: they can't be
            written.
    """
    parts = {archive.name: archive.model, **archive.data}
    needed, free = sum(map(len, parts.values())), shutil.disk_usage(folder).free
    if needed > free:
        raise RunFailed(
            "out_of_memory",
            f"the model's files take {needed // _MIB} MiB, and a run on this board has "
            f"room for {free // _MIB} MiB of them",
        )
    try:
        for name, content in parts.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(folder / name, flags, 0o600), "wb") as file:
                file.write(content)
    except OSError as error:
        raise RunFailed("board_fault", f"the model can't be unpacked: {error}") from error


def _read_config(content: bytes, others: Mapping[str, memoryview]) -> GenaiFolder:
    if len(content) > MAX_CONFIG_BYTES:
        raise _bad(f"has more than {MAX_CONFIG_BYTES} bytes")
    try:
        document = parse_json(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _bad(f"is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise _bad("is no JSON object")
    _only(document, frozenset(("model", "search")), "")
    model = _table(document, "model")
    parts = [name for name in _OTHER_PARTS if name in model]
    if parts:
        raise _bad(f"has the part {parts[0]!r}, and GENAI accepts only text models")
    _only(model, frozenset(("decoder", "type")), "model.")
    decoder = _table(model, "decoder")
    if "pipeline" in decoder:
        raise _bad("has a decoder in several files (pipeline), which is not accepted")
    _only(decoder, _DECODER_KEYS, "model.decoder.")
    _check_session(decoder)
    filename = decoder.get("filename")
    if not isinstance(filename, str):
        raise _bad("does not state model.decoder.filename")
    if filename not in others:
        raise _wrong(f"has no file {filename[:100]!r}, which its {CONFIG} names")
    end = model.get("eos_token_id", [])
    ends: List[Any] = end if isinstance(end, list) else [end]
    if not all(type(each) is int and 0 <= each <= _MAX_INT32 for each in ends):
        raise _bad("has a model.eos_token_id that is no token id")
    kind = model.get("type")
    if not isinstance(kind, str) or not kind:
        raise _bad("does not state model.type")
    vocabulary = _count(model, "vocab_size")
    if max(ends, default=0) >= vocabulary:
        raise _bad(
            f"states the token {max(ends)} in model.eos_token_id, and its ids go from 0 to "
            f"{vocabulary - 1} (model.vocab_size)"
        )
    if len(set(ends)) == vocabulary:
        raise _bad(
            f"has all {vocabulary} tokens in model.eos_token_id: each output ends at its first "
            "token, so that none can be measured"
        )
    outputs = decoder.get("outputs")
    logits = outputs.get("logits") if isinstance(outputs, dict) else None
    return GenaiFolder(
        kind=kind,
        decoder=filename,
        context_length=_count(model, "context_length"),
        vocabulary=vocabulary,
        logits=logits if isinstance(logits, str) else "logits",
        has_tokenizer=TOKENIZER in others,
    )


def _check_tokenizer(content: memoryview) -> None:
    """Refuse what the engine could not read, also where prompts are token ids."""
    if len(content) > MAX_TOKENIZER_BYTES:
        return
    try:
        document = json.loads(bytes(content).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _wrong(f"has a {TOKENIZER} that is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise _wrong(f"has a {TOKENIZER} that is no JSON object")


def _check_session(decoder: Mapping[str, object]) -> None:
    options = _table(decoder, "session_options") if "session_options" in decoder else {}
    _only(options, _SESSION_OPTIONS, "model.decoder.session_options.")
    providers = options.get("provider_options", [])
    if not isinstance(providers, list) or not all(isinstance(each, dict) for each in providers):
        raise _bad("has model.decoder.session_options.provider_options that are no list of objects")
    named = [name for each in providers for name in each]
    if named:
        raise RunFailed(
            "engine_unsupported",
            f"the model's {CONFIG} is made for {named[0][:50]}, and engine ort-genai runs on the "
            "CPU: build the folder for cpu",
        )


def _only(table: Mapping[str, object], known: "frozenset[str]", where: str) -> None:
    """Refuse unknown objects and texts, which may name files, and numbers that don't fit 32 bits.

    Other numbers name nothing.
    """
    for name in sorted(set(table) - known):
        value = table[name]
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, int) and abs(each) > _MAX_INT32:
                raise _bad(f"states {each} as {where}{name[:50]}, which does not fit 32 bits")
            if each is not None and not isinstance(each, (bool, int, float)):
                raise _bad(f"has {where}{name[:50]}, which is not accepted")


def _table(of: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = of.get(key)
    if not isinstance(value, dict):
        raise _bad(f"has no object {key!r}")
    return value


def _count(model: Mapping[str, object], key: str) -> int:
    value = model.get(key)
    if type(value) is not int or not 1 <= value <= _MAX_INT32:
        raise _bad(f"does not state model.{key} as a whole number from 1 on")
    return value


def _bad(reason: str) -> RunFailed:
    return RunFailed("user_model", f"the model's {CONFIG} {reason}")


def _wrong(reason: str) -> RunFailed:
    return RunFailed("user_model", f"the model's folder {reason}")
