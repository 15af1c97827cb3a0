"""Plans a board and a start for each pending benchmark, by expected cost in seconds.

What it costs that a benchmark starts on board b at time t, from now::

    cost(b, t) = (t - now) + run + failures + credits x tariff(t) / tariff(now) + joules
                 + quiet_s x other runs on b's host at t

The parts are those of the policy's aggregator (`Costs`), asked for busy boards too, as if they were
free. Candidates for t are the time at which the board is expected to come free, the time at which
its host is expected to be quiet (where the policy's ``quiet_s`` is above 0), and the hours at which
the tariff changes.

A benchmark for which a board is free starts there, unless another board or time saves more than
`HOLD_ERRORS` standard errors of that difference (of both expected costs, and of when the board
comes free) and more than the policy's share ``min_hold_gain`` of what starting now costs. Where
little is known, the errors are wide, and no benchmark is held back. Nor is one that would then
start after the policy's ``guard_s``, might miss a deadline, or, unless it is for a cheap hour,
would by then have waited for longer than starting now costs: benchmarks that come first may take
the better board again and again. So at the latest when ``guard_s`` is over a benchmark takes any
free board.

Plans are made in the order of the queue: a benchmark sees the boards as those before it leave them.
Each cycle plans anew; nothing is stored and no board is reserved. At most `MAX_PLANNED` benchmarks
are compared in a cycle, of `MAX_PAIRS` pairs of class and board; the others are not held back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.decide.feasibility import feasibility
from edgeyard.scheduler.decide.mapping import Hold, hold_reason
from edgeyard.scheduler.decide.scores import Scores, expected_costs
from edgeyard.scheduler.framework.batch import NO_ROW, Batch, Pairs, Queue, pairs_of
from edgeyard.scheduler.framework.policy import Planner, Policy
from edgeyard.scheduler.framework.protocols import Costs
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model import waiting_reasons
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.model.decision import (
    BoardHolder,
    PendingBenchmark,
    PlannedStart,
    PlanReason,
)
from edgeyard.scheduler.prediction.simulated_lab import expected_run_times, left_times
from edgeyard.scheduler.prediction.timeline import Occupancy, Timeline, conflict_group, leases_of

HOLD_ERRORS = 2.0
"""Standard errors that holding a benchmark back has to save at least.

In labs of 20 boards 1, 0.5 and 0 make completion 3 to 5 % longer (`benchmarks.plan_margins`).
"""

MAX_PLANNED = 1_000
"""Maximum benchmarks that are planned in one cycle."""

MAX_PAIRS = 200_000
"""Maximum pairs of class and board that are priced, in the order of the queue."""

MAX_CELLS = 10_000_000
"""Maximum classes times boards with which boards that are busy now are considered."""

_TOLERANCE_S = 1e-6
_UNKNOWN_END_S = 1e8
"""Finite replacement for unknown ends."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPlan:
    """What is planned for one benchmark.

    Attributes:
        board: Row of the board.
        start_s: Expected start, seconds from now.
        reason: Why this board and this start.
        free_board: Row of the best board that is free now; `NO_ROW` where none is.
        gain_s: By how much its expected cost is less than there; 0 where no board is free.
        error_s: Standard error of the gain.
    """

    board: int
    start_s: float
    reason: PlanReason
    free_board: int = NO_ROW
    gain_s: float = 0.0
    error_s: float = 0.0

    @property
    def is_hold(self) -> bool:
        """Whether it waits although a board is free."""
        return self.free_board != NO_ROW and self.reason is not PlanReason.NOW


@dataclass(frozen=True, slots=True, eq=False)
class _ClassCosts:
    """What runs of a class cost on each of its boards; shape (boards of the class,) each.

    Attributes:
        boards: Rows of the boards.
        fixed_s: All of the cost that does not depend on the start.
        credits_s: The part of the credits, at the tariff of now.
        error_s: Standard error of the cost.
        run_s: Expected run time.
        min_cost_s: The least cost on any board, busy or not, without a wait.
    """

    boards: NDArray[np.intp]
    fixed_s: Floats
    credits_s: Floats
    error_s: Floats
    run_s: Floats
    min_cost_s: float

    def at(self, board: int) -> int:
        """Return the place of a board; -1 where it is none of the class's."""
        place = int(np.searchsorted(self.boards, board))
        return place if place < len(self.boards) and self.boards[place] == board else -1


