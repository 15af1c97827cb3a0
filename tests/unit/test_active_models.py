"""Active registered models in decisions: they count where they are certain, otherwise past runs."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from edgeyard.errors import ConfigError
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.evaluators.regret import expected_costs_s
from edgeyard.plugins.scorers.comparable import Comparable
from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.plugins.scorers.outcome_models import FailureModel, MeasurementModel, RunTimeModel
from edgeyard.plugins.scorers.reliable import Reliable
from edgeyard.plugins.testing import NOW, all_pairs, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.record import Recorder, cycle_input_of
from edgeyard.scheduler.engine import active_models
from edgeyard.scheduler.engine.active_models import REFRESH_S, RETRY_S, ActiveModels
from edgeyard.scheduler.engine.registered_models import promote, roll_back
from edgeyard.scheduler.engine.replay import replay
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.batch_builder import build_batch, kind_of
from edgeyard.scheduler.learning.active import MAX_DISTANCE
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import ActiveModel, HostLoad, Knowledge
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.outcomes.models import MIN_RATE
from edgeyard.scheduler.prediction.estimates import past_pairs
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import model_files
from tests.builders.decision import cycle, places
from tests.builders.registered import (
    active_failures,
    active_measurements,
    active_run_times,
    add_candidate,
)

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

BOARDS = tuple(f"rpi4b-0001-000{number}" for number in (1, 2, 3))
JOB = pending(model_sha256="a" * 64)
LOADS = (0.9, 0.1, 0.5)


def runs(count: int = 20) -> History:
    """Every board took some 10 s for the model, and failed once in ten runs."""
    return History(
        PastRun(
            benchmark_id=f"p-{number}",
            user_id="ada",
            target_uid=BOARDS[number % 3],
            family="rpi4b",
            kind=kind_of(JOB),
            run_s=9.0 + number // 3 % 3,
            failure="board_fault" if number % 30 < 3 else None,
            ended_at=NOW - timedelta(hours=1, seconds=-number),
        )
        for number in range(3 * count)
    )


def known(
    *models: ActiveModel, loads: tuple[float | None, ...] = LOADS, past: History | None = None
) -> Knowledge:
    return Knowledge(
        runs=runs() if past is None else past,
        host_loads={
            f"host-of-{uid}": HostLoad(cpu=load, memory=0.5)
            for uid, load in zip(BOARDS, loads, strict=True)
            if load is not None
        },
        models=models,
    )


def batch_knowing(knowledge: Knowledge) -> Batch:
    snapshot = snapshot_of([board(uid) for uid in BOARDS])
    return build_batch(snapshot, (JOB,), NOW, 0, knowledge)


def decided(knowledge: Knowledge, of: str = "learned") -> CycleResult:
    return cycle(snapshot_of([board(uid) for uid in BOARDS]), [JOB], of=of, knowledge=knowledge)


@pytest.mark.parametrize("past", [None, History()], ids=["a past", "no past"])
def test_without_an_active_model_the_answers_are_those_of_past_runs(past: History | None) -> None:
    batch, measured = batch_knowing(known(past=past)), MeasurementModel()
    pairs = all_pairs(batch)
    scorers = (RunTimeModel(), Fastest()), (FailureModel(), Reliable()), (measured, Comparable())
    for scorer, by_past in scorers:
        found, expected = scorer.answer(batch, pairs), by_past.answer(batch, pairs)
        assert np.array_equal(found.scores, expected.scores, equal_nan=True)
        assert (found.errors is None) == (expected.errors is None)
        assert found.fallback == ""
    assert all(each.model == "" for each in decided(known()).explanation("b-1").scorers)


def test_an_active_model_states_seconds_with_its_own_error() -> None:
    pairs = all_pairs(batch_knowing(known()))
    history = Fastest().answer(batch_knowing(known()), pairs)
    found = RunTimeModel().answer(batch_knowing(known(active_run_times(by_load=1.0))), pairs)
    factors = np.exp([load - 0.5 for load in LOADS])
    assert found.scores == pytest.approx(history.scores * factors, rel=1e-4)
    assert found.errors is not None
    assert history.errors is not None
    # Quantiles as wide as the history's distribution: the same relative error.
    assert found.errors / found.scores == pytest.approx(history.errors / history.scores, rel=1e-3)
    wide = RunTimeModel().answer(
        batch_knowing(known(active_run_times(by_load=1.0, width=2.0))), pairs
    )
    assert wide.errors == pytest.approx(2.0 * found.errors, rel=0.01)
    assert found.facts == {"run_time/1": 3.0}


def test_an_active_model_states_chances_with_the_error_of_the_past() -> None:
    pairs = all_pairs(batch_knowing(known()))
    history = Reliable().answer(batch_knowing(known()), pairs)
    found = FailureModel().answer(batch_knowing(known(active_failures(by_load=2.0))), pairs)
    causes = past_pairs(batch_knowing(known()), pairs).failure_causes()
    odds = causes.board / (1.0 - causes.board) * np.exp([2.0 * (load - 0.5) for load in LOADS])
    by_model = np.maximum(causes.model, MIN_RATE)
    assert found.scores == pytest.approx(1.0 - (1.0 - by_model) / (1.0 + odds), rel=1e-3)
    assert found.errors is not None
    assert history.errors is not None
    assert found.errors[2] == pytest.approx(
        history.errors[2], rel=1e-3
    )  # of half a load: no change
    assert found.errors[0] > found.errors[2] > found.errors[1]
    assert found.facts == {"failure/1": 3.0}


def test_the_measurement_model_prefers_quiet_hosts_where_verdicts_do_not_differ() -> None:
    judged = History([replace(each, comparable=row % 5 > 0) for row, each in enumerate(runs())])
    batch = batch_knowing(known(active_measurements(by_load=3.0), past=judged))
    pairs = all_pairs(batch)
    past = Comparable().answer(batch, pairs).scores
    assert past == pytest.approx([0.8] * 3, abs=0.02)
    found = MeasurementModel().answer(batch, pairs)
    odds = (1.0 - past) / past * np.exp([3.0 * (load - 0.5) for load in LOADS])
    assert found.scores == pytest.approx(1.0 / (1.0 + odds), rel=1e-3)
    assert found.facts == {"measurement/1": 3.0}


@pytest.mark.slow
@pytest.mark.parametrize("alone_s", [1e-30, 1e9, 1e39, 1e300])
def test_a_time_that_no_run_can_take_is_not_believed(alone_s: float) -> None:
    nothing = known(active_run_times(alone_s=alone_s, width=0.5), past=History())
    pairs = all_pairs(batch_knowing(nothing))
    found = RunTimeModel().answer(batch_knowing(nothing), pairs)
    assert found.fallback == "past runs, because model run_time/1 is uncertain of all boards"
    result = decided(nothing)
    assert places(result).keys() == {"b-1"}
    parts = {each.scorer: each for each in result.explanation("b-1").scorers}
    assert parts["run_time_model"].model == ""


def test_decisions_change_with_the_active_model_and_name_it() -> None:
    for idle in range(3):
        loads = tuple(0.1 if place == idle else 0.9 for place in range(3))
        result = decided(known(active_run_times(by_load=2.0), loads=loads))
        assert places(result) == {"b-1": BOARDS[idle]}
        parts = {each.scorer: each for each in result.explanation("b-1").scorers}
        assert parts["run_time_model"].model == "run_time/1"
        assert parts["failure_model"].model == ""
    chosen = {
        places(decided(known(loads=tuple(0.1 if p == idle else 0.9 for p in range(3)))))["b-1"]
        for idle in range(3)
    }
    assert len(chosen) == 1  # past runs know nothing of loads


def test_only_boards_that_pass_the_filters_are_chosen() -> None:
    lab = [board(uid) for uid in BOARDS]
    models = (active_run_times(by_load=3.0), active_failures(by_load=3.0))
    result = cycle(
        snapshot_of(lab, drained=[BOARDS[1]]),
        [JOB],
        of="learned",
        knowledge=known(*models),
    )
    assert places(result) == {"b-1": BOARDS[2]}  # the idle one is drained
    without = cycle(snapshot_of(lab, drained=[BOARDS[1]]), [JOB], of="learned", knowledge=known())
    assert np.array_equal(result.decided.feasibility.codes, without.decided.feasibility.codes)


def test_a_board_whose_load_is_missing_or_far_out_is_judged_by_past_runs() -> None:
    beyond = 0.5 + 0.25 * (MAX_DISTANCE + 0.1)
    batch = batch_knowing(known(active_run_times(by_load=1.0), loads=(None, 0.1, beyond)))
    pairs = all_pairs(batch)
    history, found = Fastest().answer(batch, pairs), RunTimeModel().answer(batch, pairs)
    assert (found.scores == history.scores).tolist() == [True, False, True]
    assert found.facts == {"run_time/1": 1.0}


def test_a_model_that_is_uncertain_of_all_boards_is_no_answer_of_a_model() -> None:
    vague = active_run_times(by_load=1.0, width=1.1, alone_s=5.0)
    batch = batch_knowing(known(vague, past=History()))
    found = RunTimeModel().answer(batch, all_pairs(batch))
    assert np.isnan(found.scores).all()
    assert found.fallback == "past runs, because model run_time/1 is uncertain of all boards"
    certain = active_run_times(by_load=0.0, width=0.5, alone_s=5.0)
    batch = batch_knowing(known(certain, past=History()))
    assert RunTimeModel().score(batch, all_pairs(batch)) == pytest.approx([5.0] * 3, rel=1e-4)


@pytest.mark.parametrize("damage", ["stated", "found"])
def test_a_model_that_cannot_be_used_falls_back_and_says_so(damage: str) -> None:
    model = active_run_times(by_load=2.0)
    if damage == "stated":
        model = replace(model, content=b"", problem="model run_time/1: its file was replaced")
    else:
        model = replace(model, content=b"another file")
    result = decided(known(model))
    parts = {each.scorer: each for each in result.explanation("b-1").scorers}
    assert parts["run_time_model"].fallback.startswith("past runs, because model run_time/1")
    assert parts["run_time_model"].model == ""
    assert not result.faults
    assert places(result) == places(decided(known()))


def test_the_evaluator_judges_choices_by_the_active_models() -> None:
    pairs = all_pairs(batch_knowing(known()))
    plain = expected_costs_s(batch_knowing(known()), pairs)
    models = (active_run_times(by_load=2.0), active_failures(by_load=2.0))
    found = expected_costs_s(batch_knowing(known(*models)), pairs)
    assert found[0] > plain[0]
    assert found[1] < plain[1]


def given(knowledge: Knowledge, seed: int = 0) -> CycleInput:
    return CycleInput(
        snapshot=snapshot_of([board(uid) for uid in BOARDS]),
        pending=[JOB],
        now=NOW,
        seed=seed,
        knowledge=knowledge,
    )


def test_a_recorded_cycle_keeps_the_models_once_and_is_replayed_with_them() -> None:
    recorder, models = Recorder(), (active_run_times(by_load=2.0),)
    first, second = (
        recorder.record(given(known(*models), seed), decided(known(*models))) for seed in (0, 0)
    )
    assert dict(first.parts)["models"] is dict(second.parts)["models"]
    assert cycle_input_of(first).knowledge.models == models
    again = replay(replace(first, runs=runs()), registry(entry_points=False))
    assert again.same
    plain = recorder.record(given(known()), decided(known()))
    assert "models" not in dict(plain.parts)
    assert cycle_input_of(plain).knowledge.models == ()


@pytest.fixture(name="store")
def a_store(sqlite_store: SqlStore) -> SqlStore:
    return sqlite_store


def activate(store: SqlStore) -> None:
    model = add_candidate(store, by_load=1.0)
    with store.write() as uow:
        promote(uow, model.kind, model.version, NOW, by_user_id="")
        promote(uow, model.kind, model.version, NOW, by_user_id="", force=True)


def in_use(models: ActiveModels) -> list[tuple[str, str]]:
    return [(each.reference, each.problem) for each in models.current]


def test_a_server_takes_up_what_is_promoted_and_drops_what_is_rolled_back(store: SqlStore) -> None:
    models = ActiveModels(store)
    models.refresh()
    assert in_use(models) == []
    activate(store)
    assert in_use(models) == []  # nothing is loaded while a decision waits
    models.refresh()
    assert in_use(models) == [("failure/1", "")]
    before = models.current
    models.refresh()
    assert models.current is before  # the same object: recorded once
    with store.write() as uow:
        roll_back(uow, ModelKind.FAILURE, NOW, by_user_id="", reason="worse")
    models.refresh()
    assert in_use(models) == []


def test_a_server_notices_a_file_that_is_replaced_while_it_is_in_use(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    activate(store)
    models = ActiveModels(store)
    models.refresh()
    assert models.current[0].problem == ""
    with store.write() as uow:
        uow.tx.run(model_files.update().values(data=b"another file"))
    models.refresh()
    (found,) = models.current
    assert "model failure/1: its file has SHA-256" in found.problem
    assert found.content == b""
    assert [each.event for each in caplog.records if each.levelname == "ERROR"] == [  # type: ignore[attr-defined]
        "model.unusable"
    ]
    models.refresh()
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ConfigError(["it did not answer within 60 s"]), "it did not answer within 60 s"),
        (
            ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime"),
            "model failure/1 needs onnxruntime, which this server has not installed",
        ),
    ],
)
def test_a_model_that_can_not_be_used_says_so_and_is_seldom_tried_out_again(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str
) -> None:
    activate(store)
    tried: list[ActiveModel] = []
    result: list[Exception] = [error]

    def load(model: ActiveModel) -> None:
        tried.append(model)
        for each in result:
            raise each

    monkeypatch.setattr(active_models, "load_active", load)
    at_s = [1000.0]
    models = ActiveModels(store, lambda: at_s[0])
    for _ in range(3):
        models.refresh()
        at_s[0] += REFRESH_S
    assert in_use(models) == [("failure/1", problem)]
    assert len(tried) == 1
    result.clear()
    at_s[0] += RETRY_S
    models.refresh()
    assert in_use(models) == [("failure/1", "")]
    assert models.current[0].content
