"""The engine on a real store and a played cluster: every way in which an attempt can end."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from edgeyard.errors import Conflict
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.explanations import Explanations
from edgeyard.scheduler.engine.replay import replay
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    Binding,
    Constraint,
    Failure,
    FailureCategory,
    Status,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.knowledge import HostLoad
from edgeyard.scheduler.ports import LoadReport
from tests.builders.engine import A, B, Lab


def failure(category: FailureCategory) -> Failure:
    return Failure(category=category, sentence="as reported")


@pytest.mark.parametrize("order", list(permutations(["end", "upload", "poll"])))
def test_end_upload_and_poll_lead_to_the_same_end_in_every_order(
    lab: Lab, order: tuple[str, ...]
) -> None:
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    for step in order:
        if step == "end":
            lab.cluster.end(job_id)
        elif step == "upload":
            lab.upload(job_id)
        else:
            lab.reconciler.run()
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.state is AttemptState.ENDED
    assert attempt.failure is None
    with lab.store.read() as uow:
        (outcome,) = uow.attempts.outcomes()
    assert outcome.latency_p50_ms == 1.5


def test_an_end_without_a_result_is_no_success(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    job_id = lab.running(benchmark_id)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING  # its result may be on the way
    lab.clock.forward(31)
    lab.reconciler.run()
    assert lab.failure(benchmark_id).category is FailureCategory.UPLOAD


def test_a_task_too_short_to_be_seen_running_still_ran(lab: Lab) -> None:
    benchmark_id = lab.submit()
    lab.turn()
    job_id = lab.attempts(benchmark_id)[0].job_id
    lab.complete(job_id)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_failure_of_the_board_is_tried_again_on_another_board_first(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=1)
    first = lab.running(benchmark_id)
    tried = lab.attempts(benchmark_id)[0].target_uid
    lab.cluster.end(first, failure(FailureCategory.BOARD_FAULT))
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.turn()
    second = lab.attempts(benchmark_id)[1]
    assert second.target_uid != tried
    lab.cluster.end(second.job_id, failure(FailureCategory.BOARD_FAULT))
    lab.reconciler.run()
    shown = lab.show(benchmark_id)
    assert shown.status is Status.FAILED
    assert len(lab.attempts(benchmark_id)) == 2


def test_max_retries_of_k_less_one_gives_k_attempts(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=3)
    for _ in range(10):
        lab.turn()
        live = [each for each in lab.attempts(benchmark_id) if each.state is not AttemptState.ENDED]
        for attempt in live:
            lab.cluster.end(attempt.job_id, failure(FailureCategory.NETWORK))
        lab.reconciler.run()
        lab.clock.forward(300)  # a board that has just failed it rests
    assert len(lab.attempts(benchmark_id)) == 4
    assert lab.show(benchmark_id).status is Status.FAILED


@pytest.mark.parametrize(
    "category", [FailureCategory.USER_MODEL, FailureCategory.OUT_OF_MEMORY, FailureCategory.TIMEOUT]
)
def test_failures_that_would_repeat_are_not_retried(lab: Lab, category: FailureCategory) -> None:
    benchmark_id = lab.submit(max_retries=5)
    job_id = lab.running(benchmark_id)
    content = {"status": "failed", "failure": {"category": category.value, "sentence": "why"}}
    lab.upload(job_id, content)
    lab.cluster.end(job_id, failure(FailureCategory.UNKNOWN))
    lab.reconciler.run()
    shown = lab.show(benchmark_id)
    assert shown.status is Status.FAILED
    assert shown.failure == Failure(category=category, sentence="why")


def test_a_cancelled_benchmark_is_stopped_and_frees_its_board_when_its_task_has_ended(
    lab: Lab,
) -> None:
    benchmark_id = lab.submit(target=None, target_uid=A)
    job_id = lab.running(benchmark_id)
    waiting = lab.submit(target=None, target_uid=A)
    with lab.store.write() as uow:
        lifecycle.cancel(uow, benchmark_id, lab.clock.now(), "ann")
    assert lab.show(benchmark_id).status is Status.CANCELLED
    lab.cycle.run()
    assert lab.show(waiting).status is Status.PENDING  # not before the task is gone
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]
    lab.reconciler.run()
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.state is AttemptState.ENDED
    assert attempt.failure is None  # nobody's
    with lab.store.read() as uow:
        assert not uow.attempts.outcomes()
        events = uow.log.events(after=0, limit=100, benchmark_id=benchmark_id)
    states = [event.data["state"] for event in events if event.kind == "attempt.state"]
    assert states == ["prepared", "dispatching", "queued", "running", "ended"]
    lab.turn()
    assert lab.show(waiting).status is Status.SCHEDULED
    with pytest.raises(Conflict), lab.store.write() as uow:
        lifecycle.cancel(uow, benchmark_id, lab.clock.now(), "ann")


def test_a_passed_deadline_ends_a_waiting_and_a_running_benchmark(lab: Lab) -> None:
    deadline = lab.clock.now() + timedelta(seconds=50)
    running = lab.submit(target=None, target_uid=A, deadline=deadline)
    job_id = lab.running(running)
    waiting = lab.submit(target=None, target_uid=A, deadline=deadline)
    lab.turn()
    assert lab.show(waiting).waiting is not None
    lab.clock.forward(51)
    lab.turn()
    for benchmark_id in (running, waiting):
        assert lab.show(benchmark_id).status is Status.EXPIRED
    assert lab.cluster.stopped == [job_id]
    with lab.store.read() as uow:
        kinds = [
            event.data.get("status")
            for event in uow.log.events(after=0, limit=100, benchmark_id=running)
            if event.kind == "benchmark.status"
        ]
    assert kinds[-1] == "expired"


def test_a_queue_time_out_ends_only_the_wait(lab: Lab) -> None:
    benchmark_id = lab.submit(target=None, target_uid=A, queue_timeout_s=10)
    lab.running(benchmark_id)
    waiting = lab.submit(target=None, target_uid=A, queue_timeout_s=10)
    lab.clock.forward(11)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.RUNNING
    assert lab.show(waiting).status is Status.EXPIRED


def test_a_task_that_outruns_its_time_is_stopped(lab: Lab) -> None:
    benchmark_id = lab.submit(user_time_s=60.0, max_retries=5)
    lab.running(benchmark_id)
    lab.clock.forward(60 + 21)
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.failure(benchmark_id).category is FailureCategory.TIMEOUT


def test_a_board_that_is_pulled_out_under_its_task_is_given_up_and_another_tried(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=1)
    job_id = lab.running(benchmark_id)

    def seen(healthy: bool) -> None:
        reason = "" if healthy else "/dev/ttyUSB0 is gone"
        lab.cluster.boards[0] = replace(
            lab.cluster.boards[0], healthy=healthy, health_reason=reason
        )
        lab.turn()

    seen(False)
    lab.clock.forward(20)
    seen(True)  # a loose plug
    lab.clock.forward(20)
    seen(False)
    lab.clock.forward(29)
    lab.turn()
    assert lab.cluster.stopped == []
    lab.clock.forward(1)
    lab.turn()
    assert lab.cluster.stopped == [job_id]
    lab.turn()
    lab.turn()
    first, second = lab.attempts(benchmark_id)
    assert first.failure is not None
    assert first.failure.category is FailureCategory.BOARD_FAULT
    assert "/dev/ttyUSB0 is gone" in first.failure.sentence
    assert second.target_uid == B


def test_a_job_that_the_cluster_does_not_start_says_why_until_it_starts(lab: Lab) -> None:
    benchmark_id = lab.submit(binding=Binding.LOOSE)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)

    def said(reason: str) -> WaitReason | None:
        blocked = replace(lab.cluster.jobs[attempt.job_id], reason=reason)
        lab.cluster.jobs[attempt.job_id] = blocked
        lab.reconciler.run()
        return lab.show(benchmark_id).waiting

    assert said("2 hosts: no memory left") is None  # it has only just been handed over
    lab.clock.forward(6)
    for sentence in ("2 hosts: no memory left", "1 host: no memory left"):
        waiting = said(sentence)
        assert waiting == WaitReason(reason=WaitingReason.CLUSTER_CONSTRAINT, sentence=sentence)
    (reported,) = lab.events(benchmark_id, "benchmark.waiting")
    assert reported.data["sentence"] == "2 hosts: no memory left"
    lab.cluster.start(attempt.job_id, A)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.RUNNING
    assert lab.show(benchmark_id).waiting is None


def test_a_dispatch_with_unknown_outcome_is_looked_up_and_never_doubled(lab: Lab) -> None:
    lab.cluster.answers_after_the_effect = False
    benchmark_id = lab.submit()
    lab.dispatch(*lab.decide())
    assert lab.attempts(benchmark_id)[0].state is AttemptState.UNKNOWN
    lab.cluster.answers_after_the_effect = True
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.state is AttemptState.QUEUED
    assert lab.cluster.dispatched == [attempt.job_id]


def test_a_dispatch_that_never_arrived_gives_a_new_attempt_without_losing_a_retry(
    lab: Lab,
) -> None:
    benchmark_id = lab.submit(max_retries=0)
    (job_id,) = lab.decide()
    lab.cluster.reachable = False
    lab.dispatch(job_id)
    assert lab.attempts(benchmark_id)[0].state is AttemptState.UNKNOWN
    lab.cluster.reachable = True
    lab.turn()
    lab.turn()
    states = [attempt.state for attempt in lab.attempts(benchmark_id)]
    assert states == [AttemptState.ENDED, AttemptState.QUEUED]
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_a_slow_call_delays_no_other_call(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = lab.submit(), lab.submit()
    lab.cycle.run()
    slow, fast = (lab.attempts(each)[0].job_id for each in (first, second))
    go_on, took = threading.Event(), lab.cluster.dispatch

    def dispatch(job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        assert job_id == fast or go_on.wait(30)
        took(job_id, hcl, secrets)

    def states() -> list[AttemptState]:
        return [lab.attempts(each)[0].state for each in (first, second)]

    monkeypatch.setattr(lab.cluster, "dispatch", dispatch)
    lab.dispatcher.put(slow, fast, slow)
    with ThreadPoolExecutor(2) as calls:
        lab.dispatcher.turn(calls)
        while lab.dispatcher.in_flight != {slow}:
            lab.dispatcher.turn(calls)
        assert states() == [AttemptState.DISPATCHING, AttemptState.QUEUED]
        assert lab.reconciler.run() == ()  # whatever the cluster says of it: it is in hand
        assert states() == [AttemptState.DISPATCHING, AttemptState.QUEUED]
        go_on.set()
    lab.dispatcher.note()
    assert states() == [AttemptState.QUEUED, AttemptState.QUEUED]
    assert lab.dispatcher.in_flight == frozenset()
    assert lab.cluster.dispatched == [fast, slow]


def test_a_call_that_raises_is_left_to_the_reconciler(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark_id = lab.submit(max_retries=0)

    def broken(job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(lab.cluster, "dispatch", broken)
        lab.dispatch(*lab.decide())
    assert lab.attempts(benchmark_id)[0].state is AttemptState.DISPATCHING
    lab.turn()
    lab.turn()
    assert lab.attempts(benchmark_id)[-1].state is AttemptState.QUEUED


def test_jobs_lost_with_a_restart_are_tried_again_without_losing_a_retry(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    lab.running(benchmark_id)
    lab.cluster.jobs.clear()
    lab.reconciler.run(after_restart=True)
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.running(benchmark_id)
    assert len(lab.attempts(benchmark_id)) == 2


def test_a_job_whose_files_were_not_to_be_had_while_we_were_away_costs_no_retry(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    lab.turn()
    gone = Failure(category=FailureCategory.CLUSTER, sentence="net.onnx could not be downloaded")
    lab.cluster.end(lab.attempts(benchmark_id)[0].job_id, gone, began=False)
    lab.clock.forward(3)
    lab.reconciler.run(after_restart=True)
    lab.turn()
    first, second = lab.attempts(benchmark_id)
    assert (first.counts, first.failure) == (False, gone)
    lab.clock.forward(60)
    lab.cluster.end(second.job_id, gone)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.FAILED


def test_a_host_that_is_lost_before_the_task_began_costs_no_retry(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    lab.turn()
    gone = Failure(category=FailureCategory.BOARD_FAULT, sentence="the host was lost")
    lab.cluster.end(lab.attempts(benchmark_id)[0].job_id, gone, began=False)
    lab.reconciler.run()
    lab.turn()
    first, second = lab.attempts(benchmark_id)
    assert (first.counts, first.started_at, first.failure) == (False, None, gone)
    assert second.target_uid != first.target_uid
    lab.cluster.start(second.job_id, B)
    lab.reconciler.run()
    lab.cluster.end(second.job_id, gone)
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.FAILED  # this time it ran


def test_a_result_that_is_safe_survives_the_loss_of_its_job(lab: Lab) -> None:
    benchmark_id = lab.submit()
    job_id = lab.running(benchmark_id)
    lab.upload(job_id)
    lab.cluster.jobs.clear()
    lab.reconciler.run(after_restart=True)
    assert lab.show(benchmark_id).status is Status.COMPLETED


def test_a_job_that_vanishes_from_the_cluster_fails_as_the_clusters_matter(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0)
    lab.running(benchmark_id)
    lab.cluster.jobs.clear()
    lab.reconciler.run()
    assert lab.failure(benchmark_id).category is FailureCategory.CLUSTER


def test_nothing_is_placed_while_the_cluster_is_silent_and_the_twin_old(lab: Lab) -> None:
    lab.cycle.run()
    lab.cluster.reachable = False
    lab.clock.forward(3600)
    benchmark_id = lab.submit()
    lab.cycle.run()
    shown = lab.show(benchmark_id)
    assert shown.status is Status.PENDING
    assert shown.waiting is not None
    assert shown.waiting.reason is WaitingReason.CLUSTER_UNREACHABLE
    lab.cluster.reachable = True
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_a_drained_board_gets_nothing_until_it_is_resumed(lab: Lab) -> None:
    def drain(drained: bool) -> None:
        with lab.store.write() as uow:
            uow.board_overrides.put(
                BoardOverride(
                    target_uid=A,
                    drained=drained,
                    reason="new fan",
                    by_user_id="op",
                    at=lab.clock.now(),
                )
            )

    drain(True)
    benchmark_id = lab.submit(target=None, target_uid=A)
    lab.turn()
    waiting = lab.waiting(benchmark_id)
    assert waiting.reason is WaitingReason.BOARD_DRAINED
    assert "new fan" in waiting.sentence
    drain(False)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_a_benchmark_waits_for_its_files_and_for_its_release(lab: Lab) -> None:
    benchmark_id = lab.submit()
    with lab.store.write() as uow:
        lifecycle.hold(uow, benchmark_id, lab.clock.now(), "ann", True)
    lab.turn()
    waiting = lab.waiting(benchmark_id)
    assert waiting.reason is WaitingReason.HELD
    assert waiting.sentence == (
        "held by ann; its owner or an operator releases it: edgeyard release ID"
    )
    with lab.store.write() as uow:
        lifecycle.hold(uow, benchmark_id, lab.clock.now(), "ann", False)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_who_is_cancelled_while_a_cycle_decides_is_left_out_of_what_it_commits(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [lab.submit() for _ in range(3)]

    def decided(*given: Any, **more: Any) -> CycleResult:
        result = decide(*given, **more)
        with lab.store.write() as uow:
            lifecycle.cancel(uow, result.placements[0].benchmark_id, lab.clock.now(), "ann")
        return result

    monkeypatch.setattr("edgeyard.scheduler.engine.decider.decide", decided)
    (job_id,) = lab.decide()
    benchmark_by_status = {lab.show(each).status: lab.show(each) for each in ids}
    placed = benchmark_by_status[Status.SCHEDULED]
    assert [each.job_id for each in lab.attempts(placed.benchmark_id)] == [job_id]
    assert not lab.attempts(benchmark_by_status[Status.CANCELLED].benchmark_id)
    assert benchmark_by_status[Status.PENDING].waiting is not None


def test_secrets_are_passed_to_the_cluster_apart_from_the_stored_job(
    lab: Lab,
) -> None:
    benchmark_id = lab.submit()
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    token = lab.cluster.secrets[attempt.job_id]["EDGEYARD_UPLOAD_TOKEN"]
    assert token not in lab.cluster.texts[attempt.job_id]
    assert token not in attempt.hcl
    assert attempt.upload_token_sha256 == hashlib.sha256(token.encode()).hexdigest()


def test_a_start_time_is_held_in_our_queue_by_default(lab: Lab) -> None:
    benchmark_id = lab.submit(start_time=lab.clock.now() + timedelta(minutes=10))
    lab.turn()
    waiting = lab.waiting(benchmark_id)
    assert waiting.reason is WaitingReason.START_TIME
    lab.clock.forward(600)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    assert "periodic" not in attempt.hcl


def test_a_start_time_may_be_left_to_the_cluster(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A, B, start_lead_s=120)
    start = lab.clock.now() + timedelta(minutes=10)
    benchmark_id = lab.submit(start_time=start)
    lab.turn()
    assert lab.show(benchmark_id).status is Status.PENDING
    lab.clock.forward(500)
    lab.turn()
    with lab.store.read() as uow:  # which does not make room for another booking
        assert uow.usage.bookings(lab.show(benchmark_id).user_id, lab.clock.now()) == 1
        assert uow.usage.bookings(lab.show(benchmark_id).user_id, start) == 0
    (attempt,) = lab.attempts(benchmark_id)
    assert f'crons            = ["{start:%-S %-M %-H %-d %-m} * {start:%Y}"]' in attempt.hcl


def test_a_job_that_can_never_be_made_ends_its_benchmark(lab: Lab) -> None:
    other = Constraint(attribute="family", operator="!=", value="${attr.unique.hostname}")
    benchmark_id = lab.submit(constraints=(other,))
    lab.turn()
    failure = lab.failure(benchmark_id)
    assert failure.category is FailureCategory.REJECTED
    assert "constraints/0/value" in failure.sentence
    assert lab.cluster.dispatched == []


def test_a_job_whose_text_does_not_say_what_was_decided_is_rejected(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(job: NomadJob, *, masked: bool = False) -> str:
        return render(replace(job, priority=job.priority + 1), masked=masked)

    with monkeypatch.context() as wrong:
        wrong.setattr("edgeyard.scheduler.engine.dispatch.render", other)
        benchmark_id = lab.submit()
        lab.turn()
    shown = lab.show(benchmark_id)
    assert shown.status is Status.FAILED
    assert shown.failure is not None
    assert shown.failure.category is FailureCategory.REJECTED
    assert "rendered job differs from its decision: priority: " in shown.failure.sentence
    assert lab.cluster.dispatched == []
    lab.running(lab.submit())  # its board is free again


def test_a_job_that_the_cluster_refuses_for_now_is_tried_again(lab: Lab) -> None:
    lab.cluster.refuses = ("quota exceeded", False)
    benchmark_id = lab.submit(max_retries=2)
    lab.turn()
    assert lab.cluster.dispatched == []
    (attempt,) = lab.attempts(benchmark_id)
    assert attempt.failure is not None
    assert attempt.failure.category is FailureCategory.CLUSTER
    assert lab.show(benchmark_id).status is Status.PENDING

    lab.cluster.refuses = ("1 error occurred: * Missing task driver", True)
    lab.clock.forward(3600)
    lab.turn()
    ended = lab.show(benchmark_id)
    assert ended.status is Status.FAILED
    assert ended.failure is not None
    assert ended.failure.category is FailureCategory.REJECTED


def test_a_queue_time_out_counts_from_the_last_time_in_the_queue(lab: Lab) -> None:
    benchmark_id = lab.submit(queue_timeout_s=10, max_retries=1)
    job_id = lab.running(benchmark_id)
    lab.clock.forward(15)
    lab.cluster.end(job_id, failure(FailureCategory.BOARD_FAULT))
    lab.reconciler.run()
    lab.turn()
    assert lab.show(benchmark_id).status is Status.SCHEDULED


def test_a_scorer_of_hosts_loads_answers_and_the_record_keeps_its_input(
    tmp_path: Path,
) -> None:
    choice = ScorerChoice(name="host_load", weight=1.0, budget_s=math.inf)
    policy = replace(load_policy("default"), name="quiet", scorers=(choice,))
    lab = Lab(tmp_path, A, B, policy=policy)

    def tell(cpu: float) -> None:
        load = HostLoad(cpu=cpu, memory=0.1)
        lab.cluster.host_loads = {"host": LoadReport(load=load, at=lab.clock.now())}

    def parts() -> list[str]:
        benchmark_id = lab.submit()
        lab.cycle.run()
        explanation = Explanations(lab.store, registry(), lab.clock).of(benchmark_id)
        scores.append([verdict.scores.get("host_load") for verdict in explanation.verdicts])
        with lab.store.read() as uow:
            record = uow.cycles.get(uow.cycles.explaining_cycle(benchmark_id))
        assert replay(record, registry()).same
        return [hashlib.sha256(data).hexdigest() for name, data in record.parts if name == "loads"]

    scores: list[list[float | None]] = []
    tell(0.39)
    first = parts()
    tell(0.41)
    assert parts() == first  # what barely changed is stored once
    assert scores[0] == [pytest.approx(0.6)] * 2
