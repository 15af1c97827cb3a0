"""As a newcomer gets it: the built wheel in a fresh environment, and the demo of a fresh clone."""

import json
import os
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.process import free_port
from edgeyard.testbed.agent import command_lines
from tests.nomad_cluster import nomad_binary

ROOT = Path(__file__).parents[2]

NODES = """
name = "two"
world = "nodes"
duration_s = 60
[nodes]
nodes = [{ count = 2, cpu_cores = 1 }]
jobs = [{ job_id = "j", submit_s = 1, run_s = 5 }]
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    source = wheel.parent / "source"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name.removeprefix("edgeyard/") for name in archive.namelist()}
    listed = {
        path.relative_to(source).as_posix()
        for link in (source / "src/edgeyard").iterdir()
        if link.is_symlink()
        for path in link.resolve().rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    missing = sorted(each for each in listed - packed if not each.endswith((".md", ".proto")))
    assert not missing


def test_the_wheel_runs_a_benchmark_outside_the_checkout(
    tmp_path: Path,
    squeezenet: Path,
    new_environment: Callable[..., Path],
    clean_environment: dict[str, str],
) -> None:
    environment = new_environment(tmp_path / "venv")
    where = subprocess.run(
        [str(environment / "bin/python"), "-c", "import edgeyard; print(edgeyard.__file__)"],
        cwd=tmp_path,
        env=clean_environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(environment)), where.stdout
    _measure(environment, tmp_path, squeezenet, clean_environment)


def test_the_product_without_training_installs_and_runs(
    tmp_path: Path,
    squeezenet: Path,
    product_wheel: Path,
    new_environment: Callable[..., Path],
    clean_environment: dict[str, str],
) -> None:
    environment = new_environment(tmp_path / "venv", wheel=product_wheel)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin/edgeyard"), *words],
            cwd=tmp_path,
            env=clean_environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert not list(environment.glob("lib/python*/site-packages/edgeyard/training"))
    _measure(environment, tmp_path, squeezenet, clean_environment)

    groups = run("--help").stdout
    assert "sim " in groups
    assert "learn " in groups
    assert "ste " not in groups
    assert [word in run("sim", "--help").stdout for word in ("run", "replay")] == [True, False]
    assert [word in run("learn", "--help").stdout for word in ("outcomes", "a2c")] == [True, False]
    simulated = run("sim", "run", "steady", "--policy", "fifo", "--json")
    assert simulated.returncode == 0, simulated.stderr
    assert json.loads(simulated.stdout)["runs"]
    nodes = tmp_path / "nodes.toml"
    nodes.write_text(NODES)
    refused = run("sim", "run", str(nodes))
    assert refused.returncode == 1
    assert "the world 'nodes' of scenario two needs edgeyard.training" in refused.stderr


def _measure(
    environment: Path, folder: Path, model: Path, clean_environment: dict[str, str]
) -> None:
    """Start a server of an environment and run a benchmark on it."""
    port = free_port()
    data_dir = folder / "data"
    server = subprocess.Popen(
        [
            *(str(environment / "bin/edgeyard"), "up"),
            *("--data-dir", str(data_dir), "--port", str(port)),
        ],
        cwd=folder,
        env=clean_environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().strip() == f"Edgeyard is ready at http://127.0.0.1:{port}"
        token_file = data_dir / "admin.token"
        assert token_file.stat().st_mode & 0o777 == 0o600
        output = subprocess.run(
            [
                *(str(environment / "bin/edgeyard"), "submit", "--model", str(model)),
                *("--runtime", "ort", "--type", "TYPE1", "--target", "emumid"),
                *("--nb-inference", "20", "--wait", "--json"),
            ],
            cwd=folder,
            env={
                **clean_environment,
                "EDGEYARD_URL": f"http://127.0.0.1:{port}",
                "EDGEYARD_TOKEN": token_file.read_text().strip(),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert output.returncode == 0, output.stderr
        assert '"completed"' in output.stdout
    finally:
        server.terminate()
        server.communicate(timeout=20)
    assert server.returncode == 0


def test_the_wheel_alone_is_the_client(
    tmp_path: Path, new_environment: Callable[..., Path], clean_environment: dict[str, str]
) -> None:
    environment = new_environment(tmp_path / "venv", extra="")
    installed = {path.name for path in environment.glob("lib/python*/site-packages/*")}
    assert "edgeyard" in installed
    assert not installed & {"fastapi", "sqlalchemy", "onnxruntime", "scipy", "re2", "nomad"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin/edgeyard"), *words],
            cwd=tmp_path,
            env={**clean_environment, "EDGEYARD_URL": "http://127.0.0.1:1"},
            capture_output=True,
            text=True,
        )

    def loaded(code: str) -> set[str]:
        """Heavy packages that a program loads: what makes a start slow, whatever the machine."""
        heavy = ("numpy", "httpx", "pydantic", "yaml", "edgeyard.scheduler.ports")
        found = f"import sys; sys.stderr.write(' '.join(m for m in {heavy} if m in sys.modules))"
        words = [str(environment / "bin/python"), "-c", f"{code}\n{found}"]
        done = subprocess.run(
            words, cwd=tmp_path, env=clean_environment, check=True, capture_output=True, text=True
        )
        return set(done.stderr.split())

    assert loaded("import edgeyard") == set()
    assert loaded("from edgeyard import Client") == {"httpx"}
    shown = "from edgeyard.benchmark_api.cli import app\napp(['--help'], standalone_mode=False)"
    assert loaded(shown) == set()
    assert "submit" in run("--help").stdout
    assert "no answer from http://127.0.0.1:1" in run("list").stderr
    refused = run("up", "--data-dir", "data")
    assert refused.returncode == 1
    assert "-py3-none-any.whl[server]'" in refused.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, clone_to: Callable[[Path], None]) -> Path:
    """What is committed; the first `make` in it installs everything."""
    target = tmp_path_factory.mktemp("fresh") / "clone"
    clone_to(target)
    return target


def _demo(clone: Path, environment: dict[str, str], *options: str) -> str:
    done = subprocess.run(
        ["make", "demo", *options],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for expected in ("squeezenet", "TYPE2:", "TYPE3:", "board_offline", "engine_unsupported"):
        assert expected in done.stdout
    assert "All checks passed." in done.stdout
    return done.stdout


@pytest.mark.xdist_group("clone")
def test_the_demo_runs_from_a_fresh_clone(clone: Path, clean_environment: dict[str, str]) -> None:
    assert "resnet50" in _demo(clone, clean_environment)


@pytest.mark.nomad
@pytest.mark.xdist_group("clone")
def test_the_demo_runs_on_a_real_nomad_and_leaves_nothing(
    clone: Path, clean_environment: dict[str, str]
) -> None:
    nomad_binary()
    output = _demo(clone, clean_environment, "NOMAD=1", "QUICK=1")
    assert "on a real Nomad cluster" in output
    folder = output.split("data in ")[1].split("/data\n")[0]
    assert not Path(folder).exists()
    left = [words for _, words in command_lines() if any(folder.encode() in word for word in words)]
    assert not left


def test_a_demo_that_is_kept_leaves_a_server_that_answers(
    tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "deploy.demo", "--keep", "--quick"),
            *("--data-dir", str(tmp_path / "data")),
        ],
        cwd=ROOT,
        env=clean_environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    process = int(done.stdout.split("(process ")[1].split(")")[0])
    try:
        url = done.stdout.split("runs on at ")[1].split(" ")[0]
        request = urllib.request.Request(url + "/v1/benchmarks?status=completed")
        token = (tmp_path / "data/admin.token").read_text().strip()
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert len(json.load(answer)["items"]) >= 5  # one network on three boards, and two more
    finally:
        os.kill(process, 15)
        limit = time.monotonic() + 20
        while Path(f"/proc/{process}/status").exists() and time.monotonic() < limit:
            if "zombie" in Path(f"/proc/{process}/status").read_text():
                break
            time.sleep(0.1)
