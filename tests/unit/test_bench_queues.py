"""Random queues: what they are made of, and what the look-ahead is compared with."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.random_queues import MAX_FACTOR, means, random_queue, row
from edgeyard.scheduler.kernel.rollouts import FCFS, RULES, SJF
from edgeyard.training.windows import FIFO, SHORTEST, candidate_ends, rule_ends, slowdowns


def test_random_queues_are_valid_of_all_kinds_and_the_same_each_time() -> None:
    queues = [random_queue(number) for number in range(1, 201)]
    for number, window in enumerate(queues[:3], 1):
        again = random_queue(number)
        assert all((one == other).all() for one, other in zip(window.jobs, again.jobs, strict=True))
    at_once, right, alike = 0, 0, 0
    factors, widths = [], []
    for window in queues:
        jobs = window.jobs
        assert (np.diff(jobs.submit) >= 0.0).all()
        assert (jobs.run >= 1.0).all()
        assert (jobs.requested >= jobs.run).all()
        assert (jobs.procs >= 1).all()
        assert (jobs.procs <= window.processors).all()
        at_once += jobs.submit[0] == jobs.submit[-1]
        right += (jobs.requested == jobs.run).all()
        alike += (jobs.requested == jobs.requested[0]).all()
        factors.append((jobs.requested / jobs.run).max())
        widths.append((jobs.procs / window.processors).max())
    assert min(at_once, right, alike) > 20
    assert max(at_once, right, alike) < 120
    assert max(factors) > 0.5 * MAX_FACTOR
    assert max(widths) == 1.0


@pytest.mark.slow
def test_a_rule_alone_knows_what_the_look_ahead_knows() -> None:
    """With right requests nothing is predicted, so that it is the plain rule."""
    queues = [random_queue(number) for number in range(1, 61)]
    right = [each for each in queues if (each.jobs.requested == each.jobs.run).all()]
    assert right
    for window in right:
        for rule, plain in ((FCFS, FIFO), (SJF, SHORTEST)):
            ends = candidate_ends(window, rule)
            assert slowdowns(window, ends) == pytest.approx(
                slowdowns(window, rule_ends(window, plain))
            )


@pytest.mark.slow
def test_the_look_ahead_is_near_the_best_of_its_rules_in_random_queues() -> None:
    found = np.array([means(number) for number in range(1, 25)])
    assert found.shape == (24, 1 + len(RULES))
    ratios = found[:, 0] / found[:, 1:].min(axis=1)
    assert np.median(ratios) < 1.1
    assert np.exp(np.log(found[:, 0] / found[:, 1]).mean()) < 1.0  # better than the base alone


@pytest.mark.slow
@pytest.mark.parametrize("number", [9, 64])
def test_a_burst_of_one_instant_is_not_expected_to_come_again(number: int) -> None:
    """Requests are right and nothing follows, so that all is known from the start."""
    ours, *rules = means(number)
    assert ours < min(rules)


def test_the_row_states_the_share_of_queues_above_the_best_rule() -> None:
    best = np.ones((100, 1 + len(RULES)))
    found = best * 2.0
    found[:, 3] = 1.0  # the best rule
    found[:97, 0] = 1.2  # the look-ahead
    its = row(found)
    assert its.name == "worst of candidates"
    assert its.value == pytest.approx(0.03)
    assert its.peer == 1.0
    assert "worst 2.00; peer: run² x processors alone" in its.note
