"""Why a benchmark got this board and no other, in the units of the decision."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.framework.protocols import Costs, ScoreUnit
from edgeyard.scheduler.model.times import time_text

_WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_SAME_SHARE = 0.01
"""Run times that differ by less than this share count as equal."""


def choice_words(decided: Decisions, job: int) -> str:
    """Compare the board that a benchmark got with the best other one that was free for it.

    Returns:
        For instance "expected to end at 2026-11-21 12:03:10 UTC (52 s ± 3 s); rpi4b-0001-0002 is
        expected to be 4 s faster, but fails one run in five"; what is not known is left out.
    """
    costs = decided.scores.costs
    board = int(decided.assignment.board_of_job[job])
    row = int(decided.batch.class_of_job[job])
    own = decided.scores.pairs.at(row, board)
    if own is None:
        return ""
    if not decided.plugins.scorers and decided.plugins.fallback is None:
        return "the policy has no scorers, so it prefers none of the boards that fit"
    if costs is None or math.isnan(costs.total_s[own]):
        return "no past run predicts these boards: chosen by the policy's preferences"
    sentences = [_expected(decided, costs, own)]
    if job in decided.assignment.explored:
        count, _ = decided.assignment.explored[job]
        share = decided.policy.explore_share
        sentences.insert(
            0,
            f"chosen at random among {count} boards, to learn about them "
            f"(explore_share: {share:.0%} of the decisions)",
        )
    its = decided.scores.pairs.of(row)
    boards = decided.scores.pairs.boards[its]
    others = np.flatnonzero(boards != board)
    if len(others):
        totals = costs.total_s[its]
        best = int(others[np.argmin(totals[others])])
        sentences.append(_compared(decided, costs, job, own, its.start + best, int(boards[best])))
    return "; ".join(filter(None, sentences))


def _expected(decided: Decisions, costs: Costs, pair: int) -> str:
    run_s = _part(costs, "run", pair)
    if run_s is None:
        return f"expected to cost {_seconds(float(costs.total_s[pair]))}"
    end = decided.now + timedelta(seconds=run_s)
    error_s = float(costs.error_s[pair])
    return f"expected to end at {time_text(end)} ({_seconds(run_s)} ± {_seconds(error_s)})"


def _compared(decided: Decisions, costs: Costs, job: int, own: int, other: int, board: int) -> str:
    """Compare with the best of the others; who got that one says more than its figures."""
    uid = decided.snapshot.uids[board]
    ours, theirs = float(costs.total_s[own]), float(costs.total_s[other])
    error = math.hypot(float(costs.error_s[own]), float(costs.error_s[other]))
    holder = int(decided.assignment.job_of_board[board])
    if theirs < ours and holder != NO_ROW and decided.rank[holder] < decided.rank[job]:
        less = _seconds(ours - theirs)
        return f"{uid} would cost {less} less, but goes to a benchmark ahead in the queue"
    if abs(theirs - ours) <= max(error, _SAME_SHARE * min(ours, theirs)):
        return f"{uid} is expected to be as good"
    run_s, other_s = _part(costs, "run", own), _part(costs, "run", other)
    fails = _failure_share(decided, other)
    if run_s is not None and other_s is not None and other_s < run_s * (1.0 - _SAME_SHARE):
        faster = f"{uid} is expected to be {_seconds(run_s - other_s)} faster"
        return f"{faster}, but fails {_one_in(fails)}" if fails else f"{faster}, but costs more"
    if run_s is not None and other_s is not None and other_s > run_s * (1.0 + _SAME_SHARE):
        words = f"{_seconds(other_s - run_s)} sooner than on {uid}"
        return f"{words}, which fails {_one_in(fails)}" if fails > 0.1 else words
    if fails > 0.1:
        return f"{uid} is as fast, but fails {_one_in(fails)}"
    return f"{uid} costs {_seconds(theirs - ours)} more" if theirs > ours else ""


def _failure_share(decided: Decisions, pair: int) -> float:
    """Return the mean failure rate that scorers state; 0 where none does."""
    rates = [
        float(each.scores[pair])
        for each in decided.scores.proposals
        if each.unit is ScoreUnit.FAILURE and not math.isnan(each.scores[pair])
    ]
    return sum(rates) / len(rates) if rates else 0.0


def _part(costs: Costs, name: str, pair: int) -> float | None:
    values: NDArray[np.float32] | None = costs.parts_s.get(name)
    return None if values is None or math.isnan(values[pair]) else float(values[pair])


def _one_in(share: float) -> str:
    """Return "one run in five" for 0.2."""
    if share >= 0.75:
        return f"{share:.0%} of its runs"
    number = round(1.0 / max(share, 1e-3))
    return f"one run in {_WORDS[number] if number < len(_WORDS) else number}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10.0 else f"{seconds:.2g} s"
