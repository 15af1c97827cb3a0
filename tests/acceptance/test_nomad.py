"""The main path through a real Nomad: submitted over HTTP, run on the decided board, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.process import Server, edgeyard
from edgeyard.devices.testbed import LoopbackNomad
from tests.builders.cluster import eventually
from tests.nomad_cluster import HOSTS, clear

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
BOARD = "rpi4b-0001-0002"


@pytest.fixture(scope="module")
def server(
    nomad_cluster: LoopbackNomad, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    clear(nomad_cluster)
    folder = tmp_path_factory.mktemp("server")
    inventory = folder / "inventory.json"
    merged: dict[str, list[object]] = {}
    for host in HOSTS:
        for family, boards in host.items():
            merged.setdefault(family, []).extend(boards)
    inventory.write_text(json.dumps(merged))
    with edgeyard(
        folder / "data",
        EDGEYARD_CLUSTER="nomad",
        EDGEYARD_DRIVER="raw_exec",
        EDGEYARD_INVENTORY=str(inventory),
        EDGEYARD_NOMAD_ADDRESS=nomad_cluster.address,
        EDGEYARD_NOMAD_TOKEN=nomad_cluster.token,
        EDGEYARD_NOMAD_NAMESPACE=nomad_cluster.namespace,
        EDGEYARD_START_LEAD_S="60",
    ) as running:
        yield running
    clear(nomad_cluster)


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.upload(MODEL)["name"])


def submit(server: Server, model: str, **changes: object) -> str:
    body = {
        "model": model,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        "nb_inference": 20,
        **changes,
    }
    made = server.call("POST", "/v1/benchmarks", body)
    assert isinstance(made, dict)
    return str(made["benchmark_id"])


def attempt_of(shown: dict[str, object]) -> dict[str, object]:
    attempts = shown["attempts"]
    assert isinstance(attempts, list)
    (attempt,) = attempts
    assert isinstance(attempt, dict)
    return attempt


@pytest.mark.parametrize("pinned", [True, False])
def test_a_benchmark_runs_on_the_decided_board_and_its_result_comes_back(
    server: Server, nomad_cluster: LoopbackNomad, model: str, pinned: bool
) -> None:
    benchmark_id = submit(server, model, **({"target_uid": BOARD} if pinned else {}))
    ended = server.wait(benchmark_id, timeout_s=60)
    assert ended["status"] == "completed", ended["failure"]
    results = server.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
    assert isinstance(results, dict)
    report = results["reports"][0]["report"]
    assert report["inference_latency"]["p50"] > 0

    attempt = attempt_of(ended)
    job_id = attempt["job_id"]
    # Where it was decided to run is where Nomad ran it, and what its host's plugin handed it.
    where = f"namespace={nomad_cluster.namespace}&resources=true"
    allocations = nomad_cluster.call("GET", f"/v1/allocations?{where}")
    assert isinstance(allocations, list)
    (run,) = (each for each in allocations if each["JobID"] == job_id)
    (device,) = run["AllocatedResources"]["Tasks"]["bootstrap-job"]["Devices"]
    assert device["DeviceIDs"] == [ended["target_uid"]] == [report["target_id"]]
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


def test_a_start_time_is_kept_by_nomad_itself_to_the_second(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)
    benchmark_id = submit(server, model, target_uid=BOARD, start_time=due.isoformat())
    ended = server.wait(benchmark_id, timeout_s=60)
    assert ended["status"] == "completed", ended["failure"]
    started = datetime.fromisoformat(str(attempt_of(ended)["started_at"]))
    assert timedelta(0) <= started - due < timedelta(seconds=2)
    job_id = attempt_of(ended)["job_id"]

    def parent_is_over() -> bool:
        job = nomad_cluster.call("GET", f"/v1/job/{job_id}?namespace=edgeyard")
        assert isinstance(job, dict)
        return bool(job["Periodic"]) and job["Status"] == "dead"

    eventually(parent_is_over, "the job that made the start is stopped")


def test_a_cancelled_benchmark_frees_its_board(
    server: Server, nomad_cluster: LoopbackNomad, model: str
) -> None:
    benchmark_id = submit(server, model, target_uid=BOARD, nb_inference=1_000_000)
    server.wait(benchmark_id, ("running",), timeout_s=60)
    server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
    again = submit(server, model, target_uid=BOARD)
    assert server.wait(again, timeout_s=60)["status"] == "completed"
    assert server.show(benchmark_id)["status"] == "cancelled"


def test_a_broken_model_fails_with_the_runner_s_own_words(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model at all")
    benchmark_id = submit(server, str(server.upload(broken)["name"]))
    ended = server.wait(benchmark_id, timeout_s=60)
    assert ended["status"] == "failed"
    failure = ended["failure"]
    assert isinstance(failure, dict)
    assert failure["category"] == "user_model"
