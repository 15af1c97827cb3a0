"""The lab's pages in a real browser: nothing that the policy forbids, phones, keyboard, changes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from deploy import demo, programs
from deploy.process import edgeyard
from edgeyard.benchmark_api.pages.compare import ComparisonQuery
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, Status
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.model.series_changes import ChangeStatus
from tests.browser import Browser
from tests.builders.api import Api, running
from tests.builders.cluster import eventually
from tests.builders.descriptions import description
from tests.builders.measured import Generated, Measured, many, over_days, store_measured
from tests.builders.registered import add_candidate
from tests.builders.series import change
from tests.integration.test_api_auth import SCENARIO
from tests.integration.test_pages_checks import stored as stored_check

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.one_database("pages ask by the functions of the API's routes"),
]

DIGITS = Path(demo.__file__).parent / "digits.onnx"

_RECORD = """
window.wrong = [];
document.addEventListener("securitypolicyviolation",
  e => wrong.push(e.violatedDirective + " " + e.blockedURI));
window.addEventListener("error", e => wrong.push(String(e.message)));
const error = console.error;
console.error = (...all) => { wrong.push(all.join(" ")); error(...all); };
"""


_SIDEWAYS = """
return [...document.querySelectorAll(".scroll")]
  .filter(each => each.scrollWidth > each.clientWidth).map(each => each.ariaLabel)
"""
"""Tables of which one has to move a part into view."""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        yield found


def sign_in(browser: Browser, api: Api, name: str) -> None:
    browser.on_each_page(_RECORD)
    browser.open(f"{api.url}/ui/sign-in")
    browser.run(
        "const field = document.querySelector('[name=token]');"
        "field.value = arguments[0]; field.form.requestSubmit()",
        api.tokens[name],
    )
    eventually(lambda: "Overview" in browser.text(), "the overview is there")


def every_page(api: Api) -> list[str]:
    """Paths of all pages, with something on each."""
    benchmark_id = api.submit(name="</script><script>alert(1)</script>" + "W" * 90)
    api.dispatched(benchmark_id)
    api.engine.order = (api.submit(),)
    measured = [*many(60, [f"rpi4b-0001-{each:04}" for each in range(1, 4)]), *over_days(12)]
    store_measured(api.store, measured)
    now = datetime.now(UTC)
    newest = [
        Measured(benchmark_id=f"new-{number}", campaign_id=campaign, ended_at=now)
        for number, campaign in enumerate((None, "sweep", "sweep", None))
    ]
    shifted = [
        Measured(
            benchmark_id=f"shifted-{day}",
            series="shifted",
            p50_ms=10 + 0.1 * (day % 3) + (0.8 if day >= 20 else 0.0),
            ended_at=now - timedelta(days=40 - day),
        )
        for day in range(30)
    ]
    store_measured(api.store, [*newest, *shifted])
    broken = Failure(category=FailureCategory.USER_MODEL, sentence="the model could not be loaded")
    failed = replace(
        Measured(benchmark_id="failed", ended_at=now).benchmark(),
        status=Status.FAILED,
        failure=broken,
    )
    with api.store.write() as uow:
        uow.benchmarks.add(failed)
    stored_check(api, "check-pairs", 1.05, 1.06, 1.9, 1.05, 1.07)
    store_measured(api.store, [Generated(benchmark_id="lm", ended_at=now)])
    of_shifted = SeriesKey.of(shifted[0].benchmark())
    ends: dict[str, Any] = {"before_id": "shifted-19", "begin_id": "shifted-20"}
    with api.store.write() as uow:
        uow.series.add_change(
            change(key=of_shifted, status=ChangeStatus.CONFIRMED, found_at=now, **ends)
        )
    ids = [each.benchmark_id for each in measured]
    version = add_candidate(api.store, passed=False).version
    client = api.as_("operator")
    versions = {
        "baseline": {"description": description(model_url="https://example.org/old.onnx")},
        "candidate": description(model_url="https://example.org/new.onnx"),
    }
    check_id = client.post("/v1/checks", json=versions).json()["check_id"]
    client.post("/v1/scenarios", json=SCENARIO)
    simulation = {"scenario": "paper", "policy": "sjf", "seed": 1, "metrics": {"jobs": 40}}
    client.put("/v1/simulations/run-one", json=simulation)
    links = [{"benchmark_id": ids[0]}, {"benchmark_ids": ids[:3]}]
    shared = [
        api.as_().post("/v1/shares", json=each).json()["url"].removeprefix(api.url)
        for each in links
    ]
    return [
        *("/ui", "/ui/boards", "/ui/boards/rpi4b-0001-0001", "/ui/queue", "/ui/benchmarks"),
        *("/ui/shares", "/ui/submit", f"/ui/submit?clone={benchmark_id}"),
        f"/ui/benchmarks/{benchmark_id}/why",
        *(f"/ui/benchmarks/{each}" for each in (benchmark_id, f"{benchmark_id}/log", ids[0])),
        *(
            "/ui/compare",
            ComparisonQuery(ids=tuple(ids[:2])).address(),
            ComparisonQuery(ids=tuple(ids)).address(),
        ),
        *("/ui/history", "/ui/history?series=mobilenet.onnx"),
        *("/ui/benchmarks/failed", "/ui/history?series=shifted", "/ui/checks/check-pairs"),
        *("/ui/checks", f"/ui/checks/{check_id}", "/ui/usage?by=board", "/ui/usage?month=odd"),
        *("/ui/policies", "/ui/policies/native", "/ui/models", f"/ui/models/failure/{version}"),
        *("/ui/simulations", "/ui/simulations/run-one", "/ui/events"),
        *("/ui/subscriptions", "/ui/alerts", "/ui/alerts/alert-1", "/ui/boards?state=odd"),
        *("/ui/benchmarks/lm", "/ui/usage", *shared),
        *("/ui/benchmarks?status=odd", "/ui/nowhere", "/ui/sign-in"),
    ]


def not_among(paths: list[str], api: Api) -> set[str]:
    """Patterns of the pages' addresses that no path matches: files, streams and links excepted."""
    names = [path.partition("?")[0] for path in paths]
    routes = [each for each in api.app.router.routes if isinstance(each, APIRoute)]
    pages = {each.path: each for each in routes if "GET" in (each.methods or ())}
    return {
        path
        for path, route in pages.items()
        if path.startswith("/ui")
        and not path.endswith((".csv", ".svg", "/{name}", "/changes", "/link"))
        and not any(route.path_regex.match(name) for name in names)
    }


