"""Benchmarks of one gang: started, tried again and ended, on a played cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgeyard.scheduler.engine import charging, lifecycle
from edgeyard.scheduler.engine.committer import MAX_PLACEMENTS_PER_COMMIT, _placement_parts
from edgeyard.scheduler.engine.queue_cache import QueueCache
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    Binding,
    Failure,
    FailureCategory,
    Spread,
    Status,
)
from edgeyard.scheduler.model.decision import PendingBenchmark, Placement
from tests.builders.engine import A, B, Lab

FAULT = Failure(category=FailureCategory.BOARD_FAULT, sentence="the board stopped")
BROKEN = Failure(category=FailureCategory.USER_INPUT, sentence="the file is gone")


def statuses(lab: Lab, ids: list[str]) -> set[Status]:
    return {lab.show(each).status for each in ids}


def start(lab: Lab, ids: list[str]) -> list[str]:
    """Start all of a gang; their job ids."""
    lab.turn()
    jobs = [lab.attempts(each)[-1].job_id for each in ids]
    for job_id in jobs:
        lab.cluster.start(job_id, str(lab.attempt(job_id).target_uid))
    lab.reconciler.run()
    assert statuses(lab, ids) == {Status.RUNNING}
    return jobs


def complete(lab: Lab, job_id: str) -> None:
    lab.complete(job_id)
    lab.reconciler.run()


def test_others_of_a_campaign_are_spread_over_boards(lab: Lab) -> None:
    with lab.store.write() as uow:
        campaign_id = lifecycle.add_campaign(uow, "ann", "", lab.time.now()).campaign_id
    used = []
    for _ in range(4):
        benchmark_id = lab.submit(
            campaign_id=campaign_id, spreads=(Spread(attribute="target_uid"),)
        )
        (job_id,) = start(lab, [benchmark_id])
        complete(lab, job_id)
        used.append(lab.attempt(job_id).target_uid)
    assert set(used[:2]) == set(used[2:]) == {A, B}


def test_each_has_an_attempt_and_a_result_of_its_own(lab: Lab) -> None:
    ids = lab.submit_gang(2)
    jobs = start(lab, ids)
    assert {lab.attempt(each).target_uid for each in jobs} == {A, B}
    assert {lab.attempt(each).binding for each in jobs} == {Binding.STRICT}
    complete(lab, jobs[0])
    campaign_id = lab.show(ids[0]).campaign_id or ""
    with lab.store.read() as uow:
        counts = uow.campaigns.counts([campaign_id])[campaign_id]
    assert counts == {Status.COMPLETED: 1, Status.RUNNING: 1}
    complete(lab, jobs[1])
    assert statuses(lab, ids) == {Status.COMPLETED}
    with lab.store.read() as uow:
        assert all(uow.files.reports(each) for each in ids)


def test_none_starts_while_a_board_is_missing(lab: Lab) -> None:
    single = lab.submit()
    job_id = lab.running(single)
    ids = lab.submit_gang(2)
    lab.turn()
    assert statuses(lab, ids) == {Status.PENDING}
    waiting = lab.waiting(ids[0])
    assert waiting.sentence == "it needs 2 boards at the same time, of which 1 is free"
    complete(lab, job_id)
    start(lab, ids)


def test_one_that_fails_is_tried_again_by_itself_and_not_on_a_board_of_the_others(
    lab: Lab,
) -> None:
    first, second = lab.submit_gang(2)
    jobs = start(lab, [first, second])
    place = {lab.attempt(each).target_uid: each for each in jobs}
    failing = lab.attempt(place[B]).benchmark_id
    other = first if failing == second else second
    lab.cluster.end(place[B], FAULT)
    lab.reconciler.run()
    assert lab.show(failing).status is Status.PENDING
    complete(lab, place[A])
    assert lab.show(other).status is Status.COMPLETED
    for _ in range(3):  # A is free, and has been used by the other one
        lab.clock.forward(120)
        lab.turn()
    assert [each.target_uid for each in lab.attempts(failing)] == [B, B]


def test_one_that_is_tried_again_leaves_out_all_boards_that_the_others_have_used(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = lab.submit_gang(2)
    jobs = start(lab, [first, second])
    used = lab.attempt(jobs[0]).target_uid
    moved = replace(lab.show(first), target_uid="rpi4b-0001-0003")  # as if it had moved since
    lab.store.transact(lambda uow: uow.benchmarks.save(moved))
    lab.cluster.end(jobs[1], FAULT)
    lab.reconciler.run()
    pending, seen = QueueCache.pending, []

    def recorded(self: QueueCache, *given: Any) -> list[PendingBenchmark]:
        seen.append(pending(self, *given))
        return seen[-1]

    monkeypatch.setattr(QueueCache, "pending", recorded)
    lab.turn()
    assert [each.gang_uids for each in seen[0]] == [frozenset({used})]


def test_cancelling_one_ends_all(lab: Lab) -> None:
    waiting = lab.submit_gang(2)
    with lab.store.write() as uow:
        lifecycle.cancel(uow, waiting[1], lab.time.now(), "ann")
    lab.turn()
    assert statuses(lab, waiting) == {Status.CANCELLED}
    ids = lab.submit_gang(2)
    jobs = start(lab, ids)
    with lab.store.write() as uow:
        lifecycle.cancel(uow, ids[0], lab.time.now(), "ann")
    lab.turn()
    lab.turn()
    assert statuses(lab, ids) == {Status.CANCELLED}
    assert set(lab.cluster.stopped) == set(jobs)
    (event,) = [
        each
        for each in lab.events(ids[1], "benchmark.status")
        if each.data["status"] == "cancelled"
    ]
    assert event.data["sentence"] == "another benchmark of its gang was cancelled"


def test_one_that_fails_before_the_start_ends_all(lab: Lab) -> None:
    ids = lab.submit_gang(2)
    with lab.store.write() as uow:
        lifecycle.fail(uow, ids[0], BROKEN, lab.time.now())
    lab.turn()
    assert lab.show(ids[0]).status is Status.FAILED
    assert lab.show(ids[1]).status is Status.CANCELLED


def test_one_that_fails_for_good_after_the_start_ends_itself_alone(lab: Lab) -> None:
    ids = lab.submit_gang(2, max_retries=0)
    jobs = start(lab, ids)
    lab.cluster.end(jobs[0], FAULT)
    lab.reconciler.run()
    lab.turn()
    assert statuses(lab, ids) == {Status.FAILED, Status.RUNNING}
    complete(lab, jobs[1])
    assert lab.show(ids[1]).status is Status.COMPLETED


def test_another_process_goes_on_with_a_gang(lab: Lab) -> None:
    ids = lab.submit_gang(2)
    lab.restart()
    jobs = start(lab, ids)
    lab.restart()
    lab.turn()
    for job_id in jobs:
        complete(lab, job_id)
    assert statuses(lab, ids) == {Status.COMPLETED}


def attempts_of(lab: Lab, ids: list[str]) -> list[tuple[Benchmark, Attempt]]:
    """What a cycle would prepare: each on a board of its own."""
    return [
        (
            lab.show(each),
            Attempt(
                benchmark_id=each,
                number=1,
                job_id=f"job-{number}",
                family="rpi4b",
                binding=Binding.STRICT,
                target_uid=uid,
                priority=50,
                state=AttemptState.PREPARED,
                created_at=lab.time.now(),
            ),
        )
        for number, (each, uid) in enumerate(zip(ids, (A, B), strict=True))
    ]


def prepared(lab: Lab, wanted: list[tuple[Benchmark, Attempt]]) -> int:
    with lab.store.write() as uow:
        return len(lifecycle.prepare(uow, wanted, lab.time.now(), max_run_s=100))


def test_none_is_prepared_if_one_changed_since_the_decision(lab: Lab) -> None:
    ids = lab.submit_gang(2)
    wanted = attempts_of(lab, ids)
    with lab.store.write() as uow:
        lifecycle.hold(uow, ids[1], lab.time.now(), "ann", True)
    assert prepared(lab, wanted) == 0
    assert statuses(lab, ids) == {Status.PENDING}
    assert lab.attempts(ids[0]) == []


def test_none_is_prepared_if_the_account_cannot_pay_for_all(lab: Lab) -> None:
    ids = lab.submit_gang(2)
    with lab.store.write() as uow:
        charging.set_credits(uow, "ann", 150.0, lab.time.now(), "operator")
    assert prepared(lab, attempts_of(lab, ids)) == 0
    with lab.store.read() as uow:
        assert uow.credits.balance("ann").reserved == 0.0
    with lab.store.write() as uow:
        charging.set_credits(uow, "ann", 200.0, lab.time.now(), "operator")
    assert prepared(lab, attempts_of(lab, ids)) == 2


def test_none_is_prepared_if_a_board_was_taken_since_the_decision(lab: Lab) -> None:
    ids = lab.submit_gang(2)
    wanted = attempts_of(lab, ids)
    single = lab.submit(target_uid=B)
    ((benchmark, attempt),) = attempts_of(lab, [single, ids[0]])[:1]
    assert prepared(lab, [(benchmark, replace(attempt, target_uid=B, job_id="single"))]) == 1
    assert prepared(lab, wanted) == 0
    assert lab.attempts(ids[0]) == []


def test_a_gang_is_committed_in_one_part() -> None:
    placements = [
        Placement(
            benchmark_id=f"b-{number}",
            target_uid=A,
            family="rpi4b",
            binding=Binding.STRICT,
            priority=50,
        )
        for number in range(MAX_PLACEMENTS_PER_COMMIT + 50)
    ]
    gang = {f"b-{number}" for number in range(MAX_PLACEMENTS_PER_COMMIT - 10, 120)}
    parts = _placement_parts(placements, lambda each: "gang" if each in gang else None)
    assert sorted(each.benchmark_id for part in parts for each in part) == sorted(
        each.benchmark_id for each in placements
    )
    (holding,) = [part for part in parts if any(each.benchmark_id in gang for each in part)]
    assert gang <= {each.benchmark_id for each in holding}
    assert _placement_parts([], lambda _: None) == [[]]


def test_a_gang_is_not_preempted(lab: Lab) -> None:
    ids = lab.submit_gang(2, user_priority=1)
    jobs = start(lab, ids)
    for job_id in jobs:
        lab.progress(job_id, 5.0, "warmup")
    lab.clock.forward(60)
    lab.submit(user_priority=10, job_completion_threshold=90)
    outcome = lab.turn()
    assert outcome.preempted == ()
    assert {lab.attempt(each).state for each in jobs} == {AttemptState.RUNNING}
