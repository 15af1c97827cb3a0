"""The published schema and the reader agree on what a boards file is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from edgeyard.devices.inventory import Inventory, default_embedded_inventory
from edgeyard.devices.inventory_file import inventory_schema
from edgeyard.devices.model import BoardEngine
from edgeyard.errors import ConfigError

VALIDATOR = Draft202012Validator(inventory_schema())

WHOLE: dict[str, Any] = {
    "rpi4b": [
        {
            "target_uid": "rpi4b-0001-0001",
            "memory": {"ram": 4294967296, "storage": "32 GiB"},
            "engines": {
                "ort": {
                    "version": 1.2,
                    "supported_types": ["TYPE1", "TYPE2"],
                    "image": "registry/ort",
                    "devices": ["/dev/x"],
                    "volumes": [],
                    "env": {},
                    "auth": {"password": "secret"},
                }
            },
            "ssh": {"host": "10.0.0.2", "port": 2222, "user": "pi", "identity_file": "/k"},
            "hooks": [{"when": "before", "run": ["true"], "on": "board", "timeout_s": 5}],
        }
    ],
    "x86": [],
}


def reads(data: object) -> bool:
    try:
        Inventory.from_json(data)
    except ConfigError:
        return False
    return True


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(inventory_schema())


def test_what_the_reader_takes_and_writes_fits() -> None:
    assert reads(WHOLE)
    VALIDATOR.validate(WHOLE)
    VALIDATOR.validate(Inventory.from_json(WHOLE).to_json())
    ort = BoardEngine("ort", "1", frozenset({"TYPE1"}))
    VALIDATOR.validate(default_embedded_inventory([0, 1], 2**33, [ort]).to_json())
    VALIDATOR.validate({})


CHANGES: list[tuple[tuple[Any, ...], Any]] = [
    ((), []),
    (("Rpi",), []),
    (("rpi5",), {}),
    (("rpi4b", 0), {}),
    (("rpi4b", 0), None),
    (("rpi4b", 0, "target_uid"), "rpi4b-1"),
    (("rpi4b", 0, "target_uid"), None),
    (("rpi4b", 0, "memory"), None),
    (("rpi4b", 0, "memory"), {}),
    (("rpi4b", 0, "memory"), {"ram": 1}),
    (("rpi4b", 0, "engines", "ort"), {}),
    (("rpi4b", 0, "ssh"), {}),
    (("rpi4b", 0, "ssh"), []),
    (("rpi4b", 0, "memory", "ram"), -1),
    (("rpi4b", 0, "memory", "ram"), True),
    (("rpi4b", 0, "memory", "swap"), 1),
    (("rpi4b", 0, "engines"), []),
    (("rpi4b", 0, "engines", "ort", "supported_types"), ["type1"]),
    (("rpi4b", 0, "engines", "ort", "version"), []),
    (("rpi4b", 0, "engines", "ort", "colour"), "red"),
    (("rpi4b", 0, "engines", "8ort"), {"supported_types": []}),
    (("rpi4b", 0, "colour"), "red"),
    (("rpi4b", 0, "local"), {"cpus": [0]}),
    (("rpi4b", 0, "ssh", "port"), 0),
    (("rpi4b", 0, "ssh", "host"), ""),
    (("rpi4b", 0, "ssh", "identity_file"), "relative"),
    (("rpi4b", 0, "ssh", "known_hosts_file"), "/a b"),
    (("rpi4b", 0, "ssh", "known_hosts_file"), "/%h"),
    (("rpi4b", 0, "ssh", "python"), "-c"),
    (("rpi4b", 0, "ssh", "python"), "python3 -c"),
    (("rpi4b", 0, "ssh", "python"), "/a;b c"),
    (("rpi4b", 0, "ssh", "proxy_command"), "x"),
    (("rpi4b", 0, "hooks"), {}),
    (("rpi4b", 0, "hooks", 0, "when"), "during"),
    (("rpi4b", 0, "hooks", 0, "on"), "server"),
    (("rpi4b", 0, "hooks", 0, "run"), []),
    (("rpi4b", 0, "hooks", 0, "run"), "true"),
    (("rpi4b", 0, "hooks", 0, "run"), [""]),
    (("rpi4b", 0, "hooks", 0, "run"), ["true", 1]),
    (("rpi4b", 0, "hooks", 0, "timeout_s"), 0),
    (("rpi4b", 0, "hooks", 0, "timeout_s"), 3601),
    (("rpi4b", 0, "hooks", 0, "timeout_s"), True),
    (("rpi4b", 0, "hooks", 0, "shell"), True),
    (("rpi4b", 0, "ssh", "host"), "-oProxyCommand=x"),
    (("rpi4b", 0, "ssh", "user"), "a b"),
    (("rpi4b", 0, "sandbox"), {"paths": ["/a/../b"]}),
    (("rpi4b", 0, "sandbox"), {"mode": "never"}),
    (("rpi4b", 0, "local"), {"cpus": []}),
    (("rpi4b", 0, "memory", "ram"), 1.5),
]


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=lambda each: str(each)[:40])
def test_what_the_reader_refuses_does_not_fit(path: tuple[Any, ...], value: Any) -> None:
    data: Any = copy.deepcopy(WHOLE)
    if not path:
        data = value
    else:
        at = data
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
    assert not reads(data)
    assert not VALIDATOR.is_valid(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, value) for path, value in CHANGES if len(path) > 2],
    ids=lambda each: str(each)[:40],
)
def test_a_message_names_the_place_and_repeats_no_value(path: tuple[Any, ...], value: Any) -> None:
    """Values may hold the registry's password."""
    data = copy.deepcopy(WHOLE)
    at: Any = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = {"CANARY": "CANARY"}
    with pytest.raises(ConfigError) as caught:
        Inventory.from_json(data)
    place = "$" + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    assert all(problem.startswith(place) for problem in caught.value.problems)
    assert all("CANARY" not in problem.partition(": ")[2] for problem in caught.value.problems)


def test_a_local_board_fits_and_one_of_both_kinds_does_not() -> None:
    data = copy.deepcopy(WHOLE)
    del data["rpi4b"][0]["ssh"]
    data["rpi4b"][0]["local"] = {"cpus": [0], "threads": 2}
    assert reads(data)
    assert VALIDATOR.is_valid(data)
    data["rpi4b"][0]["local"]["threads"] = 0
    assert not reads(data)
    assert not VALIDATOR.is_valid(data)
