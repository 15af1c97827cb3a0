"""The platform's own client, as PyPI has it, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
from onnx import TensorProto, helper, numpy_helper

from deploy.process import Server

VERSION = "1.2.12"
PASSWORD = "correct horse battery"

_SETUP = """\
api:
    url: "127.0.0.1"
    port: "{port}"
    base_path: ""
    ssl: false
user :
    email: "{email}"
    password: "{password}"
"""

_AROUND = """\
import json, os, sys
from daiedge_vlab import OnDeviceTrainingConfig, dAIEdgeVLabAPI
from daiedge_vlab.resources import ResourceConfigurator
globals().update(json.loads({names!r}))
results = {{}}

def wait_for_threads():
    import threading
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(120)

{body}
with open({answers!r}, "w") as file:
    json.dump(results, file, default=lambda value: value.decode("latin-1"))
"""


@dataclass(frozen=True)
class PlatformClient:
    """A user of the platform's client: scripts run in its environment and in its folder.

    Attributes:
        python: Of the environment.
        folder: Where scripts run; ``setup.yaml`` is there.
        names: Values that every script finds under these names.
    """

    python: Path
    folder: Path
    names: Mapping[str, object] = field(default_factory=dict)

    def run(self, script: str, *, timeout_s: float = 240.0) -> tuple[dict[str, Any], str]:
        """Run a script that fills ``results``; those, and all that was printed and logged."""
        answers = self.folder / f"results-{len(list(self.folder.iterdir()))}.json"
        body, names = textwrap.dedent(script), json.dumps(self.names)
        done = subprocess.run(
            [str(self.python), "-c", _AROUND.format(body=body, answers=str(answers), names=names)],
            cwd=self.folder,
            timeout=timeout_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
        )
        assert done.returncode == 0, done.stdout
        found = json.loads(answers.read_text())
        assert isinstance(found, dict)
        return found, done.stdout


@pytest.fixture(scope="session")
def client_python() -> Path:
    """Python with the client from PyPI; kept in the user's cache folder.

    Skips where PyPI can't be reached, but not in CI.
    """
    folder = Path(platformdirs.user_cache_dir("edgeyard")) / f"daiedge-vlab-{VERSION}"
    python = folder / "bin/python"
    if (folder / ".complete").exists():
        return python
    uv = (sys.executable, "-m", "uv")
    try:
        for step in (
            (*uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)),
            (*uv, "pip", "install", "--quiet", "--python", str(python), f"daiedge-vlab=={VERSION}"),
        ):
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=200)
    except (subprocess.SubprocessError, OSError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"PyPI can't be reached: {getattr(error, 'stderr', error)}")
    (folder / ".complete").touch()
    return python


def client_of(
    server: Server,
    python: Path,
    folder: Path,
    user_id: str,
    names: Mapping[str, object] | None = None,
) -> PlatformClient:
    """Make a user of a server, with an account and a ``setup.yaml``.

    Args:
        server: A running one.
        python: With the client.
        folder: For the client's files; made if need be.
        user_id: Of the new user.
        names: As of `PlatformClient`.
    """
    email = f"{user_id}@example.org"
    body = {"user_id": user_id, "email": email, "password": PASSWORD}
    server.call("POST", "/v1/users", body)
    folder.mkdir(parents=True, exist_ok=True)
    setup = _SETUP.format(port=server.port, email=email, password=PASSWORD)
    (folder / "setup.yaml").write_text(setup)
    return PlatformClient(python, folder, names or {})


def write_scaling_models(folder: Path, count: int) -> None:
    """Write ``times_0.onnx``, ``times_1.onnx``, ...: each multiplies four numbers by its own."""
    for factor in range(count):
        rows = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4])
            for name in ("x", "y")
        ]
        weight = numpy_helper.from_array(np.array(factor, np.float32), "factor")
        node = helper.make_node("Mul", ["x", "factor"], ["y"])
        graph = helper.make_graph([node], "times", rows[:1], rows[1:], [weight])
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        (folder / f"times_{factor}.onnx").write_bytes(model.SerializeToString())


def write_training(folder: Path, dataset: Path) -> None:
    """Write the four raw files of an on-device training, and ``odt.json``, which names them.

    Args:
        folder: The client's.
        dataset: An ``.npz`` with ``x`` and ``y``.
    """
    rows = np.load(dataset)
    x, y = rows["x"].astype(np.float32), rows["y"].astype(np.int64)
    for name, part in (("train", slice(0, 300)), ("test", slice(300, 400))):
        x[part].tofile(folder / f"{name}_x.bin")
        y[part].tofile(folder / f"{name}_y.bin")
    config = {
        "learning_parameters": {"batch_size": 32, "epochs": 3, "learning_rate": 0.1},
        "input": {
            "name": "input",
            "shape": list(x.shape[1:]),
            "dtype": "float32",
            "train_file": "train_x.bin",
            "test_file": "test_x.bin",
        },
        "output": {
            "name": "output",
            "shape": [1],
            "dtype": "int64",
            "train_file": "train_y.bin",
            "test_file": "test_y.bin",
        },
    }
    (folder / "odt.json").write_text(json.dumps(config))
