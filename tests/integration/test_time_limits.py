"""The bound on a run reaches the task, and holds where the task does not keep it."""

from pathlib import Path
from typing import Any

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.dispatch import TaskLimits, spec_of
from edgeyard.scheduler.engine.reconcile import RUN_TIME_MARGIN_S
from edgeyard.scheduler.model.benchmark import FailureCategory, Status
from tests.builders.engine import A, Lab


@pytest.mark.parametrize(
    ("asked", "bound_s"),
    [
        ({}, 100.0),  # the lab's default
        ({"user_time_s": 40.0}, 40.0),
        ({"user_budget": 30.0}, 30.0),
        ({"user_budget": 30.0, "user_time_s": 10.0}, 10.0),
        ({"user_budget": 3000.0}, 100.0),
    ],
)
def test_a_run_is_bounded_by_its_time_and_its_budget(
    tmp_path: Path, asked: dict[str, Any], bound_s: float
) -> None:
    lab = Lab(tmp_path, A)
    benchmark_id = lab.submit(**asked)
    job_id = lab.running(benchmark_id)
    attempt = lab.attempts(benchmark_id)[-1]
    spec = spec_of(lab.show(benchmark_id), attempt, "http://api.test", TaskLimits(user_time_s=999))
    assert spec["user_time_s"] == attempt.time_limit_s == bound_s
    lab.clock.forward(bound_s + RUN_TIME_MARGIN_S - 1)
    lab.reconciler.run()
    assert lab.cluster.stopped == []
    lab.clock.forward(2)
    lab.reconciler.run()
    assert lab.cluster.stopped == [job_id]
    lab.reconciler.run()
    assert lab.failure(benchmark_id).category is FailureCategory.TIMEOUT
    with lab.store.read() as uow:
        assert uow.credits.balance("ann").spent == bound_s  # what it overran is not its user's


def test_a_benchmark_that_was_given_a_higher_priority_comes_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path, A)
    first, second = lab.submit(), lab.submit()
    with lab.store.write() as uow:
        lifecycle.prioritise(uow, second, lab.clock.now(), "ann", 9)
    lab.turn()
    assert lab.show(second).status is Status.SCHEDULED
    assert lab.show(first).status is Status.PENDING
