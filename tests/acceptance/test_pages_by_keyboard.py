"""The lab's pages by keys alone, in a real browser: the focus is seen, and nothing traps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.benchmark import WaitingReason, WaitReason
from edgeyard.scheduler.twin.twin import BoardState
from tests.browser import DOWN, ENTER, SHIFT, SPACE, TAB, UP, Browser
from tests.builders.api import Api, running
from tests.builders.cluster import eventually
from tests.builders.measured import Measured, store_measured

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.one_database("pages ask by the functions of the API's routes"),
]

MAX_STEPS = 150

_FOCUS = """
const on = document.activeElement;
if (!on || on === document.body) return null;
const style = getComputedStyle(on), place = on.getBoundingClientRect();
const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
  && place.width > 0 && place.height > 0
  && place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
const text = on.getAttribute("aria-label") || on.name || on.textContent.trim();
return {text, tag: on.tagName, seen, html: on.outerHTML.slice(0, 120)};
"""


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        store_measured(
            found.store,
            [Measured(benchmark_id=name, p50_ms=ms) for name, ms in (("one", 10), ("two", 12))],
        )
        yield found


def tab_to(browser: Browser, text: str, tag: str = "") -> None:
    """Press Tab until something with this name or text has the focus, which is seen on the way."""
    passed = []
    for _ in range(MAX_STEPS):
        browser.press(TAB)
        found = browser.run(_FOCUS)
        if not isinstance(found, dict):
            continue  # past the end: the browser's own buttons
        assert found["seen"], f"no visible focus: {found['html']}"
        passed.append(found["text"][:30])
        if found["text"] == text and tag in ("", found["tag"]):
            return
    pytest.fail(f"{text!r} is not reached by Tab; passed {passed}")


def shows(browser: Browser, text: str) -> None:
    eventually(lambda: text in browser.text(), f"the page shows {text!r}")


def test_from_signing_in_to_a_submission_by_keys_alone(browser: Browser, api: Api) -> None:
    browser.open(f"{api.url}/ui/sign-in")
    tab_to(browser, "token")
    browser.press(api.tokens["alice"] + ENTER)
    shows(browser, "What needs a person")

    browser.press(TAB)
    found = browser.run(_FOCUS)
    assert isinstance(found, dict)
    assert found["text"] == "Skip to the content"
    assert found["seen"]
    browser.press(ENTER)
    assert browser.run("return document.activeElement.id") == "content"
    browser.press(TAB)
    assert browser.run("return document.querySelector('main').contains(document.activeElement)")
    browser.press(TAB, held=SHIFT)  # and back again

    browser.open(f"{api.url}/ui")
    tab_to(browser, "Benchmarks")
    browser.press(ENTER)
    shows(browser, "More filters")
    tab_to(browser, "one", "A")
    browser.press(ENTER)
    shows(browser, "Timeline")

    tab_to(browser, "Benchmarks")
    browser.press(ENTER)
    shows(browser, "Compare what is ticked")
    for name in ("two", "one"):
        tab_to(browser, f"Compare {name}")
        browser.press(SPACE)
    tab_to(browser, "Compare what is ticked")
    browser.press(ENTER)
    shows(browser, "Swap A and B")

    tab_to(browser, "Submit", "A")
    browser.press(ENTER)
    shows(browser, "Submit a benchmark")
    tab_to(browser, "model")
    browser.press("https://example.org/net.onnx")
    for name in ("runtime.ort", "target.rpi4b"):
        tab_to(browser, name)
        browser.press(SPACE)
    tab_to(browser, "benchmark_type")
    chosen = "return document.activeElement.value"
    browser.press(DOWN)
    assert browser.run(chosen) == "TYPE2"
    browser.press(UP)
    assert browser.run(chosen) == "TYPE1"
    tab_to(browser, "Submit", "BUTTON")
    browser.press(ENTER)
    shows(browser, "It is submitted")


def test_tab_leads_through_each_page_and_out_again(browser: Browser, api: Api) -> None:
    browser.open(f"{api.url}/ui/sign-in")
    tab_to(browser, "token")
    browser.press(api.tokens["operator"] + ENTER)
    shows(browser, "What needs a person")
    for path in ("/ui", "/ui/boards/rpi4b-0001-0001", "/ui/benchmarks/one", "/ui/compare"):
        browser.open(f"{api.url}{path}")
        passed = []
        for _ in range(MAX_STEPS):
            browser.press(TAB)
            found = browser.run(_FOCUS)
            if not isinstance(found, dict):
                break
            assert found["seen"], f"{path}: no visible focus: {found['html']}"
            passed.append(found["text"])
        else:
            pytest.fail(f"{path}: the focus is never let out; last {passed[-5:]}")
        assert passed[0] == "Skip to the content"
        assert passed[-1] == "API reference"


def signed_in(browser: Browser, api: Api, name: str) -> None:
    browser.open(f"{api.url}/ui/sign-in")
    tab_to(browser, "token")
    browser.press(api.tokens[name] + ENTER)
    shows(browser, "What needs a person")


def listens(browser: Browser) -> None:
    listening = "return document.querySelector('#changes')._htmx?.sse != null"
    eventually(lambda: bool(browser.run(listening)), "the page listens to changes")


def focused(browser: Browser) -> str:
    """What has the focus, which is seen; "": nothing."""
    found = browser.run(_FOCUS)
    if not isinstance(found, dict):
        return ""
    assert found["seen"], f"no visible focus: {found['html']}"
    return str(found["text"])


def test_an_operator_drains_and_resumes_a_board_by_keys_alone(
    browser: Browser, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in(browser, api, "operator")
    tab_to(browser, "Boards")
    browser.press(ENTER)
    shows(browser, "As the cluster reported them")
    tab_to(browser, "rpi4b-0001-0001", "A")
    browser.press(ENTER)
    shows(browser, "Nothing is placed here until it is lifted")
    tab_to(browser, "reason")
    browser.press("new fan")
    tab_to(browser, "Drain", "BUTTON")
    drained = [replace(each, state=BoardState.DRAINED) for each in api.engine.boards()]
    monkeypatch.setattr(api.engine, "boards", lambda: drained)  # as the engine reports it then
    browser.press(SPACE)
    shows(browser, "The board is drained")
    shows(browser, "It was taken out of service by operator: new fan")
    tab_to(browser, "Resume", "BUTTON")
    browser.press(ENTER)
    shows(browser, "The board is back in service")


def test_a_user_holds_and_releases_a_benchmark_by_keys_alone(browser: Browser, api: Api) -> None:
    waiting = api.submit(name="waits")
    api.engine.order = (waiting,)
    signed_in(browser, api, "alice")
    for act, shown in (("Hold", "The benchmark is held"), ("Release", "waits for a board again")):
        browser.open(f"{api.url}/ui/queue")
        tab_to(browser, "waits", "A")
        browser.press(ENTER)
        shows(browser, "Timeline")
        tab_to(browser, act, "BUTTON")
        browser.press(SPACE if act == "Hold" else ENTER)
        shows(browser, shown)
        held = api.as_().get(f"/v1/benchmarks/{waiting}").json()["held"]
        assert held is (act == "Hold")


def test_the_focus_stays_where_it_was_when_a_page_shows_a_change(
    browser: Browser, api: Api
) -> None:
    first, second = api.submit(name="first"), api.submit(name="second")
    api.engine.order = (first, second)
    signed_in(browser, api, "alice")
    browser.open(f"{api.url}/ui/queue")
    listens(browser)
    tab_to(browser, "second", "A")
    tab_to(browser, "Hold", "BUTTON")
    row = "return document.activeElement.closest('tr').id"
    assert browser.run(row) == f"of-{second}"
    with api.store.write() as uow:  # as the next cycle does
        reason = WaitReason(reason=WaitingReason.HELD, sentence="it is held")
        lifecycle.wait(uow, [(uow.benchmarks.get(second), reason, 50)], api.clock.now())
    shows(browser, "Release")
    assert focused(browser) == "Release"
    assert browser.run(row) == f"of-{second}"
    api.engine.order = (second,)
    api.as_().post(f"/v1/benchmarks/{first}/cancel")
    eventually(lambda: "first" not in browser.text(), "the row before it is gone")
    assert browser.run(row) == f"of-{second}"
    api.engine.order = ()
    api.as_().post(f"/v1/benchmarks/{second}/cancel")
    shows(browser, "Nothing waits")
    browser.press(TAB)
    assert browser.run("return document.querySelector('footer').contains(document.activeElement)")

    waiting = api.submit(name="third")
    browser.open(f"{api.url}/ui/benchmarks/{waiting}")
    listens(browser)
    tab_to(browser, "Hold", "BUTTON")
    api.as_().post(f"/v1/benchmarks/{waiting}/hold")
    shows(browser, "Release")
    assert focused(browser) == "Release"