class CostPlanner:
    """Plans the benchmarks of one cycle in the order of the calls of `choose`."""

    def __init__(
        self,
        batch: Batch,
        pending: Sequence[PendingBenchmark],
        holders: Sequence[BoardHolder],
        policy: Policy,
        queue: Queue,
        order: NDArray[np.intp],
        timeline: Timeline,
        pairs: Pairs,
        fits: Callable[[Batch], NDArray[np.bool_]],
        price: Callable[[Batch, Pairs], Costs | None],
    ) -> None:
        """Store the input of the plan; nothing is computed yet.

        Args:
            pending: The benchmarks, in the batch's order.
            holders: Live attempts that have a board.
            policy: States who plans, the guard time and what quiet hosts are worth.
            queue: The benchmarks' waits and slacks.
            order: Rows of those that may be placed now, first to last.
            timeline: Its reservations and leases close boards to those that wait.
            pairs: Which class may start on which board now.
            fits: Returns what the filters let pass; called with a batch whose boards are free of
                the holders.
            price: Returns what runs cost on such a batch; None: nothing is known.
        """
        self._batch, self._pending, self._holders = batch, pending, holders
        self._policy, self._queue, self._order = policy, queue, order
        self._timeline, self._pairs, self._fits, self._price = timeline, pairs, fits, price
        self.may_hold = policy.planner is Planner.EXPECTED_COST
        self._left = MAX_PLANNED
        self._classes: dict[int, _ClassCosts | None] = {}
        self._notes: list[tuple[int, BoardPlan | int | None]] = []
        self._planned: dict[int, BoardPlan] = {}

    def place(self, job: int, board: int) -> None:
        """Record that a benchmark starts on a board now."""
        self._notes.append((job, board))

    def pass_over(self, job: int) -> None:
        """Record that no board is free for a benchmark."""
        self._notes.append((job, None))

    def choose(
        self, job: int, best: int, free: NDArray[np.bool_], failed_boards: Sequence[int]
    ) -> int:
        """Return the board on which a benchmark starts now; `NO_ROW`: it is held back.

        Args:
            job: Its row.
            best: The free board that the scores like best.
            free: Shape (boards,): not given out in this cycle.
            failed_boards: Boards that failed it, and that it does not wait for.
        """
        if not self.may_hold or self._left <= 0:
            return best
        row = int(self._batch.class_of_job[job])
        costs = self._costs_of(row)
        place = -1 if costs is None else costs.at(best)
        if costs is None or place < 0:
            return best
        now_s = float(costs.fixed_s[place] + costs.credits_s[place])
        if not self._cost_varies and now_s - costs.min_cost_s <= self._needed_gain_s(
            now_s, float(costs.error_s[place])
        ):
            return best
        self._apply_notes()
        if self._left <= 0:
            return best
        planned = self._plan(job, costs, best, free, failed_boards)
        if planned.is_hold:
            self._planned[job] = planned
            self._occupy(costs, planned)
            return NO_ROW
        return planned.board

    @property
    def holds(self) -> Mapping[int, BoardPlan]:
        """Plans of the benchmarks that wait although a board is free, by row."""
        return {job: each for job, each in self._planned.items() if each.is_hold}

    def complete(self) -> Mapping[int, BoardPlan]:
        """Return the plan by row of the benchmark, as far as `MAX_PLANNED` reaches."""
        self._apply_notes()
        return self._planned

    def resume(
        self,
        board_of_job: NDArray[np.intp],
        planned: Mapping[int, BoardPlan],
        without: Container[int],
    ) -> None:
        """Take over the decisions of another planner with the same input.

        Args:
            board_of_job: Shape (jobs,): row of the board that each got, `NO_ROW` for none.
            planned: Whom it held back.
            without: Rows of those that wait whatever boards come free.
        """
        for job in self._order.tolist():
            if job in planned:
                self._notes.append((job, planned[job]))
            elif board_of_job[job] != NO_ROW:
                self.place(job, int(board_of_job[job]))
            elif job not in without:
                self.pass_over(job)

    def _apply_notes(self) -> None:
        notes, self._notes = self._notes, []
        for job, found in notes:
            if self._left <= 0:
                return
            costs = self._costs_of(int(self._batch.class_of_job[job]))
            if costs is None:
                continue
            if found is not None and not isinstance(found, BoardPlan):
                found = BoardPlan(board=found, start_s=0.0, reason=PlanReason.NOW)
            planned = found or self._plan_without_free_board(job, costs)
            if planned is not None:
                if planned.reason is not PlanReason.NOW:
                    self._planned[job] = planned
                self._occupy(costs, planned)

    def _plan(
        self,
        job: int,
        costs: _ClassCosts,
        best: int,
        free: NDArray[np.bool_],
        failed_boards: Sequence[int],
    ) -> BoardPlan:
        """Compare the starts now with all later ones."""
        self._left -= 1
        boards = costs.boards
        now_place = costs.at(best)
        now_s = costs.fixed_s + costs.credits_s + self._noise_s(boards, np.zeros(len(boards)))
        if self._policy.quiet_s:  # the scores don't know of it
            at_once = np.zeros(len(boards), dtype=np.bool_)
            its = self._pairs.boards[self._pairs.of(int(self._batch.class_of_job[job]))]
            at_once[np.searchsorted(boards, its[np.isin(its, boards)])] = True
            at_once &= free[boards] & ~self._not_awaited[boards] & ~np.isin(boards, failed_boards)
            if at_once.any():
                quietest = int(np.where(at_once, now_s, np.inf).argmin())
                needed = np.hypot(costs.error_s[quietest], costs.error_s[now_place])
                if now_s[now_place] - now_s[quietest] > needed:
                    now_place = quietest
        start_s, total_s, reasons = self._later_starts(costs, failed_boards)
        later = int(total_s.argmin())
        free_board = int(boards[now_place])
        start_now = BoardPlan(board=free_board, start_s=0.0, reason=PlanReason.NOW)
        if not np.isfinite(total_s[later]):
            return start_now
        place = later % len(boards)
        gain_s = float(now_s[now_place] - total_s[later])
        if place == now_place:  # the run is the same: only its credits differ
            share = costs.credits_s[place] / max(now_s[place], _TOLERANCE_S)
            error_s = float(costs.error_s[place] * share)
        else:
            error_s = float(np.hypot(costs.error_s[now_place], costs.error_s[place]))
        if reasons[later] is not PlanReason.CHEAP_HOUR:
            error_s = float(np.hypot(error_s, self._ready_error_s[boards[place]]))
        at_s = float(start_s[later])
        if gain_s <= self._needed_gain_s(float(now_s[now_place]), error_s):
            return start_now
        wait_s = float(self._queue.waits_s[job]) + at_s
        if wait_s >= self._policy.guard_s:
            return start_now
        if reasons[later] is not PlanReason.CHEAP_HOUR and wait_s > now_s[now_place]:
            return start_now  # others may take the board again and again
        deadline = self._pending[job].deadline
        if deadline is not None:
            left_s = (deadline - self._batch.now).total_seconds()
            if at_s + costs.run_s[place] + 2.0 * (error_s + costs.error_s[place]) > left_s:
                return start_now
        reason = reasons[later]
        if reason is PlanReason.BETTER_BOARD and self._policy.quiet_s:
            both = np.array([free_board, int(boards[place])])
            noise_s = self._noise_s(both, np.array([0.0, at_s]))
            if gain_s <= noise_s[0] - noise_s[1]:  # it is quieter then, and no better otherwise
                reason = PlanReason.QUIET_HOST
        return BoardPlan(
            board=int(boards[place]),
            start_s=at_s,
            reason=reason,
            free_board=free_board,
            gain_s=gain_s,
            error_s=error_s,
        )

    def _plan_without_free_board(self, job: int, costs: _ClassCosts) -> BoardPlan | None:
        """Plan a benchmark for which no board is free."""
        self._left -= 1
        failed_boards = self._boards_that_failed(job)
        start_s, total_s, reasons = self._later_starts(costs, failed_boards, also_free=True)
        later = int(total_s.argmin())
        if not np.isfinite(total_s[later]):
            return None
        reason = reasons[later]
        return BoardPlan(
            board=int(costs.boards[later % len(costs.boards)]),
            start_s=float(start_s[later]),
            reason=PlanReason.NEXT_FREE if reason is PlanReason.BETTER_BOARD else reason,
        )

    def _later_starts(
        self, costs: _ClassCosts, failed_boards: Sequence[int], *, also_free: bool = False
    ) -> tuple[Floats, Floats, Sequence[PlanReason]]:
        """Return start, expected cost and reason of all later starts, one block per candidate time.

        Returns:
            Shape (times x boards of the class,) each; the cost is inf where it can't start.
        """
        boards, count = costs.boards, len(costs.boards)
        wait_s = np.where(self._not_awaited[boards], np.inf, self.ready_s[boards])
        if failed_boards:
            wait_s = np.where(np.isin(boards, failed_boards), np.inf, wait_s)
        times: list[tuple[PlanReason, Floats]] = [(PlanReason.BETTER_BOARD, wait_s)]
        if self._policy.quiet_s:
            quiet_s = np.maximum(wait_s, self._host_idle_at_s[boards])
            times.append((PlanReason.QUIET_HOST, np.where(quiet_s > wait_s, quiet_s, np.inf)))
        if self._tariff_changes_s and costs.credits_s.any():
            times += [
                (PlanReason.CHEAP_HOUR, np.where(change_s > wait_s, change_s, np.inf))
                for change_s in self._tariff_changes_s
            ]
        start_s = np.concatenate([each for _, each in times])
        reasons = [reason for reason, _ in times for _ in range(count)]
        tiled = np.tile(boards, len(times))
        total_s = start_s + np.tile(costs.fixed_s, len(times))
        credits_s = np.tile(costs.credits_s, len(times))
        total_s += (
            credits_s if not self._tariff_changes_s else credits_s * self._relative_rates(start_s)
        )
        known = np.isfinite(start_s)
        total_s[known] += self._noise_s(tiled[known], start_s[known])
        if not also_free:
            total_s[start_s <= 0.0] = np.inf
        return start_s, np.where(known, total_s, np.inf), reasons

    def _occupy(self, costs: _ClassCosts, planned: BoardPlan) -> None:
        place = costs.at(planned.board)
        run_s = float(costs.run_s[place]) if place >= 0 else 0.0
        until_s = planned.start_s + run_s + self._policy.cool_down_s
        error_s = float(costs.error_s[place]) if place >= 0 else 0.0
        near = conflict_group(self._batch, planned.board)
        self.ready_s[near] = np.maximum(self.ready_s[near], until_s)
        self._ready_error_s[near] = np.hypot(self._ready_error_s[near], error_s)
        self.__dict__.pop("_host_idle_at_s", None)
        self.__dict__.pop("_ends_by_host", None)

    def _needed_gain_s(self, now_s: float, error_s: float) -> float:
        """Return the least gain for which a benchmark could be held back."""
        return max(HOLD_ERRORS * error_s, self._policy.min_hold_gain * now_s)

    def _boards_that_failed(self, job: int) -> list[int]:
        """Return the boards that failed a benchmark."""
        each = self._pending[job]
        if not each.tried_uids and not each.avoids_boards:
            return []
        return self._batch.rows_of_uids(each.tried_uids | each.avoided_uids(self._batch.now))

    @cached_property
    def _occupancy(self) -> Occupancy:
        return Occupancy(self._batch, self._holders, self._policy.cool_down_s)

    @cached_property
    def _left_times(self) -> tuple[Floats, Floats]:
        return left_times(self._batch, self._holders)

    @cached_property
    def ready_s(self) -> Floats:
        """Time at which each board is expected to become free, seconds from now; inf: unknown."""
        return self._occupancy.free_s(self._left_times[0])

    @cached_property
    def _ready_error_s(self) -> Floats:
        errors = np.zeros(self._batch.shape[1])
        row_of_uid = self._batch.row_of_uid
        for each, error_s in zip(self._holders, self._left_times[1].tolist(), strict=True):
            board = row_of_uid.get(each.target_uid)
            if board is not None:
                near = conflict_group(self._batch, board)
                errors[near] = np.maximum(errors[near], error_s)
        return errors

    @cached_property
    def _not_awaited(self) -> NDArray[np.bool_]:
        """Boards that no benchmark waits for, because they will be reserved or leased."""
        if self._timeline.next_starts or leases_of(self._batch):
            return self._timeline.slots.cut
        return np.zeros(self._batch.shape[1], dtype=np.bool_)

    @cached_property
    def _cost_varies(self) -> bool:
        """Whether a later start on the same board may cost less."""
        return bool(self._policy.quiet_s or self._tariff_changes_s)

    @cached_property
    def _host_idle_at_s(self) -> Floats:
        """Time from which nothing is expected to run on each board's host, shape (boards,)."""
        hosts = self._batch.board_hosts
        until_s = np.zeros(int(hosts.max(initial=-1)) + 1)
        np.maximum.at(until_s, hosts, self.ready_s)
        return until_s[hosts]

    @cached_property
    def _ends_by_host(self) -> tuple[Floats, NDArray[np.intp]]:
        """Times at which boards become free, by host and time, and the end of each host's part."""
        hosts = self._batch.board_hosts
        keys = np.sort(hosts * (2.0 * _UNKNOWN_END_S) + np.minimum(self.ready_s, _UNKNOWN_END_S))
        ends = np.cumsum(np.bincount(hosts))
        return keys, ends

    def _noise_s(self, boards: NDArray[np.intp], start_s: Floats) -> Floats:
        """Return the cost of other runs on the hosts at these starts."""
        if not self._policy.quiet_s:
            return np.zeros(len(boards))
        keys, ends = self._ends_by_host
        hosts = self._batch.board_hosts[boards]
        at = np.searchsorted(
            keys, hosts * (2.0 * _UNKNOWN_END_S) + start_s + _TOLERANCE_S, side="right"
        )
        others = ends[hosts] - at - (self.ready_s[boards] > start_s + _TOLERANCE_S)
        return np.asarray(self._policy.quiet_s * others, dtype=np.float64)

    @cached_property
    def _tariff_changes_s(self) -> Sequence[float]:
        """Changes of the tariff within the next day, seconds from now."""
        now = self._batch.now
        return [(at - now).total_seconds() for at in self._batch.knowledge.tariff.changes(now)]

    def _relative_rates(self, start_s: Floats) -> Floats:
        """Return the tariffs of starts within a day, over that of now; shape (starts,)."""
        now, tariff = self._batch.now, self._batch.knowledge.tariff
        times = [now, *(now + timedelta(seconds=each) for each in self._tariff_changes_s)]
        factors = np.array([tariff.at(each + timedelta(seconds=_TOLERANCE_S)) for each in times])
        place = np.searchsorted(
            np.array(self._tariff_changes_s), start_s + _TOLERANCE_S, side="right"
        )
        relative: Floats = factors[place] / max(factors[0], 1e-9)
        return relative

    def _costs_of(self, row: int) -> _ClassCosts | None:
        if row not in self._classes:
            self._classes[row] = self._found_costs(row)
        return self._classes[row]

    def _found_costs(self, row: int) -> _ClassCosts | None:
        if self._priced is None:
            return None
        pairs, costs = self._priced
        its = pairs.of(row)
        if its.start == its.stop:
            return None
        boards = pairs.boards[its]
        if costs is None or np.isnan(costs.total_s[its]).any():
            run_s = expected_run_times(self._batch, pairs.rows[its], boards)
            nothing = np.zeros(len(boards))
            return _ClassCosts(boards, run_s, nothing, run_s, run_s, float(run_s.min()))
        total_s = costs.total_s[its].astype(np.float64)
        credits_s = np.zeros(len(boards))
        if "credits" in costs.parts_s:
            credits_s = np.nan_to_num(costs.parts_s["credits"][its]).astype(np.float64)
        run_s = total_s
        if "run" in costs.parts_s:
            run_s = costs.parts_s["run"][its].astype(np.float64)
            run_s = np.where(np.isnan(run_s), total_s, run_s)
        return _ClassCosts(
            boards,
            total_s - credits_s,
            credits_s,
            costs.error_s[its].astype(np.float64),
            run_s,
            float(total_s.min()),
        )

    @cached_property
    def _priced(self) -> tuple[Pairs, Costs | None] | None:
        """Pairs of the planned classes with free and busy boards, and their costs."""
        batch = self._batch
        if not len(self._order) or batch.shape[0] * batch.shape[1] > MAX_CELLS:
            return None
        rows = batch.class_of_job[self._order]
        rows = rows[np.sort(np.unique(rows, return_index=True)[1])]
        when_idle = self._occupancy.when_idle()
        waits = self._occupancy.taken & np.isfinite(self.ready_s) & ~self._not_awaited
        wanted = np.zeros(batch.shape, dtype=np.bool_)
        if waits.any():
            wanted[:, waits] = self._fits(when_idle)[:, waits]
        wanted[self._pairs.rows, self._pairs.boards] = True
        sizes = np.cumsum(wanted[rows].sum(axis=1))
        kept = np.zeros(batch.shape[0], dtype=np.bool_)
        kept[rows[sizes <= MAX_PAIRS]] = True
        wanted[~kept] = False
        pairs = pairs_of(wanted)
        return (pairs, self._price(when_idle, pairs)) if len(pairs) else None


