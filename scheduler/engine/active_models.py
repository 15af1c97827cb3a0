"""The active registered models of a server, checked and loaded before a decision needs them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.learning.active import load_active
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import ModelKind, ModelState, RegisteredModel
from edgeyard.scheduler.ports import Store, UnitOfWork

logger = logging.getLogger(__name__)

REFRESH_S = 5.0
"""Interval between reads of the registry: the maximum delay of a promotion or a roll-back."""


RETRY_S = 300.0
"""Until a model that could not be used is tried out again: a trial takes seconds of a core."""


class ActiveModels:
    """`refresh` on one thread at a time; `current` on any, at no cost.

    Attributes:
        current: The active models, at most one per kind, as decisions know them; the same object
            until something changes. One whose file was replaced or can't be used states so.
    """

    def __init__(self, store: Store, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """Read nothing before the first refresh: until then the history predicts."""
        self._store, self._monotonic_s = store, monotonic_s
        self._unusable: dict[ActiveModel, tuple[float, ActiveModel]] = {}
        self.current: tuple[ActiveModel, ...] = ()

    def refresh(self) -> None:
        """Read the registry again, and check and load what is new; this may take seconds.

        The file of each version is read and compared with its hash each time. One that could not be
        used although its file is right is tried out again after `RETRY_S`.
        """
        with self._store.read() as uow:
            read = [_read(uow, each) for each in uow.models.in_state(ModelState.ACTIVE)]
        now_s = self._monotonic_s()
        known = {
            model: (since_s, unusable)
            for model, (since_s, unusable) in self._unusable.items()
            if model in read and now_s - since_s < RETRY_S
        }
        found = []
        for model in read:
            loaded = known[model][1] if model in known else _loaded(model)
            if loaded.problem and not model.problem:
                known.setdefault(model, (now_s, loaded))
            found.append(loaded)
        self._unusable = known
        self._use(found)

    def _use(self, found: Sequence[ActiveModel]) -> None:
        if tuple(found) == self.current:
            return
        before = set(self.current)
        for each in found:
            if each in before:
                continue
            if each.problem:
                logger.error(
                    "an active model can't be used: the history predicts",
                    extra={
                        "event": "model.unusable",
                        "model": each.reference,
                        "reason": each.problem,
                    },
                )
            else:
                logger.info(
                    "model in use", extra={"event": "model.active", "model": each.reference}
                )
        self.current = tuple(found)


ALL_ACTIVE = "active"
"""What `named_models` takes for all active models."""


def named_models(store: Store, names: Sequence[str]) -> tuple[ActiveModel, ...]:
    """Return registered models by their names, checked and loaded, for a simulation.

    Args:
        store: Of the server; it is only read.
        names: Such as ``run_time/3``, whatever its state; or `ALL_ACTIVE`.

    Raises:
        InvalidInput: There is no such model, or two are of one kind; names ``--model``.
        ConfigError: One can't be used, and why.
    """
    found: dict[ModelKind, ActiveModel] = {}
    with store.read() as uow:
        for name in names:
            if name == ALL_ACTIVE:
                chosen = [*uow.models.in_state(ModelState.ACTIVE)]
                missing = "no model is active"
            else:
                chosen = [
                    each for kind in ModelKind for each in uow.models.all(kind)
                    if each.reference == name
                ]  # fmt: skip
                missing = f"there is no model {name!r}"
            if not chosen:
                known = [each.reference for kind in ModelKind for each in uow.models.all(kind)]
                raise InvalidInput.at("--model", missing, ", ".join([*known, ALL_ACTIVE]))
            for each in chosen:
                if each.kind in found:
                    reason = f"names two models of {each.kind.value}"
                    raise InvalidInput.at("--model", reason, "one of each kind")
                found[each.kind] = _read(uow, each)
    loaded = tuple(_loaded(each) for each in found.values())
    problems = [each.problem for each in loaded if each.problem]
    if problems:
        raise ConfigError(problems)
    return loaded


def _read(uow: UnitOfWork, model: RegisteredModel) -> ActiveModel:
    content, problem = b"", ""
    try:
        content = uow.models.content(model)
    except ConfigError as error:
        problem = "; ".join(error.problems)
    return ActiveModel(
        kind=model.kind,
        version=model.version,
        manifest=model.manifest,
        content=content,
        problem=problem,
    )


def _loaded(model: ActiveModel) -> ActiveModel:
    if model.problem:
        return model
    try:
        load_active(model)
    except ConfigError as error:
        problem = "; ".join(error.problems)
    except ModuleNotFoundError as error:
        problem = f"model {model.reference} needs {error.name}, which this server has not installed"
    else:
        return model
    return replace(model, content=b"", problem=problem)
