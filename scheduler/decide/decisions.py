"""All that one cycle found out, in arrays: placements, reasons and explanations come from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.assign import Assignment
from edgeyard.scheduler.decide.feasibility import Feasibility, feasibility
from edgeyard.scheduler.decide.preempt import PreemptionPlan
from edgeyard.scheduler.decide.priority import Priorities
from edgeyard.scheduler.decide.scores import Scores
from edgeyard.scheduler.framework.batch import NOBODY, Batch, Queue
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import Binding
from edgeyard.scheduler.model.decision import BoardHolder, PendingBenchmark, Snapshot
from edgeyard.scheduler.prediction.simulated_lab import ForecastInput
from edgeyard.scheduler.prediction.timeline import Timeline


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """Row j of every job column is ``pending[j]``; row b of every board column ``uids[b]``.

    Attributes:
        bindings: Of each benchmark, were it placed.
        order: Rows of benchmarks, first to last.
        ready: Shape (jobs,): could be placed, were there a board.
    """

    now: datetime
    policy: Policy
    plugins: Plugins
    runner: PluginRunner
    snapshot: Snapshot
    pending: Sequence[PendingBenchmark]
    batch: Batch
    queue: Queue
    priorities: Priorities
    bindings: Sequence[Binding]
    order: NDArray[np.intp]
    ready: NDArray[np.bool_]
    feasibility: Feasibility
    scores: Scores
    timeline: Timeline
    assignment: Assignment
    preempted: PreemptionPlan
    holders: Sequence[BoardHolder] = ()

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        """Place in the queue, from 0, shape (jobs,)."""
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(self.order))
        return rank

    @cached_property
    def never_ahead(self) -> NDArray[np.intp]:
        """How many earlier benchmarks no known board could ever run, shape (jobs,)."""
        never = self.never[self.batch.class_of_job][self.order]
        ahead = np.empty_like(self.order)
        ahead[self.order] = np.cumsum(never) - never
        return ahead

    @cached_property
    def row_of_id(self) -> dict[str, int]:
        """Row of each benchmark."""
        return {each.benchmark_id: row for row, each in enumerate(self.pending)}

    @cached_property
    def never(self) -> NDArray[np.bool_]:
        """Whether no known board could ever run it, shape (classes,)."""
        return np.asarray(~self.feasibility.possible.any(axis=1), dtype=np.bool_)

    @cached_property
    def forecast_input(self) -> ForecastInput:
        """What forecasts depend on."""
        filters, lock = self.plugins.filters, self.plugins.lock
        return ForecastInput(
            batch=self.batch,
            pending=self.pending,
            holders=self.holders,
            timeline=self.timeline,
            order=self.order,
            places=self.rank - self.never_ahead + 1,
            board_of_job=self.assignment.board_of_job,
            pairs=self.scores.pairs,
            scores=self.scores.combined,
            fits=lambda batch: feasibility(batch, filters, PluginRunner(lock=lock)).fits,
        )

    @cached_property
    def by_uid(self) -> NDArray[np.intp]:
        """Rows of boards, sorted by name: people read names in a stable order."""
        return np.argsort(np.array(self.snapshot.uids, dtype=np.str_), kind="stable")

    def placed(self, job: int) -> bool:
        """Return whether the benchmark got a board."""
        return bool(self.assignment.board_of_job[job] != NOBODY)

    def phrase(self, row: int, board: int) -> str:
        """Return what is wrong with a refused board for a class, to follow the board's name."""
        reason = self.feasibility.reason(int(self.feasibility.codes[row, board]))
        plugin = reason.plugin
        if plugin is None:
            return f"can't be judged: filter {reason.fault}"
        return self.runner.words(
            plugin.name,
            lambda: plugin.phrase(self.batch, row, board, reason.code),
            f"is refused by filter {plugin.name}",
        )
