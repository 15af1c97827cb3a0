"""The name of the cluster: on boards, in metrics, on pages, in the client."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from edgeyard.benchmark_api.sdk import Client
from tests.builders.api import Api, running
from tests.builders.cli import printed, run
from tests.builders.pages import as_

pytestmark = pytest.mark.one_database("the name is one of the settings")

BOARD = "rpi4b-0001-0001"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    lab = {"lab-a": {"public_url": "http://edgeyard.example:42777"}}
    with running(tmp_path_factory.mktemp("api"), clusters=lab) as found:
        yield found


def test_answers_and_the_client_carry_it(api: Api) -> None:
    boards = api.as_().get("/v1/boards").json()["items"]
    assert {each["cluster"] for each in boards} == {"lab-a"}
    assert api.as_().get(f"/v1/boards/{BOARD}").json()["cluster"] == "lab-a"
    with Client(api.url, token=api.tokens["alice"]) as client:
        assert client.board(BOARD).cluster == "lab-a"
    version = api.as_(None).get("/v1/version").json()
    assert (version["cluster"], version["cluster_kind"]) == ("lab-a", "embedded")


def test_commands_and_pages_show_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ("--url", api.url, "--token", api.tokens["alice"])
    monkeypatch.setenv("EDGEYARD_COLUMNS", "200")
    assert "lab-a" in printed(run("boards", "list", *server))
    assert "lab-a" in printed(run("boards", "show", BOARD, *server))
    browser = as_(api)
    for page in ("/ui/boards", f"/ui/boards/{BOARD}"):
        assert "lab-a" in re.sub("<[^>]*>", "", browser.get(page).text)


def test_metrics_of_the_place_have_it_as_a_label(api: Api) -> None:
    lines = api.as_().get("/metrics").text.splitlines()
    for name in ("boards", "twin_age_seconds", "cluster_requests_total", "quarantines_total"):
        found = [each for each in lines if each.startswith(f"edgeyard_{name}{{")]
        assert found, name
        assert all('cluster="lab-a"' in each for each in found)
