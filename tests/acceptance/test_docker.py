"""Benchmarks in containers: a real Nomad, its driver docker, and images built here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.process import Server, edgeyard
from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.hcl.build import secret_template
from edgeyard.scheduler.hcl.job import ConfigValue, NomadJob
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.benchmark import RETRYABLE
from edgeyard.scheduler.ports import JobRun
from tests.builders.cluster import TOKEN, eventually, on
from tests.builders.declaring import engine_entry, install
from tests.docker_lab import BOARD, OTHER, DockerLab, docker_entry
from tests.docker_lab import REGISTRY_PASSWORD as PASSWORD
from tests.docker_lab import REGISTRY_USER as USER
from tests.nomad_cluster import access_of

pytestmark = [
    pytest.mark.docker,
    pytest.mark.nomad,
    pytest.mark.slow,
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(600),
]

DEMO = Path(__file__).parents[2] / "deploy/demo"
PAGE = (Path(__file__).parents[2] / "docs/how-to/containers.md").read_text("utf-8")
WAIT_S = 240.0
FOR_EVER = 1_000_000
CANARY = "CANARY-password-of-the-host"

LOOK_AROUND = """
import glob, os, runpy, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
readable = os.access("/proc/1/root/tmp", os.R_OK)
try:
    open("/proc/1/environ").read()
    readable = True
except PermissionError:
    pass
print(f"capabilities {int(status['CapPrm'], 16)} {int(status['CapBnd'], 16)}, "
      f"new privileges {status['NoNewPrivs']}, bootstrap {readable}", file=sys.stderr)
