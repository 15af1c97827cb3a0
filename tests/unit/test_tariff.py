"""Tariffs: factors on what board time costs, by hour of the day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from edgeyard.benchmark_api.settings import Settings
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.tariff import Tariff, parse_tariff

MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)
NIGHT = ",".join(["1"] * 6 + ["4"] * 14 + ["1"] * 4)


def test_the_hour_decides_what_a_second_costs() -> None:
    known = Knowledge(rates={"rpi5": 2.0}, tariff=parse_tariff(NIGHT))
    assert known.rate("rpi5", MIDNIGHT + timedelta(hours=5, minutes=59)) == 2.0
    assert known.rate("rpi5", MIDNIGHT + timedelta(hours=6)) == 8.0
    assert known.rate("rpi4b", MIDNIGHT + timedelta(hours=19)) == 4.0
    assert Knowledge().rate("rpi4b", MIDNIGHT) == 1.0


def test_changes_within_the_next_day() -> None:
    tariff = parse_tariff(NIGHT)
    now = MIDNIGHT + timedelta(hours=12, minutes=30)
    assert tariff.changes(now) == [
        MIDNIGHT + timedelta(hours=20),
        MIDNIGHT + timedelta(hours=30),
    ]
    assert Tariff().changes(now) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3", "has 3 numbers: it needs one for each of the 24 hours"),
        ("a" + NIGHT[1:], "is not a list of numbers"),
        ("-1" + NIGHT[1:], "has a number that is not from 0 to 1000"),
        ("nan" + NIGHT[1:], "has a number that is not from 0 to 1000"),
    ],
)
def test_settings_refuse_what_is_no_tariff(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.model_validate({"tariff": text})


def test_settings_take_a_tariff() -> None:
    assert parse_tariff(Settings.model_validate({"tariff": NIGHT}).tariff).factors[6] == 4.0
