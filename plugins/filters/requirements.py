"""The wishes of a job description that a board meets, or never will: one filter for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.sizes import size_text
from edgeyard.scheduler.framework.batch import (
    Batch,
    by_value,
    exceeds,
    has_engine,
    is_board,
    lacks_declaration,
    other_families,
    supports,
)
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.model.benchmark import WaitingReason

_Boards = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One wish, how boards are compared with it, and how a refusal is explained.

    Attributes:
        name: Name of the filter.
        reason: Code of a refusal.
        misses: Returns which boards miss the wish: shape (classes, boards), or (1, boards) where
            it is the same for all classes.
        wish: Returns the wish of a class, for people.
        offer: Returns what one board offers instead, for people.
        accepted: Returns which wishes these boards would meet; None where no sentence helps.
        phrase: Describes a refused board, after its name; may use ``{wish}`` and ``{offer}``.
        infeasible: States that no board meets the wish; may use ``{wish}``, ``{accepted}`` and
            ``{family}``, the family of the class.
    """

    name: str
    reason: WaitingReason
    misses: Callable[[Batch], NDArray[np.bool_]]
    wish: Callable[[Batch, int], str]
    offer: Callable[[Batch, int], str] = lambda batch, board: ""
    accepted: Callable[[Batch, int, _Boards], str | None] = lambda batch, row, boards: ""
    phrase: str
    infeasible: str


def _listed(names: Iterable[str], empty: str) -> str:
    return ", ".join(sorted(names)) or empty


def _known_families(batch: Batch, row: int, boards: _Boards) -> str | None:
    """Return the families of expected boards; None if that of the class is one of them."""
    snapshot = batch.snapshot
    expected = {snapshot.families[board] for board in np.flatnonzero(snapshot.expected).tolist()}
    return None if batch.families[row] in expected else _listed(expected, "none")


def _engines(batch: Batch, row: int, boards: _Boards) -> str:
    engines = batch.snapshot.engines.items()
    return _listed((name for name, column in engines if column[boards].any()), "none")


def _missing_declarations(batch: Batch) -> NDArray[np.bool_]:
    if not batch.snapshot.undeclared:  # mostly
        return np.zeros((1, batch.shape[1]), dtype=np.bool_)
    return by_value(
        batch,
        tuple(zip(batch.engines, batch.types, strict=True)),
        lambda pair: lacks_declaration(batch, *pair),
    )


def _types(batch: Batch, row: int, boards: _Boards) -> str:
    supported = (
        kind
        for (engine, kind), column in batch.snapshot.offers.items()
        if engine == batch.engines[row] and column[boards].any()
    )
    return _listed(supported, "nothing")


REQUIREMENTS = (
    Requirement(
        name="family",
        reason=WaitingReason.NO_SUCH_FAMILY,
        misses=other_families,
        wish=lambda batch, row: batch.families[row],
        offer=lambda batch, board: batch.snapshot.families[board],
        accepted=_known_families,
        phrase="is of family {offer}, not {wish}",
        infeasible="no board of family {wish} is known; known families: {accepted}",
    ),
    Requirement(
        name="engine",
        reason=WaitingReason.ENGINE_MISSING,
        misses=lambda batch: by_value(
            batch, batch.engines, lambda engine: ~has_engine(batch, engine)
        ),
        wish=lambda batch, row: batch.engines[row],
        accepted=_engines,
        phrase="has no engine {wish}",
        infeasible="no board of family {family} has engine {wish}; engines there: {accepted}",
    ),
    Requirement(
        name="type",
        reason=WaitingReason.TYPE_UNSUPPORTED,
        misses=lambda batch: by_value(
            batch,
            tuple(zip(batch.engines, batch.types, strict=True)),
            lambda pair: ~supports(batch, *pair),
        ),
        wish=lambda batch, row: f"{batch.types[row]} with {batch.engines[row]}",
        accepted=_types,
        phrase="doesn't support {wish}",
        infeasible="no board of family {family} supports {wish}; supported there: {accepted}",
    ),
    Requirement(
        name="declared_type",
        reason=WaitingReason.TYPE_UNDECLARED,
        misses=_missing_declarations,
        wish=lambda batch, row: f"{batch.types[row]} with {batch.engines[row]}",
        accepted=_types,
        phrase="lists {wish}, but its host does not declare what that means",
        infeasible="boards of family {family} list {wish}, but no host of them declares what it "
        "means; supported there: {accepted}",
    ),
    Requirement(
        name="ram",
        reason=WaitingReason.MEMORY,
        misses=lambda batch: exceeds(batch.ram_bytes, batch.snapshot.ram_bytes),
        wish=lambda batch, row: size_text(int(batch.ram_bytes[row])),
        offer=lambda batch, board: size_text(int(batch.snapshot.ram_bytes[board])),
        accepted=lambda batch, row, boards: size_text(int(batch.snapshot.ram_bytes[boards].max())),
        phrase="has {offer} of RAM, not {wish}",
        infeasible="no board that fits otherwise has {wish} of RAM; the most there is: {accepted}",
    ),
    Requirement(
        name="storage",
        reason=WaitingReason.STORAGE,
        misses=lambda batch: exceeds(batch.storage_bytes, batch.snapshot.storage_bytes),
        wish=lambda batch, row: size_text(int(batch.storage_bytes[row])),
        offer=lambda batch, board: size_text(int(batch.snapshot.storage_bytes[board])),
        accepted=lambda batch, row, boards: size_text(
            int(batch.snapshot.storage_bytes[boards].max())
        ),
        phrase="has {offer} of storage, not {wish}",
        infeasible="no board that fits otherwise has {wish} of storage; "
        "the most there is: {accepted}",
    ),
    Requirement(
        name="target_uid",
        reason=WaitingReason.CLUSTER_CONSTRAINT,
        misses=lambda batch: by_value(batch, batch.target_uids, lambda uid: ~is_board(batch, uid)),
        wish=lambda batch, row: str(batch.target_uids[row]),
        phrase="is not {wish}, which the benchmark names",
        infeasible="no board {wish} is known",
    ),
)
"""A new requirement is one row here; the policies that apply it name it among their filters."""


class RequirementFilter(Filter):
    """Refuses boards that miss a requirement, finally."""

    def __init__(self, requirement: Requirement) -> None:
        """Make the filter of one row."""
        self._requirement = requirement
        self._refusals = (Refusal(requirement.reason, never=True),)

    @property
    def name(self) -> str:
        return self._requirement.name

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return self._refusals

    def admit(self, batch: Batch) -> NDArray[np.uint8]:
        return self._requirement.misses(batch).view(np.uint8)

    def phrase(self, batch: Batch, row: int, board: int, code: int) -> str:
        required = self._requirement
        return required.phrase.format(
            wish=required.wish(batch, row), offer=required.offer(batch, board)
        )

    def explain_infeasible(self, batch: Batch, row: int, boards: NDArray[np.intp]) -> str:
        required = self._requirement
        accepted = required.accepted(batch, row, boards)
        if accepted is None:
            return ""
        return required.infeasible.format(
            wish=required.wish(batch, row), accepted=accepted, family=batch.families[row]
        )


FILTERS: Mapping[str, Callable[[], RequirementFilter]] = {
    each.name: partial(RequirementFilter, each) for each in REQUIREMENTS
}
"""A factory for the filter of each requirement, by its name."""
