"""What a board did: its states, those that nobody caused too, and its use by month."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from edgeyard.scheduler.model.accounting import BoardMonth
from edgeyard.scheduler.model.boards import BoardStateChange
from edgeyard.scheduler.model.retention import RetentionClass
from tests.builders.api import Api, running
from tests.builders.pages import as_

BOARD, OTHER = "rpi4b-0001-0001", "rpi4b-0001-0002"


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("history")) as found:
        found.upload()
        yield found


def states(api: Api, name: str = "alice", uid: str = BOARD) -> list[dict[str, object]]:
    found: list[dict[str, object]] = api.as_(name).get(f"/v1/boards/{uid}").json()["states"]
    return found


def change(at: datetime, state: str, *, uid: str = BOARD, reason: str = "") -> BoardStateChange:
    return BoardStateChange(target_uid=uid, at=at, state=state, reason=reason, benchmark_id=None)


def sampled(api: Api, seconds: float) -> None:
    api.clock.ahead += timedelta(seconds=seconds)
    api.services.board_times.sample()


def test_states_that_nobody_caused_are_the_history_of_a_board(api: Api) -> None:
    sampled(api, 5)
    benchmark_id = api.submit(target_uid=BOARD)
    api.engine.holders = {BOARD: benchmark_id}
    sampled(api, 5)
    sampled(api, 5)
    found = states(api)
    assert [each["state"] for each in found] == ["busy", "idle"]
    assert (found[0]["benchmark_id"], found[0]["until"]) == (benchmark_id, None)
    assert found[1]["until"] == found[0]["since"]
    foreign = states(api, "bob")[0]
    assert foreign["benchmark_id"] is None
    assert benchmark_id not in str(foreign)
    page = as_(api, "bob").get(f"/ui/boards/{BOARD}").text
    assert "in service" in page
    assert "busy once" in page


def test_a_board_that_went_offline_and_came_back_says_so_on_its_page(api: Api) -> None:
    now = api.clock.now()
    seen = [("idle", ""), ("offline", "no host reports it"), ("busy", ""), ("idle", "")]
    changes = [
        change(now - timedelta(hours=8 - place), state, uid=OTHER, reason=reason)
        for place, (state, reason) in enumerate(seen)
    ]
    with api.store.write() as uow:
        uow.accounting.add_board_states(changes)
    text = as_(api).get(f"/ui/boards/{OTHER}").text
    assert "for 1 h 0 min: no host reports it" in text
    assert text.index("busy once, 1 h 0 min in all") < text.index("no host reports it")


def test_a_state_is_stored_once_however_many_servers_led(api: Api) -> None:
    now = api.clock.now()
    for minute, state in enumerate(("idle", "idle", "offline")):
        with api.store.write() as uow:
            uow.accounting.add_board_states([change(now + timedelta(minutes=minute), state)])
    assert [each["state"] for each in states(api)] == ["offline", "idle"]


def test_old_states_are_pruned_but_not_the_present_one(api: Api) -> None:
    now = api.clock.now()
    for days, state in ((90, "idle"), (60, "offline"), (30, "idle")):
        with api.store.write() as uow:
            uow.accounting.add_board_states([change(now - timedelta(days=days), state)])
    api.store.prune({RetentionClass.EVENTS: now - timedelta(days=45)})
    assert [each["state"] for each in states(api)] == ["idle"]
    api.store.prune({RetentionClass.EVENTS: now})  # it is still idle
    assert [each["state"] for each in states(api)] == ["idle"]


def test_the_use_of_a_board_by_month_newest_first(api: Api) -> None:
    with api.store.write() as uow:
        uow.accounting.add_board_months(
            [
                BoardMonth(target_uid=BOARD, month="2026-09", family="rpi4b", down_s=3600.0),
                BoardMonth(
                    target_uid=BOARD, month="2026-10", family="rpi4b",
                    busy_s=900.0, idle_s=1800.0, down_s=900.0,
                ),
            ]
        )  # fmt: skip
    october, september = api.as_().get(f"/v1/boards/{BOARD}").json()["months"]
    assert october["month"] == "2026-10"
    assert october["utilisation"] == pytest.approx(900 / 2700)
    assert october["availability"] == pytest.approx(2700 / 3600)
    assert (september["utilisation"], september["availability"]) == (None, 0.0)
    text = as_(api).get(f"/ui/boards/{BOARD}").text
    assert text.index("2026-10") < text.index("2026-09")
    assert "33.33 %" in text
    assert "75 %" in text
