"""The life of a model: trained, shadow, active, made worse, rolled back; decisions follow it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.engine.active_models import ActiveModels
from edgeyard.scheduler.engine.registered_models import PromotionMode, promote_due
from edgeyard.scheduler.model.decision import Explanation
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge
from edgeyard.scheduler.model.registered_models import ModelKind, ModelState
from edgeyard.scheduler.outcomes.learning import learn_outcomes
from edgeyard.scheduler.outcomes.rows import read_outcome_rows
from edgeyard.scheduler.outcomes.watch import watch_models
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.store import SqlStore
from tests.builders.decision import cycle
from tests.builders.outcomes import BASES, Run, add_past

BUSY, IDLE = "rpi4b-0001-0001", "rpi4b-0002-0001"


def slowed_by_load(run: Run) -> tuple[float | None, str | None]:
    """What load does to run times is all that there is to learn."""
    return BASES[run.model] * 2.7182818 ** (1.5 * run.load + 0.25 * run.normal), None


def quickened_by_load(run: Run) -> tuple[float | None, str | None]:
    """The opposite of what was learned."""
    return BASES[run.model] * 2.7182818 ** (-1.5 * run.load + 0.25 * run.normal), None


def test_decisions_follow_a_model_from_its_training_to_its_roll_back(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    models, hours, count = ActiveModels(store), 0, 0

    def lab_runs(cycles: int, end: Any) -> None:
        nonlocal hours, count
        begin = NOW + timedelta(hours=hours)
        count = add_past(store, cycles, end=end, first=count, begin=begin, seed=hours)
        hours += cycles

    def watched() -> list[str]:
        now = NOW + timedelta(hours=hours)
        return [each.sentence for each in watch_models(store, read_outcome_rows(store), now)]

    def promoted() -> list[ModelState]:
        now = NOW + timedelta(hours=hours)
        return [each.state for each in promote_due(store, PromotionMode.AUTO, now)]

    def decided() -> tuple[str, Explanation]:
        models.refresh()
        now = NOW + timedelta(hours=hours)
        with store.read() as uow:
            runs = PastRuns().read(uow, now)
        known = Knowledge(
            runs=runs,
            host_loads={
                f"host-of-{BUSY}": HostLoad(cpu=0.9, memory=0.5),
                f"host-of-{IDLE}": HostLoad(cpu=0.1, memory=0.5),
            },
            models=models.current,
        )
        job = pending(
            model_sha256="large", model_bytes=1_000_000, submit_time=now, user_time_s=3600.0
        )
        snapshot = snapshot_of([board(BUSY), board(IDLE)], now=now)
        result = cycle(snapshot, [job], of="learned", now=now, knowledge=known)
        explanation = result.explanation("b-1")
        assert explanation.placement is not None
        return str(explanation.placement.target_uid), explanation

    def model_of(explanation: Explanation) -> str:
        return {each.scorer: each.model for each in explanation.scorers}["run_time_model"]

    def scored(explanation: Explanation) -> dict[str, float]:
        found = {each.target_uid: each.scores["run_time_model"] for each in explanation.verdicts}
        return {uid: each for uid, each in found.items() if each is not None}

    lab_runs(100, slowed_by_load)
    now = NOW + timedelta(hours=hours)
    (report,) = learn_outcomes(store, read_outcome_rows(store), now, kinds=[ModelKind.RUN_TIME])
    assert report.registered is not None, report.refusal
    failed = [each.sentence for each in report.registered.failed_gates]
    assert failed == []
    _, before = decided()
    assert model_of(before) == ""
    by_past = scored(before)
    assert max(by_past.values()) < 1.5 * min(by_past.values())  # past runs know no loads
    assert promoted() == [ModelState.SHADOW]
    assert model_of(decided()[1]) == ""  # a shadow has no effect
    lab_runs(55, slowed_by_load)
    assert any("in 55 cycles" in each for each in watched())
    assert promoted() == [ModelState.ACTIVE]
    chosen, explanation = decided()
    assert chosen == IDLE
    assert model_of(explanation) == "run_time/1"
    assert scored(explanation)[BUSY] > 2.0 * scored(explanation)[IDLE]
    lab_runs(50, quickened_by_load)
    assert any(each.startswith("rolled back: ") for each in watched())
    _, after = decided()
    assert model_of(after) == ""
    with store.read() as uow:
        states = [
            each.data["state"]
            for each in uow.log.events(after=0, limit=100_000)
            if each.kind == "model.state"
        ]
        assert uow.models.get(ModelKind.RUN_TIME, 1).state is ModelState.RETIRED
    assert states == ["candidate", "shadow", "active", "retired"]
    store.close()
