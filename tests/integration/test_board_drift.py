"""A board that drifts: results of others on it are suspect wherever they are shown, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from edgeyard.scheduler.engine.drift import quarantine_drifted
from edgeyard.scheduler.engine.quarantine import lift_quarantine
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.series_changes import ChangeStatus, SeriesChange
from tests.builders.api import Api, running
from tests.builders.measured import DAY, Measured, store_measured
from tests.builders.records import an_outcome
from tests.builders.series import change, key

BOARD, OTHER = "rpi4b-0001-0001", "rpi4b-0001-0002"
CANARY = "canary/digits-ort"


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as started:
        store_measured(
            started.store,
            [
                measured("before", 1),
                measured("after", 5),
                measured("elsewhere", 5, board=OTHER),
                measured("wrong", 5, verdict="invalid"),
                measured("canary-old", 2, user_id=CANARY_USER, series=CANARY),
                measured("canary-new", 4, user_id=CANARY_USER, series=CANARY, p50_ms=11.0),
            ],
        )
        with started.store.write() as uow:
            for name in ("before", "after"):
                uow.attempts.add_outcome(an_outcome(name, verdict="comparable"))
            uow.series.mark_due([DRIFT.key], DAY)
        yield started


def measured(name: str, day: int, **more: Any) -> Measured:
    given: dict[str, Any] = {
        "model": "net.onnx",
        "series": "detector",
        "board": BOARD,
        "ended_at": DAY + timedelta(days=day),
    }
    return Measured(benchmark_id=name, **(given | more))


DRIFT = replace(
    change(),
    change_id="drift",
    key=key(lineage=CANARY, user_id=CANARY_USER, target_uid=BOARD),
    begin_id="canary-new",
    before_id="canary-old",
    size=0.1,
)


@pytest.fixture
def found(api: Api) -> SeriesChange:
    """The suspicion, which the tests here move on."""
    with api.store.write() as uow:
        uow.series.add_change(DRIFT)
    return DRIFT


def verdict(api: Api, benchmark_id: str) -> dict[str, Any]:
    body = api.as_("operator").get(f"/v1/benchmarks/{benchmark_id}/results").json()
    shown: dict[str, Any] = body["reports"][-1]["report"]["verdict"]
    assert body["summary"]["verdict"] == shown["verdict"]
    return shown


def listed(api: Api, word: str) -> set[str]:
    found = api.as_("operator").get("/v1/benchmarks", params={"verdict": word, "limit": 100})
    return {each["benchmark_id"] for each in found.json()["items"]}


def moved(api: Api, *way: ChangeStatus, of: SeriesChange = DRIFT) -> None:
    with api.store.write() as uow:
        if of.change_id != DRIFT.change_id:
            uow.series.add_change(replace(of, status=ChangeStatus.SUSPECTED))
        for status in way:
            uow.series.save_change(replace(of, status=status))


def test_results_on_the_board_are_suspect_from_the_begin_of_its_drift_on(
    api: Api, found: SeriesChange
) -> None:
    assert verdict(api, "after") == {
        "not_checked": [],
        "verdict": "suspect",
        "reasons": [
            {
                "code": "board_drifted",
                "sentence": "the board drifted: the p50 of canary/digits-ort on rpi4b-0001-0001 "
                "changed by +10.0 % at 2026-11-06 07:59:40 UTC (suspected)",
            }
        ],
    }
    assert verdict(api, "wrong")["verdict"] == "invalid"
    for other in ("before", "elsewhere", "canary-new"):
        assert verdict(api, other)["verdict"] == "comparable"


def test_every_list_shows_it(api: Api, found: SeriesChange) -> None:
    client = api.as_("operator")
    points = client.get("/v1/series/points", params={"series": "detector"}).json()["items"]
    by_id = {each["benchmark_id"]: each for each in points}
    assert by_id["after"]["verdict"] == "suspect"
    assert "the board drifted" in str(by_id["after"])
    compared = client.post("/v1/results/comparison", json={"benchmark_ids": ["before", "after"]})
    assert "board_drifted" in compared.text or "the board drifted" in compared.text
    assert listed(api, "suspect") == {"after"}
    assert "after" not in listed(api, "comparable")


def test_it_ends_with_what_was_noise_or_dismissed_or_never_confirmed(
    api: Api, found: SeriesChange
) -> None:
    for number, way in enumerate(
        (
            [ChangeStatus.CONFIRMING, ChangeStatus.NOISE],
            [ChangeStatus.CONFIRMING, ChangeStatus.CONFIRMED, ChangeStatus.DISMISSED],
            [ChangeStatus.OPEN, ChangeStatus.RESOLVED],
        )
    ):
        each = replace(DRIFT, change_id=f"again-{number}")
        moved(api, *way, of=each if number else DRIFT)
        assert verdict(api, "after")["verdict"] == "comparable"
    assert "after" in listed(api, "comparable")


def test_results_of_a_confirmed_drift_stay_suspect_when_it_has_ended(
    api: Api, found: SeriesChange
) -> None:
    store_measured(
        api.store,
        [
            measured("canary-back", 6, user_id=CANARY_USER, series=CANARY),
            measured("later", 7),
            measured("canary-again", 8, user_id=CANARY_USER, series=CANARY, p50_ms=11.0),
            measured("now", 9),
        ],
    )
    with api.store.write() as uow:
        for name in ("later", "now"):
            uow.attempts.add_outcome(an_outcome(name, verdict="comparable"))
    ended_at = DAY + timedelta(days=8)
    confirmed = replace(DRIFT, confirmed_size=0.1)
    moved(api, ChangeStatus.CONFIRMING, ChangeStatus.CONFIRMED, of=confirmed)
    back = replace(DRIFT, change_id="back", begin_id="canary-back", size=-0.1, alert_id="drift")
    moved(api, ChangeStatus.CONFIRMING, ChangeStatus.MERGED, of=replace(back, ended_at=ended_at))
    resolved = replace(confirmed, ended_at=ended_at)
    moved(api, ChangeStatus.RESOLVED, of=resolved)
    assert verdict(api, "after")["reasons"][0]["sentence"].endswith(
        "at 2026-11-06 07:59:40 UTC (confirmed, until 2026-11-08 07:59:40 UTC)"
    )
    assert verdict(api, "later")["verdict"] == "comparable"
    assert (listed(api, "suspect"), listed(api, "comparable")) == (
        {"after"},
        {"before", "later", "now"},
    )
    # it comes back: the alert is the new drift, and what it was is kept beside it
    again = replace(confirmed, begin_id="canary-again", ended_at=None)
    moved(api, ChangeStatus.CONFIRMED, of=again)
    with api.store.write() as uow:
        uow.series.add_change(
            replace(resolved, change_id="was", alert_id="drift", status=ChangeStatus.MERGED)
        )
    assert listed(api, "suspect") == {"after", "now"}
    assert verdict(api, "after")["verdict"] == "suspect"
    assert verdict(api, "later")["verdict"] == "comparable"
    assert verdict(api, "now")["verdict"] == "suspect"
    moved(api, ChangeStatus.DISMISSED, of=again)
    assert listed(api, "suspect") == set()


def test_a_board_is_in_quarantine_while_its_drift_is_confirmed_where_that_is_wanted(
    api: Api,
) -> None:
    def step(*, wanted: bool = True) -> bool:
        return quarantine_drifted(api.store, api.clock.now(), wanted=wanted)

    def quarantine() -> Quarantine | None:
        with api.store.read() as uow:
            return uow.reservations.quarantines().get(BOARD)

    def next_drift(change_id: str, *way: ChangeStatus) -> None:
        with api.store.write() as uow:
            uow.series.add_change(replace(DRIFT, change_id=change_id))
            for status in way:
                uow.series.save_change(replace(DRIFT, change_id=change_id, status=status))

    confirming, confirmed = ChangeStatus.CONFIRMING, ChangeStatus.CONFIRMED
    next_drift("first", confirming)
    assert not step()
    with api.store.write() as uow:
        uow.series.save_change(replace(DRIFT, change_id="first", status=confirmed))
    assert not step(wanted=False)
    assert step()
    imposed = quarantine()
    assert imposed is not None
    assert (imposed.active, imposed.next_probe_at) == (True, None)
    assert "canary/digits-ort" in imposed.reason
    assert not step()
    # An operator knows better: for this drift it is not imposed again.
    with api.store.write() as uow:
        lift_quarantine(uow, imposed, api.clock.now(), by="operator")
    assert not step()
    with api.store.write() as uow:
        uow.series.save_change(replace(DRIFT, change_id="first", status=ChangeStatus.RESOLVED))
    bigger = replace(DRIFT, change_id="second", size=0.3)
    with api.store.write() as uow:
        uow.series.add_change(bigger)
        for status in (confirming, confirmed):
            uow.series.save_change(replace(bigger, status=status))
    assert step()
    with api.store.write() as uow:
        uow.series.save_change(replace(bigger, status=ChangeStatus.DISMISSED))
    assert step(wanted=False)
    lifted = quarantine()
    assert lifted is not None
    assert (lifted.active, lifted.lifted_by) == (False, None)


def test_changes_of_users_series_make_no_board_suspect(api: Api) -> None:
    with api.store.write() as uow:
        own = replace(DRIFT, change_id="own", key=key(lineage=CANARY, user_id="alice"))
        uow.series.mark_due([own.key], DAY)
        uow.series.add_change(own)
    assert verdict(api, "after")["verdict"] == "comparable"
