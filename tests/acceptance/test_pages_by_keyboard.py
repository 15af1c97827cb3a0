"""The lab's pages by keys alone, in a real browser: the focus is seen, and nothing traps it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
