"""The inventory of expected boards."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgeyard.devices.inventory import (
    Inventory,
    default_embedded_inventory,
    known_families,
)
from edgeyard.devices.model import FAMILY_PATTERN, BoardEngine
from edgeyard.devices.sizes import parse_size, size_text
from edgeyard.errors import ConfigError

GIB = 1 << 30
ORT = BoardEngine(name="ort", version="1.20", supported_types=frozenset({"TYPE1"}))


def entry(uid: str = "rpi4b-0001-0001", **more: object) -> dict[str, Any]:
    return {
        "target_uid": uid,
        "memory": {"storage": 34359738368, "ram": "4 GiB"},
        "engines": {"ort": {"version": "1.20", "supported_types": ["TYPE1", "TYPE2"]}},
        **more,
    }


def problems_of(data: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        Inventory.from_json(data)
    return caught.value.problems


def test_the_platforms_own_shape_is_read_and_its_secrets_are_not_kept() -> None:
    platform = entry()
    platform["engines"]["ort"] |= {
        "image": "registry/ort",
        "devices": ["/dev/x"],
        "volumes": [],
        "env": {"A": "CANARY"},
        "auth": {"password": "CANARY"},
    }
    inventory = Inventory.from_json({"rpi4b": [platform]})
    assert inventory.families() == ("rpi4b",)
    assert inventory.max_ram_bytes() == inventory.max_ram_bytes("rpi4b") == 4 * GIB
    assert inventory.max_ram_bytes("x86") == 0
    assert inventory.engines() == {"ort": frozenset({"TYPE1", "TYPE2"})}
    assert "CANARY" not in repr(inventory) + json.dumps(inventory.to_json())


def test_every_mistake_is_reported_with_its_place() -> None:
    problems = problems_of(
        {
            "Rpi-4": [],
            "rpi5": {},
            "rpi4b": [
                entry("rpi5-0001-0001"),
                entry("nonsense"),
                entry(memory={"ram": True, "storage": "4 XB"}),
                entry("rpi4b-0001-0002", engines={"1": {}, "ort": {"supported_types": "TYPE1"}}),
                entry("rpi4b-0001-0003", local={"cpus": [], "threads": 1}),
                entry("rpi4b-0001-0004", local={"cpus": [0], "threads": 0}),
                entry("rpi4b-0001-0005", colour="red"),
                entry("rpi4b-0001-0006"),
                entry("rpi4b-0001-0006"),
                "nonsense",
                {},
            ],
        }
    )
    places = [problem.split(": ")[0] for problem in problems]
    assert places == [
        "$.Rpi-4",
        "$.rpi5",
        "$.rpi4b[0].target_uid",
        "$.rpi4b[1].target_uid",
        "$.rpi4b[2].memory.ram",
        "$.rpi4b[2].memory.storage",
        "$.rpi4b[3].engines.1",
        "$.rpi4b[3].engines.1.supported_types",
        "$.rpi4b[3].engines.ort.supported_types",
        "$.rpi4b[4].local.cpus",
        "$.rpi4b[5].local.threads",
        "$.rpi4b[6].colour",
        "$.rpi4b[8].target_uid",
        "$.rpi4b[9]",
        "$.rpi4b[10].target_uid",
        "$.rpi4b[10].memory",
        "$.rpi4b[10].engines",
    ]


@pytest.mark.parametrize(
    "text", ["", "[1", "[]", '{"rpi4b": [], "rpi4b": []}', "[" * 100_000, '{"a": NaN}']
)
def test_text_that_is_no_inventory_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Inventory.from_text(text)


def test_a_file_round_trips_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    first = default_embedded_inventory([0, 1], 8 * GIB, [ORT])
    path = tmp_path / "boards.json"
    path.write_text(json.dumps(first.to_json()))
    assert Inventory.from_file(path) == first
    with pytest.raises(ConfigError, match=r"nothing\.json"):
        Inventory.from_file(tmp_path / "nothing.json")


def test_two_cpus_carry_four_emulated_boards() -> None:
    inventory = default_embedded_inventory([4, 2, 7], 8 * GIB, [ORT])
    slices = {
        each.target_uid: (each.local.cpus, each.local.threads)
        for each in inventory.boards
        if each.local
    }
    assert slices == {
        "emufast-0001-0001": ((2, 4), 2),
        "emumid-0001-0001": ((2,), 1),
        "emumid-0001-0002": ((4,), 1),
        "emuslow-0001-0001": ((4,), 2),
    }
    shared = {each.target_uid: each.shares_with for each in inventory.boards}
    assert shared["emumid-0001-0001"] == {"emufast-0001-0001"}
    assert shared["emufast-0001-0001"] == set(slices) - {"emufast-0001-0001"}
    assert shared["emuslow-0001-0001"] == {"emufast-0001-0001", "emumid-0001-0002"}
    offline = inventory.board("rpi4b-0001-0001")
    assert offline is not None
    assert offline.local is None
    assert not offline.shares_with


def slow_board(uid: str, cpus: list[int], duty_cycle: float) -> dict[str, object]:
    local = {"cpus": cpus, "threads": 1, "duty_cycle": duty_cycle}
    engines = {"ort": {"version": "1", "supported_types": ["TYPE1"]}}
    memory = {"ram": GIB, "storage": GIB}
    return {"target_uid": uid, "memory": memory, "engines": engines, "local": local}


def test_boards_share_no_cpu_that_has_time_for_all_of_their_duty_cycles() -> None:
    boards = [
        slow_board("emuany-0001-0001", [0, 1], 0.5),
        slow_board("emuany-0001-0002", [0], 0.25),
        slow_board("emuany-0001-0003", [1], 0.75),
    ]
    inventory = Inventory.from_json({"emuany": boards})
    assert inventory.to_json()["emuany"][0]["local"] == {
        "cpus": [0, 1],
        "duty_cycle": 0.5,
    }
    first, second, third = inventory.boards
    assert first.shares_with == {third.target_uid}
    assert third.shares_with == {first.target_uid}
    assert not second.shares_with


@pytest.mark.parametrize("duty_cycle", [0, -0.5, 1.5])
def test_a_duty_cycle_is_a_share_of_the_time(duty_cycle: float) -> None:
    with pytest.raises(ConfigError, match="duty_cycle"):
        Inventory.from_json({"emuany": [slow_board("emuany-0001-0001", [0], duty_cycle)]})


def test_one_cpu_carries_fewer_boards_and_no_cpu_none() -> None:
    inventory = default_embedded_inventory([3], 2 * GIB, [ORT])
    assert [each.target_uid for each in inventory.boards if each.local] == [
        "emufast-0001-0001",
        "emumid-0001-0001",
        "emuslow-0001-0001",
    ]
    assert all(each.local.cpus == (3,) for each in inventory.boards if each.local)
    with pytest.raises(ConfigError):
        default_embedded_inventory([], GIB, [ORT])


def test_every_family_of_the_default_inventory_has_facts() -> None:
    facts = known_families()
    assert set(default_embedded_inventory([0, 1], GIB, [ORT]).families()) <= set(facts)
    assert {"rpi4b", "rpi5", "jetsonorinnano", "x86"} <= set(facts)
    for family in facts.values():
        assert FAMILY_PATTERN.fullmatch(family.family)
        assert family.name
        assert family.description
        assert family.emulated == family.family.startswith("emu")


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (512, 512),
        ("512", 512),
        ("4 GiB", 4 * GIB),
        ("4GiB", 4 * GIB),
        ("1.5 GB", 1_500_000_000),
        ("16 kB", 16_000),
        ("0", 0),
    ],
)
def test_sizes_are_bytes_or_text_with_a_unit(value: object, size: int) -> None:
    assert parse_size(value) == size


@pytest.mark.parametrize(
    "value", [-1, True, 1.5, None, "", "GiB", "4 gib", "-4 GiB", "9e9", "99999999 TiB", 1 << 63]
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"size|range"):
        parse_size(value)


def test_sizes_read_well() -> None:
    assert [size_text(each) for each in (0, 512, 4 * GIB, 3 * GIB // 2)] == [
        "0 B",
        "512 B",
        "4 GiB",
        "1.5 GiB",
    ]
