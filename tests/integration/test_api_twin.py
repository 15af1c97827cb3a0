"""The digital twin in the API: the live lab as DECICE's documents, and states that are posted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import jsonschema
import pytest

from edgeyard.benchmark_api.app import openapi_document
from edgeyard.benchmark_api.bootstrap import metrics_source
from edgeyard.benchmark_api.live_twin import JOB_CPUS, JOB_MEMORY_BYTES, Metrics, live_data
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError
from edgeyard.scheduler.twin.document import read_twin_data
from edgeyard.training.ste_services.clients import HttpTwin
from tests.builders.api import Api, running
from tests.builders.engine import A, Lab
from tests.builders.web import QuietHandler, serving
from tests.fakes.decice_schemas import NODE_POOL_SCHEMA

NODE: dict[str, Any] = {
    "id": "rpi4b-0001-0001",
    "cpu_cores": 4,
    "memory": 1024,
    "cpu_load": 3.62,
    "memory_load": 4.08,
}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path, twin_limit_bytes=20_000) as found:
        yield found


def live(api: Api) -> dict[str, Any]:
    answer = api.as_("operator").get("/v1/twin/data")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_live_state_has_nodes_jobs_and_links(api: Api) -> None:
    found = live(api)
    assert found["source"].startswith("live: embedded")
    nodes = {each["id"]: each for each in found["nodes"]}
    for each in nodes.values():
        jsonschema.validate(each, NODE_POOL_SCHEMA)
    node = nodes["rpi4b-0001-0001"]
    assert node["cpu_load"] == node["cpu_cores"] * 0.5
    assert node["memory_load"] == 25.0
    jobs = {each["job_id"]: each for each in found["jobs"]}
    assert jobs["b-waits"].get("status", "pending") == "pending"
    assert jobs["b-runs"]["status"] == "running"
    assert jobs["b-runs"]["time_run"] == pytest.approx(30.0)
    assert jobs["past"]["status"] == "completed"
    assert {each["kind"] for each in found["links"]} == {"host"}
    read_twin_data(json.dumps(found).encode())  # what another twin takes


def test_the_live_state_is_as_the_reference_of_the_api_documents_it(api: Api) -> None:
    reference = openapi_document()
    operation = reference["paths"]["/v1/twin/data"]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert {"$ref": "#/components/schemas/TwinData"} in schema["anyOf"]
    components = reference["components"]
    document = {"$ref": "#/components/schemas/TwinData", "components": components}
    found = live(api)
    jsonschema.validate(found, document)
    assert found["jobs"]
    for part, wrong in (
        ("nodes", {**found["nodes"][0], "cpu_cores": "4"}),
        ("jobs", {"job_id": 1}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**found, part: [wrong]}, document)


def test_operators_post_states_and_read_them_by_version(api: Api) -> None:
    operator = api.as_("operator")
    posted = operator.post("/v1/twin", json=NODE)
    assert posted.json() == {"version": 1}
    found = operator.get("/v1/twin/data", params={"version": 1})
    assert found.json() == NODE
    assert found.headers["x-twin-version"] == "1"
    assert "nodes" in live(api)
    assert operator.get("/v1/twin/data", params={"version": 2}).status_code == 422
    assert operator.post("/v1/twin/refresh").json() == {"version": 1}
    health = api.as_("alice").get("/v1/twin/health_check").json()
    assert (health["status"], health["version"], health["refreshing"]) == ("ok", 1, True)


def test_hosts_report_the_loads_of_their_boards(api: Api) -> None:
    host = api.as_("host")
    assert host.post("/v1/twin", json=[NODE]).status_code == 200
    node = next(each for each in live(api)["nodes"] if each["id"] == NODE["id"])
    assert (node["cpu_load"], node["memory_load"]) == (3.62, 4.08)
    foreign = host.post("/v1/twin", json={**NODE, "id": "rpi5-0001-0001"})
    assert foreign.status_code == 403
    job = {"job_id": 1, "cpus_req": 1, "mem_req": 1, "time_run": 0}
    for more in ({"rates": {"rpi5": 0}}, {"quarantined": {"rpi5-0001-0001": "hot"}}):
        assert host.post("/v1/twin", json={"nodes": [NODE], **more}).status_code == 422
    refused = host.post("/v1/twin", json={"nodes": [NODE], "jobs": [job]})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/jobs"
    api.clock.ahead += timedelta(seconds=61)
    node = next(each for each in live(api)["nodes"] if each["id"] == NODE["id"])
    assert node["memory_load"] == 25.0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b"{", ""),
        (b'[{"id": NaN}]', ""),
        (json.dumps({**NODE, "memory": -1}).encode(), "/nodes/0/memory"),
        (json.dumps([NODE, NODE]).encode(), "/nodes/1/id"),
        (json.dumps({"id": "x"}).encode(), "/nodes/0/cpu_cores"),
    ],
)
def test_wrong_data_names_its_place(api: Api, body: bytes, pointer: str) -> None:
    for caller in ("operator", "host"):
        answer = api.as_(caller).post(
            "/v1/twin", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"] == pointer


def test_posted_states_are_bounded(api: Api) -> None:
    operator = api.as_("operator")
    answer = operator.post("/v1/twin", content=b" " * 20_001)
    assert answer.status_code == 413
    assert answer.json()["limit"]["name"] == "twin_limit_bytes"
    for _ in range(30):
        assert operator.post("/v1/twin", json=[{**NODE, "host": "h" * 1000}]).status_code == 200
    health = operator.get("/v1/twin/health_check").json()
    assert health["version"] == 30
    assert health["held_bytes"] <= 20_000


def test_a_controller_of_the_test_environment_uses_the_twin_of_a_server(api: Api) -> None:
    headers = {"Authorization": f"Bearer {api.tokens['operator']}"}
    with httpx.Client(base_url=f"{api.url}/v1/twin", headers=headers) as client:
        twin = HttpTwin(client)
        assert twin.refresh() == 0
        assert twin.send(json.dumps([NODE]).encode()) == 1
        assert [each.id for each in twin.pull(1).nodes] == [NODE["id"]]


def test_the_engine_shows_what_its_next_decision_would_know(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    submitted = [lab.submit(), lab.submit()]
    lab.cycle.run()
    running, waiting = sorted(submitted, key=lambda each: not lab.attempts(each))
    (attempt,) = lab.attempts(running)
    found = live_data(
        lab.cycle.state(),
        cluster="a test",
        reports={},
        metrics=Metrics(
            node_load={"fake-host:9100": 1.5},
            node_memory={"fake-host:9100": 40.0},
            job_cpus={attempt.job_id: 0.75},
            job_memory={attempt.job_id: 3 * 2**20},
        ),
        job_ids={running: attempt.job_id},
    )
    assert [each.id for each in found.nodes if each.online] == [A]
    assert [each.name for each in found.jobs if each.status == "pending"] == [waiting]
    (job,) = [each for each in found.jobs if each.status == "running"]
    assert (job.node_id, job.cpu_used, job.memory_used) == (A, 0.75, 3.0)


class _Prometheus(QuietHandler):
    def do_POST(self) -> None:
        form = parse_qs(self.body().decode())
        query = form["query"][0]
        value, label = {
            JOB_CPUS: ("0.5", {"exported_job": "benchmark-x"}),
            JOB_MEMORY_BYTES: ("1048576", {"exported_job": "benchmark-x"}),
        }.get(query, ("1.25", {"instance": "host-1:9100"}))
        result = [{"metric": label, "values": [[float(form["end"][0]), value]]}]
        self.answer(json.dumps({"status": "success", "data": {"result": result}}).encode())


def test_figures_of_a_prometheus_replace_those_of_the_cluster(api: Api, tmp_path: Path) -> None:
    with serving(_Prometheus) as url:
        source = metrics_source(
            Settings.load(data_dir=tmp_path, twin_prometheus=url), time.monotonic
        )
        api.services.twin_metrics = source
        found = live(api)
    for node in found["nodes"]:
        assert (node["cpu_load"], node["memory_load"]) == (1.25, 1.25)
    assert source is not None
    assert source.read(datetime.now(UTC)).job_memory == {"benchmark-x": 1048576.0}


def test_a_prometheus_that_does_not_answer_is_named_and_hides_nothing(
    api: Api, tmp_path: Path
) -> None:
    settings = Settings.load(data_dir=tmp_path, twin_prometheus="http://127.0.0.1:1")
    api.services.twin_metrics = metrics_source(settings, time.monotonic)
    found = live(api)
    assert "Prometheus at 127.0.0.1:1: does not answer" in found["source"]
    assert found["nodes"][0]["memory_load"] == 25.0


def test_a_wrong_url_of_prometheus_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="twin_prometheus"):
        metrics_source(
            Settings.load(data_dir=tmp_path, twin_prometheus="host:9090"), time.monotonic
        )
