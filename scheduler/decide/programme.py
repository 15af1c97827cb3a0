"""Plans the front of the queue by a solver: who starts, where and when.

The document holds the first `MAX_PLANNED` benchmarks of the queue, the boards that are free now and
those that are expected to come free. Each benchmark has as many of its best boards as there are
benchmarks: more change nothing. Its weight is its user priority.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.prediction.timeline import Timeline
from edgeyard.scheduler.solvers.document import Document
from edgeyard.scheduler.solvers.programmes import solve
from edgeyard.scheduler.solvers.run import Limits, start_solver
from edgeyard.scheduler.solvers.window import deadlines_s, user_columns

MAX_PLANNED = 50
"""Maximum benchmarks that are planned together; the others get the boards that are left."""

LIMITS = Limits(time_s=0.5)

Floats = NDArray[np.float64]


def plan_queue(
    batch: Batch,
    pending: Sequence[PendingBenchmark],
    timeline: Timeline,
    objective: str,
    queue: Sequence[int],
    groups: Sequence[int],
    run_s: Floats,
    ready_s: Floats,
) -> tuple[list[tuple[int, int]], str]:
    """Return benchmarks and their boards in the order of their planned starts.

    Also returns why the plan is a simple rule's, "" if it is not: the solver found none in time.

    Args:
        pending: The benchmarks, in the batch's order.
        timeline: Its reservations and leases close boards.
        objective: Of the plan.
        queue: Rows of the benchmarks to plan, first to last.
        groups: Of each of them; those of one group may use the same boards.
        run_s: Shape (groups, boards): expected run times; inf where it can't run.
        ready_s: Shape (boards,): when each is expected to be free; inf for never.
    """
    alone = run_s[groups] + ready_s
    place = np.empty(batch.shape[1])
    place[batch.board_order] = np.arange(batch.shape[1])
    kept = np.zeros(alone.shape, dtype=np.bool_)
    for row, ends in enumerate(alone):
        best = np.lexsort((place, ends))[: len(queue)]
        kept[row, best[np.isfinite(ends[best])]] = True
    used = np.asarray(kept.any(axis=0))
    boards = batch.board_order[used[batch.board_order]]
    users, usage_board_s, shares = user_columns(batch, queue)
    closes_s = np.full(batch.shape[1], np.inf)
    if timeline.next_starts:
        closes_s = timeline.closing_times(None)[timeline.slots.first[:-1]]
    document = Document(
        objective=objective,
        boards=tuple(batch.snapshot.uids[board] for board in boards.tolist()),
        run_s=np.where(kept, run_s[groups], np.nan)[:, boards],
        deadlines_s=deadlines_s(batch, batch.class_of_job[np.asarray(queue, dtype=np.intp)]),
        users=users,
        usage_board_s=usage_board_s,
        shares=shares,
        ready_s=ready_s[boards],
        closes_s=closes_s[boards],
        weights=np.array([pending[job].user_priority for job in queue], dtype=np.float64),
        cool_down_s=timeline.policy.cool_down_s,
    )
    start_solver()
    plan = solve(document, LIMITS)
    planned = np.flatnonzero(plan.board >= 0)
    starts = [
        (float(plan.start_s[row]), row, int(boards[plan.board[row]])) for row in planned.tolist()
    ]
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for row in planned.tolist():
        job = queue[row]
        alike[groups[row], batch.job_users[job], pending[job].user_priority].append(row)
    first_of = {row: its for rows in alike.values() for its in [iter(rows)] for row in rows}
    # Of benchmarks that are alike the first one of the queue starts first.
    order = [(queue[next(first_of[row])], board) for _, row, board in sorted(starts)]
    return order, plan.problem
