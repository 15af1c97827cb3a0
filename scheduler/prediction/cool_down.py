"""Boards that cool down: as good as busy for a while after each run, where the policy says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.model.decision import Snapshot
from edgeyard.scheduler.model.history import EPOCH, History
from edgeyard.scheduler.model.times import time_text


def mark_cooling(snapshot: Snapshot, runs: History, now: datetime, cool_down_s: float) -> Snapshot:
    """Return the snapshot with those boards marked busy whose last run ended too recently.

    Args:
        snapshot: The boards.
        runs: Past runs.
        now: Time of the cycle.
        cool_down_s: How long a board rests after each run, seconds; 0: not at all.
    """
    if cool_down_s <= 0.0 or not len(runs):
        return snapshot
    left_s = cool_down_left_s(snapshot, runs, now, cool_down_s)
    warm = (left_s > 0.0) & ~snapshot.busy
    if not warm.any():
        return snapshot
    reasons = list(snapshot.reasons)
    for board in np.flatnonzero(warm).tolist():
        until = now + timedelta(seconds=float(left_s[board]))
        reasons[board] = f"cools down until {time_text(until)}"
    return replace(snapshot, busy=snapshot.busy | warm, reasons=tuple(reasons))


def cool_down_left_s(
    snapshot: Snapshot, runs: History, now: datetime, cool_down_s: float
) -> NDArray[np.float64]:
    """Return how long each board still has to rest after its last run.

    Args:
        snapshot: The boards.
        runs: Past runs.
        now: Time of the cycle.
        cool_down_s: How long a board rests after each run, seconds.

    Returns:
        Shape (boards,), seconds; 0 for a board that need not rest.
    """
    ends = runs.derived(_last_ends)
    numbers = runs.names.boards.of(snapshot.uids)
    last_s = np.where((numbers >= 0) & (numbers < len(ends) - 1), ends[numbers], -np.inf)
    return np.maximum(last_s + cool_down_s - (now - EPOCH).total_seconds(), 0.0)


def _last_ends(history: History) -> NDArray[np.float64]:
    """Return by number of the board when its last run ended, and -inf at the end."""
    ends = np.full(len(history.names.boards.names) + 1, -np.inf)
    np.maximum.at(ends, history.columns.boards, history.columns.ended_s)
    return ends
