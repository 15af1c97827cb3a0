"""kill -9 of the server anywhere between a decision and the end of its job, over a real Nomad."""

from __future__ import annotations

import contextlib
import http.client
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.process import Server, free_port
from edgeyard.scheduler.store import SqlStore
from edgeyard.testbed import LoopbackNomad
from tests.acceptance.lives import DIED, a_life, attempts_of, good_reports
from tests.builders.cluster import eventually
from tests.nomad_cluster import clear, settings_of

pytestmark = [
    pytest.mark.nomad,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("nomad"),
]

DEMO = Path(__file__).parents[2] / "deploy/demo"
MODEL, DATASET = DEMO / "digits.onnx", DEMO / "digits_test.npz"
THREADS = ("edgeyard-call", "edgeyard-dispatch", "edgeyard-cycle", "edgeyard-repair")
STEPS_OF_A_CALL = (
    *("dispatch:before", "nomad:before", "nomad:variable", "nomad:register"),
    *("nomad:registered", "nomad:after", "dispatch:after"),
)
MAX_FAILPOINTS = 60


@pytest.fixture
def settings(nomad_cluster: LoopbackNomad, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    clear(nomad_cluster)
    yield settings_of(nomad_cluster, tmp_path / "inventory.json")
    clear(nomad_cluster)


def test_the_server_may_die_at_every_step_of_a_dispatch(
    nomad_cluster: LoopbackNomad,
    settings: Mapping[str, str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Kill it at the n-th step of the threads that decide, dispatch and repair: n = 1, 2, ...

    Each n has a database of its own, and all share one Nomad: a first life that dies there, and a
    second one that finds out what became of the job. The threads' rows of deaths are gone through
    side by side, since most of their time is spent waiting.
    """
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    with a_life(fresh / "data", environment=settings) as life:
        server = life.ready()
        server.upload(MODEL)
        server.upload(DATASET)
        # A server whose database knows no job does not begin while jobs of other rows are live.
        assert server.wait(_submitted(server, "first"))["status"] == "completed"
        assert life.end() == 0

    def fired(threads: str) -> int:
        for number in range(1, MAX_FAILPOINTS):
            folder = tmp_path / f"{threads}-{number}"
            shutil.copytree(fresh, folder)
            if not _dies_at(number, threads, folder, settings, nomad_cluster):
                return number - 1
        raise AssertionError(f"failpoints still fire after {MAX_FAILPOINTS}")

    with ThreadPoolExecutor(len(THREADS), "deaths") as rows:
        found = dict(zip(THREADS, rows.map(fired, THREADS), strict=True))
    record_property("failpoints fired", found)
    assert found["edgeyard-call"] >= len(STEPS_OF_A_CALL), found
    assert found["edgeyard-dispatch"] >= 4, found  # two commits
    assert min(found.values()) >= 2, found


def _dies_at(
    number: int,
    threads: str,
    folder: Path,
    settings: Mapping[str, str],
    nomad: LoopbackNomad,
) -> bool:
    """One life with a death at step ``number`` and one without; whether the death came."""
    port = free_port()  # the task looks for the second life where it knew the first one
    key = f"{threads}-{number}"
    with a_life(folder / "data", number, threads=threads, port=port, environment=settings) as life:
        with contextlib.suppress(RuntimeError, OSError, http.client.HTTPException):
            server = life.ready()
            server.wait(_submitted(server, key))
        life.wait(0.2)
        died = life.end() == DIED
    with a_life(folder / "data", port=port, environment=settings) as life:
        server = life.ready()
        benchmark_id = _submitted(server, key)  # the same one, under the same key
        ended = server.wait(benchmark_id)
        assert ended["status"] == "completed", (number, ended)
        attempts = attempts_of(ended)
        assert [each["failure"] for each in attempts if each["failure"] is None] == [None], ended
        assert len(good_reports(server, benchmark_id)) == 1, (number, ended)
        _nomad_ran_it_once(nomad, [str(each["job_id"]) for each in attempts], number)
        assert life.end() == 0
    assert _ends(folder / "data/edgeyard.db", benchmark_id) == ["completed"], number
    return died


def _submitted(server: Server, key: str) -> str:
    made = server.call(
        "POST",
        "/v1/benchmarks",
        {
            "model": MODEL.name,
            "runtime": "ort",
            "benchmark_type": "TYPE2",  # its task launches the model once, not four times
            "dataset": DATASET.name,
            "target": "rpi5",
            "max_retries": 0,  # what a crash costs uses up none
        },
        Idempotency_Key=key,
    )
    return str(made["benchmark_id"])


def _ends(database: Path, benchmark_id: str) -> list[object]:
    """Terminal statuses that its log tells of."""
    with contextlib.closing(SqlStore(f"sqlite:///{database}")) as store, store.read() as uow:
        events = uow.log.events(after=0, limit=10_000, benchmark_id=benchmark_id)
    statuses = [each.data["status"] for each in events if each.kind == "benchmark.status"]
    return [each for each in statuses if each in ("completed", "failed", "cancelled", "expired")]


def _nomad_ran_it_once(nomad: LoopbackNomad, job_ids: list[str], number: int) -> None:
    where = f"namespace={nomad.namespace}"
    allocations = nomad.call("GET", f"/v1/allocations?{where}")
    ours = [each for each in allocations if each["JobID"] in job_ids]
    assert len({each["JobID"] for each in ours}) == len(ours), (number, ours)
    # One that could not have its files while no server was there never began.
    began = [each for each in ours if any(s["StartedAt"] for s in each["TaskStates"].values())]
    assert len(began) == 1, (number, job_ids, ours)
    names = {f"nomad/jobs/{job_id}" for job_id in job_ids}

    def secrets() -> set[str]:
        found = nomad.call("GET", f"/v1/vars?{where}&prefix=nomad/jobs/")
        return {str(each["Path"]) for each in found}

    eventually(lambda: not names & secrets(), "no upload token is left")
