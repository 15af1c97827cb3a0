"""What share of their requested time runs lasted, by user and of all users: the latest few."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.kernel.compiled import compiled

RUNS = 8
"""Number of latest runs that are kept of each user, and of all users together."""
SAMPLES = 2 * RUNS
OTHERS_WEIGHT = 1.0
"""Total weight of the runs of all users; each of the user's own runs has the weight 1."""


class History(NamedTuple):
    """The latest runs in columns; the last row holds those of all users.

    Attributes:
        shares: Shape (users + 1, `RUNS`): run time over requested time, a ring.
        counts: Shape (users + 1,): runs so far.
    """

    shares: NDArray[np.float64]
    counts: NDArray[np.int64]


@compiled
def empty_history(users: int) -> History:
    """Return the history of so many users before their first runs."""
    return History(np.zeros((users + 1, RUNS)), np.zeros(users + 1, np.int64))


@compiled
def add_run(history: History, user: int, run_s: float, requested_s: float) -> None:
    """Add a run that has ended."""
    share = run_s / max(requested_s, 1.0)
    everybody = len(history.counts) - 1
    for row in (user, everybody):
        history.shares[row, history.counts[row] % RUNS] = share
        history.counts[row] += 1


@compiled
def sample_runs(
    history: History,
    user: int,
    requested_s: float,
    samples_s: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> None:
    """Write what a run of the user would last if it used its request as the latest runs did.

    No sample exceeds the request.

    Args:
        history: The runs so far.
        user: Row of the user.
        requested_s: What is asked for.
        samples_s: Shape (`SAMPLES`,), written to: by the user's own runs, then by everybody's; NaN
            where there are fewer.
        weights: Shape (`SAMPLES`,), written to.
    """
    everybody = len(history.counts) - 1
    for group in range(2):
        row = user if group == 0 else everybody
        count = min(history.counts[row], RUNS)
        for number in range(RUNS):
            place = group * RUNS + number
            if number >= count:
                samples_s[place] = np.nan
                weights[place] = 0.0
            else:
                share = history.shares[row, (history.counts[row] - 1 - number) % RUNS]
                samples_s[place] = min(share, 1.0) * requested_s
                weights[place] = 1.0 if group == 0 else OTHERS_WEIGHT / count


@compiled
def sample_jobs(
    history: History,
    users: NDArray[np.int64],
    requested_s: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what `sample_runs` writes for several jobs, in the shape (jobs, `SAMPLES`)."""
    samples_s, weights = np.empty((len(users), SAMPLES)), np.empty((len(users), SAMPLES))
    for job in range(len(users)):
        sample_runs(history, users[job], requested_s[job], samples_s[job], weights[job])
    return samples_s, weights
