"""The client alone: what the wheel without an extra brings is enough for SDK and CLI."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeyard.installing import wheel_name
from tests.builders.answers import ID, UID, accepted, benchmark, board, boards, row, user_file
from tests.builders.model_files import a_model_file
from tests.fakes.api_server import Answer, FakeServer

BLOCKER = """
import sys
blocked = set(sys.argv[1].split(','))
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in blocked:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Blocker())
"""


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0].lower() for each in requirements}


def with_dependencies(names: set[str]) -> set[str]:
    """All distributions that installing these brings, without their extras."""
    found: set[str] = set()
    open_names = set(names)
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        found.add(name)
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # not for this Python
            continue
        open_names |= names_of([each for each in required if "extra ==" not in each])
    return {name.replace("_", "-") for name in found}


def others() -> set[str]:
    """Import names of everything that is installed here and does not come with the client."""
    required = importlib.metadata.requires("edgeyard") or []
    client = with_dependencies(names_of([each for each in required if "extra ==" not in each]))
    return {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if not {each.lower().replace("_", "-") for each in distributions} & (client | {"edgeyard"})
        and module not in sys.stdlib_module_names
        and not module.startswith("_")
    }


def alone(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program that can import the client's packages alone."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKER + textwrap.dedent(code), ",".join(sorted(others()))],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "", **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def test_what_the_server_needs_is_not_among_the_clients_packages() -> None:
    assert {"fastapi", "sqlalchemy", "re2", "onnxruntime", "scipy", "uvicorn"} <= others()
    assert not {"httpx", "rich", "typer", "numpy", "pydantic", "msgspec", "yaml"} & others()


@pytest.mark.slow
def test_the_command_line_works_with_the_client_alone(tmp_path: Path, server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks", {"items": [benchmark()], "next_cursor": None})
    server.on("GET", "/v1/boards", boards(board()))
    server.on("GET", "/v1/results", {"items": [row("a"), row("b")]})
    server.on("POST", "/v1/files", Answer(user_file(), 201))
    server.on("POST", "/v1/benchmarks", Answer(accepted(), 202))
    (tmp_path / "net.onnx").write_bytes(a_model_file())
    job = "model: net.onnx\nruntime: ort\nbenchmark_type: TYPE1\ntarget: rpi4b\n"
    (tmp_path / "job.yaml").write_text(job)
    commands = [
        ["--help"],
        ["list"],
        ["boards", "list"],
        ["results", "a", "b", "--html", "report.html"],
        ["submit", "job.yaml", "--constraint", "memory.ram >= 4 GiB"],
    ]
    code = f"""
    from edgeyard.benchmark_api.cli import app
    for words in {commands!r}:
        status = app(words, standalone_mode=False)
        assert not status, (words, status)
    """
    done = alone(code, tmp_path, EDGEYARD_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert ID in done.stdout
    assert UID in done.stdout


def test_the_sdk_works_with_the_client_alone(tmp_path: Path, server: FakeServer) -> None:
    server.on("GET", "/v1/benchmarks", {"items": [benchmark()], "next_cursor": None})
    server.on("GET", "/v1/results", {"items": [row("a"), row("b")]})
    code = """
    from edgeyard import Client
    from edgeyard.benchmark_api.sdk import gate
    from edgeyard.benchmark_api.sdk.comparison import compare
    from edgeyard.benchmark_api.schemas.answers import as_json
    with Client() as client:
        print([each.benchmark_id for each in client.list()])
        print(len(compare([as_json(each) for each in client.result_rows(['a', 'b'])])))
    """
    done = alone(code, tmp_path, EDGEYARD_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"[{ID!r}]", "2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["up", "--data-dir", "data"], "server"),
        (["doctor"], "server"),
        (["render", "job.yaml"], "server"),
        (["results", "a", "b", "--plot", "x.png"], "plot"),
    ],
)
def test_a_command_that_needs_more_names_the_extra(
    tmp_path: Path, server: FakeServer, words: list[str], extra: str
) -> None:
    server.on("GET", "/v1/results", {"items": [row("a"), row("b")]})
    for name in ("a", "b"):
        server.on("GET", f"/v1/benchmarks/{name}/results", json.loads(json.dumps(results_of(name))))
    (tmp_path / "job.yaml").write_text(
        "model: net.onnx\nruntime: ort\nbenchmark_type: TYPE1\ntarget: rpi4b\n"
    )
    code = f"""
    from edgeyard.benchmark_api.cli import app
    app({words!r})
    """
    done = alone(code, tmp_path, EDGEYARD_URL=server.url)
    assert done.returncode == 1, done.stderr
    assert f"pip install '{wheel_name()}[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.png").exists()


def results_of(name: str) -> object:
    from tests.builders.answers import results

    return results(name)
