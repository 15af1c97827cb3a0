"""When crontabs fire."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.engine.crontab import next_fire, next_time

FRIDAY = datetime(2025, 8, 1, tzinfo=UTC)
DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 17 7 13 8 * 2025", "2025-08-13T07:17:30"),  # the platform's own
        ("15 0 3 * * 1 *", "2025-08-04T03:00:15"),
        ("0 3 * * 0", "2025-08-03T03:00:00"),
        ("0 3 * * 7", "2025-08-03T03:00:00"),
        ("0 3 * * mon-fri", "2025-08-01T03:00:00"),
        ("*/20 * * * *", "2025-08-01T00:20:00"),
        ("10-15/7 * * * *", "2025-08-01T00:10:00"),
        ("50/7 0 1 * *", "2025-08-01T00:50:00"),
        ("0 0 last * *", "2025-08-31T00:00:00"),
        ("0 0 1 * mon", "2025-09-01T00:00:00"),  # both have to hold
    ],
)
def test_crontabs_of_five_and_of_nomads_seven_fields_fire_as_written(
    cron: str, expected: str
) -> None:
    assert next_fire(cron, FRIDAY) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2025-08-01T02:59:59.500000", "2025-08-01T03:00:00"),
        ("2025-08-01T02:59:59.999999", "2025-08-01T03:00:00"),
        ("2025-08-01T03:00:00", "2025-08-02T03:00:00"),
        ("2025-08-01T03:00:00.300000", "2025-08-02T03:00:00"),
    ],
)
def test_the_next_start_is_the_first_after_a_moment_within_a_second(
    after: str, expected: str
) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert next_fire("0 3 * * *", moment) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("weekdays", "expected"),
    [
        ("*", "Sun Mon Tue Wed Thu Fri Sat"),
        ("?", "Sun Mon Tue Wed Thu Fri Sat"),
        ("*/2", "Sun Tue Thu Sat"),
        ("*/3", "Sun Wed Sat"),
        ("1-5/2", "Mon Wed Fri"),
        ("MON-FRI/2", "Mon Wed Fri"),
        ("mon-fri", "Mon Tue Wed Thu Fri"),
        ("2/2", "Tue Thu Sat"),
        ("tue/2", "Tue Thu Sat"),
        ("0-4/2", "Sun Tue Thu"),
        ("sun-tue", "Sun Mon Tue"),
        ("fri-sun", "Sun Fri Sat"),
        ("5-7", "Sun Fri Sat"),
        ("1-7/3", "Sun Mon Thu"),
        ("0-7", "Sun Mon Tue Wed Thu Fri Sat"),
        ("7/3", "Sun Wed Sat"),
        ("0,7", "Sun"),
        ("sat,1-2", "Mon Tue Sat"),
        ("1-2/6", "Mon"),
    ],
)
def test_weekdays_are_counted_as_cron_counts_them(weekdays: str, expected: str) -> None:
    found, at = set(), FRIDAY - timedelta(seconds=1)
    for _ in range(7):
        at = next_fire(f"0 0 * * {weekdays}", at)
        if at < FRIDAY + timedelta(days=7):
            found.add(f"{at:%a}")
    assert found == set(expected.split())


@pytest.mark.parametrize(
    ("months", "expected"),
    [
        ("jan-jun/2", [1, 3, 5]),
        ("JAN-6/2", [1, 3, 5]),
        ("oct/2", [10, 12]),
        ("*/6", [1, 7]),
        ("dec,feb", [2, 12]),
    ],
)
def test_months_may_be_named_and_have_steps(months: str, expected: list[int]) -> None:
    at, found = datetime(2025, 12, 31, tzinfo=UTC), []
    while (at := next_fire(f"0 0 1 {months} *", at)).year == 2026:
        found.append(at.month)
    assert found == expected


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("", "it has 0 fields, not 5 or 7"),
        ("every day", "it has 2 fields"),
        ("* * * * * *", "it has 6 fields"),
        ("61 * * * *", "its minute '61': use 0 to 59"),
        ("* 24 * * *", "its hour '24': use 0 to 23"),
        ("* * 0 * *", "its day '0': use 1 to 31"),
        ("* * * 13 *", "its month '13': use 1 to 12"),
        ("* * * * 8", "its weekday '8': use 0 to 7"),
        ("0 0 0 1 1 * 1969", "its year '1969': use 1970 to 9999"),
        ("*/0 * * * *", "its minute '\\*/0': use a step from 1 to 59"),
        ("*/60 * * * *", "its minute '\\*/60': use a step from 1 to 59"),
        ("* * * * 1-5/0", "its weekday '1-5/0': use a step from 1 to 6"),
        ("* * * * mon-fri/7", "its weekday 'mon-fri/7': use a step from 1 to 6"),
        ("* * * * sat-mon", "its weekday 'sat-mon': a range ends after it begins"),
        ("* * * jun-jan *", "its month 'jun-jan': a range ends after it begins"),
        ("* * * * monday", "its weekday 'monday': use a number, or sun mon tue"),
        ("* * * * mon#2", "its weekday 'mon#2': use \\*, values"),
        ("* * * jan; *", "its month 'jan;': use \\*, values"),
        ("* * * * mon-fri-sat", "its weekday 'mon-fri-sat': use \\*"),
        ("* * lastly * *", "its day 'lastly': use a number"),
        ("* last * * *", "its hour 'last': use a number"),
        ("1,,2 * * * *", "its minute '': use"),
        ("jan * * * *", "its minute 'jan': use a number"),
    ],
)
def test_what_is_no_crontab_is_refused_with_its_field_and_the_fix(cron: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"/cron.*{reason}"):
        next_fire(cron, FRIDAY)


def test_times_are_utc_on_the_days_on_which_daylight_saving_time_begins_and_ends() -> None:
    for day in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        at, times = day - timedelta(seconds=1), []
        while (at := next_fire("30 * * * *", at)) < day + timedelta(days=1):
            times.append(at)
        assert times == [day + timedelta(hours=hour, minutes=30) for hour in range(24)]


@pytest.mark.parametrize("cron", ["0 0 31 2,4,6,9,11 *", "0 0 30 2 mon"])
def test_a_cron_that_never_fires_is_found_out_quickly(cron: str) -> None:
    began = time.thread_time()
    with pytest.raises(InvalidInput, match="never fires"):
        next_fire(cron, datetime(2026, 11, 21, tzinfo=UTC))
    assert time.thread_time() - began < 0.2  # to the end of the calendar: a second
    assert next_time(cron, datetime(2026, 11, 21, tzinfo=UTC)) is None


def test_the_rarest_day_of_all_is_found() -> None:
    """Between 2096 and 2104 there is no leap year: this Sunday comes after 40 years."""
    found = next_fire("0 0 29 2 sun", datetime(2088, 3, 1, tzinfo=UTC))
    assert found == datetime(2128, 2, 29, tzinfo=UTC)
