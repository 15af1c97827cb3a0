"""Who may be preempted: the same rules for decisions and for the transaction that applies them."""

from __future__ import annotations

from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, JobDescription

_MEASURING = frozenset({"measuring", "training"})  # phases, as the runner reports them


def is_preemptible(description: JobDescription, attempt: Attempt) -> bool:
    """Return whether an attempt may be stopped for a more urgent benchmark at all.

    Its description allows it, it runs on one board alone, its task runs on a board that is known,
    and there is still something to stop.
    """
    return (
        description.preemptible
        and description.count == 1
        and attempt.state is AttemptState.RUNNING
        and attempt.board_is_known
        and attempt.stopping is None
        and attempt.result_at is None
    )


def is_below_threshold(
    progress: float | None, phase: str | None, threshold: float, *, while_measuring: bool
) -> bool:
    """Return whether a run has done little enough to be stopped.

    Args:
        progress: 0-100; None where the run reports none: nothing is certain then.
        phase: What its task reports that it is doing; None: nothing.
        threshold: The more urgent benchmark's ``job_completion_threshold``.
        while_measuring: Whether it may be stopped while it measures or trains.
    """
    if progress is None or progress >= threshold:
        return False
    return while_measuring or phase not in _MEASURING


def is_preemption(failure: Failure | None) -> bool:
    """Return whether an attempt ended because it was preempted."""
    return failure is not None and failure.category is FailureCategory.PREEMPTED
