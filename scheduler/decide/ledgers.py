"""What users may still get in this cycle: the ledgers of all filters that bound users."""

from __future__ import annotations

from collections.abc import Sequence

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Ledger, UserFilter
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import WaitReason


class Ledgers:
    """Of one cycle. Whoever gives boards out asks before each, in the order of the queue."""

    def __init__(self, ledgers: Sequence[Ledger] = ()) -> None:
        self._ledgers = tuple(ledgers)

    def __bool__(self) -> bool:
        """Anybody is bounded."""
        return bool(self._ledgers)

    def refusal(self, job: int) -> WaitReason | None:
        """Why this benchmark gets no board now, whichever is free; None: it may."""
        for ledger in self._ledgers:
            waiting = ledger.refusal(job)
            if waiting is not None:
                return waiting
        return None

    def place(self, job: int) -> None:
        """It got a board."""
        for ledger in self._ledgers:
            ledger.place(job)


def open_ledgers(batch: Batch, filters: Sequence[Filter], runner: PluginRunner) -> Ledgers:
    """New ones, of all filters that bound users."""
    found = (
        runner.ledger(each, batch)
        for each in filters
        # To look a protocol up takes long: most are not asked.
        if hasattr(each, "ledger") and isinstance(each, UserFilter)
    )
    return Ledgers([each for each in found if each is not None])
