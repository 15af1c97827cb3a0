"""The event queue: what happens next in virtual time.

A binary heap in columns. Events are ordered by their time, then by their rank; a world gives each
event a rank of its own, so that the order never depends on chance or on how the heap was filled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled


class Events(NamedTuple):
    """Events to come.

    Attributes:
        times: Shape (capacity,): seconds of virtual time.
        ranks: Shape (capacity,): order of the events of one instant.
        subjects: Shape (capacity,): what each event is about; its meaning is the world's.
        size: Shape (1,): how many events there are.
    """

    times: NDArray[np.float64]
    ranks: NDArray[np.int64]
    subjects: NDArray[np.int64]
    size: NDArray[np.int64]


def no_events(capacity: int) -> Events:
    """Return an empty queue with room for ``capacity`` events at a time."""
    return Events(
        times=np.zeros(capacity),
        ranks=np.zeros(capacity, dtype=np.int64),
        subjects=np.zeros(capacity, dtype=np.int64),
        size=np.zeros(1, dtype=np.int64),
    )


@compiled
def push(events: Events, time: float, rank: int, subject: int) -> None:
    """Add an event; there must be room for it."""
    place = events.size[0]
    events.size[0] = place + 1
    while place > 0:
        parent = (place - 1) // 2
        above = events.times[parent]
        if above < time or (above == time and events.ranks[parent] < rank):
            break
        events.times[place] = above
        events.ranks[place] = events.ranks[parent]
        events.subjects[place] = events.subjects[parent]
        place = parent
    events.times[place] = time
    events.ranks[place] = rank
    events.subjects[place] = subject


@compiled
def pop(events: Events) -> tuple[float, int, int]:
    """Remove the next event; there must be one.

    Returns:
        Its time, its rank and its subject.
    """
    first = (events.times[0], events.ranks[0], events.subjects[0])
    last = events.size[0] - 1
    events.size[0] = last
    time, rank, subject = events.times[last], events.ranks[last], events.subjects[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        other = child + 1
        if other < last and (
            events.times[other] < events.times[child]
            or (
                events.times[other] == events.times[child]
                and events.ranks[other] < events.ranks[child]
            )
        ):
            child = other
        below = events.times[child]
        if time < below or (time == below and rank < events.ranks[child]):
            break
        events.times[place] = below
        events.ranks[place] = events.ranks[child]
        events.subjects[place] = events.subjects[child]
        place = child
    events.times[place] = time
    events.ranks[place] = rank
    events.subjects[place] = subject
    return first
