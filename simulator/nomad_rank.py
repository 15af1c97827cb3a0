"""Which host Nomad chooses for a job that names no board: its own rank, for simulated labs.

From Nomad 1.11.3 (packages ``scheduler/feasible`` and ``nomad/structs``):

- ``stack.go``, ``GenericStack.SetNodes``: the nodes are shuffled by the evaluation; of a batch job,
  as Edgeyard's are, two options are ranked (``limit := 2``, "the power of two choices").
- ``rank.go``, ``BinPackIterator``: an option is a node that meets the constraints and has enough
  CPU, memory and devices left. Its score is ``ScoreFitBinPack`` (``funcs.go``) over 18: with f the
  free shares of CPU and memory once the job is there, ``20 - (10^f_cpu + 10^f_memory)``, from 0 to
  18: the fuller host wins. Devices only count where the job has affinities for them, which
  Edgeyard's have not; nor have they spreads or anti-affinities.
- ``select.go``, ``LimitIterator``: up to three options with a score of 0 or less are skipped while
  as others follow; ``MaxScoreIterator``: the first of the highest scores.
- ``device.go``, ``createOffer``: on the host, any free device that meets the constraints: the order
  is that of a Go map, which is random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LIMIT = 2
"""Options that are ranked for a batch job."""

MAX_SKIP = 3
"""Options of a low score that are skipped at most."""

SKIP_SCORE = 0.0
"""A score up to it is low."""

TASK_NEED = np.array([100.0, 300.0])
"""CPU (MHz) and memory (MB) of a task that states nothing: Nomad's defaults."""

_MAX_FIT = 18.0


def fit_scores(total: Floats, used: Floats) -> Floats:
    """Return Nomad's normalized score of each host.

    Args:
        total: Shape (hosts, 2): CPU (MHz) and memory (MB) that Nomad may use, without reserved.
        used: Shape (hosts, 2): what jobs use there, with the new one.

    Returns:
        Shape (hosts,), 0 to 1.
    """
    free = 1.0 - used / total
    fit = np.clip(20.0 - np.power(10.0, free).sum(axis=1), 0.0, _MAX_FIT)
    return np.asarray(fit / _MAX_FIT, dtype=np.float64)


def ranked_first(scores: Sequence[float]) -> int:
    """Return the option that Nomad takes.

    Args:
        scores: Of the options in the order in which they are found; at least one.

    Returns:
        Its place.
    """
    options, skipped = iter(range(len(scores))), list[int]()

    def following() -> int | None:
        found = next(options, None)
        return skipped.pop(0) if found is None and skipped else found

    seen: list[int] = []
    skips = 0
    while len(seen) < LIMIT:
        option = following()
        while option is not None and scores[option] <= SKIP_SCORE and skips < MAX_SKIP:
            skips += 1
            skipped.append(option)
            option = next(options, None)
        if option is None:
            option = following()
            if option is None:
                break
        seen.append(option)
    return max(seen, key=lambda each: (scores[each], -seen.index(each)))


def choose_board(
    hosts: NDArray[np.intp], total: Floats, used: Floats, need: Floats, random: np.random.Generator
) -> int:
    """Return the board that Nomad might take for a loose job.

    Args:
        hosts: Shape (boards,), at least one: row of the host of each free board that meets the
            job's constraints.
        total: Shape (all hosts, 2), as in `fit_scores`.
        used: Shape (all hosts, 2): what jobs use there now.
        need: Shape (2,): what the job needs.
        random: Shuffles the hosts, and chooses among the boards of one.

    Returns:
        The place of the board in ``hosts``; -1: no host has enough CPU and memory left.
    """
    candidates = random.permutation(np.unique(hosts))
    after = used[candidates] + need
    candidates = candidates[(after <= total[candidates]).all(axis=1)]
    if not len(candidates):
        return -1
    scores = fit_scores(total[candidates], used[candidates] + need)
    host = candidates[ranked_first(scores.tolist())]
    return int(random.choice(np.flatnonzero(hosts == host)))
