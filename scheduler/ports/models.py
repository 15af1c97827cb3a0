"""The repository of models that were trained from the lab's own history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeyard.scheduler.model.registered_models import ModelKind, ModelState, RegisteredModel


class Models(Protocol):
    """Stores models in versions, with the content of their files."""

    def add(self, model: RegisteredModel, content: bytes) -> RegisteredModel:
        """Store a new version; return it with its number, the next of its kind.

        Args:
            model: Its ``version`` is assigned.
            content: Of its ONNX file, whose SHA-256 the model states.
        """
        ...

    def get(self, kind: ModelKind, version: int) -> RegisteredModel:
        """Return one version.

        Raises:
            NotFound: There is none.
        """
        ...

    def all(self, kind: ModelKind | None = None) -> Sequence[RegisteredModel]:
        """Return all versions, by kind and then newest first."""
        ...

    def in_state(self, state: ModelState) -> Sequence[RegisteredModel]:
        """Return the versions in this state, by kind."""
        ...

    def content(self, model: RegisteredModel) -> bytes:
        """Return the content of a version's file.

        Raises:
            ConfigError: The stored content is missing, or has another SHA-256.
        """
        ...

    def save(self, model: RegisteredModel) -> None:
        """Store the changed state of a version.

        Raises:
            NotFound: It was never stored.
            Conflict: `MODEL_MOVES` does not allow the change, or another version of its kind is in
                this state, of which there is one at a time (active, shadow).
        """
        ...
