"""What board time costs by the hour of the day: factors on the families' rates.

The hour in which an attempt is placed counts for all of it, so that its cost is known then.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

HOURS = 24


@dataclass(frozen=True, slots=True)
class Tariff:
    """Factors by hour of the day in UTC.

    Attributes:
        factors: 24 factors, the first from midnight on; empty: 1 at all hours.
    """

    factors: tuple[float, ...] = ()

    def at(self, moment: datetime) -> float:
        """Return the factor of an attempt that is placed then."""
        return self.factors[moment.astimezone(UTC).hour] if self.factors else 1.0

    def changes(self, now: datetime) -> list[datetime]:
        """Return when within the next day the factor becomes another one, ascending."""
        if not self.factors:
            return []
        hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        hours = [hour + timedelta(hours=number) for number in range(HOURS + 1)]
        return [later for sooner, later in pairwise(hours) if self.at(sooner) != self.at(later)]


def seconds_of_day(moment: datetime) -> float:
    """Return the time of day of a moment with a time zone, seconds since midnight UTC."""
    moment = moment.astimezone(UTC)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return (moment - midnight).total_seconds()


def parse_tariff(text: str) -> Tariff:
    """Return a tariff from 24 numbers with commas; empty text: 1 at all hours.

    Raises:
        ValueError: The text states something else.
    """
    if not text.strip():
        return Tariff()
    try:
        factors = tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise ValueError(f"is not a list of numbers: {error}") from error
    return checked_tariff(factors)


def checked_tariff(factors: tuple[float, ...]) -> Tariff:
    """Return a tariff of these factors.

    Raises:
        ValueError: They are not 24 numbers from 0 to 1,000.
    """
    if len(factors) != HOURS:
        raise ValueError(f"has {len(factors)} numbers: it needs one for each of the {HOURS} hours")
    if not all(0.0 <= each <= 1000.0 for each in factors):
        raise ValueError("has a number that is not from 0 to 1000")
    return Tariff(factors)
