"""Canaries: reference models that measure the lab's own boards while they would stand idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from edgeyard.devices.model import ENGINE_PATTERN
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.times import time_text

CANARY_USER = "edgeyard-canary"
"""The user as whom Edgeyard runs canaries: bounded by nothing, charged for nothing, and below all
others in every decision."""

CANARY_LINEAGE = "canary/"
"""Prefix of the lineages of canaries; series of other users are no canaries even with it."""

PROBE_TAG = "probe"
"""Tag of a canary that may run on its board in quarantine: the quarantine is for a drift."""

BOARD_DRIFTED = "board_drifted"
"""Code of the reason for which results on a board that drifts are suspect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryModel:
    """A reference model.

    Attributes:
        name: Its series is `CANARY_LINEAGE` with this name.
        engine: The engine that runs it; boards without it do not.
        path: Its file.
    """

    name: str
    engine: str
    path: Path


def stated_engines(stated: Sequence[str]) -> list[str]:
    """Return the engines that `stated_canaries` names, each once."""
    return sorted({each.partition(":")[0] for each in stated})


def stated_canaries(stated: Sequence[str]) -> tuple[CanaryModel, ...]:
    """Return the reference models that an operator states.

    Args:
        stated: ``ENGINE:FILE`` each.

    Raises:
        ValueError: One is malformed, its file can't be read, or two have one name.
    """
    found = []
    for each in stated:
        engine, colon, path = each.partition(":")
        if not colon or ENGINE_PATTERN.fullmatch(engine) is None:
            raise ValueError(f"{each!r} is not ENGINE:FILE")
        file = Path(path)
        if not file.is_file():
            raise ValueError(f"there is no file {path}")
        found.append(CanaryModel(name=file.stem, engine=engine, path=file))
    names = [each.name for each in found]
    if twice := sorted({each for each in names if names.count(each) > 1}):
        raise ValueError(f"two files are named {twice[0]}: their series would be one")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryBoard:
    """The state of the canaries of one board.

    Attributes:
        target_uid: The board.
        facts: What may change its numbers, by name: its host, firmware, kernel, engines.
        changed_at: When these facts were first seen. Each canary is due once after this time.
        next_at: When the next canary is due.
        benchmark_id: The canary that is under way; None: none is.
        measured: By name of the canary, when the newest one that ended by itself was submitted.
    """

    target_uid: str
    facts: Mapping[str, str]
    changed_at: datetime
    next_at: datetime
    benchmark_id: str | None = None
    measured: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardDrift:
    """A change of a canary's level on a board, suspected or confirmed.

    Attributes:
        target_uid: The board.
        change_id: The change of the canary's series.
        lineage: Of that series.
        size: The new level relative to the old one, less 1: 0.05 for 5 % more.
        metric: Name of the primary metric.
        confirmed: Whether a check has confirmed it.
        since: Begin of the first run of the new level.
        until: Begin of the first run of the old level after it, or when somebody ended its alert;
            None: it has not ended.
    """

    target_uid: str
    change_id: str
    lineage: str
    size: float
    metric: str
    confirmed: bool
    since: datetime
    until: datetime | None

    def covers(self, benchmark: Benchmark) -> bool:
        """Return whether a benchmark of others ran on the board while it drifted."""
        ended_at = benchmark.ended_at
        return (
            benchmark.user_id != CANARY_USER
            and benchmark.target_uid == self.target_uid
            and ended_at is not None
            and ended_at >= self.since
            and (self.until is None or (benchmark.started_at or ended_at) < self.until)
        )

    @property
    def sentence(self) -> str:
        """What drifted, by how much and when, as a sentence."""
        known = "confirmed" if self.confirmed else "suspected"
        end = "" if self.until is None else f", until {time_text(self.until)}"
        return (
            f"the board drifted: the {self.metric} of {self.lineage} on {self.target_uid} changed "
            f"by {100 * self.size:+.1f} % at {time_text(self.since)} ({known}{end})"
        )


def drifted(report: Mapping[str, object], drift: BoardDrift) -> Mapping[str, object]:
    """Return the report of a run on a board while it drifted: a comparable number is suspect.

    The reason stands beside those that the report has; an invalid number stays invalid.
    """
    verdict = report.get("verdict")
    stated = verdict if isinstance(verdict, Mapping) else {}
    reasons = stated.get("reasons")
    reason = {"code": BOARD_DRIFTED, "sentence": drift.sentence}
    word = "invalid" if stated.get("verdict") == "invalid" else "suspect"
    return {
        **report,
        "verdict": {
            "not_checked": [],
            **stated,
            "verdict": word,
            "reasons": [*(reasons if isinstance(reasons, list) else ()), reason],
        },
    }