socket = bool(glob.glob("/tmp/**/docker.sock", recursive=True))
host_list = any("containers.json" in files for _, _, files in os.walk("/tmp", followlinks=False))
lab = os.environ.get("LAB_NAME")
print(f"user {os.getuid()}, lab {lab}, socket {socket}, list {host_list}", file=sys.stderr)
sys.argv = ["edgeyard-runner"]
runpy.run_module("edgeyard.devices.runner", run_name="__main__")
"""


@pytest.fixture(scope="module")
def server(docker_lab: DockerLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with edgeyard(folder / "data", docker_lab.settings(folder / "inventory.json")) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Server, docker_lab: DockerLab) -> Iterator[None]:
    """A test that fails must not keep the boards from the others."""
    yield
    found = server.call("GET", "/v1/benchmarks?status=running")
    for each in found["items"]:
        server.call("POST", f"/v1/benchmarks/{each['benchmark_id']}/cancel")
    nothing_runs(docker_lab)


def submit(server: Server, **changes: object) -> str:
    body: dict[str, object] = {
        "model": uploaded(server, "digits.onnx"),
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "x86",
        "nb_inference": 20,
        **changes,
    }
    if body["benchmark_type"] != "TYPE1":
        del body["nb_inference"]
    made = server.call("POST", "/v1/benchmarks", body)
    return str(made["benchmark_id"])


def uploaded(server: Server, name: str) -> str:
    return str(server.upload(DEMO / name)["name"])


def report_of(server: Server, benchmark_id: str) -> dict[str, Any]:
    ended = server.wait(benchmark_id, timeout_s=WAIT_S)
    assert ended["status"] == "completed", ended
    report = server.report(benchmark_id)
    return report


def failure_of(server: Server, benchmark_id: str) -> tuple[str, str]:
    ended = server.wait(benchmark_id, ("failed",), timeout_s=WAIT_S)
    failure = ended["failure"]
    return failure["category"], failure["sentence"]


def attempts_of(server: Server, benchmark_id: str) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = server.show(benchmark_id)["attempts"]
    return attempts


def logs_of(server: Server, benchmark_id: str) -> str:
    return server.text(f"/v1/benchmarks/{benchmark_id}/logs?stream=stderr")


def nothing_runs(lab: DockerLab) -> None:
    eventually(lambda: lab.engine.running() == [], "no container is left", WAIT_S)


def test_type1_type2_and_type3_run_without_root_and_upload_their_results(
    server: Server, docker_lab: DockerLab
) -> None:
    type1 = submit(server)
    type2 = submit(server, benchmark_type="TYPE2", dataset=uploaded(server, "digits_test.npz"))
    type3 = submit(
        server,
        model=uploaded(server, "digits_new_head.onnx"),
        benchmark_type="TYPE3",
        dataset=uploaded(server, "digits_train.npz"),
        odt_config=json.loads((DEMO / "odt.json").read_text()),
    )
    first = report_of(server, type1)
    assert first["inference_latency"]["p50"] > 0
    assert first["confinement"]["method"] in ("landlock", "bubblewrap")
    logs = logs_of(server, type1)
    assert "The run is done" in logs
    assert "Traceback" not in logs
    assert report_of(server, type2)["accuracy"]
    assert report_of(server, type3)["training"]
    hcl = server.text(f"/v1/benchmarks/{type1}/hcl")
    assert 'driver = "docker"' in hcl
    assert "privileged = false" in hcl
    nothing_runs(docker_lab)


def test_cancelled_and_too_long_runs_leave_no_container(
    server: Server, docker_lab: DockerLab
) -> None:
    endless = {"nb_inference": FOR_EVER, "max_retries": 0}
    cancelled = submit(server, target_uid=BOARD, **endless)
    limited = submit(server, target_uid=OTHER, user_time=4, **endless)
    eventually(lambda: measuring(server, cancelled), "it measures", WAIT_S)
    name = container_of(docker_lab, server, cancelled)
    processes = docker_lab.engine.call("top", name, "-eo", "uid,pid,args").stdout.splitlines()[1:]
    assert {line.split()[0] for line in processes} == {"10001"}
    for line in processes:
        assert capabilities_of(line.split()[1]) == {0}, line
    server.call("POST", f"/v1/benchmarks/{cancelled}/cancel")
    assert server.wait(cancelled, ("cancelled",), timeout_s=WAIT_S)
    category, sentence = failure_of(server, limited)
    assert category == "timeout"
    assert "user_time of 4 s" in sentence
    nothing_runs(docker_lab)


def measuring(server: Server, benchmark_id: str) -> bool:
    return bool(server.show(benchmark_id)["phase"] == "measuring")


def capabilities_of(process: str) -> set[int]:
    """What a process may do beyond its user's rights; empty where it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return {0}
    return {int(each, 16) for each in re.findall(r"^Cap(?:Prm|Eff|Inh|Amb):\t(\w+)$", status, re.M)}


def container_of(lab: DockerLab, server: Server, benchmark_id: str) -> str:
    """Name of the bootstrap container, as Nomad gives it."""
    job_id = attempts_of(server, benchmark_id)[-1]["job_id"]
    found: Any = lab.nomad.call("GET", f"/v1/job/{job_id}/allocations?namespace=edgeyard")
    return f"bootstrap-job-{found[0]['ID']}"


