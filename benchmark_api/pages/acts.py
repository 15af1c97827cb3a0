"""The log of acts: who did what, when, through which client, from where, and why."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserUser
from edgeyard.benchmark_api.pages.filters import stated, time_of
from edgeyard.benchmark_api.pages.page import page
from edgeyard.benchmark_api.routes import acts
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.sdk.fields import moment
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.event_types import EVENT_TYPES
from edgeyard.scheduler.model.times import time_text

router = PageRouter()

PAGE = 50

_TEXTS = ("actor", "type", "board", "benchmark_id")
"""Filters that are texts."""

_TYPES = dict(
    sorted(
        ((name, each.text) for name, each in EVENT_TYPES.items() if each.act),
        key=lambda pair: pair[1],
    )
)
"""Texts of the types of acts, by name."""

_SUBJECTS = ("model", "lineage", "policy", "scorer")
"""Names in the data of a record, besides ids, that identify the object of an act."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+Z-]{1,25}", re.ASCII)
"""What looks like a time in a record."""


@router.get("/ui/events")
def log_of_acts(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """Acts, newest first, as filtered."""
    query = stated(request)
    wrong: dict[str, str] = {}
    since = time_of(query.get("since", ""), wrong, "since")
    until = time_of(query.get("until", ""), wrong, "until")
    found: shapes.ActPage | None = None
    if query.get("type") not in (None, *_TYPES):
        wrong["type"] = "is no type of act"
    if not wrong:
        try:
            found = acts.acts(
                caller,
                context,
                since=since,
                until=until,
                **{name: query.get(name) for name in _TEXTS},
                limit=PAGE,
                cursor=query.get("cursor"),
                after=None,
            ).content
        except InvalidInput as error:
            wrong["cursor"] = str(error)
    return page(
        request,
        "acts",
        caller,
        status=422 if wrong else 200,
        found=found,
        changes={each.seq: _changes(each) for each in found.items} if found else {},
        query=query,
        wrong=wrong,
        types=_TYPES,
        filtered=bool(set(query) - {"cursor"}),
    )


def _changes(act: shapes.Act) -> list[tuple[str, str | None, str | None]]:
    """Return the objects of an act and the fields that it changed: name, old and new value.

    An object, such as the model that was promoted, has no old value. A value that was not set is
    None. What the row shows in other columns is left out: board, benchmark, user and reason.
    """
    names = dict.fromkeys((*act.before, *act.after))
    values = [
        (name, None, value)
        for name, value in act.data.items()
        if (name in _SUBJECTS or name.endswith("_id")) and name not in names
    ]
    values += [(name, act.before.get(name), act.after.get(name)) for name in names]
    elsewhere = (None, act.board, act.benchmark_id, act.user_id, act.reason)
    found = [(name, _text(old), _text(new)) for name, old, new in values if old != new]
    return [
        (name.replace("_", " "), old, new)
        for name, old, new in found
        if old != new and not (old is None and new in elsewhere)
    ]


def _text(value: object) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return _time_in_words(value) if _TIME.fullmatch(value) else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value) or None
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=4096)  # as `when`
def _time_in_words(text: str) -> str:
    at = moment({"at": text}, "at")
    return text if at is None else time_text(at)
