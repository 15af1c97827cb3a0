"""Each result is recorded on the board that ran it, whoever is first to say which one that was."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from edgeyard.scheduler.engine.queue_cache import board_holds
from edgeyard.scheduler.model.attempt import Attempt, Outcome
from edgeyard.scheduler.model.benchmark import Binding, Failure, FailureCategory, Status
from tests.builders.engine import GOOD, A, B, Lab
from tests.fakes.cluster import board


def loose(lab: Lab, **changes: Any) -> tuple[str, str, str]:
    """Submit a loose benchmark and hand it over; its id, its job's, and the board not assumed."""
    benchmark_id = lab.submit(binding=Binding.LOOSE, **changes)
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    return benchmark_id, attempt.job_id, B if attempt.target_uid == A else A


def test_a_loose_job_that_got_an_unknown_board_is_stopped_there_and_tried_again(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, A, B)
    _, job_id, _ = loose(lab)
    stranger = "rpi4b-0009-0009"
    lab.cluster.boards.append(board(stranger))
    lab.refresher.refresh()
    lab.cluster.start(job_id, stranger)
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]
    stopping = lab.attempt(job_id).stopping
    assert stopping is not None
    assert "not in the inventory" in stopping.sentence
    lab.store.close()


def outcome_of(lab: Lab, benchmark_id: str) -> Outcome:
    with lab.store.read() as uow:
        (found,) = (o for o in uow.attempts.outcomes() if o.benchmark_id == benchmark_id)
    return found


def held(lab: Lab) -> Mapping[str, str]:
    with lab.store.read() as uow:
        return board_holds(uow)[1]


def newest(lab: Lab, benchmark_id: str) -> Attempt:
    return lab.attempts(benchmark_id)[-1]


def reported(uid: str | None, **changes: object) -> Mapping[str, object]:
    return {**GOOD, "board": {"target_uid": uid}, **changes}


def test_a_quick_result_is_recorded_on_the_board_that_ran_it(lab: Lab) -> None:
    for order in permutations(["progress", "upload", "start", "poll"]):
        benchmark_id, job_id, ran_on = loose(lab)
        for step in order:
            if step == "progress":
                lab.progress(job_id, 50)
            elif step == "upload":
                lab.upload(job_id)
            elif step == "start":
                lab.cluster.start(job_id, ran_on)
            else:
                lab.reconciler.run()
        lab.cluster.end(job_id)
        lab.reconciler.run()
        shown = lab.show(benchmark_id)
        assert (shown.status, shown.target_uid) == (Status.COMPLETED, ran_on), order
        assert newest(lab, benchmark_id).target_uid == ran_on, order
        assert outcome_of(lab, benchmark_id).target_uid == ran_on, order


def test_a_running_task_holds_the_board_that_the_cluster_gave_it(lab: Lab) -> None:
    benchmark_id, job_id, ran_on = loose(lab)
    lab.progress(job_id, 50)
    assumed = newest(lab, benchmark_id).target_uid
    lab.cluster.start(job_id, ran_on)
    lab.reconciler.run()
    assert held(lab) == {ran_on: benchmark_id}
    assert lab.show(benchmark_id).target_uid == ran_on
    (event,) = lab.events(benchmark_id, "attempt.board")
    assert (event.data["before"], event.data["target_uid"]) == (assumed, ran_on)


def test_the_report_names_the_board_where_the_cluster_is_silent(lab: Lab) -> None:
    benchmark_id, job_id, ran_on = loose(lab)
    lab.upload(job_id, reported(ran_on))
    assert held(lab) == {ran_on: benchmark_id}
    lab.cluster.end(job_id)
    lab.reconciler.run()
    assert outcome_of(lab, benchmark_id).target_uid == ran_on


@pytest.mark.parametrize("cluster_first", [True, False])
def test_a_report_of_another_board_than_the_cluster_s_is_invalid(
    lab: Lab, cluster_first: bool
) -> None:
    benchmark_id, job_id, ran_on = loose(lab)
    other = B if ran_on == A else A
    if cluster_first:
        lab.cluster.start(job_id, ran_on)
        lab.reconciler.run()
    verdict = {"verdict": "comparable", "reasons": [], "not_checked": ["steal"]}
    lab.upload(job_id, reported(other, verdict=verdict))
    lab.cluster.start(job_id, ran_on)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    outcome = outcome_of(lab, benchmark_id)
    assert (outcome.target_uid, outcome.verdict) == (ran_on, "invalid")
    with lab.store.read() as uow:
        (report,) = uow.files.reports(benchmark_id)
    judged = report.report["verdict"]
    assert isinstance(judged, Mapping)
    assert (judged["verdict"], judged["not_checked"]) == ("invalid", ["steal"])
    (reason,) = judged["reasons"]
    assert reason["code"] == "other_board"
    assert ran_on in reason["sentence"]
    assert other in reason["sentence"]


def test_a_report_of_the_right_board_keeps_its_verdict(lab: Lab) -> None:
    benchmark_id, job_id, ran_on = loose(lab)
    verdict = {"verdict": "comparable", "reasons": [], "not_checked": []}
    lab.upload(job_id, reported(ran_on, verdict=verdict))
    lab.cluster.start(job_id, ran_on)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    assert outcome_of(lab, benchmark_id).verdict == "comparable"


def test_outcomes_on_assumed_boards_are_not_learned_from(lab: Lab) -> None:
    benchmark_id, job_id, _ = loose(lab, max_retries=0)
    del lab.cluster.jobs[job_id]
    lab.reconciler.run()
    assert outcome_of(lab, benchmark_id).target_uid is None


def test_a_start_is_never_the_moment_of_the_hand_over(lab: Lab) -> None:
    benchmark_id, job_id, ran_on = loose(lab)
    lab.clock.forward(10)
    lab.upload(job_id, reported(None))
    lab.cluster.start(job_id, ran_on)
    began = lab.clock.now()
    lab.clock.forward(5)
    lab.cluster.end(job_id)
    lab.reconciler.run()
    assert newest(lab, benchmark_id).started_at == began
    failed, job_id, _ = loose(lab, max_retries=0)
    gone = Failure(category=FailureCategory.CLUSTER, sentence="could not be downloaded")
    lab.cluster.end(job_id, gone, began=False)
    lab.reconciler.run()
    assert newest(lab, failed).started_at is None
    assert lab.show(failed).status is Status.FAILED
