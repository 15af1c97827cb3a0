"""Explanations of single benchmarks, made from the cycle's arrays when somebody asks."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.choice import choice_words
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.reservations import reserved_board_reason
from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.framework.extra import EXTRA_INPUT_PATTERN, extra_problem
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import Explanation, Placement, ScorerPart, Verdict
from edgeyard.scheduler.prediction.estimates import past_pairs


class Explainer:
    """Explains one cycle; the verdicts that a class shares are made once."""

    def __init__(self, decided: Decisions) -> None:
        self._decided = decided
        self._verdicts: dict[int, tuple[Verdict, ...]] = {}

    def explain(
        self, job: int, placement: Placement | None, waiting: WaitReason | None
    ) -> Explanation:
        """Return the explanation of one benchmark, with its outcome.

        Args:
            job: Number of the benchmark in the cycle's queue of pending benchmarks.
            placement: Where the cycle placed it; None: it waits.
            waiting: Why it waits; None: it was placed.
        """
        decided = self._decided
        plugin = decided.plugins.queue_policy
        row = int(decided.batch.class_of_job[job])
        return Explanation(
            benchmark_id=decided.pending[job].benchmark_id,
            decided_at=decided.now,
            policy=f"{decided.policy.name}/{decided.policy.version}",
            rank=int(decided.rank[job]),
            never_ahead=int(decided.never_ahead[job]),
            rank_reason=decided.runner.words(
                plugin.name, lambda: plugin.reason(decided.queue, job), "by priority and age"
            ),
            priority=int(decided.priorities.values[job]),
            priority_parts=decided.priorities.parts_of(job),
            verdicts=self._of_job(job, row),
            placement=placement,
            waiting=waiting,
            never=bool(decided.never[row]),
            scorers=self._scorers_of(row),
            choice="" if placement is None else choice_words(decided, job),
            planned=None if placement is not None else decided.planned(job),
        )

    @cached_property
    def _scorers(self) -> tuple[ScorerPart, ...]:
        """Return each scorer's part in the cycle, as far as it is the same for all benchmarks."""
        scores = self._decided.scores
        answers = {each.scorer: each for each in scores.proposals}
        weighted_scorers = {each.scorer.name: each for each in self._decided.plugins.scorers}
        models = [each.reference for each in self._decided.batch.knowledge.models]
        late = {each.plugin: each.detail for each in self._decided.runner.overruns}
        return tuple(
            ScorerPart(
                scorer=name,
                objective=answers[name].objective
                if name in answers
                else weighted_scorers[name].scorer.objective,
                unit=(
                    answers[name].unit if name in answers else weighted_scorers[name].scorer.unit
                ).value,
                weight=answers[name].weight if name in answers else 0.0,
                reward=scores.rewards.get(name),
                absent=scores.absent.get(name, ""),
                fallback=answers[name].fallback if name in answers else "",
                late=late.get(name, ""),
                model=next(
                    (each for each in models if name in answers and each in answers[name].facts), ""
                ),
            )
            for name in dict.fromkeys([*weighted_scorers, *answers])
        )

    def _scorers_of(self, row: int) -> tuple[ScorerPart, ...]:
        """Return each scorer's part for a class: why a model can't rate it is its own."""
        extra = self._decided.batch.extras[row]
        facts = {each.scorer: each.facts for each in self._decided.scores.proposals}
        found = []
        for part in self._scorers:
            problems = [
                extra_problem(extra, name, required=bool(value))
                for name, value in facts.get(part.scorer, {}).items()
                if EXTRA_INPUT_PATTERN.fullmatch(name)
            ]
            absent = "; ".join(filter(None, problems))
            found.append(replace(part, absent=f"abstains: {absent}") if absent else part)
        return tuple(found)

    def _of_job(self, job: int, row: int) -> tuple[Verdict, ...]:
        """Return the class's verdicts, without boards that went to earlier benchmarks."""
        decided = self._decided
        shared = self._of_class(row)
        timeline = decided.timeline
        own = timeline.due_boards.get(job, timeline.stated_boards.get(job, NO_ROW))
        if own != NO_ROW and decided.feasibility.fits[row, own]:
            mine = self._verdict(row, own)  # reserved for this one
            shared = (*shared[:own], mine, *shared[own + 1 :])
        if job in decided.assignment.holds or job in decided.assignment.planned:
            shared = self._held_back(job, shared)
        taken = decided.assignment.job_of_board
        blocked = decided.assignment.blocked_by
        used = decided.feasibility.fits[row] & ((taken != NO_ROW) | (blocked != NO_ROW))
        if not used.any() or not decided.ready[job]:
            return shared
        verdicts = list(shared)
        for board in np.flatnonzero(used).tolist():
            if self._before(int(taken[board]), job):
                verdicts[board] = replace(
                    shared[board],
                    reason=WaitingReason.PRIORITY,
                    sentence=f"{shared[board].target_uid} goes to a benchmark ahead in the queue",
                )
            elif blocked[board] != NO_ROW and self._before(int(taken[blocked[board]]), job):
                other = decided.snapshot.uids[int(blocked[board])]
                verdicts[board] = replace(
                    shared[board],
                    reason=WaitingReason.PRIORITY,
                    sentence=f"{shared[board].target_uid} shares cores with {other}, "
                    "which goes to a benchmark ahead in the queue",
                )
        return tuple(verdicts)

    def _held_back(self, job: int, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
        """Return the verdicts of one that a mapping holds back: free boards are not good enough."""
        reason = self._decided.assignment.withheld[job]
        return tuple(
            replace(
                each,
                reason=reason.reason,
                sentence=f"{each.target_uid} fits and is free, but the benchmark {reason.sentence}",
            )
            if each.reason is None
            else each
            for each in verdicts
        )

    def _before(self, other: int, job: int) -> bool:
        rank = self._decided.rank
        return other != NO_ROW and bool(rank[other] < rank[job])

    def _of_class(self, row: int) -> tuple[Verdict, ...]:
        if row not in self._verdicts:
            decided = self._decided
            verdicts = [self._verdict(row, board) for board in range(len(decided.snapshot.uids))]
            late = decided.timeline.late_of(row) & decided.feasibility.fits[row]
            for board in np.flatnonzero(late).tolist():
                waiting = reserved_board_reason(decided.timeline, board)
                verdicts[board] = replace(
                    verdicts[board], reason=waiting.reason, sentence=waiting.sentence
                )
            self._verdicts[row] = tuple(verdicts)
        return self._verdicts[row]

    def _verdict(self, row: int, board: int) -> Verdict:
        decided = self._decided
        uid = decided.snapshot.uids[board]
        code = int(decided.feasibility.codes[row, board])
        if code:
            refusal = decided.feasibility.reason(code).refusal
            return Verdict(
                target_uid=uid,
                reason=refusal.reason,
                sentence=f"{uid} {decided.phrase(row, board)}",
                never=refusal.never,
            )
        scores = decided.scores
        pair = scores.pairs.at(row, board)
        costs = scores.costs
        energy_j, energy_low_j, energy_high_j = (_number(each, pair) for each in self._energies)
        return Verdict(
            target_uid=uid,
            reason=None,
            sentence=f"{uid} fits and is free",
            score=None if pair is None else float(scores.combined[pair]),
            scores={each.scorer: _number(each.scores, pair) for each in scores.proposals},
            cost_s=None if costs is None else _number(costs.total_s, pair),
            cost_error_s=None if costs is None else _number(costs.error_s, pair),
            cost_parts_s={}
            if costs is None
            else {name: _number(part, pair) for name, part in costs.parts_s.items()},
            energy_j=energy_j,
            energy_low_j=energy_low_j,
            energy_high_j=energy_high_j,
        )

    @cached_property
    def _energies(self) -> tuple[NDArray[np.floating], ...]:
        """Return the predicted energy of each pair, and the ends of its 95 % interval."""
        parts = past_pairs(self._decided.batch, self._decided.scores.pairs).energy_parts()
        return tuple(parts.quantile(each) for each in (0.5, 0.025, 0.975))


def _number(values: NDArray[np.floating], pair: int | None) -> float | None:
    value = math.nan if pair is None else float(values[pair])
    return None if math.isnan(value) else value
