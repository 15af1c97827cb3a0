"""What is suspected of a series, and whether it is news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.scheduler.decide.change_points import LOOK_BACK
from edgeyard.scheduler.decide.series_watch import (
    AGAIN_AFTER,
    NEWEST,
    REOPEN_WITHIN,
    Suspicion,
    suspicion,
)
from edgeyard.scheduler.model.series import (
    MAX_THRESHOLD,
    THRESHOLD_HALF_LIFE_S,
    SeriesPoint,
    WatchedSeries,
    magnitude,
    raised_threshold,
)
from edgeyard.scheduler.model.series_changes import ChangeStatus, SeriesChange
from tests.builders import records as make
from tests.builders.series import change, key, nights

OPEN, CONFIRMED, RESOLVED = ChangeStatus.OPEN, ChangeStatus.CONFIRMED, ChangeStatus.RESOLVED


def looked(
    points: Sequence[SeriesPoint], *earlier: SeriesChange, threshold: float = 0.0
) -> Suspicion | None:
    return suspicion(points, earlier, threshold, points[-1].ended_at)


def after(points: Sequence[SeriesPoint], position: int, **fields: object) -> SeriesChange:
    """A change that began with the point at this position, and was found with the third one."""
    known: dict[str, Any] = {
        "begin_id": points[position].benchmark_id,
        "found_at": points[position + 2].ended_at,
    }
    return change(**(known | fields))


def test_a_new_level_is_suspected_with_its_begin_and_the_last_point_before_it() -> None:
    points = nights((20, 10.0), (4, 10.8))
    points[19] = replace(points[19], value=None)  # invalid
    found = looked(points)
    assert found is not None
    assert (found.begin_id, found.before_id, found.metric) == ("b-20", "b-18", "p50")
    assert found.low < 0.08 < found.high
    assert found.worse
    assert found.alert_id is None


@pytest.mark.parametrize("new", [18, 19, 20, 21, 22])
def test_a_change_begins_with_the_new_model_next_to_where_it_is_found(new: int) -> None:
    points = [
        replace(each, model_sha256="new" if at >= new else "old")
        for at, each in enumerate(nights((20, 10.0), (4, 10.8)))
    ]
    found = looked(points)
    assert found is not None
    assert (found.begin_id, found.before_id) == (f"b-{new}", f"b-{new - 1}")


def test_higher_is_worse_unless_the_metric_says_otherwise() -> None:
    faster = looked(nights((20, 10.0), (4, 10.8), better="higher"))
    assert faster is not None
    assert not faster.worse
    slower = looked(nights((20, 10.0), (4, 9.2), better="higher"))
    assert slower is not None
    assert slower.worse


@pytest.mark.parametrize(
    "points",
    [
        [],
        nights((1, 10.0)),
        nights((60, 10.0)),
        nights((20, 10.0), (25, 10.8)),  # it was news weeks ago
        [replace(each, value=float("nan")) for each in nights((60, 10.0))],
        [replace(each, value=5.0) for each in nights((60, 10.0))],
    ],
)
def test_one_point_constant_values_no_numbers_and_old_changes_are_no_news(
    points: Sequence[SeriesPoint],
) -> None:
    now = points[-1].ended_at if points else make.at(0)
    assert suspicion(points, [], 0.0, now) is None


def test_gaps_of_weeks_have_no_effect() -> None:
    points = nights((20, 10.0), (4, 10.8))
    late = [replace(each, ended_at=each.ended_at + timedelta(weeks=5)) for each in points[12:]]
    assert looked([*points[:12], *late]) == looked(points)


@pytest.mark.parametrize("status", [ChangeStatus.SUSPECTED, ChangeStatus.CONFIRMING])
def test_nothing_is_suspected_while_another_change_is_undecided(status: ChangeStatus) -> None:
    points = nights((20, 10.0), (6, 10.8))
    assert looked(points, after(points, 3, status=status)) is None


@pytest.mark.parametrize("status", [OPEN, CONFIRMED, RESOLVED, ChangeStatus.UNCONFIRMED])
def test_the_same_change_is_suspected_once(status: ChangeStatus) -> None:
    points = nights((20, 10.0), (6, 10.8))
    assert looked(points, after(points, 20, status=status, size=0.08)) is None


def unconfirmed(points: Sequence[SeriesPoint], with_point: int, number: int = 1) -> SeriesChange:
    """A change that began with point 20, and could not be confirmed when this point was there."""
    at = points[with_point].ended_at
    return after(
        points,
        20,
        status=ChangeStatus.UNCONFIRMED,
        found_at=at,
        ended_at=at,
        change_id=f"u-{number}",
    )


def test_a_change_that_stayed_unconfirmed_is_suspected_again_while_it_is_still_there() -> None:
    points = nights((20, 10.0), (60, 10.8))
    earlier: list[SeriesChange] = []
    seen = []
    for night in range(20, len(points)):
        shown = points[: night + 1][-LOOK_BACK:]
        if (found := looked(shown, *earlier)) is None:
            continue
        assert found.begin_id == "b-20"
        seen.append(night)
        earlier.insert(0, unconfirmed(points, night, len(seen)))
    first, second, third = seen
    assert second - first == AGAIN_AFTER
    assert third - second == 2 * AGAIN_AFTER


def test_a_change_that_stayed_unconfirmed_and_went_back_is_not_suspected_again() -> None:
    points = nights((20, 10.0), (6, 10.8), (30, 10.0))
    up = unconfirmed(points, 22)
    back = after(points, 26, status=ChangeStatus.UNCONFIRMED, change_id="u-2", size=-0.07)
    back = replace(back, ended_at=back.found_at)
    for night in range(29, len(points)):
        found = looked(points[: night + 1], back, up)
        assert found is None or found.begin_id == "b-26"
        if found is not None:
            return  # that it went back is looked at again, as any other change
    pytest.fail("it is never looked at again")


def test_an_unconfirmed_change_does_not_hide_a_later_one() -> None:
    points = nights((20, 10.0), (8, 10.8), (4, 11.8))
    found = looked(points, unconfirmed(points, 22))
    assert found is not None
    assert found.begin_id == "b-28"


@pytest.mark.parametrize("status", [OPEN, CONFIRMED])
def test_an_open_alert_is_not_repeated_in_its_direction(status: ChangeStatus) -> None:
    points = nights((10, 10.0), (20, 10.8), (5, 11.3))
    alert = after(points, 10, status=status, size=0.08)
    assert looked(points, alert) is None
    assert looked(points, replace(alert, status=RESOLVED)) is not None


@pytest.mark.parametrize("status", [OPEN, CONFIRMED])
def test_more_of_the_same_is_news_if_it_is_as_large_or_another_models(status: ChangeStatus) -> None:
    points = nights((10, 10.0), (20, 10.8), (5, 30.0))
    found = looked(points, after(points, 10, status=status, size=0.08))
    assert found is not None
    assert (found.begin_id, found.alert_id) == ("b-30", None)

    points = nights((10, 10.0), (20, 10.8), (5, 11.3))
    points = [replace(each, model_sha256="ab"[at >= 30]) for at, each in enumerate(points)]
    found = looked(points, after(points, 10, status=status, size=0.08))
    assert found is not None
    assert found.begin_id == "b-30"


@pytest.mark.parametrize("late", [8, 12, 30])
def test_a_change_is_news_at_the_first_look_after_it_however_many_points_came(late: int) -> None:
    points = nights((12, 10.0), (late, 15.0))
    now = points[-1].ended_at
    found = suspicion(points, [], 0.0, now, points[11].ended_at)
    assert found is not None
    assert found.begin_id == "b-12"
    if late > NEWEST:
        assert suspicion(points, [], 0.0, now, now) is None, "an old change was news once"


def test_what_came_while_another_change_was_undecided_is_news_after_it() -> None:
    points = nights((12, 10.0), (14, 20.0), (3, 20.0), seed=3)
    waited = change(
        begin_id="b-9",
        found_at=points[11].ended_at,
        ended_at=points[25].ended_at,
        status=ChangeStatus.NOISE,
    )
    found = suspicion(points, [waited], 0.0, points[-1].ended_at, points[25].ended_at)
    assert found is not None
    assert found.begin_id == "b-12"


def test_the_old_level_is_found_again_after_three_points_of_the_new_one() -> None:
    points = nights((11, 10.0), (4, 14.0), (4, 10.0))
    alert = after(points, 11, status=CONFIRMED, size=0.4)
    found = looked(points, alert)
    assert found is not None
    assert (found.begin_id, found.alert_id) == ("b-15", alert.change_id)


def test_a_change_found_by_a_clock_that_was_ahead_hides_none_that_follow() -> None:
    points = nights((10, 10.0), (20, 10.8), (5, 21.0))
    ahead = after(points, 10, status=RESOLVED, size=0.08, ended_at=points[20].ended_at)
    ahead = replace(ahead, found_at=points[-1].ended_at + timedelta(days=60))
    found = looked(points, ahead)
    assert found is not None
    assert found.begin_id == "b-30"


def test_a_change_below_the_threshold_is_noise_that_is_known() -> None:
    points = nights((20, 10.0), (5, 10.4))
    assert looked(points, threshold=0.03) is not None
    assert looked(points, threshold=0.05) is None


def test_the_old_level_takes_the_alert_back_and_another_level_does_not() -> None:
    points = nights((10, 10.0), (20, 10.8), (5, 10.0))
    alert = after(points, 10, status=CONFIRMED, size=0.08)
    back = looked(points, alert)
    assert back is not None
    assert (back.begin_id, back.alert_id, back.worse) == ("b-30", alert.change_id, False)
    lower = looked(nights((10, 10.0), (20, 10.8), (5, 9.0)), alert)
    assert lower is not None
    assert lower.alert_id is None


def test_a_level_that_comes_back_reopens_its_alert_for_thirty_days() -> None:
    points = nights((10, 10.0), (20, 10.8), (10, 10.0), (5, 10.8))
    ended_at = points[32].ended_at
    alert = after(points, 10, status=RESOLVED, size=0.08, ended_at=ended_at)
    merged = after(points, 30, status=ChangeStatus.MERGED, size=-0.074, change_id="alert-2")
    again = looked(points, merged, alert)
    assert again is not None
    assert again.alert_id == alert.change_id
    old = replace(alert, ended_at=points[-1].ended_at - REOPEN_WITHIN - timedelta(days=1))
    later = looked(points, merged, old)
    assert later is not None
    assert later.alert_id is None


def test_a_threshold_is_bounded_and_falls_by_half_in_a_half_life() -> None:
    assert raised_threshold(0.0, 0.04) == pytest.approx(0.05)
    assert raised_threshold(0.0, 1 / 1.04 - 1) == pytest.approx(0.05)  # as much, downwards
    assert raised_threshold(0.08, 0.02) == 0.08
    assert raised_threshold(0.0, 0.5) == MAX_THRESHOLD
    now = nights((1, 1.0))[0].ended_at
    series = WatchedSeries(key=key(), threshold=0.08, threshold_at=now)
    assert series.threshold_now(now - timedelta(days=9)) == 0.08  # a clock that was set back
    later = now + timedelta(seconds=THRESHOLD_HALF_LIFE_S)
    assert series.threshold_now(later) == pytest.approx(0.04)
    assert WatchedSeries(key=key()).threshold_now(now) == 0.0
    assert magnitude(-0.5) == pytest.approx(1.0)
