"""The small language model of the demo, and what can be wrong with such a folder."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from edgeyard.benchmark_api.sdk.model_folder import packed
from tests.builders.networks import DEMO

TINY_LLAMA = DEMO / "tiny_llama"
CONTEXT, VOCABULARY = 1024, 259

Config = dict[str, Any]


def folder_of(path: Path, change: Callable[[Config], None] = lambda config: None) -> Path:
    """Copy the folder, with a changed ``genai_config.json``."""
    shutil.copytree(TINY_LLAMA, path)
    config = json.loads((path / "genai_config.json").read_text("utf-8"))
    change(config)
    (path / "genai_config.json").write_text(json.dumps(config), "utf-8")
    return path


def archive_of(path: Path, change: Callable[[Config], None] = lambda config: None) -> Path:
    """Return the archive of a copy of the folder."""
    return packed(folder_of(path, change))


def unchecked_archive(folder: Path) -> Path:
    """Return an archive of all files of a folder, as a client that checks nothing makes it."""
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(folder.iterdir()):
            archive.write(each, each.name)
    return path


def with_nan(path: Path) -> Path:
    """Return the archive of a folder whose weights are not numbers."""
    folder = folder_of(path)
    weights = folder / "model.onnx.data"
    weights.write_bytes(b"\xff\xff\xff\x7f" * (weights.stat().st_size // 4))
    return packed(folder)


def with_unknown_operator(path: Path) -> Path:
    """Return the archive of a folder whose decoder has an operator that no runtime has."""
    folder = folder_of(path)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "MatMul").op_type = "Teleport"
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return packed(folder)


def ends_at_once(config: Config) -> None:
    """Make every token an end token."""
    config["model"]["eos_token_id"] = list(range(VOCABULARY))
