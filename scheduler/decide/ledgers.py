"""What users may still get in this cycle: the ledgers of all filters that bound users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Ledger, UserFilter
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import WaitReason


class Ledgers:
    """The ledgers of one cycle. They are asked before each placement, in the order of the queue."""

    def __init__(self, ledgers: Sequence[Ledger] = ()) -> None:
        self._ledgers = tuple(ledgers)

    def __bool__(self) -> bool:
        """Return whether any user is bounded."""
        return bool(self._ledgers)

    def refusal(self, job: int) -> WaitReason | None:
        """Return why this benchmark gets no board now, whichever is free; None: it may have one."""
        for ledger in self._ledgers:
            waiting = ledger.refusal(job)
            if waiting is not None:
                return waiting
        return None

    def place(self, job: int) -> None:
        """Note that a benchmark got a board."""
        for ledger in self._ledgers:
            ledger.place(job)

    def refusal_together(self, jobs: Sequence[int]) -> WaitReason | None:
        """Return why these benchmarks may not all get boards now; None: they may."""
        placed: list[int] = []
        refused = None
        for job in jobs:
            refused = self.refusal(job)
            if refused is not None:
                break
            self.place(job)
            placed.append(job)
        for job in placed:
            for ledger in self._ledgers:
                ledger.withdraw(job)
        return refused


def open_ledgers(batch: Batch, filters: Sequence[Filter], runner: PluginRunner) -> Ledgers:
    """Return new ledgers of all filters that bound users."""
    found = (
        runner.ledger(cast(UserFilter, each), batch)
        for each in filters
        if hasattr(each, "ledger")  # what else the protocol requires, every filter has
    )
    return Ledgers([each for each in found if each is not None])
