"""The repository of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from edgeyard.scheduler.model.event import Event


class Log(Protocol):
    """Events, decisions, and small facts that outlive a restart."""

    def append(self, event: Event) -> None:
        """Numbered when the unit of work commits."""
        ...

    def events(self, *, after: int, limit: int, benchmark_id: str | None = None) -> Sequence[Event]:
        """In order of ``seq``."""
        ...

    def last_seq(self) -> int: ...

    def put_answer(
        self, key: str, user_id: str, body_sha256: str, answer: Mapping[str, object]
    ) -> None:
        """Keep an answer under an idempotency key."""
        ...

    def answer(self, key: str, user_id: str) -> tuple[str, Mapping[str, object]] | None:
        """Hash of the body and the answer, if the key was used (within a day)."""
        ...
