"""Task folders, models, and a small upload server for tests of the runner."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeyard.devices.runner.engine import TrainingEngine
from edgeyard.devices.runner.engines import find
from tests.builders.web import QuietHandler, serving

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
TOKEN = "upload-token-of-this-attempt"

Answer = Callable[[str, int], int | None]
"""``answer(name, nth)``: status of the nth call for a file; 0: cut it off; None: take it."""


@dataclass
class UploadServer:
    """What was uploaded and reported; ``answer`` makes it misbehave."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    tokens: set[str | None] = field(default_factory=set)
    answer: Answer = lambda name, nth: None

    @property
    def report(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.files["report.json"])
        return loaded


@contextmanager
def upload_server() -> Iterator[UploadServer]:
    """A server in a thread of this process."""
    server = UploadServer()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            name = self.path.rsplit("/", 1)[1]
            server.calls[name] = server.calls.get(name, 0) + 1
            status = server.answer(name, server.calls[name])
            size = int(self.headers["Content-Length"])
            if status == 0:
                self.rfile.read(size // 2)
                self.close_connection = True
                self.connection.close()
                return
            body = self.rfile.read(size)
            server.tokens.add(self.headers["Authorization"])
            if status is None:
                status = 201
                if hashlib.sha256(body).hexdigest() != self.headers["X-Content-SHA256"]:
                    status = 400
                else:
                    server.files[name] = body
                    server.order.append(name)
            self.answer(status=status)

        def do_POST(self) -> None:
            server.progress.append(json.loads(self.body()))
            self.answer(status=204)

    with serving(Handler) as server.url:
        yield server


@dataclass
class Task:
    """A task's folder with what the cluster would put there; a legacy one writes no spec.json."""

    folder: Path
    server: UploadServer
    spec: dict[str, Any]
    board: dict[str, Any]
    legacy: bool = False

    @property
    def local(self) -> Path:
        return self.folder / "local"

    @property
    def token_file(self) -> Path:
        return self.folder / "secrets" / "token.env"

    @property
    def environ(self) -> dict[str, str]:
        model, datasets = self.spec["model"]["filename"], self.spec["datasets"]
        return {
            **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
            "NOMAD_ALLOC_ID": "alloc-1",
            "NOMAD_NODE_ID": "node-1",
            "NOMAD_TASK_DIR": str(self.local),
            "TARGET": "rpi4b",
            "RUNTIME": self.spec["engine"],
            "VERSION_TAG": "",
            "NB_INFERENCE": str(self.spec["nb_inference"]),
            "BENCHMARK_TYPE": self.spec["benchmark_type"],
            "MODEL_FILENAME": model,
            "DATASET_FILENAME": datasets[0]["filename"] if datasets else "",
            "ODT_CONFIG_FILENAME": "",
            "RESULTS_PUB_URL": f"{self.server.url}/upload/rpi4b-ort-20250813091714-abc/",
            "NOMAD_SECRETS_DIR": str(self.folder / "secrets"),
            "EDGEYARD_BOARD": json.dumps(self.board),
        }

    def start(self, *command: str, **changes: str) -> subprocess.Popen[bytes]:
        """The runner as a process; ``changes`` of its environment."""
        if not self.legacy:
            (self.local / "spec.json").write_text(json.dumps(self.spec))
            self.token_file.parent.mkdir(exist_ok=True)
            self.token_file.write_text(f"EDGEYARD_UPLOAD_TOKEN={TOKEN}\n")
        return subprocess.Popen(
            command or (sys.executable, "-m", "edgeyard.devices.runner"),
            env={**self.environ, **changes},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *command: str, **changes: str) -> tuple[int, str]:
        """Exit status and output of a whole run."""
        process = self.start(*command, **changes)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output.decode()

    def complete(self, *command: str, **changes: str) -> str:
        """Output of a whole run that ends well."""
        code, output = self.run(*command, **changes)
        assert code == 0, output
        return output


def make_task(
    folder: Path,
    server: UploadServer,
    model: Path | bytes,
    *,
    datasets: Mapping[str, Path] | None = None,
    board: Mapping[str, object] | None = None,
    **changes: object,
) -> Task:
    """A task folder for a model; ``changes`` of ``spec.json``."""
    local = folder / "local"
    local.mkdir(parents=True, exist_ok=True)
    content = model if isinstance(model, bytes) else model.read_bytes()
    (local / "model.onnx").write_bytes(content)
    stored = []
    for name, path in (datasets or {}).items():
        (local / name).write_bytes(path.read_bytes())
        stored.append(_ref(local / name))
    spec: dict[str, Any] = {
        "version": 1,
        "benchmark_id": "bench-1",
        "attempt": 1,
        "job_id": "benchmark-rpi4b-ort-20250813091714-abc",
        "engine": "ort",
        "benchmark_type": "TYPE1",
        "model": _ref(local / "model.onnx"),
        "datasets": stored,
        "odt_config": None,
        "nb_inference": 30,
        "precision": None,
        "input": {},
        "parameters": {},
        "user_time_s": 60.0,
        "no_output_timeout_s": 60.0,
        "upload_url": f"{server.url}/upload/rpi4b-ort-20250813091714-abc/",
        "progress_url": f"{server.url}/v1/runs/rpi4b-ort-20250813091714-abc/progress",
    }
    facts: dict[str, Any] = {
        "target_uid": "rpi4b-0001-0001",
        "family": "rpi4b",
        "cpus": [],
        "threads": 1,
        "progress_file": str(folder / "progress"),
        "emulated": True,
    }
    return Task(folder, server, {**spec, **changes}, {**facts, **(board or {})})


def _ref(path: Path) -> dict[str, object]:
    content = path.read_bytes()
    return {
        "filename": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": len(content),
    }


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, list[int | str | None]],
    outputs: Mapping[str, list[int | str | None]],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    dtype: int = TensorProto.FLOAT,
) -> bytes:
    """An ONNX file of a few nodes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


def linear_model(weights: np.ndarray[Any, Any], batch: int | str | None = "batch") -> bytes:
    """``scores = x @ weights``."""
    rows, classes = weights.shape
    return model_of(
        [helper.make_node("MatMul", ["x", "w"], ["scores"])],
        {"x": [batch, rows]},
        {"scores": [batch, classes]},
        {"w": weights.astype(np.float32)},
    )


def nan_model() -> bytes:
    """Answers NaN to everything: log of a negative number."""
    return model_of(
        [
            helper.make_node("Abs", ["x"], ["a"]),
            helper.make_node("Neg", ["a"], ["n"]),
            helper.make_node("Sub", ["n", "one"], ["m"]),
            helper.make_node("Log", ["m"], ["y"]),
        ],
        {"x": [1, 4]},
        {"y": [1, 4]},
        {"one": np.ones(1, np.float32)},
    )


def bomb_model(elements: int) -> bytes:
    """A few bytes that want ``4 * elements`` bytes of memory when they run."""
    return model_of(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        {"x": [1]},
        {"y": [None]},
        {"shape": np.array([elements], np.int64)},
    )


def training_engine(name: str) -> TrainingEngine:
    """Return a built-in engine that trains."""
    engine = find(name)
    assert isinstance(engine, TrainingEngine)
    return engine
