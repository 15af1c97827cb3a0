"""The device plugin as a process, through the door that Nomad uses."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from edgeyard.devices.edgedevice.proto import base_pb2, device_pb2, goplugin_pb2
from edgeyard.devices.runner.progress import ProgressFile
from edgeyard.devices.runner.spec import read_board
from tests.builders.edgedevice import (
    BASE,
    CANARY,
    FIRST,
    GIB,
    PATIENCE_S,
    SECOND,
    Plugin,
    board_entry,
    running_plugin,
    write_boards,
)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Plugin]:
    with running_plugin(tmp_path / "stderr", PLUGIN_UNIX_SOCKET_DIR=str(tmp_path)) as started:
        yield started


@pytest.fixture
def boards(tmp_path: Path) -> Path:
    path = tmp_path / "target.json"
    write_boards(path, board_entry())
    return path


@pytest.fixture
def ready(plugin: Plugin, boards: Path, tmp_path: Path) -> Plugin:
    plugin.configure(
        boards_file=str(boards), state_dir=str(tmp_path / "state"), probe_interval="1s"
    )
    return plugin


def test_the_handshake_is_one_line_and_names_a_private_socket(plugin: Plugin) -> None:
    core, protocol, network, address, kind = plugin.parts
    assert (core, protocol, network, kind) == ("1", "2", "unix", "grpc")
    assert Path(address).is_socket()
    assert Path(address).parent.stat().st_mode & 0o77 == 0


def test_the_plugin_reports_its_type_and_version(plugin: Plugin) -> None:
    info = plugin.call(
        BASE, "PluginInfo", base_pb2.PluginInfoRequest(), base_pb2.PluginInfoResponse
    )
    assert info.type == base_pb2.DEVICE == 3
    assert list(info.plugin_api_versions) == ["v0.1.0"]
    assert info.name == "edgedevice"
    answer = plugin.call(
        BASE, "ConfigSchema", base_pb2.ConfigSchemaRequest(), base_pb2.ConfigSchemaResponse
    )
    settings = answer.spec.object.attributes
    optional = {"state_dir", "probe_interval", "probe_timeout", "docker_socket"}
    assert set(settings) == {"boards_file"} | optional
    assert settings["boards_file"].attr.required
    assert settings["probe_interval"].default.default.literal.value == '"10s"'
    health = plugin.call(
        "grpc.health.v1.Health",
        "Check",
        goplugin_pb2.HealthCheckRequest(service="plugin"),
        goplugin_pb2.HealthCheckResponse,
    )
    assert health.status == goplugin_pb2.HealthCheckResponse.SERVING


def test_a_board_is_a_group_of_its_own_with_all_its_attributes(ready: Plugin) -> None:
    with ready.fingerprints() as seen:
        shown = seen.first()
    group = shown.boards[FIRST]
    assert (group.vendor, group.device_type, group.device_name) == ("daiedge", "edgedevice", FIRST)
    assert [(device.ID, device.healthy) for device in group.devices] == [(FIRST, True)]
    attributes = shown.attributes()
    of_the_machine = (
        *("cpu.arch", "cpu.model", "os.name", "os.kernel", "accelerators"),
        "engine.ort.execution_providers",
    )
    for measured in ("dynamic.temperature_c", "dynamic.power_w", *of_the_machine):
        attributes.pop(measured, None)
    assert attributes.pop("cpu.cores")
    assert attributes == {
        "family": "rpi4b",
        "engines": "ort,tflite",
        "engine.ort.supported_types": "TYPE1,TYPE2",
        "engine.ort.version": "1.20",
        "engine.tflite.supported_types": "TYPE1",
        "engine.tflite.version": "2.19",
        "memory.ram": 4 * GIB,
        "memory.storage": 34359738368,
        "target_uid": FIRST,
        "dynamic.progress": 0,
        "dynamic.status": "idle",
    }
    assert type(attributes["dynamic.progress"]) is int


def test_no_secret_of_the_boards_file_leaves_the_host(ready: Plugin, tmp_path: Path) -> None:
    with ready.fingerprints() as seen:
        shown = seen.first()
    reports = [str(shown.groups), str(ready.reserve(FIRST)), json.dumps(ready.log())]
    assert CANARY not in "".join(reports)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    (kept,) = (path for path in files if CANARY in path.read_text())
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_the_boards_file_is_watched(ready: Plugin, boards: Path) -> None:
    with ready.fingerprints() as seen:
        seen.first()
        write_boards(boards, board_entry(), board_entry(SECOND))
        seen.until(lambda shown: set(shown.boards) == {FIRST, SECOND} and shown.healthy(SECOND))
        bigger = board_entry(memory={"ram": "8 GiB", "storage": 1})
        write_boards(boards, bigger)
        shown = seen.until(lambda shown: set(shown.boards) == {FIRST})
        assert shown.attributes()["memory.ram"] == 8 * GIB


def test_a_broken_boards_file_is_shown_and_the_boards_known_before_stay(
    ready: Plugin, boards: Path
) -> None:
    with ready.fingerprints() as seen:
        seen.first()
        boards.write_text('{"rpi4b": [{"target_uid": "rpi4b-1"}]}')
        shown = seen.until(lambda shown: len(shown.groups) == 2)
        assert shown.healthy(FIRST)
        problem = next(each for each in shown.groups if each.device_type != "edgedevice")
        (device,) = problem.devices
        assert not device.healthy
        assert "target_uid" in device.health_description
        write_boards(boards, board_entry())
        seen.until(lambda shown: len(shown.groups) == 1)
    assert any(
        line["@level"] == "error" and "target_uid" in line.get("problem", "")
        for line in ready.log()
    )


def test_without_a_boards_file_there_are_no_boards_until_it_comes(
    plugin: Plugin, boards: Path, tmp_path: Path
) -> None:
    boards.rename(tmp_path / "elsewhere")
    plugin.configure(boards_file=str(boards), state_dir=str(tmp_path / "state"))
    with plugin.fingerprints() as seen:
        assert not seen.first().boards
        (tmp_path / "elsewhere").rename(boards)
        seen.until(lambda shown: FIRST in shown.boards)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "boards_file"),
        ({"boards_file": "boards.json"}, "not an absolute path"),
        ({"boards_file": "/b", "probe_interval": "soon"}, "probe_interval: 'soon'"),
        ({"boards_file": "/b", "probe_interval": "0s", "state_dir": 3}, "state_dir"),
        ({"boards_file": "/b", "colour": "red"}, "colour"),
    ],
)
def test_wrong_settings_are_refused_and_the_plugin_lives_on(
    plugin: Plugin, boards: Path, tmp_path: Path, settings: dict[str, object], expected: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        plugin.configure(**settings)
    assert expected in refused.value.details()
    assert plugin.process.poll() is None
    plugin.configure(boards_file=str(boards), state_dir=str(tmp_path / "state"))
    with plugin.fingerprints() as seen:
        assert FIRST in seen.first().boards


def test_garbage_for_settings_is_refused_and_no_settings_give_no_boards(plugin: Plugin) -> None:
    for packed in (b"", b"\xc1", b"\x93\x01\x02", b"\x01", b"\x81\xa1a"):
        with pytest.raises(grpc.RpcError):
            plugin.call(
                BASE,
                "SetConfig",
                base_pb2.SetConfigRequest(msgpack_config=packed),
                base_pb2.SetConfigResponse,
            )
    with pytest.raises(grpc.RpcError, match="no settings"):
        plugin.reserve(FIRST)


def test_new_settings_replace_the_old_ones(ready: Plugin, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    write_boards(other, board_entry(SECOND))
    with ready.fingerprints() as seen:
        seen.until(lambda shown: FIRST in shown.boards)
        ready.configure(boards_file=str(other), state_dir=str(tmp_path / "state"))
        seen.until(lambda shown: set(shown.boards) == {SECOND})


def test_a_board_whose_device_file_vanishes_turns_unhealthy_and_comes_back(
    ready: Plugin, boards: Path, tmp_path: Path
) -> None:
    usb = tmp_path / "ttyUSB0"
    usb.touch()
    entry = board_entry()
    entry["engines"]["ort"]["devices"] = [f"{usb}:/dev/ttyUSB0:rw"]
    write_boards(boards, entry)
    with ready.fingerprints() as seen:
        seen.until(lambda shown: shown.healthy(FIRST))
        usb.unlink()
        shown = seen.until(lambda shown: not shown.healthy(FIRST))
        assert shown.reason() == f"{usb} is gone"
        assert shown.attributes()["dynamic.status"] == "unhealthy"
        assert shown.attributes()["dynamic.last_error"] == f"{usb} is gone"
        with pytest.raises(grpc.RpcError, match="is unhealthy"):
            ready.reserve(FIRST)
        usb.touch()
        shown = seen.until(lambda shown: shown.healthy(FIRST))
        assert shown.attributes()["dynamic.status"] == "idle"
        assert shown.attributes()["dynamic.last_error"] == f"{usb} is gone"


def test_a_reserved_board_reports_its_task_what_it_needs(
    ready: Plugin, boards: Path, tmp_path: Path
) -> None:
    cpu = min(os.sched_getaffinity(0))
    ssh = {
        "host": "10.1.2.3",
        "port": 2222,
        "user": "bench",
        "identity_file": "/etc/edgeyard/keys/a",
        "known_hosts_file": "/etc/edgeyard/known_hosts",
    }
    local = {"cpus": [cpu], "threads": 2, "duty_cycle": 0.25}
    write_boards(boards, board_entry(local=local), board_entry(SECOND, ssh=ssh))
    with ready.fingerprints() as seen:
        seen.first()
    reservation = ready.reserve(FIRST)
    facts = read_board(dict(reservation.envs))
    assert (facts.target_uid, facts.family, facts.cpus, facts.threads) == (
        FIRST,
        "rpi4b",
        (cpu,),
        2,
    )
    assert facts.duty_cycle == 0.25
    assert facts.ram_bytes == 4 * GIB
    assert facts.emulated
    assert facts.progress_file == reservation.envs["EDGEYARD_PROGRESS_FILE"]
    assert facts.progress_file is not None
    folder = Path(facts.progress_file).parent
    assert folder.is_dir()
    containers = Path(reservation.envs["EDGEYARD_CONTAINERS"])
    mounts = [(each.host_path, each.task_path, each.read_only) for each in reservation.mounts]
    assert mounts[:2] == [
        (str(folder), str(folder), False),
        (str(containers.parent), str(containers.parent), True),
    ]
    engines = json.loads(containers.read_text())["engines"]
    assert engines["ort"]["image"] == "registry.example/ort"
    assert engines["tflite"]["image"] == ""
    for uids in ((), (FIRST, SECOND), ("rpi4b-0009-0009",), ("../../etc",)):
        with pytest.raises(grpc.RpcError):
            ready.reserve(*uids)


def test_the_address_of_a_board_behind_its_host_reaches_the_task(
    ready: Plugin, boards: Path, sshd_like: int
) -> None:
    ssh = {"host": "127.0.0.1", "port": sshd_like, "user": "nobody"}
    write_boards(boards, board_entry(ssh=ssh))
    with ready.fingerprints() as seen:
        shown = seen.until(lambda shown: not shown.healthy(FIRST))
        assert "not an ssh server" in shown.reason()


@pytest.fixture
def sshd_like() -> Iterator[int]:
    import socket
    import threading

    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            link.sendall(b"HTTP")
            link.close()

    thread = threading.Thread(target=serve, name="no-sshd")
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_progress_goes_up_in_steps_and_back_to_zero_when_the_task_ends(ready: Plugin) -> None:
    with ready.fingerprints() as seen:
        seen.first()
        file = ProgressFile(Path(ready.reserve(FIRST).envs["EDGEYARD_PROGRESS_FILE"]))
        file.write(3)
        shown = seen.until(lambda shown: shown.attributes()["dynamic.status"] == "busy")
        assert shown.progress() == 3
        file.write(7)  # less than a step: never reported
        file.write(42.7)
        assert seen.until(lambda shown: shown.progress() != 3).progress() == 42
        file.write(0)
        shown = seen.until(lambda shown: shown.progress() == 0)
        assert shown.attributes()["dynamic.status"] == "idle"


def test_progress_of_a_killed_task_goes_back_to_zero(ready: Plugin) -> None:
    task = "; ".join(
        [
            "import os, sys, time",
            "from pathlib import Path",
            "from edgeyard.devices.runner.progress import ProgressFile",
            "file = ProgressFile(Path(os.environ['EDGEYARD_PROGRESS_FILE']))",
            "file.hold()",
            "file.write(60)",
            "time.sleep(600)",
        ]
    )
    with ready.fingerprints() as seen:
        seen.first()
        env = {**os.environ, **ready.reserve(FIRST).envs}
        process = subprocess.Popen([sys.executable, "-c", task], env=env)
        try:
            seen.until(lambda shown: shown.progress() == 60)
        finally:
            process.kill()
            process.wait()
        seen.until(lambda shown: shown.progress() == 0)


def test_a_task_may_write_anything_and_only_numbers_are_taken(
    ready: Plugin, tmp_path: Path
) -> None:
    with ready.fingerprints() as seen:
        seen.first()
        path = Path(ready.reserve(FIRST).envs["EDGEYARD_PROGRESS_FILE"])
        secret = tmp_path / "secret"
        secret.write_text("77")
        path.symlink_to(secret)
        path.with_name("progress.lock").symlink_to("/dev/zero")
        path.unlink()
        os.mkfifo(path)
        for hostile in (b"nan", b"\xff\xfe", b"1e999999", b"9" * 100_000):
            path.unlink()
            path.write_bytes(hostile)
        path.unlink()
        path.write_text("55")
        shown = seen.until(lambda shown: shown.progress() == 55)
    assert all(each.progress() in (0, 55, 100) for each in seen.seen)
    assert shown.healthy()


def test_a_plugin_that_is_killed_and_started_again_knows_the_running_task(
    boards: Path, tmp_path: Path
) -> None:
    settings = {"boards_file": str(boards), "state_dir": str(tmp_path / "state")}
    with running_plugin(tmp_path / "first") as plugin:
        plugin.configure(**settings)
        path = Path(plugin.reserve(FIRST).envs["EDGEYARD_PROGRESS_FILE"])
        path.write_text("30")
        with path.with_name("progress.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            plugin.process.kill()
            with running_plugin(tmp_path / "second") as again:
                again.configure(**settings)
                with again.fingerprints() as seen:
                    shown = seen.first()
    assert (shown.progress(), shown.attributes()["dynamic.status"]) == (30, "busy")


def test_stats_tell_of_each_board(ready: Plugin) -> None:
    request = device_pb2.StatsRequest()
    request.collection_interval.seconds = 1
    with ready.fingerprints() as seen:
        seen.first()
        call = ready.stream("Stats", request, device_pb2.StatsResponse)
        (group,) = next(call).groups
        assert (group.vendor, group.type, group.name) == ("daiedge", "edgedevice", FIRST)
        stats = group.instance_stats[FIRST]
        assert stats.timestamp.seconds > 0
        assert (stats.summary.int_numerator_val.value, stats.summary.unit) == (0, "%")
        next(call)
        call.cancel()


def test_shutdown_sigterm_and_a_dead_agent_end_it_and_leave_nothing(tmp_path: Path) -> None:
    with running_plugin(tmp_path / "stderr") as plugin:
        plugin.process.send_signal(signal.SIGINT)  # Ctrl-C in the agent's terminal
        plugin.shutdown()
        assert plugin.process.wait(PATIENCE_S) == 0
        assert not Path(plugin.parts[3]).parent.exists()
    with running_plugin(tmp_path / "stderr") as plugin:
        plugin.process.terminate()
        assert plugin.process.wait(PATIENCE_S) == 0
    agent = (
        "import subprocess, sys; "
        "p = subprocess.Popen([sys.executable, '-m', 'edgeyard.devices.edgedevice'], "
        "stdout=subprocess.PIPE, text=True); print(p.stdout.readline(), end='', flush=True)"
    )
    with running_plugin(tmp_path / "stderr") as _:
        pass
    from edgeyard.devices.edgedevice.server import COOKIE, COOKIE_NAME

    done = subprocess.run(
        [sys.executable, "-c", agent],
        env={**os.environ, COOKIE_NAME: COOKIE},
        capture_output=True,  # ends only when the plugin has closed its stderr, too
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert not Path(done.stdout.split("|")[3]).parent.exists()


def test_starting_the_plugin_by_hand_prints_where_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgeyard.devices.edgedevice"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "plugin_dir" in done.stderr
    assert done.stdout == ""


def test_its_log_is_hclogs(ready: Plugin) -> None:
    with ready.fingerprints() as seen:
        seen.first()
    line = ready.log()[0]
    assert {"@level", "@message", "@module", "@timestamp"} <= set(line)
    assert line["@level"] == "info"
    assert (line["event"], line["boards"]) == ("boards_file_read", 1)
