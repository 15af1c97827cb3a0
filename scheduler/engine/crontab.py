"""When a crontab fires, in UTC, so that no change of daylight saving time skips or repeats a time.

Five fields, or Nomad's seven, are read as cron reads them, with one exception: where both a day of
the month and a weekday are stated, both have to hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from apscheduler.triggers.cron import CronTrigger

from edgeyard.errors import InvalidInput

MAX_CRON_AHEAD = timedelta(days=41 * 366)
"""A 29 February of each weekday comes within 40 years; looking further takes seconds."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a crontab.

    Attributes:
        name: As in messages, and as an argument of `CronTrigger`.
        min: First value of ``*``.
        max: Last value of ``*``.
        number_of: Numbers of the names that may be written instead.
    """

    name: str
    min: int
    max: int
    number_of: Mapping[str, int] = field(default_factory=dict)


def _numbered(names: str, first: int) -> Mapping[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


_MONTHS = _numbered("jan feb mar apr may jun jul aug sep oct nov dec", 1)
_WEEKDAYS = _numbered("sun mon tue wed thu fri sat", 0)
_WEEKDAY = _Field("day_of_week", 0, 6, _WEEKDAYS)
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _WEEKDAY,
    _Field("year", 1970, 9999),
)
_SUNDAY = 7  # cron's second number for it, so that a range may end with it
_LAST_DAY = "last"
_PART = re.compile(
    r"(?:[*?]|(?P<first>[a-z]+|[0-9]{1,4})(?:-(?P<last>[a-z]+|[0-9]{1,4}))?)"
    r"(?:/(?P<step>[0-9]{1,4}))?",
    re.ASCII | re.IGNORECASE,
)


def next_fire(cron: str, after: datetime) -> datetime:
    """Return when a crontab, in UTC, fires next after ``after``.

    Raises:
        InvalidInput: It is no crontab, or it never fires again.
    """
    found = next_time(cron, after)
    if found is None:
        raise InvalidInput.at("/cron", "it never fires again", "a crontab with a time to come")
    return found


def next_time(cron: str, after: datetime) -> datetime | None:
    """Return when a crontab, in UTC, fires next after ``after``; None: never again.

    It has five fields, or Nomad's seven: second minute hour day month weekday year. Weekdays are
    0 to 7, both ends Sunday, or names.

    Raises:
        InvalidInput: It is no crontab.
    """
    texts = cron.split()
    if len(texts) == 5:
        texts = ["0", *texts, "*"]
    try:
        if len(texts) != len(_FIELDS):
            raise ValueError(f"it has {len(texts)} fields, not 5 or 7")
        read = {of.name: _read(of, text) for of, text in zip(_FIELDS, texts, strict=True)}
        trigger = CronTrigger(**read, timezone="UTC")
    except ValueError as error:
        raise InvalidInput.at(
            "/cron",
            f"not a crontab: {error}",
            "minute hour day month weekday, e.g. 0 3 * * mon; or, as Nomad has it, second minute "
            "hour day month weekday year",
        ) from error
    trigger.end_date = after + MAX_CRON_AHEAD
    # "After", not "at": a schedule that has just fired must not fire again at once.
    next_second = after.replace(microsecond=0) + timedelta(seconds=1)
    found: datetime | None = trigger.get_next_fire_time(None, next_second)
    return None if found is None or found >= trigger.end_date else found


def _read(of: _Field, text: str) -> str:
    """Return a field as `CronTrigger` reads it, which ignores steps after names.

    Its weekdays begin with Monday, and cron's with Sunday: they are listed one by one.

    Raises:
        ValueError: The field is not cron's; the message names it and states what it may be.
    """
    parts = text.lower().split(",")
    if of is not _WEEKDAY:
        return ",".join(_plain(of, part) for part in parts)
    days = {day % 7 for part in parts for day in range(*_range(of, part))}
    return ",".join(str((day - 1) % 7) for day in sorted(days))


def _plain(of: _Field, part: str) -> str:
    if of.name == "day" and part == _LAST_DAY:
        return part
    start, stop, step = _range(of, part)
    if (start, stop, step) == (of.min, of.max + 1, 1):
        return "*"
    if start + step >= stop:  # the step leads past the end
        return str(start)
    return f"{start}-{stop - 1}/{step}"


def _range(of: _Field, part: str) -> tuple[int, int, int]:
    """Return the values of one part of a field: start, end (exclusive) and step of a range."""
    match = _PART.fullmatch(part)
    if match is None:
        raise _wrong(of, part, "use *, values, ranges a-b, lists a,b and steps /n")
    step = int(match["step"] or 1)
    if not 1 <= step <= of.max - of.min:
        raise _wrong(of, part, f"use a step from 1 to {of.max - of.min}")
    if match["first"] is None:
        return of.min, of.max + 1, step
    first = last = _value(of, part, match["first"])
    if match["last"] is not None:
        last = _value(of, part, match["last"])
        if of is _WEEKDAY and last == 0 < first:
            last = _SUNDAY
        if last < first:
            raise _wrong(of, part, "a range ends after it begins; use two ranges instead")
    elif match["step"] is not None:  # from there on
        first, last = (0 if first == _SUNDAY and of is _WEEKDAY else first), of.max
    return first, last + 1, step


def _value(of: _Field, part: str, text: str) -> int:
    """Return the number that a value stands for."""
    if not text.isdigit():
        if text not in of.number_of:
            named = f", or {' '.join(of.number_of)}" if of.number_of else ""
            raise _wrong(of, part, f"use a number{named}")
        return of.number_of[text]
    max_value = _SUNDAY if of is _WEEKDAY else of.max
    if not of.min <= int(text) <= max_value:
        raise _wrong(of, part, f"use {of.min} to {max_value}")
    return int(text)


def _wrong(of: _Field, part: str, fix: str) -> ValueError:
    title = "weekday" if of is _WEEKDAY else of.name
    return ValueError(f"its {title} {part!r}: {fix}")
