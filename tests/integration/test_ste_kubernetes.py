"""The test environment's containers as their manifests for Kubernetes start them, without one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml

from deploy.process import free_port
from edgeyard.scheduler.store import SqlStore
from edgeyard.simulator.scenario import scenario_to_json
from tests.builders.cluster import eventually
from tests.builders.ste import scenario
from tests.builders.ste_services import TOKEN, finished
from tests.docker_lab import Engine, running_engine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.xdist_group("docker"),
    pytest.mark.timeout(900),  # where the images are not built yet
]

MANIFESTS = Path(__file__).parents[2] / "deploy/ste/kubernetes"
SERVICES = ("twin", "scheduler", "scenarios", "controller")
START_S = 300.0
IN_CONTAINER = "/database"


def deployment(service: str) -> dict[str, Any]:
    """Return the pod of a service's Deployment."""
    for each in yaml.safe_load_all((MANIFESTS / f"{service}.yaml").read_text()):
        if each["kind"] == "Deployment":
            found: dict[str, Any] = each["spec"]["template"]["spec"]
            return found
    raise AssertionError(service)


def environment(container: Mapping[str, Any], database: str) -> dict[str, str]:
    """Return the variables of a container; the database is the test's own, by its socket."""
    found = {each["name"]: each.get("value", "secret") for each in container["env"]}
    url = found.get("EDGEYARD_SCENARIO_DB", "")
    if url:
        assert url == "postgresql://edgeyard:$(DATABASE_PASSWORD)@postgres:5432/scenarios"
        name = urlsplit(database).path.removeprefix("/")
        found["EDGEYARD_SCENARIO_DB"] = f"postgresql://edgeyard@/{name}?host={IN_CONTAINER}"
    return found


@contextmanager
def running(
    engine: Engine, service: str, ports: Mapping[str, int], folder: Path, database: str
) -> Iterator[httpx.Client]:
    """Run a service as its manifest states, on the machine's network with ports of the test."""
    pod = deployment(service)
    (container,) = pod["containers"]
    user = pod["securityContext"]
    owner = (user["runAsUser"], user["runAsGroup"])
    words = ["run", "--detach", "--name", f"ste-{service}", "--network", "host", "--read-only"]
    words += ["--user", f"{owner[0]}:{owner[1]}", "--cap-drop", "ALL"]
    words += ["--security-opt", "no-new-privileges", "--tmpfs", "/tmp:mode=1777"]
    words += ["--memory", container["resources"]["limits"]["memory"].removesuffix("i").lower()]
    for name in ports:
        words += ["--add-host", f"{name}:127.0.0.1"]
    for name, value in environment(container, database).items():
        words += ["--env", f"{name}={value}"]
    socket = Path(parse_qs(urlsplit(database).query)["host"][0]) / ".s.PGSQL.5432"
    words += ["--volume", f"{socket}:{IN_CONTAINER}/{socket.name}"]
    for mount in container["volumeMounts"]:
        if mount["name"] != "tmp":
            inside = folder / service / mount["name"]
            inside.mkdir(parents=True)
            os.chown(inside, *owner)
            if mount["name"] == "token":
                (inside / "token").write_text(TOKEN)
            words += ["--volume", f"{inside}:{mount['mountPath']}"]
    arguments = list(container["args"])
    for name, stated in (("twin", 8081), ("scheduler", 8082), ("scenarios", 8083)):
        arguments = [
            each.replace(f"http://{name}:{stated}", f"http://{name}:{ports[name]}")
            for each in arguments
        ]
    engine.call(*words, f"{container['image']}:1", *arguments, f"--port={ports[service]}")
    with httpx.Client(
        base_url=f"http://127.0.0.1:{ports[service]}",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60.0,
    ) as client:
        probes = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness")}

        def healthy() -> bool:
            try:
                answers = [httpx.get(f"{client.base_url}{path}", timeout=60.0) for path in probes]
            except httpx.HTTPError:
                return False
            return all(each.status_code == 200 for each in answers)

        try:
            eventually(healthy, f"{service} answers its probes", START_S)
            yield client
        except BaseException:
            print(engine.call("logs", f"ste-{service}", check=False))  # noqa: T201
            raise
        finally:
            engine.call("rm", "-f", f"ste-{service}")


@pytest.fixture
def engine() -> Iterator[Engine]:
    with running_engine() as found:
        yield found


def test_a_training_goes_through_the_containers_as_their_manifests_state_them(
    engine: Engine, empty_postgres_url: str, tmp_path: Path
) -> None:
    assert len(engine.build_ste()) == len(SERVICES)
    ports = {name: free_port() for name in SERVICES}
    with ExitStack() as opened:
        clients = {
            name: opened.enter_context(running(engine, name, ports, tmp_path, empty_postgres_url))
            for name in SERVICES
        }
        assert httpx.get(f"{clients['controller'].base_url}/runs").status_code == 401
        added = clients["scenarios"].post("/scenarios", json=scenario_to_json(scenario(60.0)))
        assert added.is_success, added.text
        wanted = {"scenario": "small", "train": "mine", "new": True, "judged": 0}
        run_id = clients["controller"].post("/runs", json=wanted).json()["run_id"]
        found = finished(clients["controller"], run_id)
        assert (found["state"], found["problem"]) == ("completed", "")
    store = SqlStore(empty_postgres_url)
    with store.read() as uow:
        (scenarios, _), (episodes, _) = (
            uow.scenarios.page(name=None, world=None, tags=[], limit=10, cursor=None),
            uow.simulations.runs(kind="ste"),
        )
        assert [each.name for each in scenarios] == ["small"]
        assert len(episodes) == 1
    store.close()
    assert list((tmp_path / "scheduler/data/models").glob("mine*"))
