"""Files that a URL names, and descriptions with a cron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgeyard.errors import Cancelled, InvalidInput, OutOfSpace, RunFailed, UrlRefused
from edgeyard.scheduler.clock import SharedClock, SteadyClock
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.crontab import next_fire
from edgeyard.scheduler.engine.downloads import Download, DownloadQueue
from edgeyard.scheduler.engine.intake import (
    CANCEL_CHECK_S,
    FETCH_PAUSES_S,
    UNAVAILABLE_PAUSE_S,
    add_schedule,
    fetch_files,
    fire_due,
)
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    FailureCategory,
    FileRole,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.store import SqlStore
from tests.databases import open_store
from tests.fakes.clock import FixedClock

DESCRIPTION = JobDescription(
    model="net.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1, target="rpi4b"
)
FOREIGN = BenchmarkFile(
    role=FileRole.MODEL, position=0, name="net.onnx", url="https://models.example/net.onnx"
)
LIMITS = dict.fromkeys(FileRole, 1000)


class Web:
    """Answers in turn; the last answer for ever."""

    def __init__(self, *answers: StoredFile | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def fetch(self, url: str, limit_bytes: int, cancelled: Callable[[], bool]) -> StoredFile:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


FILE = StoredFile(sha256="ab" * 32, size_bytes=5)
LOST = RunFailed("network", "the connection was cut")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path, clock: FixedClock) -> SqlStore:
    return open_store(tmp_path, now=clock.now)


def fetched(store: SqlStore, clock: FixedClock, web: Web) -> tuple[Benchmark, list[float]]:
    with store.write() as uow:
        made = lifecycle.submit(uow, DESCRIPTION, "ann", [FOREIGN], clock.now())
    pauses: list[float] = []
    fetch_files(store, web, made.benchmark_id, clock, LIMITS, pauses.append, lambda: False)
    with store.read() as uow:
        return uow.benchmarks.get(made.benchmark_id), pauses


def test_a_fetched_file_is_known_by_its_content(store: SqlStore, clock: FixedClock) -> None:
    benchmark, _ = fetched(store, clock, Web(FILE))
    assert benchmark.status is Status.PENDING
    assert benchmark.files[0].sha256 == FILE.sha256


def test_a_cut_connection_is_tried_again(store: SqlStore, clock: FixedClock) -> None:
    benchmark, pauses = fetched(store, clock, Web(LOST, LOST, FILE))
    assert benchmark.files[0].sha256 == FILE.sha256
    assert pauses == list(FETCH_PAUSES_S[:2])


def test_a_connection_that_stays_cut_ends_the_benchmark(store: SqlStore, clock: FixedClock) -> None:
    web = Web(LOST)
    benchmark, _ = fetched(store, clock, web)
    assert benchmark.status is Status.FAILED
    assert benchmark.failure is not None
    assert benchmark.failure.category is FailureCategory.NETWORK
    assert web.asked == 1 + len(FETCH_PAUSES_S)


def test_an_unforeseen_error_of_a_download_ends_the_benchmark(
    store: SqlStore, clock: FixedClock, caplog: pytest.LogCaptureFixture
) -> None:
    web = Web(ValueError("of no known kind"))
    benchmark, pauses = fetched(store, clock, web)
    assert benchmark.status is Status.FAILED
    assert benchmark.failure is not None
    assert benchmark.failure.category is FailureCategory.UNKNOWN
    assert "of no known kind" not in benchmark.failure.sentence
    assert pauses == list(FETCH_PAUSES_S)
    assert "of no known kind" in caplog.text


def test_a_download_that_the_disk_can_not_take_begins_again_after_a_pause(
    store: SqlStore, clock: FixedClock
) -> None:
    with store.write() as uow:
        made = lifecycle.submit(uow, DESCRIPTION, "ann", [FOREIGN], clock.now())
    web, pauses = Web(OutOfSpace("the file can not be stored")), list[float]()
    with pytest.raises(OutOfSpace):
        fetch_files(store, web, made.benchmark_id, clock, LIMITS, pauses.append, lambda: False)
    assert (web.asked, pauses) == (1, [UNAVAILABLE_PAUSE_S])
    with store.read() as uow:
        assert uow.benchmarks.get(made.benchmark_id).status is Status.PENDING


def test_a_stopping_server_neither_waits_for_a_download_nor_fails_it(
    store: SqlStore, clock: FixedClock
) -> None:
    with store.write() as uow:
        made = lifecycle.submit(uow, DESCRIPTION, "ann", [FOREIGN], clock.now())
    web = Web(LOST)
    fetch_files(
        store,
        web,
        made.benchmark_id,
        clock,
        LIMITS,
        lambda wait_s: None,
        lambda: True,
    )
    with store.read() as uow:
        assert uow.benchmarks.get(made.benchmark_id).status is Status.PENDING
    assert web.asked == 1


def test_a_cancelled_benchmark_s_download_is_given_up(store: SqlStore, clock: FixedClock) -> None:
    with store.write() as uow:
        made = lifecycle.submit(uow, DESCRIPTION, "ann", [FOREIGN], clock.now())

    class Slow:
        def fetch(self, url: str, limit_bytes: int, cancelled: Callable[[], bool]) -> StoredFile:
            assert not cancelled()
            with store.write() as uow:
                lifecycle.cancel(uow, made.benchmark_id, clock.now(), "ann")
            clock.forward(CANCEL_CHECK_S)
            assert cancelled()
            raise Cancelled

    fetch_files(store, Slow(), made.benchmark_id, clock, LIMITS, lambda wait_s: None, lambda: False)
    with store.read() as uow:
        assert uow.benchmarks.get(made.benchmark_id).status is Status.CANCELLED


def test_one_user_s_slow_downloads_leave_places_for_others() -> None:
    queue = DownloadQueue(max_per_user=2)
    queue.replace([Download(f"greedy-{n}", "greedy") for n in range(100)])
    taken = [queue.next(0), queue.next(0)]
    assert [each and each.benchmark_id for each in taken] == ["greedy-0", "greedy-1"]
    assert queue.next(0) is None
    queue.replace([*(Download(f"greedy-{n}", "greedy") for n in range(100)), Download("a", "ann")])
    assert queue.next(0) == Download("a", "ann")
    queue.done(Download("greedy-1", "greedy"))
    # until the next cycle has seen that it is done, it would be looked at once more
    assert queue.next(0) == Download("greedy-2", "greedy")
    queue.replace([])
    queue.done(Download("greedy-0", "greedy"))
    assert queue.next(0) is None


@pytest.mark.parametrize(
    "answer",
    [
        RunFailed("user_input", "404"),
        UrlRefused("http://x", "it leads to a private address"),
    ],
)
def test_errors_that_the_user_must_correct_are_not_retried(
    store: SqlStore, clock: FixedClock, answer: Exception
) -> None:
    web = Web(answer)
    benchmark, pauses = fetched(store, clock, web)
    assert benchmark.failure is not None
    assert benchmark.failure.category is FailureCategory.USER_INPUT
    assert web.asked == 1
    assert pauses == []


def scheduled(
    store: SqlStore,
    clock: FixedClock,
    cron: str = "* * * * *",
    prohibit_overlap: bool = False,
    **account: object,
) -> CronSchedule:
    owner = User(user_id="ann", role=Role.SUBMITTER, created_at=clock.now())
    with store.write() as uow:
        uow.accounts.add_user(replace(owner, **account))  # type: ignore[arg-type]
        return add_schedule(
            uow,
            replace(DESCRIPTION, cron=cron, prohibit_overlap=prohibit_overlap, user_priority=5),
            "ann",
            [replace(FOREIGN, sha256=FILE.sha256, size_bytes=5)],
            clock.now(),
        )


def made(store: SqlStore) -> Sequence[Benchmark]:
    with store.read() as uow:
        return uow.benchmarks.page(BenchmarkFilter(), limit=10, cursor=None)[0]


def test_each_firing_is_a_benchmark_of_its_own(store: SqlStore, clock: FixedClock) -> None:
    schedule = scheduled(store, clock)
    assert schedule.next_fire == clock.now() + timedelta(seconds=30)
    assert fire_due(store, clock) == 0
    for _ in range(3):
        clock.forward(60)
        assert fire_due(store, clock) == 1
        assert fire_due(store, clock) == 0
        end_all(store, clock)
    clock.forward(86400)  # the server was down for a day: made up for once
    assert fire_due(store, clock) == 1
    assert len(made(store)) == 4
    assert all(each.description.cron is None for each in made(store))
    submitted = events(store, "benchmark.submitted")
    assert {event.data["schedule_id"] for event in submitted} == {schedule.schedule_id}


def test_a_crontab_of_one_moment_fires_once_and_is_ended(
    store: SqlStore, clock: FixedClock
) -> None:
    start = clock.now() + timedelta(seconds=30)
    cron = f"{start:%S %M %H %d %m} * {start:%Y}"
    schedule = scheduled(store, clock, cron=cron)
    assert schedule.next_fire == start
    clock.forward(60)
    assert fire_due(store, clock) == 1
    with store.read() as uow:
        (kept,) = uow.schedules.all("ann")
    assert not kept.active
    assert events(store, "schedule.skipped") == []
    clock.forward(86400)
    assert fire_due(store, clock) == 0
    with pytest.raises(InvalidInput, match="never fires again"):
        next_fire(cron, clock.now())


def test_at_most_one_firing_of_a_schedule_waits(store: SqlStore, clock: FixedClock) -> None:
    scheduled(store, clock)
    for _ in range(5):  # its board is drained, say
        clock.forward(60)
        fire_due(store, clock)
    (waiting,) = made(store)
    skipped = events(store, "schedule.skipped")
    assert len(skipped) == 4
    assert {event.benchmark_id for event in skipped} == {waiting.benchmark_id}
    assert {event.user_id for event in skipped} == {"ann"}
    with store.read() as uow:
        (kept,) = uow.schedules.all("ann")
    assert (kept.skipped, kept.last_benchmark_id) == (4, waiting.benchmark_id)
    assert kept.next_fire > clock.now()
    end_all(store, clock)
    clock.forward(60)
    assert fire_due(store, clock) == 1


def begin(store: SqlStore, benchmark_id: str) -> None:
    with store.write() as uow:
        for status in (Status.SCHEDULED, Status.RUNNING):
            uow.benchmarks.save(replace(uow.benchmarks.get(benchmark_id), status=status))


def test_a_schedule_that_prohibits_overlaps_waits_for_the_end_of_its_last_benchmark(
    store: SqlStore, clock: FixedClock
) -> None:
    schedule = scheduled(store, clock, prohibit_overlap=True)
    clock.forward(60)
    assert fire_due(store, clock) == 1
    (first,) = made(store)
    assert not first.description.prohibit_overlap  # a benchmark is no schedule
    begin(store, first.benchmark_id)
    for _ in range(2):
        clock.forward(60)
        assert fire_due(store, clock) == 0
    (_, skipped) = events(store, "schedule.skipped")
    assert skipped.benchmark_id == first.benchmark_id
    assert "prohibits overlaps" in str(skipped.data["sentence"])
    with store.write() as uow:
        assert uow.schedules.get(schedule.schedule_id).skipped == 2
        lifecycle.cancel(uow, first.benchmark_id, clock.now(), "ann")
    clock.forward(60)
    assert fire_due(store, clock) == 1


def test_by_default_the_benchmarks_of_a_schedule_may_overlap(
    store: SqlStore, clock: FixedClock
) -> None:
    scheduled(store, clock)
    clock.forward(60)
    assert fire_due(store, clock) == 1
    begin(store, made(store)[0].benchmark_id)
    clock.forward(60)
    assert fire_due(store, clock) == 1


def test_a_schedule_that_can_t_be_fired_holds_up_no_other(
    store: SqlStore, clock: FixedClock
) -> None:
    broken = scheduled(store, clock)
    with store.write() as uow:
        uow.schedules.save(replace(broken, description={"files": [], "description": {}}))
        good = add_schedule(uow, replace(DESCRIPTION, cron="* * * * *"), "ann", [], clock.now())
        never = add_schedule(uow, replace(DESCRIPTION, cron="* * * * *"), "ann", [], clock.now())
        uow.schedules.save(replace(never, cron="0 0 31 2 *"))
    for _ in range(2):
        clock.forward(60)
        fire_due(store, clock)
        end_all(store, clock)
    assert len(made(store)) == 3  # the one without a next time fires once, and is ended
    with store.read() as uow:
        kept = {each.schedule_id: each for each in uow.schedules.all("ann")}
    assert [kept[each.schedule_id].skipped for each in (broken, good, never)] == [2, 0, 0]
    assert not kept[never.schedule_id].active
    assert kept[broken.schedule_id].active


def test_a_schedule_whose_crontab_is_none_any_more_is_ended_and_says_why(
    store: SqlStore, clock: FixedClock
) -> None:
    schedule = scheduled(store, clock)
    with store.write() as uow:
        uow.schedules.save(replace(schedule, cron="* * * * mon#2"))
    clock.forward(60)
    assert fire_due(store, clock) == 0
    (event,) = events(store, "schedule.ended")
    with store.read() as uow:
        ended = uow.schedules.get(schedule.schedule_id)
    assert not ended.active
    assert "mon#2" in (ended.problem or "")
    assert event.data["sentence"] == ended.problem


def end_all(store: SqlStore, clock: FixedClock) -> None:
    """Whatever waits is cancelled."""
    with store.write() as uow:
        for each in uow.benchmarks.page(BenchmarkFilter(), limit=10, cursor=None)[0]:
            if each.status is Status.PENDING:
                lifecycle.cancel(uow, each.benchmark_id, clock.now(), "ann")


def events(store: SqlStore, kind: str) -> Sequence[Event]:
    with store.read() as uow:
        found = uow.log.events(after=0, limit=100)
    return [event for event in found if event.kind == kind]


def test_a_disabled_account_makes_nothing_and_keeps_its_schedule(
    store: SqlStore, clock: FixedClock
) -> None:
    scheduled(store, clock, disabled=True)
    clock.forward(60)
    assert fire_due(store, clock) == 0
    assert not made(store)
    with store.read() as uow:
        (kept,) = uow.schedules.all("ann")
    assert kept.active
    assert kept.next_fire > clock.now()


def test_a_firing_is_within_the_accounts_bounds_of_then(store: SqlStore, clock: FixedClock) -> None:
    scheduled(store, clock, max_priority=2)
    clock.forward(60)
    fire_due(store, clock)
    (benchmark,) = made(store)
    assert benchmark.description.user_priority == 2


def test_content_that_only_a_schedule_names_stays(store: SqlStore, clock: FixedClock) -> None:
    schedule = scheduled(store, clock)
    with store.write() as uow:
        assert uow.files.referenced(FILE.sha256)
        uow.schedules.save(replace(schedule, active=False))
        assert not uow.files.referenced(FILE.sha256)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_schedule_does_not_fire_because_somebody_set_the_clock(
    store: SqlStore, clock: FixedClock, step_s: float
) -> None:
    steady = SharedClock(SteadyClock(clock.now, clock.monotonic_s))
    scheduled(store, clock)
    clock.step(step_s)
    assert fire_due(store, steady) == 0
    clock.step(-step_s)
    assert fire_due(store, steady) == 0
