"""Accounts and tokens that only read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from edgeyard.scheduler.engine.intake import fire_due
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.pages import Browser

pytestmark = pytest.mark.one_database("roles are columns of text")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        yield found


def test_a_viewer_reads_the_lab_and_its_metrics_and_submits_nothing(api: Api) -> None:
    made = api.as_("operator").post("/v1/users", json={"user_id": "hall", "role": "viewer"})
    assert (made.status_code, made.json()["role"]) == (201, "viewer")
    token = api.as_("operator").post("/v1/tokens", json={"user_id": "hall"}).json()
    assert token["role"] == "viewer"
    api.tokens["hall"] = token["token"]
    hall = api.as_("hall")
    for path in ("/v1/boards", "/v1/queue", "/v1/inventory", "/v1/policies", "/metrics"):
        assert hall.get(path).status_code == 200, path
    assert hall.get("/v1/benchmarks").json()["items"] == []
    refused = hall.post("/v1/benchmarks", json=description())
    assert refused.status_code == 403
    assert refused.json()["detail"] == "a viewer may only read: use the account of a submitter"


def test_a_submitter_s_token_may_be_one_that_only_reads(api: Api) -> None:
    benchmark_id = api.submit()
    made = api.as_().post("/v1/tokens", json={"role": "viewer"})
    assert made.status_code == 201
    api.tokens["reader"] = made.json()["token"]
    reader = api.as_("reader")
    assert reader.get(f"/v1/benchmarks/{benchmark_id}").status_code == 200
    assert reader.post(f"/v1/benchmarks/{benchmark_id}/cancel").status_code == 403
    wider = reader.post("/v1/tokens", json={"role": "submitter"})
    assert wider.status_code == 403
    assert reader.post("/v1/tokens", json={}).json()["role"] == "viewer"
    mine = api.as_().get("/v1/tokens").json()["items"]
    own = next(each for each in mine if each["role"] == "submitter")
    assert reader.delete(f"/v1/tokens/{own['token_id']}").status_code == 403


def test_who_becomes_a_viewer_submits_nothing_any_more(api: Api) -> None:
    api.upload(who="bob")
    asked = description(cron="* * * * *")
    schedule = api.as_("bob").post("/v1/benchmarks", json=asked)
    assert schedule.status_code < 300, schedule.text
    changed = api.as_("operator").patch("/v1/users/bob", json={"role": "viewer"})
    assert changed.json()["role"] == "viewer"
    assert api.as_("bob").get("/v1/schedules").json()["items"]
    assert api.as_("bob").post("/v1/benchmarks", json=description()).status_code == 403
    api.clock.ahead += timedelta(minutes=3)
    try:
        assert fire_due(api.store, api.clock) == 0
        api.as_("operator").patch("/v1/users/bob", json={"role": "submitter"})
        api.clock.ahead += timedelta(minutes=3)
        assert fire_due(api.store, api.clock) == 1
    finally:
        api.clock.ahead -= timedelta(minutes=6)


def test_pages_offer_a_viewer_no_acts(api: Api) -> None:
    benchmark_id = api.submit()
    made = api.as_().post("/v1/tokens", json={"role": "viewer"}).json()["token"]
    browser = Browser(api)
    assert browser.post("/ui/sign-in", token=made).status_code == 303
    for path in ("/ui/queue", f"/ui/benchmarks/{benchmark_id}", "/ui/boards/rpi4b-0001-0001"):
        page = browser.get(path)
        assert page.status_code == 200
        acts = [each for each in page.text.split('action="')[1:] if not each.startswith("/ui/sign")]
        assert [each.split('"')[0] for each in acts] == []
    job = {"model": "model.onnx", "runtime": "ort", "target.rpi4b": "on"}
    for path, fields in (
        (f"/ui/benchmarks/{benchmark_id}/cancel", {}),
        ("/ui/submit", job),
        ("/ui/submit/check", job),
        ("/ui/shares", {"benchmark_id": benchmark_id}),
    ):
        assert browser.post(path, "/ui/queue", **fields).status_code == 403, path
    assert browser.get("/ui/submit").status_code == 403
    assert "/ui/submit" not in browser.get("/ui").text
