"""The overview: what needs a person, with the act beside it."""

from __future__ import annotations

import re
import shutil
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from edgeyard.scheduler.engine.registered_models import promote, roll_back
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.registered_models import ModelKind
from tests.builders.api import Api, running
from tests.builders.cli import printed, run
from tests.builders.model_files import a_model_file
from tests.builders.pages import as_
from tests.builders.registered import add_candidate

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")

BOARD = "rpi4b-0001-0001"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("overview")) as found:
        yield found


def needed(api: Api, name: str = "operator") -> str:
    """What the overview says that needs a person."""
    text = as_(api, name).get("/ui").text
    return text[text.index("What needs a person") : text.index("</section>")]


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/queue", "/ui/benchmarks", "/ui/boards/rpi4b-0001-0002"]
)
def test_an_empty_lab_names_a_command_that_submits_a_benchmark(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = as_(api).get(path).text
    (command,) = re.findall(r"<code>edgeyard (submit [^<]+)</code>", text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEYARD_URL", api.url)
    monkeypatch.setenv("EDGEYARD_TOKEN", api.tokens["alice"])
    Path("model.onnx").write_bytes(a_model_file())
    words = command.replace("FAMILY", "rpi4b").split()
    assert "rpi4b" in printed(run(*words, "--dry-run"))
    (page,) = re.findall(r'href="(/ui/submit\?[^"]*)">the page Submit', text)
    assert as_(api).get(unescape(page)).status_code == 200


def test_a_healthy_lab_needs_nobody(api: Api) -> None:
    assert "Nothing: no board is out of service" in needed(api)


def test_a_model_that_the_server_rolled_back_is_named_with_its_reason(api: Api) -> None:
    version = add_candidate(api.store).version
    now = api.clock.now()
    with api.store.write() as uow:
        for _ in range(2):
            promote(uow, ModelKind.FAILURE, version, now, by_user_id="operator", force=True)
        roll_back(uow, ModelKind.FAILURE, now, by_user_id="", reason="worse than the history")
    assert "rolled back: worse than the history" in needed(api)
    assert 'href="/ui/models"' in needed(api)
    assert "rolled back" not in needed(api, "alice")
    api.clock.ahead += timedelta(days=8)
    try:
        assert "rolled back" not in needed(api)
    finally:
        api.clock.ahead -= timedelta(days=8)


def test_little_room_on_the_disk_is_shown_with_the_command(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**6))
    found = needed(api)
    assert "<strong>Disk</strong>" in found
    assert "edgeyard server prune --dry-run" in found


def test_a_quarantined_board_has_its_act_beside_it(api: Api) -> None:
    views = api.engine.boards
    quarantined = [
        replace(each, state=type(each.state)("quarantined"))
        if each.board.target_uid == BOARD
        else each
        for each in views()
    ]
    with api.store.write() as uow:
        uow.reservations.set_quarantine(
            Quarantine(target_uid=BOARD, since=api.clock.now(), reason="three failures")
        )
    api.engine.boards = lambda: tuple(quarantined)  # type: ignore[method-assign]
    try:
        assert f'action="/ui/boards/{BOARD}/unquarantine"' in needed(api)
        assert "unquarantine" not in needed(api, "alice")
    finally:
        api.engine.boards = views  # type: ignore[method-assign]


def test_boards_whose_state_is_not_known_are_no_healthy_lab(api: Api) -> None:
    problem = "the cluster at http://nomad.test did not answer"
    known = api.engine.cluster_problem
    api.engine.cluster_problem = lambda: problem  # type: ignore[method-assign]
    try:
        assert "Nothing: no board" not in needed(api, "alice")
        found = needed(api)
        assert "State of the boards" in found
        assert "edgeyard doctor" in found
    finally:
        api.engine.cluster_problem = known  # type: ignore[method-assign]
