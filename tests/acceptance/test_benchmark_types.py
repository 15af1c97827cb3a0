"""A type that an engine declares, from its boards file to its result, on a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deploy.process import Server, edgeyard
from tests.builders.declaring import engine_entry, install

pytestmark = [pytest.mark.timeout(600)]

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/result.schema.json").read_text("utf-8")
)


def description(**changes: object) -> dict[str, object]:
    return {
        "model": "any.bin",
        "runtime": "memory",
        "benchmark_type": "TYPE4",
        "target": "emufast",
        "parameters": {"mebibytes": 4},
        **changes,
    }


def test_a_type_that_an_engine_declares_runs_from_submission_to_result(tmp_path: Path) -> None:
    site = install(tmp_path / "site")
    inventory = tmp_path / "boards.json"
    cpu = min(os.sched_getaffinity(0))
    board = {
        "target_uid": "emufast-0001-0001",
        "memory": {"ram": "1 GiB", "storage": "1 GiB"},
        "engines": {
            "memory": engine_entry(),
            "ort": {"supported_types": ["TYPE1", "TYPE2"]},
        },
        "local": {"cpus": [cpu], "threads": 1},
        "sandbox": {"paths": [str(site)]},
    }
    inventory.write_text(json.dumps({"emufast": [board]}))
    command = f"/usr/bin/env,PYTHONPATH={site},{sys.executable},-m,edgeyard.devices.runner"
    settings = {"EDGEYARD_INVENTORY": str(inventory), "EDGEYARD_RAW_EXEC_COMMAND": command}
    with edgeyard(tmp_path / "data", settings) as server:
        (tmp_path / "any.bin").write_bytes(b"the engine reads no model")
        server.upload(tmp_path / "any.bin")
        _publishes(server)
        _refuses(server)
        made: Any = server.call(
            "POST", "/v1/benchmarks", description(parameters={"mebibytes": 4, "access": "fill"})
        )
        ended = server.wait(made["benchmark_id"])
        assert ended["status"] == "completed", ended["failure"]
        found: Any = server.call("GET", f"/v1/benchmarks/{made['benchmark_id']}/results")
        report = found["reports"][0]["report"]
        jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert report["benchmark_type"] == "TYPE4"
        assert report["results"]["access"] == {"value": "fill"}
        assert report["results"]["bandwidth"]["unit"] == "MiB/s"
        assert report["results"]["bandwidth"]["value"] > 0
        assert report["verdict"]["verdict"] in ("comparable", "suspect", "invalid")
        shown = _edgeyard(server, "results", made["benchmark_id"])
        assert "MiB/s" in shown
        assert "fill" in shown
        listed: Any = server.call("GET", "/v1/benchmarks?benchmark_type=TYPE4")
        assert [each["benchmark_id"] for each in listed["items"]] == [made["benchmark_id"]]


def _publishes(server: Server) -> None:
    boards: Any = server.call("GET", "/v1/boards")
    (board,) = boards["items"] if isinstance(boards, dict) else boards
    (engine,) = [each for each in board["engines"] if each["name"] == "memory"]
    assert engine["supported_types"] == ["TYPE4"]
    assert engine["declared_types"] == engine_entry()["types"]


def _refuses(server: Server) -> None:
    for changes, expected in (
        ({"benchmark_type": "TYPE5"}, ("no engine of a board declares it", "one of TYPE4")),
        ({"runtime": "ort", "parameters": {}}, ("does not support", "memory on emufast")),
        ({"benchmark_type": "FAST"}, ("benchmark type", "TYPE4 to TYPE99")),
        ({"parameters": {}}, ("/parameters/mebibytes", "TYPE4 needs it")),
        ({"parameters": {"mebibytes": 65}}, ("at least 1 and at most 64",)),
        ({"parameters": {"mebibytes": 1, "speed": 2}}, ("no such parameter", "access, mebibytes")),
        ({"parameters": {"mebibytes": 1, "access": "read"}}, ("copy or fill",)),
        ({"dataset": "any.bin"}, ("takes none",)),
        ({"nb_inference": 7}, ("/nb_inference",)),
    ):
        with pytest.raises(RuntimeError) as refused:
            server.call("POST", "/v1/benchmarks", description(**changes))
        for words in expected:
            assert words in str(refused.value), (changes, str(refused.value))


def _edgeyard(server: Server, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "edgeyard", *words],
        env={**os.environ, "EDGEYARD_URL": server.url, "EDGEYARD_TOKEN": server.token},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
