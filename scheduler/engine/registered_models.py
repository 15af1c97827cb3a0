"""Registered models: load, promote and roll back; every change is an event in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import takewhile

from edgeyard.errors import ConfigError, Conflict
from edgeyard.scheduler.learning.manifest import parse_manifest
from edgeyard.scheduler.learning.model import Model, model_of_content
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.registered_models import Gate, ModelKind, ModelState, RegisteredModel
from edgeyard.scheduler.ports import Store, UnitOfWork

logger = logging.getLogger(__name__)

SHADOW_GATE = "shadow"
"""The gate that is measured while a version is the shadow."""

SHADOW_PATIENCE = timedelta(days=7)
"""For so long a shadow may lack runs, or be worse than the history, before a newer candidate
replaces it: a week has all of a lab's hours and days. At once it would never get its cycles where
trainings are more frequent."""


def load_registered(uow: UnitOfWork, model: RegisteredModel) -> Model:
    """Check and load a registered model.

    Raises:
        ConfigError: Its file is missing or was replaced, its columns compute something else now,
            or it can't be used.
    """
    return model_of_content(model.manifest, uow.models.content(model), f"model {model.reference}")


def file_problem(uow: UnitOfWork, model: RegisteredModel) -> str:
    """Return why file or columns of a registered model can't be used any more; "": they can.

    Unlike `load_registered` it tries nothing out, so that a busy machine is no reason.
    """
    try:
        uow.models.content(model)
        parse_manifest(model.manifest, source=f"model {model.reference}")
    except ConfigError as error:
        return "; ".join(error.problems)
    return ""


def register(uow: UnitOfWork, model: RegisteredModel, content: bytes) -> RegisteredModel:
    """Store a trained model as a candidate; return it with its version."""
    stored = uow.models.add(model, content)
    _log(uow, stored, stored.state_at)
    return stored


def promote(
    uow: UnitOfWork,
    kind: ModelKind,
    version: int,
    now: datetime,
    *,
    by_user_id: str,
    force: bool = False,
) -> RegisteredModel:
    """Make a candidate the shadow, or the shadow active; what it replaces is retired.

    Args:
        kind: Of the model.
        version: To be promoted.
        now: By the server's clock.
        by_user_id: Who wants it; "": Edgeyard itself.
        force: Although a gate does not hold.

    Raises:
        NotFound: There is no such version.
        Conflict: It is neither a candidate nor the shadow, or a gate does not hold.
    """
    model = uow.models.get(kind, version)
    if model.state not in (ModelState.CANDIDATE, ModelState.SHADOW):
        raise Conflict(
            f"model {model.reference} is {model.state.value}: only candidates and the shadow are "
            "promoted"
        )
    failed = [f"{each.name} ({each.sentence})" for each in model.failed_gates]
    if model.state is ModelState.SHADOW and not _is_measured(model):
        failed.append(f"{SHADOW_GATE} (not measured yet)")
    if failed and not force:
        raise Conflict(
            f"model {model.reference} can't be promoted: {'; '.join(failed)}; use --force to "
            "promote it all the same"
        )
    goal = ModelState.SHADOW if model.state is ModelState.CANDIDATE else ModelState.ACTIVE
    replaced = None
    for other in uow.models.in_state(goal):
        if other.kind is kind:
            replaced = other.version
            _save(uow, other, ModelState.RETIRED, now, by_user_id, f"replaced by {model.reference}")
    reason = "promoted" + (f" although {', '.join(failed)}" if failed else "")
    if goal is ModelState.ACTIVE:
        model = replace(model, activated_at=now, replaced=replaced)
    return _save(uow, model, goal, now, by_user_id, reason)


class PromotionMode(StrEnum):
    """What happens to models whose gates hold, without an operator."""

    AUTO = "auto"  # candidates become the shadow, shadows become active
    ASK = "ask"  # candidates become the shadow; shadows wait for an operator, who is notified
    NEVER = "never"  # nothing: operators promote


def promote_due(store: Store, mode: PromotionMode, now: datetime) -> Sequence[RegisteredModel]:
    """Promote the models whose gates hold, by Edgeyard itself; return those that changed.

    The newest candidate of a kind becomes the shadow where there is none, or where the shadow is
    older and `is_stuck`, unless a newer version was in use before. A shadow becomes active, or is
    reported as ready in one event, once its gate was measured and holds. A file that was replaced
    is not promoted.

    Args:
        store: Of the server.
        mode: From the settings.
        now: By the server's clock.
    """
    if mode is PromotionMode.NEVER:
        return []
    changed = []
    for kind in ModelKind:
        with store.read() as uow:
            shadow = _of_kind(uow, kind, ModelState.SHADOW)
            chosen = shadow
            if shadow is None or is_stuck(uow, shadow, now):
                chosen = _newest_candidate(uow, kind) or shadow
            if chosen is None or file_problem(uow, chosen):
                continue
        if chosen is shadow and mode is PromotionMode.ASK:
            found = store.transact(partial(_report_ready, model=chosen, now=now))
            changed += [] if found is None else [found]
            continue
        try:
            changed.append(
                store.transact(
                    partial(promote, kind=kind, version=chosen.version, now=now, by_user_id="")
                )
            )
        except Conflict as error:  # a gate does not hold, or an operator was faster
            logger.info(
                "not promoted",
                extra={"event": "model.not_promoted", "model": chosen.reference, "why": str(error)},
            )
    return changed


def is_stuck(uow: UnitOfWork, shadow: RegisteredModel, now: datetime) -> bool:
    """Return whether a shadow will not become active, so that a newer candidate may replace it.

    Its file or columns can't be used any more, or its gates have not held for `SHADOW_PATIENCE`:
    too few runs that the history knows have ended, it is worse than the history in them, or an
    operator promoted it although a gate did not hold. One whose gates hold waits for an operator.
    """
    if file_problem(uow, shadow):
        return True
    holds = _is_measured(shadow) and not shadow.failed_gates
    # also where the clock that it was promoted by was far ahead
    return not holds and abs(now - shadow.state_at) >= SHADOW_PATIENCE


def _newest_candidate(uow: UnitOfWork, kind: ModelKind) -> RegisteredModel | None:
    """Return the newest candidate that may become the shadow; None: no newer one than in use."""
    for each in takewhile(lambda it: it.state is ModelState.CANDIDATE, uow.models.all(kind)):
        if not each.failed_gates and not file_problem(uow, each):
            return each
    return None


def _is_measured(shadow: RegisteredModel) -> bool:
    return any(each.name == SHADOW_GATE for each in shadow.gates)


READY = "ready: its gates hold, and an operator may make it active"
"""Reason of a shadow that waits for an operator."""


def _report_ready(uow: UnitOfWork, model: RegisteredModel, now: datetime) -> RegisteredModel | None:
    """Log once that a shadow may become active; None: it may not, or this was logged."""
    current = uow.models.get(model.kind, model.version)
    if (
        current.state is not ModelState.SHADOW
        or not _is_measured(current)
        or current.failed_gates
        or current.reason == READY
    ):
        return None
    ready = replace(current, reason=READY)
    uow.models.save(ready)
    _log(uow, ready, now)
    return ready


def roll_back(
    uow: UnitOfWork,
    kind: ModelKind,
    now: datetime,
    *,
    by_user_id: str,
    reason: str,
    version: int | None = None,
) -> tuple[RegisteredModel, RegisteredModel | None]:
    """Retire the active version; the one that it replaced becomes active, otherwise the history.

    A version whose file or columns can't be used any more does not become active again.

    Args:
        kind: Of the model.
        now: By the server's clock.
        by_user_id: Who wants it; "": Edgeyard itself.
        reason: Why, for people.
        version: That is meant to be active; None: whichever is.

    Returns:
        The retired version, and the one that is active now; None: the history predicts.

    Raises:
        Conflict: No version is active, or another one than ``version``.
    """
    active = _of_kind(uow, kind, ModelState.ACTIVE)
    if active is None:
        raise Conflict(f"no version of {kind.value} is active: the history predicts already")
    if version not in (None, active.version):
        raise Conflict(f"model {active.reference} is active, not version {version}")
    before = None if active.replaced is None else uow.models.get(kind, active.replaced)
    problem = "" if before is None else file_problem(uow, before)
    if problem:
        reason = f"{reason}; the history predicts, since {problem}"
        before = None
    retired = _save(uow, active, ModelState.RETIRED, now, by_user_id, f"rolled back: {reason}")
    if before is None:
        return retired, None
    again = replace(before, activated_at=now)
    why = f"rolled back from {active.reference}"
    return retired, _save(uow, again, ModelState.ACTIVE, now, by_user_id, why)


def record_gate(uow: UnitOfWork, model: RegisteredModel, gate: Gate) -> RegisteredModel:
    """Store the newest figure of a gate; the model keeps its state, which may have changed."""
    current = uow.models.get(model.kind, model.version)
    others = tuple(each for each in current.gates if each.name != gate.name)
    changed = replace(current, gates=(*others, gate))
    uow.models.save(changed)
    return changed


def _of_kind(uow: UnitOfWork, kind: ModelKind, state: ModelState) -> RegisteredModel | None:
    return next((each for each in uow.models.in_state(state) if each.kind is kind), None)


def _save(
    uow: UnitOfWork,
    model: RegisteredModel,
    state: ModelState,
    now: datetime,
    by_user_id: str,
    reason: str,
) -> RegisteredModel:
    changed = replace(model, state=state, state_at=now, by_user_id=by_user_id, reason=reason)
    uow.models.save(changed)
    _log(uow, changed, now, before=model.state)
    return changed


def _log(
    uow: UnitOfWork, model: RegisteredModel, at: datetime, *, before: ModelState | None = None
) -> None:
    moved = (
        {"before": {"state": before.value}, "after": {"state": model.state.value}}
        if before is not None and before is not model.state
        else {}
    )
    uow.log.append(
        Event(
            at=at,
            kind="model.state",
            user_id=model.by_user_id or None,
            data={
                "model": model.reference,
                "state": model.state.value,
                "reason": model.reason,
                "failed_gates": [each.name for each in model.failed_gates],
                **moved,
            },
        )
    )
