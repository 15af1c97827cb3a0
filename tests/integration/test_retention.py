"""Old records go by class, in short steps; what is live or needed stays."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from typer.testing import CliRunner

from edgeyard.benchmark_api.bootstrap import _has_ended
from edgeyard.benchmark_api.cli import app
from edgeyard.errors import NotFound
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.housekeeping import collect_garbage
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.recurring import ScheduleJobState
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.ports import BenchmarkFilter, Store
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.builders.api import running
from tests.fakes.clock import FixedClock

DAY_S = 86400.0
ALL = dict.fromkeys(RetentionClass, make.NOW)


def add(store: Store, name: str, *, age_s: float, live: bool = False, **changes: object) -> None:
    """A benchmark with all that belongs to one, ended so long before NOW."""
    ended = make.at(-age_s)
    status = Status.RUNNING if live else Status.COMPLETED
    with store.write() as uow:
        uow.benchmarks.add(
            make.a_benchmark(
                name,
                status=status,
                ended_at=None if live else ended,
                description=make.a_description(tags=("nightly",)),
                **changes,
            )
        )
        state = AttemptState.RUNNING if live else AttemptState.ENDED
        attempt = make.an_attempt(
            name, state=state, hcl="job {}" * 100, ended_at=None if live else ended
        )
        uow.attempts.add_all([attempt])
        uow.attempts.add_outcome(make.an_outcome(name, ended_at=ended))
        uow.files.add_grants([make.a_grant(f"grant-{name}", benchmark_id=name)])
        uow.files.add_result(make.a_result(f"{name}.npy", benchmark_id=name, received_at=ended))
        uow.files.add_report(make.a_report(benchmark_id=name, received_at=ended))
        uow.log.append(make.an_event("benchmark.status", benchmark_id=name, at=ended))
        uow.log.put_answer(f"key-{name}", "ada", "hash", {})
        record = make.a_record(decided_at=ended, outcome=name.encode())
        uow.cycles.explain(name, uow.cycles.add(record))


def test_a_class_goes_when_its_time_is_over_and_no_other(store: Store) -> None:
    add(store, "old", age_s=10)
    add(store, "young", age_s=-10)
    add(store, "live", age_s=10, live=True)

    store.prune({RetentionClass.HCL: make.NOW})
    with store.read() as uow:
        texts = {name: uow.attempts.of(name)[0].hcl for name in ("old", "young", "live")}
        assert len(uow.files.results("old")) == 1
    assert [bool(texts[name]) for name in ("old", "young", "live")] == [False, True, True]

    store.prune({RetentionClass.RESULTS: make.NOW})
    with store.read() as uow:
        assert [len(uow.files.results(n)) for n in ("old", "young", "live")] == [0, 1, 1]
        assert uow.files.reports("old")  # the numbers stay

    store.prune({RetentionClass.BENCHMARKS: make.NOW})
    with store.read() as uow:
        with pytest.raises(NotFound):
            uow.benchmarks.get("old")
        page, _ = uow.benchmarks.page(BenchmarkFilter(tag="nightly"), limit=9, cursor=None)
        assert {each.benchmark_id for each in page} == {"young", "live"}
        assert uow.benchmarks.counts_by_status()[Status.COMPLETED] == 1
        assert not uow.log.events(after=0, limit=9, benchmark_id="old")
        assert len(uow.attempts.outcomes()) == 3  # run times are still learned from it
    assert any(pruned.rows for pruned in store.prune(ALL).values())
    assert all(not pruned.rows for pruned in store.prune(ALL).values())


def test_a_dry_run_counts_what_would_go_and_deletes_nothing(store: Store) -> None:
    for name, age_s in (("older", 20), ("old", 10), ("young", -10)):
        add(store, name, age_s=age_s)
    would = store.prune(ALL, dry_run=True)
    assert store.prune(ALL, dry_run=True) == would
    with store.read() as uow:
        assert uow.benchmarks.get("old")
    went = store.prune(ALL)
    assert would[RetentionClass.BENCHMARKS].rows == went[RetentionClass.BENCHMARKS].rows == 2
    assert would[RetentionClass.HCL] == went[RetentionClass.HCL]
    assert would[RetentionClass.HCL].size_bytes == 2 * 600
    assert would[RetentionClass.CYCLES] == went[RetentionClass.CYCLES]


def test_ended_jobs_of_schedules_go_but_for_the_last_one_of_an_active_schedule(
    store: Store,
) -> None:
    registered = ScheduleJobState.REGISTERED
    jobs: dict[str, list[dict[str, Any]]] = {
        "active": [{}, {}, {}],
        "running": [{}, {"state": registered}, {}],
        "over": [{}, {"state": registered}, {}],
        "gone": [{}, {}],
        "young": [{"created_at": datetime.now(UTC)}],
    }
    old = make.at(-2 * DAY_S)
    with store.write() as uow:
        for name, versions in jobs.items():
            active = name in ("active", "running")
            uow.schedules.add(make.a_schedule(name, active=active, created_at=old))
            for version, changes in enumerate(versions, 1):
                given: dict[str, Any] = {"created_at": old, **changes}
                uow.schedules.add_job(make.a_schedule_job(version, name, **given), ())
    would = store.prune({}, dry_run=True)
    assert would[RetentionClass.EXPIRED].size_bytes == 7 * len("job {}")
    assert store.prune({}) == would
    assert not store.prune({})[RetentionClass.EXPIRED].rows
    with store.read() as uow:
        left = {name: [job.version for job in uow.schedules.jobs(name)] for name in jobs}
        assert left == {"active": [3], "running": [2, 3], "over": [2], "gone": [], "young": [1]}
        assert len(uow.schedules.all(None)) == 5

    went = store.prune(dict.fromkeys(RetentionClass, make.at(-DAY_S)))
    assert went[RetentionClass.BENCHMARKS].rows == 1
    with store.read() as uow:
        left_schedules = {each.schedule_id for each in uow.schedules.all(None)}
    assert left_schedules == {"active", "running", "over", "young"}


def test_jobs_of_schedules_can_be_removed_from_nomad_after_their_rows_were_pruned(
    store: Store,
) -> None:
    active, over = "cron-" + "a" * 16, "cron-" + "b" * 16
    old = make.at(-2 * DAY_S)
    with store.write() as uow:
        uow.schedules.add(make.a_schedule(active, created_at=old))
        uow.schedules.add(make.a_schedule(over, active=False, created_at=old))
        for version in (1, 2):
            uow.schedules.add_job(make.a_schedule_job(version, active, created_at=old), ())
        uow.schedules.add_job(make.a_schedule_job(1, over, created_at=old), ())
    store.prune({})
    with store.read() as uow:
        assert [job.version for job in uow.schedules.jobs(active)] == [2]
        assert _has_ended(uow, f"benchmark-{active}-1")
        assert _has_ended(uow, f"benchmark-{over}-1")
        # of a newer database, and of another Edgeyard
        assert not _has_ended(uow, f"benchmark-{active}-3")
        assert not _has_ended(uow, f"benchmark-cron-{'c' * 16}-1")


def test_an_ended_schedule_goes_after_the_last_of_its_benchmarks(store: Store) -> None:
    with store.write() as uow:
        uow.schedules.add(make.a_schedule("over", active=False, created_at=make.at(-99)))
        uow.schedules.add(make.a_schedule("young", active=False, created_at=make.at(99)))
    add(store, "member", age_s=-10, schedule_id="over")
    store.prune(ALL)
    with store.read() as uow:
        assert uow.schedules.get("over")
    store.prune(dict.fromkeys(RetentionClass, make.at(20)))
    with store.read() as uow:
        assert [each.schedule_id for each in uow.schedules.all(None)] == ["young"]


def test_what_a_live_benchmark_needs_stays(store: Store) -> None:
    with store.write() as uow:
        uow.campaigns.add(make.a_campaign("c-live"))
        uow.campaigns.add(make.a_campaign("c-over"))
    add(store, "first", age_s=10)
    add(store, "again", age_s=10, live=True, retry_of="first")
    add(store, "member", age_s=10, campaign_id="c-live")
    add(store, "running", age_s=10, live=True, campaign_id="c-live")
    add(store, "over", age_s=10, campaign_id="c-over")
    store.prune(ALL)
    with store.read() as uow:
        for name in ("first", "again", "member", "running"):
            assert uow.benchmarks.get(name)
        assert uow.files.grant("grant-running")
        for name in ("running", "again"):
            assert uow.cycles.get(uow.cycles.explaining_cycle(name))
        with pytest.raises(NotFound):
            uow.benchmarks.get("over")
        assert uow.campaigns.get("c-live")
        with pytest.raises(NotFound):
            uow.campaigns.get("c-over")


def test_runs_that_a_recorded_cycle_knew_stay_as_long_as_it(store: Store) -> None:
    far = 400 * DAY_S
    for name in ("b-1", "b-2", "b-3"):
        add(store, name, age_s=far)
    with store.write() as uow:
        known = next(each for each in uow.attempts.outcomes() if each.seq == 2)
        runs = History([make.past_run(known)])
        seq = uow.cycles.add(make.a_record(runs=runs))
    store.prune(ALL)
    with store.read() as uow:
        assert list(uow.attempts.past_runs_after(0, newest=9).seqs) == [2, 3]
        assert [run.seq for run in uow.cycles.get(seq).runs] == [2]
    store.prune(dict.fromkeys(RetentionClass, make.at(1)))
    with store.read() as uow:  # but the last: its number must not be given twice
        assert list(uow.attempts.past_runs_after(0, newest=9).seqs) == [3]


def test_content_goes_when_nothing_young_or_live_runs_with_it(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/lab.db")
    files = ContentFiles(tmp_path / "files")
    clock = FixedClock(make.NOW)

    def stored(content: bytes) -> str:
        writer = files.writer(1000)
        writer.write(content)
        sha256 = writer.commit().sha256
        os.utime(files.path(sha256), (1, 1))
        return sha256

    contents = {name: stored(name.encode()) for name in ("old", "young", "live", "planned")}
    for name, sha256 in contents.items():
        with store.write() as uow:
            uow.files.add_user_file(
                make.a_user_file(f"f-{name}", sha256=sha256, created_at=make.at(-30 * DAY_S))
            )
    for name in ("old", "young", "live"):
        add(
            store,
            name,
            age_s=DAY_S if name == "young" else 20 * DAY_S,
            live=name == "live",
            files=(make.a_benchmark_file(sha256=contents[name]),),
        )
    with store.write() as uow:
        described = {"model": "net.onnx", "sha256": contents["planned"]}
        uow.schedules.add(make.a_schedule(description=described))

    def collect(**options: bool) -> int:
        kept = {RetentionClass.FILES: 10 * DAY_S}
        return (
            collect_garbage(store, files, clock, kept, **options).pruned[RetentionClass.FILES].rows
        )

    collect_garbage(store, files, clock, {})
    assert all(files.path(sha256) for sha256 in contents.values())  # kept for ever
    assert collect(dry_run=True) == 2  # the upload, and the benchmark that ran with it
    assert files.path(contents["old"])
    assert collect() == 2
    with pytest.raises(NotFound):
        files.path(contents["old"])
    for name in ("young", "live", "planned"):
        assert files.path(contents[name])
    store.close()


def test_a_benchmark_whose_model_was_pruned_can_not_be_retried_silently(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        sha256 = api.upload()["sha256"]
        benchmark_id = api.submit()
        client = api.as_("alice")
        assert client.post(f"/v1/benchmarks/{benchmark_id}/cancel").is_success
        os.utime(api.files.path(sha256), (1, 1))
        assert api.files.remove(sha256)
        refused = client.post(f"/v1/benchmarks/{benchmark_id}/retry")
        assert refused.status_code == 409, refused.text
        reason = refused.json()["detail"]  # which names no flag: a retry takes no model
        assert reason.startswith(f"model.onnx, the model of {benchmark_id}, is no longer")
        assert reason.endswith(f"edgeyard submit --clone {benchmark_id} --model FILE")
        refused = client.post(f"/v1/benchmarks/{benchmark_id}/clone", json={"nb_inference": 9})
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "/model"
        assert "upload it again" in error["accepted"]


def test_a_job_whose_text_was_pruned_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        api.upload()
        attempt = api.dispatched(api.submit())
        where = f"/v1/benchmarks/{attempt.benchmark_id}/hcl"
        with api.store.write() as uow:
            now = api.clock.now()
            current = uow.attempts.by_job_id(attempt.job_id)
            queued = lifecycle.to_state(uow, current, AttemptState.QUEUED, now)
            ran_badly = Failure(category=FailureCategory.USER_MODEL, sentence="not a model")
            lifecycle.task_ended(uow, queued, ran_badly, now, now)
        assert api.as_("alice").get(where).is_success
        api.store.prune({RetentionClass.HCL: api.clock.now() + timedelta(days=1)})
        gone = api.as_("alice").get(where)
        assert gone.status_code == 404
        assert "any more" in gone.json()["detail"]


# --- what pruning costs others -----------------------------------------------------------------


@contextmanager
def steps_of_writes(store: SqlStore) -> Iterator[list[int]]:
    """Instructions of SQLite's machine in each transaction that writes, in hundreds."""
    taken: list[int] = []

    def tick() -> int:
        taken[-1] += 1
        return 0

    def begin(connection: object) -> None:
        taken.append(0)

    with store._writer.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_progress_handler(tick, 100)
        connection.rollback()
    event.listen(store._writer, "begin", begin)
    yield taken
    event.remove(store._writer, "begin", begin)
    driver.set_progress_handler(None, 0)


