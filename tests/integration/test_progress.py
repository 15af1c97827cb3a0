"""Ticks of progress share one write a second, and whoever reads sees the newest at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from edgeyard.errors import Unavailable
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.progress import PhaseProgress, ProgressBuffer
from tests.builders import records as make
from tests.builders.api import Api, running
from tests.builders.engine import A, Lab


@pytest.fixture(name="api")
def an_api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as api:
        api.upload()
        yield api


TOKEN = "upload-token-1"  # of an attempt that `Api.dispatched` made


def await_true(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_ticks_of_many_boards_share_their_writes(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    path = f"/v1/runs/{attempt.job_id.removeprefix('benchmark-')}/progress"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    client = api.as_(None)

    def tick(progress: float, phase: str = "measuring") -> None:
        content = {"progress": progress, "phase": phase}
        assert client.post(path, json=content, headers=headers).status_code == 204

    def shown() -> tuple[object, object]:
        found = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}").json()
        return found["phase"], found["progress"]

    writers: list[str] = []
    tick(1)

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            writers.append(threading.current_thread().name)

    event.listen(api.store._writer, "before_cursor_execute", note)
    for progress in range(2, 60):
        tick(progress)
        assert shown() == ("measuring", progress)
    assert {name for name in writers if name != "edgeyard-progress"} == set()
    tick(70, "uploading")  # a change of phase is written at once
    assert [name for name in writers if name != "edgeyard-progress"] != []
    assert shown() == ("uploading", 70)


def test_what_a_run_knows_so_far_is_shown_while_it_measures(api: Api) -> None:
    attempt = api.dispatched(api.submit())
    path = f"/v1/runs/{attempt.job_id.removeprefix('benchmark-')}/progress"
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def reported(phase: str, message: str) -> object:
        content = {"progress": 15, "phase": phase, "message": message}
        assert api.as_(None).post(path, json=content, headers=headers).status_code == 204
        shown = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}").json()
        (listed,) = api.as_().get("/v1/benchmarks").json()["items"]
        assert listed["progress_message"] == shown["progress_message"]
        return shown["progress_message"]

    assert reported("measuring", "p50 not known yet") == "p50 not known yet"
    assert reported("measuring", "p50 ±3.1%") == "p50 ±3.1%", "a tick within the phase"
    api.store.flush_progress()
    assert reported("measuring", "\x1b[2J" + "x" * 300) == "�[2J" + "x" * 196
    assert reported("measuring", "p50 ±2.1%") == "p50 ±2.1%"
    assert reported("uploading", "") is None
    reported("measuring", "p50 ±2.1%")
    api.as_().post(f"/v1/benchmarks/{attempt.benchmark_id}/cancel")
    ended = api.as_().get(f"/v1/benchmarks/{attempt.benchmark_id}").json()
    assert (ended["status"], ended["progress_message"]) == ("cancelled", None)


def test_a_reader_that_began_before_a_write_shows_what_was_reported() -> None:
    written: list[PhaseProgress] = []
    buffer = ProgressBuffer(written.extend)
    row = make.a_benchmark("b-1", status=Status.RUNNING, phase="measuring", progress=18.0)
    buffer.note(PhaseProgress("b-1", 1, "measuring", 34.0))
    buffer.flush()
    assert written == [PhaseProgress("b-1", 1, "measuring", 34.0)]
    assert buffer.on_benchmark(row).progress == 34.0
    buffer.flush()
    assert buffer.on_benchmark(row).progress == 18.0, "rows read since then have it"
    buffer.close()


def a_running(store: SqlStore, name: str = "b-1") -> Attempt:
    with store.write() as uow:
        uow.benchmarks.add(
            make.a_benchmark(name, status=Status.RUNNING, phase="measuring", progress=1.0)
        )
        uow.attempts.add_all(
            [make.an_attempt(name, state=AttemptState.RUNNING, phase="measuring", progress=1.0)]
        )
    with store.read() as uow:
        return uow.attempts.of(name)[-1]


def seen(store: SqlStore, name: str = "b-1") -> tuple[float | None, float | None]:
    with store.read() as uow:
        return uow.benchmarks.get(name).progress, uow.attempts.of(name)[-1].progress


def test_other_processes_see_it_when_it_is_written(database_url: str) -> None:
    store, other = SqlStore(database_url), SqlStore(database_url)
    attempt = a_running(store)
    store.record_progress(attempt, 40.0)
    assert seen(store) == (40.0, 40.0)
    await_true(lambda: seen(other) == (40.0, 40.0))
    with other.write() as uow:  # no version changed: who read it before may save it
        uow.attempts.save(attempt)
    store.record_progress(attempt, 50.0)
    store.close()
    assert seen(other) == (50.0, 50.0)
    other.close()


def test_a_tick_of_a_phase_or_attempt_that_is_over_changes_nothing(database_url: str) -> None:
    store = SqlStore(database_url)
    attempt = a_running(store)
    with store.write() as uow:
        lifecycle.progress_received(uow, attempt, 10.0, "uploading", make.at(1))
    store.record_progress(attempt, 99.0)
    assert seen(store) == (10.0, 10.0)
    store.flush_progress()
    assert seen(store) == (10.0, 10.0)
    store.close()


def test_ticks_are_kept_while_the_database_can_not_be_written() -> None:
    written: list[PhaseProgress] = []
    refuse = True

    def write(ticks: list[PhaseProgress]) -> None:
        if refuse:
            raise Unavailable("the database is locked")
        written.extend(ticks)

    buffer = ProgressBuffer(write)  # type: ignore[arg-type]
    buffer.note(PhaseProgress("b-1", 1, "measuring", 10.0))
    with pytest.raises(Unavailable):
        buffer.flush()
    buffer.note(PhaseProgress("b-1", 1, "measuring", 20.0))
    refuse = False
    buffer.close()
    assert written[-1] == PhaseProgress("b-1", 1, "measuring", 20.0)
    assert buffer.of("b-1") is None


def test_a_victim_is_spared_for_progress_that_is_not_written_yet(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    victim = lab.submit()
    job_id = lab.running(victim)
    lab.progress(job_id, 5.0, "warmup")
    lab.decide()
    with lab.store.read() as uow:
        lab.store.record_progress(uow.attempts.by_job_id(job_id), 95.0)
    lab.submit()
    lab.decide()
    (holder,) = lab.cycle.latest.decided.holders if lab.cycle.latest else ()
    assert (holder.benchmark_id, holder.progress) == (victim, 95.0)
