"""Train models of outcomes from the store's ended attempts, and register them as candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from edgeyard.errors import ConfigError, Conflict, InvalidInput
from edgeyard.scheduler.engine.active_models import ActiveModels
from edgeyard.scheduler.engine.registered_models import load_registered, register
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.learning.active import load_active
from edgeyard.scheduler.learning.features import features_version
from edgeyard.scheduler.learning.manifest import parse_manifest
from edgeyard.scheduler.learning.model import Model, model_of_content
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import (
    Gate,
    ModelKind,
    ModelState,
    RegisteredModel,
)
from edgeyard.scheduler.outcomes.gates import (
    TARGETS,
    measure_gates,
    monotone_gate,
    predict_loaded,
    split_by_time,
)
from edgeyard.scheduler.outcomes.models import varying_inputs
from edgeyard.scheduler.outcomes.replay import (
    REPLAYED_KINDS,
    recorded_days,
    replay_gate,
    unmeasured,
)
from edgeyard.scheduler.outcomes.rows import OutcomeRows
from edgeyard.scheduler.ports import Store, UnitOfWork

MIN_RUNS = 100
"""Minimum number of ended attempts to train a model."""

MIN_BOARDS = 4
MIN_FAILURES = 10
"""Minimum number of failures, and of results; likewise of numbers that are not comparable."""

_MAX_DIFFERENCE = 1e-3
"""Maximum difference of the fitted model and its float32 file, in ln seconds or as a chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """The result of a training.

    Attributes:
        registered: The new candidate; None: there is none.
        refusal: Why there is none; "" where there is one.
    """

    kind: ModelKind
    registered: RegisteredModel | None = None
    refusal: str = ""


