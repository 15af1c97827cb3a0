"""Each board's future, cut where it is promised or leased: who may start when, and must be through.

The rule is that of `edgeyard.scheduler.decide.commitments`, for any time instead of now alone. A
board's *stretches* follow one another from now on; the last one never ends. Whoever starts in one
must be through by the next promised start, or the next lease of somebody else; a leased stretch is
open to its lessee alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.model.knowledge import Lease

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One board's stretches.

    Attributes:
        begins: Seconds from now; the first is 0, each next one later.
        promised: Whether a start is promised there, to whoever it be.
        users: Whom it is leased to; empty: nobody. With two of them it is open to neither.
    """

    begins: tuple[float, ...]
    promised: tuple[bool, ...]
    users: tuple[frozenset[str | None], ...]

    def closes(self, user: str | None, cool_down_s: float, *, promised: bool = True) -> list[float]:
        """By stretch, when a user's run must be over; -inf where the user may not start at all.

        Args:
            user: None: one without leases.
            cool_down_s: How long the board rests then.
            promised: Promised starts count; they don't for those to whom the board is promised.
        """
        found = [0.0] * len(self.begins)
        close = np.inf
        for number in reversed(range(len(self.begins))):
            others = self.users[number] - {user} if user is not None else self.users[number]
            found[number] = -np.inf if others else close - cool_down_s
            if others or (promised and self.promised[number]):
                close = self.begins[number]
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeSlots:
    """Of all boards, one behind the other; shape (stretches,) each but ``first``.

    Attributes:
        first: Shape (boards + 1,): those of board b are ``first[b]:first[b + 1]``.
        boards: Row of the board.
        begins: Seconds from now.
        ends: When the next one begins; inf for a board's last.
        closes: When a run must be over of whoever has no lease; -inf where those may not start.
        lanes: By row of the board, of those that have more than one, or are leased.
        promised: By row of the benchmark, stretches that begin with the start promised to it.
    """

    first: NDArray[np.intp]
    boards: NDArray[np.intp]
    begins: Floats
    ends: Floats
    closes: Floats
    lanes: Mapping[int, Lane]
    promised: Mapping[int, Sequence[int]]

    def closes_for(self, user: str, cool_down_s: float) -> Floats:
        """As ``closes``, for one who may have leases."""
        own = [
            board for board, lane in self.lanes.items() if any(user in each for each in lane.users)
        ]
        if not own:
            return self.closes
        found = self.closes.copy()
        for board in own:
            its = slice(int(self.first[board]), int(self.first[board + 1]))
            found[its] = self.lanes[board].closes(user, cool_down_s)
        return found


def stretches(decided: Decisions) -> TimeSlots:
    """Of a cycle's promises and leases."""
    batch, cool_down_s = decided.batch, decided.policy.cool_down_s
    row_of_uid = batch.row_of_uid
    leases: dict[int, list[Lease]] = {}
    for lease in batch.knowledge.leases:
        if lease.target_uid in row_of_uid and lease.until > batch.now:
            leases.setdefault(row_of_uid[lease.target_uid], []).append(lease)
    starts: dict[int, set[float]] = {}
    to_whom: list[tuple[int, float, int]] = []
    for board, start in decided.promised.promised.items():  # also where cores are shared
        starts.setdefault(board, set()).add(_from_now_s(batch, start))
    # Who states no start takes its reservation in the order of the queue, where it is first.
    for job, board in decided.promised.kept.items():
        at = _from_now_s(batch, decided.promised.reservations[job].start)
        starts.setdefault(board, set()).add(at)
        to_whom.append((board, at, job))
    lanes = {
        board: _lane(batch, leases.get(board, ()), starts.get(board, set()))
        for board in sorted({*leases, *starts})
    }
    counts = np.ones(batch.shape[1], dtype=np.intp)
    for board, lane in lanes.items():
        counts[board] = len(lane.begins)
    first = np.zeros(len(counts) + 1, dtype=np.intp)
    np.cumsum(counts, out=first[1:])
    begins = np.zeros(int(first[-1]))
    ends, closes = np.full_like(begins, np.inf), np.full_like(begins, np.inf)
    for board, lane in lanes.items():
        its = slice(int(first[board]), int(first[board + 1]))
        begins[its] = lane.begins
        ends[its] = (*lane.begins[1:], np.inf)
        closes[its] = lane.closes(None, cool_down_s)
    promised: dict[int, list[int]] = {}
    for board, at, owner in to_whom:
        place = int(first[board]) + lanes[board].begins.index(at)
        promised.setdefault(owner, []).append(place)
    return TimeSlots(
        first=first,
        boards=np.repeat(np.arange(len(counts)), counts),
        begins=begins,
        ends=ends,
        closes=closes,
        lanes=lanes,
        promised=promised,
    )


def _from_now_s(batch: Batch, start: datetime) -> float:
    return max((start - batch.now).total_seconds(), 0.0)


def _lane(batch: Batch, leases: Sequence[Lease], starts: set[float]) -> Lane:
    spans = [
        (
            max((lease.since - batch.now).total_seconds(), 0.0),
            (lease.until - batch.now).total_seconds(),
            lease.user_id,
        )
        for lease in leases
    ]
    begins = sorted(
        {0.0, *starts, *(since for since, _, _ in spans), *(end for _, end, _ in spans)}
    )
    return Lane(
        begins=tuple(begins),
        promised=tuple(at in starts for at in begins),
        users=tuple(
            frozenset(user for since, until, user in spans if since <= at < until) for at in begins
        ),
    )
