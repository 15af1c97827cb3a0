"""What flags say, as fields: lists, times, durations, quotas."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from edgeyard.devices.sizes import parse_size
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.quantities import duration_s
from edgeyard.scheduler.model.quotas import QUOTA_NAMES


def one_or_list(values: Sequence[str], *, commas: bool = True) -> object:
    """Return None, the only value, or the list of a matrix; ``commas`` separate values, too."""
    parts = [part.strip() for value in values for part in value.split(",")] if commas else values
    kept = [part for part in parts if part]
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else kept


def single(value: str | None, flag: str) -> str | None:
    """Return a value where a matrix is not accepted.

    Raises:
        InvalidInput: It is a list.
    """
    if value is not None and "," in value:
        count = len(value.split(","))
        raise InvalidInput.at(
            flag, f"{value!r} names {count}, but no matrix is possible here", "one of them"
        )
    return value


def moment(value: str | None, flag: str) -> str | None:
    """Return a time of RFC 3339, or ``+2h`` from now."""
    if value is None:
        return None
    accepted = "e.g. +2h, or RFC 3339 with zone, e.g. 2026-11-21T08:00:00Z"
    if not value.startswith("+"):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput.at(flag, f"{value!r} is not a time", accepted) from None
        return value
    try:
        at = datetime.now(UTC) + timedelta(seconds=duration_s(value[1:]))
    except (ValueError, OverflowError) as error:
        raise InvalidInput.at(flag, f"{value} {error}", accepted) from None
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def past(value: str | None, flag: str) -> str | None:
    """Return an RFC 3339 time, a date (UTC) or an age, e.g. ``7 d``, as a time."""
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        try:
            at = datetime.now(UTC) - timedelta(seconds=duration_s(value))
        except (ValueError, OverflowError):
            raise InvalidInput.at(
                flag, f"cannot read {value!r}", "2026-11-01, RFC 3339, or an age, e.g. '7 d'"
            ) from None
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def seconds(value: str | None, flag: str) -> float | None:
    """``90``, ``"15 min"``: a duration."""
    if value is None:
        return None
    try:
        return duration_s(value)
    except ValueError as error:
        raise InvalidInput.at(flag, f"{value!r} {error}", "seconds, or e.g. 15 min") from None


def quotas(given: Sequence[str] | None) -> dict[str, int | None]:
    """Parse quotas ``NAME=VALUE``; the value ``default`` gives None, the server's value.

    Raises:
        InvalidInput: One does not have this form.
    """
    found: dict[str, int | None] = {}
    for each in given or ():
        name, _, value = each.partition("=")
        if name not in QUOTA_NAMES:
            raise InvalidInput.at("--quota", f"{name!r} is not a quota", ", ".join(QUOTA_NAMES))
        if name in found:
            raise InvalidInput.at("--quota", f"{name!r} is given twice", "each quota once")
        try:
            found[name] = None if value == "default" else parse_size(value)
        except ValueError:
            raise InvalidInput.at(
                "--quota", f"{value!r} is not a number or size", "8 GiB"
            ) from None
    return found
