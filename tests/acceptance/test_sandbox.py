"""A hostile model really tries to get out of its run: what stops it, however it is confined."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from edgeyard.devices.runner.sandbox import landlock, seccomp
from edgeyard.devices.runner.sandbox.plan import MIN_SCRATCH_BYTES
from tests.builders.runner import TOKEN, Task, UploadServer, make_task, upload_server

ENGINES = Path(__file__).parents[1] / "data/attacking_engine"
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/result.schema.json").read_text("utf-8")
)
ALL = (
    *("own_environment", "others_environment", "write_outside", "change_model", "tcp", "udp"),
    *("outside_world", "unix_socket", "packet_socket", "signal_others", "trace_others"),
    *("read_memory_of_others", "new_namespace", "mount", "become_root", "memory", "threads"),
    *("open_files", "disk", "shared_memory", "fork", "program", "writable_code"),
    "write_next_to_the_task",
)
HARMLESS = (
    *("own_environment", "others_environment", "write_next_to_the_task", "change_model"),
    *("tcp", "udp", "unix_socket", "fork", "program"),
)
"""Attacks that may succeed on the machine of the tests."""

RAM_BYTES = 1 << 30


def bubblewrap_works() -> bool:
    program = shutil.which("bwrap")
    if program is None:
        return False
    words = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(words, capture_output=True).returncode == 0


@dataclass
class Lab:
    """Things that a run must not get at, and the folder of engines that try."""

    server: UploadServer
    folder: Path
    secrets: list[Path]
    victim: subprocess.Popen[bytes]
    listener: socket.socket
    unix: socket.socket

    def task(self, engine: str = "attacking", **changes: Any) -> Task:
        board = {"ram_bytes": RAM_BYTES, "storage_bytes": 1 << 28, **changes.pop("board", {})}
        parameters = {
            "attacks": list(ALL),
            "secret": TOKEN,
            "files": [str(path) for path in [*self.secrets, "/etc/shadow"]],
            "next_to_the_task": str(self.folder),
            "folders": ["/etc", "/usr/lib", sys.prefix, str(ENGINES)],
            "port": self.listener.getsockname()[1],
            "unix": str(self.folder / "socket"),
            "pid": self.victim.pid,
        }
        return make_task(
            self.folder / "task",
            self.server,
            b"a model",
            engine=engine,
            parameters=parameters,
            board=board,
            **{"nb_inference": 6, **changes},
        )

    def run(self, task: Task, method: str) -> dict[str, Any]:
        """The report of a run that was confined by this method."""
        path = os.environ["PATH"] if method == "bubblewrap" else str(self.folder / "no-programs")
        engines = str(self.folder / "engines")
        _, output = task.run(PYTHONPATH=engines, PATH=path, LAB_SECRET=TOKEN)
        report = self.server.report
        jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert report["confinement"] is not None, output
        assert report["confinement"]["method"] == method, output
        return report


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    engines = tmp_path / "engines"
    about = engines / "attacking_engine-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: attacking-engine\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[edgeyard.engines]\nattacking = attacking_engine:AttackingEngine\n"
        "starting = attacking_engine:StartingEngine\n"
    )
    shutil.copy(ENGINES / "attacking_engine.py", engines)
    secrets = [
        tmp_path / "data/admin.token",
        tmp_path / "data/edgeyard.db",
        tmp_path / "other-run/local/model.onnx",
        tmp_path / "task/secrets/other.env",
        tmp_path / "task/local/spec.json",
    ]
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of others: {TOKEN}")
    (tmp_path / "task/local/.hidden").write_text("of the runner")
    victim = subprocess.Popen(["sleep", "600"])
    try:
        with (
            upload_server() as server,
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.socket(socket.AF_UNIX) as unix,
        ):
            unix.bind(str(tmp_path / "socket"))
            unix.listen()
            yield Lab(server, tmp_path, secrets, victim, listener, unix)
    finally:
        victim.kill()
        victim.wait()


def got_through(report: dict[str, Any]) -> dict[str, str]:
    facts = report["engine_facts"]
    return {
        name: said
        for name, said in facts.items()
        if isinstance(said, str) and not said.startswith("stopped: ")
    }


@pytest.mark.bubblewrap
def test_bubblewrap_stops_every_attack(lab: Lab) -> None:
    if not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    report = lab.run(lab.task(), "bubblewrap")
    assert report["status"] == "ok", report["failure"]
    # of the folders on the way to its input it has empty ones of its own, in its private /tmp
    assert set(got_through(report)) <= {"write_next_to_the_task"}
    assert len([name for name in report["engine_facts"] if name.startswith("read ")]) == 6
    assert report["confinement"]["not_confined"] == []
    assert report["confinement"]["user"] == ("own" if os.geteuid() == 0 else "namespace")
    limits = report["engine_facts"]["limits"]
    assert limits["RLIMIT_NOFILE"] == 1024
    assert 0 < limits["RLIMIT_CPU"] <= 600
    assert lab.victim.poll() is None
    assert not (lab.folder / "written").exists()


def test_landlock_stops_what_its_table_says(lab: Lab) -> None:
    if landlock.version() < 4 or not seccomp.available():
        pytest.skip(
            "this kernel has no Landlock that knows of the network, or there is no libseccomp"
        )
    report = lab.run(lab.task(), "landlock")
    assert report["status"] == "ok", report["failure"]
    through = got_through(report)
    open_ones = {"disk", "threads"}
    if landlock.version() < landlock.SIGNALS_SINCE:
        open_ones.add("signal_others")
    assert set(through) <= open_ones
    assert {"user", "disk", "processes"} <= set(report["confinement"]["not_confined"])
    assert lab.victim.poll() is None
    assert not (lab.folder / "written").exists()


def test_a_run_that_is_not_confined_gets_at_everything(lab: Lab) -> None:
    """Shows what the other tests are worth: each of these attacks succeeds otherwise."""
    task = lab.task(board={"sandbox": {"mode": "off"}})
    task.spec["parameters"]["attacks"] = list(HARMLESS)
    report = lab.run(task, "off")
    through = got_through(report)
    wanted = {f"read {path}" for path in lab.secrets} | {"tcp", "udp", "unix_socket", "fork"}
    wanted |= {"program", "write_next_to_the_task", "change_model", "others_environment"}
    assert wanted <= set(through)
    assert "own_environment" not in through, "the token is nobody's but the runner's"


@pytest.mark.bubblewrap
def test_a_fork_bomb_hits_its_limit_and_nothing_of_it_is_left(lab: Lab) -> None:
    if not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    report = lab.run(lab.task("starting"), "bubblewrap")
    facts = report["engine_facts"]
    assert facts["error"], "it was stopped"
    assert 0 < facts["forks"] < 200
    assert processes_with(str(lab.folder / "engines")) == []


def processes_with(text: str) -> list[int]:
    """Processes that have a file below this folder mapped or its name in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if "attacking_engine" in (entry / "maps").read_text() or text in (
                    entry / "cmdline"
                ).read_bytes().decode(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.bubblewrap
def test_a_runner_that_is_killed_takes_its_sandbox_along(lab: Lab) -> None:
    if not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    task = lab.task("starting", nb_inference=1_000_000)
    process = task.start(PYTHONPATH=str(lab.folder / "engines"))
    deadline = time.monotonic() + 60
    while not (inside := descendants(process.pid)) or len(inside) < 20:
        assert time.monotonic() < deadline, "the bomb has not begun"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    while any(Path(f"/proc/{pid}").exists() for pid in inside):
        assert time.monotonic() < deadline, "something of it lives on"
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    except OSError:
        pass
    return found


@pytest.mark.parametrize("method", ["bubblewrap", "landlock"])
def test_a_link_in_place_of_a_result_brings_no_file_of_the_host(lab: Lab, method: str) -> None:
    if method == "bubblewrap" and not bubblewrap_works():
        pytest.skip("bubblewrap does not work here")
    if method == "landlock" and not landlock.version():
        pytest.skip("this kernel has no Landlock")
    np.savez(lab.folder / "d.npz", x=np.zeros((4, 4), np.float32), y=np.zeros(4, np.int64))
    task = lab.task(
        datasets={"d.npz": lab.folder / "d.npz"}, benchmark_type="TYPE3", odt_config={"epochs": 1}
    )
    report = lab.run(task, method)
    assert report["status"] == "ok", report["failure"]
    names = {each["name"] for each in report["files"]}
    assert "trained.bin" not in names
    assert "training.npz" in names
    assert not any(b"of others" in content for content in lab.server.files.values())


def test_where_a_sandbox_is_required_and_missing_nothing_is_run(lab: Lab) -> None:
    task = lab.task(board={"sandbox": {"mode": "required"}})
    command = (
        "import sys, edgeyard.devices.runner.sandbox.landlock as l, runpy\n"
        "l.version = lambda: 0\n"
        "sys.argv[1:] = []\n"
        "runpy.run_module('edgeyard.devices.runner', run_name='__main__', alter_sys=True)\n"
    )
    engines = str(lab.folder / "engines")
    code, output = task.run(sys.executable, "-c", command, PYTHONPATH=engines, PATH="/nonexistent")
    assert code == 3, output
    failure = lab.server.report["failure"]
    assert failure["category"] == "board_fault"
    assert "install bubblewrap" in failure["sentence"]
    assert lab.server.report["confinement"] is None


def test_a_seccomp_filter_reaches_threads_that_run_already() -> None:
    if not seccomp.available():
        pytest.skip("libseccomp is not installed")
    code = (
        "import os, threading\n"
        "from edgeyard.devices.runner.sandbox import seccomp\n"
        "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "go, said = threading.Event(), []\n"
        "def fork():\n"
        "    go.wait()\n"
        "    try: os.fork() or os._exit(0); said.append('forked')\n"
        "    except OSError: said.append('refused')\n"
        "thread = threading.Thread(target=fork); thread.start()\n"
        "seccomp.forbid_new_processes()\n"
        "go.set(); thread.join()\n"
        "threading.Thread(target=lambda: said.append('a thread starts')).start()\n"
        "print(said)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['refused', 'a thread starts']", done.stderr


def test_a_model_larger_than_the_scratch_space_is_no_fault_of_its_board(tmp_path: Path) -> None:
    """Engines load a sealed copy of it, which counts against the limit on files."""
    size = MIN_SCRATCH_BYTES + 2**20
    board = {"ram_bytes": RAM_BYTES, "storage_bytes": MIN_SCRATCH_BYTES}
    with upload_server() as server:
        make_task(tmp_path, server, b"\xff" * size, board=board).run()
        failure = json.loads(server.files["report.json"])["failure"]
    assert failure["category"] == "user_model", failure  # it is no ONNX file
