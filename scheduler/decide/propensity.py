"""With which probability a decision was made, as `edgeyard.scheduler.decide.explore` states it."""

from __future__ import annotations

import numpy as np

from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.framework.batch import NO_ROW
from edgeyard.scheduler.framework.policy import MAPPINGS


def propensity(decided: Decisions, job: int) -> float | None:
    """Return the probability with which a benchmark got its board; None: it got none.

    Boards that went to benchmarks before it were not free for it.
    """
    if not decided.placed(job):
        return None
    share, assignment = decided.policy.explore_share, decided.assignment
    row = int(decided.batch.class_of_job[job])
    own = job in decided.timeline.due_boards
    scores, costs = decided.scores, decided.scores.costs
    pair = scores.pairs.at(row, int(assignment.board_of_job[job]))
    if not share or own or costs is None or pair is None or np.isnan(costs.total_s[pair]):
        return 1.0
    if job in assignment.explored:
        count, best = assignment.explored[job]
        return share / count + (1.0 - share if best else 0.0)
    pending = decided.pending[job]
    mapped = decided.policy.planner in MAPPINGS or decided.policy.max_joint_jobs
    drawn = pending.gang_id is None and not pending.tried_uids and not pending.avoids_boards
    if mapped or not drawn:
        return 1.0
    boards = scores.pairs.boards[scores.pairs.of(row)]
    boards = boards[~decided.timeline.late(np.full(len(boards), row), boards)]
    takers = assignment.job_of_board[boards]
    blockers = assignment.blocked_by[boards]
    by = np.where(blockers == NO_ROW, NO_ROW, assignment.job_of_board[blockers])
    rank = np.append(decided.rank, len(decided.rank))  # without a benchmark: after all
    free = (rank[takers] >= rank[job]) & (rank[by] >= rank[job])
    count = int(free.sum())
    return 1.0 - share + share / count if count > 1 else 1.0
