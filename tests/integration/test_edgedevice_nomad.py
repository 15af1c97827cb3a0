"""The device plugin in a real Nomad client: one server, one client with five boards."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgeyard import testbed
from edgeyard.scheduler.clusters.nomad import NomadCluster
from tests.builders.cluster import Submitter, a_job, on
from tests.builders.edgedevice import CANARY, GIB, board_entry
from tests.nomad_cluster import access_of, nomad_binary, running_nomad

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad-edgedevice")]

USB = "rpi5-0001-0001"
BOARDS = ("rpi4b-0001-0001", "rpi4b-0001-0002", "jetsonorinnano-0001-0001", "x86-0001-0001", USB)
WAIT_S = 60.0
PROBE_S = 1.0  # of the test bed
# A client that is not `-dev` gathers changes of its node for 5-10 s before it tells its server
# (client.go: nodeUpdateRetryIntv and a random stagger of the same size); 3 s for busy cores.
NODE_DELAY_S = 10.0 + 3.0
TASK = """
import fcntl, json, os, sys, time
path = os.environ["EDGEYARD_PROGRESS_FILE"]
lock = open(path + ".lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
out = sys.argv[1]
open(out, "w").write(json.dumps({**os.environ, "pid": os.getpid()}))
for percent in sys.argv[2:]:
    while not os.path.exists(out + "." + percent):
        time.sleep(0.05)
    open(path + ".part", "w").write(percent)
    os.replace(path + ".part", path)
while not os.path.exists(out + ".end"):
    time.sleep(0.05)
"""


def until(look: Callable[[], Any], what: str, patience_s: float = WAIT_S) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not in {patience_s:g} s: {what}")


class Lab:
    """A host in a real cluster."""

    def __init__(self, cluster: testbed.LoopbackNomad, usb: Path) -> None:
        self.cluster, self.usb = cluster, usb
        self.client = cluster.clients[0]

    def groups(self) -> dict[str, dict[str, Any]]:
        """Device groups of the only node, by name."""
        (node,) = self._list("/v1/nodes?resources=true")
        return {group["Name"]: group for group in node["NodeResources"]["Devices"] or ()}

    def attributes(self, uid: str) -> dict[str, object]:
        """As the node tells them."""
        reported = self.groups()[uid]["Attributes"]
        return {
            name: next(
                (
                    value[kind]
                    for kind in ("Int", "Float", "String", "Bool")
                    if value[kind] is not None
                ),
                None,
            )
            for name, value in reported.items()
        }

    def healthy(self, uid: str) -> bool:
        """As the node tells it."""
        return bool(self.groups()[uid]["Instances"][0]["Healthy"])

    def plugin_pid(self) -> int | None:
        """The plugin's process, a child of the client agent."""
        assert self.client.process is not None
        for path in Path(f"/proc/{self.client.process.pid}/task").glob("*/children"):
            for child in path.read_text().split():
                with contextlib.suppress(OSError):
                    if testbed.PLUGIN.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                        return int(child)
        return None

    def submit(
        self, name: str, args: list[str], *constraints: tuple[str, str, str], task: str = TASK
    ) -> None:
        """A job of one raw_exec task with one board."""
        job = {
            "ID": name,
            "Name": name,
            "Type": "batch",
            "Datacenters": ["*"],
            "Namespace": "default",
            "TaskGroups": [
                {
                    "Name": "g",
                    "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                    "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
                    "Tasks": [
                        {
                            "Name": "t",
                            "Driver": "raw_exec",
                            "Config": {"command": sys.executable, "args": ["-c", task, *args]},
                            "Resources": {
                                "CPU": 20,
                                "MemoryMB": 32,
                                "Devices": [
                                    {
                                        "Name": "daiedge/edgedevice",
                                        "Count": 1,
                                        "Constraints": [
                                            {
                                                "LTarget": f"${{device.attr.{left}}}",
                                                "Operand": operator,
                                                "RTarget": right,
                                            }
                                            for left, operator, right in constraints
                                        ],
                                    }
                                ],
                            },
                        }
                    ],
                }
            ],
        }
        self.cluster.call("PUT", "/v1/jobs", {"Job": job})

    def allocation(self, job: str) -> dict[str, Any] | None:
        """Its newest one."""
        found = self._list(f"/v1/job/{job}/allocations")
        return max(found, key=lambda each: each["CreateIndex"], default=None)

    def status(self, job: str) -> str:
        """Of its newest allocation; "" without one."""
        return str((self.allocation(job) or {}).get("ClientStatus", ""))

    def purge(self) -> None:
        """End all jobs and wait for their tasks."""
        for job in self._list("/v1/jobs"):
            self.cluster.call("DELETE", f"/v1/job/{job['ID']}?purge=true")
        until(
            lambda: (
                not [
                    each
                    for each in self._list("/v1/allocations")
                    if each["ClientStatus"] in ("pending", "running")
                ]
            ),
            "all tasks have ended",
        )

    def _list(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.call("GET", path)
        return found


def family_boards(usb: Path) -> Mapping[str, list[object]]:
    families: dict[str, list[object]] = {}
    for uid in BOARDS:
        entry = board_entry(uid)
        if uid.startswith("x86"):
            entry["memory"]["ram"] = 16 * GIB
        if uid == USB:
            entry["engines"]["ort"]["devices"] = [str(usb)]
        if uid.startswith("jetson"):
            entry["engines"] = {"ort": {"supported_types": ["TYPE3"]}}
        families.setdefault(uid.split("-")[0], []).append(entry)
    return families


@pytest.fixture(scope="module")
def lab_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    usb = folder / "ttyUSB0"
    usb.touch()
    made = testbed.make(folder / "cluster", nomad_binary(), [family_boards(usb)])
    with running_nomad(made) as cluster:
        yield Lab(cluster, usb)


@pytest.fixture
def lab(lab_host: Lab) -> Iterator[Lab]:
    yield lab_host
    lab_host.purge()


def test_the_boards_of_the_file_are_devices_of_the_node(lab: Lab) -> None:
    groups = lab.groups()
    assert set(groups) == set(BOARDS)
    assert {(each["Vendor"], each["Type"]) for each in groups.values()} == {
        ("daiedge", "edgedevice")
    }
    assert [each["ID"] for each in groups[USB]["Instances"]] == [USB]
    attributes = lab.attributes("x86-0001-0001")
    assert attributes["memory.ram"] == 16 * GIB
    assert attributes["engines"] == "ort,tflite"
    assert attributes["dynamic.progress"] == 0
    assert CANARY not in json.dumps(lab.cluster.call("GET", "/v1/nodes?resources=true"))
    assert CANARY not in (lab.client.folder / "agent.log").read_text()


@pytest.mark.parametrize(
    ("constraints", "board"),
    [
        ([("target_uid", "=", BOARDS[1])], BOARDS[1]),
        ([("memory.ram", ">=", str(16 * GIB))], "x86-0001-0001"),
        ([("engine.ort.supported_types", "set_contains", "TYPE3")], "jetsonorinnano-0001-0001"),
        (
            [
                ("family", "=", "rpi5"),
                ("engines", "set_contains", "ort"),
                ("engine.ort.supported_types", "set_contains", "TYPE1"),
                ("memory.storage", ">=", "34359738368"),
                ("dynamic.progress", "<", "90"),
            ],
            USB,
        ),
        ([("dynamic.progress", "<", "0")], None),
        ([("target_uid", "=", "rpi4b-0009-0009")], None),
    ],
)
def test_constraints_decide_on_which_board_a_job_runs(
    lab: Lab, tmp_path: Path, constraints: list[tuple[str, str, str]], board: str | None
) -> None:
    task = "import os, sys; open(sys.argv[1], 'w').write(os.environ['EDGEYARD_BOARD'])"
    lab.submit("placed", [str(tmp_path / "board")], *constraints, task=task)
    if board is None:
        evaluations = until(
            lambda: [
                each
                for each in lab._list("/v1/job/placed/evaluations")
                if each["Status"] == "blocked" or each.get("FailedTGAllocs")
            ],
            "the job is blocked",
        )
        assert evaluations
        assert lab.allocation("placed") is None
        return
    until(lambda: lab.status("placed") == "complete", "the job is done")
    assert json.loads((tmp_path / "board").read_text())["target_uid"] == board


def test_a_task_gets_its_boards_address_and_no_secret(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lab.submit("env", [str(out)], ("target_uid", "=", BOARDS[0]))
    until(out.exists, "the task runs")
    env = until(lambda: json.loads(out.read_text() or "null"), "the task has written")
    facts = json.loads(env["EDGEYARD_BOARD"])
    assert facts == {
        "target_uid": BOARDS[0],
        "family": "rpi4b",
        "ram_bytes": 4 * GIB,
        "storage_bytes": 32 * GIB,
        "sandbox": {"mode": "auto", "devices": [], "paths": []},
        "progress_file": env["EDGEYARD_PROGRESS_FILE"],
        "emulated": False,
    }
    assert CANARY not in json.dumps(env)
    (tmp_path / "out.end").touch()
    until(lambda: lab.status("env") == "complete", "the task has ended")


def test_progress_is_on_the_node_within_seconds_and_zero_when_the_task_is_killed(
    lab: Lab, tmp_path: Path
) -> None:
    uid = BOARDS[0]
    out = tmp_path / "out"
    lab.submit("progress", [str(out), "30", "70"], ("target_uid", "=", uid))
    until(lambda: lab.attributes(uid)["dynamic.status"] == "busy", "the board is busy")
    for percent in (30, 70):
        began = time.monotonic()
        (tmp_path / f"out.{percent}").touch()
        _until_progress(lab, uid, percent)
        # reported at most every 5 s
        assert time.monotonic() - began < 5.0 + NODE_DELAY_S
    began = time.monotonic()
    os.kill(json.loads(out.read_text())["pid"], signal.SIGKILL)
    until(lambda: lab.attributes(uid)["dynamic.progress"] == 0, "progress is back at 0")
    assert time.monotonic() - began < NODE_DELAY_S
    assert lab.attributes(uid)["dynamic.status"] == "idle"


def test_two_jobs_for_one_board_run_one_after_the_other(lab: Lab, tmp_path: Path) -> None:
    uid = BOARDS[1]
    for name in ("first", "second"):
        lab.submit(name, [str(tmp_path / name)], ("target_uid", "=", uid))
    until(lambda: (tmp_path / "first").exists() or (tmp_path / "second").exists(), "one runs")
    running, waiting = ("first", "second") if (tmp_path / "first").exists() else ("second", "first")
    assert lab.allocation(waiting) is None
    (tmp_path / f"{running}.end").touch()
    until((tmp_path / waiting).exists, "the other runs")
    (tmp_path / f"{waiting}.end").touch()
    until(lambda: lab.status(waiting) == "complete", "both are done")


def test_a_killed_plugin_is_back_at_once_and_its_tasks_go_on(lab: Lab, tmp_path: Path) -> None:
    uid = BOARDS[0]
    out = tmp_path / "out"
    lab.submit("survivor", [str(out), "50"], ("target_uid", "=", uid))
    until(out.exists, "the task runs")
    (tmp_path / "out.50").touch()
    until(lambda: lab.attributes(uid)["dynamic.progress"] == 50, "progress")
    killed = lab.plugin_pid()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: lab.plugin_pid() not in (None, killed), "the plugin is started again")
    lab.cluster.await_boards(len(BOARDS))
    assert lab.attributes(uid)["dynamic.progress"] == 50
    assert lab.status("survivor") == "running"
    (tmp_path / "out.end").touch()
    until(lambda: lab.status("survivor") == "complete", "the task has ended well")
    until(lambda: lab.attributes(uid)["dynamic.progress"] == 0, "the new plugin sees the end")


def test_a_board_that_is_pulled_out_turns_unhealthy_within_one_probe_and_gets_no_job(
    lab: Lab, tmp_path: Path
) -> None:
    began = time.monotonic()
    lab.usb.unlink()
    try:
        until(lambda: not lab.healthy(USB), "the board is unhealthy")
        assert time.monotonic() - began < PROBE_S + NODE_DELAY_S
        (instance,) = lab.groups()[USB]["Instances"]
        assert instance["HealthDescription"] == f"{lab.usb} is gone"
        assert lab.attributes(USB)["dynamic.status"] == "unhealthy"
        lab.submit("waits", [str(tmp_path / "out")], ("target_uid", "=", USB))
        until(lambda: lab._list("/v1/job/waits/evaluations"), "the job was looked at")
        assert lab.allocation("waits") is None
    finally:
        lab.usb.touch()
    until((tmp_path / "out").exists, "the board is back and the job runs")
    (tmp_path / "out.end").touch()


def test_a_broken_boards_file_is_shown_by_nomad_and_changes_nothing(lab: Lab) -> None:
    path = lab.client.folder / "boards.json"
    good = path.read_text()
    path.write_text(good.replace("rpi5-0001-0001", "rpi5-1"))
    try:
        until(lambda: "error" in lab.groups(), "the problem is shown")
        problem = lab.groups()["error"]
        assert (problem["Type"], problem["Instances"][0]["Healthy"]) == ("boardsfile", False)
        assert "target_uid" in problem["Instances"][0]["HealthDescription"]
        assert lab.healthy(USB)
        assert "The boards file can't be used" in (lab.client.folder / "agent.log").read_text()
    finally:
        path.write_text(good)
    until(lambda: set(lab.groups()) == set(BOARDS), "all is as it was")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ('boards_file = "boards.json"', "boards_file: 'boards.json' is not an absolute path"),
        ('boards_file = "/b"\nprobe_interval = "soon"', "probe_interval: 'soon' is not a time"),
        ('state_dir = "/tmp"', "boards_file"),
        ('boards_file = "/b"\ncolour = "red"', "colour"),
    ],
)
def test_an_agent_with_wrong_settings_says_which(
    lab: Lab, tmp_path: Path, setting: str, expected: str
) -> None:
    text = (lab.client.folder / "agent.hcl").read_text()
    head = text[: text.index(f'plugin "{testbed.PLUGIN}"')].replace(
        str(lab.client.folder), str(tmp_path)
    )
    block = f'plugin "{testbed.PLUGIN}" {{\n  config {{\n{setting}\n  }}\n}}\n'
    (tmp_path / "agent.hcl").write_text(head + block)
    env = {name: value for name, value in os.environ.items() if "AWS_" not in name}
    done = subprocess.run(
        [lab.client.nomad, "agent", "-config", str(tmp_path / "agent.hcl")],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        check=False,
    )
    assert done.returncode != 0
    assert expected in done.stdout + done.stderr


