"""What the runner's files may import, and which Python reads them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import edgeyard
from edgeyard.devices.machine_facts import engine_facts
from edgeyard.devices.runner import pyz
from edgeyard.devices.runner.engine import ProfilingEngine, TrainingEngine
from edgeyard.devices.runner.engines import BUILT_IN, GROUP, find
from edgeyard.devices.runner.result import CATEGORIES
from edgeyard.errors import RunFailed

PACKAGE = Path(edgeyard.__file__).parent
MEMBERS = [name.removeprefix("edgeyard/") for name, _ in pyz.members() if "/" in name]
FILES = sorted(PACKAGE / name for name in MEMBERS)
ENGINES = {
    "devices/runner/engines/ncnn.py": {"ncnn"},
    "devices/runner/engines/openvino.py": {"openvino"},
    "devices/runner/engines/ort.py": {"onnxruntime"},
    "devices/runner/engines/ort_genai.py": {"onnxruntime_genai"},
    "devices/runner/engines/ort_training.py": {"onnxruntime"},
    "devices/runner/image_decoding.py": {"PIL"},
}
TFLITE = {"ai_edge_litert", "flatbuffers"}
OURS = ("edgeyard.devices.", "edgeyard.atomic_files", "edgeyard.errors", "edgeyard")


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_hosts_need_only_python_3_10_numpy_and_the_engine(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 10))
    name = path.relative_to(PACKAGE).as_posix()
    allowed = {"numpy", *ENGINES.get(name, set())}
    if name.startswith("devices/runner/engines/") and "lite" in name:
        allowed |= TFLITE
    for module in imported(tree):
        top = module.split(".")[0]
        if top == "edgeyard":
            # the SDK is named in edgeyard/__init__.py, and loaded by those who ask for it
            lazy = name == "__init__.py" and module == "edgeyard.benchmark_api.sdk"
            assert lazy or module.startswith(OURS), module
            assert name.startswith("devices/runner") or "runner" not in module, module
        else:
            assert top in sys.stdlib_module_names | allowed, module
            assert module not in {"tomllib"}, "Python 3.11"
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    too_new = {"StrEnum", "UTC", "Self", "ExceptionGroup", "TaskGroup", "assert_never"}
    assert not names & too_new


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_runner_as_one_file_contains_what_its_modules_import(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgeyard."):
            module = (node.module or "").removeprefix("edgeyard.").replace(".", "/")
            names = {f"{module}.py", f"{module}/__init__.py"}
            assert names & set(MEMBERS) or module == "benchmark_api/sdk", node.module


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_engine_is_what_its_row_states(name: str) -> None:
    engine = find(name)
    assert engine.name == name
    assert isinstance(engine, ProfilingEngine) is BUILT_IN[name].profiles_layers
    assert isinstance(engine, TrainingEngine) is BUILT_IN[name].trains
    assert f"engine.{name}.version" in engine_facts()


def test_an_installed_package_can_bring_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "abacus_engine.py").write_text("class Abacus:\n    name = 'abacus'\n")
    info = tmp_path / "abacus-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nabacus = abacus_engine:Abacus\nbroken = no_such_module:Engine\n"
        "ort = abacus_engine:Abacus\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find("abacus").name == "abacus"
    assert type(find("ort")).__name__ == "OrtEngine", "nobody takes a name of ours"
    with pytest.raises(RunFailed, match="no_such_module") as broken:
        find("broken")
    assert broken.value.category == "engine_unsupported"
    known = ", ".join(sorted({*BUILT_IN, "abacus", "broken"}))
    with pytest.raises(RunFailed, match=re.escape(known)):
        find("sextant")


def test_the_schema_of_results_knows_every_reason_and_category() -> None:
    schema = json.loads(
        (Path(__file__).parents[2] / "docs/reference/result.schema.json").read_text("utf-8")
    )
    reasons = schema["properties"]["verdict"]["properties"]["reasons"]["items"]["properties"]
    trust = (PACKAGE / "devices/runner/trust.py").read_text("utf-8")
    assert set(reasons["code"]["enum"]) == set(re.findall(r'code="(\w+)"', trust))
    (failure,) = (one for one in schema["properties"]["failure"]["oneOf"] if "properties" in one)
    assert set(failure["properties"]["category"]["enum"]) == set(CATEGORIES)


def test_the_runner_reports_its_version_and_does_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgeyard.devices.runner", "--version"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert output.stdout == f"edgeyard-runner {edgeyard.__version__}\n"
    assert list(tmp_path.iterdir()) == []
