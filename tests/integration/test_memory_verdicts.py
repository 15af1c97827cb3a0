"""Only a run that reached its own memory limit is out of memory; others who are killed are not."""

from __future__ import annotations

import json
import shutil
import signal
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.memory import MemoryEvidence
from tests.builders.memory import memory_cgroup
from tests.builders.runner import Task, UploadServer, make_task, upload_server
from tests.builders.web import QuietHandler

ENGINES = Path(__file__).parents[1] / "data/attacking_engine"
MIB = 2**20
SMALL, LARGE = 8, 400
BOARD_MIB = 512
EMULATED = {"ram_bytes": BOARD_MIB * MIB, "emulated": True}


@pytest.fixture(scope="module")
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an engine that is killed while it loads its model."""
    folder = tmp_path_factory.mktemp("memory") / "engines"  # which the run's own user may read
    about = folder / "attacking_engine-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: attacking-engine\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[edgeyard.engines]\nkilled = attacking_engine:KilledEngine\n"
    )
    shutil.copy(ENGINES / "attacking_engine.py", folder)
    return folder


def a_task(
    tmp_path: Path, server: UploadServer, board: dict[str, Any], **parameters: object
) -> Task:
    stated = {"mib": SMALL, "says": "", "signal": int(signal.SIGKILL), **parameters}
    return make_task(tmp_path, server, b"a model", engine="killed", parameters=stated, board=board)


def failure_of(task: Task, engines: Path, *command: str, **environ: str) -> tuple[str, str]:
    task.server.files.clear()
    code, output = task.run(*command, PYTHONPATH=str(engines), **environ)
    assert code == 3, output
    failure = task.server.report["failure"]
    return failure["category"], failure["sentence"]


@pytest.mark.parametrize(
    ("board", "parameters", "category"),
    [
        (EMULATED, {}, "board_fault"),
        (EMULATED, {"says": "warning: Cannot allocate memory"}, "board_fault"),
        ({"emulated": True}, {}, "board_fault"),  # without a limit
        ({}, {}, "board_fault"),  # on a machine of its own that has room
        (EMULATED, {"mib": int(0.93 * BOARD_MIB)}, "out_of_memory"),
        (EMULATED, {"says": "Cannot allocate memory", "signal": signal.SIGTERM}, "board_fault"),
        (EMULATED, {"says": "std::bad_alloc", "signal": signal.SIGABRT}, "out_of_memory"),
    ],
)
def test_a_killed_run_is_out_of_memory_only_if_it_had_reached_its_limit(
    tmp_path: Path,
    server: UploadServer,
    engines: Path,
    board: dict[str, Any],
    parameters: dict[str, Any],
    category: str,
) -> None:
    found, sentence = failure_of(a_task(tmp_path, server, board, **parameters), engines)
    assert found == category, sentence


@pytest.mark.parametrize(
    ("environ", "category", "words"),
    [
        ({"NOMAD_MEMORY_LIMIT": "150"}, "out_of_memory", "150 MiB that its job may use"),
        # a limit that other tasks share, such as of the server's unit
        ({}, "board_fault", "ran out of memory, or somebody killed it"),
    ],
)
def test_the_kernel_s_counts_of_a_task_s_own_cgroup_are_evidence(
    tmp_path: Path,
    server: UploadServer,
    engines: Path,
    environ: dict[str, str],
    category: str,
    words: str,
) -> None:
    with memory_cgroup(150 * MIB) as cgroup:
        entering = (
            "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()));"
            "os.execv(sys.executable, [sys.executable, '-m', 'edgeyard.devices.runner'])"
        )
        command = (sys.executable, "-c", entering, str(cgroup / "cgroup.procs"))
        task = a_task(tmp_path, server, {"emulated": True}, mib=LARGE)
        found, sentence = failure_of(task, engines, *command, **environ)
    assert found == category, sentence
    assert words in sentence


LIMIT_MIB = 100


def a_kernel(root: Path, version: int, limit: str, hits: int, kills: int) -> None:
    """What a kernel shows of the cgroup of a task."""
    cgroup = root / ("sys/fs/cgroup/a.scope" if version == 2 else "sys/fs/cgroup/memory/a.scope")
    cgroup.mkdir(parents=True, exist_ok=True)
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    lines = "0::/a.scope\n" if version == 2 else "5:cpu:/\n4:memory:/a.scope\n0::/\n"
    (root / "proc/self/cgroup").write_text(lines)
    if version == 2:
        (cgroup / "memory.max").write_text(f"{limit}\n")
        (cgroup / "memory.events").write_text(f"low 0\nmax 9\noom {hits}\noom_kill {kills}\n")
    else:
        (cgroup / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (cgroup / "memory.failcnt").write_text(f"{hits}\n")
        (cgroup / "memory.oom_control").write_text(f"under_oom 0\noom_kill {kills}\n")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("limit", "after", "expected"),
    [
        (str(LIMIT_MIB * MIB), (3, 1), True),
        (str(LIMIT_MIB * MIB), (2, 1), False),  # its machine ran out of memory
        (str(LIMIT_MIB * MIB), (3, 0), False),  # it was tight, and somebody killed it
        (str(2 * LIMIT_MIB * MIB), (3, 1), False),  # shared: others' ends are counted as well
        ("max", (3, 1), False),
    ],
)
def test_a_kill_counts_where_the_limit_of_the_job_was_hit(
    tmp_path: Path, version: int, limit: str, after: tuple[int, int], expected: bool
) -> None:
    a_kernel(tmp_path, version, limit, 2, 0)
    environ = {"NOMAD_MEMORY_LIMIT": str(LIMIT_MIB)}
    evidence = MemoryEvidence(BoardFacts(emulated=True), environ, tmp_path)
    a_kernel(tmp_path, version, limit, *after)
    assert evidence.shows_need(peak_rss_bytes=10 * MIB) is expected


@pytest.mark.parametrize(
    ("emulated", "used_mib", "expected"),
    [(False, 900, True), (False, 400, False), (True, 900, False)],
)
def test_a_run_that_had_what_its_board_s_system_left_needed_more(
    tmp_path: Path, emulated: bool, used_mib: int, expected: bool
) -> None:
    """A board states 1 GiB, of which its system uses some; an emulated one has neighbours."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1020000 kB\nMemAvailable: 970000 kB\n")
    board = BoardFacts(ram_bytes=1024 * MIB, emulated=emulated)
    evidence = MemoryEvidence(board, {}, tmp_path)
    assert evidence.shows_need(used_mib * MIB) is expected


