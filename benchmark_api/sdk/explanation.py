"""Why a benchmark was placed, or waits, as the scheduler wrote it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from edgeyard.benchmark_api.sdk.fields import (
    Reason,
    Record,
    moment,
    number,
    reason,
    record,
    records,
    text,
    whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardVerdict:
    """What was said of one board.

    Attributes:
        reason: None where the board fits and is free.
        never: It can never run the benchmark as described.
        score: In [0, 1]; None where it was filtered out.
        scores: By scorer; None where a scorer abstained.
        weighted: What each makes of it; None as before.
    """

    target_uid: str
    reason: str | None
    sentence: str
    never: bool = False
    score: float | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    weighted: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The last decision on one benchmark.

    Attributes:
        rank: Place in the queue, from 0.
        never_ahead: Number of benchmarks ahead of it that no board can run; they delay no others.
        priority_parts: Terms of the priority, in points.
        chosen_uid: The board; None when it waits.
        binding: How strictly the job was bound to it; None when it waits.
        ran_on: Board of its newest attempt, which the cluster chose where the binding is not
            strict; None until it has started.
        waiting: None when it was placed.
        never: No expected board could ever run it.
    """

    benchmark_id: str
    decided_at: datetime | None
    policy: str
    rank: int | None
    rank_reason: str
    priority: int | None
    priority_parts: Mapping[str, float]
    verdicts: tuple[BoardVerdict, ...]
    chosen_uid: str | None = None
    binding: str | None = None
    ran_on: str | None = None
    waiting: Reason | None = None
    never: bool = False
    never_ahead: int = 0
    raw: Record = field(default_factory=dict, repr=False)


def explanation_of(body: object) -> Explanation:
    """An explanation from the server's JSON."""
    raw: Record = body if isinstance(body, Mapping) else {}
    placement = record(raw, "placement")
    return Explanation(
        benchmark_id=text(raw, "benchmark_id") or "",
        decided_at=moment(raw, "decided_at"),
        policy=text(raw, "policy") or "",
        rank=whole(raw, "rank"),
        rank_reason=text(raw, "rank_reason") or "",
        priority=whole(raw, "priority"),
        priority_parts=points_of(record(raw, "priority_parts")),
        verdicts=tuple(_verdict_of(item) for item in records(raw, "verdicts")),
        chosen_uid=text(placement, "target_uid"),
        binding=text(placement, "binding"),
        ran_on=text(raw, "ran_on"),
        waiting=reason(raw, "waiting"),
        never=raw.get("never") is True,
        never_ahead=whole(raw, "never_ahead") or 0,
        raw=raw,
    )


def points_of(raw: Record) -> dict[str, float]:
    """The terms of a priority."""
    parts = {name: number(raw, name) for name in raw}
    return {name: points for name, points in parts.items() if points is not None}


def _verdict_of(raw: Record) -> BoardVerdict:
    scores, weighted = record(raw, "scores"), record(raw, "weighted")
    return BoardVerdict(
        target_uid=text(raw, "target_uid") or "",
        reason=text(raw, "reason"),
        sentence=text(raw, "sentence") or "",
        never=raw.get("never") is True,
        score=number(raw, "score"),
        scores={name: number(scores, name) for name in scores},
        weighted={name: number(weighted, name) for name in weighted},
    )
