"""The vocabulary of device attributes, and how constraints compare."""

import pytest

from edgeyard.devices.attributes import attributes_of, board_from_attributes
from edgeyard.errors import ConfigError
from edgeyard.plugins.testing import GIB, board


def test_a_board_survives_the_way_through_its_attributes() -> None:
    first = board(
        "rpi4b-0001-0001",
        engines={"ort": ["TYPE1", "TYPE2"], "tflite": []},
        attributes={"camera": True, "rack": "b"},
        progress=40.0,
        busy=True,
    )
    assert board_from_attributes(attributes_of(first)) == first


def test_further_attributes_never_hide_the_vocabulary() -> None:
    liar = board("rpi4b-0001-0001", ram_bytes=GIB, attributes={"memory.ram": 64 * GIB})
    assert attributes_of(liar)["memory.ram"] == GIB


def test_a_board_that_does_not_tell_its_progress_publishes_none() -> None:
    quiet = board("rpi4b-0001-0001", progress=None, attributes={"dynamic.progress": 0})
    assert "dynamic.progress" not in attributes_of(quiet)


def test_all_mistakes_of_a_host_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        board_from_attributes(
            {
                "family": "rpi4b",
                "target_uid": "rpi5-0001-0001",
                "engines": "ort,1",
                "memory.ram": -1,
            }
        )
    problems = " ".join(caught.value.problems)
    for part in ("not of family", "'1'", "memory.ram", "memory.storage"):
        assert part in problems
