"""A submitted model is really run on a board and its numbers come back."""

import json
import os
import re
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import helper

from deploy.process import Server
from tests.builders.runner import model_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]


def description(model: str, **changes: object) -> dict[str, object]:
    return {
        "model": model,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "emumid",
        "nb_inference": 30,
        **changes,
    }


def submit(server: Server, body: dict[str, object]) -> str:
    made = server.call("POST", "/v1/benchmarks", body)
    assert made["status"] == "pending"
    return str(made["benchmark_id"])


def test_a_network_is_measured_and_its_whole_trail_is_there(
    server: Server, squeezenet: Path
) -> None:
    stored = server.upload(squeezenet)
    benchmark_id = submit(server, description(str(stored["name"])))
    ended = server.wait(benchmark_id)
    assert ended["status"] == "completed", ended["failure"]
    assert str(ended["target_uid"]).startswith("emumid-")

    report = server.report(benchmark_id)
    latency = report["inference_latency"]
    assert (
        0 < latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    )
    assert report["verdict"]["verdict"] in ("comparable", "suspect", "invalid")
    assert report["target_id"] == ended["target_uid"]

    hcl = server.text(f"/v1/benchmarks/{benchmark_id}/hcl")
    assert re.search(r'job "benchmark-emumid-ort-\d{14}-[a-z2-7]{10}"', hcl)
    assert f'value     = "{ended["target_uid"]}"' in hcl
    assert "EDGEYARD_UPLOAD_TOKEN={{" in hcl
    assert "eyu_" not in hcl

    events = server.call("GET", f"/v1/benchmarks/{benchmark_id}/events")
    statuses = [e["data"]["status"] for e in events["items"] if e["kind"] == "benchmark.status"]
    assert statuses == ["scheduled", "running", "completed"]
    states = [e["data"]["state"] for e in events["items"] if e["kind"] == "attempt.state"]
    assert states[0] == "prepared"
    assert states[-1] == "ended"

    explanation = server.call("GET", f"/v1/benchmarks/{benchmark_id}/explanation")
    assert explanation["placement"]["target_uid"] == ended["target_uid"]
    assert len(explanation["verdicts"]) >= 4

    logs = server.text(f"/v1/benchmarks/{benchmark_id}/logs")
    assert logs.strip()
    assert "eyu_" not in logs
    assert server.text(f"/v1/benchmarks/{benchmark_id}/logs?follow=1") == logs


def test_a_log_is_followed_while_its_task_runs(server: Server, squeezenet: Path) -> None:
    stored = server.upload(squeezenet)
    benchmark_id = submit(server, description(str(stored["name"]), nb_inference=1_000_000))
    server.wait(benchmark_id, ("running",))
    url = f"{server.url}/v1/benchmarks/{benchmark_id}/logs?follow=1"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, timeout=60) as log:
        assert log.readline().strip()
        assert server.show(benchmark_id)["status"] == "running"
        server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
        log.read()  # it ends with its task


def test_nobody_reads_of_anothers_benchmark_anywhere(server: Server, squeezenet: Path) -> None:
    """Not in a sentence either: why boards are busy is shown to everybody."""
    stored = server.upload(squeezenet)
    server.call("POST", "/v1/users", {"user_id": "other", "role": "submitter"})
    made = server.call("POST", "/v1/tokens", {"user_id": "other"})
    other = replace(server, token=str(made["token"]))
    other.upload(squeezenet)
    # Its own board and those that share its cores: each is busy for a reason of its own.
    boards = server.call("GET", "/v1/boards")
    uids = [each["target_uid"] for each in boards["items"] if each["state"] != "offline"]
    held = submit(
        server,
        description(str(stored["name"]), target_uid="emumid-0001-0001", nb_inference=1_000_000),
    )
    server.wait(held, ("running",))
    job_ids = [each["job_id"] for each in server.show(held)["attempts"]]
    waiting = []
    reports: list[object] = []
    for uid in uids:
        asked = description(
            str(stored["name"]), target=uid.split("-")[0], target_uid=uid, nb_inference=1_000_000
        )
        reports.append(other.call("POST", "/v1/benchmarks?dry_run=true", asked))
    own = description(str(stored["name"]), target_uid="emumid-0001-0001", nb_inference=5)
    waiting.append(submit(other, own))
    limit = time.monotonic() + 60
    while other.show(waiting[0])["waiting_reason"] is None and time.monotonic() < limit:
        time.sleep(0.05)
    reports.append(other.show(waiting[0]))
    reports += [
        other.call("GET", path)
        for path in (
            "/v1/boards",
            "/v1/boards/emumid-0001-0001",
            "/v1/queue",
            "/v1/benchmarks",
            "/v1/inventory",
            f"/v1/benchmarks/{waiting[0]}/explanation",
            f"/v1/benchmarks/{waiting[0]}/events",
        )
    ]
    text = json.dumps(reports)
    assert "is busy" in text
    for foreign in (held, *job_ids):
        assert str(foreign) not in text
        assert str(foreign).removeprefix("benchmark-") not in text
    other.call("POST", f"/v1/benchmarks/{waiting[0]}/cancel")
    server.call("POST", f"/v1/benchmarks/{held}/cancel")


