"""The services of the synthetic test environment over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.connections import bounded_protocol
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.learned import load_learned
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.twin.posted import DigitalTwin
from edgeyard.simulator.scenario import scenario_from_toml, scenario_to_json
from edgeyard.training.ste.controller import Controller, RoundReport
from edgeyard.training.ste.driver import LocalTraining, RunDriver
from edgeyard.training.ste.lab import episode_figures
from edgeyard.training.ste.runs import RunFolder
from edgeyard.training.ste.scheduling import SchedulerController
from edgeyard.training.ste.steps import Notice, Round
from edgeyard.training.ste_services.clients import (
    HttpScenarios,
    HttpScheduling,
    HttpTraining,
    HttpTwin,
)
from edgeyard.training.ste_services.controller import (
    MAX_WAITING_RUNS,
    RunQueue,
    controller_app,
)
from edgeyard.training.ste_services.scenarios import scenario_app
from edgeyard.training.ste_services.scheduler import scheduler_app
from edgeyard.training.ste_services.twin import twin_app
from edgeyard.training.worlds.simulated_nodes import simulate_nodes
from tests.builders.ste import OneScenario, environment, quick_policy, scenario
from tests.builders.ste_services import TOKEN, finished, processes, served

NODE = {"id": "n", "cpu_cores": 1, "memory": 1, "cpu_load": 0, "memory_load": 0}


@dataclass
class Services:
    """All four, each an app of its own."""

    twin: httpx.Client
    scheduler: httpx.Client
    scenarios: httpx.Client
    controller: httpx.Client
    models: Path
    gate: Gate

    def add(self, duration_s: float = 60.0) -> str:
        """Store the small scenario; return its hash."""
        answer = self.scenarios.post("/scenarios", json=scenario_to_json(scenario(duration_s)))
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["sha256"])

    def start(self, **wanted: object) -> str:
        answer = self.controller.post("/runs", json={"scenario": "small", **wanted})
        assert answer.status_code == 202, answer.text
        assert answer.headers["location"] == f"/runs/{answer.json()['run_id']}"
        return str(answer.json()["run_id"])


@dataclass
class Gate(HttpScheduling):
    """A scheduler controller that a test holds."""

    client: httpx.Client
    is_open: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(self.client)
        self.is_open.set()

    def notify(self, notice: Notice) -> Round:
        self.reached.set()
        assert self.is_open.wait(300)
        return super().notify(notice)


@contextmanager
def all_services(
    folder: Path, token: str = TOKEN, policy: Policy | None = None
) -> Iterator[Services]:
    policy = policy or quick_policy()
    models = folder / "models"
    with ExitStack() as opened:

        def serve(app: FastAPI) -> httpx.Client:
            return opened.enter_context(served(app, token))

        twin = serve(twin_app(DigitalTwin(), token))
        deciding = SchedulerController(
            HttpTwin(twin),
            policy,
            registry(entry_points=False).resolve(policy),
            monotonic_s=time.monotonic,
        )
        training = LocalTraining(deciding, models, RunFolder(folder / "trained"), load_learned)
        scheduler = serve(scheduler_app(deciding, token, training))
        store = SqlStore(f"sqlite:///{folder}/scenarios.db")
        opened.callback(store.close)
        scenarios = serve(scenario_app(store, token))
        runs = RunFolder(folder / "runs")
        source, gate = HttpScenarios(scenarios), Gate(scheduler)
        driver = RunDriver(Controller(source, HttpTwin(twin), gate), runs, HttpTraining(scheduler))
        app = controller_app(RunQueue(driver, source, runs), token)
        controller = serve(app)
        opened.callback(gate.is_open.set)
        yield Services(twin, scheduler, scenarios, controller, models, gate)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with all_services(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services in which nothing runs."""
    with all_services(tmp_path_factory.mktemp("idle")) as found:
        found.add()
        yield found


