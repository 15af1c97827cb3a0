"""Boards behind their host, looked at by the ssh client against a real sshd."""

from __future__ import annotations

import fcntl
import platform
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from edgeyard.devices.model import Board, SshAddress
from edgeyard.devices.probe import Prober
from edgeyard.devices.runner.spec import read_board
from tests.builders.edgedevice import FIRST, board_entry, running_plugin, write_boards
from tests.builders.sshd import Sshd, running_sshd

pytestmark = pytest.mark.ssh


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with running_sshd() as server:
        yield server


def a_board(address: SshAddress) -> Board:
    return Board(
        target_uid=FIRST, family="rpi4b", ram_bytes=1, storage_bytes=1, engines=(), ssh=address
    )


def logins(sshd: Sshd) -> int:
    return (sshd.folder / "log").read_text().count("Accepted publickey")


def test_a_board_that_accepts_the_log_in_is_healthy_and_a_quiet_check_does_not_log_in(
    sshd: Sshd,
) -> None:
    found = Prober().look(a_board(sshd.address))
    assert (found.healthy, found.reason) == (True, "")
    assert logins(sshd) == 1
    assert Prober().look(a_board(sshd.address), quiet=True).healthy
    assert logins(sshd) == 1


def test_a_board_is_asked_by_ssh_what_it_is(sshd: Sshd, tmp_path: Path) -> None:
    # an engine that this Python has, wherever ssh leads
    python = sshd.script(
        "python-with-engine", f'cd / && PYTHONPATH="{sshd.folder}" exec python3 "$@"'
    )
    (sshd.folder / "onnxruntime.py").write_text(
        "__version__ = '9.9'\nget_available_providers = lambda: ['Own', 'Other']\n"
    )
    (sshd.folder / "onnxruntime.py").chmod(0o644)
    address = replace(sshd.address, python=python)
    found = Prober(timeout_s=60).look(a_board(address), facts=True)
    assert (found.healthy, found.reason) == (True, "")
    assert found.attributes["cpu.arch"] == platform.machine()
    assert isinstance(found.attributes["cpu.cores"], int)
    assert found.attributes["engine.ort.version"] == "9.9"
    assert found.attributes["engine.ort.execution_providers"] == "Own,Other"
    # without a Python that works the board is as healthy, and not described
    found = Prober(timeout_s=60).look(
        a_board(replace(address, python=str(tmp_path / "none"))), facts=True
    )
    assert (found.healthy, found.attributes) == (True, {})


def test_why_a_board_is_unhealthy_is_reported(sshd: Sshd, tmp_path: Path) -> None:
    def reason(**changes: object) -> str:
        found = Prober(timeout_s=5).look(a_board(replace(sshd.address, **changes)))  # type: ignore[arg-type]
        assert not found.healthy
        return found.reason

    assert "Permission denied" in reason(user="nobody-there")
    empty = tmp_path / "known_hosts"
    empty.touch()
    assert "Host key verification failed" in reason(known_hosts_file=str(empty))
    assert "Permission denied" in reason(identity_file=str(tmp_path / "none"))
    sshd.stop()
    assert "does not answer" in reason()


def test_a_board_with_another_host_key_is_not_trusted(sshd: Sshd) -> None:
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    found = Prober().look(a_board(sshd.address))
    assert not found.healthy
    assert "Host key verification failed" in found.reason


def test_a_board_that_accepts_the_connection_and_is_silent_costs_only_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = SshAddress(host="127.0.0.1", port=silent.getsockname()[1])
        found = Prober(timeout_s=0.4).look(a_board(address))
        assert not found.healthy
        assert "does not answer" in found.reason


def test_a_login_that_hangs_is_cut_off(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        links = []
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                break
            link.sendall(b"SSH-2.0-Stuck\r\n")
            links.append(link)
        for link in links:
            link.close()

    thread = threading.Thread(target=greet, name="stuck-sshd")
    thread.start()
    try:
        address = SshAddress(host="127.0.0.1", port=server.getsockname()[1])
        found = Prober(timeout_s=0.6).look(a_board(address))
        assert found.reason.endswith("took over 0.6 s")
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def test_a_vanished_board_turns_unhealthy_within_one_probe_and_comes_back(
    sshd: Sshd, tmp_path: Path
) -> None:
    boards = tmp_path / "target.json"
    write_boards(boards, board_entry(ssh=asdict(sshd.address)))
    with running_plugin(tmp_path / "stderr") as plugin:
        plugin.configure(
            boards_file=str(boards), state_dir=str(tmp_path / "state"), probe_interval="1s"
        )
        with plugin.fingerprints() as seen:
            seen.until(lambda shown: shown.healthy())
            facts = read_board(dict(plugin.reserve(FIRST).envs))
            envs = plugin.reserve(FIRST).envs["EDGEYARD_BOARD"]
            assert f'"port": {sshd.port}' in envs
            sshd.stop()
            seen.until(lambda shown: "does not answer" in shown.reason())
            sshd.start()
            seen.until(lambda shown: shown.healthy())

            # while a task measures there, nobody logs in
            assert facts.progress_file is not None
            with Path(facts.progress_file + ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                seen.until(lambda shown: shown.attributes()["dynamic.status"] == "busy")
                before = logins(sshd)
                sshd.stop()
                seen.until(lambda shown: not shown.healthy())
                sshd.start()
                seen.until(lambda shown: shown.healthy())
                assert logins(sshd) == before
            seen.until(lambda shown: shown.attributes()["dynamic.status"] == "idle")
            # at first, and when it was back; all other looks were mere calls, but for those
            # after a login that a busy machine did not manage in time
            too_slow = sum("took over" in shown.reason() for shown in seen.seen)
            assert 2 <= logins(sshd) <= 2 + 2 * too_slow
