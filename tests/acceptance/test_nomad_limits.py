"""What a run may have on a real Nomad, and what its user sees when it wants more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.process import Server, edgeyard, in_cluster
from edgeyard.testbed import LoopbackNomad
from tests.nomad_cluster import clear, settings_of

pytestmark = [pytest.mark.nomad, pytest.mark.slow, pytest.mark.xdist_group("nomad")]

MODEL = Path(__file__).parents[2] / "deploy/demo/digits.onnx"
FOR_EVER = 1_000_000
BOARD = "rpi4b-0001-0002"


@pytest.fixture
def limited(nomad_cluster: LoopbackNomad, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes a server with further settings."""
    clear(nomad_cluster)
    with ExitStack() as stack:

        def start(**settings: str) -> Server:
            common = settings_of(nomad_cluster, tmp_path / "inventory.json")
            return stack.enter_context(edgeyard(tmp_path / "data", {**common, **settings}))

        yield start
    clear(nomad_cluster)


def submit(server: Server, **changes: object) -> str:
    return server.submit(
        {
            "model": server.upload(MODEL)["name"],
            "target": "rpi4b",
            "target_uid": BOARD,
            "nb_inference": FOR_EVER,
            "max_retries": 0,
            **changes,
        }
    )


def failure_of(server: Server, benchmark_id: str) -> tuple[str, str]:
    ended = server.wait(benchmark_id, timeout_s=90)
    failure = ended["failure"]
    assert isinstance(failure, dict), ended
    return failure["category"], failure["sentence"]


def test_a_run_that_outgrows_its_job_s_memory_fails_with_the_job_s_limit(
    limited: Callable[..., Server],
) -> None:
    server = limited(**in_cluster(memory_mib=40))
    category, sentence = failure_of(server, submit(server))
    assert category == "out_of_memory"
    assert "40 MiB that its job may use" in sentence
    assert "memory_mib of the cluster" in sentence


def test_a_host_without_the_runner_is_the_cluster_s_matter(
    limited: Callable[..., Server],
) -> None:
    server = limited(EDGEYARD_RAW_EXEC_COMMAND="/nowhere/edgeyard-runner")
    category, sentence = failure_of(server, submit(server))
    assert category == "cluster"
    assert "/nowhere/edgeyard-runner" in sentence


def test_a_run_ends_at_its_user_time(limited: Callable[..., Server]) -> None:
    server = limited()
    category, sentence = failure_of(server, submit(server, user_time=3))
    assert category == "timeout"
    assert "user_time of 3 s" in sentence


def test_a_run_that_says_nothing_is_ended(limited: Callable[..., Server]) -> None:
    """No engine is loaded in 50 ms."""
    server = limited(EDGEYARD_NO_OUTPUT_TIMEOUT_S="0.05")
    category, sentence = failure_of(server, submit(server))
    assert category == "timeout"
    assert "said nothing" in sentence


def test_who_waited_longer_than_its_queue_time_out_expires(
    limited: Callable[..., Server],
) -> None:
    server = limited()
    first = submit(server)
    server.wait(first, ("running",))
    second = submit(server, queue_timeout=1)
    assert server.wait(second, timeout_s=30)["status"] == "expired"
    assert server.show(second)["attempts"] == []
    server.call("POST", f"/v1/benchmarks/{first}/cancel")
    assert server.wait(first)["status"] == "cancelled"