def test_nomad_starts_the_runs_of_a_schedule_in_containers(
    server: Server, docker_lab: DockerLab
) -> None:
    """Every few seconds, until two of them have results; then it is deleted."""
    description = {
        "model": uploaded(server, "digits.onnx"),
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target_uid": BOARD,
        "nb_inference": 20,
        "cron": "*/3 * * * * * *",
        "cron_by": "nomad",
        "prohibit_overlap": True,
    }
    made = server.call("POST", "/v1/benchmarks", description)
    assert isinstance(made, dict)
    schedule_id = made["schedule_id"]

    def of_schedule() -> list[dict[str, Any]]:
        found = server.call("GET", f"/v1/benchmarks?schedule_id={schedule_id}&limit=500")
        assert isinstance(found, dict)
        return list(found["items"])

    def completed() -> list[str]:
        """Those that Edgeyard did not have to run again."""
        names = [str(e["benchmark_id"]) for e in of_schedule() if e["status"] == "completed"]
        return [each for each in names if len(attempts_of(server, each)) == 1]

    def is_over() -> bool:
        """Whether Nomad starts no more, and what it started has ended and is known."""
        path = f"/v1/jobs?namespace=edgeyard&prefix=benchmark-{schedule_id}-"
        jobs = docker_lab.nomad.call("GET", path)
        assert isinstance(jobs, list)
        ended = {"completed", "failed", "cancelled", "expired"}
        return all(each["Stop"] or each["Status"] == "dead" for each in jobs) and all(
            each["status"] in ended for each in of_schedule()
        )

    try:
        eventually(lambda: len(completed()) >= 2, "two runs have results", WAIT_S)
    finally:
        server.call("DELETE", f"/v1/schedules/{schedule_id}")
        eventually(is_over, "all of it has ended", WAIT_S)
    for benchmark_id in completed():
        report = report_of(server, benchmark_id)
        assert report["target_id"] == BOARD
        assert report["inference_latency"]["p50"] > 0
        (attempt,) = attempts_of(server, benchmark_id)
        assert "/periodic-" in attempt["job_id"]
        assert "The run is done" in logs_of(server, benchmark_id)
    parent_id = attempts_of(server, completed()[0])[0]["job_id"].partition("/")[0]
    parent = json.dumps(docker_lab.nomad.call("GET", f"/v1/job/{parent_id}?namespace=edgeyard"))
    assert '"Driver": "docker"' in parent
    assert "eys_" not in parent
    nothing_runs(docker_lab)


def test_an_engine_runs_in_the_image_that_its_host_states(
    server: Server, docker_lab: DockerLab
) -> None:
    """Name, login and registry stay on the host; the engine's container has no way to it."""
    (runner,) = docker_lab.images.values()
    own = replace(
        runner,
        name="registry.secret.example/lab/ort:1",
        entrypoint=("/usr/bin/python3", "-c", LOOK_AROUND),
        user="0:0",  # what the boards file states counts
    )
    docker_lab.engine.load([own])
    login = {"username": "lab", "password": CANARY}
    with docker_lab.board(BOARD, image=own.name, auth=login, env={"LAB_NAME": "mine"}):
        benchmark_id = submit(server, target_uid=BOARD)
        assert report_of(server, benchmark_id)["inference_latency"]["p50"] > 0
        logs = logs_of(server, benchmark_id)
        assert "user 10001, lab mine, socket False, list False" in logs
        assert "capabilities 0 0, new privileges 1, bootstrap False" in logs
        everything = logs + json.dumps(server.show(benchmark_id))
        everything += server.text(f"/v1/benchmarks/{benchmark_id}/hcl")
        job_id = attempts_of(server, benchmark_id)[0]["job_id"]
        everything += json.dumps(
            docker_lab.nomad.call("GET", f"/v1/job/{job_id}?namespace=edgeyard")
        )
        assert "registry.secret.example" not in everything
        assert CANARY not in everything

        # Nothing of it outlives the bootstrap, not even where that is killed.
        killed = submit(server, target_uid=BOARD, nb_inference=FOR_EVER, max_retries=0)
        eventually(lambda: measuring(server, killed), "it measures", WAIT_S)
        name = container_of(docker_lab, server, killed)
        assert len(docker_lab.engine.running()) == 2
        docker_lab.engine.call("kill", "--signal", "KILL", name)
        category, _ = failure_of(server, killed)
        assert category == "board_fault"
        nothing_runs(docker_lab)

        cancelled = submit(server, target_uid=BOARD, nb_inference=FOR_EVER)
        eventually(lambda: measuring(server, cancelled), "it measures", WAIT_S)
        server.call("POST", f"/v1/benchmarks/{cancelled}/cancel")
        assert server.wait(cancelled, ("cancelled",), timeout_s=WAIT_S)
        nothing_runs(docker_lab)


