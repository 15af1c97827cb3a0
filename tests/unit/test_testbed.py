"""The test bed's parts that need no Nomad: which binary fits, what lies in its folder."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.devices.inventory import Inventory, default_embedded_inventory
from edgeyard.devices.model import BoardEngine
from edgeyard.errors import ConfigError, Conflict
from edgeyard.testbed import saved, standing
from edgeyard.testbed.binary import VERSION, find_nomad
from edgeyard.testbed.lab import emulated_hosts, expected
from tests.builders.cli import refusal, run

BUILD = Path(__file__).parents[2] / "deploy/nomad/build"


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def machine() -> Inventory:
    return default_embedded_inventory([0, 1], 2**34, [BoardEngine("ort", "1", frozenset())])


def a_nomad(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho Nomad v{version}\necho BuildDate now\n")
    path.chmod(0o755)
    return path


def test_a_fit_nomad_on_path_is_used_before_the_built_one(tmp_path: Path) -> None:
    built = a_nomad(tmp_path / "cache/edgeyard/nomad" / f"nomad-{VERSION}", VERSION)
    assert find_nomad() == built
    on_path = a_nomad(tmp_path / "bin/nomad", "1.11.2")
    assert find_nomad() == on_path


@pytest.mark.parametrize("version", ["1.11.2", "1.11.30", "2.0.0", "2.1.3", "2.1.0-beta.1"])
def test_a_fit_version_on_path_is_used_by_the_test_bed_and_by_make_nomad(
    tmp_path: Path, version: str
) -> None:
    on_path = a_nomad(tmp_path / "bin/nomad", version)
    assert find_nomad() == on_path
    path = {"PATH": f"{on_path.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([BUILD], env=path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(on_path)


@pytest.mark.parametrize("version", ["1.11.1", "1.10.9", "1.12.0", "1.111.3", "11.11.3", "20.1.1"])
def test_another_nomad_is_left_alone(tmp_path: Path, version: str) -> None:
    other = a_nomad(tmp_path / "bin/nomad", version)
    with pytest.raises(ConfigError, match="make nomad"):
        find_nomad()
    with pytest.raises(ConfigError, match=r"--nomad: .* is not Nomad 1\.11\.2"):
        find_nomad(other)
    with pytest.raises(ConfigError, match="--nomad"):
        find_nomad(tmp_path / "missing")


def test_the_version_is_the_one_that_make_nomad_builds() -> None:
    assert f"\nversion={VERSION}\n" in BUILD.read_text()


def test_without_a_nomad_up_says_how_to_get_one() -> None:
    done = refusal(run("testbed", "up"))
    assert "`make nomad`" in done
    assert "--nomad PATH" in done


@pytest.mark.parametrize(("words", "status"), [(["status"], 1), (["down"], 0)])
def test_where_there_is_no_test_bed_it_says_so(words: list[str], status: int) -> None:
    done = CliRunner().invoke(app, ["testbed", *words])
    assert done.exit_code == status
    assert "no test bed in " in done.stderr


def test_hosts_report_emulated_boards_and_one_that_is_expected_is_not_there() -> None:
    hosts = emulated_hosts(2, 5, machine())
    uids = [[board.target_uid for board in host.boards] for host in hosts]
    assert uids[1] == [
        "emufast-0002-0001",
        "emumid-0002-0002",
        "emumid-0002-0003",
        "emuslow-0002-0004",
        "emufast-0002-0005",
    ]
    inventory = expected(hosts, machine())
    assert len(inventory.boards) == 11
    assert {board.target_uid for board in inventory.boards} - {*uids[0], *uids[1]} == {
        "rpi4b-0001-0001"
    }
    slow = inventory.board("emuslow-0002-0004")
    assert slow is not None
    assert "emufast-0001-0001" in slow.shares_with, "hosts are the same machine"


def test_what_is_saved_is_found_again_and_secrets_are_the_owner_s(tmp_path: Path) -> None:
    folder = tmp_path / 'the "bed"'
    with saved.locked(folder):
        made = standing.new(folder, tmp_path / "nomad", 2, 1, machine())
        made.token = "secret"
        saved.save(made)
    assert saved.load(folder) == made
    settings = (folder / saved.SETTINGS).read_text("utf-8")
    assert "secret" not in settings
    cluster = tomllib.loads(settings)["clusters"][saved.CLUSTER]
    assert Path(cluster["token_file"]).read_text() == "secret\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in (saved.TOKEN, saved.SETTINGS, "management.token"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
    assert "secret" not in (folder / "testbed.json").read_text()
    assert [agent.pid for agent in made.agents] == [None] * 3
    assert made.expected_boards() == {"client-0": 1, "client-1": 1}
    standing.end(made)
    saved.leave(folder)
    assert not folder.exists()


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="holds other things"):
        standing.new(tmp_path, tmp_path / "nomad", 1, 1, machine())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_state_says_what_to_remove(tmp_path: Path) -> None:
    (tmp_path / "testbed.json").write_text('{"agents": 1}')
    with pytest.raises(ConfigError, match=f"remove {tmp_path}"):
        saved.load(tmp_path)


def test_two_at_once_are_one_too_many(tmp_path: Path) -> None:
    with saved.locked(tmp_path), pytest.raises(Conflict, match="now"), saved.locked(tmp_path):
        pass