def test_the_example_for_a_host_is_a_fit_configuration() -> None:
    example = Path(__file__).parents[2] / "deploy/nomad/client.hcl"
    done = subprocess.run(
        [nomad_binary(), "config", "validate", str(example)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("count", [20, 200])
def test_many_boards_on_one_host_cost_little(tmp_path: Path, count: int) -> None:
    boards = {"rpi4b": [board_entry(f"rpi4b-0001-{number:04}") for number in range(count)]}
    began = time.monotonic()
    cluster = testbed.make(tmp_path / "cluster", nomad_binary(), [boards]).up()
    try:
        lab = Lab(cluster, tmp_path)
        shown_s = time.monotonic() - began
        pid = lab.plugin_pid()
        assert pid is not None
        cpu_s, peer_s = _cpu_s(pid), _ended_children_s()
        began = time.monotonic()
        tasks = [
            subprocess.Popen([sys.executable, "-c", textwrap.dedent(_COUNTING), str(file)])
            for file in _progress_files(lab, count // 10)
        ]
        for task in tasks:
            assert task.wait(60) == 0
        until(
            lambda: all(
                lab.attributes(f"rpi4b-0001-{number:04}")["dynamic.progress"] == 0
                for number in range(0, count, count // 2)
            ),
            "all ended",
        )
        cpu_s = _cpu_s(pid) - cpu_s
        share = cpu_s / (time.monotonic() - began)
        ratio = cpu_s / (_ended_children_s() - peer_s)
        rss_mib = _rss_mib(pid)
        with contextlib.closing(NomadCluster(access_of(cluster))) as used:
            (host,) = used.hosts()
            assert len(host.boards) == count
            submitter, last = Submitter(used), f"rpi4b-0001-{count - 1:04}"
            assert submitter.run(a_job("pass", on(last))).target_uid == last
    finally:
        cluster.down()
    print(  # noqa: T201  # the figures of docs/how-to/lab-hosts.md
        f"\n{count} boards: shown after {shown_s:.1f} s, {rss_mib:.0f} MiB, {share:.1%} of a CPU, "
        f"{ratio:.2f} of what the tasks take that state their progress"
    )
    # twice what was measured on two cores that others used too
    assert rss_mib < 130
    assert ratio < 12


_COUNTING = """
    import os, sys, time
    for percent in range(0, 101, 5):
        open(sys.argv[1] + ".part", "w").write(str(percent))
        os.replace(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(0.5)
    os.unlink(sys.argv[1])
"""


def _until_progress(lab: Lab, uid: str, percent: int) -> None:
    until(lambda: lab.attributes(uid)["dynamic.progress"] == percent, f"progress is {percent}")


def _progress_files(lab: Lab, count: int) -> list[Path]:
    """Of boards whose tasks are played by this test: reserving 200 is not what is measured."""
    files = []
    for number in range(count):
        folder = lab.client.folder / f"state/boards/rpi4b-0001-{number:04}"
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / "progress")
    return files


def _ended_children_s() -> float:
    """Processor time of this process's children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if "VmRSS" in line).split()[1]) / 1024
