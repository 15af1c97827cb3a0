"""A type that an engine declares, from its boards file to its result, on a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from deploy.process import Server, edgeyard, on_nomad
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import eventually
from tests.builders.declaring import engine_entry, install
from tests.nomad_cluster import HOSTS, clear

pytestmark = [pytest.mark.timeout(600)]

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/result.schema.json").read_text("utf-8")
)


BOARD, LISTING = "emufast-0001-0001", "emufast-0001-0002"


def description(**changes: object) -> dict[str, object]:
    return {
        "model": "any.bin",
        "runtime": "memory",
        "benchmark_type": "TYPE4",
        "target": "emufast",
        "parameters": {"mebibytes": 4},
        **changes,
    }


def entry(target_uid: str, site: Path, memory: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "target_uid": target_uid,
        "memory": {"ram": "1 GiB", "storage": "1 GiB"},
        "engines": {"memory": memory, "ort": {"supported_types": ["TYPE1", "TYPE2"]}},
        "sandbox": {"paths": [str(site)]},
        **more,
    }


Lab = Callable[[Path], AbstractContextManager[Mapping[str, str]]]
"""Makes a lab with the engine of a folder, and returns the settings of its server."""


@pytest.fixture
def embedded(tmp_path: Path) -> Lab:
    @contextmanager
    def lab(site: Path) -> Iterator[Mapping[str, str]]:
        inventory = tmp_path / "boards.json"
        local = {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}
        inventory.write_text(
            json.dumps({"emufast": [entry(BOARD, site, engine_entry(), local=local)]})
        )
        yield {"EDGEYARD_INVENTORY": str(inventory)}

    return lab


@pytest.fixture
def on_real_nomad(nomad_cluster: LoopbackNomad, tmp_path: Path) -> Lab:
    """The host of a second board lists the type and does not declare it."""

    @contextmanager
    def lab(site: Path) -> Iterator[Mapping[str, str]]:
        clear(nomad_cluster)
        inventory = tmp_path / "boards.json"
        stated = [entry(uid, site, engine_entry()) for uid in (BOARD, LISTING)]
        inventory.write_text(json.dumps({"emufast": stated}))
        listing = entry(LISTING, site, {"supported_types": ["TYPE4"]})
        nomad_cluster.boards(0, {**HOSTS[0], "emufast": [stated[0], listing]})
        try:
            yield on_nomad(nomad_cluster, inventory)
        finally:
            nomad_cluster.boards(0, HOSTS[0])
            clear(nomad_cluster)

    return lab


@pytest.mark.parametrize(
    "cluster",
    [
        "embedded",
        pytest.param(
            "on_real_nomad",
            marks=[pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")],
        ),
    ],
)
def test_a_type_that_an_engine_declares_runs_from_submission_to_result(
    cluster: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    site = install(tmp_path / "site")
    lab: Lab = request.getfixturevalue(cluster)
    command = f"/usr/bin/env,PYTHONPATH={site},{sys.executable},-m,edgeyard.devices.runner"
    with (
        lab(site) as settings,
        edgeyard(tmp_path / "data", {**settings, "EDGEYARD_RAW_EXEC_COMMAND": command}) as server,
    ):
        (tmp_path / "any.bin").write_bytes(b"the engine reads no model")
        server.upload(tmp_path / "any.bin")
        _publishes(server)
        _refuses(server)
        if cluster == "on_real_nomad":
            _keeps_from(LISTING, server)
        made: Any = server.call(
            "POST",
            "/v1/benchmarks",
            description(parameters={"mebibytes": 4, "access": "fill"}, binding="loose"),
        )
        ended = server.wait(made["benchmark_id"], timeout_s=120)
        assert ended["status"] == "completed", ended["failure"]
        assert ended["target_uid"] == BOARD
        found: Any = server.call("GET", f"/v1/benchmarks/{made['benchmark_id']}/results")
        report = found["reports"][0]["report"]
        jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert report["benchmark_type"] == "TYPE4"
        assert report["results"]["access"] == {"value": "fill"}
        assert report["results"]["bandwidth"]["unit"] == "MiB/s"
        assert report["primary_metric"] == "bandwidth"
        assert report["engine_facts"] == {"version": np.__version__}
        low, high = report["results"]["bandwidth"]["ci95"]
        assert 0 < low <= report["results"]["bandwidth"]["value"] <= high
        reasons = [each["sentence"] for each in report["verdict"]["reasons"]]
        assert not [each for each in reasons if "p50" in each], "the bandwidth is judged"
        assert report["verdict"]["verdict"] in ("comparable", "suspect", "invalid")
        shown = _edgeyard(server, "results", made["benchmark_id"])
        assert "MiB/s" in shown
        assert "fill" in shown
        assert "higher is better" in shown
        listed: Any = server.call("GET", "/v1/benchmarks?benchmark_type=TYPE4&status=completed")
        assert [each["benchmark_id"] for each in listed["items"]] == [made["benchmark_id"]]
        _compares(made["benchmark_id"], server)


def _compares(benchmark_id: str, server: Server) -> None:
    """Of two runs of the same work, the one with the highest bandwidth is the best."""
    again: Any = server.call("POST", f"/v1/benchmarks/{benchmark_id}/retry")
    server.wait(again["benchmark_id"], timeout_s=120)
    ids = (benchmark_id, again["benchmark_id"])
    rows: Any = json.loads(_edgeyard(server, "results", *ids, "--json"))
    assert {row["primary_metric"] for row in rows} == {"bandwidth"}
    assert {row["group"] for row in rows} == {1}
    assert [row["primary_value"] for row in rows] == sorted(
        (row["primary_value"] for row in rows), reverse=True
    )


def _publishes(server: Server) -> None:
    def shown() -> Any:
        return server.call("GET", f"/v1/boards/{BOARD}")

    eventually(lambda: shown()["state"] == "idle", "its host reports the board", 120.0)
    (engine,) = [each for each in shown()["engines"] if each["name"] == "memory"]
    assert engine["supported_types"] == ["TYPE4"]
    assert engine["declared_types"] == engine_entry()["types"]


def _keeps_from(target_uid: str, server: Server) -> None:
    """A benchmark that asks for a board whose host does not declare its type waits."""
    made: Any = server.call("POST", "/v1/benchmarks", description(target_uid=target_uid))
    benchmark_id = made["benchmark_id"]

    def reason() -> str:
        found: Any = server.show(benchmark_id)
        assert found["status"] == "pending", found
        return str((found["waiting_reason"] or {}).get("code"))

    eventually(lambda: reason() == "type_undeclared", "it waits for a declaration", 120.0)
    server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")


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
