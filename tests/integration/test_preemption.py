"""The scheduler's own preemption: on a played cluster, and on the embedded one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeyard.errors import Conflict
from edgeyard.scheduler.clusters.local import LocalCluster
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.event_metrics import EventMetrics
from edgeyard.scheduler.engine.queue_cache import pending_of
from edgeyard.scheduler.engine.retry import MAX_PREEMPTED_ATTEMPTS
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Failure,
    FailureCategory,
    Status,
)
from edgeyard.scheduler.model.decision import Preemption
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import JobRun, UnitOfWork
from tests.builders.cluster import Submitter, a_board, a_job, on
from tests.builders.engine import GOOD, A, Lab

LOW = BenchmarkType.TYPE3  # of priority 60, TYPE1 has 80

MIN_RUN_S = load_policy("default").min_run_s


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, A)
    yield made
    made.store.close()


def low(lab: Lab, progress: float = 30.0, **changes: Any) -> tuple[str, str]:
    """One of low priority that has run on A for a while, not measuring yet; it and its job."""
    benchmark_id = lab.submit(benchmark_type=LOW, **changes)
    job_id = lab.running(benchmark_id)
    warms_up(lab, job_id, progress)
    return benchmark_id, job_id


def warms_up(lab: Lab, job_id: str, progress: float) -> None:
    lab.clock.forward(2 * MIN_RUN_S)  # a task of the embedded cluster starts in its own time
    lab.progress(job_id, progress, "warmup")


def test_the_board_is_kept_for_the_one_that_it_was_cleared_for(lab: Lab) -> None:
    """Not given to an equal one ahead, which could stop nobody, in the cycle that follows."""
    _, job_id = low(lab)
    ahead = lab.submit(target_uid=A, job_completion_threshold=5)
    assert not lab.turn().preempted
    urgent = lab.submit(target_uid=A, job_completion_threshold=90)
    assert lab.turn().preempted == (job_id,)
    lab.turn()
    lab.turn()
    assert (lab.show(urgent).status, lab.show(urgent).target_uid) == (Status.SCHEDULED, A)
    assert lab.show(ahead).status is Status.PENDING


def test_the_urgent_one_takes_the_board_and_the_other_goes_back_without_losing_a_retry(
    lab: Lab,
) -> None:
    victim, job_id = low(lab, max_retries=0)
    submitted_at = lab.show(victim).submit_time
    urgent = lab.submit(job_completion_threshold=90)
    assert lab.turn().preempted == (job_id,)
    assert lab.cluster.stopped == [job_id]
    waiting = lab.waiting(urgent)
    assert "is being preempted" in waiting.sentence
    lab.turn()
    lab.turn()
    assert (lab.show(urgent).status, lab.show(urgent).target_uid) == (Status.SCHEDULED, A)
    shown = lab.show(victim)
    assert (shown.status, shown.failure, shown.submit_time) == (Status.PENDING, None, submitted_at)
    (first,) = lab.attempts(victim)
    assert (first.state, first.counts) == (AttemptState.ENDED, False)
    assert first.failure is not None
    assert first.failure.category is FailureCategory.PREEMPTED
    # Both histories tell it.
    (reported,) = lab.events(victim, "benchmark.preempted")
    assert reported.data["target_uid"] == A
    assert reported.data["by"] == urgent
    assert (reported.data["priority"], reported.data["victim_priority"]) == (80, 60)
    (reported,) = lab.events(urgent, "benchmark.preempts")
    assert reported.data["victim"] == victim
    # The urgent one ends, the other is run again and may end well.
    (attempt,) = lab.attempts(urgent)
    lab.cluster.start(attempt.job_id, A)
    lab.complete(attempt.job_id)
    lab.turn()
    lab.turn()
    again = lab.running(victim)
    lab.complete(again)
    lab.turn()
    assert lab.show(victim).status is Status.COMPLETED
    assert len(lab.attempts(victim)) == 2


@pytest.mark.parametrize(
    ("progress", "changes", "threshold"),
    [(90.0, {}, 90), (30.0, {"preemptible": False}, 90), (30.0, {}, None)],
)
def test_a_benchmark_that_is_not_preemptible_runs_on(
    lab: Lab, progress: float, changes: dict[str, object], threshold: int | None
) -> None:
    victim, _ = low(lab, progress, **changes)
    lab.submit(job_completion_threshold=threshold)
    for _ in range(3):
        lab.turn()
    assert lab.cluster.stopped == []
    assert lab.show(victim).status is Status.RUNNING


def test_nobody_is_stopped_at_once_but_below_the_threshold_also_while_it_measures(
    lab: Lab,
) -> None:
    victim = lab.submit(benchmark_type=LOW)
    job_id = lab.running(victim)
    lab.progress(job_id, 5.0, "warmup")
    lab.submit(job_completion_threshold=90)
    lab.turn()
    assert lab.cluster.stopped == []  # not yet
    lab.clock.forward(MIN_RUN_S)
    lab.progress(job_id, 20.0, "measuring")
    lab.turn()
    assert lab.cluster.stopped == [job_id]


def test_one_that_allows_it_is_stopped_while_it_measures(lab: Lab) -> None:
    _, job_id = low(lab, preemptible_measuring=True)
    lab.progress(job_id, 40.0, "measuring")
    lab.submit(job_completion_threshold=90)
    lab.turn()
    assert lab.cluster.stopped == [job_id]


def test_one_that_began_to_measure_meanwhile_is_not_stopped(lab: Lab) -> None:
    victim, job_id = low(lab)
    urgent = lab.submit(job_completion_threshold=90)
    with lab.store.write() as uow:
        lifecycle.progress_received(
            uow, uow.attempts.by_job_id(job_id), 31.0, "measuring", lab.clock.now()
        )
        preemption = Preemption(
            benchmark_id=urgent,
            victim_id=victim,
            target_uid=A,
            priority=80,
            victim_priority=60,
            threshold=90,
            progress=30.0,
            while_measuring=False,
        )
    with pytest.raises(Conflict), lab.store.write() as uow:
        lifecycle.preempt(uow, preemption, lab.clock.now())


def test_a_benchmark_of_the_same_priority_is_not_preempted(lab: Lab) -> None:
    first = lab.submit()
    lab.running(first)
    lab.submit(job_completion_threshold=100)
    lab.turn()
    assert lab.cluster.stopped == []


def test_progress_reported_meanwhile_prevents_the_preemption(lab: Lab) -> None:
    victim, job_id = low(lab, 89.0)
    urgent = lab.submit(job_completion_threshold=90)
    read = lab.store.read

    def late() -> object:
        # The cycle has read the store and decides; the task tells of its progress meanwhile.
        lab.store.read = read  # type: ignore[method-assign]
        found = read()

        class Late:
            def __enter__(self) -> object:
                return found.__enter__()

            def __exit__(self, *error: object) -> object:
                answer = found.__exit__(*error)  # type: ignore[arg-type]
                lab.progress(job_id, 95.0)
                return answer

        return Late()

    lab.store.read = late  # type: ignore[method-assign, assignment]
    assert lab.turn().preempted == ()
    assert lab.cluster.stopped == []
    assert lab.show(victim).status is Status.RUNNING
    assert lab.show(urgent).status is Status.PENDING


def test_a_stop_that_was_decided_on_survives_a_crash(lab: Lab) -> None:
    victim, job_id = low(lab)
    lab.submit(job_completion_threshold=90)
    lab.cycle.run()  # and the process dies before the reconciler knows
    lab.reconciler.run(after_restart=True)
    assert lab.cluster.stopped == [job_id]
    lab.reconciler.run()
    assert lab.show(victim).status is Status.PENDING


def test_a_result_that_was_quicker_than_the_stop_counts(lab: Lab) -> None:
    victim, job_id = low(lab)
    lab.submit(job_completion_threshold=90)
    lab.cycle.run()
    lab.upload(job_id, GOOD)
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.show(victim).status is Status.COMPLETED


def test_a_runner_that_calls_the_stop_an_error_does_not_fail_the_benchmark(lab: Lab) -> None:
    victim, job_id = low(lab)
    lab.submit(job_completion_threshold=90)
    lab.cycle.run()
    lab.upload(job_id, {"status": "failed", "failure": {"category": "unknown", "sentence": "?"}})
    lab.reconciler.run()
    lab.reconciler.run()
    assert lab.show(victim).status is Status.PENDING


def test_a_victim_that_is_cancelled_meanwhile_stays_cancelled(lab: Lab) -> None:
    victim, _ = low(lab)
    lab.submit(job_completion_threshold=90)
    lab.cycle.run()
    with lab.store.write() as uow:
        lifecycle.cancel(uow, victim, lab.clock.now(), "ann")
    lab.turn()
    lab.turn()
    assert lab.show(victim).status is Status.CANCELLED


def test_nobody_is_preempted_for_ever(lab: Lab) -> None:
    victim, _ = low(lab)
    for round_number in range(4):
        urgent = lab.submit(job_completion_threshold=90)
        for _ in range(3):
            lab.turn()
        if round_number == 3:
            break
        (attempt,) = lab.attempts(urgent)
        lab.cluster.start(attempt.job_id, A)
        lab.complete(attempt.job_id)
        lab.turn()
        warms_up(lab, lab.running(victim), 30.0)
    assert lab.show(victim).status is Status.RUNNING  # three times are enough
    assert len(lab.attempts(victim)) == 4
    assert lab.show(urgent).status is Status.PENDING


def test_a_cluster_that_preempts_again_and_again_ends_it_as_preempted_too_often(lab: Lab) -> None:
    victim = lab.submit(max_retries=0)
    by_cluster = Failure(category=FailureCategory.PREEMPTED, sentence="evicted")
    for _ in range(MAX_PREEMPTED_ATTEMPTS):
        assert lab.show(victim).status is Status.PENDING
        lab.cluster.end(lab.running(victim), by_cluster)
        lab.reconciler.run()
    assert lab.failure(victim).category is FailureCategory.PREEMPTED_TOO_OFTEN
    assert len(lab.events(victim, "benchmark.preempted")) == MAX_PREEMPTED_ATTEMPTS


def test_names_of_other_users_benchmarks_are_not_shown(lab: Lab) -> None:
    victim, _ = low(lab)
    urgent = lab.submit(user_id="bob", job_completion_threshold=90)
    lab.turn()
    assert urgent not in str(lab.events(victim, "benchmark.preempted")[0].data)
    assert victim not in str(lab.events(urgent, "benchmark.preempts")[0].data)
    (attempt,) = lab.attempts(victim)
    assert attempt.stopping is not None
    assert urgent not in attempt.stopping.sentence


def test_preemptions_are_counted(lab: Lab) -> None:
    seen: list[str] = []
    figures = EventMetrics(lab.store, lambda name, value, labels: seen.append(name))
    low(lab)
    lab.submit(job_completion_threshold=90)
    lab.turn()
    lab.turn()
    figures.catch_up()
    assert seen.count("preemptions_total") == 1
    assert "retries_total" not in seen


def test_a_retry_is_counted_whatever_rule_it_follows_from(lab: Lab) -> None:
    seen: list[tuple[str, dict[str, str]]] = []
    metrics = EventMetrics(lab.store, lambda name, value, labels: seen.append((name, dict(labels))))
    for category in FailureCategory:
        again = {"status": "pending", "retry": True, "category": category.value}
        event = Event(at=lab.clock.now(), kind="benchmark.status", data=again)
        lab.store.transact(partial(append, event))
    metrics.catch_up()
    counted = {labels["category"] for name, labels in seen if name == "retries_total"}
    assert counted == set(FailureCategory) - {FailureCategory.PREEMPTED}


def append(event: Event, uow: UnitOfWork) -> None:
    uow.log.append(event)


def test_a_dry_run_shows_that_it_would_wait_for_one_that_makes_way(lab: Lab) -> None:
    victim, _ = low(lab)
    lab.turn()
    candidate = replace(lab.show(victim), benchmark_id="dry-run")
    asked = replace(
        candidate.description, benchmark_type=BenchmarkType.TYPE1, job_completion_threshold=90
    )
    found = lab.cycle.preview(pending_of(replace(candidate, description=asked)))
    assert "is being preempted" in found.waiting["dry-run"].sentence
    assert lab.cluster.stopped == []
    assert lab.events(victim, "benchmark.preempted") == []


def test_on_the_embedded_cluster_the_board_changes_hands(tmp_path: Path) -> None:
    """The same, with processes: the victim's is gone before the other's starts."""
    lab = Lab(tmp_path, A)
    lab.clock.at = datetime.now(UTC)  # the processes' times are real
    cluster = LocalCluster((a_board(A, engines={"ort": ["TYPE1", "TYPE3"]}),), tmp_path / "local")
    submitter = Submitter(cluster)
    try:
        # What the engine calls is the real cluster; what the tasks do is the test's.
        ids: list[str] = []

        def dispatch(job_id: str, hcl: str, secrets: object) -> None:
            code = "import time; print('up', flush=True); time.sleep(600)"
            ids.append(job_id)
            cluster.dispatch(
                job_id, a_job(code, on(A), job_id=job_id), {"EDGEYARD_UPLOAD_TOKEN": "t"}
            )

        lab.cluster.dispatch = dispatch  # type: ignore[method-assign]
        lab.cluster.stop = cluster.stop  # type: ignore[method-assign]
        lab.cluster.states = cluster.states  # type: ignore[method-assign]
        lab.cluster.hosts = cluster.hosts  # type: ignore[method-assign]
        victim = lab.submit(benchmark_type=LOW, max_retries=0)
        lab.turn()
        submitter.until_log(ids[0], "up")
        lab.reconciler.run()
        warms_up(lab, ids[0], 20.0)
        urgent = lab.submit(job_completion_threshold=50)
        lab.turn()
        submitter.until(ids[0], JobRun.ENDED)
        lab.reconciler.run()
        lab.turn()
        submitter.until_log(ids[1], "up")
        assert lab.attempts(urgent)[0].job_id == ids[1]
        assert lab.show(victim).status is Status.PENDING
        ended, started = submitter.state(ids[0]).ended_at, submitter.state(ids[1]).started_at
        assert ended is not None
        assert started is not None
        assert ended <= started
    finally:
        cluster.close()
        lab.store.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("local-")]


def test_an_operator_sends_a_running_benchmark_back_whatever_its_priority(lab: Lab) -> None:
    benchmark_id = lab.submit(max_retries=0, preemptible=False)
    with pytest.raises(Conflict, match="only running ones"), lab.store.write() as uow:
        lifecycle.preempt_by_operator(uow, benchmark_id, lab.clock.now(), "op")
    job_id = lab.running(benchmark_id)
    lab.progress(job_id, 60.0)
    with lab.store.write() as uow:
        lifecycle.preempt_by_operator(uow, benchmark_id, lab.clock.now(), "op")
    with pytest.raises(Conflict, match="about to end"), lab.store.write() as uow:
        lifecycle.preempt_by_operator(uow, benchmark_id, lab.clock.now(), "op")
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]
    lab.reconciler.run()
    assert lab.show(benchmark_id).status is Status.PENDING
    (first,) = lab.attempts(benchmark_id)
    assert first.failure == Failure(category=FailureCategory.PREEMPTED, sentence="stopped by op")
    (reported,) = lab.events(benchmark_id, "benchmark.preempted")
    assert reported.data["by"] == "op"
    lab.running(benchmark_id)  # no retry was used up
