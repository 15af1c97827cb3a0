"""The log of acts."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.acts import Act, ActFilter
from edgeyard.scheduler.model.event_types import EVENT_TYPES

router = Router(prefix="/v1", tags=["acts"])

MAX_PAGE = 1000


@router.get("/events")
def acts(
    caller: Submitter,
    context: Ctx,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    actor: str | None = None,
    type: str | None = None,  # the name that callers use
    board: str | None = None,
    benchmark_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: str | None = None,
    after: Annotated[int | None, Query(ge=0)] = None,
) -> Answer[shapes.ActPage]:
    """Who did what, newest first; you see your own acts, and those on your benchmarks.

    Operators see everybody's, and failed sign-ins. With ``after`` only acts with higher numbers, in
    order, for following the log.
    """
    if type is not None and not (type in EVENT_TYPES and EVENT_TYPES[type].act):
        known = ", ".join(name for name, each in EVENT_TYPES.items() if each.act)
        raise InvalidInput.at("/type", f"{type!r} is no type of act", f"one of {known}")
    if after is not None and cursor is not None:
        raise InvalidInput.at("/after", "pages have a cursor or follow", "one of the two")
    which = ActFilter(
        seen_by=None if caller.is_operator else caller.user_id,
        user_id=actor,
        kind=type,
        board=board,
        benchmark_id=benchmark_id,
        since=since,
        until=until,
    )
    before = None if cursor is None else _number(cursor)
    with context.services.store.read() as uow:
        found = uow.log.acts(which, limit=limit + 1, before=before, after=after)
    page = found[:limit]
    more = len(found) > limit and after is None
    return Answer(
        shapes.ActPage(
            items=[_shown(each, caller) for each in page],
            next_cursor=str(page[-1].seq) if more else None,
            next_after=max((each.seq for each in page), default=after or 0),
        )
    )


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise InvalidInput.at(
            "/cursor",
            "is not a cursor that this server returned",
            "the next_cursor of an earlier page",
        )
    return int(cursor)


def _shown(act: Act, caller: Caller) -> shapes.Act:
    named = caller.is_operator or act.user_id == caller.user_id
    return shapes.Act(
        seq=act.seq,
        at=act.at,
        kind=act.kind,
        text=EVENT_TYPES[act.kind].text if act.kind in EVENT_TYPES else act.kind,
        user_id=act.user_id,
        email=act.email if named else None,
        token_id=act.token_id if named else None,
        door=act.door,
        address=act.address if named else None,
        agent=act.agent if named else None,
        board=act.board,
        benchmark_id=act.benchmark_id,
        reason=act.reason,
        count=act.count,
        before=dict(act.before),
        after=dict(act.after),
        data=dict(act.data),
    )
