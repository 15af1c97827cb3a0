"""What every store keeps to, on both databases."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.errors import Conflict, InvalidInput, NotFound
from edgeyard.scheduler.model.attempt import ATTEMPT_MOVES, AttemptState
from edgeyard.scheduler.model.benchmark import (
    ALLOWED_MOVES,
    LIVE,
    TERMINAL,
    Benchmark,
    BenchmarkType,
    Constraint,
    Failure,
    FailureCategory,
    FileRole,
    Status,
)
from edgeyard.scheduler.model.forecast import Compared, ForecastResult
from edgeyard.scheduler.model.lab_conditions import LabCondition
from edgeyard.scheduler.model.policies import StoredPolicy
from edgeyard.scheduler.model.rating import PlacementRating, RewardRound, ScorerState
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.model.subscriptions import (
    Channel,
    Delivery,
    DeliveryState,
    Subscription,
    Topic,
)
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.model.webhooks import Webhook, WebhookFormat
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make

ANY = BenchmarkFilter()


def _add(store: SqlStore, *benchmarks: object) -> None:
    with store.write() as uow:
        for benchmark in benchmarks:
            uow.benchmarks.add(benchmark)  # type: ignore[arg-type]


def _all(store: SqlStore, which: BenchmarkFilter = ANY, limit: int = 100) -> list[str]:
    """Ids of all pages, and a check that no page is longer than asked for."""
    ids: list[str] = []
    cursor = None
    while True:
        with store.read() as uow:
            page, cursor = uow.benchmarks.page(which, limit=limit, cursor=cursor)
        assert len(page) <= limit
        ids += [benchmark.benchmark_id for benchmark in page]
        if cursor is None:
            return ids
        assert len(page) == limit


# --- benchmarks ---------------------------------------------------------------------------------


def test_the_first_proposed_mark_of_the_file_store_stays(store: SqlStore) -> None:
    assert store.transact(lambda uow: uow.files.store_mark("first")) == ("first", False)
    assert store.transact(lambda uow: uow.files.store_mark("second")) == ("first", False)
    store.transact(lambda uow: uow.files.note_mark_placed())
    assert store.transact(lambda uow: uow.files.store_mark("third")) == ("first", True)


def test_a_benchmark_comes_back_as_it_was_added(store: SqlStore) -> None:
    benchmark = make.a_benchmark(
        description=make.a_description(
            benchmark_type=BenchmarkType.TYPE2,
            model="größe-模型.onnx",
            dataset_urls=("https://example.org/a.npz",),
            deadline=make.at(3600),
            ram=2**40,
            precision=0.02,
            constraints=(Constraint(attribute="memory.ram", operator=">=", value="4 GiB"),),
            tags=("nightly", "nightly", "x"),
            odt_config={"epochs": 3, "nested": [1, {"a": None}]},
            extra={"quote": '"', "newline": "\n"},
        ),
        campaign_id="c-1",
        files=(
            make.a_benchmark_file(
                role=FileRole.DATASET, name="a.npz", sha256=None, url="https://x"
            ),
            make.a_benchmark_file(),
        ),
        waiting=make.a_waiting(),
        retry_of="b-0",
        priority=7,
        held=True,
    )
    _add(store, benchmark)
    with store.read() as uow:
        assert uow.benchmarks.get("b-1") == benchmark
        assert list(uow.benchmarks.get_many(["b-1", "b-2"])) == [benchmark]


def test_an_id_is_taken_once_and_the_transaction_goes_on(store: SqlStore) -> None:
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark(user_id="first"))
        with pytest.raises(Conflict):
            uow.benchmarks.add(make.a_benchmark(user_id="second"))
        uow.benchmarks.add(make.a_benchmark("b-2"))
    with store.read() as uow:
        assert uow.benchmarks.get("b-1").user_id == "first"
        assert uow.benchmarks.count(ANY) == 2


def test_what_is_not_there_is_not_found(store: SqlStore) -> None:
    with store.write() as uow:
        for missing in (
            lambda: uow.benchmarks.get("nope"),
            lambda: uow.benchmarks.save(make.a_benchmark("nope")),
            lambda: uow.attempts.save(make.an_attempt("nope")),
            lambda: uow.attempts.by_job_id("nope"),
            lambda: uow.files.user_file("ada", "nope"),
            lambda: uow.files.user_file_by_id("nope"),
            lambda: uow.files.remove_user_file("nope"),
            lambda: uow.files.grant("nope"),
            lambda: uow.accounts.user("nope"),
            lambda: uow.accounts.save_user(make.a_user("nope")),
            lambda: uow.accounts.token_by_hash("nope"),
            lambda: uow.cycles.explaining_cycle("nope"),
            lambda: uow.cycles.get(99),
            lambda: uow.campaigns.get("nope"),
            lambda: uow.schedules.get("nope"),
            lambda: uow.schedules.save(make.a_schedule("nope")),
        ):
            with pytest.raises(NotFound):
                missing()


def test_an_exception_rolls_everything_back(store: SqlStore) -> None:
    with pytest.raises(RuntimeError), store.write() as uow:  # noqa: PT012
        uow.benchmarks.add(make.a_benchmark())
        uow.log.append(make.an_event())
        uow.cycles.add(make.a_record())
        raise RuntimeError("no")
    with store.read() as uow:
        assert uow.benchmarks.count(ANY) == 0
        assert uow.benchmarks.counts_by_status()[Status.PENDING] == 0
        assert uow.log.last_seq() == 0


def test_a_unit_of_work_sees_its_own_changes_and_others_only_whole_ones(store: SqlStore) -> None:
    with store.write() as writing:
        writing.benchmarks.add(make.a_benchmark())
        assert writing.benchmarks.get("b-1").status is Status.PENDING
        with store.read() as reading:
            assert list(reading.benchmarks.get_many(["b-1"])) == []


def test_a_unit_of_work_for_reading_writes_nothing(store: SqlStore) -> None:
    with store.read() as uow:
        writes: list[Callable[[], object]] = [
            lambda: uow.benchmarks.add(make.a_benchmark()),
            lambda: uow.log.append(make.an_event()),
            lambda: uow.cycles.add(make.a_record()),
        ]
        for write in writes:
            with pytest.raises(TypeError):
                write()
    with store.read() as uow:
        assert uow.benchmarks.count(ANY) == 0


@pytest.mark.parametrize("old", list(Status))
def test_only_the_allowed_moves_of_a_status_are_saved(store: SqlStore, old: Status) -> None:
    for new in Status:
        name = f"{old}-{new}"
        benchmark = make.a_benchmark(name, status=old)
        _add(store, benchmark)
        allowed = new is old or new in ALLOWED_MOVES[old]
        with store.write() as uow:
            if allowed:
                assert uow.benchmarks.save(replace(benchmark, status=new)).status is new
            else:
                with pytest.raises(Conflict):
                    uow.benchmarks.save(replace(benchmark, status=new))
        with store.read() as uow:
            assert uow.benchmarks.get(name).status is (new if allowed else old)


def test_a_save_with_an_old_version_changes_nothing(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    with store.write() as uow:
        read = uow.benchmarks.get("b-1")
        saved = uow.benchmarks.save(replace(read, priority=10))
        assert saved.version == read.version + 1
        with pytest.raises(Conflict):
            uow.benchmarks.save(replace(read, priority=20))
    with store.read() as uow:
        assert uow.benchmarks.get("b-1") == saved


def test_all_of_a_life_is_saved_and_cleared_again(store: SqlStore) -> None:
    _add(store, make.a_benchmark(waiting=make.a_waiting(), files=(make.a_benchmark_file(),)))
    with store.write() as uow:
        running = uow.benchmarks.save(
            replace(
                uow.benchmarks.get("b-1"),
                status=Status.SCHEDULED,
                waiting=None,
                failure=Failure(category=FailureCategory.NETWORK, sentence="cut"),
                priority=50,
                phase="measuring",
                progress=41.5,
                target_uid="rpi4b-0001-0001",
                held=True,
                started_at=make.at(1.000001),
                ended_at=make.at(2),
            )
        )
        assert uow.benchmarks.get("b-1") == running
        cleared = make.a_benchmark(files=running.files, version=running.version)
        again = uow.benchmarks.save(cleared)
        assert uow.benchmarks.get("b-1") == again


def test_files_are_saved_through_their_own_door(store: SqlStore) -> None:
    added = make.a_benchmark(files=(make.a_benchmark_file(sha256=None),))
    fetched = (make.a_benchmark_file(), make.a_benchmark_file(role=FileRole.DATASET))
    _add(store, added, make.a_benchmark("b-2", files=added.files))
    with store.write() as uow:
        moved = uow.benchmarks.save(replace(added, files=fetched, priority=5))
        assert uow.benchmarks.get("b-1") == replace(moved, files=added.files)
        saved = uow.benchmarks.save_files(replace(moved, files=fetched[::-1]))
        assert saved.version == moved.version + 1
        assert uow.benchmarks.get("b-1") == saved
        with pytest.raises(Conflict):
            uow.benchmarks.save_files(replace(moved, files=()))
        assert uow.benchmarks.save_files(replace(saved, files=())).files == ()
    with store.read() as uow:
        assert uow.benchmarks.get("b-1").files == ()
        assert uow.benchmarks.get("b-2").files == added.files


def test_benchmarks_are_saved_together_or_not_at_all(store: SqlStore) -> None:
    _add(store, make.a_benchmark(), make.a_benchmark("b-2"), make.a_benchmark("b-3"))
    with store.write() as uow:
        both = [uow.benchmarks.get(name) for name in ("b-1", "b-2")]
        placed = [replace(each, status=Status.SCHEDULED, priority=7) for each in both]
        saved = uow.benchmarks.save_all(placed, Status.PENDING)
        assert uow.benchmarks.save_all([], Status.PENDING) == ()
        assert saved == [replace(each, version=both[0].version + 1) for each in placed]
        assert list(map(uow.benchmarks.get, ("b-1", "b-2"))) == saved
    old = [saved[0], replace(saved[1], version=both[1].version)]
    wrong: list[tuple[list[Benchmark], Status]] = [
        ([replace(each, status=Status.CANCELLED) for each in old], Status.SCHEDULED),
        ([replace(each, status=Status.FAILED) for each in saved], Status.PENDING),
        ([replace(each, status=Status.PENDING) for each in saved], Status.COMPLETED),
    ]
    for changed, before in wrong:
        with pytest.raises(Conflict), store.write() as uow:
            uow.benchmarks.save_all(changed, before)
    with store.read() as uow:
        assert list(map(uow.benchmarks.get, ("b-1", "b-2"))) == saved
        counts = uow.benchmarks.counts_by_status()
    assert (counts[Status.PENDING], counts[Status.SCHEDULED]) == (1, 2)


def test_why_benchmarks_wait_is_saved_together_and_alone(store: SqlStore) -> None:
    _add(store, make.a_benchmark(), make.a_benchmark("b-2"))
    with store.write() as uow:
        both = [uow.benchmarks.get(name) for name in ("b-1", "b-2")]
        changed = [replace(each, waiting=make.a_waiting(), priority=7) for each in both]
        saved = uow.benchmarks.save_waiting(changed)
        assert uow.benchmarks.save_waiting([]) == ()
        assert saved == [replace(each, version=both[0].version + 1) for each in changed]
        assert list(map(uow.benchmarks.get, ("b-1", "b-2"))) == saved
    later = [replace(saved[0], waiting=None), changed[1]]
    with pytest.raises(Conflict), store.write() as uow:
        uow.benchmarks.save_waiting(later)
    with store.write() as uow:
        uow.benchmarks.save_waiting([replace(saved[0], held=True, waiting=None)])
    with store.read() as uow:
        first = replace(saved[0], waiting=None, version=saved[0].version + 1)
        assert list(map(uow.benchmarks.get, ("b-1", "b-2"))) == [first, saved[1]]


def test_what_changed_since_it_was_read_is_distinguished_from_the_rest(store: SqlStore) -> None:
    seen = [make.a_benchmark(f"b-{number}") for number in range(3)]
    _add(store, *seen)
    with store.write() as uow:
        uow.benchmarks.save(replace(seen[1], held=True))
    with store.write() as uow:
        assert uow.benchmarks.unchanged([*seen, make.a_benchmark("nope")]) == {"b-0", "b-2"}
        assert uow.benchmarks.unchanged([]) == frozenset()


def test_live_versions_are_those_of_live_benchmarks(store: SqlStore) -> None:
    _add(store, *(make.a_benchmark(f"b-{status}", status=status) for status in Status))
    with store.write() as uow:
        uow.benchmarks.save(uow.benchmarks.get("b-running"))
    with store.read() as uow:
        assert uow.benchmarks.live_versions() == {
            f"b-{status}": int(status is Status.RUNNING) for status in LIVE
        }


def test_many_ids_are_got_at_once(store: SqlStore) -> None:
    _add(store, *(make.a_benchmark(f"b-{i}") for i in range(30)))
    wanted = [f"b-{i}" for i in range(40_000)]
    with store.read() as uow:
        assert {b.benchmark_id for b in uow.benchmarks.get_many(wanted)} == set(wanted[:30])
        assert list(uow.benchmarks.get_many([])) == []


# --- pages and counts ---------------------------------------------------------------------------


def test_pages_are_newest_first_and_complete_with_ties(store: SqlStore) -> None:
    added = [make.a_benchmark(f"b-{i:02}", submit_time=make.at(i // 4)) for i in range(25)]
    _add(store, *added)
    newest = sorted(added, key=lambda b: (b.submit_time, b.benchmark_id), reverse=True)
    for limit in (1, 4, 7, 25, 26):
        assert _all(store, limit=limit) == [b.benchmark_id for b in newest]


def test_a_page_is_not_disturbed_by_newer_benchmarks(store: SqlStore) -> None:
    _add(store, *(make.a_benchmark(f"b-{i}", submit_time=make.at(i)) for i in range(4)))
    with store.read() as uow:
        first, cursor = uow.benchmarks.page(ANY, limit=2, cursor=None)
    _add(store, make.a_benchmark("newer", submit_time=make.at(9)))
    with store.read() as uow:
        second, end = uow.benchmarks.page(ANY, limit=2, cursor=cursor)
    assert [b.benchmark_id for b in (*first, *second)] == ["b-3", "b-2", "b-1", "b-0"]
    assert end is None


def test_each_filter_finds_its_own_and_counts_the_same(store: SqlStore) -> None:
    description = make.a_description
    _add(
        store,
        make.a_benchmark("plain"),
        make.a_benchmark("user", user_id="bob"),
        make.a_benchmark("done", status=Status.COMPLETED, target_uid="rpi4b-0001-0001"),
        make.a_benchmark("campaign", campaign_id="c-1"),
        make.a_benchmark(
            "family", description=description(target=None, target_uid="rpi5-0001-0001")
        ),
        make.a_benchmark("engine", description=description(runtime="tflite")),
        make.a_benchmark("type", description=description(benchmark_type=BenchmarkType.TYPE3)),
        make.a_benchmark("model", description=description(model="resnet.onnx", tags=("a", "b"))),
        make.a_benchmark("tag", user_id="bob", description=description(tags=("b",))),
    )
    cases = [
        (BenchmarkFilter(user_id="bob"), {"user", "tag"}),
        (BenchmarkFilter(status=frozenset({Status.COMPLETED})), {"done"}),
        (BenchmarkFilter(status=TERMINAL), {"done"}),
        (BenchmarkFilter(status=frozenset()), set()),
        (BenchmarkFilter(campaign_id="c-1"), {"campaign"}),
        (BenchmarkFilter(family="rpi5"), {"family"}),
        (BenchmarkFilter(engine="tflite"), {"engine"}),
        (BenchmarkFilter(benchmark_type="TYPE3"), {"type"}),
        (BenchmarkFilter(target_uid="rpi4b-0001-0001"), {"done"}),
        (BenchmarkFilter(model="resnet.onnx"), {"model"}),
        (BenchmarkFilter(tag="a"), {"model"}),
        (BenchmarkFilter(tag="b"), {"model", "tag"}),
        (BenchmarkFilter(tag="b", user_id="bob", status=LIVE), {"tag"}),
        (BenchmarkFilter(tag="b", user_id="eve"), set()),
        (BenchmarkFilter(user_id="ada", status=TERMINAL, family="rpi4b"), {"done"}),
    ]
    for which, expected in cases:
        assert set(_all(store, which, limit=1)) == expected, which
        with store.read() as uow:
            assert uow.benchmarks.count(which) == len(expected), which


def test_pages_over_several_statuses_are_in_order(store: SqlStore) -> None:
    statuses = list(Status) * 3
    _add(
        store,
        *(
            make.a_benchmark(f"b-{i:02}", status=status, submit_time=make.at(i))
            for i, status in enumerate(statuses)
        ),
    )
    expected = [f"b-{i:02}" for i, s in enumerate(statuses) if s in TERMINAL][::-1]
    assert _all(store, BenchmarkFilter(status=TERMINAL), limit=5) == expected


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "bnVsbA", "W10", "WyJ4IiwieSJd", "WzEsMl0", "[" * 99, "\ud800"]
)
def test_a_foreign_cursor_is_refused(store: SqlStore, cursor: str) -> None:
    with store.read() as uow, pytest.raises(InvalidInput) as refused:
        uow.benchmarks.page(ANY, limit=1, cursor=cursor)
    assert refused.value.errors[0].pointer == "/cursor"


def test_counts_follow_every_change_of_a_status(store: SqlStore) -> None:
    _add(store, *(make.a_benchmark(f"b-{i}") for i in range(3)))
    with store.write() as uow:
        scheduled = uow.benchmarks.save(replace(uow.benchmarks.get("b-0"), status=Status.SCHEDULED))
        uow.benchmarks.save(replace(scheduled, status=Status.RUNNING))
        uow.benchmarks.save(replace(uow.benchmarks.get("b-1"), status=Status.CANCELLED))
    with store.read() as uow:
        counts = uow.benchmarks.counts_by_status()
        assert counts == {
            status: {Status.PENDING: 1, Status.RUNNING: 1, Status.CANCELLED: 1}.get(status, 0)
            for status in Status
        }
        assert uow.benchmarks.count(BenchmarkFilter(status=LIVE)) == 2


# --- attempts -----------------------------------------------------------------------------------


def test_an_attempt_comes_back_as_it_was_added_and_saved(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    attempt = make.an_attempt(allowed_uids=("rpi4b-0001-0001", "rpi4b-0001-0002"))
    with store.write() as uow:
        uow.attempts.add_all([attempt])
        assert list(uow.attempts.of("b-1")) == [attempt]
        saved = uow.attempts.save(
            replace(
                attempt,
                state=AttemptState.DISPATCHING,
                target_uid="rpi4b-0001-0001",
                hcl='job "x" {}',
                upload_token_sha256=make.a_sha256("token"),
                queued_at=make.at(1),
                started_at=make.at(2),
                task_ended_at=make.at(3),
                task_failure=Failure(category=FailureCategory.OUT_OF_MEMORY, sentence="killed"),
                stopping=Failure(category=FailureCategory.TIMEOUT, sentence="too long"),
                result_at=make.at(4),
                counts=False,
                failure=Failure(category=FailureCategory.UPLOAD, sentence="late"),
                phase="loading",
                progress=0.5,
            )
        )
    with store.read() as uow:
        assert uow.attempts.by_job_id(attempt.job_id) == saved
        assert saved.version == attempt.version + 1


def test_a_benchmark_has_at_most_one_live_attempt(store: SqlStore) -> None:
    _add(store, *(make.a_benchmark(f"b-{number}") for number in (1, 2, 3)))
    with store.write() as uow:
        first, other = make.an_attempt(), make.an_attempt("b-2", created_at=make.at(1))
        assert uow.attempts.add_all([first, make.an_attempt(number=2), other]) == [first, other]
        assert uow.attempts.add_all([make.an_attempt(job_id="another")]) == []
        ended = uow.attempts.save(replace(first, state=AttemptState.ENDED))
        second = make.an_attempt(number=2)
        assert uow.attempts.add_all([make.an_attempt(), second]) == [second]
        assert uow.attempts.add_all([]) == []
        assert list(uow.attempts.of("b-1")) == [ended, second]
        assert list(uow.attempts.live()) == [second, other]
        assert uow.attempts.live_versions() == {
            each.job_id: each.version for each in (second, other)
        }
        last_numbers = uow.attempts.last_numbers(["b-1", "b-2", "b-3", "b-4"])
        assert last_numbers == {"b-1": 2, "b-2": 1}
        assert uow.attempts.last_numbers([]) == {}


def test_a_store_knows_whether_it_ever_had_an_attempt(store: SqlStore) -> None:
    with store.write() as uow:
        assert uow.attempts.is_empty()
        uow.benchmarks.add(make.a_benchmark())
        assert uow.attempts.is_empty()
        uow.attempts.add_all([make.an_attempt()])
        assert not uow.attempts.is_empty()


def test_the_job_of_another_attempt_is_taken(store: SqlStore) -> None:
    _add(store, make.a_benchmark(), make.a_benchmark("b-2"))
    with store.write() as uow:
        uow.attempts.add_all([make.an_attempt(job_id="same")])
        assert uow.attempts.add_all([make.an_attempt("b-2", job_id="same")]) == []


@pytest.mark.parametrize("old", list(AttemptState))
def test_only_the_allowed_moves_of_an_attempt_are_saved(store: SqlStore, old: AttemptState) -> None:
    for new in AttemptState:
        name = f"{old}-{new}"
        _add(store, make.a_benchmark(name))
        attempt = make.an_attempt(name, state=old)
        with store.write() as uow:
            uow.attempts.add_all([attempt])
            if new is old or new in ATTEMPT_MOVES[old]:
                uow.attempts.save(replace(attempt, state=new))
            else:
                with pytest.raises(Conflict):
                    uow.attempts.save(replace(attempt, state=new))


def test_a_save_of_an_attempt_with_an_old_version_is_a_conflict(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    attempt = make.an_attempt()
    with store.write() as uow:
        uow.attempts.add_all([attempt])
        uow.attempts.save(attempt)
        with pytest.raises(Conflict):
            uow.attempts.save(attempt)


def test_attempts_are_saved_together_or_not_at_all(store: SqlStore) -> None:
    _add(store, make.a_benchmark(), make.a_benchmark("b-2"))
    both = [make.an_attempt(target_uid="rpi4b-0001-0001"), make.an_attempt("b-2")]
    with store.write() as uow:
        assert uow.attempts.add_all(both) == both
    sent = [replace(attempt, state=AttemptState.DISPATCHING) for attempt in both]
    with store.write() as uow:
        saved = uow.attempts.save_all(sent)
        assert uow.attempts.save_all([]) == ()
    with store.read() as uow:
        assert list(uow.attempts.live()) == list(saved)
        assert list(uow.attempts.live([both[1].job_id, "other"])) == [saved[1]]
        assert uow.attempts.holders() == {"rpi4b-0001-0001": "b-1"}
    behind = [saved[0], replace(saved[1], version=sent[1].version)]
    queued = [replace(attempt, state=AttemptState.QUEUED) for attempt in behind]
    with pytest.raises(Conflict), store.write() as uow:
        uow.attempts.save_all(queued)
    with store.read() as uow:
        assert list(uow.attempts.live()) == list(saved)


def test_the_first_outcome_of_an_attempt_stays(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    first = make.an_outcome(ended_at=make.at(5))
    earlier = make.an_outcome(attempt=2, ended_at=make.at(1), latency_p50_ms=None, verdict=None)
    with store.write() as uow:
        uow.attempts.add_outcome(first)
        uow.attempts.add_outcome(replace(first, verdict="invalid"))
    with store.write() as uow:
        uow.attempts.add_outcome(earlier)
    with store.read() as uow:
        assert list(uow.attempts.outcomes()) == [earlier, first]
        assert list(uow.attempts.outcomes(since=make.at(5))) == [first]


# --- files --------------------------------------------------------------------------------------


def test_the_newest_file_of_a_name_is_meant(store: SqlStore) -> None:
    old = make.a_user_file("f-1")
    new = make.a_user_file("f-2", created_at=make.at(1), sha256=make.a_sha256("new"))
    others = make.a_user_file("f-3", user_id="bob", created_at=make.at(2))
    with store.write() as uow:
        for file in (new, old, others):
            uow.files.add_user_file(file)
        with pytest.raises(Conflict):
            uow.files.add_user_file(old)
        assert uow.files.user_file("ada", old.name) == new
        assert list(uow.files.user_files("ada")) == [new, old]
        uow.files.remove_user_file("f-2")
        assert uow.files.user_file("ada", old.name) == old
        assert uow.files.user_file_by_id("f-3") == others


def test_files_are_read_page_by_page(store: SqlStore) -> None:
    mine = [
        make.a_user_file(f"f-{number}", created_at=make.at(number // 2), name=name)
        for number, name in enumerate(("a.onnx", "b.onnx", "a.onnx", "a.onnx", "c.onnx"))
    ]
    others = make.a_user_file("g", user_id="bob", created_at=make.at(9), name="a.onnx")
    with store.write() as uow:
        for number, file in enumerate((*mine, others)):
            uow.files.add_user_file(replace(file, sha256=make.a_sha256(str(number))))
    newest = [each.file_id for each in (others, *reversed(mine))]
    with store.read() as uow:
        for user_id, name, expected in (
            (None, None, newest),
            ("ada", None, newest[1:]),
            ("ada", "a.onnx", ["f-3", "f-2", "f-0"]),
            ("ada", "absent", []),
        ):
            found: list[str] = []
            cursor: str | None = None
            while True:
                page, cursor = uow.files.user_file_page(
                    user_id=user_id, name=name, limit=2, cursor=cursor
                )
                found += [each.file_id for each in page]
                if cursor is None:
                    break
                assert len(page) == 2
            assert found == expected
            assert uow.files.count_user_files(user_id=user_id, name=name) == len(expected)
        with pytest.raises(InvalidInput):
            uow.files.user_file_page(user_id=None, name=None, limit=2, cursor="no cursor")


def test_a_download_is_open_while_its_attempt_lives(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    grant = make.a_grant(content=b"\x00{}")
    with store.write() as uow:
        uow.files.add_grants([grant])
        with pytest.raises(NotFound):
            uow.files.grant(grant.name)
        uow.attempts.add_all([make.an_attempt()])
        assert uow.files.grant(grant.name) == grant
        with pytest.raises(Conflict):
            uow.files.add_grants([grant])
        uow.attempts.save(replace(make.an_attempt(), state=AttemptState.ENDED))
        with pytest.raises(NotFound):
            uow.files.grant(grant.name)


def test_a_result_of_the_same_name_is_replaced_and_the_same_content_is_reported(
    store: SqlStore,
) -> None:
    _add(store, make.a_benchmark())
    other = make.a_result(sha256=make.a_sha256("other"), received_at=make.at(1))
    with store.write() as uow:
        assert uow.files.add_result(make.a_result())
        assert not uow.files.add_result(make.a_result(received_at=make.at(9)))
        assert list(uow.files.results("b-1")) == [make.a_result()]
        assert uow.files.add_result(other)
        assert uow.files.add_result(make.a_result("a.log"))
        assert uow.files.add_result(make.a_result(attempt=2))
    with store.read() as uow:
        assert list(uow.files.results("b-1")) == [
            make.a_result("a.log"),
            other,
            make.a_result(attempt=2),
        ]


def test_the_first_report_of_an_attempt_stays(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    second = make.a_report(attempt=2, report={"b": 1, "a": [None, 1.5]})
    with store.write() as uow:
        uow.files.add_report(second)
        uow.files.add_report(make.a_report())
        uow.files.add_report(make.a_report(received_at=make.at(5)))
        uow.files.add_report(replace(second, report={"a": [None, 1.5], "b": 1}))
        with pytest.raises(Conflict):
            uow.files.add_report(make.a_report(report={"status": "failed"}))
        assert list(uow.files.reports("b-1")) == [make.a_report(), second]


def test_content_is_referenced_while_anything_names_it(store: SqlStore) -> None:
    _add(store, make.a_benchmark(files=(make.a_benchmark_file(sha256=make.a_sha256("in")),)))
    with store.write() as uow:
        uow.files.add_user_file(make.a_user_file(sha256=make.a_sha256("uploaded")))
        uow.attempts.add_all([make.an_attempt()])
        uow.files.add_grants([make.a_grant(sha256=make.a_sha256("granted"))])
        uow.files.add_result(make.a_result(sha256=make.a_sha256("out")))
        for name in ("in", "uploaded", "granted", "out"):
            assert uow.files.referenced(make.a_sha256(name)), name
        uow.files.remove_user_file("f-1")
        assert not uow.files.referenced(make.a_sha256("uploaded"))
        uow.attempts.save(replace(make.an_attempt(), state=AttemptState.ENDED))
        assert not uow.files.referenced(make.a_sha256("granted"))  # nobody can download it


# --- accounts -----------------------------------------------------------------------------------


def test_users_and_tokens_are_kept(store: SqlStore) -> None:
    ada = make.a_user(max_budget=10.5)
    operator = make.a_user("op", role=Role.OPERATOR, max_priority=10)
    token = make.a_token(expires_at=make.at(2))
    with store.write() as uow:
        uow.accounts.add_user(operator)
        uow.accounts.add_user(ada)
        with pytest.raises(Conflict):
            uow.accounts.add_user(ada)
        uow.accounts.save_user(replace(ada, disabled=True, max_budget=None))
        uow.accounts.add_token(token)
        with pytest.raises(Conflict):
            uow.accounts.add_token(make.a_token("t-2", sha256=token.sha256))
        other = make.a_token("t-3", user_id="op", created_at=make.at(-1), role=Role.HOST)
        uow.accounts.add_token(other)
        uow.accounts.revoke_tokens([token.token_id], make.at(1))
    revoked = replace(token, revoked_at=make.at(1))
    with store.read() as uow:
        assert uow.accounts.user("ada") == replace(ada, disabled=True, max_budget=None)
        assert [user.user_id for user in uow.accounts.users()] == ["ada", "op"]
        assert uow.accounts.token_by_hash(token.sha256) == revoked
        assert list(uow.accounts.tokens(None)) == [other, revoked]
        assert list(uow.accounts.tokens("ada")) == [revoked]


# --- the log ------------------------------------------------------------------------------------


def test_events_are_numbered_without_gaps_over_roll_backs(store: SqlStore) -> None:
    for kind in ("a", "rolled back", "b"):
        try:
            with store.write() as uow:
                uow.log.append(make.an_event(kind, data={"kind": kind}))
                uow.log.append(make.an_event(kind, benchmark_id="b-2"))
                if kind == "rolled back":
                    raise ValueError(kind)
        except ValueError:
            continue
    with store.read() as uow:
        assert [(e.seq, e.kind) for e in uow.log.events(after=0, limit=9)] == [
            (1, "a"), (2, "a"), (3, "b"), (4, "b")
        ]  # fmt: skip
        assert list(uow.log.events(after=2, limit=1)) == [
            make.an_event("b", seq=3, data={"kind": "b"})
        ]
        assert [e.seq for e in uow.log.events(after=1, limit=9, benchmark_id="b-2")] == [2, 4]
        assert uow.log.last_seq() == 4


def test_the_newest_explanation_of_a_benchmark_is_kept(store: SqlStore) -> None:
    _add(store, make.a_benchmark("b-1"), make.a_benchmark("b-2"))
    with store.write() as uow:
        first, second = uow.cycles.add(make.a_record()), uow.cycles.add(make.a_record())
        uow.cycles.explain("b-1", first)
        uow.cycles.explain("b-2", first)
        uow.cycles.explain("b-1", second)
    with store.write() as uow:
        uow.cycles.explain("b-2", second)
    with store.read() as uow:
        assert uow.cycles.explaining_cycle("b-1") == second
        assert uow.cycles.explaining_cycle("b-2") == second
        with pytest.raises(NotFound, match="'b-3': no cycle has considered it yet"):
            uow.cycles.explaining_cycle("b-3")


def test_cycles_come_back_whole_in_their_order(store: SqlStore) -> None:
    long_ago = make.a_record(decided_at=make.at(-100))
    other = make.a_record(parts=(("snapshot", b"s"), ("runs/a", b"1")), outcome=b"o2")
    with store.write() as uow:
        seqs = [uow.cycles.add(each) for each in (long_ago, other)]
        shadow = uow.cycles.add(make.a_record(policy="native/1"), shadow_of=seqs[1])
    with store.read() as uow:
        assert [uow.cycles.get(seq) for seq in seqs] == [long_ago, other]
        heads = uow.cycles.page(limit=9)
        assert [head.seq for head in heads] == seqs
        assert [head.digest for head in heads] == [long_ago.digest, other.digest]
        assert heads[0].digest != heads[1].digest
        assert heads[1].size_bytes == sum(len(content) for _, content in other.parts)
        assert [head.seq for head in uow.cycles.page(since=make.NOW, limit=9)] == [seqs[1]]
        assert [head.seq for head in uow.cycles.page(until=make.NOW, limit=9)] == [seqs[0]]
        assert [head.seq for head in uow.cycles.page(after=seqs[0], limit=9)] == [seqs[1]]
        assert [head.shadow_of for head in uow.cycles.page(shadows=True, limit=9)] == [
            None, None, seqs[1]
        ]  # fmt: skip
        assert shadow == seqs[1] + 1
        newest = [head.seq for head in uow.cycles.newest(since=seqs[0], limit=9)]
        assert newest == seqs[::-1]
        assert [head.seq for head in uow.cycles.newest(since=seqs[1], limit=9)] == [seqs[1]]
        assert [head.seq for head in uow.cycles.newest(since=0, limit=1)] == [seqs[1]]


def test_an_answer_is_remembered_for_a_day(database_url: str) -> None:
    now = make.NOW
    store = SqlStore(database_url, now=lambda: now)
    with store.write() as uow:
        assert uow.log.answer("key", "ada") is None
        uow.log.put_answer("key", "ada", "hash", {"benchmark_id": "b-1"})
        uow.log.put_answer("key", "bob", "hash", {"benchmark_id": "b-2"})
        with pytest.raises(Conflict):
            uow.log.put_answer("key", "ada", "other", {})
    now += timedelta(hours=24)
    with store.write() as uow:
        assert uow.log.answer("key", "ada") == ("hash", {"benchmark_id": "b-1"})
    now += timedelta(seconds=1)
    with store.write() as uow:
        assert uow.log.answer("key", "ada") is None
        uow.log.put_answer("key", "ada", "other", {})
        assert uow.log.answer("key", "ada") == ("other", {})
    store.close()


# --- the lab ------------------------------------------------------------------------------------


def test_boards_of_a_campaign_are_those_of_what_completed_or_holds_one(store: SqlStore) -> None:
    of_benchmarks = (
        ("c-1", Status.COMPLETED, "a"),
        ("c-1", Status.RUNNING, "a"),
        ("c-1", Status.SCHEDULED, "b"),
        ("c-1", Status.PENDING, "c"),  # tried there, and tried again
        ("c-1", Status.FAILED, "c"),
        ("c-1", Status.PENDING, None),
        ("c-2", Status.COMPLETED, "a"),
    )
    with store.write() as uow:
        for name in ("c-1", "c-2"):
            uow.campaigns.add(make.a_campaign(name))
        for number, (name, status, uid) in enumerate(of_benchmarks):
            uow.benchmarks.add(
                make.a_benchmark(f"b-{number}", campaign_id=name, status=status, target_uid=uid)
            )
        assert uow.campaigns.boards(["c-1", "nope"]) == {"c-1": {"a": 2, "b": 1}, "nope": {}}
        assert uow.campaigns.boards([]) == {}


def test_a_campaign_has_started_when_a_member_left_the_queue(store: SqlStore) -> None:
    with store.write() as uow:
        for name in ("waits", "runs", "empty"):
            uow.campaigns.add(make.a_campaign(name))
        with pytest.raises(Conflict):
            uow.campaigns.add(make.a_campaign("waits"))
        uow.benchmarks.add(make.a_benchmark("b-1", campaign_id="waits"))
        uow.benchmarks.add(make.a_benchmark("b-2", campaign_id="runs"))
        uow.benchmarks.add(make.a_benchmark("b-3", campaign_id="runs", status=Status.RUNNING))
        assert uow.campaigns.get("runs") == make.a_campaign("runs")
        assert uow.campaigns.started(["waits", "runs", "empty", "nope"]) == {"runs"}
        assert uow.campaigns.started([]) == frozenset()


def test_a_policy_is_kept_by_name_and_version(store: SqlStore) -> None:
    def mine(version: int, text: str) -> StoredPolicy:
        return StoredPolicy(name="mine", version=version, text=text, by_user_id="op", at=make.NOW)

    with store.write() as uow:
        uow.policies.add(mine(2, "b"))
        uow.policies.add(mine(1, "a"))
        uow.policies.add(mine(1, "a"))
        with pytest.raises(Conflict, match=r"mine/1.*new version"):
            uow.policies.add(mine(1, "c"))
        assert list(uow.policies.all()) == [mine(1, "a"), mine(2, "b")]
        uow.policies.add(mine(1, "c"), replace=True)
        assert list(uow.policies.all()) == [mine(1, "c"), mine(2, "b")]


def test_the_newest_override_of_a_board_counts(store: SqlStore) -> None:
    resumed = make.an_override(drained=False, reason="", at=make.at(5))
    with store.write() as uow:
        uow.board_overrides.put(make.an_override())
        uow.board_overrides.put(make.an_override("rpi5-0001-0001"))
        uow.board_overrides.put(resumed)
        assert uow.board_overrides.all() == {
            "rpi4b-0001-0001": resumed,
            "rpi5-0001-0001": make.an_override("rpi5-0001-0001"),
        }


def test_schedules_are_due_from_their_next_firing_on(store: SqlStore) -> None:
    early = make.a_schedule("s-1", next_fire=make.at(10), description={"model": "m", "x": [1]})
    late = make.a_schedule("s-2", next_fire=make.at(20), created_at=make.at(1), user_id="bob")
    off = make.a_schedule("s-3", next_fire=make.at(5), created_at=make.at(2), active=False)
    with store.write() as uow:
        for schedule in (late, early, off):
            uow.schedules.add(schedule)
        with pytest.raises(Conflict):
            uow.schedules.add(early)
        assert list(uow.schedules.due(make.at(9))) == []
        assert list(uow.schedules.due(make.at(10))) == [early]
        assert list(uow.schedules.due(make.at(99))) == [early, late]
        assert list(uow.schedules.all(None)) == [off, late, early]
        moved = replace(early, next_fire=make.at(500))
        uow.schedules.save(moved)
        assert uow.schedules.get("s-1") == moved
        assert list(uow.schedules.all("ada")) == [off, moved]


# --- hostile values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"description": make.a_description(model="nul\0byte")},
        {"description": make.a_description(model="\ud800")},
        {"description": make.a_description(extra={"deep": {"\udfff": 1}})},
        {"description": make.a_description(extra={"n": math.nan})},
        {"description": make.a_description(parameters={"n": [math.inf]})},
        {"description": make.a_description(nb_inference=2**63)},
        {"description": make.a_description(extra={"n": -(10**400)})},
        {"description": make.a_description(extra={"o": object()})},
        {"description": make.a_description(tags=("\ud800",))},
        {"user_id": "\ud800"},
        {"user_id": "a\0b"},
        {"priority": 2**70},
        {"progress": math.nan},
    ],
)
def test_what_no_database_holds_is_refused_before_it_is_there(
    store: SqlStore, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput), store.write() as uow:
        uow.benchmarks.add(make.a_benchmark(**changes))
    with store.read() as uow:
        assert uow.benchmarks.count(ANY) == 0


@pytest.mark.parametrize(
    "hostile", ["\ud800", "\0", "'; DROP TABLE benchmarks; --", "%", "é" * 999]
)
def test_hostile_ids_are_only_looked_up(store: SqlStore, hostile: str) -> None:
    with store.read() as uow, pytest.raises((NotFound, InvalidInput)):
        uow.benchmarks.get(hostile)


def test_events_and_reports_refuse_what_json_can_not_hold(store: SqlStore) -> None:
    _add(store, make.a_benchmark())
    with store.write() as uow:
        with pytest.raises(InvalidInput):
            uow.log.append(make.an_event(data={"x": math.nan}))
        with pytest.raises(InvalidInput):
            uow.files.add_report(make.a_report(report={"x": "\ud800"}))


# --- retention ----------------------------------------------------------------------------------


def test_pruning_drops_what_is_old_and_at_its_end(store: SqlStore) -> None:
    _add(
        store,
        make.a_benchmark("done", status=Status.COMPLETED, ended_at=make.at(-100)),
        make.a_benchmark("fresh", status=Status.FAILED, ended_at=make.at(100)),
        make.a_benchmark("live"),
    )
    with store.write() as uow:
        for name in ("done", "fresh", "live"):
            uow.log.append(make.an_event(name, benchmark_id=name, at=make.at(-200)))
            record = make.a_record(
                decided_at=make.at(-200), parts=(("snapshot", b"s"),), outcome=name.encode()
            )
            uow.cycles.explain(name, uow.cycles.add(record))
        uow.log.append(make.an_event("board", benchmark_id=None, at=make.at(-200)))
        for name in ("done", "fresh", "live"):
            uow.log.append(make.an_event(name, benchmark_id=name, at=make.at(200)))
        uow.attempts.add_all([make.an_attempt("done", state=AttemptState.ENDED)])
        uow.attempts.add_all([make.an_attempt("live")])
        uow.files.add_grants([make.a_grant("dead", benchmark_id="done")])
        uow.files.add_grants([make.a_grant("open", benchmark_id="live")])
    limits = {RetentionClass.EVENTS: make.NOW, RetentionClass.CYCLES: make.NOW}
    # three events, a grant; an explanation, and the cycle that explains nobody any more
    expected = {RetentionClass.EXPIRED: 1, RetentionClass.EVENTS: 3, RetentionClass.CYCLES: 2}
    would, went, again = (
        {kind: pruned.rows for kind, pruned in store.prune(limits, dry_run=dry_run).items()}
        for dry_run in (True, False, False)
    )
    assert would == went == expected
    assert again == dict.fromkeys(expected, 0)
    with store.read() as uow:
        assert [(e.seq, e.kind) for e in uow.log.events(after=0, limit=9)] == [
            (3, "live"), (5, "done"), (6, "fresh"), (7, "live")
        ]  # fmt: skip
        assert uow.log.last_seq() == 7
        for name in ("fresh", "live"):
            record = uow.cycles.get(uow.cycles.explaining_cycle(name))
            assert record.digest == make.a_record(outcome=name.encode()).digest
            assert dict(record.parts)["snapshot"] == b"s"
        assert len(uow.cycles.page(limit=9)) == 2
        with pytest.raises(NotFound):
            uow.cycles.explaining_cycle("done")
        assert uow.files.grant("open")


# --- webhooks and messages ------------------------------------------------------------------------


def _hook(user_id: str = "ada", **changes: Any) -> Webhook:
    plain = Webhook(user_id=user_id, url="https://x/hook", salt="s", created_at=make.at(0))
    return replace(plain, **changes)


def _subscription(number: int, user_id: str = "ada", **changes: Any) -> Subscription:
    plain = Subscription(
        subscription_id=f"sub-{number}",
        user_id=user_id,
        topic=Topic.SERIES,
        about=f"line-{number}",
        channel=Channel.WEBHOOK,
        events=("benchmark.failed", "alert.confirmed"),
        created_at=make.at(number),
        since_seq=number,
    )
    return replace(plain, **changes)


def _delivery(seq: int, user_id: str = "ada", at: float = 0, **changes: Any) -> Delivery:
    channel = changes.get("channel", Channel.WEBHOOK)
    plain = Delivery(
        delivery_id=f"{seq}-{channel.value}-{user_id}",
        event_seq=seq,
        user_id=user_id,
        subscription_id="sub-1",
        channel=channel,
        kind="benchmark.failed",
        benchmark_id="b",
        owner_id=user_id,
        for_operators=False,
        body="{}",
        created_at=make.at(at),
        next_at=make.at(at),
    )
    return replace(plain, **changes)


def test_a_user_has_one_webhook_and_its_end_is_that_of_what_goes_by_it(store: SqlStore) -> None:
    by_mail = _subscription(2, channel=Channel.MAIL)
    with store.write() as uow:
        uow.webhooks.put(_hook(url="https://old"))
        uow.webhooks.put(_hook(format=WebhookFormat.SLACK))
        uow.webhooks.put(_hook("bob"))
        uow.webhooks.set_last_error("ada", "it answered 500")
        assert uow.webhooks.of("ada") == _hook(
            format=WebhookFormat.SLACK, last_error="it answered 500"
        )
        assert [each.user_id for each in uow.webhooks.all()] == ["ada", "bob"]
        for each in (_subscription(1), by_mail, _subscription(3, "bob")):
            uow.subscriptions.add(each)
        for sent in (_delivery(1), _delivery(2, channel=Channel.MAIL), _delivery(2, "bob")):
            uow.deliveries.add(sent)
        uow.webhooks.remove("ada")
        uow.webhooks.remove("ada")
        with pytest.raises(NotFound):
            uow.webhooks.of("ada")
        assert uow.subscriptions.all("ada") == [by_mail]
        assert uow.deliveries.due_recipients(make.at(9)) == [
            ("ada", Channel.MAIL),
            ("bob", Channel.WEBHOOK),
        ]


def test_a_user_has_one_subscription_to_a_thing_by_a_channel(store: SqlStore) -> None:
    with store.write() as uow:
        uow.subscriptions.add(_subscription(1))
        uow.subscriptions.add(_subscription(2, "bob", events=()))
        with pytest.raises(Conflict):
            uow.subscriptions.add(_subscription(3, about="line-1"))
        uow.subscriptions.add(_subscription(4, about="line-1", channel=Channel.MAIL))
        assert uow.subscriptions.get("sub-2", "bob").events == ()
        with pytest.raises(NotFound):
            uow.subscriptions.remove("sub-1", "bob")
        assert uow.subscriptions.remove("sub-1", "ada") == _subscription(1)
        assert [each.subscription_id for each in uow.subscriptions.all()] == ["sub-2", "sub-4"]
        assert uow.subscriptions.seen_seq() == 0
        uow.subscriptions.set_seen_seq(7)
        uow.subscriptions.set_seen_seq(5)
        assert uow.subscriptions.seen_seq() == 7


def test_messages_are_tried_in_turn_until_they_end_and_stay_in_the_log(store: SqlStore) -> None:
    by = Channel.WEBHOOK
    with store.write() as uow:
        deliveries = uow.deliveries
        for seq, at in ((3, 0), (1, 0), (2, 10)):
            deliveries.add(_delivery(seq, at=at))
        deliveries.add(_delivery(1))  # once an event, user and channel
        deliveries.add(_delivery(4, "bob"))
        deliveries.add(_delivery(5, state=DeliveryState.LIMITED, next_at=None))
        assert [each.event_seq for each in deliveries.due("ada", by, make.at(1), limit=9)] == [1, 3]
        assert len(deliveries.due("ada", by, make.at(1), limit=1)) == 1
        assert deliveries.waiting("ada", by) == 3
        assert deliveries.count("ada", by, make.at(0)) == 3
        assert deliveries.count("ada", by, make.at(5)) == 1
        failed: Any = {"max_tries": 2, "recipient": "x", "error": "it answered 500"}
        assert deliveries.postpone("ada", by, make.at(1), make.at(10), **failed) == 0
        assert deliveries.due("ada", by, make.at(1), limit=9) == []
        assert [
            (e.event_seq, e.tries) for e in deliveries.due("ada", by, make.at(10), limit=9)
        ] == [
            (1, 1),
            (2, 0),
            (3, 1),
        ]
        assert deliveries.postpone("ada", by, make.at(10), make.at(20), **failed) == 2
        assert deliveries.waiting("ada", by) == 1
        deliveries.end("2-webhook-ada", DeliveryState.SENT, make.at(20), recipient="y")
        assert deliveries.waiting("ada", by) == 0
        assert [e.event_seq for e in deliveries.due("bob", by, make.at(99), limit=9)] == [4]
        found, following = deliveries.page(user_id="ada", state=None, limit=2, cursor=None)
        more, end = deliveries.page(user_id="ada", state=None, limit=9, cursor=following)
        shown = [(e.event_seq, e.state.value, e.tries, e.recipient) for e in (*found, *more)]
        assert shown == [
            (2, "sent", 2, "y"),
            (5, "limited", 0, ""),
            (3, "failed", 2, "x"),
            (1, "failed", 2, "x"),
        ]
        assert end is None
        limited = DeliveryState.LIMITED
        assert len(deliveries.page(user_id=None, state=limited, limit=9, cursor=None)[0]) == 1


def test_conditions_of_the_lab_are_stored_by_name(store: SqlStore) -> None:
    low = LabCondition(name="disk.low", about="", reason="1 GiB", since=make.at(1))
    with store.write() as uow:
        uow.lab_conditions.put(replace(low, reason="2 GiB"))
        uow.lab_conditions.put(low)
        assert uow.lab_conditions.all() == [low]
        uow.lab_conditions.remove("disk.low")
        uow.lab_conditions.remove("disk.low")
        assert uow.lab_conditions.all() == []


# --- scorers ------------------------------------------------------------------------------------


def test_what_is_remembered_of_a_scorer_is_replaced_policy_by_policy(store: SqlStore) -> None:
    first = ScorerState(policy="default/1", scorer="fastest", weight=0.25, rounds=3, reward_sum=2.5)
    suspended = replace(
        first, faults=4, faults_in_row=3, last_fault="fastest failed: no", last_fault_at=make.at(1),
        suspended_until=make.at(300), suspensions=1,
    )  # fmt: skip
    with store.write() as uow:
        assert uow.scoring.states("default/1") == {}
        uow.scoring.save(first)
        uow.scoring.save(replace(first, policy="default/2", weight=None))
        uow.scoring.save(suspended)
        assert uow.scoring.states("default/1") == {"fastest": suspended}
        assert uow.scoring.policies() == ["default/1", "default/2"]


def test_rounds_of_rewards_are_reported_newest_first(store: SqlStore) -> None:
    rounds = [
        RewardRound(
            policy="default/1", at=make.at(n), rewards={"a": n / 4}, weights={"a": 0.5, "b": 0.5}
        )
        for n in range(3)
    ]
    with store.write() as uow:
        for each in rounds:
            uow.scoring.add_round(each)
        uow.scoring.add_round(replace(rounds[0], policy="other/1", benchmark_id="b-1"))
        assert uow.scoring.rounds("default/1", limit=2) == rounds[:0:-1]
        assert uow.scoring.rounds("other/1", limit=9)[0].benchmark_id == "b-1"


def test_a_rated_placement_is_reported_when_it_has_ended_until_it_is_settled(
    store: SqlStore,
) -> None:
    _add(store, make.a_benchmark(benchmark_id="b-1"), make.a_benchmark(benchmark_id="b-2"))
    ratings = [
        PlacementRating(
            benchmark_id=name,
            attempt=1,
            policy="default/1",
            normalized_scores={"a": 1.0},
            expected_s=expected,
            predicted_s={"b": 3.5},
            failure_chances={"c": 0.25},
        )
        for name, expected in (("b-1", 2.0), ("b-2", None))
    ]
    with store.write() as uow:
        uow.scoring.add_ratings(ratings)
        assert uow.scoring.ended_ratings(limit=9) == []
        outcome = make.an_outcome(benchmark_id="b-1", attempt=1)
        uow.attempts.add_outcome(outcome)
        uow.attempts.add_outcome(make.an_outcome(benchmark_id="b-2", attempt=2))
    with store.write() as uow:
        assert uow.scoring.ended_ratings(limit=9) == [(ratings[0], outcome)]
        uow.scoring.remove_ratings([ratings[0]])
        assert uow.scoring.ended_ratings(limit=9) == []


def test_the_newest_results_of_forecasts_are_kept_once_each(store: SqlStore) -> None:
    results = [
        ForecastResult(
            benchmark_id=f"b-{n}",
            at=make.at(n),
            waited=n > 2,
            start=Compared(score=0.5 * n, held=n == 3) if n else None,
            end=(None, Compared(score=None, held=True))[n % 2],
        )
        for n in range(5)
    ]
    with store.write() as uow:
        uow.scoring.add_forecast_results(results[:3], keep=3)
        uow.scoring.add_forecast_results([*results[2:3], *results[3:]], keep=3)
    with store.read() as uow:
        assert uow.scoring.forecast_results(limit=9) == results[2:]
        assert uow.scoring.forecast_results(limit=1) == results[4:]
