"""What is gathered from the store to name the cause of a change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from edgeyard.scheduler.decide.blame import Blame, Cause, lacks_results
from edgeyard.scheduler.engine.blame import blame
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.builders.measured import DAY, Measured, store_measured
from tests.builders.series import change

BOARD, SISTER = "rpi4b-0001-0001", "rpi4b-0001-0002"
BEGIN = 12


def stored(
    store: SqlStore,
    series: str,
    shift: float,
    user_id: str = "alice",
    board: str = BOARD,
    after: Mapping[str, Any] | None = None,
    begin: int = BEGIN,
    facts_from: Mapping[str, int] | None = None,
    until: int = 16,
) -> SeriesKey:
    """Sixteen nights of a series, shifted from one of them on; returns its key.

    Facts change on that night, too, except those whose night is stated.
    """
    nights_of_facts = {name: begin for name in after or {}} | dict(facts_from or {})
    nights = [
        Measured(
            benchmark_id=f"{series.replace('/', '-')}-{board}-{night}",
            series=series,
            user_id=user_id,
            board=board,
            p50_ms=(10.0 + 0.01 * (night % 3)) * (1 + (shift if night >= begin else 0.0)),
            ended_at=DAY + timedelta(days=night),
            **{
                "version": "1.22",
                **{
                    name: value
                    for name, value in (after or {}).items()
                    if night >= nights_of_facts[name]
                },
            },
        )
        for night in range(until)
    ]
    store_measured(store, nights)
    with store.write() as uow:
        for each in nights:
            uow.attempts.add_outcome(
                make.an_outcome(
                    each.benchmark_id,
                    target_uid=board,
                    user_id=user_id,
                    model_sha256=each.benchmark().model_sha256,
                    primary_value=each.p50_ms,
                    primary_metric="p50",
                    primary_better="lower",
                    ended_at=each.ended_at,
                )
            )
    key = SeriesKey.of(nights[0].benchmark())
    assert key is not None
    return key


def blamed(store: SqlStore, key: SeriesKey) -> Blame:
    found = change(
        key=key,
        begin_id=f"net-{BOARD}-{BEGIN}",
        before_id=f"net-{BOARD}-{BEGIN - 1}",
        worse=True,
        size=0.08,
        low=0.07,
        high=0.09,
    )
    with store.read() as uow:
        return blame(uow, found, DAY + timedelta(days=30))


def test_canaries_that_moved_blame_the_board_and_what_changed_on_it(
    sqlite_store: SqlStore,
) -> None:
    key = stored(sqlite_store, "net", 0.08, after={"kernel": "6.12"})
    stored(sqlite_store, "canary/a", 0.07, user_id=CANARY_USER)
    stored(sqlite_store, "canary/b", 0.09, user_id=CANARY_USER)
    stored(sqlite_store, "secret", 0.0, user_id="bob")
    found = blamed(sqlite_store, key)
    assert found.cause is Cause.BOARD
    assert "2 of 2 canaries" in found.sentence
    assert "its kernel changed from 6.6.51 to 6.12" in found.sentence
    assert "secret" not in found.sentence


def test_a_series_whose_own_model_changed_shows_nothing_of_the_board(
    sqlite_store: SqlStore,
) -> None:
    key = stored(sqlite_store, "net", 0.08, after={"content": "v2"})
    stored(sqlite_store, "wide", 0.08, after={"content": "wide v2"})
    assert blamed(sqlite_store, key).cause is Cause.MODEL


def test_what_has_no_result_after_the_change_yet_is_named_and_looked_at_again(
    sqlite_store: SqlStore,
) -> None:
    key = stored(sqlite_store, "net", 0.08)
    stored(sqlite_store, "net", 0.0, board=SISTER, until=BEGIN)
    found = blamed(sqlite_store, key)
    assert f"On other boards ({SISTER}) the model had fewer than 3" in " ".join(found.not_tested)
    assert lacks_results(found.not_tested)
    stored(sqlite_store, "canary/a", 0.0, user_id=CANARY_USER, until=BEGIN)
    found = blamed(sqlite_store, key)
    assert (found.cause, lacks_results(found.not_tested)) == (Cause.UNKNOWN, True)
    assert "canary/a had fewer than 3 results after the change" in " ".join(found.not_tested)
    assert "No canary ran" not in " ".join(found.not_tested)


def test_a_canary_of_its_own_is_no_other_canary(sqlite_store: SqlStore) -> None:
    key = stored(sqlite_store, "net", 0.08, user_id=CANARY_USER)
    found = blamed(sqlite_store, key)
    assert f"No other canary ran on {BOARD} before and after the change." in found.not_tested


def test_series_of_others_are_not_read(sqlite_store: SqlStore) -> None:
    key = stored(sqlite_store, "net", 0.08)
    stored(sqlite_store, "canary/forged", 0.08, user_id="bob")
    found = blamed(sqlite_store, key)
    assert found.cause is Cause.UNKNOWN
    assert "forged" not in found.sentence


def test_other_boards_with_the_same_new_engine_blame_it(sqlite_store: SqlStore) -> None:
    key = stored(sqlite_store, "net", 0.08, after={"version": "1.23"})
    stored(sqlite_store, "net", 0.07, board=SISTER, after={"version": "1.23"})
    stored(sqlite_store, "net", 0.0, board="rpi4b-0001-0003")
    found = blamed(sqlite_store, key)
    assert found.cause is Cause.ENGINE
    assert "from 1.22 to 1.23" in found.sentence
    assert "0 of 1 boards without it" in found.sentence


def test_boards_that_got_the_new_engine_on_other_nights_blame_it_too(
    sqlite_store: SqlStore,
) -> None:
    key = stored(sqlite_store, "net", 0.08, after={"version": "1.23"})
    stored(sqlite_store, "net", 0.07, board=SISTER, after={"version": "1.23"}, begin=5)
    stored(sqlite_store, "net", 0.08, board="rpi4b-0001-0003", after={"version": "1.23"}, begin=14)
    stored(sqlite_store, "net", 0.0, board="rpi4b-0001-0004")
    found = blamed(sqlite_store, key)
    assert found.cause is Cause.ENGINE
    assert "changed on 2 of 2 other boards with the same change" in found.sentence
    assert "0 of 1 boards without it" in found.sentence


def test_facts_that_changed_on_different_nights_elsewhere_are_distinguished(
    sqlite_store: SqlStore,
) -> None:
    both = {"version": "1.23", "kernel": "6.12"}
    key = stored(sqlite_store, "net", 0.08, after=both)
    for number in (2, 3):
        board = f"rpi4b-0001-000{number}"
        when = {"version": 4}
        stored(sqlite_store, "net", 0.08, board=board, after=both, begin=10, facts_from=when)
    found = blamed(sqlite_store, key)
    assert found.cause is Cause.KERNEL
    assert "changed on 2 of 2 other boards with the same change" in found.sentence
