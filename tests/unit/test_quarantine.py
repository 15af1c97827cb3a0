"""Which boards are set aside, how they are probed and let back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.make_probe import TARGETS, make
from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.decide.quarantine import board_records
from edgeyard.scheduler.engine.quarantine import PROBE_MODEL, QuarantineController, lift_quarantine
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.benchmark import BenchmarkType, Failure, FailureCategory, Status
from edgeyard.scheduler.model.history import PastRun, RunKind
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.twin.twin import BoardState, BoardView, Twin
from tests.builders.engine import A, B, Lab

BAD, OTHER = "rpi4b-0001-0001", "rpi4b-0001-0002"


def runs(*expected: tuple[str, str, str | None]) -> list[PastRun]:
    """(board, model, failure), oldest first."""
    return [
        PastRun(
            benchmark_id=f"b-{number}",
            user_id="ann",
            target_uid=uid,
            family="rpi4b",
            kind=RunKind(engine="ort", benchmark_type=BenchmarkType.TYPE1, model_sha256=model),
            run_s=10.0,
            failure=failure,
            ended_at=NOW + timedelta(seconds=number),
        )
        for number, (uid, model, failure) in enumerate(expected)
    ]


def bad(past: Sequence[PastRun]) -> set[str]:
    return {uid for uid, record in board_records(past, {}).items() if record.should_be_quarantined}


GOOD_ELSEWHERE: list[tuple[str, str, str | None]] = [(OTHER, "m", None)] * 9


def test_a_board_that_fails_what_runs_elsewhere_is_set_aside_after_a_few() -> None:
    broke = (BAD, "m", "board_fault")
    assert bad(runs(*GOOD_ELSEWHERE, broke)) == set()
    assert bad(runs(*GOOD_ELSEWHERE, broke, broke, broke, broke)) == {BAD}


def test_a_user_s_own_time_limit_quarantines_no_board() -> None:
    """Every run of a tiny ``user_time`` ends as a time-out, on the best of boards."""
    tiny = [(BAD, "m", "timeout")] * 50
    quick = [replace(run, run_s=0.1) for run in runs(*tiny)]
    assert bad([*runs(*GOOD_ELSEWHERE), *quick]) == set()
    assert bad(runs(*[(BAD, "never-ran-well", "timeout")] * 50)) == set()


def test_a_board_that_hangs_is_quarantined_by_time_outs() -> None:
    hung = [replace(run, run_s=60.0) for run in runs(*[(BAD, "m", "timeout")] * 6)]
    assert bad([*runs(*GOOD_ELSEWHERE), *hung]) == {BAD}


def test_a_good_year_does_not_save_a_board_that_broke_today() -> None:
    good = [(BAD, "m", None)] * 500
    assert bad(runs(*GOOD_ELSEWHERE, *good, *[(BAD, "m", "unknown")] * 8)) == {BAD}


def test_failures_that_follow_the_model_are_not_the_boards() -> None:
    everywhere = [(uid, "bad model", "unknown") for uid in (BAD, OTHER) for _ in range(20)]
    assert bad(runs(*everywhere)) == set()


def test_failures_of_users_and_of_the_cluster_say_nothing_of_the_board() -> None:
    harmless = [(BAD, "m", "user_model"), (BAD, "m", "cluster"), (BAD, "m", "preempted")] * 20
    assert bad(runs(*GOOD_ELSEWHERE, *harmless)) == set()


def test_what_was_before_a_board_was_let_back_does_not_count() -> None:
    past = runs(*GOOD_ELSEWHERE, *[(BAD, "m", "board_fault")] * 9)
    assert board_records(past, {})[BAD].should_be_quarantined
    assert BAD not in board_records(past, {BAD: past[-1].ended_at})


@given(st.lists(st.tuples(st.sampled_from([BAD, OTHER]), st.sampled_from("mn"), st.none())))
def test_boards_that_never_fail_are_never_set_aside(expected: list[tuple[str, str, None]]) -> None:
    assert bad(runs(*expected)) == set()


def test_one_more_failure_never_makes_a_record_better() -> None:
    past = list(GOOD_ELSEWHERE)
    before = 0.0
    for _ in range(12):
        past.append((BAD, "m", "thermal"))
        now = board_records(runs(*past), {})[BAD]
        assert now.failure_rate >= before
        before = now.failure_rate


def test_the_committed_probe_is_what_its_maker_makes() -> None:
    pytest.importorskip("onnx")
    assert PROBE_MODEL.read_bytes() == make(TARGETS[PROBE_MODEL.resolve()])


# --- the engine's part ---------------------------------------------------------------------------


class Watched(Lab):
    """A lab with a warden; its boards are the cluster's."""

    def __init__(self, folder: Path, *boards: str) -> None:
        super().__init__(folder, *boards)
        self.counted: list[tuple[str, str]] = []
        self.warden = QuarantineController(
            self.store,
            ContentFiles(folder / "files"),
            self.views,
            self.clock,
            lambda name, value, labels: self.counted.append((name, labels["cause"])),
            PastRuns(),
        )
        self.twin = Twin(self.cluster.boards)

    def views(self) -> tuple[BoardView, ...]:
        self.twin.refresh(self.cluster.hosts(), self.clock.now())
        with self.store.read() as uow:
            aside = uow.reservations.quarantines().values()
        reasons = {each.target_uid: each.reason for each in aside if each.active}
        return self.twin.views(drained={}, holders={}, quarantined=reasons)

    def state(self, uid: str) -> BoardState:
        return next(view.state for view in self.views() if view.board.target_uid == uid)

    def quarantine(self, uid: str) -> Quarantine:
        with self.store.read() as uow:
            return uow.reservations.quarantines()[uid]

    def run_on(self, uid: str, *, fails: bool) -> None:
        benchmark_id = self.submit(target_uid=uid, max_retries=0)
        self.finish(benchmark_id, uid, fails=fails)

    def finish(self, benchmark_id: str, uid: str, *, fails: bool) -> None:
        job_id = self.running(benchmark_id, uid)
        if not fails:
            self.upload(job_id)
        failure = Failure(category=FailureCategory.UNKNOWN, sentence="it broke")
        self.cluster.end(job_id, failure if fails else None)
        self.reconciler.run()
        self.clock.forward(1)

    def break_it(self) -> None:
        for _ in range(6):
            self.run_on(B, fails=False)
        for _ in range(6):
            self.run_on(A, fails=True)


