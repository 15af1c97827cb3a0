"""The digital twin and the scheduler controller over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from fastapi import FastAPI

from edgeyard.benchmark_api.ste_services import (
    HttpScheduling,
    HttpTwin,
    scheduler_app,
    twin_app,
)
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.sim.ste.controller import Controller, RoundReport
from edgeyard.scheduler.sim.ste.scheduling import SchedulerController
from edgeyard.scheduler.sim.ste.twin import DigitalTwin
from tests.builders.ste import SCENARIO, OneScenario, environment, quick_policy, scenario

TOKEN = "a-token-of-the-test"


@contextmanager
def served(app: FastAPI) -> Iterator[httpx.Client]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60.0,
        ) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


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
            assert len(scheduling.get("/schedulers").json()) == 2
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


def test_separate_processes_do_the_thirteen_steps(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO.format(duration_s=60.0))
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        ports = [each.getsockname()[1] for each in (a, b)]
    twin, scheduler = (f"http://127.0.0.1:{port}" for port in ports)
    program = [sys.executable, "-m", "edgeyard", "ste"]
    started = [
        subprocess.Popen([*program, "serve", *more], stderr=subprocess.DEVNULL)
        for more in (
            ["twin", "--port", str(ports[0])],
            ["scheduler", "--port", str(ports[1]), "--twin", twin, "--policy", "default"],
        )
    ]
    try:
        for url in (twin, scheduler):
            _await_health(url, time.monotonic() + 120)
        done = subprocess.run(
            [*program, "run", str(file), "--twin", twin, "--scheduler", scheduler, "--json",
             "--policy", "default", "--steps", "all", "--runs", str(tmp_path / "runs")],
            capture_output=True, check=True, text=True, timeout=240,
        )  # fmt: skip
    finally:
        for each in started:
            each.terminate()
            each.wait(60)
    rounds = json.loads(done.stdout)["rounds"]
    assert any(each["answer"]["decisions"] for each in rounds)
    for each in rounds:
        assert [step["step"] for step in each["steps"]] == list(range(1, 14))


def _await_health(url: str, until_s: float) -> None:
    while True:
        try:
            if httpx.get(f"{url}/health_check").status_code == 200:
                return
        except httpx.HTTPError:
            assert time.monotonic() < until_s, f"{url} did not start"
        time.sleep(0.1)
