"""The main path through a real Nomad: submitted over HTTP, run on the decided board, and back."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.process import Server, edgeyard, start
from edgeyard.scheduler.hcl.cron import cron_of
from edgeyard.scheduler.twin.document import TwinData, read_twin_data
from edgeyard.testbed import LoopbackNomad
from edgeyard.testbed.saved import CLUSTER
from tests.builders.cluster import eventually
from tests.builders.hcl import flat
from tests.nomad_cluster import clear, settings_of

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
EXAMPLE = Path(__file__).parents[1] / "data/platform_example.json"
BOARD = "rpi4b-0001-0002"
STRANGER = "jetsonorinnano-0003-0001"
"""A board that hosts report and the inventory does not name."""


@pytest.fixture(scope="module")
def server(
    nomad_cluster: LoopbackNomad, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    clear(nomad_cluster)
    folder = tmp_path_factory.mktemp("server")
    settings = settings_of(nomad_cluster, folder / "inventory.json", without={STRANGER})
    with edgeyard(folder / "data", {**settings, "EDGEYARD_START_LEAD_S": "60"}) as running:
        yield running
    clear(nomad_cluster)


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.upload(MODEL)["name"])


def submit(server: Server, model: str, **changes: object) -> str:
    return server.submit({"model": model, "target": "rpi4b", "nb_inference": 20, **changes})


def attempt_of(shown: dict[str, Any]) -> dict[str, Any]:
    attempt: dict[str, Any]
    (attempt,) = shown["attempts"]
    return attempt


@pytest.mark.parametrize("pinned", [True, False])
def test_a_benchmark_runs_on_the_decided_board_and_its_result_comes_back(
    server: Server, nomad_cluster: LoopbackNomad, model: str, pinned: bool
) -> None:
    benchmark_id = submit(server, model, **({"target_uid": BOARD} if pinned else {}))
    ended = server.wait(benchmark_id)
    assert ended["status"] == "completed", ended["failure"]
    report = server.report(benchmark_id)
    assert report["inference_latency"]["p50"] > 0

    attempt = attempt_of(ended)
    job_id = attempt["job_id"]
    # Where it was decided to run is where Nomad ran it, and what its host's plugin handed it.
    (run,) = (each for each in allocations(nomad_cluster) if each["JobID"] == job_id)
    assert board_of(run) == ended["target_uid"] == report["target_id"]
    if pinned:
        assert ended["target_uid"] == BOARD
    assert run["ClientStatus"] == "complete"
    assert attempt["cluster_page"] == f"{nomad_cluster.address}/ui/jobs/{job_id}@edgeyard"

    logs = server.text(f"/v1/benchmarks/{benchmark_id}/logs?stream=stderr")
    assert "Traceback" not in logs
    job = json.dumps(nomad_cluster.call("GET", f"/v1/job/{job_id}?namespace=edgeyard"))
    assert "eyu_" not in job + logs
    eventually(
        lambda: nomad_cluster.call("GET", "/v1/vars?namespace=edgeyard&prefix=nomad/jobs/") == [],
        "the upload token is gone from Nomad",
    )


def test_the_twin_shows_the_boards_and_benchmarks_of_nomad_with_their_loads(
    server: Server, model: str
) -> None:
    benchmark_id = submit(server, model, target_uid=BOARD)
    assert server.wait(benchmark_id, timeout_s=120)["status"] == "completed"

    def state() -> TwinData:
        return read_twin_data(json.dumps(server.call("GET", "/v1/twin/data")).encode())

    def is_measured() -> bool:
        (node,) = [each for each in state().nodes if each.id == BOARD]
        # 0 stands for a load that no host has reported.
        return node.load_measured and node.memory_load > 0 and node.online

    eventually(is_measured, "the board's host reports its memory", 120.0)
    found = state()
    assert found.source == f"live: {CLUSTER}"
    (job,) = [each for each in found.jobs if each.name == benchmark_id]
    assert (job.status, job.node_id) == ("completed", BOARD)
    assert job.time_run > 0
    assert ("rpi4b-0001-0001", BOARD) in {(each.source, each.target) for each in found.links}


@pytest.mark.parametrize("pinned", [True, False])
def test_the_platform_s_example_starts_at_its_second_and_its_parent_ends(
    server: Server, nomad_cluster: LoopbackNomad, tmp_path: Path, pinned: bool
) -> None:
    """All that the platform's published job says, its driver and its moment apart."""
    named = tmp_path / "small_model.onnx"
    shutil.copyfile(MODEL, named)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    benchmark_id = submit(
        server,
        str(server.upload(named)["name"]),
        ram=4 * 2**30,
        storage=16 * 2**30,
        job_completion_threshold=90,
        start_time=due.isoformat(),
        **({"target_uid": BOARD} if pinned else {"binding": "filtered"}),
    )
    ended = server.wait(benchmark_id)
    assert ended["status"] == "completed", ended["failure"]
    attempt = attempt_of(ended)
    started = datetime.fromisoformat(str(attempt["started_at"]))
    assert timedelta(0) <= started - due < timedelta(seconds=2)
    job_id = str(attempt["job_id"])
    job = nomad_job(nomad_cluster, job_id)
    found, example = flat({"Job": job}), flat(json.loads(EXAMPLE.read_text()))
    differing = {path for path, value in example.items() if found.get(path) != value}
    task = "Job.TaskGroups[0].Tasks[0]"
    assert {path for path in differing if not path.startswith(f"{task}.Config")} == {
        *("Job.ID", "Job.Name", "Job.Periodic.Specs[0]"),
        *(f"{task}.Driver", f"{task}.Env.RESULTS_PUB_URL"),
        *(f"{task}.Artifacts[0].GetterSource", f"{task}.Artifacts[0].RelativeDest"),
    }
    assert found["Job.Periodic.Specs[0]"] == cron_of(due)
    *_, last = job["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"][0]["Constraints"]
    boards = "rpi4b-0001-0001,rpi4b-0001-0002"
    assert last == {
        "LTarget": "${device.attr.target_uid}",
        "Operand": "=" if pinned else "set_contains_any",
        "RTarget": BOARD if pinned else boards,
    }
    eventually(
        lambda: nomad_job(nomad_cluster, job_id)["Status"] == "dead",
        "the job that made the start is stopped",
    )


