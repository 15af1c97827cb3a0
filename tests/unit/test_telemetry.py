"""Nothing that Edgeyard loads reports its use to anybody."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "the engine of the runner": (
        "from edgeyard.devices.runner.engines.ort import OrtEngine; OrtEngine()"
    ),
    "the facts of a board": (
        "from edgeyard.devices.machine_facts import engine_facts; "
        "assert 'engine.ort.version' in engine_facts()"
    ),
    "onnxruntime-genai in the runner": (
        "from pathlib import Path; "
        "from edgeyard.benchmark_api.sdk.model_folder import packed; "
        "from edgeyard.devices.runner.engines.ort_genai import OrtGenaiEngine; "
        "OrtGenaiEngine().load(packed(Path('deploy/demo/tiny_llama')), threads=1, parameters={})"
    ),
    "OpenVINO in the runner": (
        "from edgeyard.devices.runner.engines.openvino import OpenvinoEngine; OpenvinoEngine()"
    ),
    "OpenVINO in the facts of a board": (
        "from edgeyard.devices.machine_facts import engine_facts; "
        "assert 'engine.openvino.execution_providers' in engine_facts()"
    ),
    "the models of the server": (
        "from edgeyard.plugins.queue_policies.learned_queue import SHIPPED, load_learned_queue; "
        "load_learned_queue(SHIPPED / 'queue_hpc2n.toml')"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_engine_reports_nothing_and_leaves_no_file(program: str, tmp_path: Path) -> None:
    """onnxruntime's telemetry begins with a file of a session among the temporary ones, OpenVINO's
    with one in the home folder, and a request at its import."""
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    engine = "openvino" if "OpenVINO" in program else "onnxruntime"
    if program.startswith("onnxruntime-genai"):
        engine = "onnxruntime_genai"
    script = (
        f"{PROGRAMS[program]}\nimport sys; assert {engine!r} in sys.modules\n"
        "assert not any(name.startswith('openvino_telemetry.') for name in sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**environment, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        check=True,
        timeout=120,
    )
    assert list(tmp_path.iterdir()) == []
