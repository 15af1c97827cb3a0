"""The queue: pending benchmarks in the order in which boards are given out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue
from edgeyard.scheduler.framework.protocols import QueuePolicy
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.decision import PendingBenchmark


def build_queue(
    pending: Sequence[PendingBenchmark],
    now: datetime,
    priorities: NDArray[np.int64],
    ages: NDArray[np.float64],
    slacks: NDArray[np.float64],
) -> Queue:
    """The columns that queue policies read."""
    return Queue(
        now=now,
        ids=tuple(each.benchmark_id for each in pending),
        users=tuple(each.user_id for each in pending),
        priorities=priorities,
        ages_s=ages,
        slacks_s=slacks,
        partly_running=np.array([each.campaign_started for each in pending], dtype=bool),
    )


def order_queue(queue: Queue, policy: QueuePolicy, runner: PluginRunner) -> NDArray[np.intp]:
    """Rows of benchmarks, first to last; by priority and age if the policy fails.

    Returns:
        Shape (jobs,), a permutation.
    """
    ranks = runner.order(policy, queue)
    if ranks is None:
        return np.lexsort((np.array(queue.ids, dtype=np.str_), -queue.ages_s, -queue.priorities))
    return np.argsort(ranks, kind="stable")
