"""The lab's pages as a browser without scripts sees them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import ClassVar

import httpx

from tests.builders.api import Api

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e'\"&"


class Browser:
    """What a browser without scripts does: it keeps cookies, and sends the forms of pages."""

    opened: ClassVar[list[httpx.Client]] = []

    def __init__(self, api: Api) -> None:
        self.http = httpx.Client(base_url=api.url, timeout=20, trust_env=False)
        self.opened.append(self.http)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def csrf(self, path: str = "/ui/sign-in") -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.get(path).text)
        assert found
        return found[1]

    def post(self, path: str, seen_on: str = "/ui/sign-in", **fields: str) -> httpx.Response:
        return self.http.post(path, data={"csrf": self.csrf(seen_on), **fields})

    def signed_in(self, token: str) -> Browser:
        answer = self.post("/ui/sign-in", token=token)
        assert answer.status_code == 303, answer.text
        return self


def as_(api: Api, name: str = "alice") -> Browser:
    """A browser in which an account is signed in."""
    return Browser(api).signed_in(api.tokens[name])


class Parts(HTMLParser):
    """What of a page could run or load: nothing inline, and all from this server."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.scripts += tag == "script"
        if tag == "style" or "style" in given or any(name.startswith("on") for name in given):
            self.wrong.append(f"{tag} {given}")
        if tag == "script" and not (given.get("src") or "").startswith("/ui/static/"):
            self.wrong.append(f"{tag} {given}")
        for name in ("src", "href", "action"):
            link = given.get(name) or ""
            if link.startswith("http://nomad.test/ui/jobs/"):
                continue  # the job's page, which the cluster names
            if link.startswith(("http", "//", "javascript:")):
                self.wrong.append(f"{tag} {name}={given[name]}")
