"""Boards that spread the benchmarks of a campaign as their users wish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import AttributeColumn, Batch, Pairs, attribute_column
from edgeyard.scheduler.framework.protocols import ScorerKind, ScoreUnit
from edgeyard.scheduler.model.benchmark import Spread

MAX_PLANNED = 1000
"""Benchmarks of one cycle that are planned; those after them in the queue take what is left."""

_PLANNED = 0.5
"""Boards of the plan score more than this, all others less."""


class CampaignSpread:
    """The boards that benchmarks with ``spreads`` would get if nothing else mattered.

    The benchmarks of the queue choose in turn, from the boards that are left, the one with the
    least load for their campaign::

        load of a board = sum over the spreads of weight x (count + 1) / share

    with the ``count`` of the campaign's benchmarks that run, have completed or were planned so far
    where the spread's attribute has the board's value, and the ``share`` of that value: its target,
    or an equal part of what the targets leave. So each next benchmark goes where the campaign is
    furthest behind its shares (the highest averages method of D'Hondt). A board without the
    attribute, or without a share, comes last.

    The k-th of n boards that the plan gives to a class scores ``1 - k / 2n`` (from 0). Boards
    outside all plans with the same values as the last of them score as it does, so that other
    preferences decide between them; any other board scores less than a half, by its load before
    the plan. Abstains where no spread is stated.
    """

    name = "campaign_spread"
    objective = "spread"
    kind = ScorerKind.HEURISTIC
    unit = ScoreUnit.PREFERENCE

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        scores = np.full(len(pairs), np.nan, dtype=np.float32)
        rows = [row for row, spreads in enumerate(batch.spreads) if spreads and _size(pairs, row)]
        if not rows:
            return scores
        names = {spread.attribute for row in rows for spread in batch.spreads[row]}
        columns = {name: _Values(attribute_column(batch, name)) for name in names}
        known: dict[tuple[tuple[Spread, ...], bytes], _Boards] = {}
        classes: dict[int, _Boards] = {}
        for row in rows:
            boards, spreads = pairs.boards[pairs.of(row)], batch.spreads[row]
            key = spreads, boards.tobytes()
            if key not in known:
                known[key] = _Boards(batch, boards, spreads, columns)
            classes[row] = known[key]
        counts = _Counts(batch)
        for row, own in classes.items():
            loads = own.loads(counts.of(row))
            min_load = loads.min()
            scores[pairs.of(row)] = (
                _PLANNED * 0.9 * min_load / loads if np.isfinite(min_load) else 0.0
            )
        plans = _plan(batch, classes, counts)
        unplanned = np.ones(batch.shape[1], dtype=np.bool_)
        for planned in plans.values():
            unplanned[planned] = False
        for row, planned in plans.items():
            its = pairs.of(row)
            places = np.searchsorted(pairs.boards[its], planned)
            ranked = 1.0 - (1.0 - _PLANNED) * np.arange(len(planned)) / len(planned)
            scores[its.start + places] = ranked
            alike = classes[row].alike(int(planned[-1])) & unplanned[classes[row].boards]
            scores[its][alike] = ranked[-1]
        return scores


class _Counts:
    """How many benchmarks of each group there are at each board; shape (boards,) by group."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._of_group: dict[str, NDArray[np.int64]] = {}

    def of(self, row: int) -> NDArray[np.int64]:
        """Return the counts for a class, which a plan may raise; a class by itself has its own."""
        group = self._batch.spread_groups[row] or f"\0{row}"
        if group not in self._of_group:
            counts = np.zeros(self._batch.shape[1], dtype=np.int64)
            for uid, count in self._batch.spread_counts[row]:
                for board in self._batch.rows_of_uids([uid]):
                    counts[board] += count
            self._of_group[group] = counts
        return self._of_group[group]


class _Values:
    """The values of an attribute: what all classes that spread over it share.

    Attributes:
        index: Shape (boards,): number of each board's value.
    """

    def __init__(self, column: AttributeColumn) -> None:
        self.index = column.index
        self._count = len(column.values)
        self._numbers: dict[str, list[int]] = {}
        for number, value in enumerate(column.values):
            if value is not None:
                self._numbers.setdefault(_text(value), []).append(number)
        self._is_set = np.array([value is not None for value in column.values], dtype=np.bool_)
        self._present: dict[bytes, NDArray[np.bool_]] = {}

    def shares(self, boards: NDArray[np.intp], spread: Spread) -> NDArray[np.float64]:
        """Shape (values,): the share of each value that these boards have; 0 of any other."""
        key = boards.tobytes()
        if key not in self._present:
            self._present[key] = np.zeros(self._count, dtype=np.bool_)
            self._present[key][self.index[boards]] = True
        present = self._present[key]
        shares = np.zeros(self._count)
        others = present & self._is_set
        for value, percent in spread.targets:
            for number in self._numbers.get(value, ()):
                if present[number]:
                    shares[number] = percent / 100.0
                    others[number] = False
        if count := int(others.sum()):
            rest = 100 - sum(percent for _, percent in spread.targets)
            shares[others] = rest / 100.0 / count
        return shares


class _Boards:
    """The boards of classes that state the same spreads."""

    def __init__(
        self,
        batch: Batch,
        boards: NDArray[np.intp],
        spreads: Sequence[Spread],
        columns: Mapping[str, _Values],
    ) -> None:
        order = np.empty(batch.shape[1], dtype=np.intp)
        order[batch.board_order] = np.arange(batch.shape[1])
        self.boards = boards
        self._place = order[self.boards]
        self._spreads = []
        for spread in spreads:
            column = columns[spread.attribute]
            self._spreads.append((spread.weight, column.index, column.shares(boards, spread)))

    def loads(self, of_board: NDArray[np.int64]) -> NDArray[np.float64]:
        """Shape (boards of the class,): by the counts of a group, shape (boards,)."""
        total = np.zeros(len(self.boards))
        for weight, index, shares in self._spreads:
            count = np.bincount(index, weights=of_board, minlength=len(shares))
            of_value = np.full(len(shares), np.inf)
            np.divide(weight * (count + 1.0), shares, out=of_value, where=shares > 0.0)
            total += of_value[index[self.boards]]
        return total

    def alike(self, board: int) -> NDArray[np.bool_]:
        """Shape (boards of the class,): whether all spreads have the same value as at a board."""
        same = np.ones(len(self.boards), dtype=np.bool_)
        for _, index, _ in self._spreads:
            same &= index[self.boards] == index[board]
        return same

    def best(self, of_board: NDArray[np.int64], taken: NDArray[np.bool_]) -> int | None:
        """Return the board that is left with the least load; None if none is left."""
        left = np.flatnonzero(~taken[self.boards])
        if not len(left):
            return None
        loads = self.loads(of_board)[left]
        lightest = left[loads == loads.min()]
        return int(self.boards[lightest[self._place[lightest].argmin()]])


def _plan(
    batch: Batch, classes: Mapping[int, _Boards], counts: _Counts
) -> dict[int, NDArray[np.intp]]:
    """Return the boards that the benchmarks of each class would get, in the queue's order."""
    taken = batch.snapshot.busy.copy()
    planned: dict[int, list[int]] = {}
    full: set[int] = set()
    of_queue = [row for row in batch.class_of_job[batch.queue].tolist() if row in classes]
    for row in of_queue[:MAX_PLANNED]:
        if row in full:
            continue
        board = classes[row].best(counts.of(row), taken)
        if board is None:
            full.add(row)
            continue
        taken[board] = True
        counts.of(row)[board] += 1
        planned.setdefault(row, []).append(board)
    return {row: np.array(boards, dtype=np.intp) for row, boards in planned.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size(pairs: Pairs, row: int) -> int:
    return int(pairs.starts[row + 1] - pairs.starts[row])
