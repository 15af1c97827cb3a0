"""Canaries: sent to idle boards, gone when somebody needs one, and noted nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from edgeyard.scheduler.engine.canaries import SHIPPED, CanaryKeeper
from edgeyard.scheduler.engine.queue_cache import board_holds
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Benchmark, Status
from edgeyard.scheduler.model.canaries import CANARY_USER, CanaryBoard, CanaryModel
from edgeyard.scheduler.model.checks import CHECK_TAG
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.twin.twin import BoardView
from tests.builders.engine import GOOD, A, Lab

SHARE = 0.05
ORT = SHIPPED[0]
TWO = (ORT, replace(ORT, name="second"))


class CanaryLab(Lab):
    """A lab with canaries."""

    share = SHARE

    def restart(self) -> None:
        super().restart()
        self.keep_models(TWO)

    def keep_models(self, models: Sequence[CanaryModel]) -> None:
        """A server that states these canaries."""
        self.keeper = CanaryKeeper(
            self.store, self.files, self.views, self.time, models, lambda: self.share
        )

    def views(self) -> tuple[BoardView, ...]:
        with self.store.read() as uow:
            drained, holders = board_holds(uow)
        return self.refresher.twin.views(drained=drained, holders=holders)

    def keep(self) -> bool:
        """One turn of the keeper on what the twin knows now."""
        self.refresher.refresh()
        return self.keeper.run()

    def canaries(self) -> list[Benchmark]:
        """Oldest first."""
        which = BenchmarkFilter(user_id=CANARY_USER)
        with self.store.read() as uow:
            found, _ = uow.benchmarks.page(which, limit=100, cursor=None)
        return sorted(found, key=lambda each: (each.submit_time, each.benchmark_id))

    def canary(self) -> Benchmark:
        """The newest."""
        return self.canaries()[-1]

    def board(self, uid: str = A) -> CanaryBoard:
        with self.store.read() as uow:
            return uow.canaries.all()[uid]

    def run_canary(self, seconds: float = 10.0, report: dict[str, object] | None = None) -> str:
        """Send one, run it for so long, and have its end noted."""
        assert self.keep()
        canary = self.canary()
        job_id = self.running(canary.benchmark_id)
        self.clock.forward(seconds)
        self.upload(job_id, report or GOOD)
        self.cluster.end(job_id)
        self.turn()
        self.turn()
        assert self.show(canary.benchmark_id).status is Status.COMPLETED
        return canary.benchmark_id


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[CanaryLab]:
    made = CanaryLab(tmp_path, A)
    yield made
    made.store.close()


def test_without_a_share_there_are_none(lab: CanaryLab) -> None:
    lab.share = 0.0
    assert not lab.keep()
    assert lab.canaries() == []


def test_each_runs_once_on_a_new_board_and_then_in_its_share_of_the_time(lab: CanaryLab) -> None:
    lab.run_canary()
    lab.run_canary()
    assert [each.series for each in lab.canaries()] == [f"canary/{each.name}" for each in TWO]
    # 10 s of 200 s is the share: the next is due 190 s after the end.
    assert not lab.keep()
    lab.clock.forward(10 * (1 / SHARE - 1) - 30)
    assert not lab.keep()
    lab.clock.forward(60)
    lab.run_canary()
    assert lab.canary().series == "canary/digits-ort"


def test_one_makes_way_at_once_and_its_board_is_kept_for_the_other(lab: CanaryLab) -> None:
    assert lab.keep()
    canary = lab.canary()
    job_id = lab.running(canary.benchmark_id)
    lab.progress(job_id, 99.0)
    theirs = lab.submit(user_priority=1)
    assert lab.turn().preempted == (job_id,)
    assert (lab.show(canary.benchmark_id).status, lab.show(theirs).cleared_uid) == (
        Status.CANCELLED,
        A,
    )
    assert lab.show(canary.benchmark_id).stopped_reason == "it made way for another benchmark"
    assert lab.cluster.stopped == [job_id]
    lab.turn()
    lab.turn()
    assert (lab.show(theirs).status, lab.show(theirs).target_uid) == (Status.SCHEDULED, A)
    assert lab.attempt(job_id).state is AttemptState.ENDED
    # It is not sent again while the board is in use, nor before its turn afterwards.
    assert not lab.keep()


def test_one_that_is_still_on_its_way_to_the_cluster_makes_way_too(lab: CanaryLab) -> None:
    assert lab.keep()
    (job_id,) = lab.decide()
    theirs = lab.submit()
    assert lab.cycle.run().preempted == (job_id,)
    for _ in range(3):
        lab.turn()
    assert lab.show(theirs).target_uid == A
    assert lab.show(theirs).status is Status.SCHEDULED


def test_one_of_a_check_goes_back_into_the_queue_as_the_check_would_end_with_it(
    lab: CanaryLab,
) -> None:
    confirming = lab.submit(CANARY_USER, target_uid=A, tags=(CHECK_TAG,), max_retries=0)
    job_id = lab.running(confirming)
    theirs = lab.submit()
    assert lab.turn().preempted == (job_id,)
    for _ in range(3):
        lab.turn()
    assert lab.show(theirs).status is Status.SCHEDULED
    assert lab.show(confirming).status is Status.PENDING
    lab.cluster.start(lab.attempts(theirs)[-1].job_id, A)
    lab.complete(lab.attempts(theirs)[-1].job_id)
    for _ in range(3):
        lab.turn()
    assert lab.show(confirming).status is Status.SCHEDULED


def test_one_that_waits_is_passed_by_all_others(lab: CanaryLab) -> None:
    assert lab.keep()
    lab.clock.forward(300)
    theirs = lab.submit(user_priority=1)
    lab.turn()
    assert lab.show(theirs).status is Status.SCHEDULED
    waiting = lab.canary()
    assert waiting.status is Status.PENDING
    assert waiting.waiting is not None
    assert lab.cycle.latest is not None
    assert lab.cycle.latest.queue.order == (theirs,)


def test_a_server_that_takes_over_still_knows_whose_board_it_was(lab: CanaryLab) -> None:
    """The canary is at its end, its task is not: the board counts as free for all others."""
    assert lab.keep()
    job_id = lab.running(lab.canary().benchmark_id)
    theirs = lab.submit()
    assert lab.cycle.run().preempted == (job_id,)
    lab.restart()
    outcome = lab.cycle.run()
    assert outcome.active.result.decided.assignment.clearing
    assert lab.show(theirs).cleared_uid == A


def test_no_decision_learns_of_one_and_its_series_has_its_number(lab: CanaryLab) -> None:
    canary = lab.run_canary()
    key = SeriesKey.of(lab.show(canary))
    assert key is not None
    with lab.store.read() as uow:
        assert uow.attempts.outcomes() == []
        assert not uow.attempts.past_runs_after(0, newest=10).seqs
        (point,) = uow.series.points(key, until=lab.time.now(), limit=10)
        assert (point.benchmark_id, point.value) == (canary, 1.5)
        assert uow.credits.balance(CANARY_USER).reserved == 0.0


def test_each_runs_again_after_a_change_of_the_firmware_which_its_report_shows(
    lab: CanaryLab,
) -> None:
    old: dict[str, object] = {**GOOD, "board": {"firmware": "1.0"}}
    lab.run_canary(report=old)
    lab.run_canary(report=old)
    lab.clock.forward(1000)
    new: dict[str, object] = {**GOOD, "board": {"firmware": "1.1"}}
    changed = lab.run_canary(report=new)
    lab.run_canary(report=new)
    lab.run_canary(report=new)
    assert not lab.keep()
    assert lab.board().facts["firmware"] == "1.1"
    with lab.store.read() as uow:
        (event,) = [
            each for each in uow.log.events(after=0, limit=1000) if each.kind == "board.changed"
        ]
    assert (event.data["before"], event.data["after"]) == (
        {"firmware": "1.0"},
        {"firmware": "1.1"},
    )
    assert changed == lab.canaries()[2].benchmark_id


@pytest.mark.parametrize(
    ("fact", "before", "after"),
    [
        ("host", "host", "another"),
        ("engine.ort", "1.0", "1.1"),
        ("os.kernel", "6.1", "6.2"),
    ],
)
def test_each_runs_again_after_a_change_that_the_cluster_reports(
    lab: CanaryLab, fact: str, before: str, after: str
) -> None:
    def reported(value: str) -> None:
        (now,) = lab.cluster.boards
        if fact == "host":
            lab.cluster.host_name = value
        elif fact == "engine.ort":
            engines = tuple(replace(each, version=value) for each in now.engines)
            lab.cluster.boards = [replace(now, engines=engines)]
        else:
            lab.cluster.boards = [replace(now, attributes={**now.attributes, fact: value})]

    def report(value: str) -> dict[str, object]:
        return {**GOOD, "board": {"kernel": value if fact == "os.kernel" else "6.1"}}

    reported(before)
    lab.run_canary(report=report(before))
    lab.run_canary(report=report(before))
    assert not lab.keep()
    reported(after)
    lab.run_canary(report=report(after))
    lab.run_canary(report=report(after))
    assert not lab.keep(), "each is due once"
    with lab.store.read() as uow:
        (event,) = [
            each for each in uow.log.events(after=0, limit=1000) if each.kind == "board.changed"
        ]
    assert (event.data["before"], event.data["after"]) == ({fact: before}, {fact: after})


def test_one_that_ended_while_no_server_ran_is_noted(lab: CanaryLab) -> None:
    assert lab.keep()
    with lab.store.write() as uow:
        uow.canaries.save(replace(lab.board(), benchmark_id="removed"))
    assert not lab.keep()
    assert lab.board().benchmark_id is None
    assert lab.board().next_at > lab.time.now() + timedelta(seconds=60)


def test_an_engine_that_no_board_has_is_logged_once(
    lab: CanaryLab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.keep_models([ORT, replace(ORT, name="mine", engine="onr")])
    for _ in range(3):
        lab.keep()
    found = [each for each in caplog.records if "engine of a canary" in each.message]
    assert [vars(each)["engines"] for each in found] == [["onr"]]
    caplog.clear()
    lab.keep_models(SHIPPED)  # a lab need not have all engines of these
    lab.keep()
    assert not [each for each in caplog.records if "engine of a canary" in each.message]