def learn_outcomes(
    store: Store,
    rows: OutcomeRows,
    now: datetime,
    *,
    kinds: Sequence[ModelKind] = tuple(ModelKind),
    registry: Registry | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> list[TrainingReport]:
    """Train one model of each kind and register those that could be trained.

    Each is registered in one transaction at its end: a training that is killed leaves nothing.

    Args:
        store: Of the server.
        rows: From `edgeyard.scheduler.outcomes.rows.read_outcome_rows`.
        now: By the server's clock.
        kinds: Of models.
        registry: Of the plugins that decide where recorded days are replayed; None: the gate
            ``replay`` is not measured.
        report: Called with the progress in words.
    """
    return [_learn(store, kind, rows, now, registry, report) for kind in kinds]


def refusal_of(kind: ModelKind, rows: OutcomeRows) -> str:
    """Return why nothing can be learned from these rows; "" where it can.

    Args:
        kind: Of the model.
        rows: All of them, usable or not.
    """
    target = TARGETS[kind]
    usable = target.rows(rows)
    hint = ", ".join(f"{count} {why}" for why, count in rows.left_out.items())
    tail = f"; left out: {hint}" if hint else ""
    unusable = len(rows) - len(usable)
    if unusable:
        tail += f"; {unusable} {target.unusable}"
    if not len(usable):
        return f"there are no ended runs to learn from{tail}"
    if len(usable) < MIN_RUNS:
        return f"{len(usable)} runs have ended, and {MIN_RUNS} are needed{tail}"
    boards = len(np.unique(usable.boards))
    if boards < MIN_BOARDS:
        return (
            f"all runs are of {boards} board{'s' * (boards != 1)}, and {MIN_BOARDS} are needed: "
            f"nothing could be judged on other boards{tail}"
        )
    if target.struck is not None:
        struck = int(target.struck(usable).any(axis=1).sum())
        if min(struck, len(usable) - struck) < MIN_FAILURES:
            return (
                f"{struck} of {len(usable)} runs {target.events}, and at least {MIN_FAILURES} that "
                f"did and as many that did not are needed{tail}"
            )
    if not varying_inputs(usable, target.columns):
        return (
            "no feature varies (" + ", ".join(target.columns) + "): there is nothing to learn "
            f"beyond the history{tail}"
        )
    return ""


def _learn(
    store: Store,
    kind: ModelKind,
    rows: OutcomeRows,
    now: datetime,
    registry: Registry | None,
    report: Callable[[str], None],
) -> TrainingReport:
    refusal = refusal_of(kind, rows)
    if refusal:
        return TrainingReport(kind=kind, refusal=refusal)
    usable = TARGETS[kind].rows(rows)
    digest = usable.digest
    with store.read() as uow:
        known = uow.models.all(kind)
        same = next((each for each in known if each.data.get("sha256") == digest), None)
        active, active_until_s, problem = _active_model(uow, known)
    if same is not None:
        return TrainingReport(kind=kind, refusal=_nothing_new(same))
    report(f"{kind.value}: judging on held-out times and boards, {len(usable)} runs")
    gates, metrics = measure_gates(kind, usable, active, active_until_s)
    if registry is not None and kind in REPLAYED_KINDS:
        report(f"{kind.value}: replaying recorded days")
        gates = (*gates, _replayed(store, kind, usable, rows, active_until_s, registry))
    report(f"{kind.value}: training on all {len(usable)} runs")
    content, manifest, loaded = _train(kind, usable)
    if TARGETS[kind].struck is not None:
        gates = (*gates, monotone_gate(loaded))
    data = {
        "sha256": digest,
        "rows": len(usable),
        "boards": len(np.unique(usable.boards)),
        "users": len(np.unique(usable.users)),
        "first_outcome": int(usable.seqs.min()),
        "last_outcome": int(usable.seqs.max()),
        "first_decision_s": float(usable.decided_s.min()),
        "last_decision_s": float(usable.decided_s.max()),
        "left_out": dict(rows.left_out),
    }
    parsed = parse_manifest(manifest)
    model = RegisteredModel(
        kind=kind,
        sha256=parsed.sha256,
        manifest=manifest,
        features=features_version(each.column for each in parsed.inputs),
        data=data,
        metrics=metrics,
        gates=gates,
        card=_card(kind, data, gates, problem),
        created_at=now,
        state_at=now,
        reason="trained",
    )

    def register_once(uow: UnitOfWork) -> RegisteredModel:
        """Register the model, unless another training registered one of the same runs meanwhile."""
        stored = register(uow, model, content)  # others wait from here on
        for other in uow.models.all(kind):
            if other.version != stored.version and other.data.get("sha256") == digest:
                raise Conflict(_nothing_new(other))
        return stored

    try:
        return TrainingReport(kind=kind, registered=store.transact(register_once))
    except Conflict as error:
        return TrainingReport(kind=kind, refusal=str(error))


def _replayed(
    store: Store,
    kind: ModelKind,
    usable: OutcomeRows,
    rows: OutcomeRows,
    active_until_s: float,
    registry: Registry,
) -> Gate:
    """Measure the gate ``replay``: of a model fitted to what had ended before the days."""
    past, later = split_by_time(usable)
    if not len(past) or not len(later):
        return unmeasured("nothing had ended before the newest decisions")
    from_s = float(later.decided_s.min())
    new = rows.only((rows.decided_s >= from_s) & (rows.decided_s > active_until_s))
    target = TARGETS[kind]
    content, manifest = target.files(target.fit(past), f"{len(past)} runs")
    fitted = ActiveModel(kind=kind, version=0, manifest=manifest, content=content)
    load_active(fitted)  # one that can't be used would leave the decisions to past runs
    models = ActiveModels(store)
    models.refresh()
    active = tuple(each for each in models.current if not each.problem)
    candidate = (fitted, *(each for each in active if each.kind is not kind))
    try:
        days = recorded_days(store, new)
    except InvalidInput as error:
        return unmeasured(f"the days can't be replayed: {error}")
    return replay_gate(days, registry, candidate, active)


def _nothing_new(known: RegisteredModel) -> str:
    return f"nothing new has ended since {known.reference} was trained"


def _active_model(
    uow: UnitOfWork, known: Sequence[RegisteredModel]
) -> tuple[Model | None, float, str]:
    """Return the active model of a kind, loaded; until when it learned; why it can't be loaded."""
    for each in known:
        if each.state is ModelState.ACTIVE:
            try:
                until_s = float(str(each.data.get("last_decision_s", "-inf")))
                return load_registered(uow, each), until_s, ""
            except ConfigError as error:
                return None, -np.inf, "; ".join(error.problems)
    return None, -np.inf, ""


def _train(kind: ModelKind, rows: OutcomeRows) -> tuple[bytes, str, Model]:
    """Fit, write and load a model; its file must predict what was fitted.

    Raises:
        ConfigError: It does not.
    """
    target = TARGETS[kind]
    model = target.fit(rows)
    words = f"{len(rows)} runs on {len(np.unique(rows.boards))} boards"
    content, manifest = target.files(model, words)
    fitted = model.predict(rows)
    loaded = model_of_content(manifest, content, f"the trained model of {kind.value}")
    difference = float(np.abs(predict_loaded(loaded, rows) - fitted).max())
    if not difference <= _MAX_DIFFERENCE:
        raise ConfigError(
            [
                f"the ONNX file of {kind.value} differs from the fitted model by up to "
                f"{difference:.2g}"
            ]
        )
    return content, manifest, loaded


def _card(kind: ModelKind, data: dict[str, object], gates: Sequence[Gate], problem: str) -> str:
    """Return the model card as Markdown."""
    lines = [
        f"# {kind.value}",
        "",
        f"Predicts {TARGETS[kind].form}.",
        "",
        f"Trained on {data['rows']} ended runs of {data['users']} users on {data['boards']} boards "
        f"(outcomes {data['first_outcome']} to {data['last_outcome']}), with the features as they "
        "were when the runs were placed. A user counts for at most as many runs as the median one.",
        "",
        "| gate | holds | figure |",
        "| --- | --- | --- |",
        *(
            f"| {each.name} | {'yes' if each.passed else 'no'} | {each.sentence} |"
            for each in gates
        ),
        "",
        "Limits: it knows boards only by their columns and their past, and nothing of what no run "
        "of this lab has shown.",
    ]
    if problem:
        lines += ["", f"The active model could not be compared: {problem}"]
    return "\n".join([*lines, ""])
