"""Campaigns and benchmarks found by name, schedule and time of submission."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from edgeyard.scheduler.engine.intake import fire_due
from tests.builders.api import Api, description, running


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        yield found


def campaign(api: Api, name: str = "", **common: object) -> str:
    shared = {key: value for key, value in description(**common).items() if key != "target"}
    body: dict[str, object] = {"matrix": {"target": ["rpi4b"]}, "description": shared}
    if name:
        body["name"] = name
    answer = api.as_().post("/v1/campaigns", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["campaign_id"])


def listed(api: Api, path: str, who: str = "alice") -> list[Any]:
    answer = api.as_(who).get(path)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def test_campaigns_are_listed_newest_first_with_their_counts(api: Api) -> None:
    first = campaign(api, "nightly")
    api.clock.ahead += timedelta(seconds=60)
    second = campaign(api, "weekly")
    items = listed(api, "/v1/campaigns")
    assert [each["campaign_id"] for each in items] == [second, first]
    assert items[0]["counts"] == {"pending": 1}
    assert items[0]["benchmarks"] == 1
    assert [each["name"] for each in listed(api, "/v1/campaigns?name=nightly")] == ["nightly"]
    page = api.as_().get("/v1/campaigns?limit=1").json()
    rest = listed(api, f"/v1/campaigns?limit=1&cursor={page['next_cursor']}")
    assert [each["campaign_id"] for each in rest] == [first]
    assert api.as_().get("/v1/campaigns?cursor=x").status_code == 422
    assert listed(api, "/v1/campaigns", "bob") == []
    assert len(listed(api, "/v1/campaigns", "operator")) == 2


def test_the_name_of_the_members_is_that_of_their_campaign(api: Api) -> None:
    made = campaign(api, "sweep")
    assert listed(api, "/v1/campaigns")[0]["name"] == "sweep"
    (member,) = listed(api, "/v1/benchmarks?name=sweep")
    assert (member["campaign_id"], member["name"]) == (made, "sweep")
    shared = {**description(name="shared"), "target": ...}
    body = {
        "matrix": {"target": ["rpi4b"]},
        "description": {key: value for key, value in shared.items() if value is not ...},
    }
    assert api.as_().post("/v1/campaigns", json=body).status_code == 202
    assert listed(api, "/v1/campaigns?name=shared")[0]["benchmarks"] == 1


def test_benchmarks_are_found_by_name_and_time(api: Api) -> None:
    old = api.submit(name="nightly", tags=["ci"])
    api.clock.ahead += timedelta(seconds=3600)
    new = api.submit(name="nightly")
    api.submit()
    between = (api.clock.now() - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    ids = [each["benchmark_id"] for each in listed(api, "/v1/benchmarks?name=nightly")]
    assert ids == [new, old]
    recent = f"/v1/benchmarks?name=nightly&submitted_from={between}"
    assert [each["benchmark_id"] for each in listed(api, recent)] == [new]
    assert api.as_().get(f"{recent}&total=true").json()["total"] == 1
    before = f"/v1/benchmarks?tag=ci&submitted_before={between}"
    assert [each["benchmark_id"] for each in listed(api, before)] == [old]
    pending = f"/v1/benchmarks?status=pending&submitted_before={between}"
    assert [each["benchmark_id"] for each in listed(api, pending)] == [old]
    assert api.as_().get("/v1/benchmarks?submitted_from=2026-11-01").status_code == 422


def test_benchmarks_of_a_schedule_are_found_by_it(api: Api) -> None:
    asked = description(cron="0 3 * * *")
    schedule = api.as_().post("/v1/benchmarks", json=asked).json()["schedule_id"]
    api.clock.ahead += timedelta(seconds=86400)
    assert fire_due(api.store, api.clock) == 1
    (found,) = listed(api, f"/v1/benchmarks?schedule_id={schedule}")
    assert found["schedule_id"] == schedule
    assert listed(api, "/v1/benchmarks?schedule_id=absent") == []
