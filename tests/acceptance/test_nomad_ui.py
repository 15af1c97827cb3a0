"""The page that Edgeyard links to, in Nomad's own UI and a real browser."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from deploy.process import edgeyard
from edgeyard.testbed import LoopbackNomad
from tests.browser import Browser
from tests.builders.cluster import eventually
from tests.nomad_cluster import clear, settings_of

pytestmark = [
    pytest.mark.nomad,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.xdist_group("nomad"),
]

UI_PATIENCE_S = 180.0
"""Nomad's UI is some megabytes of JavaScript, which a busy machine takes its time to start."""

LOADS = 3

PICTURE = Path(__file__).parents[2] / "build/nomad-job.png"
"""That of the docs, docs/images/nomad-job.png, was once this one."""


def test_nomad_s_ui_shows_the_job_that_edgeyard_links_to(
    nomad_cluster: LoopbackNomad, browser: Browser, squeezenet: Path, tmp_path: Path
) -> None:
    clear(nomad_cluster)
    settings = settings_of(nomad_cluster, tmp_path / "inventory.json")
    with edgeyard(tmp_path / "data", settings) as server:
        benchmark_id = server.submit(
            {
                "model": server.upload(squeezenet)["name"],
                "target": "rpi4b",
                "nb_inference": 1_000_000,
            }
        )
        attempts = server.wait(benchmark_id, ("running",))["attempts"]
        job_id, page = attempts[0]["job_id"], attempts[0]["cluster_page"]
        where = f"/v1/job/{job_id}/allocations?namespace={nomad_cluster.namespace}"
        allocations = nomad_cluster.call("GET", where)
        (run,) = allocations

        # of the same origin, without the UI, which has its own idea of tokens while it starts
        browser.open(f"{nomad_cluster.address}/v1/status/leader")
        browser.run("localStorage.nomadTokenSecret = arguments[0]", nomad_cluster.token)
        names = (run[key].split("-")[0] for key in ("ID", "NodeID"))
        shows(browser, page, job_id, "1 running", "bootstrap-job", *names)
        browser.screenshot(PICTURE)
        assert PICTURE.read_bytes().startswith(b"\x89PNG")
        server.call("POST", f"/v1/benchmarks/{benchmark_id}/cancel")
        eventually(
            lambda: has_words(browser, "Stopped", "1 complete"),
            "it shows the end without a reload",
            UI_PATIENCE_S,
        )
    clear(nomad_cluster)


def shows(browser: Browser, page: str, *words: str) -> None:
    """Open it, again where one of its many requests got stuck, until it shows them all."""
    for _ in range(LOADS):
        browser.open(page)
        with contextlib.suppress(AssertionError):
            eventually(lambda: has_words(browser, *words), "it shows them", UI_PATIENCE_S / LOADS)
            return
    raise AssertionError(f"not all of {words} are on the page:\n{browser.text()}")


def has_words(browser: Browser, *words: str) -> bool:
    """Whether the page shows them all; badges are capitals by style or by text."""
    text = browser.text().upper()
    return all(word.upper() in text for word in words)