@pytest.mark.slow
def test_a_bad_board_is_set_aside_probed_and_let_back(tmp_path: Path) -> None:
    lab = Watched(tmp_path, A, B)
    lab.break_it()
    assert lab.warden.run()
    found = lab.quarantine(A)
    assert found.active
    assert found.by_user_id is None
    assert lab.counted == [("quarantines_total", "record")]
    assert lab.state(A) is BoardState.QUARANTINED
    waits = lab.submit(target_uid=A)
    lab.turn()
    waiting = lab.show(waits).waiting
    assert waiting is not None
    assert "is in quarantine (failed 6 of its last 6 runs" in waiting.sentence
    assert not lab.warden.run()  # its time has not come
    lab.clock.forward(61)
    assert lab.warden.run()
    probe = lab.quarantine(A).probe_id
    assert probe is not None
    assert lab.show(probe).user_id == "edgeyard-probe"
    lab.finish(probe, A, fails=True)
    assert lab.warden.run()
    again = lab.quarantine(A)
    assert again.active
    assert again.next_probe_at == lab.clock.now() + timedelta(minutes=2)
    lab.clock.forward(121)
    assert lab.warden.run()
    second = lab.quarantine(A).probe_id
    assert second not in (None, probe)
    lab.finish(str(second), A, fails=False)
    assert lab.warden.run()
    assert not lab.quarantine(A).active
    assert lab.state(A) is BoardState.IDLE
    lab.turn()
    assert lab.show(waits).status is Status.SCHEDULED
    assert not lab.warden.run()
    with lab.store.read() as uow:
        kinds = [event.kind for event in uow.log.events(after=0, limit=1000)]
        assert uow.credits.balance("edgeyard-probe").spent == 0
    for kind in ("board.quarantined", "board.probe_failed", "board.unquarantined"):
        assert kinds.count(kind) == 1


def test_a_board_that_is_away_is_not_probed_and_an_operator_lets_it_back(tmp_path: Path) -> None:
    lab = Watched(tmp_path, A, B)
    lab.break_it()
    lab.warden.run()
    lab.clock.forward(61)
    gone = lab.cluster.boards.pop(0)
    assert gone.target_uid == A
    assert not lab.warden.run()
    with lab.store.write() as uow:
        lift_quarantine(uow, uow.reservations.quarantines()[A], lab.clock.now(), by="op")
    assert lab.quarantine(A).lifted_by == "op"
    assert not lab.warden.run()  # what was before does not count again
