"""Answers to repeated requests: one idempotency key, one effect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.services import Services
from edgeyard.errors import Conflict
from edgeyard.scheduler.ports import UnitOfWork

T = TypeVar("T", bound=shapes.SubmissionAnswer | shapes.AcceptedCampaign | shapes.StoredCheck)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """What was accepted.

    Attributes:
        answer: What is reported of it.
        is_replayed: An earlier request with the same key had the effect, and this one has none.
    """

    answer: T
    is_replayed: bool = False


class IdempotencyGuard(Generic[T]):
    """One POST's idempotency key: the same key and body get the same answer."""

    def __init__(
        self, shape: type[T], key: str | None, user_id: str, data: bytes, what: str
    ) -> None:
        self._shape = shape
        self._key = key
        self._user_id = user_id
        self._sha256 = hashlib.sha256(what.encode() + b"\0" + data).hexdigest()

    def earlier(self, services: Services) -> Accepted[T] | None:
        """Return the answer that was given before, if it was.

        Raises:
            Conflict: The key came with another body.
        """
        if self._key is None:
            return None
        with services.store.read() as uow:
            return self.earlier_in(uow)

    def earlier_in(self, uow: UnitOfWork) -> Accepted[T] | None:
        """Return the same as `earlier`, within a unit of work."""
        if self._key is None:
            return None
        known = uow.log.answer(self._key, self._user_id)
        if known is None:
            return None
        if known[0] != self._sha256:
            raise Conflict(
                "this Idempotency-Key was sent with another request before: send a new key"
            )
        return Accepted(msgspec.convert(known[1], self._shape), is_replayed=True)

    def remember(self, uow: UnitOfWork, accepted: T) -> None:
        """Store the answer, in the transaction that did what it reports."""
        if self._key is not None:
            stored = msgspec.to_builtins(accepted)
            uow.log.put_answer(self._key, self._user_id, self._sha256, stored)
