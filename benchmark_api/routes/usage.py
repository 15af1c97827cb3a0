"""What was used in a month, by user, group, board, family, engine or kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.accounting import (
    BoardMonth,
    UsageBy,
    UsageRow,
    month_bounds,
    month_of,
)

router = Router(prefix="/v1", tags=["accounts"])

_HOUR_S = 3600.0


@router.get("/usage")
def usage(
    caller: Submitter, context: Ctx, by: UsageBy = UsageBy.USER, month: str | None = None
) -> Answer[shapes.UsageReport]:
    """Board hours, waits, runs, failures, credits and energy of a month (`2026-10`, in UTC).

    Without `month`: of this one. You see what you used yourself, operators what everybody did.
    Boards without runs have rows, too, if it is known what they did.
    """
    services = context.services
    month = month or month_of(services.clock.now())
    try:
        since, until = month_bounds(month)
    except ValueError:
        raise InvalidInput.at("/month", f"{month!r} is no month", "such as 2026-10") from None
    with services.store.read() as uow:
        used = uow.accounting.usage(
            by, month, user_id=None if caller.is_operator else caller.user_id
        )
        boards = uow.accounting.board_months(month)
    times = _by_key(by, boards)
    rows = {row.key: row for row in used}
    for key in times:
        rows.setdefault(key, UsageRow(key=key))
    ordered = sorted(rows.values(), key=lambda each: (each.key is None, each.key or ""))
    total = reduce(lambda one, other: one.plus(other, None), ordered, UsageRow(key=None))
    every = _sum(boards) if times else None
    return Answer(
        shapes.UsageReport(
            month=month,
            by=by.value,
            since=since,
            until=until,
            items=[_row(each, times.get(each.key)) for each in ordered],
            total=_row(total, every),
        )
    )


def _by_key(by: UsageBy, boards: Sequence[BoardMonth]) -> dict[str | None, BoardMonth]:
    """Return what boards did, by the key of the row of a report to which it belongs."""
    if by is UsageBy.BOARD:
        return {each.target_uid: each for each in boards}
    if by is UsageBy.FAMILY:
        families = sorted({each.family for each in boards})
        return {name: _sum([each for each in boards if each.family == name]) for name in families}
    return {}


def _sum(boards: Sequence[BoardMonth]) -> BoardMonth:
    """Return what several boards did together, as if they were one."""
    return BoardMonth(
        target_uid="",
        month=boards[0].month,
        family=boards[0].family,
        busy_s=sum(each.busy_s for each in boards),
        idle_s=sum(each.idle_s for each in boards),
        down_s=sum(each.down_s for each in boards),
    )


def _row(used: UsageRow, times: BoardMonth | None) -> shapes.UsageRow:
    return views.same(
        shapes.UsageRow,
        used,
        board_hours=used.board_s / _HOUR_S,
        mean_wait_s=used.wait_s / used.starts if used.starts else None,
        idle_board_hours=used.idle_board_s / _HOUR_S,
        utilisation=None if times is None else times.utilisation,
        availability=None if times is None else times.availability,
        known_board_hours=None if times is None else times.known_s / _HOUR_S,
    )
