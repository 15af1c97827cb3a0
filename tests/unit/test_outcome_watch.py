"""Models in use: the shadow is measured, and an active one that got worse is rolled back."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.errors import ConfigError, Conflict
from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.engine.registered_models import (
    READY,
    SHADOW_PATIENCE,
    PromotionMode,
    promote,
    promote_due,
    roll_back,
)
from edgeyard.scheduler.learning.check import CheckedModel
from edgeyard.scheduler.model.registered_models import ModelKind, ModelState
from edgeyard.scheduler.outcomes.gates import PredictionFigures
from edgeyard.scheduler.outcomes.intervals import Interval
from edgeyard.scheduler.outcomes.rows import read_outcome_rows
from edgeyard.scheduler.outcomes.watch import (
    WatchReport,
    reason_to_roll_back,
    watch_models,
)
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import model_files
from tests.builders.outcomes import add_past
from tests.builders.registered import add_candidate


@pytest.fixture(name="store")
def a_store(sqlite_store: SqlStore) -> SqlStore:
    return sqlite_store


def step(store: SqlStore, version: int, *, force: bool = False) -> ModelState:
    with store.write() as uow:
        kind = ModelKind.FAILURE
        return promote(uow, kind, version, NOW, by_user_id="", force=force).state


def watched(store: SqlStore) -> WatchReport:
    (report,) = watch_models(store, read_outcome_rows(store), NOW + timedelta(days=9))
    return report


@pytest.mark.slow
def test_a_shadow_is_promoted_after_its_cycles_and_rolled_back_when_it_gets_worse(
    store: SqlStore,
) -> None:
    add_candidate(store, by_load=2.0)
    assert step(store, 1) is ModelState.SHADOW
    count = add_past(store, 10)
    assert "in 10 cycles" in watched(store).sentence
    with pytest.raises(Exception, match="can't be promoted: shadow"):
        step(store, 1)
    more = {"first": count, "begin": NOW + timedelta(hours=10)}
    count = add_past(store, 50, seed=1, **more)  # type: ignore[arg-type]
    measured = watched(store).model
    assert [each.passed for each in measured.gates] == [True, True]
    nothing = read_outcome_rows(store, since=NOW + timedelta(days=99))
    (report,) = watch_models(store, nothing, NOW)
    assert report.model.gates == measured.gates  # what was measured stays
    assert step(store, 1) is ModelState.ACTIVE
    assert watched(store).model.state is ModelState.ACTIVE

    def reversed_load(run: Any) -> tuple[float | None, str | None]:
        load, uniform = run.load, run.uniform
        return 5.0, "board_fault" if uniform < 0.6 * (1.0 - load) else None

    more = {"first": count, "begin": NOW + timedelta(hours=60)}
    add_past(store, 50, seed=2, end=reversed_load, **more)  # type: ignore[arg-type]
    report = watched(store)
    assert report.model.state is ModelState.RETIRED
    assert report.sentence.startswith("rolled back: its loss on 300 runs is higher")
    with store.read() as uow:
        assert not uow.models.in_state(ModelState.ACTIVE)
        last = [e for e in uow.log.events(after=0, limit=100_000) if e.kind == "model.state"][-1]
    assert last.data["state"] == "retired"
    assert str(last.data["reason"]).startswith("rolled back: its loss")


@pytest.mark.parametrize(
    ("rows", "off", "others", "why"),
    [
        (100, 0.16, 0.1, "off by +16.0 percentage points, that of the history by +10.0"),
        (100, -0.2, 0.19, "off by -20.0 percentage points"),
        (100, 0.16, -0.17, ""),  # the history, which would take over, is no better
        (100, 0.15, 0.0, ""),
        (99, 0.5, 0.0, ""),
    ],
)
def test_a_share_that_is_off_by_more_than_that_of_the_history_is_a_reason(
    rows: int, off: float, others: float, why: str
) -> None:
    at = Interval(0.1, 0.0, 0.2)
    better = Interval(-0.1, -0.2, 0.0)
    found = PredictionFigures(
        rows=rows, boards=8, loss=at, other_loss=at, difference=better,
        calibration=Interval(off, off, off), other_calibration=Interval(others, others, others),
    )  # fmt: skip
    assert why in reason_to_roll_back(found)
    assert bool(why) == bool(reason_to_roll_back(found))


def test_an_active_model_whose_file_was_replaced_is_rolled_back_and_named(store: SqlStore) -> None:
    add_candidate(store)
    assert step(store, 1) is ModelState.SHADOW
    assert step(store, 1, force=True) is ModelState.ACTIVE
    add_past(store, 2)
    with store.write() as uow:
        uow.tx.run(model_files.update().values(data=b"another file"))
    report = watched(store)
    assert report.model.state is ModelState.RETIRED
    assert "model failure/1: its file has SHA-256" in report.sentence


def test_an_active_model_that_could_not_be_tried_stays_active(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_candidate(store)
    step(store, 1)
    step(store, 1, force=True)
    add_past(store, 2)

    def refused(data: bytes, inputs: int, outputs: int) -> CheckedModel:
        raise ConfigError(
            ["its trial process ended with signal 9: out of memory or time, or a crash"]
        )

    monkeypatch.setattr("edgeyard.scheduler.learning.model.check_model", refused)
    report = watched(store)
    assert report.model.state is ModelState.ACTIVE
    assert report.sentence.startswith("could not be tried: ")
    assert "ended with signal 9" in report.sentence


def test_a_roll_back_means_one_version_and_checks_the_one_before(store: SqlStore) -> None:
    for version, by_load in ((1, 1.0), (2, 2.0)):
        add_candidate(store, by_load=by_load)
        step(store, version)
        step(store, version, force=True)
    with store.read() as uow:
        first = uow.models.get(ModelKind.FAILURE, 1)
    with pytest.raises(Conflict, match="failure/2 is active, not version 1"), store.write() as uow:
        roll_back(uow, ModelKind.FAILURE, NOW, by_user_id="", reason="worse", version=1)
    with store.write() as uow:
        of_first = model_files.c.sha256 == first.sha256
        uow.tx.run(model_files.update().where(of_first).values(data=b"another file"))
        retired, active = roll_back(
            uow, ModelKind.FAILURE, NOW, by_user_id="", reason="worse", version=2
        )
    assert active is None
    assert retired.reason.startswith("rolled back: worse; the history predicts, since model fail")
    with store.read() as uow:
        assert not uow.models.in_state(ModelState.ACTIVE)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(PromotionMode))
def test_models_whose_gates_hold_are_promoted_as_the_setting_states(
    store: SqlStore, mode: PromotionMode
) -> None:
    add_candidate(store, by_load=2.0)
    add_candidate(store, passed=False)
    states = [[each.state for each in promote_due(store, mode, NOW)]]
    count = add_past(store, 60)
    if mode is not PromotionMode.NEVER:
        assert [each.passed for each in watched(store).model.gates] == [True, True]
    states += [[each.state for each in promote_due(store, mode, NOW)] for _ in range(2)]
    shadow, active = ModelState.SHADOW, ModelState.ACTIVE
    assert (
        states
        == {
            PromotionMode.AUTO: [[shadow], [active], []],
            PromotionMode.ASK: [[shadow], [shadow], []],  # the second one only reports it
            PromotionMode.NEVER: [[], [], []],
        }[mode]
    )
    with store.read() as uow:
        first = uow.models.get(ModelKind.FAILURE, 1)
        assert uow.models.get(ModelKind.FAILURE, 2).state is ModelState.CANDIDATE
        reasons = [
            each.data["reason"]
            for each in uow.log.events(after=0, limit=100_000)
            if each.kind == "model.state" and each.data["state"] != "candidate"
        ]
    assert (
        reasons
        == {
            PromotionMode.AUTO: ["promoted", "promoted"],
            PromotionMode.ASK: ["promoted", READY],
            PromotionMode.NEVER: [],
        }[mode]
    )
    assert count == 480
    assert first.by_user_id == ""


def test_a_replaced_file_and_an_older_candidate_are_not_promoted_by_the_setting(
    store: SqlStore,
) -> None:
    for _ in range(2):
        add_candidate(store)
    with store.write() as uow:
        promote(uow, ModelKind.FAILURE, 2, NOW, by_user_id="")
        promote(uow, ModelKind.FAILURE, 2, NOW, by_user_id="", force=True)
    assert promote_due(store, PromotionMode.AUTO, NOW) == []  # version 1 is older than the active
    add_candidate(store, by_load=3.0)
    with store.write() as uow:
        uow.tx.run(model_files.update().values(data=b"another file"))
    assert promote_due(store, PromotionMode.AUTO, NOW) == []


def references(store: SqlStore, mode: PromotionMode, days: float) -> list[str]:
    """What was promoted at a time after `NOW`."""
    found = promote_due(store, mode, NOW + timedelta(days=days))
    return [f"{each.reference} {each.state.value}" for each in found]


@pytest.mark.parametrize("mode", [PromotionMode.AUTO, PromotionMode.ASK])
def test_a_shadow_without_runs_gives_way_to_a_newer_candidate_after_a_week(
    store: SqlStore, mode: PromotionMode
) -> None:
    patience = SHADOW_PATIENCE.days
    add_candidate(store)
    assert references(store, mode, 0) == ["failure/1 shadow"]
    assert references(store, mode, patience + 1) == []  # no newer candidate
    add_candidate(store, by_load=1.0)
    add_candidate(store, passed=False, by_load=2.0)
    assert references(store, mode, patience - 1) == []
    assert references(store, mode, patience) == ["failure/2 shadow"]
    with store.read() as uow:
        replaced = uow.models.get(ModelKind.FAILURE, 1)
    assert (replaced.state, replaced.reason) == (ModelState.RETIRED, "replaced by failure/2")
    assert references(store, mode, patience + 1) == []  # the new one has its week, too


@pytest.mark.slow
def test_a_shadow_that_is_worse_gives_way_and_one_whose_gates_hold_does_not(
    store: SqlStore,
) -> None:
    late = SHADOW_PATIENCE.days + 1
    add_candidate(store, by_load=2.0)
    assert step(store, 1) is ModelState.SHADOW
    add_past(store, 60)
    assert [each.passed for each in watched(store).model.gates] == [True, True]
    add_candidate(store)
    assert references(store, PromotionMode.ASK, late) == ["failure/1 shadow"]  # reported as ready
    assert references(store, PromotionMode.ASK, late) == []
    with store.write() as uow:
        model = uow.models.get(ModelKind.FAILURE, 1)
        worse = replace(model.gates[-1], passed=False)
        uow.models.save(replace(model, gates=(*model.gates[:-1], worse)))
    assert references(store, PromotionMode.ASK, late) == ["failure/2 shadow"]


def test_a_shadow_that_can_not_be_used_gives_way_at_once(store: SqlStore) -> None:
    first = add_candidate(store)
    step(store, 1)
    with store.write() as uow:
        of_first = model_files.c.sha256 == first.sha256
        uow.tx.run(model_files.update().where(of_first).values(data=b"another file"))
    assert references(store, PromotionMode.AUTO, 0) == []
    add_candidate(store, by_load=1.0)
    assert references(store, PromotionMode.AUTO, 0) == ["failure/2 shadow"]


def test_a_shadow_of_a_clock_that_was_far_ahead_gives_way(store: SqlStore) -> None:
    for version, by_load in ((1, 0.0), (2, 1.0)):
        add_candidate(store, by_load=by_load)
        if version == 1:
            with store.write() as uow:
                promote(uow, ModelKind.FAILURE, 1, NOW + timedelta(days=3650), by_user_id="")
    assert references(store, PromotionMode.AUTO, 0) == ["failure/2 shadow"]
