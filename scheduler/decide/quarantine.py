"""Find the boards whose past runs call for a quarantine.

A run fails because of the board or because of what it runs; the same model on other boards shows
which. Of a failure on board b of a model that had s good and f failed runs on other boards, ::

    w = (s + 1) / (s + f + 2)                  Beta(1, 1): how sure it is that b is to blame

counts against b, and each good run counts for it. Run k from the last counts ``DECAY ^ k``: a board
that broke today is quarantined also after a good year. The failure rate r of b has the posterior ::

    r ~ Beta(A + sum DECAY^k w_k,  B + sum DECAY^k good_k),   A = 0.5, B = 1.5

and b is quarantined when ``P(r > LIMIT) >= MIN_CERTAINTY``: after three or four failures in a
row of models that are known to be good, after about eight of one model that ran on no other board,
and never for what fails on other boards too (Beta-Bernoulli: Gelman et al., *Bayesian Data
Analysis*, 3rd ed., section 2.1).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.history import PastRun
from edgeyard.scheduler.prediction.estimates import BOARD_FAILURES, INCONCLUSIVE_FAILURES

DECAY = 0.8
"""Weight of a run relative to the next one; about the last five runs count."""

LIMIT = 1 / 3
MIN_CERTAINTY = 0.9
PRIOR = (0.5, 1.5)

_SUSPECT = frozenset(
    each.value for each in BOARD_FAILURES | {FailureCategory.UNKNOWN, FailureCategory.TIMEOUT}
)
"""Failures that the board may have caused."""

_MIN_TIMEOUT_RATIO = 2.0
"""A time-out counts if the run lasted at least this many times as long as the longest good run of
the same model."""

_INCONCLUSIVE = frozenset(each.value for each in INCONCLUSIVE_FAILURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRecord:
    """Failures of a board's runs, and its estimated failure rate.

    Attributes:
        runs: Good ones, and failures that may be the board's, of the last ten at most.
        failed: Of those.
        failure_rate: Mean of the posterior.
        certainty: P(failure rate > `LIMIT`).
    """

    target_uid: str
    runs: int
    failed: int
    failure_rate: float
    certainty: float

    @property
    def should_be_quarantined(self) -> bool:
        """Whether the board should be quarantined."""
        return self.certainty >= MIN_CERTAINTY

    @property
    def sentence(self) -> str:
        """Failures and failure rate, as a sentence."""
        return (
            f"failed {self.failed} of its last {self.runs} runs that say something of the board; "
            f"failure rate about {100 * self.failure_rate:.0f} %"
        )


def board_records(
    runs: Iterable[PastRun], cleared: Mapping[str, datetime]
) -> Mapping[str, BoardRecord]:
    """Return a record of every board that ran something.

    Args:
        runs: The past, oldest first; a few thousand are plenty.
        cleared: By board, when its last quarantine was lifted: only later runs count.
    """
    runs = _conclusive(runs)
    good: Counter[tuple[Hashable, str]] = Counter()
    failed: Counter[tuple[Hashable, str]] = Counter()
    all_good: Counter[Hashable] = Counter()
    all_failed: Counter[Hashable] = Counter()
    of_board: defaultdict[str, list[PastRun]] = defaultdict(list)
    for run in runs:
        what = _what(run)
        where, everywhere = (good, all_good) if run.failure is None else (failed, all_failed)
        where[what, run.target_uid] += 1
        everywhere[what] += 1
        since = cleared.get(run.target_uid)
        counts = run.failure is None or run.failure in _SUSPECT
        if counts and (since is None or run.ended_at > since):
            of_board[run.target_uid].append(run)
    found = {}
    for uid, own in of_board.items():
        blames = []
        for run in reversed(own):
            what = _what(run)
            others_good = all_good[what] - good[what, uid]
            others_failed = all_failed[what] - failed[what, uid]
            blame = (others_good + 1) / (others_good + others_failed + 2)
            blames.append(0.0 if run.failure is None else blame)
        found[uid] = _record(uid, blames)
    return found


def _conclusive(runs: Iterable[PastRun]) -> list[PastRun]:
    """Return the runs without failures that the board did not cause.

    A time-out is the board's only if the same model has run well in far less time: the limit is the
    user's own, who could otherwise have a board quarantined by a limit that no run can meet.
    """
    runs = [run for run in runs if run.failure is None or run.failure not in _INCONCLUSIVE]
    max_s: defaultdict[Hashable, float] = defaultdict(lambda: math.inf)
    for run in runs:
        if run.failure is None and run.run_s is not None:
            known_s = max_s.get(_workload(run), 0.0)
            max_s[_workload(run)] = max(known_s, run.run_s)
    return [
        run
        for run in runs
        if run.failure != FailureCategory.TIMEOUT.value
        or (run.run_s or 0.0) >= _MIN_TIMEOUT_RATIO * max_s[_workload(run)]
    ]


def _workload(run: PastRun) -> Hashable:
    return _what(run), run.kind.nb_inference


def _record(uid: str, blames: Sequence[float]) -> BoardRecord:
    """Compute a rate from each run's blame, the last one first; 0: the run succeeded."""
    from scipy.special import betainc  # takes a moment: the CLI does without it

    against, well = PRIOR
    for place, blame in enumerate(blames):
        weight = DECAY**place
        against += weight * blame
        well += weight if blame == 0.0 else 0.0
    last = blames[:10]
    return BoardRecord(
        target_uid=uid,
        runs=len(last),
        failed=sum(1 for blame in last if blame > 0.0),
        failure_rate=against / (against + well),
        certainty=float(1.0 - betainc(against, well, LIMIT)),
    )


def _what(run: PastRun) -> Hashable:
    """Return what ran, without its number of inferences; an unknown model is its own kind."""
    kind = run.kind
    model = kind.model_sha256 or run.benchmark_id
    return kind.engine, kind.benchmark_type, model, kind.variant