def test_root_in_the_container_of_an_engine_has_no_way_to_the_host(
    server: Server, docker_lab: DockerLab
) -> None:
    (runner,) = docker_lab.images.values()
    own = replace(
        runner, name="lab.example/root:1", entrypoint=("/usr/bin/python3", "-c", LOOK_AROUND)
    )
    docker_lab.engine.load([own])
    with docker_lab.board(BOARD, image=own.name, user="0:0"):
        benchmark_id = submit(server, target_uid=BOARD)
        report_of(server, benchmark_id)
        logs = logs_of(server, benchmark_id)
        assert "user 0, lab None, socket False, list False" in logs
        assert "capabilities 0 0, new privileges 1, bootstrap False" in logs
    # The bootstrap container has the engine's socket where one of the board's engines needs it.
    other = {"tflite": {"image": runner.name}}
    with docker_lab.board(BOARD, other, user="0:0"):
        refused = submit(server, target_uid=BOARD, max_retries=0)
        category, sentence = failure_of(server, refused)
        assert category == "board_fault"
        assert "would run with access to the host's container engine" in sentence
        assert "would run with access to the host's container engine" in PAGE
    with docker_lab.board(BOARD, other):
        report_of(server, submit(server, target_uid=BOARD))


def test_an_engine_of_a_lab_s_own_runs_its_type_in_the_image_that_the_page_builds(
    docker_lab: DockerLab, tmp_path: Path
) -> None:
    (runner,) = docker_lab.images.values()
    image = tmp_path / "image"
    install(image / "site")
    found = re.search(r"```dockerfile\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    text = found[1].replace("daiedge-vlab-bootstrap:1", runner.name)
    (image / "Dockerfile").write_text(text)
    docker_lab.engine.build(image, "lab.example/memory:1")
    inventory = tmp_path / "inventory.json"
    settings = docker_lab.settings(inventory)
    declaring = {"memory": engine_entry()}
    docker_lab.write_inventory(inventory, docker_entry(BOARD, declaring), docker_entry(OTHER))
    in_image = {"memory": {**engine_entry(), "image": "lab.example/memory:1"}}
    with docker_lab.board(BOARD, in_image), edgeyard(tmp_path / "data", settings) as own:
        (tmp_path / "any.bin").write_bytes(b"the engine reads no model")
        description = {
            "model": str(own.upload(tmp_path / "any.bin")["name"]),
            "runtime": "memory",
            "benchmark_type": "TYPE4",
            "target": "x86",
            "parameters": {"mebibytes": 4, "access": "fill"},
        }
        made: Any = own.call("POST", "/v1/benchmarks", description)
        benchmark_id = made["benchmark_id"]
        report = report_of(own, benchmark_id)
        assert report["benchmark_type"] == "TYPE4"
        assert report["results"]["bandwidth"]["unit"] == "MiB/s"
        assert report["results"]["bandwidth"]["value"] > 0
        assert report["results"]["access"] == {"value": "fill"}
        assert own.show(benchmark_id)["target_uid"] == BOARD
        hcl = own.text(f"/v1/benchmarks/{benchmark_id}/hcl")
        assert runner.name in hcl
        assert "lab.example/memory" not in hcl
    nothing_runs(docker_lab)


def test_passwords_of_registries_are_only_where_the_page_says(
    docker_lab: DockerLab, docker_registry: str, tmp_path: Path
) -> None:
    (runner,) = docker_lab.images.values()
    settings = {
        **docker_lab.settings(tmp_path / "inventory.json"),
        "EDGEYARD_DOCKER_IMAGE": docker_lab.push_runner(docker_registry, "lab/bootstrap:1"),
        "EDGEYARD_DOCKER_AUTH_USERNAME": USER,
        "EDGEYARD_DOCKER_AUTH_PASSWORD": PASSWORD,
    }
    login = {"username": "lab", "password": CANARY}
    with (
        docker_lab.board(BOARD, image=runner.name, auth=login),
        edgeyard(tmp_path / "data", settings) as own,
    ):
        benchmark_id = submit(own, target_uid=BOARD, nb_inference=FOR_EVER, max_retries=0)
        eventually(lambda: measuring(own, benchmark_id), "it measures", WAIT_S)
        assert processes_with(CANARY) == []
        # The server has it from its settings, here from its environment, as what it starts has.
        known = own.process.pid
        assert all(known in each for each in processes_with(PASSWORD))
        names = docker_lab.engine.running()
        assert len(names) == 2
        inspected = docker_lab.engine.call("inspect", *names).stdout
        own.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
        own.wait(benchmark_id, ("cancelled",), timeout_s=WAIT_S)
        nothing_runs(docker_lab)  # the stop of its job is its server's
        path = f"/v1/benchmarks/{benchmark_id}"
        pages = [path, f"{path}/events", f"{path}/hcl", f"{path}/explanation", "/v1/boards"]
        everything = "".join(own.text(each) for each in (*pages, "/metrics"))
        everything += inspected + logs_of(own, benchmark_id)
        assert PASSWORD not in everything
        assert CANARY not in everything
        assert 'password = "******"' in everything
    assert files_with(tmp_path, PASSWORD) == files_with(tmp_path, CANARY) == set()
    lab = docker_lab.nomad.clients[0].folder.parent
    of_host = {"boards.json", "containers.json"}
    of_nomad = {"raft.db", "state.db", "state.bin"}  # they hold the job
    assert files_with(lab, PASSWORD) <= of_nomad | of_host
    assert files_with(lab, CANARY) <= of_host
    nothing_runs(docker_lab)


def processes_with(text: str) -> list[tuple[int, int]]:
    """Return processes whose environment or command line has a text, each with its parent."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                content = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
                parent = re.search(r"^PPid:\t(\d+)$", (folder / "status").read_text(), re.M)
            except OSError:  # it has ended
                continue
            if text.encode() in content and parent is not None:
                found.append((int(folder.name), int(parent[1])))
    return found


def files_with(folder: Path, text: str) -> set[str]:
    """Return names of files below a folder that contain a text."""
    found = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                if path.is_file() and text.encode() in path.read_bytes():
                    found.add(name)
            except OSError:  # it is gone
                continue
    return found


def test_what_a_user_submits_can_t_change_the_container(server: Server) -> None:
    for field, value in (
        ("privileged", True),
        ("docker_privileged", True),
        ("image", "lab.example/mine:1"),
        ("volumes", ["/:/host"]),
        ("env", {"A": "B"}),
    ):
        with pytest.raises(RuntimeError, match=f"422.*/{field}"):
            submit(server, **{field: value})


def test_images_that_a_host_can_t_get_are_clear_failures_that_are_tried_elsewhere(
    server: Server, docker_lab: DockerLab, docker_registry: str
) -> None:
    docker_lab.push(docker_registry, "lab/ort:1")
    image, right = f"{docker_registry}/lab/ort:1", {"username": USER, "password": PASSWORD}
    cases: list[tuple[dict[str, object], str]] = [
        ({"image": image, "auth": {**right, "password": CANARY}}, "refuses the host's login"),
        ({"image": image}, "refuses the host's login"),
        ({"image": f"{docker_registry}/lab/none:1", "auth": right}, "is missing"),
        ({"image": "127.0.0.1:9/lab/ort:1"}, "can't be reached"),
        ({"image": docker_lab.foreign()}, "is built for arm64, and the host is amd64"),
    ]
    for fields, reason in cases:
        with docker_lab.board(BOARD, {"ort": fields}):
            benchmark_id = submit(server, target_uid=BOARD, max_retries=0)
            category, sentence = failure_of(server, benchmark_id)
            assert category == "board_fault"
            assert reason in sentence
            assert reason in PAGE
            assert "the lab's operator" in sentence
            everything = json.dumps(server.show(benchmark_id)) + logs_of(server, benchmark_id)
            assert docker_registry not in everything
            assert CANARY not in everything
    with docker_lab.board(BOARD, image=image, auth=right):
        # It is fetched, starts, and is no runner: its words are in the log.
        benchmark_id = submit(server, target_uid=BOARD, max_retries=0)
        failure_of(server, benchmark_id)
        assert "from the registry" in server.text(
            f"/v1/benchmarks/{benchmark_id}/logs?stream=stdout"
        )
    nothing_runs(docker_lab)
    with docker_lab.board(BOARD, image="127.0.0.1:9/lab/ort:1"):
        # The other host has no such trouble.
        benchmark_id = submit(server, max_retries=3)
        report_of(server, benchmark_id)
        assert attempts_of(server, benchmark_id)[-1]["target_uid"] == OTHER


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("missing", "(not found|manifest unknown).*; the lab's operator corrects docker_image"),
        ("refused", "(unauthorized|no basic auth).*; the lab's operator corrects docker_auth_user"),
        ("foreign", "could not run the runner"),
        ("privileged", "privileged mode is disabled.*sets docker_privileged = false"),
    ],
)
def test_a_bootstrap_image_that_is_no_good_is_the_cluster_s_matter(
    docker_lab: DockerLab, docker_registry: str, image: str, reason: str
) -> None:
    docker_lab.push(docker_registry, "lab/ort:1")
    login = {"username": USER, "password": PASSWORD}
    name, auth = {
        "missing": (f"{docker_registry}/lab/none:1", login),
        "refused": (f"{docker_registry}/lab/ort:2", None),
        "foreign": (docker_lab.foreign(), None),
        "privileged": (next(iter(docker_lab.images.values())).name, None),
    }[image]
    cluster = NomadCluster(access_of(docker_lab.nomad))
    try:
        job_id = f"benchmark-{image}"
        config: dict[str, ConfigValue] = {
            "image": name,
            "network_mode": "host",
            **({"auth": auth} if auth else {}),
            "privileged": image == "privileged",
        }
        job = NomadJob(
            job_id=job_id,
            priority=50,
            driver="docker",
            config=config,
            env={},
            artifacts=(),
            constraints=(on(BOARD),),
            templates=(secret_template(job_id, [TOKEN]),),
        )
        cluster.dispatch(job_id, render(job), {TOKEN: "t"})
        eventually(lambda: cluster.states([job_id])[job_id].run is JobRun.ENDED, "it ends", WAIT_S)
        failure = cluster.states([job_id])[job_id].failure
        assert failure is not None
        assert failure.category in RETRYABLE
        assert re.search(reason, failure.sentence)
        assert PASSWORD not in failure.sentence
    finally:
        cluster.close()


def test_a_run_survives_the_death_of_its_container_engine(
    server: Server, docker_lab: DockerLab
) -> None:
    """It is run again once the engine is back; nothing of the first attempt goes on."""
    # Without user_time: earlier runs of the model on a slow machine may predict that a million
    # inferences take longer than any such limit, which keeps a benchmark waiting.
    benchmark_id = submit(server, nb_inference=FOR_EVER, max_retries=3)
    eventually(lambda: measuring(server, benchmark_id), "it measures", WAIT_S)
    docker_lab.engine.kill()
    meanwhile = submit(server, max_retries=9)
    docker_lab.engine.start()
    eventually(
        lambda: len(attempts_of(server, benchmark_id)) == 2 and measuring(server, benchmark_id),
        "its second attempt measures",
        WAIT_S,
    )
    server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
    server.wait(benchmark_id, ("cancelled",), timeout_s=WAIT_S)
    first, second = attempts_of(server, benchmark_id)
    assert first["failure"]["category"] in {each.value for each in RETRYABLE}, first
    assert second["started_at"] > first["task_ended_at"]
    nothing_runs(docker_lab)
    report_of(server, meanwhile)
    for each in attempts_of(server, meanwhile):
        if each["failure"] and "Docker daemon" in each["failure"]["sentence"]:
            assert "; the lab's operator starts Docker there" in each["failure"]["sentence"]
