"""What a server and its embedded cluster have accepted outlasts a disk that is full for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.process import edgeyard
from edgeyard.scheduler.clusters.local import LocalCluster
from edgeyard.scheduler.ports import JobRun
from tests.builders.cluster import Submitter, a_board, a_job, eventually
from tests.integration.test_full_disk import FAMILY, fill, mounted


@pytest.fixture(name="larger_disk")
def a_larger_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "larger", 64)


@pytest.fixture(name="disk")
def a_small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk", 24)


@pytest.mark.slow
def test_what_is_accepted_outlasts_a_full_disk(larger_disk: Path) -> None:
    """No retry is used up, and the reserve is there again without a restart or a request."""
    data, environment = larger_disk / "data", {"EDGEYARD_RESERVE_BYTES": "1 MiB"}
    later = {"start_time": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    with edgeyard(data, environment) as server:
        model = str(server.upload(DIGITS)["name"])
        run = {"model": model, **FAMILY, "max_retries": 0, "nb_inference": 3000}
        held = server.submit({**run, **later})
        accepted = [server.submit(run) for _ in range(4)]
        server.wait(accepted[0], ("running",), timeout_s=60)
        filler = fill(larger_disk)
        server.call("POST", f"/v1/benchmarks/{held}/cancel")
        assert not (data / "edgeyard.ballast").exists()
        fill(larger_disk)
        eventually(lambda: not tasks_in(data / "alloc"), "no task runs any more", 120)
        filler.unlink()
        eventually((data / "edgeyard.ballast").exists, "the reserve is there again", 60)
        for benchmark_id in accepted:
            ended = server.wait(benchmark_id, timeout_s=120)
            assert ended["status"] == "completed", ended["failure"]


DIGITS = Path(__file__).parents[2] / "deploy/demo/digits.onnx"


def tasks_in(folder: Path) -> set[str]:
    """Processes that run in the folder of a task."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                found.add(pid)
    return found


@pytest.mark.parametrize("status", [6, 120])
def test_a_task_that_finds_no_room_is_nobody_s_failure(
    disk: Path, tmp_path: Path, status: int
) -> None:
    """With room again it would not fail; meanwhile its boards take no others."""
    flag = tmp_path / "flag"
    wait = f"import os, sys, time\nwhile not os.path.exists('{flag}'): time.sleep(0.05)\n"
    board = a_board("rpi4b-0001-0001")
    with contextlib.closing(LocalCluster((board,), disk)) as cluster:
        lab = Submitter(cluster)
        lab.dispatch(a_job(f"{wait}sys.exit({status})"))
        lab.until("benchmark-1", JobRun.RUNNING)
        filler = fill(disk)
        (host,) = cluster.hosts()
        assert (host.ready, host.ready_reason) == (False, "out of disk space")
        flag.touch()
        ended = lab.until("benchmark-1", JobRun.ENDED)
        fill(disk)  # also what its folder took
        lab.dispatch(a_job(job_id="benchmark-2"), job_id="benchmark-2")
        not_begun = lab.until("benchmark-2", JobRun.ENDED)
        for each in (ended, not_begun):
            assert each.stopped
            assert each.failure is not None
            assert "no room was left on the server's disk" in each.failure.sentence
        filler.unlink()
        assert cluster.hosts()[0].ready
        lab.dispatch(a_job(job_id="benchmark-3"), job_id="benchmark-3")
        assert lab.until("benchmark-3", JobRun.ENDED).failure is None
