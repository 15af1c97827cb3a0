"""Watch registered models: measure the shadow, and roll back an active one that has become worse.

Both are judged on the runs that were placed since they have their state and have ended, against the
history on the same runs, with the features of the decisions. Nothing of this is in the way of a
decision: it reads what was recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from edgeyard.errors import ConfigError, Conflict
from edgeyard.scheduler.engine.registered_models import (
    SHADOW_GATE,
    file_problem,
    load_registered,
    record_gate,
    roll_back,
)
from edgeyard.scheduler.model.history import EPOCH
from edgeyard.scheduler.model.registered_models import Gate, ModelState, RegisteredModel
from edgeyard.scheduler.outcomes.gates import (
    MAX_COVERAGE_LOSS,
    TARGETS,
    PredictionFigures,
    compare,
    predict_loaded,
)
from edgeyard.scheduler.outcomes.rows import OutcomeRows
from edgeyard.scheduler.ports import Store

logger = logging.getLogger(__name__)

MIN_SHADOW_CYCLES = 50
"""Cycles whose runs the shadow predicted before it may become active."""

MAX_WATCHED_RUNS = 300
"""The newest runs by which an active model is judged: its rolling loss."""

MIN_COVERAGE_RUNS = 100
"""Minimum number of runs of a measured share; fewer may err by `MAX_COVERAGE_LOSS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """What was found of a model in use.

    Attributes:
        model: As it is afterwards.
        sentence: For people.
    """

    model: RegisteredModel
    sentence: str


def watch_models(
    store: Store,
    rows: OutcomeRows,
    now: datetime,
    *,
    min_cycles: int = MIN_SHADOW_CYCLES,
) -> Sequence[WatchReport]:
    """Measure shadows and active models; roll back what is worse than the history.

    Args:
        store: Of the server.
        rows: From `edgeyard.scheduler.outcomes.rows.read_outcome_rows`.
        now: By the server's clock.
        min_cycles: Cycles for which a model has to be the shadow before it can be promoted.
    """
    with store.read() as uow:
        shadows = uow.models.in_state(ModelState.SHADOW)
        active = uow.models.in_state(ModelState.ACTIVE)
    return [
        *(_watch(store, each, rows, now) for each in active),
        *(_measure_shadow(store, each, rows, min_cycles) for each in shadows),
    ]


def _measure_shadow(
    store: Store, model: RegisteredModel, rows: OutcomeRows, min_cycles: int
) -> WatchReport:
    """Record the gate of the shadow: enough cycles, and not worse than the history in them."""
    mine = _since(model, rows)
    try:
        found = _judge(store, model, mine)
    except ConfigError as error:
        found, problem = None, "; ".join(error.problems)
    else:
        problem = "too few runs with past runs of their kind have ended" if found is None else ""
    cycles = _judged_cycles(model, mine)
    passed = found is not None and cycles >= min_cycles and found.difference.mean <= 0.0
    gate = Gate(
        name=SHADOW_GATE,
        passed=passed,
        figure=None if found is None else found.difference.mean,
        low=None if found is None else found.difference.low,
        high=None if found is None else found.difference.high,
        limit=0.0,
        sentence=f"not worse than the history in {min_cycles} cycles as the shadow: "
        + (problem or f"{TARGETS[model.kind].unit} {found and found.difference} against it")
        + f", in {cycles} cycles",
    )
    if found is None and any(
        each.name == SHADOW_GATE and each.figure is not None for each in model.gates
    ):  # what was measured before stays, for example where fewer cycles are read now
        return WatchReport(model=model, sentence=gate.sentence)
    saved = store.transact(lambda uow: record_gate(uow, model, gate))
    return WatchReport(model=saved, sentence=gate.sentence)


def _watch(store: Store, model: RegisteredModel, rows: OutcomeRows, now: datetime) -> WatchReport:
    """Roll back an active model whose file is refused, or that is worse than the history."""
    mine = _since(model, rows)
    mine = mine.only(np.arange(len(mine))[-MAX_WATCHED_RUNS:])
    with store.read() as uow:
        why = file_problem(uow, model)
    found = None
    if not why:
        try:
            found = _judge(store, model, mine)
        except ConfigError as error:  # perhaps of this process's limits: no reason to roll back
            sentence = f"could not be tried: {'; '.join(error.problems)}"
            return WatchReport(model=model, sentence=sentence)
        why = "" if found is None else reason_to_roll_back(found)
    if not why:
        sentence = (
            "too few runs have ended since it became active"
            if found is None
            else f"{TARGETS[model.kind].unit} {found.difference} against the history"
        )
        return WatchReport(model=model, sentence=sentence)
    try:
        retired, _ = store.transact(
            lambda uow: roll_back(
                uow, model.kind, now, by_user_id="", reason=why, version=model.version
            )
        )
    except Conflict:  # an operator was first
        return WatchReport(model=model, sentence="is no longer active")
    logger.warning(
        "model rolled back",
        extra={"event": "model.rolled_back", "model": model.reference, "why": why},
    )
    return WatchReport(model=retired, sentence=retired.reason)


def reason_to_roll_back(found: PredictionFigures) -> str:
    """Return why a model is to be rolled back; "" where it is not."""
    if found.difference.low > 0.0:
        return f"its loss on {found.rows} runs is higher than the history's by {found.difference}"
    error = 0.0 if found.calibration is None else found.calibration.mean
    others = 0.0 if found.other_calibration is None else found.other_calibration.mean
    enough = found.rows >= MIN_COVERAGE_RUNS
    if enough and abs(error) > max(MAX_COVERAGE_LOSS, abs(others)):
        return (
            f"the share that it predicted for {found.rows} runs is off by "
            f"{100 * error:+.1f} percentage points, that of the history by {100 * others:+.1f}"
        )
    return ""


def _judge(store: Store, model: RegisteredModel, rows: OutcomeRows) -> PredictionFigures | None:
    target = TARGETS[model.kind]
    with store.read() as uow:
        loaded = load_registered(uow, model)
    if not len(rows):
        return None
    return compare(target, rows, predict_loaded(loaded, rows), target.history(rows))


def _judged_cycles(model: RegisteredModel, rows: OutcomeRows) -> int:
    """Return in how many cycles there are runs that the history knows, which alone are judged."""
    known = np.isfinite(TARGETS[model.kind].history(rows))
    return len(np.unique(rows.cycles[known if known.ndim == 1 else known.all(axis=1)]))


def _since(model: RegisteredModel, rows: OutcomeRows) -> OutcomeRows:
    """Return the usable runs that were placed since a model has its state."""
    usable = TARGETS[model.kind].rows(rows)
    return usable.only(usable.decided_s >= (model.state_at - EPOCH).total_seconds())
