"""Headless Chromium, driven by its own driver over HTTP (W3C WebDriver)."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy import programs
from edgeyard.testbed.agent import free_port
from tests.builders.cluster import eventually

_QUIET = (
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",  # small in containers
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)


TAB, ENTER, SPACE, SHIFT = "\ue004", "\ue007", " ", "\ue008"
UP, DOWN = "\ue013", "\ue015"
"""Keys, as WebDriver names them."""


class Browser:
    """One window."""

    def __init__(self, driver: str, profile: Path, size: tuple[int, int]) -> None:
        args = [*_QUIET, f"--window-size={size[0]},{size[1]}", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            args.append("--no-sandbox")  # its sandbox refuses root
        chrome = {"binary": programs.find("chromium"), "args": args}
        wanted = {"browserName": "chrome", "goog:chromeOptions": chrome}
        self._http = httpx.Client(base_url=driver, timeout=60.0, trust_env=False)
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        assert isinstance(made, dict)
        self._session = f"/session/{made['sessionId']}"

    def open(self, url: str) -> None:
        """Go there; returns when the page is loaded, not when its scripts are done."""
        self._call("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> object:
        """JavaScript in the page; what it returns."""
        body = {"script": script, "args": arguments}
        return self._call("POST", f"{self._session}/execute/sync", body)

    def press(self, keys: str, *, held: str = "") -> None:
        """Press one key after the other, with another one held down; see `TAB` and so on."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        if held:
            pressed = [
                {"type": "keyDown", "value": held},
                *pressed,
                {"type": "keyUp", "value": held},
            ]
        source = {"type": "key", "id": "keyboard", "actions": pressed}
        self._call("POST", f"{self._session}/actions", {"actions": [source]})

    def text(self) -> str:
        """What the page shows, as text."""
        return str(self.run("return document.body.innerText"))

    def screenshot(self, path: Path) -> None:
        """A PNG of the window."""
        picture = self._call("GET", f"{self._session}/screenshot")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(str(picture)))

    def act_as_phone(self, width: int = 360, height: int = 740) -> None:
        """Lay pages out as a phone of this size would, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
        self._call("POST", f"{self._session}/goog/cdp/execute", command)

    def prefer(self, scheme: str) -> None:
        """Show pages as somebody wants them who prefers ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        self._call("POST", f"{self._session}/goog/cdp/execute", command)

    def violations(self) -> list[str]:
        """What axe-core finds on this page that keeps people from using it.

        Needs axe-core's script `on_each_page`.
        """
        found = self.run(
            "return axe.run(document).then(found => found.violations.map(each =>"
            " each.id + ': ' + each.nodes.slice(0, 3).map(one => one.html.slice(0, 200) + ' ' +"
            " one.failureSummary).join(' | ')))"
        )
        assert isinstance(found, list)
        return [str(each) for each in found]

    def on_each_page(self, script: str) -> None:
        """Run JavaScript at the beginning of each page that is opened from now on."""
        command = {"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": script}}
        self._call("POST", f"{self._session}/goog/cdp/execute", command)

    def close(self) -> None:
        """End Chromium."""
        self._call("DELETE", self._session)
        self._http.close()

    def _call(self, method: str, path: str, body: object = None) -> object:
        answer = self._http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()["value"]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A window of its own for a test that is marked `browser`."""
    driver = programs.find("chromedriver")
    if driver is None or programs.find("chromium") is None:
        pytest.skip("There is no Chromium with its driver here: make test installs them on Debian.")
    port = free_port()
    with (tmp_path / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen([driver, f"--port={port}"], stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(address), "the driver answers")
        window = Browser(address, tmp_path / "profile", (1480, 1270))
        yield window
        window.close()
    finally:
        process.terminate()
        process.wait(20)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/status", trust_env=False).is_success
    except httpx.TransportError:
        return False
