"""What is reported to Nomad, and when: never too often, never the wrong end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from edgeyard.devices.edgedevice.publishing import (
    FACTS_EVERY_S,
    PROGRESS_EVERY_S,
    PROGRESS_STEP,
    PublishedBoard,
    Publisher,
)
from edgeyard.devices.model import Board

TICK_S = 0.5


def shown(
    percent: int | None = None,
    *,
    uid: str = "rpi4b-0001-0001",
    healthy: bool = True,
    heat: float = 40,
) -> PublishedBoard:
    board = Board(
        target_uid=uid,
        family="rpi4b",
        ram_bytes=1,
        storage_bytes=1,
        engines=(),
        healthy=healthy,
        busy=percent is not None,
    )
    return PublishedBoard(board=board, percent=percent or 0, temperature_c=heat)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(*[st.one_of(st.none(), st.integers(0, 100))] * 2, st.booleans()), max_size=60
    )
)
def test_progress_is_reported_in_steps_and_seldom_and_ends_and_health_at_once(
    course: list[tuple[int | None, int | None, bool]],
) -> None:
    publisher = Publisher()
    content = {uid: shown(uid=uid) for uid in ("rpi4b-0001-0001", "rpi4b-0001-0002")}
    assert publisher.publish(0.0, content) == content
    last_rise = 0.0
    now = 0.0
    for first, second, healthy in course:
        now += TICK_S
        current = {
            "rpi4b-0001-0001": shown(first, uid="rpi4b-0001-0001", healthy=healthy),
            "rpi4b-0001-0002": shown(second, uid="rpi4b-0001-0002"),
        }
        news = publisher.publish(now, current)
        assert news != content
        rose = False
        for uid, after in (news or {}).items():
            before = content[uid]
            if after.board.busy and (after.percent, True) != (before.percent, before.board.busy):
                rose = True
                began = not before.board.busy
                assert began or abs(after.percent - before.percent) >= PROGRESS_STEP
        if rose:
            assert now - last_rise >= PROGRESS_EVERY_S
            last_rise = now
        content = dict(news or content)
        for uid, real in current.items():
            assert content[uid].board.healthy == real.board.healthy
            if not real.board.busy:
                assert (content[uid].percent, content[uid].board.busy) == (0, False)


def test_a_run_is_followed_to_its_end() -> None:
    publisher = Publisher()
    uid = "rpi4b-0001-0001"
    publisher.publish(0.0, {uid: shown()})
    reports = []
    for tick in range(1, 121):  # a minute of one percent each tick
        news = publisher.publish(tick * TICK_S, {uid: shown(min(100, tick))})
        if news:
            reports.append((tick * TICK_S, news[uid].percent))
    # a step is 5 %, which is 2.5 s here; so the 5 s bind
    assert reports == [(at, int(at * 2)) for at in range(5, 55, 5)]
    assert publisher.publish(60.5, {uid: shown()}) == {uid: shown()}
    assert publisher.publish(61.0, {uid: shown()}) is None


def test_heat_alone_is_reported_once_a_minute_when_it_moved_far() -> None:
    publisher = Publisher()
    uid = "rpi4b-0001-0001"
    publisher.publish(0.0, {uid: shown(heat=40)})
    assert publisher.publish(FACTS_EVERY_S - 1, {uid: shown(heat=80)}) is None
    assert publisher.publish(FACTS_EVERY_S, {uid: shown(heat=44)}) is None
    assert publisher.publish(FACTS_EVERY_S, {uid: shown(heat=45)}) == {uid: shown(heat=45)}
    asked_nothing = replace(shown(), temperature_c=None)  # while it measured
    assert publisher.publish(3 * FACTS_EVERY_S, {uid: asked_nothing}) is None


def test_boards_that_come_and_go_are_reported_at_once() -> None:
    publisher = Publisher()
    one, two = (shown(uid=f"rpi4b-0001-000{number}") for number in (1, 2))
    publisher.publish(0.0, {"a": one})
    assert publisher.publish(TICK_S, {"a": one, "b": two}) == {"a": one, "b": two}
    assert publisher.publish(2 * TICK_S, {"b": two}) == {"b": two}