def test_a_board_that_another_namespace_uses_is_shown_busy_and_waited_for(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    """A lab migrates while its old scheduler still runs, which goes on giving its jobs boards."""
    constraint = {"LTarget": "${device.attr.target_uid}", "Operand": "=", "RTarget": BOARD}
    device = {"Name": "daiedge/edgedevice", "Count": 1, "Constraints": [constraint]}
    task = {
        "Name": "train",
        "Driver": "raw_exec",
        "Config": {"command": "/bin/sleep", "args": ["600"]},
        "Resources": {"CPU": 50, "MemoryMB": 32, "Devices": [device]},
    }
    job = {"ID": "other-lab-7", "Type": "batch", "Namespace": "default", "Datacenters": ["*"]}
    group = {"Name": "train", "Count": 1, "Tasks": [task]}
    nomad_cluster.call("PUT", "/v1/jobs", {"Job": {**job, "TaskGroups": [group]}})

    def shown() -> dict[str, object]:
        found: dict[str, object] = server.call("GET", f"/v1/boards/{BOARD}")
        return found

    try:
        eventually(lambda: shown()["state"] == "busy", "the board is shown busy")
        assert "outside Edgeyard" in str(shown()["reason"])
        benchmark_id = submit(server, model, target_uid=BOARD)

        def waiting() -> bool:
            found = server.call("GET", f"/v1/benchmarks/{benchmark_id}")
            assert found["status"] == "pending", found
            return bool((found["waiting_reason"] or {}).get("code") == "board_busy")

        eventually(waiting, "it waits for the board")
    finally:
        nomad_cluster.call("DELETE", "/v1/job/other-lab-7?namespace=default&purge=true")
    assert server.wait(benchmark_id, timeout_s=120)["status"] == "completed"


def test_forty_loose_submissions_run_once_each_and_are_recorded_on_the_boards_that_ran_them(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    """Bound loosely, so that Nomad itself chooses the boards, of the inventory only."""
    families = ["rpi5"] * 18 + ["jetsonorinnano"] * 13 + ["rpi4b"] * 7 + ["x86"] * 2
    # No latency is read here: an accuracy launches the model once, a latency four times.
    dataset = str(server.upload(MODEL.with_name("digits_test.npz"))["name"])
    accuracy = {"benchmark_type": "TYPE2", "dataset": dataset}

    def submitted(family: str) -> str:
        # With the platform's threshold, which no short run's late news of its progress holds up.
        return server.submit(
            {
                "model": model,
                "target": family,
                "binding": "loose",
                "job_completion_threshold": 90,
                **(accuracy if family in ("rpi5", "x86") else {"nb_inference": 2}),
            }
        )

    with ThreadPoolExecutor(len(families), "users") as users:
        ids = list(users.map(submitted, families))
    assert len(set(ids)) == 40
    runs: dict[str, list[tuple[str, str]]] = {}
    for benchmark_id in ids:
        ended = server.wait(benchmark_id, timeout_s=120)
        assert ended["status"] == "completed", ended["failure"]
        attempt = attempt_of(ended)
        times = (str(attempt["started_at"]), str(attempt["task_ended_at"]))
        runs.setdefault(str(ended["target_uid"]), []).append(times)
    assert STRANGER not in runs
    assert state_of(server, STRANGER) == "unknown"
    for board, spans in runs.items():
        for (_, end), (begin, _) in pairwise(sorted(spans)):
            assert datetime.fromisoformat(end) <= datetime.fromisoformat(begin), board
    placed = allocations(nomad_cluster)
    counted = Counter(each["JobID"] for each in placed)
    attempts = {benchmark_id: attempt_of(server.show(benchmark_id)) for benchmark_id in ids}
    assert [counted[each["job_id"]] for each in attempts.values()] == [1] * 40
    evaluations = {str(each["evaluation_id"]) for each in attempts.values()}
    assert len(evaluations) == 40
    some = min(evaluations)
    found = nomad_cluster.call("GET", f"/v1/evaluation/{some}?namespace={nomad_cluster.namespace}")
    assert found["ID"] == some
    given = {each["JobID"]: board_of(each) for each in placed}
    wrong = {}
    for benchmark_id, attempt in attempts.items():
        results = server.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
        said = {
            "benchmark": server.show(benchmark_id)["target_uid"],
            "attempt": attempt["target_uid"],
            "report": results["reports"][0]["report"]["board"]["target_uid"],
        }
        if set(said.values()) != {given[attempt["job_id"]]}:
            wrong[benchmark_id] = (given[attempt["job_id"]], said)
    assert not wrong, f"{len(wrong)} of {len(ids)} are recorded on another board"


def test_a_loose_job_that_nomad_does_not_place_says_why_in_nomad_s_words(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    hog = {
        "ID": "hog",
        "Type": "batch",
        "Datacenters": ["dc1"],
        "Constraints": [{"LTarget": "${node.unique.name}", "RTarget": "client-0", "Operand": "="}],
        "TaskGroups": [
            {
                "Name": "hog",
                "Tasks": [
                    {
                        "Name": "hog",
                        "Driver": "raw_exec",
                        "Config": {"command": "sleep", "args": ["600"]},
                        "Resources": {"CPU": 100, "MemoryMB": 16_200},
                    }
                ],
            }
        ],
    }
    where = f"namespace={nomad_cluster.namespace}"
    nomad_cluster.call("PUT", f"/v1/jobs?{where}", {"Job": hog})
    eventually(
        lambda: any(
            each["JobID"] == "hog" and each["ClientStatus"] == "running"
            for each in allocations(nomad_cluster)
        ),
        "the host is full",
    )
    benchmark_id = submit(server, model, target="x86", binding="loose")

    def reported() -> Mapping[str, Any]:
        reason = server.show(benchmark_id)["waiting_reason"]
        return reason if isinstance(reason, dict) else {}

    try:
        # At first it may be the late news of the last task's progress: on a busy machine for long.
        eventually(
            lambda: "1 host: no memory left" in reported().get("sentence", ""),
            "it is reported",
            90.0,
        )
        assert reported()["code"] == "cluster_constraint"
        assert server.show(benchmark_id)["status"] == "scheduled"
    finally:
        nomad_cluster.call("DELETE", f"/v1/job/hog?purge=true&{where}")
    ended = server.wait(benchmark_id)
    assert ended["status"] == "completed"
    assert ended["waiting_reason"] is None


def test_constraints_on_nodes_choose_the_host(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    """``rpi5`` boards are on two hosts; what Nomad knows of those decides, by us and by Nomad."""

    def constrained(host: str) -> dict[str, object]:
        found = [
            {"attribute": "${meta.host}", "operator": "=", "value": host},
            {"attribute": "${node.class}", "operator": "=", "value": "emulated"},
            {"attribute": "${attr.kernel.name}", "operator": "=", "value": "linux"},
        ]
        return {"target": "rpi5", "constraints": found}

    made = {host: submit(server, model, **constrained(host)) for host in ("client-0", "client-1")}
    for host, benchmark_id in made.items():
        ended = server.wait(benchmark_id, timeout_s=120)
        assert ended["status"] == "completed", ended["failure"]
        job_id = attempt_of(ended)["job_id"]
        (run,) = (each for each in allocations(nomad_cluster) if each["JobID"] == job_id)
        assert run["NodeName"] == host
        job = nomad_cluster.call("GET", f"/v1/job/{job_id}?namespace={nomad_cluster.namespace}")
        stated = {each["LTarget"]: each["RTarget"] for each in job["Constraints"]}
        assert stated["${meta.host}"] == host
    with pytest.raises(RuntimeError, match="holds for no known board of rpi5"):
        submit(server, model, **constrained("client-7"))


def loose_job_that_runs_on_client_0(
    server: Server, nomad_cluster: LoopbackNomad, model: str, **wishes: object
) -> dict[str, Any]:
    """Run a benchmark there, which has one of five boards; return its job as Nomad states it."""
    benchmark_id = submit(server, model, target="rpi5", binding="loose", **wishes)
    ended = server.wait(benchmark_id, timeout_s=120)
    assert ended["status"] == "completed", ended["failure"]
    attempt = attempt_of(ended)
    (run,) = (each for each in allocations(nomad_cluster) if each["JobID"] == attempt["job_id"])
    assert run["NodeName"] == "client-0"  # the other four are on client-1
    where = f"namespace={nomad_cluster.namespace}"
    job: dict[str, Any] = nomad_cluster.call("GET", f"/v1/job/{attempt['job_id']}?{where}")
    return job


def test_nomad_follows_the_affinity_of_a_loose_job(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    own = {"attribute": "${meta.host}", "operator": "=", "value": "client-0", "weight": 100}
    job = loose_job_that_runs_on_client_0(server, nomad_cluster, model, affinities=[own])
    (stated,) = job["Affinities"]
    assert (stated["LTarget"], stated["Weight"]) == ("${meta.host}", 100)


def test_nomad_follows_the_targets_of_the_spread_of_a_loose_job(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    own = {"attribute": "${node.unique.name}", "weight": 100, "targets": {"client-0": 100}}
    job = loose_job_that_runs_on_client_0(server, nomad_cluster, model, spreads=[own])
    (stated,) = job["Spreads"]
    assert (stated["Attribute"], stated["Weight"]) == ("${node.unique.name}", 100)
    assert stated["SpreadTarget"] == [{"Value": "client-0", "Percent": 100}]


def why_not_ready(server: Server) -> str:
    with pytest.raises(RuntimeError, match=" 503 ") as refused:
        server.call("GET", "/readyz?verbose")
    return str(refused.value)


def test_an_empty_database_beside_live_jobs_dispatches_nothing_and_cancels_nothing(
    server: Server, nomad_cluster: LoopbackNomad, model: str, tmp_path: Path
) -> None:
    running = submit(server, model, target_uid=BOARD, nb_inference=1_000_000)
    job_id = str(attempt_of(server.wait(running, ("running",)))["job_id"])
    settings = settings_of(nomad_cluster, tmp_path / "inventory.json")
    other = start(tmp_path / "data", settings, ready="/livez")
    try:
        eventually(lambda: job_id in why_not_ready(other), "it says whose jobs are there")
        mine = submit(other, str(other.upload(MODEL)["name"]), target="x86")

        def waits() -> bool:
            return other.show(mine)["waiting_reason"] is not None

        eventually(waits, "it was decided about")
        assert other.show(mine)["status"] == "pending"
        assert server.show(running)["status"] == "running"
        server.call("POST", f"/v1/benchmarks/{running}/cancel")
        assert other.wait(mine)["status"] == "completed"
    finally:
        other.end()
    assert [each["JobID"] for each in allocations(nomad_cluster)].count(job_id) == 1


def test_a_benchmark_of_two_boards_waits_for_both_and_runs_on_both_at_the_same_time(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    single = submit(server, model, target_uid=BOARD, nb_inference=1_000_000, max_retries=0)
    server.wait(single, ("running",))
    body = {"model": model, "runtime": "ort", "benchmark_type": "TYPE1", "target": "rpi4b"}
    made = server.call("POST", "/v1/benchmarks", {**body, "nb_inference": 20, "count": 2})
    ids = [str(each) for each in made["benchmark_ids"]]

    def waits_for_both() -> bool:
        reasons = [server.show(each)["waiting_reason"] for each in ids]
        return all(
            isinstance(each, dict)
            and each["sentence"] == "it needs 2 boards at the same time, of which 1 is free"
            for each in reasons
        )

    eventually(waits_for_both, "no benchmark of the gang takes the free board")
    assert all(server.show(each)["attempts"] == [] for each in ids)
    server.call("POST", f"/v1/benchmarks/{single}/cancel")

    ended = [server.wait(each, timeout_s=300) for each in ids]
    assert [each["status"] for each in ended] == ["completed", "completed"], ended
    attempts = [attempt_of(each) for each in ended]
    assert {each["target_uid"] for each in attempts} == {"rpi4b-0001-0001", BOARD}
    runs = {each["JobID"]: each for each in allocations(nomad_cluster)}
    assert all(board_of(runs[each["job_id"]]) == each["target_uid"] for each in attempts)
    # How long the runs overlap depends on the machine; both jobs were made in one transaction.
    assert len({each["created_at"] for each in attempts}) == 1
    for each in ended:
        results = server.call("GET", f"/v1/benchmarks/{each['benchmark_id']}/results")
        assert results["reports"][0]["report"]["target_id"] == each["target_uid"]
    campaign = server.call("GET", f"/v1/campaigns/{made['campaign_id']}")
    assert {each["status"] for each in campaign["benchmarks"]} == {"completed"}


def test_a_cancelled_benchmark_frees_its_board(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    benchmark_id = submit(server, model, target_uid=BOARD, nb_inference=1_000_000)
    server.wait(benchmark_id, ("running",))
    server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
    again = submit(server, model, target_uid=BOARD)
    assert server.wait(again)["status"] == "completed"
    assert server.show(benchmark_id)["status"] == "cancelled"


def test_an_urgent_benchmark_preempts_a_less_urgent_one_and_nomad_decides_nothing(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    found = nomad_cluster.call("GET", "/v1/operator/scheduler/configuration")
    off = found["SchedulerConfig"]["PreemptionConfig"]
    assert off["BatchSchedulerEnabled"] is False
    assert off["ServiceSchedulerEnabled"] is False
    victim = submit(
        server,
        model,
        target_uid=BOARD,
        nb_inference=1_000_000,
        user_priority=1,
        max_retries=0,
        preemptible=True,
        preemptible_measuring=True,
    )
    server.wait(victim, ("running",))
    urgent = submit(server, model, target_uid=BOARD, user_priority=10, job_completion_threshold=100)
    ended = server.wait(urgent, timeout_s=120)
    assert (ended["status"], ended["target_uid"]) == ("completed", BOARD), ended["failure"]

    again = server.wait(victim, ("running",))
    attempts = again["attempts"]
    first, second = attempts
    assert first["failure"]["category"] == "preempted"
    assert (first["target_uid"], second["target_uid"]) == (BOARD, BOARD)
    (run,) = (each for each in allocations(nomad_cluster) if each["JobID"] == first["job_id"])
    assert (run["DesiredStatus"], run["ClientStatus"]) == ("stop", "complete")
    whole = nomad_cluster.call("GET", f"/v1/allocation/{run['ID']}")
    assert not whole.get("PreemptedByAllocation")  # left out where Nomad preempted nothing
    stopped = nomad_job(nomad_cluster, first["job_id"])
    assert (stopped["Stop"], stopped["Status"]) == (True, "dead")
    # It began after the one was stopped, and before the other began again.
    moments = [
        datetime.fromisoformat(str(each))
        for each in (
            first["task_ended_at"],
            attempt_of(ended)["started_at"],
            attempt_of(ended)["task_ended_at"],
            second["started_at"],
        )
    ]
    assert moments == sorted(moments)
    kinds = [
        [each["kind"] for each in events_of(server, benchmark_id)]
        for benchmark_id in (victim, urgent)
    ]
    assert kinds[0].count("benchmark.preempted") == kinds[1].count("benchmark.preempts") == 1
    server.call("POST", f"/v1/benchmarks/{victim}/cancel")  # it would run for minutes
    assert server.wait(victim)["status"] == "cancelled"


def test_a_user_s_text_runs_as_it_was_written_or_is_refused_at_submission(
    server: Server, nomad_cluster: LoopbackNomad, tmp_path: Path
) -> None:
    odd = tmp_path / "mo'del {{x}} $HOME 100% #[é🙂].onnx"
    shutil.copyfile(MODEL, odd)
    tag = "a\"b'c \\n {{ with nomadVar }} $(id) %d <<EOT"
    name = str(server.upload(odd)["name"])
    other = {"attribute": "os.name", "operator": "!=", "value": tag}
    benchmark_id = submit(server, name, target="x86", constraints=[other])
    ended = server.wait(benchmark_id)
    assert ended["status"] == "completed", ended["failure"]
    job = nomad_job(nomad_cluster, str(attempt_of(ended)["job_id"]))
    task = job["TaskGroups"][0]["Tasks"][0]
    assert task["Env"]["MODEL_FILENAME"] == odd.name
    constraints = task["Resources"]["Devices"][0]["Constraints"]
    assert tag in [each["RTarget"] for each in constraints]
    for text in ("${NOMAD_ALLOC_ID}", "%{ if true }", "two\nlines", "nul\0"):
        with pytest.raises(RuntimeError, match=r"422 .*version_tag"):
            submit(server, name, version_tag=text)


def test_a_broken_model_fails_with_the_runner_s_own_words(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(MODEL.read_bytes().replace(b"\x04Relu", b"\x04Rel_"))
    benchmark_id = submit(server, str(server.upload(broken)["name"]))
    ended = server.wait(benchmark_id)
    assert ended["status"] == "failed"
    failure = ended["failure"]
    assert failure["category"] == "engine_unsupported"


def allocations(nomad: LoopbackNomad) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = nomad.call(
        "GET", f"/v1/allocations?namespace={nomad.namespace}&resources=true"
    )
    return found


def board_of(allocation: Mapping[str, Any]) -> str:
    """The board that Nomad gave it."""
    (device,) = allocation["AllocatedResources"]["Tasks"]["bootstrap-job"]["Devices"]
    (uid,) = device["DeviceIDs"]
    return str(uid)


def nomad_job(nomad: LoopbackNomad, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = nomad.call("GET", f"/v1/job/{job_id}?namespace={nomad.namespace}")
    return found


def events_of(server: Server, benchmark_id: str) -> list[dict[str, Any]]:
    found = server.call("GET", f"/v1/benchmarks/{benchmark_id}/events")
    items: list[dict[str, Any]] = found["items"]
    return items


def state_of(server: Server, target_uid: str) -> str:
    found = server.call("GET", f"/v1/boards/{target_uid}")
    return str(found["state"])
