"""What the pages for ML engineers show: Python that runs, and CI files whose commands exist."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper, save
from typer.main import get_command

from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.cli.checking import COMMENT_MARK
from edgeyard.devices.runner.engine import Engine
from edgeyard.errors import RunFailed
from tests.fakes.api_server import Answer, FakeServer

ROOT = Path(__file__).parents[2]
MODEL_FILES = ROOT / "docs/how-to/model-files.md"
CI = sorted((ROOT / "docs/examples/ci").glob("*.yml"))
IMPORTED = {"torch", "skl2onnx", "tensorflow"}
"""Packages of snippets that are not among those of this project; the page states when they ran."""


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", MODEL_FILES.read_text(encoding="utf-8"), re.DOTALL)


def test_all_snippets_are_python() -> None:
    assert len(snippets()) == 4
    for each in snippets():
        compile(each, str(MODEL_FILES), "exec")


def test_each_snippet_runs_here_or_needs_a_package_that_the_page_names() -> None:
    foreign = [each for each in snippets() if any(f"{name}" in each for name in IMPORTED)]
    assert len(foreign) == 3
    text = MODEL_FILES.read_text(encoding="utf-8")
    stated = re.search(r"These snippets ran in .* with ([^.]|\.\d)*on CPUs\.", text)
    assert stated is not None
    for name in ("PyTorch", "scikit-learn", "skl2onnx", "TensorFlow", "tf2onnx"):
        assert re.search(rf"{name}\s\d+\.\d+", stated[0]), name


def test_the_snippet_that_quantises_gives_a_smaller_model_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(64, 256)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 256])],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), "net.onnx")
    (snippet,) = [each for each in snippets() if "quantize_static" in each]
    rows = generator.normal(size=(16, 64)).astype(np.float32)
    exec(compile(snippet, str(MODEL_FILES), "exec"), {"calibration_rows": rows})
    assert os.stat("net-int8.onnx").st_size < 0.5 * os.stat("net.onnx").st_size
    session = onnxruntime.InferenceSession("net-int8.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": rows[:1]})
    assert np.abs(found - rows[:1] @ weights).max() < 2.0


def commands_of(page: Path) -> list[list[str]]:
    """The words of each command of the shell sessions of a page."""
    sessions = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "".join(sessions).replace("\\\n", " ").splitlines()
    return [
        shlex.split(line.removeprefix("$ "), comments=True)
        for line in lines
        if line.startswith("$ edgeyard ")
    ]


def test_no_command_of_a_page_is_refused_for_a_file_that_one_before_it_wrote() -> None:
    """`infer` overwrites nothing without --force; pages are followed from top to bottom."""
    seen = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        written: set[str] = set()
        for words in commands_of(page):
            if words[1] != "infer" or "--force" in words:
                continue
            out = words[words.index("--out") + 1] if "--out" in words else "outputs.npz"
            assert out not in written, f"{page.name}: {shlex.join(words)}"
            written.add(out)
            seen += 1
    assert seen >= 3


OWN_BOARDS = {"benchmark-types.md", "inventory.md", "own-engine.md"}
"""Pages whose commands are about boards that they add themselves."""


def test_commands_name_boards_of_a_quick_start() -> None:
    seen = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for words in [] if page.name in OWN_BOARDS else commands_of(page):
            named = [
                value
                for flag, value in itertools.pairwise(words)
                if flag in ("--target", "--target-uid", "--board")
            ]
            if words[1] == "rates" or (words[1] == "boards" and len(words) > 3):
                named += [word for word in words[3:] if re.fullmatch(r"\w+(-\d{4}-\d{4})?", word)][
                    :1
                ]
            families = [part for value in named for part in value.split(",")]
            assert all(each.startswith("emu") for each in families), f"{page.name}: {words}"
            seen += len(families)
    assert seen > 20


def scripts(node: Any) -> list[str]:
    """All shell commands of a CI file."""
    if isinstance(node, dict):
        found = []
        for key, value in node.items():
            if key in ("run", "script", "before_script"):
                found += [value] if isinstance(value, str) else [str(each) for each in value]
            else:
                found += scripts(value)
        return found
    return [text for each in node for text in scripts(each)] if isinstance(node, list) else []


@pytest.mark.parametrize("path", CI, ids=lambda path: path.name)
def test_a_ci_file_is_yaml_whose_edgeyard_commands_exist(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    commands = [
        shlex.split(line)
        for text in scripts(document)
        for line in text.splitlines()
        if line.startswith("edgeyard ")
    ]
    assert commands, "it measures nothing"
    root = get_command(app)
    for _, name, *words in commands:
        command = root.commands[name]  # type: ignore[attr-defined]
        context = command.make_context(name, list(words))
        assert context.params["baseline"] == "baseline/net.onnx"
        assert context.params["junit"] is not None


@pytest.mark.parametrize("path", [path for path in CI if "github" in path.name])
def test_the_workflow_has_the_form_of_github_actions(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document[True]["pull_request"]["paths"]  # YAML 1.1 reads the key "on" as true
    for job in document["jobs"].values():
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            assert set(step) <= {"run", "uses", "name", "with", "env", "if", "id"}, step
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def comments_of(
    tmp_path: Path, check: str, *earlier: str, others: int = 1
) -> list[tuple[str, str, str]]:
    """Run the workflow's step that comments, and return what it changed.

    Returns:
        Method, path and the text of the comment.
    """
    workflow = yaml.safe_load((ROOT / "docs/examples/ci/github-actions.yml").read_text())
    steps = workflow["jobs"]["check"]["steps"]
    (step,) = [each for each in steps if str(each.get("name", "")).startswith("Comment")]
    assert step["if"] == "always()"
    assert workflow["permissions"]["pull-requests"] == "write"
    with FakeServer() as server:
        bodies = [*["Looks good"] * others, *earlier]
        listed = [{"id": 71 - others + at, "body": body} for at, body in enumerate(bodies)]
        pages = [listed[at : at + 100] for at in range(0, len(listed) + 1, 100)]
        server.on("GET", "/repos/ada/nets/issues/5/comments", *pages)
        server.on("POST", "/repos/ada/nets/issues/5/comments", Answer({"id": 99}, 201))
        for method in ("PATCH", "DELETE"):
            server.on(method, "/repos/ada/nets/issues/comments/71", {})
        subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=tmp_path,
            check=True,
            env={
                "PATH": os.environ["PATH"],
                "GITHUB_API_URL": server.url,
                "GITHUB_REPOSITORY": "ada/nets",
                "GITHUB_TOKEN": "token-1",
                "PULL_REQUEST": "5",
                "CHECK": check,
            },
        )
        assert {each.headers["authorization"] for each in server.asked} == {"Bearer token-1"}
        wanted = [each.query["page"] for each in server.asked if each.method == "GET"]
        assert wanted == [[str(number)] for number in range(1, len(wanted) + 1)]
        changes = [each for each in server.asked if each.method != "GET"]
        return [
            (each.method, each.path, json.loads(each.body)["body"] if each.body else "")
            for each in changes
        ]


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="the step needs curl and jq"
)
def test_the_workflow_comments_once_and_keeps_its_comment_up_to_date(tmp_path: Path) -> None:
    assert comments_of(tmp_path, "success") == []
    earlier = f"{COMMENT_MARK}\nslower"
    assert comments_of(tmp_path, "failure", earlier) == []  # it measured nothing
    path = "/repos/ada/nets/issues"
    assert comments_of(tmp_path, "success", earlier) == [("DELETE", f"{path}/comments/71", "")]
    text = f'{COMMENT_MARK}\n### "5 %" slower: é\\\n'
    (tmp_path / "comment.md").write_text(text)
    assert comments_of(tmp_path, "failure") == [("POST", f"{path}/5/comments", text)]
    for others in (1, 99, 100, 250):
        found = comments_of(tmp_path, "failure", earlier, others=others)
        assert found == [("PATCH", f"{path}/comments/71", text)]
    assert comments_of(tmp_path, "failure", others=100) == [("POST", f"{path}/5/comments", text)]


def test_the_engine_of_your_own_runs_its_model_and_names_whose_fault_a_failure_is(
    tmp_path: Path,
) -> None:
    page = (ROOT / "docs/how-to/own-engine.md").read_text(encoding="utf-8")
    assert all(name in page for name in ("MNN", "ExecuTorch", "RKNN", "Hailo", "llama.cpp"))
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "own-engine.md", "exec"), names)
    engine: Engine = names["MatrixEngine"]()
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "weights.npy", matrix)
    session = engine.load(tmp_path / "weights.npy", threads=2, parameters={"threads": 1})
    x = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(session.run({"x": x})[0], x @ matrix)
    (tmp_path / "weights.npy").write_bytes(b"something else")
    with pytest.raises(RunFailed) as caught:
        engine.load(tmp_path / "weights.npy", threads=1, parameters={})
    assert caught.value.category == "user_model"
