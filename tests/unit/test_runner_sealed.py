"""What the runner inspects is what the engine loads, and it is no memory of the model's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgeyard.devices.runner.sealed import sealed
from edgeyard.errors import RunFailed

SIZE_BYTES = 64 * 2**20

_LOAD = """
import sys
from pathlib import Path
from edgeyard.devices.runner import board, engines
engine = engines.find("ort")
before = board.memory_bytes()["VmRSS"]
session = engine.load(Path(sys.argv[1]), threads=1, parameters={})
print(board.memory_bytes()["VmHWM"] - before)
"""


def test_nobody_changes_a_sealed_copy(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"inspected")
    with sealed(file) as copy:
        file.write_bytes(b"another model")
        assert copy.read_bytes() == b"inspected"
        with pytest.raises(PermissionError):
            copy.write_bytes(b"another model")
        assert copy.read_bytes() == b"inspected"
    assert not copy.exists()


def test_a_file_that_is_gone_is_the_board_s_fault(tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as failed, sealed(tmp_path / "gone.onnx"):
        pass
    assert failed.value.category == "board_fault"


@pytest.mark.slow
def test_the_file_s_content_is_no_part_of_the_model_s_memory(tmp_path: Path) -> None:
    """onnxruntime itself holds it twice for a moment; a third copy would be ours."""
    width = 4096
    weights = np.ones((width, SIZE_BYTES // 4 // width), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", 1, [1, width])],
        [helper.make_tensor_value_info("y", 1, [1, weights.shape[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "wide.onnx"
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, path], capture_output=True, check=True, text=True
    )
    assert SIZE_BYTES < int(done.stdout) < 2.6 * SIZE_BYTES