def test_with_nothing_to_drop_nobody_waits(sqlite_store: SqlStore) -> None:
    for number in range(30):
        add(sqlite_store, f"b-{number}", age_s=-10)
    sqlite_store.prune({})
    with steps_of_writes(sqlite_store) as taken:
        sqlite_store.prune(dict.fromkeys(RetentionClass, make.at(-DAY_S)))
    assert sum(taken) < 5, taken  # one look at the free pages


@pytest.mark.parametrize("dropped", [40])
def test_a_step_costs_the_same_however_much_is_stored(sqlite_store: SqlStore, dropped: int) -> None:
    longest = []
    for kept in (20, 200):
        for number in range(kept):
            add(sqlite_store, f"kept-{kept}-{number}", age_s=-10)
            if number % 5 == 0:
                add(sqlite_store, f"live-{kept}-{number}", age_s=10, live=True)
        for number in range(dropped):
            add(sqlite_store, f"old-{kept}-{number}", age_s=10)
        with steps_of_writes(sqlite_store) as taken:
            went = sqlite_store.prune(ALL)
        assert went[RetentionClass.BENCHMARKS].rows == dropped
        longest.append(max(taken))
    assert longest[1] <= longest[0] * 1.25 + 5, longest


def test_old_rows_are_found_along_an_index(sqlite_store: SqlStore) -> None:
    add(sqlite_store, "old", age_s=10)
    seen: list[tuple[str, object]] = []

    def note(c: object, cursor: object, statement: str, values: object, *_: object) -> None:
        if statement.startswith(("SELECT", "DELETE", "UPDATE")):
            seen.append((statement, values))

    for engine in (sqlite_store._reader, sqlite_store._writer):
        event.listen(engine, "before_cursor_execute", note)
    sqlite_store.prune(ALL)
    for engine in (sqlite_store._reader, sqlite_store._writer):
        event.remove(engine, "before_cursor_execute", note)
    connection = sqlite3.connect(str(sqlite_store._reader.url).removeprefix("sqlite:///"))
    for statement, values in seen:
        given: Any = values[0] if isinstance(values, list) else values
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", given)]
        # schedules are few, and searched for the hashes that they name
        scans = [line for line in plan if line.startswith("SCAN") and "schedules" not in line]
        assert all("SCAN CONSTANT ROW" in line for line in scans), (statement, plan)
        assert not any("TEMP B-TREE FOR ORDER BY" in line for line in plan), (statement, plan)
    connection.close()


