"""A disk that is nearly full refuses uploads of users; what runs goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.process import Server, edgeyard
from edgeyard.errors import OutOfSpace
from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.engine.active_models import ActiveModels
from edgeyard.scheduler.engine.registered_models import PromotionMode, promote_due
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.outcomes.learning import learn_outcomes
from edgeyard.scheduler.outcomes.rows import read_outcome_rows
from edgeyard.scheduler.store import SqlStore
from tests.builders.api import Api, running
from tests.builders.model_files import a_model_file
from tests.builders.outcomes import add_past

TOKEN = "upload-token-1"  # of an attempt that `Api.dispatched` made
RESERVE = 8 * 2**20


@pytest.fixture(name="larger_disk")
def a_larger_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "larger", 64)


@pytest.fixture(name="disk")
def a_small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    yield from mounted(tmp_path / "disk", 24)


def mounted(folder: Path, size_mib: int) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False, timeout=60)
    except OSError as error:
        pytest.skip(f"mounting is not possible here: {error}")
    if done.returncode:
        pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)


def fill(disk: Path) -> Path:
    """Take all room that is left; returns the file that does."""
    ballast = disk / "filler"
    with ballast.open("ab", buffering=0) as file:
        for step in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(step))
    return ballast


@pytest.fixture(name="api")
def an_api(disk: Path) -> Iterator[Api]:
    (disk / "data").mkdir()
    with running(disk / "data", reserve_bytes=RESERVE) as api:
        api.upload()
        yield api


def test_a_full_disk_refuses_uploads_while_runs_complete(api: Api, disk: Path) -> None:
    attempt = api.dispatched(api.submit())
    content = os.urandom(2**20)
    api.upload("before.onnx", content)
    ballast = disk / "ballast"
    with ballast.open("wb") as file:  # leaves less than the reserve
        file.write(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - RESERVE // 2))

    refused = api.as_("alice").post("/v1/files", files={"file": ("after.onnx", os.urandom(2**20))})
    assert refused.status_code == 507, refused.text
    assert refused.json()["code"] == "out_of_space"
    limit = {"name": "reserve_bytes", "value": RESERVE, "whose": "this server"}
    assert refused.json()["limit"] == limit
    assert int(refused.headers["Retry-After"]) > 0
    ready = api.as_().get("/readyz?verbose=true")
    assert ready.status_code == 503
    assert "left" in ready.json()["checks"]["files"]

    task = api.as_(None)
    job = attempt.job_id.removeprefix("benchmark-")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for phase in ("warmup", "measuring"):
        document = {"progress": 50, "phase": phase}
        answer = task.post(f"/v1/runs/{job}/progress", json=document, headers=headers)
        assert answer.status_code == 204, answer.text
    report = json.dumps({"status": "ok", "benchmark_id": attempt.benchmark_id}).encode()
    for name, body in (("raw.npy", os.urandom(2**20)), ("report.json", report)):
        digest = hashlib.sha256(body).hexdigest()
        answer = task.put(
            f"/upload/{job}/{name}", content=body, headers={**headers, "X-Content-SHA256": digest}
        )
        assert answer.status_code == 201, answer.text
    assert api.submit()  # of a model that is there
    assert not list(
        (disk / "data" / "files" / "tmp").iterdir()
    )  # nothing is left of what was refused

    ballast.unlink()
    api.upload("after.onnx", content)
    assert api.as_().get("/readyz").status_code == 200


def test_a_disk_without_any_room_recovers_by_itself(api: Api, disk: Path) -> None:
    attempt = api.dispatched(api.submit())
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**16))
        except OSError:
            pass
    client = api.as_("alice")
    assert client.post("/v1/files", files={"file": ("x.onnx", b"x" * 100_000)}).status_code == 507
    shown = client.get(f"/v1/benchmarks/{attempt.benchmark_id}")
    assert shown.status_code == 200  # reading needs no room
    answers = {client.post("/v1/benchmarks", json={}).status_code for _ in range(3)}
    assert answers <= {422, 507}
    ballast.unlink()
    api.upload("x.onnx", b"x" * 100_000)
    assert api.submit()
    assert api.attempt(attempt.benchmark_id).job_id == attempt.job_id


@pytest.mark.slow
def test_cancel_delete_prune_and_start_work_on_a_full_disk(larger_disk: Path) -> None:
    """Of a real server: what makes room needs some, which is kept for it."""
    data, environment = larger_disk / "data", {"EDGEYARD_RESERVE_BYTES": "1 MiB"}
    submitted = {"runtime": "ort", "benchmark_type": "TYPE1", "model": "net.onnx"}
    later = {"start_time": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    with edgeyard(data, environment) as server:
        ballast = data / "edgeyard.ballast"
        assert ballast.stat().st_size == 16 * 2**20
        file = upload(server, larger_disk / "net.onnx", 4 * 2**20)
        held = [
            ended(server, "hold", server.call("POST", "/v1/benchmarks", submitted | FAMILY | later))
            for _ in range(3)
        ]
        server.call("POST", "/v1/users", {"user_id": "ann"})
        token = server.call("POST", "/v1/tokens", {"user_id": "ann"})
        server.process.kill()  # its log stays as it is
        server.process.wait(60)
    filler = fill(larger_disk)
    with edgeyard(data, environment) as server:
        assert not ballast.exists()
        fill(larger_disk)  # also what was left for the start
        ann = Server(server.url, server.port, server.process, str(token["token"]))
        with pytest.raises(RuntimeError, match=r"\b507\b"):
            ann.call(
                "POST", "/v1/benchmarks", {**submitted, **FAMILY, "model_url": "http://x.test/"}
            )
        filler.unlink()
        # the ballast is there again as soon as something makes room, and there is enough
        assert ended(server, "cancel", held[0])
        assert ballast.exists()
    filler = fill(larger_disk)
    with edgeyard(data, environment) as server:
        assert ended(server, "cancel", held[1])
        assert ended(server, "cancel", held[2])
        server.call("DELETE", f"/v1/files/{file['file_id']}")
        prune = [sys.executable, "-m", "edgeyard", "server", "prune", "--data-dir", str(data)]
        done = subprocess.run(
            prune, capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, **environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        free = os.statvfs(larger_disk)
        assert free.f_bavail * free.f_frsize >= 4 * 2**20  # the file's
    filler.unlink()


FAMILY = {"target": "emumid"}


def upload(server: Server, path: Path, size_bytes: int) -> Mapping[str, object]:
    path.write_bytes(a_model_file(size_bytes, fill=os.urandom(64)))
    try:
        return server.upload(path)
    finally:
        path.unlink()


def ended(server: Server, action: str, benchmark: object) -> dict[str, object]:
    """Hold or cancel it; returns it as it is then."""
    assert isinstance(benchmark, dict)
    reported: dict[str, object] = server.call(
        "POST", f"/v1/benchmarks/{benchmark['benchmark_id']}/{action}"
    )
    return reported


def test_a_disk_that_is_full_when_a_trained_model_is_stored_changes_nothing(disk: Path) -> None:
    database = disk / "edgeyard.db"
    store = SqlStore(f"sqlite:///{database}")
    add_past(store, 20)
    rows = read_outcome_rows(store)
    ballast: list[Path] = []

    def report(progress: str) -> None:
        if "training on all" in progress and not ballast:
            with contextlib.closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # no room is left in it
            ballast.append(fill(disk))

    with pytest.raises(OutOfSpace, match="no room is left on the server"):
        learn_outcomes(store, rows, NOW, kinds=[ModelKind.FAILURE], report=report)
    with store.read() as uow:
        assert list(uow.models.all()) == []
    assert list(promote_due(store, PromotionMode.AUTO, NOW)) == []
    models = ActiveModels(store)
    models.refresh()
    assert models.current == ()  # past runs predict
    ballast[0].unlink()
    (again,) = learn_outcomes(store, rows, NOW, kinds=[ModelKind.FAILURE])
    assert again.registered is not None
    store.close()
