"""SIGHUP: a live server takes up other settings and goes on, and calls go to another Nomad."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.models import light
from edgeyard.errors import ConfigError
from edgeyard.scheduler.clusters.nomad import NomadAccess
from edgeyard.scheduler.clusters.nomad.client import NomadClient
from edgeyard.scheduler.clusters.nomad.events import follow
from edgeyard.scheduler.framework.policy import read_policy
from tests.acceptance.lives import a_life


class NomadServer:
    """Answers each call with an empty list, and its event stream with a heartbeat and silence."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.streams = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.tokens.append(self.headers.get("X-Nomad-Token", ""))
                self.send_response(200)
                if not self.path.startswith("/v1/event/stream"):
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"[]")
                    return
                outer.streams += 1
                self.end_headers()
                self.wfile.write(b"{}\n")
                self.wfile.flush()
                outer.stopped.wait()
                self.close_connection = True

            def log_message(self, *arguments: object) -> None: ...

        self.stopped = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever).start()

    def close(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def nomads() -> Iterator[tuple[NomadServer, NomadServer]]:
    made = NomadServer(), NomadServer()
    yield made
    for each in made:
        each.close()


def test_nomad_is_spoken_to_in_another_way_from_the_next_call_on(
    nomads: tuple[NomadServer, NomadServer], tmp_path: Path
) -> None:
    old, new = nomads
    access = NomadAccess(address=old.url, token="old")
    client = NomadClient(access)
    stop = threading.Event()
    events = threading.Thread(target=lambda: list(follow(client, stop)))
    events.start()
    try:
        until(lambda: old.streams == 1)
        client.jobs("a")
        assert old.tokens[-1] == "old"
        broken = replace(access, address="https://127.0.0.1:1", ca_cert=tmp_path / "none.pem")
        with pytest.raises(ConfigError, match="TLS files"):
            client.use_access(broken)
        client.jobs("a")
        assert client.access is access

        client.use_access(replace(access, address=new.url, token="new"))
        heard = len(old.tokens)
        client.jobs("a")
        client.allocations("a")
        until(lambda: new.streams == 1)  # the open stream goes over, too
        assert set(new.tokens) == {"new"}
        assert len(old.tokens) == heard
        client.use_access(replace(access, address=new.url, token=None))
        client.jobs("a")
        assert new.tokens[-1] == ""
    finally:
        stop.set()
        events.join()
        client.close()


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.slow
def test_sighup_reloads_a_server_and_does_not_end_it(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text("campaign_limit = 7\n")
    with a_life(tmp_path / "data", environment={"EDGEYARD_CONFIG": str(config)}) as life:
        life.ready()

        def events(kind: str) -> list[dict[str, object]]:
            with sqlite3.connect(tmp_path / "data" / "edgeyard.db") as database:
                rows = database.execute("SELECT data FROM events WHERE kind = ?", (kind,))
                return [json.loads(data) for (data,) in rows]

        assert life.process.pid is not None
        config.write_text("campaign_limit = 8\nhistory_runs = 300\n")
        os.kill(life.process.pid, signal.SIGHUP)
        until(lambda: bool(events("server.reloaded")))
        (reported,) = events("server.reloaded")
        assert reported["changed"] == ["campaign_limit"]
        assert reported["restart_needed"] == ["history_runs"]
        config.write_text("campaign_limit = [\n")
        os.kill(life.process.pid, signal.SIGHUP)
        until(lambda: bool(events("server.reload_failed")))
        assert life.is_alive()
        assert life.end() == 0


@pytest.mark.slow
def test_sighup_takes_up_policy_and_times_of_the_engine_and_what_runs_goes_on(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "own.toml"
    text = re.sub(r"(?m)^version = .*$", "version = 1", read_policy("default"))
    text = text.replace('name = "default"', 'name = "own"')
    policy.write_text(text)
    config = tmp_path / "server.toml"
    config.write_text(f'policy = "{policy}"\n')
    with a_life(tmp_path / "data", environment={"EDGEYARD_CONFIG": str(config)}) as life:
        server = life.ready()
        model = str(server.upload(light("squeezenet"))["name"])

        def submitted(**changes: object) -> str:
            body = {"runtime": "ort", "benchmark_type": "TYPE1", "target": "emumid", **changes}
            made = server.call("POST", "/v1/benchmarks", {"model": model, **body})
            return str(made["benchmark_id"])

        def active() -> tuple[object, ...]:
            found = server.call("GET", "/v1/policies")
            return next((each["name"], each["version"]) for each in found["items"] if each["roles"])

        assert active() == ("own", 1)
        running = submitted(nb_inference=600, user_time="5 min")
        server.wait(running, ("running",))
        policy.write_text(text.replace("version = 1", "version = 2"))
        config.write_text(f'policy = "{policy}"\ndefault_user_time_s = 2\n')
        assert life.process.pid is not None
        os.kill(life.process.pid, signal.SIGHUP)
        until(lambda: active() == ("own", 2))

        endless = submitted(nb_inference=1_000_000, max_retries=0)
        failed = server.wait(endless, ("failed",))
        assert isinstance(failed["failure"], dict)
        assert failed["failure"]["category"] == "timeout", "bounded by the time that was reloaded"
        completed = server.wait(running, ("completed",))
        assert isinstance(completed["attempts"], list)
        assert len(completed["attempts"]) == 1

        policy.write_text("version = [")
        os.kill(life.process.pid, signal.SIGHUP)
        with sqlite3.connect(tmp_path / "data" / "edgeyard.db") as database:
            failures = "SELECT count(*) FROM events WHERE kind = 'server.reload_failed'"
            until(lambda: database.execute(failures).fetchone() == (1,))
        assert active() == ("own", 2)
        assert life.end() == 0