def test_every_page_keeps_to_the_policy_on_screens_and_phones(browser: Browser, api: Api) -> None:
    paths = every_page(api)
    assert not_among(paths, api) == set()
    sign_in(browser, api, "operator")
    for width in (1440, 360):
        browser.act_as_phone(width, 900)
        for path in paths:
            browser.open(api.url + path)
            assert browser.run("return typeof htmx") == "object", path
            assert browser.run("return window.wrong") == [], path
            assert browser.run("return document.documentElement.scrollWidth") == width, path
            assert browser.run(_SIDEWAYS) == [], path


@pytest.mark.skipif(not programs.AXE.exists(), reason="make programs fetches axe-core from npm")
def test_every_page_is_accessible_light_and_dark(browser: Browser, api: Api) -> None:
    paths = every_page(api)
    sign_in(browser, api, "operator")
    browser.on_each_page(programs.AXE.read_text())
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        for path in paths:
            browser.open(api.url + path)
            assert browser.violations() == [], f"{path}, {scheme}"
    browser.run("document.querySelector('main').append(document.createElement('button'))")
    assert any("button-name" in each for each in browser.violations()), "it would be found"


def test_an_open_page_shows_what_changes_without_a_reload(browser: Browser, api: Api) -> None:
    benchmark_id = api.submit()
    sign_in(browser, api, "alice")
    browser.open(f"{api.url}/ui/benchmarks/{benchmark_id}")
    browser.run(
        "window.same = true; document.querySelector('[name=user_priority]').value = 7;"
        "document.querySelector('.share summary').click()"
    )
    eventually(
        lambda: bool(browser.run("return document.querySelector('#changes')._htmx?.sse != null")),
        "the page listens",
    )
    api.as_().post(f"/v1/benchmarks/{benchmark_id}/hold")
    eventually(lambda: "Release" in browser.text(), "the page shows that it is held")
    assert browser.run("return document.querySelector('[name=user_priority]').value") == "7"
    assert browser.run("return document.querySelector('.share').open") is True
    assert "None yet" in browser.text()
    api.as_().post(f"/v1/benchmarks/{benchmark_id}/cancel")
    eventually(lambda: "Run it again" in browser.text(), "the page shows that it was cancelled")
    assert browser.run("return document.querySelector('[name=user_priority]')") is None
    assert "yet" not in browser.text(), "no part of the page is of before"
    assert browser.run("return window.same") is True
    assert browser.run("return window.wrong") == []


