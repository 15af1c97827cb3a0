"""Learned queue policies: scoring functions of a job and the moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Queue, ranks_of
from edgeyard.scheduler.learning.queue_model import (
    QueueModel,
    load_queue_model,
    queue_manifests,
)

Floats = NDArray[np.float64]

SHIPPED = Path(__file__).parent / "models"
MAX_WAIT_S = 30 * 86400.0
"""Who has waited so long is not overtaken any more, also where no guard is set."""


class LearnedQueue:
    """The least score of the model first.

    The model reads requested and predicted run time, processors, wait, free share and length of the
    queue, each of the job's own pool: its family of boards in the lab, the machine in a replay.
    Past the guard time (``guard_s``) the older comes first and no benchmark is overtaken.
    """

    def __init__(self, model: QueueModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.manifest.name

    def order(self, queue: Queue) -> NDArray[np.intp]:
        """At equal scores the more urgent, then the older."""
        guarded = queue.guarded | (queue.waits_s >= MAX_WAIT_S)
        scores = queue.derived(self._scores)
        return ranks_of(queue, queue.turns, scores, -queue.priorities, guarded=guarded)

    def reason(self, queue: Queue, job: int) -> str:
        if queue.guarded[job] or queue.waits_s[job] >= MAX_WAIT_S:
            return f"waiting for {queue.ages_s[job]:.0f} s, so no younger one may overtake it"
        return (
            f"{self.name} gives {queue.derived(self._scores)[job]:.4g}, the lowest number "
            "comes first"
        )

    def _scores(self, queue: Queue) -> Floats:
        from edgeyard.scheduler.kernel.queue_inputs import INPUTS, queue_table
        from edgeyard.scheduler.kernel.rollouts import expected_runs

        outlook = queue.outlook
        if outlook is None:  # nodes of several resources
            return queue.expected_s
        expected_s, weight = expected_runs(
            queue.expected_s, outlook.samples_s, outlook.weights, np.zeros(len(queue.ids))
        )
        table = np.empty((len(queue.ids), INPUTS))
        for pool in np.unique(outlook.pools).tolist():
            jobs = np.flatnonzero(outlook.pools == pool)
            here = outlook.running_pools == pool
            free = int(outlook.free[pool])
            table[jobs] = queue_table(
                queue.expected_s[jobs],
                expected_s[jobs],
                weight[jobs],
                queue.processors[jobs],
                queue.waits_s[jobs],
                free,
                max(free + int(outlook.running_processors[here].sum()), 1),
            )
        return self._model.scores(table)


def load_learned_queue(manifest: Path) -> LearnedQueue:
    """Return the queue policy of a manifest.

    Raises:
        ConfigError: It can't be used, and why.
    """
    from edgeyard.scheduler.kernel.queue_inputs import NAMES

    return LearnedQueue(load_queue_model(manifest, NAMES))


def learned_queues(folder: Path = SHIPPED) -> Mapping[str, Callable[[], LearnedQueue]]:
    """Return factories by name, for the manifests of a folder.

    Raises:
        ConfigError: A manifest is wrong.
    """
    return {
        name: partial(load_learned_queue, path) for name, path in queue_manifests(folder).items()
    }
