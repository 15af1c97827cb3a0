"""Every provider of the inventory keeps to what `InventoryProvider` promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgeyard.devices.inventory import Inventory
from edgeyard.devices.providers import CallableProvider, FileProvider, InventoryProvider
from edgeyard.errors import ConfigError

GOOD = {
    "rpi4b": [
        {
            "target_uid": "rpi4b-0001-0001",
            "memory": {"ram": "4 GiB", "storage": "32 GiB"},
            "engines": {"ort": {"supported_types": ["TYPE1"], "auth": {"password": "CANARY"}}},
        }
    ]
}
BAD = {"rpi4b": [{"target_uid": "rpi5-0001-0001", "memory": {}, "engines": {}}]}


@dataclass
class Source:
    """A provider, and how to change what it knows."""

    provider: InventoryProvider
    change: Callable[[object], None]


def _file(folder: Path) -> Source:
    path = folder / "boards.json"

    def write(data: object) -> None:
        path.write_text(json.dumps(data))

    return Source(FileProvider(path), write)


def _given(folder: Path) -> Source:
    known: list[object] = [{}]
    return Source(
        CallableProvider(lambda: Inventory.from_json(known[-1]), "a registry"), known.append
    )


@pytest.fixture(params=[_file, _given], ids=["file", "given"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    made = request.param(tmp_path)
    assert isinstance(made, Source)
    made.change(GOOD)
    return made


def test_it_hands_out_the_same_boards_each_time(source: Source) -> None:
    first, second = source.provider.load(), source.provider.load()
    assert first == second
    assert [board.target_uid for board in first.boards] == ["rpi4b-0001-0001"]


def test_it_sees_what_has_changed(source: Source) -> None:
    source.provider.load()
    source.change({})
    assert source.provider.load().boards == ()


def test_what_is_wrong_is_reported_with_every_mistake(source: Source) -> None:
    source.change(BAD)
    with pytest.raises(ConfigError) as refused:
        source.provider.load()
    assert len(refused.value.problems) >= 2
    assert any("rpi5-0001-0001" in each for each in refused.value.problems)


def test_it_says_where_the_boards_come_from_and_keeps_no_secret(source: Source) -> None:
    assert source.provider.source
    assert "CANARY" not in source.provider.source + repr(source.provider.load())


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"boards\.json"):
        FileProvider(tmp_path / "boards.json").load()
