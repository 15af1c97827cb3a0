"""Scorers that plan the first benchmarks of the queue; one for each objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, DetailedScorer, ScorerKind, ScoreUnit
from edgeyard.scheduler.solvers.assignment import prepare
from edgeyard.scheduler.solvers.document import Plan, PlanStatus
from edgeyard.scheduler.solvers.programmes import solve
from edgeyard.scheduler.solvers.run import Limits, start_solver
from edgeyard.scheduler.solvers.window import Window, plan_scores, plan_seconds, window_of

MAX_JOBS = 500

_SHARE_OF_BUDGET = 0.6
"""Share of the scorer's time for the solver; the rest is for making window and programme."""


class PlanScorer(DetailedScorer):
    """The best plan for the first benchmarks of the queue, as scores.

    It abstains on classes without a planned benchmark and beyond the window.

    Raises:
        ConfigError: An option is wrong.
    """

    name = ""
    objective = ""
    kind = ScorerKind.ILP
    unit = ScoreUnit.SECONDS

    def __init__(self, window: int = 50) -> None:
        """Take the options of a policy.

        Args:
            window: Benchmarks that are planned together, from the front of the queue.
        """
        if not 1 <= window <= MAX_JOBS:
            raise ConfigError([f"window: {window!r} is not from 1 to {MAX_JOBS}"])
        prepare()
        self._window = window
        self._limits = Limits()

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        window = window_of(batch, pairs, self.objective, self._window)
        time_s = min(self._limits.time_s, pairs.budget_s * _SHARE_OF_BUDGET)
        plan = solve(window.document, replace(self._limits, time_s=time_s))
        facts = {
            "jobs": float(len(window.classes)),
            "boards": float(len(window.boards)),
            "planned": float((plan.board >= 0).sum()),
        }
        if plan.solver_s:
            facts["seconds"] = plan.solver_s
        if not np.isnan(plan.gap):
            facts["gap"] = plan.gap
        fallback = ""
        if plan.status is PlanStatus.GREEDY:
            fallback = f"a greedy plan, because the solver found none: {plan.problem}"
        return Answer(scores=self._scores(window, plan, pairs), facts=facts, fallback=fallback)

    def _scores(self, window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
        raise NotImplementedError


class _ExactScorer(PlanScorer):
    """Scores are seconds until a benchmark would end on a board, if the plan of the others is kept.

    The plan is an assignment, solved exactly: 50 benchmarks on thousands of boards in milliseconds.
    """

    def _scores(self, window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
        return plan_seconds(window, plan, pairs)


class _ProgrammeScorer(PlanScorer):
    """Scores are preferences, because the objective is not a time.

    A benchmark's class scores 1 on boards where the plan starts one of its benchmarks now, 1/2
    where it starts one later, and up to 1/4 elsewhere, the more the shorter the run.
    """

    unit = ScoreUnit.PREFERENCE

    def __init__(
        self,
        window: int = 50,
        time_s: float = 2.0,
        gap: float = 0.005,
        nodes: int = 10_000,
        solver: str = "highs",
    ) -> None:
        """Take the options of a policy.

        Args:
            window: Benchmarks that are planned together, from the front of the queue.
            time_s: After it the solver is killed; never more than 60 % of the scorer's own budget.
            gap: Relative optimality gap that is good enough.
            nodes: Most nodes of the search tree: a bound that does not depend on the machine.
            solver: Without effect: activated policies and recorded cycles name one.
        """
        super().__init__(window)
        if not 0 < time_s <= 60 or not 0 <= gap < 1 or nodes < 1:
            raise ConfigError(
                ["time_s is above 0 and up to 60, gap from 0 to below 1, nodes above 0"]
            )
        start_solver()
        self._limits = Limits(time_s=time_s, gap=gap, nodes=nodes)

    def _scores(self, window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
        return plan_scores(window, plan, pairs)


class CompletionIlp(_ExactScorer):
    """Shortest mean completion time of the window."""

    name = "ilp_completion"
    objective = "completion"


class AssignmentScorer(_ExactScorer):
    """One benchmark a board: as many as can start now, at the shortest total run time."""

    name = "assignment"
    objective = "run time"


class DeadlinesIlp(_ProgrammeScorer):
    """Fewest missed deadlines of the window; abstains on benchmarks without one."""

    name = "ilp_deadlines"
    objective = "deadlines"

    def _scores(self, window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
        with np.errstate(invalid="ignore"):
            in_time = plan.ends_s(window.document) <= window.document.deadlines_s + 1e-6
        board = np.where(in_time, plan.board, -1)
        return plan_scores(window, replace(plan, board=board), pairs)


class FairnessIlp(_ProgrammeScorer):
    """Boards for users with the lowest usage of their share."""

    name = "ilp_fairness"
    objective = "fairness"

    def _scores(self, window: Window, plan: Plan, pairs: Pairs) -> NDArray[np.float32]:
        board = np.where(plan.start_s <= 0.0, plan.board, -1)
        return plan_scores(window, replace(plan, board=board), pairs)
