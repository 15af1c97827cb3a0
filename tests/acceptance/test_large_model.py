"""A model of over 2 GB really runs: packed, sent in pieces, and measured."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from deploy.process import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS, WIDTH, PARTS = 2**20 + 2**16, 512, 4
WEIGHT_BYTES = ROWS * WIDTH * 4
NEEDED_DISK_BYTES, NEEDED_RAM_BYTES = 12 * 2**30, 8 * 2**30


def available_bytes() -> int:
    """Memory that programs can have, caches included."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) * 1024 if found else 0


def large_model(folder: Path) -> None:
    """Tables of 2.1 GiB in all, whose file is sparse, and a lookup in each."""
    tables = []
    for part in range(PARTS):
        table = TensorProto(
            name=f"w{part}",
            data_type=TensorProto.FLOAT,
            dims=[ROWS // PARTS, WIDTH],
            data_location=TensorProto.EXTERNAL,
        )
        place = {
            "location": "net.onnx.data",
            "offset": str(part * WEIGHT_BYTES // PARTS),
            "length": str(WEIGHT_BYTES // PARTS),
        }
        for key, value in place.items():
            table.external_data.add(key=key, value=value)
        tables.append(table)
    names = [f"y{part}" for part in range(PARTS)]
    graph = helper.make_graph(
        [helper.make_node("Gather", [f"w{part}", "ids"], [f"y{part}"]) for part in range(PARTS)],
        "tables",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, WIDTH]) for name in names],
        tables,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir()
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    with (folder / "net.onnx.data").open("wb") as file:
        file.truncate(WEIGHT_BYTES)


def test_a_model_of_over_2_gb_runs(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    if shutil.disk_usage(tmp_path).free < NEEDED_DISK_BYTES:
        pytest.skip(f"needs {NEEDED_DISK_BYTES >> 30} GiB of disk")
    if available_bytes() < NEEDED_RAM_BYTES:
        pytest.skip(f"needs {NEEDED_RAM_BYTES >> 30} GiB of free memory")
    large_model(tmp_path / "tables")
    port, data_dir = free_port(), tmp_path / "data"
    environment = {**clean_environment, "TMPDIR": str(tmp_path)}
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "edgeyard", "up"),
            *("--data-dir", str(data_dir), "--port", str(port)),
        ],
        cwd=tmp_path,
        env={**environment, "EDGEYARD_USER_MAX_BYTES": "8 GiB"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert "is ready" in server.stdout.readline()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "edgeyard", "submit", "--model", str(tmp_path / "tables")),
                *("--runtime", "ort", "--type", "TYPE1", "--target", "emufast"),
                *("--nb-inference", "20", "--wait", "--json"),
            ],
            cwd=tmp_path,
            env={
                **environment,
                "EDGEYARD_URL": f"http://127.0.0.1:{port}",
                "EDGEYARD_TOKEN": (data_dir / "admin.token").read_text().strip(),
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        assert '"completed"' in done.stdout
    finally:
        server.terminate()
        server.communicate(timeout=60)
    shutil.rmtree(data_dir)
