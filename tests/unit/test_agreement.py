"""How far the scorers agree on the board that was chosen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from edgeyard.scheduler.model.benchmark import WaitingReason
from edgeyard.scheduler.model.decision import Explanation, ScorerPart, Verdict
from tests.builders.records import an_explanation

CHOSEN, OTHER, BUSY = "rpi4b-0001-0002", "rpi4b-0001-0003", "rpi4b-0001-0001"


def explained(**scores: tuple[str, float | None, float | None]) -> Explanation:
    """Return an explanation; of each scorer: unit, score of the chosen board and of another."""

    def verdict(uid: str, column: int, reason: WaitingReason | None = None) -> Verdict:
        found: Mapping[str, float | None] = {
            name: each[column]  # type: ignore[misc]  # not the unit
            for name, each in scores.items()
        }
        return Verdict(target_uid=uid, reason=reason, sentence="", scores=found)

    return an_explanation(
        "b-1",
        verdicts=(verdict(CHOSEN, 1), verdict(OTHER, 2)),
        scorers=tuple(
            ScorerPart(scorer=name, objective="x", unit=each[0], weight=0.5, reward=None)
            for name, each in scores.items()
        ),
    )


def test_scorers_agree_that_rate_no_other_board_above_the_chosen_one() -> None:
    found = explained(
        fastest=("seconds", 10.0, 12.0),
        reliable=("failure", 0.2, 0.1),
        idle=("preference", 0.9, 0.4),
        spread=("preference", 0.4, 0.9),
    )
    assert found.agreement == pytest.approx(0.5)


def test_equal_scores_agree_and_scorers_without_a_score_do_not_count() -> None:
    assert explained(fastest=("seconds", 10.0, 10.0), idle=("preference", None, 1.0)).agreement == 1
    assert explained(idle=("preference", None, 1.0)).agreement is None
    assert explained().agreement is None


def test_boards_that_could_not_be_used_do_not_count() -> None:
    found = explained(fastest=("seconds", 10.0, 12.0))
    busy = Verdict(
        target_uid=BUSY, reason=WaitingReason.BOARD_BUSY, sentence="", scores={"fastest": 1.0}
    )
    more = an_explanation("b-1", verdicts=(*found.verdicts, busy), scorers=found.scorers)
    assert more.agreement == 1


def test_a_benchmark_that_waits_has_none() -> None:
    found = explained(fastest=("seconds", 10.0, 12.0))
    waits = an_explanation("b-1", verdicts=found.verdicts, scorers=found.scorers, placement=None)
    assert waits.agreement is None
