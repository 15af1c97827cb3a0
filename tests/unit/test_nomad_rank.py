"""Nomad's own choice of a host for a loose job, as its source has it."""

from __future__ import annotations

import numpy as np
import pytest

from edgeyard.simulator.nomad_rank import choose_board, fit_scores, ranked_first


def test_the_fuller_host_has_the_higher_score() -> None:
    total = np.array([[1000.0, 1000.0]] * 4)
    used = np.array([[0.0, 0.0], [500.0, 500.0], [1000.0, 500.0], [1000.0, 1000.0]])
    expected = [0.0, (20 - 2 * 10**0.5) / 18, (20 - 1 - 10**0.5) / 18, 1.0]
    assert fit_scores(total, used) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ([0.3], 0),
        ([0.3, 0.2, 0.9], 0),  # of a batch job two options are ranked
        ([0.3, 0.4, 0.9], 1),
        ([0.4, 0.4], 0),  # the first of equal ones
        ([0.0, 0.3, 0.4, 0.9], 2),  # an idle host is skipped, two more are ranked
        ([0.0, 0.0, 0.0, 0.0, 0.9], 4),  # three are skipped at most
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.9], 3),
        ([0.0, 0.0], 0),  # where there is no other, a skipped one is taken
        ([0.0, 0.2], 1),
    ],
)
def test_the_highest_of_two_options_is_taken(scores: list[float], chosen: int) -> None:
    assert ranked_first(scores) == chosen


def test_jobs_are_packed_on_hosts_that_run_some() -> None:
    hosts = np.array([0, 0, 1, 1])
    total = np.array([[4000.0, 4000.0], [4000.0, 4000.0]])
    used = np.array([[0.0, 0.0], [500.0, 300.0]])
    need = np.array([100.0, 300.0])
    random = np.random.default_rng(1)
    chosen = {choose_board(hosts, total, used, need, random) for _ in range(20)}
    assert chosen == {2, 3}
    full = np.array([[4000.0, 4000.0], [3950.0, 300.0]])
    assert choose_board(hosts, total, full, need, random) == -1
    assert choose_board(hosts[2:], total, used, need, random) in (0, 1)
