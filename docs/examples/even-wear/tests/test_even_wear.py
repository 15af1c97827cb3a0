"""The scorer: what every scorer must do, and what this one is for."""

import pytest
from edgeyard_even_wear import EvenWear

from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import (
    ScorerContract,
    all_pairs,
    batch_of,
    board,
    past_run,
    pending,
)
from edgeyard.scheduler.framework.protocols import Scorer
from edgeyard.scheduler.framework.registry import Kind

USED, IDLE, NEW = (board(f"rpi4b-0001-000{number}") for number in (1, 2, 3))
DAY_S = 86400.0


class TestEvenWear(ScorerContract):
    """The contract, as published."""

    def plugin(self) -> Scorer:
        """The scorer to test."""
        return EvenWear()


def test_the_board_that_worked_least_comes_first() -> None:
    """By seconds of run time, not by runs."""
    runs = [past_run(USED.target_uid, run_s=100.0)]
    runs += [past_run(IDLE.target_uid, run_s=10.0, ago_s=3600.0) for _ in range(2)]
    batch = batch_of([USED, IDLE, NEW], [pending()], runs)
    assert EvenWear().score(batch, all_pairs(batch)) == pytest.approx([0.0, 0.8, 1.0])


def test_wear_fades() -> None:
    """A run counts half after a half-life."""
    runs = [
        past_run(USED.target_uid, run_s=40.0, ago_s=0.0),
        past_run(IDLE.target_uid, run_s=40.0, ago_s=2 * DAY_S),
    ]
    batch = batch_of([USED, IDLE], [pending()], runs)
    scores = EvenWear(half_life_days=2.0).score(batch, all_pairs(batch))
    assert scores == pytest.approx([0.0, 0.5])


def test_boards_without_a_past_are_all_alike() -> None:
    """And none of them is refused."""
    batch = batch_of([USED, IDLE], [pending()], [past_run("rpi5-0001-0001", run_s=None)])
    assert EvenWear().score(batch, all_pairs(batch)).tolist() == [1.0, 1.0]


def test_a_half_life_is_above_zero() -> None:
    """A policy that says otherwise is refused when it is loaded."""
    with pytest.raises(ValueError, match="half_life_days is 0"):
        EvenWear(half_life_days=0)


def test_edgeyard_finds_it() -> None:
    """By its entry point, once the package is installed."""
    assert EvenWear.name in registry().names(Kind.SCORER)