def test_downloads_end_with_their_attempt(server: Server, squeezenet: Path) -> None:
    stored = server.upload(squeezenet)
    benchmark_id = submit(server, description(str(stored["name"])))
    server.wait(benchmark_id)
    hcl = server.text(f"/v1/benchmarks/{benchmark_id}/hcl")
    urls = re.findall(r'source\s+= "([^"]+)"', hcl)
    assert len(urls) == 2  # the model and the spec
    for url in urls:
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(url, timeout=10)
        refused.value.close()


def test_a_benchmark_waits_for_an_offline_board_and_says_so(
    server: Server, squeezenet: Path
) -> None:
    stored = server.upload(squeezenet)
    benchmark_id = submit(server, description(str(stored["name"]), target="rpi4b"))
    other = submit(server, description(str(stored["name"])))
    assert server.wait(other)["status"] == "completed"  # nobody is held up by it
    shown = server.show(benchmark_id)
    assert shown["status"] == "pending"
    reason = shown["waiting_reason"]
    assert reason["code"] == "board_offline"
    assert "rpi4b-0001-0001" in reason["sentence"]
    cancelled = server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
    assert cancelled["status"] == "cancelled"


def test_a_model_with_an_operator_that_its_engine_lacks_fails_at_once(
    server: Server, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.onnx"
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    bad.write_bytes(model_of([node], {"x": [1, 4]}, {"y": [1, 4]}))
    stored = server.upload(bad)
    ended = server.wait(submit(server, description(str(stored["name"]))))
    assert ended["status"] == "failed"
    failure = ended["failure"]
    assert failure["category"] == "engine_unsupported"
    assert "NoSuchOperator" in failure["sentence"]
    attempts = ended["attempts"]
    assert len(attempts) == 1  # not tried again


def test_cancelling_stops_the_process_and_frees_the_board(server: Server, squeezenet: Path) -> None:
    stored = server.upload(squeezenet)
    long = submit(
        server,
        description(str(stored["name"]), target_uid="emumid-0001-0001", nb_inference=1_000_000),
    )
    server.wait(long, ("running",))
    job_id = server.show(long)["attempts"][0]["job_id"]
    assert _processes_of(job_id)
    server.call("POST", f"/v1/benchmarks/{long}/cancel")
    after = submit(
        server, description(str(stored["name"]), target_uid="emumid-0001-0001", nb_inference=5)
    )
    assert server.wait(after)["status"] == "completed"
    assert not _processes_of(job_id)
    assert server.show(long)["status"] == "cancelled"


def test_a_dry_run_says_what_would_happen_and_does_nothing(
    server: Server, squeezenet: Path
) -> None:
    stored = server.upload(squeezenet)
    before = server.call("GET", "/v1/benchmarks?total=true")
    would = server.call(
        "POST", "/v1/benchmarks?dry_run=true", description(str(stored["name"]), target="emufast")
    )
    fits = {board["target_uid"] for board in would["boards"] if board["fits"]}
    assert fits == {"emufast-0001-0001"}
    assert 'job "benchmark-emufast-ort-' in would["hcl"]
    assert 1 <= would["priority"] <= 100
    assert server.call("GET", "/v1/benchmarks?total=true") == before


def _processes_of(job_id: object) -> list[int]:
    """Processes whose environment or working directory belongs to a job."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if str(job_id) in os.readlink(f"/proc/{pid}/cwd"):
                found.append(pid)
        except OSError:
            continue
    return found


def test_phases_and_progress_are_seen_while_it_runs(server: Server, squeezenet: Path) -> None:
    stored = server.upload(squeezenet)
    benchmark_id = submit(server, description(str(stored["name"]), nb_inference=1500))
    seen: set[str] = set()
    progress = [0.0]
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        shown = server.show(benchmark_id)
        if shown["status"] == "running" and shown["phase"]:
            seen.add(str(shown["phase"]))
            progress.append(float(str(shown["progress"] or 0)))
        if shown["status"] == "completed":
            break
        time.sleep(0.05)
    assert "measuring" in seen, json.dumps(shown)
    assert max(progress) > 0
