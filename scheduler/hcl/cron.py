"""One-shot starts as Nomad's 7-field cron: ``sec min hour day month dow year``, UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from edgeyard.errors import HclError

_ONE_SHOT = re.compile(
    r"(\d{1,2}) (\d{1,2}) (\d{1,2}) (\d{1,2}) (\d{1,2}) \* (\d{4})", flags=re.ASCII
)


def cron_of(start: datetime) -> str:
    """Return a cron that fires once, at ``start``, rounded up to whole seconds."""
    moment = start.astimezone(UTC)
    if moment.microsecond:
        moment = moment.replace(microsecond=0) + timedelta(seconds=1)
    day, clock = f"{moment.day} {moment.month} * {moment.year}", moment.time()
    return f"{clock.second} {clock.minute} {clock.hour} {day}"


def moment_of(cron: str) -> datetime:
    """Return when a one-shot cron fires, aware UTC.

    Raises:
        HclError: It is not one moment: each firing of a recurring cron is a benchmark of its own,
            made by Edgeyard and not by the cluster.
    """
    match = _ONE_SHOT.fullmatch(cron)
    if match is None:
        raise HclError(f"cron {cron!r} is not a single moment")
    second, minute, hour, day, month, year = map(int, match.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise HclError(f"cron {cron!r}: {error}") from error
