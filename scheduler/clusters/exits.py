"""Failures derived from how a task's process ended, on any cluster."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from edgeyard.scheduler.model.benchmark import Failure, FailureCategory

EXIT_REPORTED = 3
"""The runner's: the benchmark failed, and the report that it uploaded says why."""

EXIT_NOT_UPLOADED = 4
"""The runner's: there is a result, and the server did not take it in time."""

EXIT_NOT_TAKEN_UP = 5
"""The runner's: a run that Nomad started by itself did not get its task from the server."""

_NO_ROOM = frozenset({6, 120})
"""The runner's, and Python's where it can't write its last output: the disk of its host is full."""

_CANNOT_RUN = frozenset({1, 126, 127})
"""The statuses that shells report, and 1: Python without its modules, or an image of another
architecture."""

_SIGNALS: Mapping[int, str] = {each.value: each.name for each in signal.Signals}


def failure_of(
    status: int, *, signal_number: int = 0, out_of_memory: bool = False
) -> Failure | None:
    """Return why a task failed; None if it succeeded.

    Args:
        status: Exit status; shells report a signal as 128 + its number.
        signal_number: That ended it; 0: none was seen.
        out_of_memory: Its own memory had reached its limit.
    """
    number = signal_number or status - 128
    if status == 0 and not signal_number:
        return None
    if status == EXIT_REPORTED and not signal_number:
        # Its report has the reason; this is what counts where the report never arrived.
        category = FailureCategory.UPLOAD
        sentence = "the runner reported a failure, but its report did not arrive"
    elif status == EXIT_NOT_UPLOADED and not signal_number:
        category = FailureCategory.UPLOAD
        sentence = "the task has a result, but could not upload it"
    elif status == EXIT_NOT_TAKEN_UP and not signal_number:
        category = FailureCategory.CLUSTER
        sentence = "the run did not get its task from the server; its log may say why"
    elif status in _NO_ROOM and not signal_number:
        category = FailureCategory.CLUSTER
        sentence = "no room is left on the disk of its host for its result and log"
    elif status in _CANNOT_RUN and not signal_number:
        category = FailureCategory.BOARD_FAULT
        sentence = f"its host could not run the runner (exit status {status}); its log may say why"
    elif number == signal.SIGKILL and out_of_memory:
        category = FailureCategory.OUT_OF_MEMORY
        sentence = "the task was killed: it needed more memory than its board's limit"
    elif number in _SIGNALS:
        category = FailureCategory.BOARD_FAULT
        sentence = f"the task was ended by {_SIGNALS[number]}, which Edgeyard did not send"
    else:
        category = FailureCategory.UNKNOWN
        sentence = f"the task ended with exit status {status}; its log may say why"
    return Failure(category=category, sentence=sentence)
