"""A board behind its host, through everything: HTTP, a real Nomad, the plugin, ssh, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy.process import Server, edgeyard, on_nomad
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import eventually
from tests.builders.sshd import BehindHost, board_behind_host
from tests.nomad_cluster import HOSTS, clear, entry

pytestmark = [pytest.mark.nomad, pytest.mark.ssh, pytest.mark.xdist_group("nomad")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
BOARD, FAMILY, HOST = "behind-0001-0001", "behind", 1


@pytest.fixture
def board() -> Iterator[BehindHost]:
    with board_behind_host() as made:
        yield made


@pytest.fixture
def server(nomad_cluster: LoopbackNomad, board: BehindHost, tmp_path: Path) -> Iterator[Server]:
    clear(nomad_cluster)
    reported = tmp_path / "hook"
    hook = {"when": "before", "run": ["sh", "-c", f"id -u > {reported}"], "on": "host"}
    there = {"when": "before", "run": ["sh", "-c", f"id -u > {board.tmp}/hook"], "on": "board"}
    facts = {**entry(BOARD), "ssh": asdict(board.sshd.address), "hooks": [hook, there]}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({FAMILY: [facts]}))
    nomad_cluster.boards(HOST, {**HOSTS[HOST], FAMILY: [facts]})
    try:
        with edgeyard(tmp_path / "data", on_nomad(nomad_cluster, inventory)) as running:
            yield running
    finally:
        nomad_cluster.boards(HOST, HOSTS[HOST])
        clear(nomad_cluster)


def submit(server: Server, **changes: object) -> str:
    return server.submit(
        {
            "model": server.upload(MODEL)["name"],
            "target_uid": BOARD,
            "target": FAMILY,
            "nb_inference": 20,
            **changes,
        }
    )


def test_a_board_behind_its_host_is_announced_measured_and_freed(
    server: Server, board: BehindHost, tmp_path: Path
) -> None:
    benchmark_id = submit(server)
    ended = server.wait(benchmark_id, timeout_s=90)
    assert ended["status"] == "completed", ended["failure"]
    report = server.report(benchmark_id)
    assert report["inference_latency"]["p50"] > 0
    assert report["target_id"] == BOARD
    assert report["board"]["emulated"] is False
    # the hooks ran on their side, and what measured was the board's own user
    uid = str(board.sshd.user.pw_uid)
    assert (board.tmp / "hook").read_text().strip() == uid
    assert (tmp_path / "hook").exists()
    (board.tmp / "hook").unlink()
    assert board.left() == []

    again = submit(server, nb_inference=1_000_000)
    server.wait(again, ("running",))
    eventually(lambda: bool(board.processes()), "it runs there")
    server.call("POST", f"/v1/benchmarks/{again}/cancel")
    eventually(lambda: not board.processes(), "what runs there is ended")
    eventually(lambda: board.left() in ([], ["hook"]), "its folder there goes")