class Docker(QuietHandler):
    """A container engine whose containers end as the test says."""

    def do_GET(self) -> None:
        ending: Any = self.server
        answers: dict[str, object] = {
            "/version": {"Arch": "amd64"},
            "/images/lab/ort/json": {"Architecture": "amd64"},
            "/containers/run/json": {"State": ending.state, "HostConfig": ending.limits},
        }
        path = self.path.partition("?")[0]
        plain = {"HostConfig": {}, "Mounts": []} if path.endswith("-alloc-1/json") else []
        self.answer(json.dumps(answers.get(path, plain)).encode())

    def do_POST(self) -> None:
        ending: Any = self.server
        self.body()
        self.answer(json.dumps({"Id": "run", "StatusCode": ending.status}).encode())

    def do_DELETE(self) -> None:
        self.answer(b"null")

    def address_string(self) -> str:
        return ""


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Any]:
    server: Any = socketserver.ThreadingUnixStreamServer(str(tmp_path / "docker.sock"), Docker)
    thread = threading.Thread(target=server.serve_forever, name="docker")
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


LIMITED, UNLIMITED = {"Memory": LIMIT_MIB * MIB}, {"Memory": 0}


@pytest.mark.parametrize(
    ("status", "killed", "limits", "code"),
    [
        (137, True, LIMITED, 3),  # reported as out_of_memory
        (137, True, UNLIMITED, 137),  # the machine ran out of memory: a board fault
        (137, False, LIMITED, 137),
        (0, True, LIMITED, 0),  # a process that it could do without
        (3, True, LIMITED, 3),  # the runner has reported what it knows
    ],
)
def test_a_container_that_was_killed_ran_out_of_memory_only_at_its_own_limit(
    tmp_path: Path,
    server: UploadServer,
    docker: Any,
    status: int,
    killed: bool,
    limits: dict[str, int],
    code: int,
) -> None:
    docker.status, docker.state, docker.limits = status, {"OOMKilled": killed}, limits
    containers = tmp_path / "containers.json"
    containers.write_text(
        json.dumps(
            {
                "socket": str(tmp_path / "docker.sock"),
                "engines": {"ort": {"image": "lab/ort", "user": "0:0"}},
            }
        )
    )
    server.files.clear()
    task = make_task(tmp_path / "task", server, b"a model")
    found, output = task.run(
        sys.executable,
        "-m",
        "edgeyard.devices.runner.bootstrap",
        EDGEYARD_CONTAINERS=str(containers),
        NOMAD_TASK_NAME="task",
        NOMAD_ALLOC_ID="alloc-1",
    )
    assert found == code, output
    reported = status == 137 and code == 3
    assert ("report.json" in server.files) is reported
    if reported:
        assert server.report["failure"]["category"] == "out_of_memory"
