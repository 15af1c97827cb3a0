"""Scorers that ask an integer programme; one for each objective."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer, ScorerKind, ScoreUnit
from edgeyard.scheduler.solvers.document import Plan
from edgeyard.scheduler.solvers.programmes import solve
from edgeyard.scheduler.solvers.run import Limits, ready
from edgeyard.scheduler.solvers.window import Window, plan_scores, window_of

MAX_JOBS = 500
MAX_CELLS = 20_000
"""Of the window's pairs: building a programme in Python takes some 10 microseconds for each."""

_SHARE_OF_BUDGET = 0.6
"""Of the scorer's time; the rest is for writing the programme and starting the solver."""


class Ilp:
    """The best plan for the first benchmarks of the queue, as scores.

    A benchmark's class scores 1 on boards where the plan starts one of its benchmarks now, 1/2
    where it starts one later, and up to 1/4 elsewhere, the more the shorter the run. It abstains
    on classes without a planned benchmark and beyond the window.

    Raises:
        ConfigError: An option is wrong.
    """

    kind = ScorerKind.ILP
    unit = ScoreUnit.PREFERENCE
    objective = ""

    def __init__(
        self,
        window: int = 50,
        solver: str = "cbc",
        time_s: float = 2.0,
        gap: float = 0.005,
        nodes: int = 10_000,
    ) -> None:
        """Options of a policy.

        Args:
            window: Benchmarks that are planned together, from the front of the queue.
            solver: ``cbc`` or ``highs``.
            time_s: Most that the solver may take; never more than the scorer's own budget allows.
            gap: Relative optimality gap that is good enough.
            nodes: Most nodes of the search tree: a bound that does not depend on the machine.
        """
        problems = []
        if why := ready(solver):
            problems.append(f"solver: {why}")
        if not 1 <= window <= MAX_JOBS:
            problems.append(f"window: {window!r} is not from 1 to {MAX_JOBS}")
        if not 0 < time_s <= 60 or not 0 <= gap < 1 or nodes < 1:
            problems.append("time_s is above 0 and up to 60, gap from 0 to below 1, nodes above 0")
        if problems:
            raise ConfigError(problems)
        self._window = window
        self._limits = Limits(solver=solver, time_s=time_s, gap=gap, nodes=nodes)

    def score(self, batch: Batch, pairs: Pairs) -> NDArray[np.float32]:
        """See `Scorer.score`."""
        return self.answer(batch, pairs).scores

    def answer(self, batch: Batch, pairs: Pairs) -> Answer:
        """See `DetailedScorer.answer`."""
        window = window_of(batch, pairs, self.objective, self._window, MAX_CELLS)
        plan = self._plan(window, pairs.budget_s)
        facts = {
            "jobs": float(len(window.classes)),
            "boards": float(len(window.boards)),
            "planned": float((plan.board >= 0).sum()),
            "seconds": plan.solver_s,
        }
        if not np.isnan(plan.gap):
            facts["gap"] = plan.gap
        return Answer(scores=plan_scores(window, plan, pairs), facts=facts)

    def _plan(self, window: Window, budget_s: float) -> Plan:
        time_s = min(self._limits.time_s, budget_s * _SHARE_OF_BUDGET)
        return solve(window.document, replace(self._limits, time_s=time_s))


class CompletionIlp(Ilp):
    """Shortest mean completion time of the window."""

    name = "ilp_completion"
    objective = "completion"


class DeadlinesIlp(Ilp):
    """Fewest missed deadlines of the window; abstains on benchmarks without one."""

    name = "ilp_deadlines"
    objective = "deadlines"


class FairnessIlp(Ilp):
    """Boards to who used least of their share."""

    name = "ilp_fairness"
    objective = "fairness"


if TYPE_CHECKING:
    from edgeyard.scheduler.framework.protocols import Scorer

    _completion: Scorer = CompletionIlp()
    _deadlines: Scorer = DeadlinesIlp()
    _fairness: Scorer = FairnessIlp()
