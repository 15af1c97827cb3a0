"""Figures of simulated runs and comparisons of policies, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from edgeyard.simulator.comparison import compare_policies, measured, summarise, time_means
from tests.builders.runs import Job, random_run, simulated_run

LAB = simulated_run(
    [
        Job(job="a", submit_s=0, start_s=0, end_s=20, deadline_s=30),
        Job(job="b", submit_s=0, start_s=20, end_s=40, user="bob", deadline_s=30),
        Job(job="c", submit_s=10, start_s=15, end_s=30, status="failed", attempts=2, board=1),
        Job(job="d", submit_s=10, status="pending", attempts=0, board=-1, deadline_s=90),
        Job(job="e", submit_s=20, start_s=50, status="running", preemptions=1, attempts=2),
        Job(job="f", submit_s=30, end_s=35, status="cancelled", attempts=0, board=-1),
    ],
    until_s=100,
)


def test_jobs_that_never_ended_count_with_a_lower_bound_and_are_named() -> None:
    found = measured(LAB).metrics
    wait = found.figures["wait_s"]
    assert wait.interval.mean == pytest.approx((0 + 20 + 5 + 90 + 30 + 5) / 6)
    assert (wait.jobs, wait.at_least) == (6, 2)  # d and f never started
    turnaround = found.figures["turnaround_s"]
    assert turnaround.interval.mean == pytest.approx((20 + 40 + 90 + 80) / 4)
    assert (turnaround.jobs, turnaround.at_least) == (4, 2)  # not the failed and the cancelled one
    slowdown = found.figures["bounded_slowdown"]
    assert slowdown.jobs == 2
    assert slowdown.interval.mean == pytest.approx(1.5)
    assert found.unended == ("d", "e")
    assert found.statuses == {
        "cancelled": 1,
        "completed": 2,
        "failed": 1,
        "pending": 1,
        "running": 1,
    }


def test_figures_of_a_run() -> None:
    found = measured(LAB).metrics
    assert found.makespan_s == 100
    assert found.utilisation == pytest.approx((20 + 20 + 15 + 50) / 200)
    assert (found.deadlines, found.deadline_misses) == (3, 2)  # b was late, d never ran
    assert found.fairness == pytest.approx((1 + 2) ** 2 / (2 * (1 + 4)))
    assert (found.preemptions, found.failed_attempts) == (1, 1)
    assert math.isnan(found.overloaded)
    assert math.isnan(found.energy_j)


def test_a_run_in_which_nothing_completed_has_figures() -> None:
    found = measured(simulated_run([Job(job="a", status="pending", board=-1)], until_s=10)).metrics
    assert found.figures["wait_s"].interval.mean == 10
    assert math.isnan(found.figures["slowdown"].interval.mean)
    assert math.isnan(found.fairness)
    assert summarise([measured(simulated_run([Job(job="a", status="pending")]))])[0].completed == 0


@pytest.mark.parametrize("name", ["energy_j", "credits", "comparable_share"])
def test_what_only_some_scenarios_know_comes_from_the_run(name: str) -> None:
    jobs = [Job(job="a", start_s=0, end_s=5)]
    ours, theirs = (
        measured(simulated_run(jobs, policy=policy, figures={name: value}))
        for policy, value in (("a", 0.5), ("b", 0.75))
    )
    found = {each.figure: each.result for each in compare_policies([ours, theirs], baseline="b")}
    assert found[name].difference.mean == -0.25
    assert math.isnan(getattr(measured(simulated_run(jobs)).metrics, name))


def test_the_mean_of_a_series_holds_each_value_until_the_next_time() -> None:
    means = time_means(np.array([0.0, 2.0]), np.array([1, 3]), np.array([-1.0, 1.0, 3.0, 5.0]))
    assert means.tolist() == [0.5, 2.0, 3.0]


def test_policies_are_compared_on_the_jobs_that_both_completed() -> None:
    first = simulated_run(
        [Job(job="a", start_s=5, end_s=15), Job(job="b", start_s=15, end_s=25)], policy="first"
    )
    second = simulated_run(
        [Job(job="a", start_s=2, end_s=12), Job(job="b", status="pending")],
        policy="second",
        until_s=40,
    )
    found = {each.figure: each for each in compare_policies([measured(first), measured(second)])}
    wait = found["wait_s"]
    assert (wait.first, wait.second, wait.pairs, wait.unpaired) == ("second", "first", 1, 1)
    assert wait.result.difference.mean == -3
    assert wait.by == "job"
    assert found["makespan_s"].result.difference.mean == 40 - 25
    assert math.isnan(found["makespan_s"].result.difference.low)  # one pair of runs


def test_several_seeds_are_resampled_instead_of_jobs() -> None:
    runs = [
        measured(random_run(policy, seed, extra_s=extra))
        for seed in range(6)
        for policy, extra in (("quick", 0.0), ("slow", 0.5))
    ]
    wait = next(each for each in compare_policies(runs) if each.figure == "wait_s")
    assert (wait.first, wait.by) == ("slow", "seed")
    assert 0.5 <= wait.result.difference.low <= wait.result.difference.mean
    assert (wait.result.lower, wait.result.higher) == (0.0, 1.0)
    quick, slow = summarise(runs)
    assert (quick.policy, quick.seeds, quick.jobs) == ("quick", 6, 360)
    assert quick.figures["wait_s"].mean < slow.figures["wait_s"].mean


def test_a_policy_that_does_the_same_is_equal() -> None:
    runs = [measured(random_run(policy, 1)) for policy in ("one", "other")]
    for each in compare_policies(runs):
        assert each.result.difference.mean == 0
        assert (each.result.lower, each.result.higher) == (0, 0)


def test_only_equal_seeds_of_one_scenario_are_compared() -> None:
    runs = [
        measured(random_run("one", 1)),
        measured(random_run("other", 2)),
        measured(random_run("other", 1, scenario="another lab")),
    ]
    assert compare_policies(runs) == []


def test_with_a_baseline_each_other_policy_is_compared_with_it() -> None:
    runs = [measured(random_run(policy, 1)) for policy in ("one", "two", "three")]
    pairs = {(each.first, each.second) for each in compare_policies(runs)}
    assert pairs == {("two", "one"), ("three", "one"), ("three", "two")}
    pairs = {(each.first, each.second) for each in compare_policies(runs, baseline="two")}
    assert pairs == {("one", "two"), ("three", "two")}
