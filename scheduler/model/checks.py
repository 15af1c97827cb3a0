"""Checks: two versions that are measured alternately on one board until it is decided.

A check is stored with all that it needs to go on, so that any server can take its next step. See
`edgeyard.scheduler.engine.checks` for who takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from edgeyard.devices.metrics import P50, Metric
from edgeyard.errors import FieldError

CHECK_TAG = "edgeyard-check"
"""Tag of the runs of a check, which no history counts."""

CONFIRMATION_TAG = "edgeyard-confirmation"
"""Further tag of those runs of checks by which Edgeyard confirms a change of a series."""

BISECTION_TAG = "edgeyard-bisection"
"""Further tag of those of them that measure a version between the old and the new one."""

CONFIRMING_TAGS = frozenset({CONFIRMATION_TAG, BISECTION_TAG})
"""Tags that nobody else's benchmarks have."""

MIN_PAIRS, MAX_PAIRS = 3, 100
DEFAULT_PAIRS = 10
DEFAULT_SLOWDOWN = 0.03
DEFAULT_BUDGET_S = 1800.0
MAX_BUDGET_S = 30 * 86400.0

BASELINE, CANDIDATE = "baseline", "candidate"
SIDES = (BASELINE, CANDIDATE)


class CheckPurpose(StrEnum):
    """What a check is for."""

    COMPARISON = "comparison"  # a user started it
    CONFIRMATION = "confirmation"  # of a suspected change of a series
    BISECTION = "bisection"  # for the first version of a model that differs


class CheckStatus(StrEnum):
    """Where a check is."""

    RUNNING = "running"
    PASSED = "passed"  # the candidate is not slower than is accepted
    FAILED = "failed"  # it is slower
    UNDECIDED = "undecided"  # the pairs or the time are used up
    ERROR = "error"  # a run ended without a result, or the two can't be compared
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One measurement of each version, one directly after the other.

    Attributes:
        baseline_value: Primary metric of the baseline, in the unit of the check's metric.
        ratio: Primary metric of the candidate over that of the baseline; None if one of the two has
            none.
        slowdown: By how much the candidate is worse, relative to the baseline: the number grew
            where lower is better, or fell where higher is better. None without a ratio.
        counts: Whether the check uses it: there is a ratio, and neither number is invalid.
        reasons: Why a number of it is invalid, each with the version that it is of.
    """

    baseline_id: str
    candidate_id: str
    baseline_value: float | None
    candidate_value: float | None
    ratio: float | None
    slowdown: float | None
    counts: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check as it is stored.

    Attributes:
        baseline: Name of the baseline for people: the id of a benchmark, or its model.
        candidate: Name of the candidate: its model, or the fields in which it differs.
        max_slowdown: Slowdown that is accepted, e.g. 0.03 for 3 %: how far the primary metric may
            grow where lower is better, or fall where higher is better. Below 0: the candidate has
            to be better by that much.
        budget_s: Time for all runs together from ``created_at`` on, seconds.
        max_pairs: Maximum number of pairs, `MIN_PAIRS` to `MAX_PAIRS`.
        versions: Description and files of each of `SIDES` that is run, as
            `edgeyard.scheduler.engine.intake` packs them.
        reason: Why it ended so, as a sentence; while it runs: why nothing is measured now, or "".
        target_uid: The board; None until the first run has shown it.
        metric: The primary metric that is compared; that of the baseline's result, or the p50,
            until a run has shown another one.
        pairs: What was measured so far.
        run_ids: Benchmarks of the pair that is under way, in the order of their submission; at its
            end the last of them is the one that ended without a result.
        errors: What is wrong with the request, where only a run has shown it.
        recorded_ids: Benchmarks that are the baseline of each pair, newest first, instead of runs
            of it: only the candidate is measured. Empty: both are.
    """

    check_id: str
    user_id: str
    baseline: str
    candidate: str
    max_slowdown: float
    budget_s: float
    max_pairs: int
    versions: Mapping[str, Mapping[str, object]]
    created_at: datetime
    status: CheckStatus = CheckStatus.RUNNING
    reason: str = ""
    target_uid: str | None = None
    metric: Metric = P50
    pairs: tuple[Pair, ...] = ()
    run_ids: tuple[str, ...] = ()
    errors: tuple[FieldError, ...] = field(default=())
    ended_at: datetime | None = None
    recorded_ids: tuple[str, ...] = ()

    @property
    def until(self) -> datetime:
        """Return when the budget is spent."""
        return self.created_at + timedelta(seconds=self.budget_s)

    @property
    def purpose(self) -> CheckPurpose:
        """What it is for."""
        description = self.versions.get(CANDIDATE, {}).get("description")
        tags = description.get("tags") if isinstance(description, Mapping) else None
        if not isinstance(tags, list) or CONFIRMATION_TAG not in tags:
            return CheckPurpose.COMPARISON
        return CheckPurpose.BISECTION if BISECTION_TAG in tags else CheckPurpose.CONFIRMATION

    @property
    def runs_of_pair(self) -> int:
        """How many runs a pair needs."""
        return 1 if self.recorded_ids else len(SIDES)

    @property
    def confirms(self) -> bool | None:
        """Whether it found the change that it looks for; None: it did not decide.

        With a ``max_slowdown`` below 0 it looks for a candidate that is faster by that much.
        """
        if self.status not in (CheckStatus.PASSED, CheckStatus.FAILED):
            return None
        return (self.status is CheckStatus.FAILED) == (self.max_slowdown >= 0)

    @property
    def next_side(self) -> str:
        """The version that is measured next; the order changes with each pair."""
        if self.recorded_ids:
            return CANDIDATE
        swapped = len(self.pairs) % 2 == 1
        return SIDES[swapped != (len(self.run_ids) == 1)]

    def run_of(self, side: str) -> str:
        """Return the run of a version in a pair that is complete."""
        if self.recorded_ids:
            return self.run_ids[0] if side == CANDIDATE else self.recorded_ids[len(self.pairs)]
        swapped = len(self.pairs) % 2 == 1
        return self.run_ids[swapped != (side == CANDIDATE)]
