"""Filters of lists, as the address of a page states them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache

from fastapi import Request
from markupsafe import Markup, escape

from edgeyard.benchmark_api.routes.context import Context
from edgeyard.scheduler.model.benchmark import BenchmarkType


def stated(request: Request, without: Collection[str] = ()) -> dict[str, str]:
    """Return the filters that an address states, without blanks around them; no empty ones.

    Args:
        request: Of the page.
        without: Names in the address that are no filters.
    """
    return {
        name: value.strip()
        for name, value in request.query_params.items()
        if value.strip() and name not in without
    }


def type_choices(query: Mapping[str, str], context: Context) -> list[str]:
    """Return the benchmark types that a filter offers: Edgeyard's own, and those of its boards.

    One that the address names is among them, because results outlive boards.
    """
    own = [each.value for each in BenchmarkType]
    known = set(context.offers.now().types)
    for board in context.services.unknown_boards():
        known |= {kind for engine in board.engines for kind in engine.supported_types}
    with suppress(ValueError):
        known.add(BenchmarkType(query.get("type", "")).value)
    return own + sorted(known - set(own), key=lambda each: (len(each), each))


def check_choice(
    query: Mapping[str, str], name: str, options: Sequence[str], wrong: dict[str, str]
) -> None:
    """Check a filter with a fixed list of values, where the address states it.

    Args:
        query: The filters, as `stated` returns them.
        name: Of the filter.
        options: Its values.
        wrong: Gets the mistake, if there is one.
    """
    if name in query and query[name] not in options:
        wrong[name] = f"is none of {', '.join(options)}"


def options_of(values: Iterable[str], chosen: str, texts: Mapping[str, str]) -> Markup:
    """Return the options of a filter with a fixed list of values as HTML.

    Args:
        values: As the address states them.
        chosen: The one that is selected; another text: none is.
        texts: What people see instead of a value.
    """
    listed = tuple(map(str, values))
    shown = tuple(texts.get(each, each) for each in listed)
    return _options(listed, shown, chosen if chosen in listed else "")


@lru_cache(maxsize=256)
def _options(values: Sequence[str], texts: Sequence[str], chosen: str) -> Markup:
    return Markup("").join(
        Markup(f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>')
        + escape(text)
        + Markup("</option>")
        for value, text in zip(values, texts, strict=True)
    )


def time_of(text: str, wrong: dict[str, str], name: str) -> datetime | None:
    """Return the time of a filter; a day alone is its beginning in UTC.

    Args:
        text: As typed; "": no filter.
        wrong: Takes what is wrong with the field, by its name.
        name: Of the field.
    """
    if not text:
        return None
    try:
        time = datetime.fromisoformat(f"{text}T00:00:00Z" if len(text) == 10 else text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        wrong[name] = "is no day such as 2026-11-29, and no time with its zone"
        return None
    return time