def test_services_decide_as_one_process_does() -> None:
    policy, of = quick_policy(), scenario(60.0)
    plugins = registry(entry_points=False).resolve(policy)
    with served(twin_app(DigitalTwin(), TOKEN)) as twin:
        scheduler = SchedulerController(HttpTwin(twin), policy, plugins, monotonic_s=time.monotonic)
        with served(scheduler_app(scheduler, TOKEN)) as scheduling:
            controller = Controller(OneScenario(of), HttpTwin(twin), HttpScheduling(scheduling))
            found: list[RoundReport] = []
            controller.episode(
                "small", run="r", episode=0, seed=1, on_round=lambda each, _: found.append(each)
            )
            assert len(scheduling.get("/schedulers").json()) == len(plugins.scorers)
        health = twin.get("/health_check").json()
        assert health["version"] == len(found)
        assert httpx.get(twin.base_url.join("/data")).status_code == 401
        assert twin.post("/", content=b"{").status_code == 422
        assert twin.get("/data?version=9999").status_code == 422
    expected: list[RoundReport] = []
    environment(policy, of=of).controller.episode(
        "small", run="r", episode=0, seed=1, on_round=lambda each, _: expected.append(each)
    )
    assert [each.answer.decisions for each in found] == [each.answer.decisions for each in expected]
    for each in found:
        assert [step.step for step in each.steps] == list(range(1, 14))


NODES = """
name = "small"
world = "nodes"
duration_s = 30
[nodes]
nodes = [{ count = 2, cpu_cores = 10, memory_mb = 10, gpus = 2 }]
mix = { rate = 0.9, steps = 20 }
[[nodes.jobs]]
job_id = "two"
submit_s = 3.3
run_s = 7.7
cpus = 0.1
gpus = 0.3
nodes = 2
"""


def test_services_run_nodes_as_sim_run_does(services: Services) -> None:
    of = scenario_from_toml(NODES)
    assert services.scenarios.post("/scenarios", json=scenario_to_json(of)).status_code == 201
    found: Any = finished(services.controller, services.start(seed=4))
    assert (found["state"], found["problem"]) == ("completed", "")
    plugins = registry(entry_points=False).resolve(quick_policy())
    expected = episode_figures(simulate_nodes(of, quick_policy(), plugins, seed=4))
    figures = found["episodes"][0]["figures"]
    assert figures == {name: getattr(expected, name) for name in figures}
    state = services.twin.get("/data").json()
    assert {"id", "cpu_cores", "memory", "cpu_load", "memory_load"} <= set(state["nodes"][0])


def test_a_run_of_the_controller_does_the_thirteen_steps(services: Services) -> None:
    sha256 = services.add()
    run_id = services.start(seed=1, episodes=2)
    found: Any = finished(services.controller, run_id)
    assert (found["state"], found["problem"]) == ("completed", "")
    assert found["scenario_sha256"] == sha256
    assert found["policy"] == quick_policy().name
    assert [each["seed"] for each in found["episodes"]] == [1, 2]
    assert found["episodes"][0]["figures"]["completed"] > 0
    rounds = services.controller.get(f"/runs/{run_id}/rounds").json()
    assert rounds[0]["round"] == 0
    for each in rounds:
        assert [step["step"] for step in each["steps"]] == list(range(1, 14))
    curves = services.controller.get(f"/runs/{run_id}/curves").json()
    assert curves["mean_turnaround_s"] == [
        each["figures"]["mean_turnaround_s"] for each in found["episodes"]
    ]
    image = services.controller.get(f"/runs/{run_id}/curves.png")
    assert image.content.startswith(b"\x89PNG")
    (listed,) = services.controller.get("/runs").json()
    assert listed["episodes_done"] == 2
    assert services.controller.post(f"/runs/{run_id}/cancel").status_code == 409
    assert services.controller.post(f"/runs/{run_id}/resume").status_code == 409


