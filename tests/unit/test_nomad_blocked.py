"""Why no board is there for a job that Nomad keeps waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from edgeyard.devices.model import AttributeValue, Board, Host
from edgeyard.plugins.testing import board
from edgeyard.scheduler.clusters.fitting import Condition, choose
from edgeyard.scheduler.clusters.nomad.blocked import BoardMatcher

UID = "rpi4b-0001-0001"
FAMILY = Condition(attribute="family", operator="=", value="rpi4b")
BELOW_90 = Condition(attribute="dynamic.progress", operator="<", value="90")


def lab(**changes: object) -> BoardMatcher:
    return BoardMatcher([Host("h", "h", True, (board(UID, **changes),), "")])  # type: ignore[arg-type]


def test_a_freed_board_that_still_shows_its_last_progress_is_named_so() -> None:
    said = lab(progress=97.0).why_not((FAMILY, BELOW_90))
    assert f"{UID} reports a task at 97 %" in said
    assert lab(progress=0.0).why_not((FAMILY, BELOW_90)) == ""


def test_a_board_that_is_held_is_busy_however_far_it_is() -> None:
    said = lab(progress=97.0, busy=True, busy_reason="runs a job").why_not((FAMILY, BELOW_90))
    assert f"{UID} runs a job" in said


def test_jobs_that_demand_the_same_are_explained_by_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[Sequence[Condition]] = []

    def counted(
        boards: Sequence[Board],
        conditions: Sequence[Condition],
        unavailable: Callable[[Board], str],
        attributes: Callable[[Board], dict[str, AttributeValue]],
    ) -> tuple[Board | None, str]:
        looks.append(conditions)
        return choose(boards, conditions, unavailable, attributes)

    monkeypatch.setattr("edgeyard.scheduler.clusters.nomad.blocked.choose", counted)
    held = lab(busy=True, busy_reason="runs a job")
    other = Condition(attribute="family", operator="=", value="rpi5")
    said = [held.why_not(demand) for demand in ((FAMILY,), (other,), (FAMILY,), (other,))]
    assert said[:2] == said[2:]
    assert "runs a job" in said[0]
    assert "excludes all" in said[1]
    assert looks == [[FAMILY], [other]]


@pytest.mark.parametrize(("wanted", "chosen"), [("1", 1), ("true", 0)])
def test_equal_values_of_different_types_are_compared_each(wanted: str, chosen: int) -> None:
    boards = [board(f"rpi4b-0001-000{number}") for number in (1, 2)]
    values: dict[str, AttributeValue] = {boards[0].target_uid: True, boards[1].target_uid: 1}

    def published(each: Board) -> dict[str, AttributeValue]:
        return {"x": values[each.target_uid]}

    condition = Condition(attribute="x", operator="=", value=wanted)
    assert choose(boards, [condition], lambda _: "", published) == (boards[chosen], "")