def test_the_link_of_the_start_signs_its_admin_in(browser: Browser, tmp_path: Path) -> None:
    with edgeyard(tmp_path / "data") as server:
        log = tmp_path / "data.log"
        line = re.compile(rf"^Open ({server.url}/ui/sign-in/link\S+) to sign in", re.MULTILINE)
        eventually(lambda: line.search(log.read_text()) is not None, "the link is printed")
        found = line.search(log.read_text())
        assert found
        browser.open(found[1])
        browser.run("document.querySelector('main form').requestSubmit()")
        eventually(lambda: "What needs a person" in browser.text(), "the overview is there")
        assert "admin" in browser.text()
        browser.open(f"{server.url}/ui/boards")
        assert browser.run("return document.querySelectorAll('.state').length")


def test_a_dropped_file_is_submitted_and_its_page_shared(browser: Browser, api: Api) -> None:
    sign_in(browser, api, "alice")
    browser.open(f"{api.url}/ui/submit")
    dropped = DIGITS.read_bytes()
    browser.run(
        """
        const bytes = Uint8Array.from(atob(arguments[0]), each => each.charCodeAt(0));
        const data = new DataTransfer();
        data.items.add(new File([bytes], "dropped.onnx"));
        const place = document.querySelector("[data-drop]");
        place.dispatchEvent(new DragEvent("drop", {dataTransfer: data, cancelable: true}));
        """,
        base64.b64encode(dropped).decode(),
    )
    eventually(lambda: "dropped.onnx, " in browser.text(), "the file is uploaded and looked into")
    assert "takes:" in browser.text()
    browser.run(
        """
        for (const name of ["target.rpi4b", "runtime.ort"])
          document.getElementsByName(name)[0].click();
        """
    )
    eventually(lambda: "would run now" in browser.text(), "what would happen stands there")
    assert "is required" not in browser.text(), "no mistake stays beside a field that is filled in"
    command = "return document.querySelector('#same-1').textContent"
    assert "--model dropped.onnx" in str(browser.run(command))
    assert browser.run("return window.wrong") == []
    browser.run("document.querySelector('#job button.main').click()")
    eventually(lambda: "It is submitted" in browser.text(), "the benchmark's page is there")
    browser.run(
        "document.querySelector('.share summary').click();"
        "document.querySelector('.share form').requestSubmit()"
    )
    eventually(lambda: "Copy it now" in browser.text(), "the link is shown")
    link = str(browser.run("return document.querySelector('#made').textContent"))
    assert browser.run("return window.wrong") == []
    browser.run("document.querySelector('form[action=\"/ui/sign-out\"]').requestSubmit()")
    eventually(lambda: "You are signed out" in browser.text(), "the session has ended")
    browser.open(link)
    assert "Shared read-only until" in browser.text()
    assert "alice" not in browser.text()
    assert browser.run("return window.wrong") == []


def test_a_page_that_nobody_looks_at_asks_for_nothing(browser: Browser, api: Api) -> None:
    benchmark_id = api.submit()
    sign_in(browser, api, "alice")
    browser.open(f"{api.url}/ui/benchmarks/{benchmark_id}")
    browser.run(
        """
        window.asked = 0;
        const fetch = window.fetch;
        window.fetch = (...all) => { asked++; return fetch(...all); };
        window.looked = false;
        Object.defineProperty(document, "hidden", {get: () => !looked});
        document.querySelector("#changes").dispatchEvent(new CustomEvent("lab-changed"));
        """
    )
    assert browser.run("return new Promise(done => setTimeout(() => done(asked), 200))") == 0
    browser.run("looked = true; document.dispatchEvent(new Event('visibilitychange'))")
    eventually(lambda: browser.run("return asked") == 1, "the page reads itself again")