def test_the_scheduler_service_trains_its_model_by_the_rewards(services: Services) -> None:
    services.add(120.0)
    run_id = services.start(train="mine", new=True, episodes=2, judged=1)
    found: Any = finished(services.controller, run_id)
    assert (found["state"], found["problem"]) == ("completed", "")
    assert found["model_version"] == 2
    assert len(found["judgement"]["trained"]) == len(found["judgement"]["frozen"]) == 1
    assert found["episodes"][1]["trained"]["reward"] < 0
    assert load_learned(services.models / "mine.toml").name == "mine"
    assert services.scheduler.get("/health_check").json()["training"] == run_id
    again: Any = finished(services.controller, services.start(train="mine", judged=0))
    assert again["model_version"] == 3


def test_any_words_about_the_training_leave_a_model_that_can_be_read(idle: Services) -> None:
    run, words = "/training/quoted", 'rows of "2026"\nversion = 7\\'
    begun = idle.scheduler.put(run, json={"model": "quoted", "new": True})
    assert begun.status_code == 200, begun.text
    published = idle.scheduler.post(f"{run}/publish", json={"trained_on": words})
    assert published.json() == {"version": 2}
    assert load_learned(idle.models / "quoted.toml").name == "quoted"
    stated = tomllib.loads((idle.models / "quoted.toml").read_text("utf-8"))
    assert (stated["version"], stated["trained_on"]) == (2, words)


def test_a_cancelled_run_goes_on_where_it_was(services: Services) -> None:
    services.add()
    services.gate.is_open.clear()
    running = services.start(train="mine", new=True, judged=0)
    assert services.gate.reached.wait(300)
    waiting = services.start()
    assert services.controller.get(f"/runs/{waiting}").json()["state"] == "queued"
    assert services.controller.post(f"/runs/{waiting}/cancel").json()["state"] == "cancelled"
    assert services.controller.post(f"/runs/{running}/cancel").status_code == 202
    services.gate.is_open.set()
    cancelled: Any = finished(services.controller, running)
    assert (cancelled["state"], cancelled["episodes"]) == ("cancelled", [])
    assert services.controller.post(f"/runs/{running}/resume").status_code == 202
    resumed: Any = finished(services.controller, running)
    assert (resumed["state"], resumed["model_version"]) == ("completed", 2)


def test_a_run_that_the_stop_of_the_controller_cut_off_can_be_resumed(tmp_path: Path) -> None:
    with all_services(tmp_path) as services:
        services.add()
        run_id = services.start()
        finished(services.controller, run_id)
    record = tmp_path / "runs" / run_id / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"state": "running"}))
    with all_services(tmp_path) as services:
        found = services.controller.get(f"/runs/{run_id}").json()
        assert found["state"] == "cancelled"
        assert found["problem"] == "its process ended before the run did; the run can be resumed"
        assert services.controller.post(f"/runs/{run_id}/resume").status_code == 202
        assert finished(services.controller, run_id)["state"] == "completed"


