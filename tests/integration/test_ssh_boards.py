"""Runs on a board behind its host: the runner's ssh transport against a real sshd."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.devices.runner import behind_host, pyz
from edgeyard.devices.runner.spec import read_spec
from edgeyard.devices.runner.transports import ssh
from tests.builders.runner import (
    LIGHT,
    TOKEN,
    Task,
    UploadServer,
    linear_model,
    make_task,
    nan_model,
    upload_server,
)
from tests.builders.sshd import BehindHost, board_behind_host

pytestmark = pytest.mark.ssh

FOR_EVER = 10_000_000  # inferences


@pytest.fixture
def board() -> Iterator[BehindHost]:
    with board_behind_host() as made:
        yield made


def facts_of(board: BehindHost, **changes: object) -> dict[str, object]:
    """As its host's plugin tells them, with changes of its address."""
    return {"ssh": {**asdict(board.sshd.address), **changes}, "emulated": False}


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def eventually(holds: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def measuring(task: Task) -> None:
    def reported() -> bool:
        return any(each["phase"] == "measuring" for each in task.server.progress)

    eventually(reported, "it measures")


@contextlib.contextmanager
def started(task: Task) -> Iterator[subprocess.Popen[bytes]]:
    """The runner, dead at the end whatever the test found."""
    process = task.start()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def silent_proxy(port: int) -> Iterator[tuple[int, threading.Event]]:
    """A port that leads to another, till the event is set: then nothing passes any more."""
    silence, closed = threading.Event(), threading.Event()

    def pass_on() -> None:
        here, _ = listener.accept()
        with here, socket.create_connection(("127.0.0.1", port)) as there:
            while not closed.is_set():
                ready, _, _ = select.select([here, there], [], [], 0.05)
                for one in [] if silence.is_set() else ready:
                    (there if one is here else here).sendall(one.recv(65536))
                if silence.is_set():
                    closed.wait(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=pass_on, name="proxy")
        thread.start()
        try:
            yield listener.getsockname()[1], silence
        finally:
            closed.set()
            thread.join()


def failure_of(task: Task, **changes: str) -> dict[str, Any]:
    code, output = task.run(**changes)
    assert code == 3, output
    assert task.server.report["status"] == "failed"
    return dict(task.server.report["failure"])


def test_a_network_is_measured_there_and_its_result_comes_back(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    model = LIGHT / "light_squeezenet.onnx"
    task = make_task(tmp_path, server, model, board=facts_of(board), nb_inference=25)
    task.complete()
    report = server.report
    assert report["status"] == "ok"
    assert report["target_id"] == "rpi4b-0001-0001"
    assert report["nb_inference"] >= 25
    assert report["model"]["sha256"] == task.spec["model"]["sha256"]
    assert len(server.files["latencies.npy"]) > 25 * 8
    assert server.order[-1] == "report.json"
    assert b"Running TYPE1" in server.files["runner.log"]
    phases = [each["phase"] for each in server.progress]
    assert phases[0] == "loading"
    assert {"warmup", "measuring"} & set(phases)
    assert server.tokens == {f"Bearer {TOKEN}"}
    assert float((tmp_path / "progress").read_text()) == 0.0
    assert board.left() == []
    assert board.processes() == []
    assert not (task.local / "results").exists()


def test_a_dataset_goes_there_too(board: BehindHost, server: UploadServer, tmp_path: Path) -> None:
    x = np.eye(6, dtype=np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(6))
    task = make_task(
        tmp_path / "task",
        server,
        linear_model(np.eye(6)),
        datasets={"data.npz": tmp_path / "data.npz"},
        board=facts_of(board),
        benchmark_type="TYPE2",
    )
    task.complete()
    assert server.report["accuracy"]["top1"] == 1.0 or server.report["status"] == "ok"
    assert board.left() == []


def test_a_host_that_is_the_one_file_program_itself_can_do_it(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    program = pyz.build(tmp_path / "edgeyard-runner.pyz")
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board=facts_of(board))
    task.complete(sys.executable, str(program))
    assert server.report["status"] == "ok"


def test_what_fails_there_is_reported_as_if_it_had_failed_here(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, nan_model(), board=facts_of(board))
    here = make_task(tmp_path / "here", server, nan_model())
    assert failure_of(task)["category"] == failure_of(here)["category"]
    assert board.left() == []


def test_a_damaged_model_is_noticed_there(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, b"no network at all", board=facts_of(board))
    assert failure_of(task)["category"] == "user_model"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_cancelled_leaves_nothing_there(
    board: BehindHost, server: UploadServer, tmp_path: Path, number: int
) -> None:
    model = linear_model(np.eye(64))
    task = make_task(tmp_path, server, model, board=facts_of(board), nb_inference=FOR_EVER)
    with started(task) as process:
        measuring(task)
        assert board.processes()
        assert len(board.left()) == 1
        process.send_signal(number)
        process.communicate(timeout=30)
    eventually(lambda: not board.processes(), "its processes there end")
    eventually(lambda: not board.left(), "its folder there goes")
    assert "report.json" not in server.files


def test_a_cut_link_is_a_network_failure_and_the_board_cleans_up(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    model = linear_model(np.eye(64))
    task = make_task(tmp_path, server, model, board=facts_of(board), nb_inference=FOR_EVER)
    with started(task) as process:
        measuring(task)
        board.sshd.stop()
        process.communicate(timeout=30)
    assert process.returncode == 3
    failure = server.report["failure"]
    assert failure["category"] == "network"
    assert "can't be reached" in failure["sentence"]
    eventually(lambda: not board.processes(), "its processes there end")
    eventually(lambda: not board.left(), "its folder there goes")


def test_a_board_whose_host_key_is_not_known_gets_nothing(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    board.sshd.stop()
    board.sshd.new_host_key()
    board.sshd.start()
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board=facts_of(board))
    failure = failure_of(task)
    assert failure["category"] == "board_fault"
    address = board.sshd.address
    assert failure["sentence"] == (
        f"the board at 127.0.0.1 port {address.port} shows a host key that is not the known one, "
        f"and was sent nothing: find out why before you change {address.known_hosts_file}"
    )
    assert board.left() == []


def test_a_board_that_rejects_the_log_in_is_faulty(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    (board.sshd.folder / "authorized_keys").write_text("")
    failure = failure_of(make_task(tmp_path, server, b"model", board=facts_of(board)))
    assert failure["category"] == "board_fault"
    assert "rejects the log-in: see user and identity_file" in failure["sentence"]


def test_a_host_without_ssh_says_so(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(tmp_path, server, b"model", board={"ssh": {"host": "127.0.0.1"}})
    failure = failure_of(task, PATH="/nowhere")
    assert failure["category"] == "board_fault"
    assert "can't start ssh" in failure["sentence"]


def test_a_board_without_room_says_so_and_cleans_up(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    python = board.sshd.script("full", f'ulimit -f 1000\nexec {board.sshd.address.python} "$@"')
    facts = facts_of(board, python=python)
    failure = failure_of(make_task(tmp_path, server, b"x" * 2**21, board=facts))
    assert failure["category"] == "board_fault"
    assert "can't keep what the run needs: [Errno 27] File too large" in failure["sentence"]
    assert board.left() == []


@pytest.mark.parametrize(
    "name", ["-rf", "a b;$(touch x)`id`'\".onnx", "..onnx", "é\u202e🙂.onnx", "%s\u2028", "~"]
)
def test_a_file_s_name_is_a_name_there_and_nothing_else(
    board: BehindHost, server: UploadServer, tmp_path: Path, name: str
) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board=facts_of(board))
    (task.local / "model.onnx").rename(task.local / name)
    task.spec["model"]["filename"] = name
    task.complete()
    assert server.report["model"]["filename"] == name
    assert board.left() == []


def test_threads_that_the_host_does_not_state_are_those_of_the_board(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board=facts_of(board))
    del task.board["threads"]
    python = board.sshd.script("one-cpu", f'exec taskset -c 0 {board.sshd.address.python} "$@"')
    task.board["ssh"]["python"] = python
    task.complete()
    assert server.report["board"]["threads"] == 1


@pytest.mark.slow
def test_a_link_that_falls_silent_is_noticed_by_the_host(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    with silent_proxy(board.sshd.port) as (port, silence):
        known = board.sshd.folder / "known_hosts"
        known.write_text(known.read_text().replace(str(board.sshd.port), str(port)))
        model = linear_model(np.eye(64))
        facts = facts_of(board, port=port)
        task = make_task(tmp_path, server, model, board=facts, nb_inference=FOR_EVER)
        with started(task) as process:
            measuring(task)
            silence.set()
            process.communicate(timeout=60)  # ssh looks every 5 s, twice
        failure = server.report["failure"]
        assert failure["category"] == "network"
        assert "can't be reached" in failure["sentence"]
    eventually(lambda: not board.left(), "its folder there goes")


def test_a_board_that_is_not_there_is_the_network_s_matter(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    board.sshd.stop()
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board=facts_of(board))
    assert failure_of(task)["category"] == "network"


def test_a_board_without_its_python_is_faulty(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    facts = facts_of(board, python="python9.9")
    failure = failure_of(make_task(tmp_path, server, linear_model(np.eye(4)), board=facts))
    assert failure["category"] == "board_fault"
    assert "python9.9" in failure["sentence"]


@pytest.mark.parametrize(
    "said",
    [
        "hello",
        '{"kind": "file", "name": "../../evil", "size": 4}',
        '{"kind": "file", "name": ".runner.log", "size": 4}',
        '{"kind": "file", "name": "x", "size": -1}',
        '{"kind": "file", "name": "x", "size": 99999999999999}',
        '{"kind": "dance"}',
        "[1]",
    ],
)
def test_a_board_with_invalid_answers_is_faulty_and_writes_no_file(
    board: BehindHost, server: UploadServer, tmp_path: Path, said: str
) -> None:
    text = f"head -c 100000 >/dev/null\nprintf '%s\\nevil' '{said}'\nsleep 0.2"
    facts = facts_of(board, python=board.sshd.script("liar", text))
    failure = failure_of(make_task(tmp_path, server, linear_model(np.eye(4)), board=facts))
    assert failure["category"] == "board_fault"
    assert not list(tmp_path.rglob("evil"))
    assert not (tmp_path / "evil").exists()


def test_files_left_by_a_power_cut_are_removed_at_the_next_run(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    old, foreign = board.tmp / "edgeyard-999999999-x", board.tmp / "other"
    for path in (old, foreign):
        path.mkdir()
        (path / "file").touch()
        os.chown(path, board.sshd.user.pw_uid, board.sshd.user.pw_gid)
    make_task(tmp_path, server, linear_model(np.eye(4)), board=facts_of(board)).complete()
    assert board.left() == ["other"]


def test_the_board_receives_no_secret(tmp_path: Path, server: UploadServer) -> None:
    address = {"host": "127.0.0.1", "identity_file": "/CANARY"}
    facts = {"ssh": address, "hooks": [{"when": "before", "run": ["CANARY"]}]}
    task = make_task(tmp_path, server, b"model", board=facts)
    (task.local / "spec.json").write_text(json.dumps(task.spec))
    environ = task.environ
    (task.local / "CANARY").write_text("CANARY")
    parcel = b"".join(ssh._parcel(read_spec(environ), environ))
    assert b'"name": "model.onnx"' in parcel
    assert parcel.endswith(b"model")
    for secret in (TOKEN, server.url, "CANARY"):
        assert secret.encode() not in parcel


def test_a_board_that_does_not_hear_its_host_ends_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "edgeyard-1-x"
    folder.mkdir()
    (folder / "runner.pyz").write_text("import time; time.sleep(600)")
    code = (
        "from pathlib import Path; from edgeyard.devices.runner import behind_host as b; "
        f"b.SILENT_S = 0.5; raise SystemExit(b.serve(Path({str(folder)!r})))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"environ": {}, "files": [{"name": "a", "size": 2}]}\nab')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"kind": "running"}
        assert process.wait(30) == 1  # its stdin is still open
    assert not folder.exists()
    assert behind_host.HEARTBEAT_S * 3 < behind_host.SILENT_S


# --- hooks --------------------------------------------------------------------------------------


def hook(when: str, path: Path, on: str = "host", code: str = "") -> dict[str, object]:
    """Appends its name to a file."""
    return {"when": when, "run": ["/bin/sh", "-c", f"echo {when}-{on} >> {path}; {code}"], "on": on}


def test_hooks_are_run_around_the_run_on_host_and_board(
    board: BehindHost, server: UploadServer, tmp_path: Path
) -> None:
    there, here = board.tmp / "hooks", tmp_path / "hooks"
    hooks = [
        hook("before", here),
        hook("before", there, "board", "id -u >> " + str(there)),
        hook("after", there, "board"),
        hook("after", here, code="exit 7"),
    ]
    facts = {**facts_of(board), "hooks": hooks}
    code, output = make_task(tmp_path / "t", server, linear_model(np.eye(4)), board=facts).run()
    assert code == 0, output  # what goes wrong afterwards is logged
    assert "ended with status 7" in output
    assert here.read_text().split() == ["before-host", "after-host"]
    uid = str(board.sshd.user.pw_uid)
    assert there.read_text().split() == ["before-board", uid, "after-board"]


def test_a_hook_receives_no_secret(server: UploadServer, tmp_path: Path) -> None:
    hooks = [{"when": "before", "run": ["sh", "-c", "env; exit 1"]}]
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board={"hooks": hooks})
    code, output = task.run()
    assert code == 3
    assert "status 1" in output
    assert TOKEN not in output + str(server.report)


def test_a_hook_that_fails_before_the_run_prevents_it(server: UploadServer, tmp_path: Path) -> None:
    log = tmp_path / "hooks"
    hooks = [
        hook("before", log, code="echo too hot >&2; exit 3"),
        hook("before", log),
        hook("after", log),
    ]
    task = make_task(tmp_path / "t", server, linear_model(np.eye(4)), board={"hooks": hooks})
    failure = failure_of(task)
    assert failure["category"] == "board_fault"
    assert "too hot" in failure["sentence"]
    assert "status 3" in failure["sentence"]
    assert log.read_text().split() == ["before-host", "after-host"]


def test_a_hook_takes_no_longer_than_it_may(server: UploadServer, tmp_path: Path) -> None:
    slow = {"when": "before", "run": ["sleep", "60"], "timeout_s": 0.2}
    task = make_task(tmp_path / "t", server, linear_model(np.eye(4)), board={"hooks": [slow]})
    failure = failure_of(task)
    assert failure["category"] == "board_fault"
    assert "longer than 0.2 s" in failure["sentence"]
    holder = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    slow = {"when": "before", "run": ["sh", "-c", holder], "timeout_s": 0.5}
    task = make_task(tmp_path / "h", server, linear_model(np.eye(4)), board={"hooks": [slow]})
    assert "longer than 0.5 s" in failure_of(task)["sentence"]
    eventually(lambda: gone(tmp_path / "pid"), "what it started is ended too")
    absent = {"when": "before", "run": ["/no/such/program"]}
    task = make_task(tmp_path / "u", server, linear_model(np.eye(4)), board={"hooks": [absent]})
    assert "can't be started" in failure_of(task)["sentence"]


@pytest.mark.parametrize("ends", ["late", "cancelled", "killed", "cut"])
def test_a_hook_on_the_board_never_outlives_its_run(
    board: BehindHost, server: UploadServer, tmp_path: Path, ends: str
) -> None:
    pid = board.tmp / "pid"
    run = ["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"]
    slow = {"when": "before", "run": run, "on": "board", "timeout_s": 3 if ends == "late" else 60}
    facts = {**facts_of(board), "hooks": [slow]}
    task = make_task(tmp_path, server, linear_model(np.eye(4)), board=facts)
    with started(task) as process:
        eventually(lambda: pid.exists() and pid.read_text().strip(), "the hook runs")
        if ends in ("cancelled", "killed"):
            process.send_signal(signal.SIGTERM if ends == "cancelled" else signal.SIGKILL)
        elif ends == "cut":
            board.sshd.stop()
        process.communicate(timeout=30)
    eventually(lambda: gone(pid), "the hook is ended there")
    assert board.left() == ["pid"]
    if ends in ("late", "cut"):
        assert server.report["failure"]["category"] == "board_fault"


def gone(pid: Path) -> bool:
    """Whether the process is, whose number the file holds; it may still be a zombie."""
    try:
        status = Path(f"/proc/{pid.read_text().strip()}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_a_hook_with_much_output_or_a_background_process_is_accepted(
    server: UploadServer, tmp_path: Path
) -> None:
    meter = tmp_path / "pid"
    run = ["sh", "-c", f"sleep 600 & echo $! > {meter}; yes | head -c 9000000; echo END >&2"]
    hooks = [{"when": "before", "run": run}]
    task = make_task(tmp_path / "t", server, linear_model(np.eye(4)), board={"hooks": hooks})
    try:
        task.complete()
        assert not gone(meter)
    finally:
        os.kill(int(meter.read_text()), signal.SIGKILL)
    run = ["sh", "-c", "yes | head -c 9000000; echo END >&2; exit 9"]
    task = make_task(
        tmp_path / "u", server, b"m", board={"hooks": [{"when": "before", "run": run}]}
    )
    sentence = failure_of(task)["sentence"]
    assert sentence.endswith("y END")
    assert len(sentence) < 500


def test_hooks_of_after_are_run_when_the_run_is_cancelled(
    server: UploadServer, tmp_path: Path
) -> None:
    log = tmp_path / "hooks"
    task = make_task(
        tmp_path / "t",
        server,
        linear_model(np.eye(64)),
        board={"hooks": [hook("after", log)]},
        nb_inference=FOR_EVER,
    )
    with started(task) as process:
        measuring(task)
        process.terminate()
        process.communicate(timeout=30)
    assert log.read_text().split() == ["after-host"]
