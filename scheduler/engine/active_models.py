"""The active registered models of a server, checked and loaded before a decision needs them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from edgeyard.errors import ConfigError
from edgeyard.scheduler.learning.active import load_active
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import ModelState, RegisteredModel
from edgeyard.scheduler.ports import Store, UnitOfWork

logger = logging.getLogger(__name__)

REFRESH_S = 5.0
"""Between two looks at the registry: so long a promotion or a roll-back takes to have an effect."""


class ActiveModels:
    """`refresh` on one thread; `current` on any, at no cost.

    Attributes:
        current: The active models, one a kind at most, as decisions know them; the same object
            until something changes. One whose file was replaced or can't be used states so.
    """

    def __init__(self, store: Store) -> None:
        """Read nothing before the first refresh: until then the history predicts."""
        self._store = store
        self.current: tuple[ActiveModel, ...] = ()

    def refresh(self) -> None:
        """Read the registry again, and check and load what is new; this may take seconds.

        The file of each version is read and compared with its hash each time.
        """
        with self._store.read() as uow:
            read = [_read(uow, each) for each in uow.models.in_state(ModelState.ACTIVE)]
        self._use([_loaded(each) for each in read])

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
        return ActiveModel(
            kind=model.kind,
            version=model.version,
            manifest=model.manifest,
            content=b"",
            problem="; ".join(error.problems),
        )
    return model