def test_the_number_of_waiting_runs_is_bounded(services: Services) -> None:
    services.add()
    services.gate.is_open.clear()
    services.start()
    assert services.gate.reached.wait(300)
    for _ in range(MAX_WAITING_RUNS):
        services.start()
    refused = services.controller.post("/runs", json={"scenario": "small"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
    for run in services.controller.get("/runs").json():
        services.controller.post(f"/runs/{run['run_id']}/cancel")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/scenario"),
        ({"scenario": "absent"}, "/scenario"),
        ({"scenario": "../../etc/passwd"}, "/scenario"),
        ({"scenario": "small", "episodes": 0}, "/episodes"),
        ({"scenario": "small", "episodes": 10**9}, "/episodes"),
        ({"scenario": "small", "episodes": 1e999}, ""),
        ({"scenario": "small", "seed": -1}, "/seed"),
        ({"scenario": "small", "train": "../x"}, "/train"),
        ({"scenario": "small", "new": True}, "/new"),
        ({"scenario": "small", "colour": "red"}, ""),
    ],
)
def test_a_wrong_request_for_a_run_names_its_place(
    idle: Services, body: dict[str, object], pointer: str
) -> None:
    answer = idle.controller.post(
        "/runs", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert idle.controller.get("/runs").json() == []


def test_a_model_that_is_not_there_fails_the_run_with_the_reason(services: Services) -> None:
    services.add()
    found: Any = finished(services.controller, services.start(train="absent"))
    assert found["state"] == "failed"
    assert "no model 'absent'" in found["problem"]


def test_every_service_shows_its_routes_and_reports_errors_equally(idle: Services) -> None:
    for client, route in (
        (idle.twin, "/data"),
        (idle.scheduler, "/notify"),
        (idle.scenarios, "/scenarios"),
        (idle.controller, "/runs"),
    ):
        anonymous = httpx.Client(base_url=client.base_url)
        page = anonymous.get("/docs")
        assert "docs/swagger-ui-bundle.js" in page.text
        assert "http" not in page.text.replace("http-equiv", "")
        assert (
            anonymous.get("/docs/swagger-ui-bundle.js")
            .headers["content-type"]
            .startswith("text/javascript")
        )
        api = anonymous.get("/openapi.json").json()
        assert route in api["paths"]
        references = json.dumps(api).split("#/components/schemas/")[1:]
        assert {each.partition('"')[0] for each in references} <= set(api["components"]["schemas"])
        for path, status in ((route, 401), ("/absent", 404), ("/docs/absent", 404)):
            answer = anonymous.request("POST" if path == "/notify" else "GET", path)
            assert answer.status_code == status, path
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == status
        assert client.get("/health_check").json()["status"] == "ok"
        assert anonymous.get("/livez").json() == {"status": "ok"}
        assert api["paths"]["/livez"]["get"]["security"] == []
        anonymous.close()


def test_nobody_without_the_token_has_a_body_read(idle: Services) -> None:
    """The answer comes although the stated body never does."""
    for client in (idle.twin, idle.scheduler, idle.scenarios, idle.controller):
        paths = client.get("/openapi.json").json()["paths"]
        assert paths.pop("/livez").keys() == {"get"}
        for path, operations in paths.items():
            for method in operations:
                with socket.create_connection(
                    (client.base_url.host, client.base_url.port or 80), timeout=60
                ) as connection:
                    connection.sendall(
                        f"{method.upper()} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n".encode()
                    )
                    assert connection.recv(12) == b"HTTP/1.1 401", f"{method} {path}"


@pytest.mark.parametrize("body", [b"{", b"[NaN]", b"[" * 50_000, b"\xff", b'{"x": 1}', b"7"])
def test_no_service_fails_on_a_body_that_is_none(idle: Services, body: bytes) -> None:
    for client, path in (
        (idle.twin, "/"),
        (idle.scheduler, "/notify"),
        (idle.scenarios, "/scenarios"),
        (idle.controller, "/runs"),
    ):
        answer = client.post(path, content=body)
        assert answer.status_code == 422, f"{path}: {answer.text}"
        assert answer.json()["code"] == "invalid_input"
        wrong = client.post(path, content=body, headers={"Content-Type": "text/plain"})
        assert wrong.status_code == 415


def test_bodies_are_bounded(idle: Services) -> None:
    small = DigitalTwin(max_bytes=1000)
    with served(twin_app(small, TOKEN)) as twin:
        assert twin.post("/", content=b" " * 1001).status_code == 413
        assert twin.post("/", json=NODE).json() == {"version": 1}
    for client, path in ((idle.scheduler, "/notify"), (idle.controller, "/runs")):
        assert client.post(path, content=b" " * (1 << 17)).status_code == 413


def test_a_service_that_runs_by_itself_bounds_the_time_of_a_head(tmp_path: Path) -> None:
    with processes(tmp_path).service("twin") as url:
        found = httpx.URL(url)
        with socket.create_connection((found.host, found.port), timeout=120) as connection:
            connection.sendall(b"GET / HTT")
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""


def test_the_scenario_service_sets_removes_and_filters_by_tags(services: Services) -> None:
    def names(*tags: str) -> list[str]:
        found = services.scenarios.get("/scenarios", params={"tag": tags}).json()
        return [each["name"] for each in found["items"]]

    sha256 = services.add()
    content = scenario_to_json(scenario(60.0))
    again = services.scenarios.post("/scenarios", params={"tag": ["quick"]}, json=content)
    assert (again.status_code, again.json()["tags"]) == (200, ["quick"])
    changes = {"add": ["lab", "paper"], "remove": ["quick", "absent"]}
    for reference in (sha256[:12], "small"):
        tagged = services.scenarios.post(f"/scenarios/{reference}/tags", json=changes)
        assert (tagged.status_code, tagged.json()["tags"]) == (200, ["lab", "paper"])
    assert names("lab") == names("lab", "paper") == ["small"]
    assert names("quick") == names("lab", "quick") == []
    for path, body, status in (
        ("small", {"add": [""]}, 422),
        ("small", {"put": ["x"]}, 422),
        ("absent", {"add": ["x"]}, 404),
    ):
        assert services.scenarios.post(f"/scenarios/{path}/tags", json=body).status_code == status
    assert names("lab") == ["small"]


def test_rounds_of_a_run_are_bounded_by_their_bytes(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeyard.training.ste_services.controller.MAX_ROUND_BYTES", 1)
    services.add()
    run_id = services.start(seed=1)
    assert finished(services.controller, run_id)["state"] == "completed"
    rounds = services.controller.get(f"/runs/{run_id}/rounds").json()
    assert len(rounds) == 2
    assert rounds[0]["round"] == 0 < rounds[1]["round"]


def app_of(service: str, folder: Path, opened: ExitStack) -> FastAPI:
    """Return the app of one service that has nothing to do, and reaches no other."""
    gone = opened.enter_context(httpx.Client(base_url="http://127.0.0.1:1"))
    if service == "twin":
        return twin_app(DigitalTwin(), TOKEN)
    if service == "scheduler":
        policy = quick_policy()
        plugins = registry(entry_points=False).resolve(policy)
        deciding = SchedulerController(HttpTwin(gone), policy, plugins, monotonic_s=time.monotonic)
        return scheduler_app(deciding, TOKEN)
    if service == "scenarios":
        store = SqlStore(f"sqlite:///{folder}/scenarios.db")
        opened.callback(store.close)
        return scenario_app(store, TOKEN)
    source, runs = HttpScenarios(gone), RunFolder(folder / "runs")
    driver = RunDriver(Controller(source, HttpTwin(gone), HttpScheduling(gone)), runs, None)
    return controller_app(RunQueue(driver, source, runs), TOKEN)


@pytest.mark.parametrize(
    ("service", "path"),
    [
        ("twin", "/"),
        ("scheduler", "/notify"),
        ("scenarios", "/scenarios"),
        ("controller", "/runs"),
    ],
)
def test_slow_and_silent_clients_of_every_service_are_cut_off(
    service: str, path: str, tmp_path: Path
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    ).encode()
    protocol = bounded_protocol(64, head_s=1.0, body_step_s=1.0)
    with (
        ExitStack() as opened,
        served(app_of(service, tmp_path, opened), TOKEN, protocol) as client,
    ):
        connections = []
        for sent in (b"", b"POST / HTT", head, head + b"{"):
            place = client.base_url.host, client.base_url.port or 80
            connection = opened.enter_context(socket.create_connection(place, timeout=120))
            connection.sendall(sent)
            connections.append(connection)
        assert client.get("/health_check").json()["status"] == "ok"
        for connection in connections:
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        assert client.get("/health_check").json()["status"] == "ok"


def test_pages_of_other_sites_reach_no_service_without_a_token(tmp_path: Path) -> None:
    with served(twin_app(DigitalTwin()), token="") as twin:
        assert twin.post("/", json=NODE).status_code == 200
        host = twin.base_url.netloc.decode()
        assert twin.get("/data", headers={"Origin": f"http://{host}"}).status_code == 200
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            answer = twin.get("/data", headers=headers)
            assert answer.status_code == 403
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_service_that_does_not_answer_fails_the_run_with_its_address(
    services: Services,
) -> None:
    services.add()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    source = HttpScenarios(services.scenarios)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as gone:
        runs = RunFolder(services.models.parent / "others")
        driver = RunDriver(Controller(source, HttpTwin(gone), services.gate), runs, None)
        queue = RunQueue(driver, source, runs)
        with served(controller_app(queue, TOKEN)) as controller:
            run_id = controller.post("/runs", json={"scenario": "small"}).json()["run_id"]
            found: Any = finished(controller, run_id)
    assert found["state"] == "failed"
    assert f"127.0.0.1:{port}" in found["problem"]


def test_four_processes_do_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = processes(tmp_path)
    models = str(tmp_path / "models")
    with ExitStack() as opened:
        twin = opened.enter_context(started.service("twin"))
        scenarios = opened.enter_context(
            started.service("scenarios", "--db", str(tmp_path / "s.db"))
        )
        scheduler = opened.enter_context(
            started.service("scheduler", "--twin", twin, "--policy", "default", "--models", models,
                            "--runs", str(tmp_path / "trained"))
        )  # fmt: skip
        controller = opened.enter_context(
            started.service("controller", "--twin", twin, "--scheduler", scheduler,
                            "--scenarios", scenarios, "--runs", str(tmp_path / "runs"),
                            "--db", str(tmp_path / "s.db"))
        )  # fmt: skip
        monkeypatch.setenv("EDGEYARD_STE_TOKEN", TOKEN)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(headers=headers, timeout=60.0) as client:
            content = scenario_to_json(scenario(60.0))
            assert client.post(f"{scenarios}/scenarios", json=content).status_code == 201
        with httpx.Client(base_url=controller, headers=headers, timeout=60.0) as client:
            wanted = {"scenario": "small", "train": "mine", "new": True, "judged": 0}
            run_id = client.post("/runs", json=wanted).json()["run_id"]
            found: Any = finished(client, run_id)
            assert (found["state"], found["problem"]) == ("completed", "")
            assert found["model_version"] == 2
            for each in client.get(f"/runs/{run_id}/rounds").json():
                assert [step["step"] for step in each["steps"]] == list(range(1, 14))
        # The command line at the controller.
        at = ["--controller", controller, "--json"]
        remote = CliRunner().invoke(
            app, ["ste", "run", "small", *at, "--train", "mine", "--judge", "0", "--steps", "all"]
        )
        listed = CliRunner().invoke(app, ["ste", "list", *at])
        shown = CliRunner().invoke(app, ["ste", "show", run_id, *at])
        late = CliRunner().invoke(app, ["ste", "cancel", run_id, *at])
        absent = CliRunner().invoke(app, ["ste", "run", "absent", *at])
    assert remote.exit_code == 0, remote.stderr
    assert json.loads(remote.stdout)["model_version"] == 3
    assert json.loads(remote.stdout)["rounds"][0]["steps"][12]["step"] == 13
    assert [each["state"] for each in json.loads(listed.stdout)] == ["completed", "completed"]
    assert json.loads(shown.stdout)["run_id"] == run_id
    stored = ["sim", "list", "--kind", "ste", "--db", str(tmp_path / "s.db"), "--json"]
    rows = json.loads(CliRunner().invoke(app, stored).stdout)
    assert f"{run_id}-0" in {each["run_id"] for each in rows}
    assert {each["policy"] for each in rows} == {"default, training mine"}
    assert "is completed" in f"{late.stderr}{late.exception}"
    assert "no scenario 'absent'" in f"{absent.stderr}{absent.exception}"
    rounds = json.loads(remote.stdout)["rounds"]
    assert any(each["answer"]["decisions"] for each in rounds)
