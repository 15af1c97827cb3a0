"""Names in the filters of commands: a name that nobody knows is an error, no empty list."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.builders.api import Api, running
from tests.builders.cli import printed, run

BOARD = "rpi4b-0001-0001"

pytestmark = pytest.mark.one_database("the command line asks the server for names")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("names")) as found:
        yield found


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("events --board rpi4b-0001-001", f"--board: no board 'rpi4b-0001-001' .*mean {BOARD}"),
        ("events --follow --board nonsense", "--board: no board 'nonsense' is known"),
        ("events --actor nobody", "--actor: no user 'nobody' is known"),
        ("events --follow --actor nobody", "--actor: no user 'nobody' is known"),
        ("queue --user alicee", "--user: no user 'alicee' is known .*mean alice"),
        ("queue --target rpi4", "--target: no family 'rpi4' is known .*mean rpi4b"),
        ("list --user nobody", "--user: no user 'nobody' is known"),
        ("list --target nonsense", "--target: no family 'nonsense' is known"),
        ("list --target-uid nonsense", "--target-uid: no board 'nonsense' is known"),
        ("series list --target nonsense", "--target: no family 'nonsense' is known"),
        ("series list --board nonsense", "--board: no board 'nonsense' is known"),
        ("boards list --family nonsense", "--family: no family 'nonsense' is known"),
        ("boards attributes --family nonsense", "--family: no family 'nonsense' is known"),
    ],
)
def test_an_operator_s_unknown_name_is_refused_by_its_flag(
    api: Api, command: str, refused: str
) -> None:
    done = run(*command.split(), "--url", api.url, "--token", api.tokens["operator"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.search(refused, " ".join(done.stderr.split()))


@pytest.mark.parametrize(
    "command",
    [
        f"events --board {BOARD} --since 1h --until 59min",
        "events --actor alice --type board.resumed",
        "queue --user alice",
        "queue --target rpi4b",
        "list --user alice",
        f"list --target rpi4b --target-uid {BOARD}",
        f"series list --target rpi4b --board {BOARD}",
        "boards list --family rpi4b --state offline",
    ],
)
def test_a_known_name_that_has_nothing_is_an_empty_list(api: Api, command: str) -> None:
    server = ("--url", api.url, "--token", api.tokens["operator"])
    assert printed(run(*command.split(), *server, "--json")).strip() in ("[]", "")


@pytest.mark.parametrize("command", ["queue --user", "list --user", "events --actor"])
def test_a_submitter_does_not_learn_which_users_there_are(api: Api, command: str) -> None:
    server = ("--url", api.url, "--token", api.tokens["alice"])
    answers = {printed(run(*command.split(), each, *server)) for each in ("bob", "nobody")}
    assert len(answers) == 1


def test_a_board_that_was_removed_is_known_to_the_log(api: Api) -> None:
    server = ("--url", api.url, "--token", api.tokens["operator"])
    memory = {"ram": 4 * 2**30, "storage": 16 * 2**30}
    engines = {"ort": {"version": "1", "supported_types": ["TYPE1"]}}
    entry = {"target_uid": "rpi4b-0009-0001", "memory": memory, "engines": engines}
    added = api.as_("operator").post("/v1/inventory/boards", json=entry)
    assert added.status_code == 201, added.text
    removed = api.as_("operator").delete("/v1/inventory/boards/rpi4b-0009-0001")
    assert removed.status_code == 204
    drains = ("events", "--board", "rpi4b-0009-0001", "--type", "board.drained")
    assert printed(run(*drains, *server, "--json")).strip() == ""
