"""The job file of the test environment's services on a real agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.process import free_port
from edgeyard.simulator.scenario import scenario_to_json
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import eventually
from tests.builders.ste import scenario
from tests.builders.ste_services import TOKEN, finished
from tests.docker_lab import DockerLab
from tests.nomad_cluster import clear

pytestmark = [pytest.mark.nomad, pytest.mark.slow]

JOB_FILE = Path(__file__).parents[2] / "deploy/ste/ste.nomad.hcl"
START_S = 300.0
SERVICES = ("twin", "scheduler", "scenarios", "controller")


@pytest.fixture
def nomad(nomad_cluster: LoopbackNomad) -> Iterator[LoopbackNomad]:
    yield nomad_cluster
    clear(nomad_cluster)


def parsed(nomad: LoopbackNomad, **variables: object) -> dict[str, Any]:
    """Return the job of the file, as Nomad reads it."""
    given = "\n".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
    body = {"JobHCL": JOB_FILE.read_text(), "Canonicalize": True, "Variables": given}
    found: dict[str, Any] = nomad.call("POST", f"/v1/jobs/parse?namespace={nomad.namespace}", body)
    return found


@pytest.mark.xdist_group("nomad")
def test_one_job_file_starts_all_services(nomad: LoopbackNomad) -> None:
    command = str(Path(sys.executable).with_name("edgeyard"))
    check_all_services(nomad, driver="raw_exec", command=command)


@pytest.mark.docker
@pytest.mark.xdist_group("docker")
@pytest.mark.timeout(900)  # where the images are not built yet
def test_one_job_file_starts_all_services_with_one_image_each(docker_lab: DockerLab) -> None:
    images = docker_lab.engine.build_ste()
    assert len(images) == len(SERVICES)
    for image in images:
        assert docker_lab.engine.call("inspect", "-f", "{{.Config.User}}", image).stdout == (
            "10001:10001\n"
        )
    check_all_services(docker_lab.nomad, driver="docker", tag="1")


def check_all_services(nomad: LoopbackNomad, **variables: str) -> None:
    """Run a training through all of the job's services, and end the job."""
    ports = {name: free_port() for name in SERVICES}
    job = parsed(
        nomad,
        namespace=nomad.namespace,
        ports=ports,
        policy="default",
        memory=300,
        **variables,
    )
    where = f"namespace={nomad.namespace}"
    token = {"Path": "nomad/jobs/edgeyard-ste", "Items": {"token": TOKEN}}
    nomad.call("PUT", f"/v1/var/nomad/jobs/edgeyard-ste?{where}", token)
    nomad.call("PUT", f"/v1/jobs?{where}", {"Job": job})
    assert TOKEN not in json.dumps(job)
    with ExitStack() as opened:
        clients = {
            name: opened.enter_context(
                httpx.Client(
                    base_url=f"http://127.0.0.1:{port}",
                    headers={"Authorization": f"Bearer {TOKEN}"},
                    timeout=60.0,
                )
            )
            for name, port in ports.items()
        }

        def all_answer() -> bool:
            try:
                answers = [each.get("/health_check") for each in clients.values()]
            except httpx.HTTPError:
                return False
            return all(each.status_code == 200 for each in answers)

        eventually(all_answer, "all services answer", START_S)
        assert httpx.get(f"http://127.0.0.1:{ports['controller']}/runs").status_code == 401
        assert (
            clients["scenarios"]
            .post("/scenarios", json=scenario_to_json(scenario(60.0)))
            .is_success
        )
        wanted = {"scenario": "small", "train": "mine", "new": True, "judged": 0}
        run_id = clients["controller"].post("/runs", json=wanted).json()["run_id"]
        found = finished(clients["controller"], run_id)
        assert (found["state"], found["problem"]) == ("completed", "")
        assert found["model_version"] == 2
        rounds = clients["controller"].get(f"/runs/{run_id}/rounds").json()
        assert [step["step"] for step in rounds[0]["steps"]] == list(range(1, 14))
    services: Any = nomad.call("GET", f"/v1/services?{where}")
    names = {each["ServiceName"] for entry in services for each in entry["Services"]}
    assert names == {f"edgeyard-ste-{name}" for name in ports}
    nomad.call("DELETE", f"/v1/job/edgeyard-ste?purge=true&{where}")


@pytest.mark.xdist_group("nomad")
def test_the_images_run_without_root(nomad: LoopbackNomad) -> None:
    job = parsed(nomad, image="registry.example/ste-", tag="1.0")
    (group,) = job["TaskGroups"]
    for task in group["Tasks"]:
        assert task["Driver"] == "docker"
        assert task["User"] == "10001:10001"
        assert task["Config"]["image"] == f"registry.example/ste-{task['Name']}:1.0"
