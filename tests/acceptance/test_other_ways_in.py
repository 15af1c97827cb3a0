"""Foreign URLs, the platform's bare uploads, matrices, schedules, and PostgreSQL beneath."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.process import Server, edgeyard
from tests.acceptance.test_main_path import description, submit
from tests.acceptance.web import file_server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("open-server")]


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that trusts its network and may fetch from this machine."""
    with edgeyard(
        tmp_path_factory.mktemp("open") / "data",
        {"EDGEYARD_TRUSTED_NETWORK": "true", "EDGEYARD_ALLOW_HOSTS": "127.0.0.1"},
    ) as running:
        yield running


def test_a_foreign_model_is_fetched_by_the_server_and_served_from_its_own_store(
    open_server: Server, squeezenet: Path
) -> None:
    with file_server(squeezenet.parent) as web:
        body = description("net.onnx", model_url=f"{web}/{squeezenet.name}", nb_inference=5)
        benchmark_id = submit(open_server, body)
        ended = open_server.wait(benchmark_id)
    assert ended["status"] == "completed", ended
    hcl = open_server.text(f"/v1/benchmarks/{benchmark_id}/hcl")
    assert web not in hcl
    assert f"{open_server.url}/download/" in hcl


def test_a_foreign_model_that_is_not_there_fails_as_its_users_matter(
    open_server: Server, tmp_path: Path
) -> None:
    with file_server(tmp_path) as web:
        body = description("net.onnx", model_url=f"{web}/none.onnx")
        ended = open_server.wait(submit(open_server, body))
    assert ended["status"] == "failed"
    assert isinstance(ended["failure"], dict)
    assert ended["failure"]["category"] == "user_input"
    assert "404" in ended["failure"]["sentence"]


@pytest.mark.xdist_group("server")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/x.onnx",
        "http://[::1]/x.onnx",
        "http://169.254.169.254/latest",
        "http://10.0.0.1/x.onnx",
        "file:///etc/passwd",
        "git::https://example.org/x.git",
        "http://[64:ff9b::7f00:1]/x.onnx",
    ],
)
def test_an_address_that_may_not_be_used_is_refused(server: Server, url: str) -> None:
    with pytest.raises(RuntimeError, match=r"422 .*model_url"):
        server.call("POST", "/v1/benchmarks", description("x.onnx", model_url=url))


def test_a_trusted_network_takes_the_platforms_bare_upload(
    open_server: Server, squeezenet: Path
) -> None:
    stored = open_server.upload(squeezenet)
    benchmark_id = submit(open_server, description(str(stored["name"]), nb_inference=1_000_000))
    running = open_server.wait(benchmark_id, ("running",))
    attempts = running["attempts"]
    job = attempts[0]["job_id"].removeprefix("benchmark-")
    request = urllib.request.Request(
        f"{open_server.url}/upload/{job}/user.log", data=b"hello", method="PUT"
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
    results = open_server.call("GET", f"/v1/benchmarks/{benchmark_id}/results")
    assert [file["name"] for file in results["files"]] == ["user.log"]
    open_server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")


@pytest.mark.xdist_group("server")
def test_a_bare_upload_is_refused_elsewhere(server: Server, squeezenet: Path) -> None:
    stored = server.upload(squeezenet)
    benchmark_id = submit(server, description(str(stored["name"]), nb_inference=1_000_000))
    running = server.wait(benchmark_id, ("running",))
    attempts = running["attempts"]
    job = attempts[0]["job_id"].removeprefix("benchmark-")
    request = urllib.request.Request(
        f"{server.url}/upload/{job}/user.log", data=b"hello", method="PUT"
    )
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(request)
    refused.value.close()
    server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")


def test_a_matrix_is_one_campaign_of_a_benchmark_each(
    open_server: Server, squeezenet: Path
) -> None:
    stored = open_server.upload(squeezenet)
    common = description(str(stored["name"]), nb_inference=5)
    del common["target"]
    made = open_server.call(
        "POST",
        "/v1/campaigns",
        {"matrix": {"target": ["emufast", "emumid", "emuslow"]}, "description": common},
    )
    ids = [each["benchmark_id"] for each in made["benchmarks"]]
    assert len(ids) == 3
    for benchmark_id in ids:
        assert open_server.wait(benchmark_id)["status"] == "completed"
    shown = open_server.call("GET", f"/v1/campaigns/{made['campaign_id']}")
    boards = {each["target_uid"].split("-")[0] for each in shown["benchmarks"]}
    assert boards == {"emufast", "emumid", "emuslow"}


def test_the_same_key_gives_the_same_benchmark(open_server: Server, squeezenet: Path) -> None:
    stored = open_server.upload(squeezenet)
    body = description(str(stored["name"]), target="rpi4b")
    first = open_server.call("POST", "/v1/benchmarks", body, Idempotency_Key="one")
    again = open_server.call("POST", "/v1/benchmarks", body, Idempotency_Key="one")
    assert first == again
    with pytest.raises(RuntimeError, match="409"):
        open_server.call(
            "POST", "/v1/benchmarks", {**body, "nb_inference": 7}, Idempotency_Key="one"
        )


def test_events_stream_until_the_end(open_server: Server, squeezenet: Path) -> None:
    stored = open_server.upload(squeezenet)
    benchmark_id = submit(open_server, description(str(stored["name"]), nb_inference=5))
    request = urllib.request.Request(f"{open_server.url}/v1/benchmarks/{benchmark_id}/events")
    request.add_header("Authorization", f"Bearer {open_server.token}")
    request.add_header("Accept", "text/event-stream")
    seen = []
    with urllib.request.urlopen(request, timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                seen.append(json.loads(line[5:]))
    assert [event["seq"] for event in seen] == sorted({event["seq"] for event in seen})
    assert seen[-1]["data"]["status"] == "completed"


@pytest.mark.postgres
def test_the_main_path_runs_on_postgresql(
    postgres_url: str, tmp_path: Path, squeezenet: Path
) -> None:
    with edgeyard(tmp_path / "data", {"EDGEYARD_DATABASE_URL": postgres_url}) as server:
        stored = server.upload(squeezenet)
        benchmark_id = submit(server, description(str(stored["name"]), nb_inference=5))
        assert server.wait(benchmark_id)["status"] == "completed"
        assert not (tmp_path / "data/edgeyard.db").exists()


def test_a_start_time_is_kept(open_server: Server, squeezenet: Path) -> None:
    from datetime import UTC, datetime, timedelta

    stored = open_server.upload(squeezenet)
    at = datetime.now(UTC) + timedelta(seconds=4)
    body = description(str(stored["name"]), nb_inference=5, start_time=at.isoformat())
    benchmark_id = submit(open_server, body)
    time.sleep(1.5)
    shown = open_server.show(benchmark_id)
    assert isinstance(shown["waiting_reason"], dict)
    assert shown["waiting_reason"]["code"] == "start_time"
    ended = open_server.wait(benchmark_id)
    assert ended["status"] == "completed"
    assert datetime.fromisoformat(str(ended["started_at"])) >= at
