"""Decides what is reported to Nomad, and when.

Each change of a board is a Raft write and a new class of its node.

Boards, health and the end of a task are reported at once. Progress is reported in steps of at
least 5 % and at most every 5 s, of all boards of the host together, because one write carries them
all. Temperature and power are reported when they have changed enough, at most once a minute; the
plugin's statistics have them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Mapping, Optional

from edgeyard.devices.model import Board

PROGRESS_STEP = 5
PROGRESS_EVERY_S = 5.0
FACTS_EVERY_S = 60.0
_HEAT_STEP_C = 5.0
_POWER_STEP_W = 1.0


@dataclass(frozen=True)
class PublishedBoard:
    """A board as it is, or as it was reported to Nomad.

    Attributes:
        board: With health, its reason and ``busy``; its progress is 0.
        percent: Whole percent of its task; 0 without one.
        last_error: Why it was last found unhealthy; "" before that.
    """

    board: Board
    percent: int = 0
    last_error: str = ""
    temperature_c: Optional[float] = None
    power_w: Optional[float] = None


class Publisher:
    """Compares the boards with what was reported; has no clock of its own."""

    def __init__(self) -> None:
        self._reported: Optional[Dict[str, PublishedBoard]] = None
        self._progress_at = -PROGRESS_EVERY_S
        self._facts_at = 0.0

    def publish(
        self, now: float, current: Mapping[str, PublishedBoard]
    ) -> Optional[Mapping[str, PublishedBoard]]:
        """Return what to report to Nomad now; None when nothing changed that may be reported yet.

        Args:
            now: Seconds on a clock that only goes forward.
            current: The boards as they are, by uid.
        """
        if self._reported is None:
            self._reported = dict(current)
            self._progress_at = self._facts_at = now
            return dict(self._reported)
        progress_due = now - self._progress_at >= PROGRESS_EVERY_S
        facts_due = now - self._facts_at >= FACTS_EVERY_S
        report: Dict[str, PublishedBoard] = {}
        for uid, shown in current.items():
            before = self._reported.get(uid)
            report[uid] = shown if before is None else _step(before, shown, progress_due, facts_due)
        if report == self._reported:
            return None
        if any(_has_progressed(self._reported.get(uid), shown) for uid, shown in report.items()):
            self._progress_at = now
        if facts_due:
            self._facts_at = now
        self._reported = report
        return dict(report)


def _step(
    before: PublishedBoard, now: PublishedBoard, progress_due: bool, facts_due: bool
) -> PublishedBoard:
    ended = not now.board.busy
    moved = abs(now.percent - before.percent) >= PROGRESS_STEP or not before.board.busy
    if not (ended or (progress_due and moved)):
        now = replace(now, percent=before.percent, board=replace(now.board, busy=before.board.busy))
    if not (facts_due and _moved(before, now)):
        now = replace(now, temperature_c=before.temperature_c, power_w=before.power_w)
    return now


def _has_progressed(before: Optional[PublishedBoard], now: PublishedBoard) -> bool:
    """Return whether a task began or made progress; ends are reported at once and delay nothing."""
    if before is None or not now.board.busy:
        return False
    return (before.board.busy, before.percent) != (True, now.percent)


def _moved(before: PublishedBoard, now: PublishedBoard) -> bool:
    return _far(before.temperature_c, now.temperature_c, _HEAT_STEP_C) or _far(
        before.power_w, now.power_w, _POWER_STEP_W
    )


def _far(before: Optional[float], now: Optional[float], step: float) -> bool:
    if before is None or now is None:
        # a board is not asked while it measures: the last report stays
        return now is not None
    return abs(now - before) >= step
