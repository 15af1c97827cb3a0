"""The docs as a site: built without a warning, complete, with a search, fetching nothing."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

# One process runs them all: two that build at once delete each other's pages from the cache.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"
PAGES = sorted(each.relative_to(ROOT / "docs") for each in ROOT.glob("docs/**/*.md"))


@pytest.fixture(scope="module", name="site")
def a_site_is_built() -> Path:
    done = subprocess.run(
        ["make", "site"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return SITE


def listed(entries: list[object]) -> Iterator[str]:
    """Pages of the navigation."""
    for each in entries:
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            for inner in each.values():
                yield from listed(inner)


def test_the_navigation_lists_every_page_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(listed(project["nav"])) == [str(each) for each in PAGES]


def test_each_page_is_built(site: Path) -> None:
    missing = [
        each
        for each in PAGES
        if not (site / each).with_suffix(".html").is_file()
        and not (each.name == "README.md" and (site / each).with_name("index.html").is_file())
    ]
    assert missing == []


def test_the_search_finds_a_heading_and_a_sentence(site: Path) -> None:
    items = json.loads((site / "search.json").read_text())["items"]
    found = {each["location"] for each in items if "quarantine" in each["text"]}
    assert any(each.startswith("how-to/decisions.html#") for each in found), found
    assert any(each["title"] == "You run a lab" for each in items)


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(https?:)?//""")
    for page in site.glob("**/*.html"):
        assert not fetched.search(page.read_text()), page