def test_an_sqlite_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    store = SqlStore(f"sqlite:///{path}")
    for number in range(20):
        name = f"old-{number}"
        add(store, name, age_s=10)
        with store.write() as uow:
            uow.log.append(
                make.an_event(benchmark_id=name, at=make.at(-9), data={"x": "y" * 200_000})
            )
    store.prune({})
    store.close()
    before = path.stat().st_size
    store = SqlStore(f"sqlite:///{path}")
    store.prune(ALL)
    store.close()
    assert path.stat().st_size < before - 3_000_000


def test_the_command_counts_first_and_deletes_on_demand(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    add(store, "old", age_s=400 * DAY_S)
    store.close()
    settings = tmp_path / "server.toml"
    settings.write_text("retain_hcl_s = '30 d'\n")

    def run(*options: str) -> dict[str, int]:
        reported = CliRunner().invoke(
            app,
            ["server", "prune", "--data-dir", str(tmp_path), "--config", str(settings), *options],
        )
        assert reported.exit_code == 0, reported.output
        return {each["class"]: each["rows"] for each in json.loads(reported.stdout)["classes"]}

    assert run("--dry-run", "--json")["hcl"] == 1
    assert run("--json")["hcl"] == 1
    assert run("--json")["hcl"] == 0
    people = CliRunner().invoke(app, ["server", "prune", "--data-dir", str(tmp_path), "--dry-run"])
    assert "benchmarks" not in people.stdout  # kept for ever
    assert "90 days" in people.stdout
    assert "nothing was deleted" in people.stderr