def make_planner(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    holders: Sequence[BoardHolder],
    policy: Policy,
    queue: Queue,
    timeline: Timeline,
    scores: Scores,
    plugins: Plugins,
) -> CostPlanner:
    """Return the planner of one cycle, which prices boards by the policy's filters and scorers.

    Args:
        batch: The cycle's batch; planning calls the plugins with copies in which boards are free.
        pending: The benchmarks of the batch, in its order.
        holders: What runs on the boards that are busy.
        policy: The policy that decides.
        queue: The benchmarks as queue policies see them.
        timeline: When each board comes free, and when it is reserved or leased.
        scores: The scores of the boards that are free now.
        plugins: The policy's plugins.
    """

    def fits(cleared: Batch) -> NDArray[np.bool_]:
        return feasibility(cleared, plugins.filters, PluginRunner(lock=plugins.lock)).fits

    def price(cleared: Batch, pairs: Pairs) -> Costs | None:
        return expected_costs(cleared, pairs, scores, plugins, PluginRunner(lock=plugins.lock))

    return CostPlanner(
        batch,
        pending,
        holders,
        policy,
        queue,
        batch.queue,
        timeline,
        scores.pairs,
        fits,
        price,
    )


def planned_start(
    batch: Batch, timeline: Timeline, job: int, planned: BoardPlan | None, hold: Hold | None
) -> PlannedStart | None:
    """Return board, start and reason of one benchmark, with a sentence; None: it has no plan.

    Args:
        timeline: Its reservations come before what is planned.
        job: Row of the benchmark.
        planned: What this module planned for it.
        hold: What a mapping heuristic holds it back for.
    """
    uids = batch.snapshot.uids
    own = timeline.reservations.get(job)
    if own is not None and own.start > batch.now:
        uid = uids[own.board]
        return PlannedStart(
            target_uid=uid,
            start=own.start,
            reason=PlanReason.BOOKED,
            sentence=f"{uid} is reserved for it from then on",
        )
    if hold is not None:
        return PlannedStart(
            target_uid=uids[hold.board],
            start=hold.free_at,
            reason=PlanReason.BETTER_BOARD,
            sentence=hold_reason(batch, hold).sentence,
            gain_s=round(hold.sooner_s, 3),
        )
    if planned is None:
        return None
    uid = uids[planned.board]
    match planned.reason:
        case PlanReason.NOW:
            sentence = f"{uid} is free: it starts at once"
        case _ if planned.is_hold:
            sentence = plan_hold_reason(batch, planned).sentence
        case PlanReason.QUIET_HOST:
            sentence = f"no board is free; the host of {uid} is expected to be quiet then"
        case PlanReason.CHEAP_HOUR:
            sentence = f"no board is free; {uid} will be free then, and credits cost less"
        case _:
            sentence = f"no board is free; {uid} is expected to be the best board that becomes free"
    return PlannedStart(
        target_uid=uid,
        start=batch.now + timedelta(seconds=planned.start_s),
        reason=planned.reason,
        sentence=sentence,
        gain_s=round(planned.gain_s, 3) if planned.is_hold else None,
        error_s=round(planned.error_s, 3) if planned.is_hold else None,
    )


def plan_hold_reason(batch: Batch, planned: BoardPlan) -> WaitReason:
    """Return why a benchmark waits that the plan holds back."""
    uids = batch.snapshot.uids
    start = batch.now + timedelta(seconds=planned.start_s)
    return waiting_reasons.held_by_plan(
        _WAITING[planned.reason],
        uids[planned.board],
        start,
        planned.gain_s,
        uids[planned.free_board],
    )


_WAITING: Mapping[PlanReason, WaitingReason] = {
    PlanReason.BETTER_BOARD: WaitingReason.FASTER_BOARD,
    PlanReason.QUIET_HOST: WaitingReason.QUIET_HOST,
    PlanReason.CHEAP_HOUR: WaitingReason.CHEAP_HOUR,
}
