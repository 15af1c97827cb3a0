"""All that one cycle found out, in arrays: placements, reasons and explanations come from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.assign import Assignment
from edgeyard.scheduler.decide.feasibility import Feasibility, feasibility
from edgeyard.scheduler.decide.planning import BoardPlan, CostPlanner, planned_start
from edgeyard.scheduler.decide.preempt import PreemptionPlan
from edgeyard.scheduler.decide.priority import Priorities
from edgeyard.scheduler.decide.scores import Scores
from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Queue
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.learning.active import active_distributions
from edgeyard.scheduler.model.benchmark import Binding
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    PendingBenchmark,
    PlannedStart,
    PlanReason,
    Snapshot,
)
from edgeyard.scheduler.prediction.simulated_lab import BoardHold, ForecastInput
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
    planner: CostPlanner
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
        """Return the part of the decision that forecasts depend on."""
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
            held=self._held,
            distributions=active_distributions,
        )

    @cached_property
    def _held(self) -> Mapping[int, BoardHold]:
        held = {job: BoardHold(hold.board) for job, hold in self.assignment.holds.items()}
        for job, planned in self.assignment.planned.items():
            waits_for_board = planned.reason is PlanReason.BETTER_BOARD
            held[job] = BoardHold(planned.board, 0.0 if waits_for_board else planned.start_s)
        return held

    def planned(self, job: int) -> PlannedStart | None:
        """Return the board and the start that are planned for a benchmark; None: there is none."""
        if not self.ready[job] and job not in self.timeline.reservations:
            return None
        if self.pending[job].gang_id is not None and not self.placed(job):
            return None  # what a board of its own is planned for says nothing of the others
        hold = self.assignment.holds.get(job)
        return planned_start(self.batch, self.timeline, job, self._plan.get(job), hold)

    @cached_property
    def _plan(self) -> Mapping[int, BoardPlan]:
        plan = dict(self.planner.complete())
        for job in np.flatnonzero(self.assignment.board_of_job != NO_ROW).tolist():
            board = int(self.assignment.board_of_job[job])
            plan[job] = BoardPlan(board=board, start_s=0.0, reason=PlanReason.NOW)
        return plan

    def planned_starts(self) -> Mapping[str, PlannedStart]:
        """Return the planned starts of all benchmarks that wait and have one, by id."""
        waiting = np.flatnonzero(self.assignment.board_of_job == NO_ROW)
        found = {}
        for job in waiting.tolist():
            if (planned := self.planned(job)) is not None:
                found[self.pending[job].benchmark_id] = planned
        return found

    @cached_property
    def by_uid(self) -> NDArray[np.intp]:
        """Rows of boards, sorted by name: people read names in a stable order."""
        return np.argsort(np.array(self.snapshot.uids, dtype=np.str_), kind="stable")

    def placed(self, job: int) -> bool:
        """Return whether the benchmark got a board."""
        return bool(self.assignment.board_of_job[job] != NO_ROW)

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
