"""Benchmark types that engines declare: the names, the declarations, and where they are checked."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeyard.devices.attributes import attributes_of, board_from_attributes, meaning
from edgeyard.devices.benchmark_types import (
    MAX_DECLARATION_BYTES,
    MAX_DECLARED_TYPES,
    DeclaredType,
    declared_type,
    declared_type_of_text,
    simulated_types,
)
from edgeyard.devices.inventory import Inventory
from edgeyard.devices.metrics import P50, Metric
from edgeyard.devices.model import BoardEngine
from edgeyard.devices.runner.engine import DeclaredRun
from edgeyard.devices.runner.task import declared_latencies, declared_results
from edgeyard.errors import ConfigError, RunFailed
from edgeyard.plugins.testing import board
from edgeyard.scheduler.framework.policy import parse_policy, read_policy
from edgeyard.scheduler.model.benchmark import BenchmarkType
from tests.builders.declaring import code_of_page, engine_entry

ENTRY = engine_entry()
STATED = ENTRY["types"]["TYPE4"]
BANDWIDTH = declared_type("TYPE4", STATED)
ENGINE = BoardEngine("memory", "1", frozenset({"TYPE4"}), (BANDWIDTH,))
BOARD = replace(board("rpi4b-0001-0001"), engines=(ENGINE,), busy=False)


def test_the_engine_and_the_boards_file_of_the_page_declare_the_same() -> None:
    names: dict[str, Any] = {}
    exec(code_of_page("python"), names)
    assert names["BANDWIDTH"].as_json() == BANDWIDTH.as_json() == STATED
    assert names["MemoryEngine"].benchmark_types == (names["BANDWIDTH"],)


@pytest.mark.parametrize("name", ["TYPE1", "TYPE4", "TYPE99"])
def test_a_type_is_one_object_for_its_name(name: str) -> None:
    found = BenchmarkType(name)
    assert found is BenchmarkType(name)
    assert pickle.loads(pickle.dumps(found)) is found
    assert copy.deepcopy(found) is found
    assert msgspec.json.decode(msgspec.json.encode(found), type=BenchmarkType) is found
    assert (str(found), found.value) == (name, name)
    assert found.is_declared == (name != "TYPE1")


@pytest.mark.parametrize("name", ["", "TYPE", "TYPE0", "TYPE01", "TYPE100", "type4", "TYPE4\n", 4])
def test_other_names_are_no_types(name: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid BenchmarkType"):
        BenchmarkType(name)


def test_the_standard_types_are_those_that_iteration_returns() -> None:
    BenchmarkType("TYPE7")
    assert list(BenchmarkType) == ["TYPE1", "TYPE2", "TYPE3", "GENAI"]


def test_a_declaration_comes_back_from_the_attributes_of_its_board() -> None:
    published = attributes_of(BOARD)
    assert json.loads(str(published["engine.memory.type.TYPE4"])) == STATED
    found = board_from_attributes(published)
    assert found.engines == BOARD.engines
    assert "engine.memory.type.TYPE4" not in found.attributes
    assert meaning("engine.memory.type.TYPE4") == "declaration of TYPE4 of memory, as JSON"


def test_a_host_with_an_invalid_declaration_is_refused_with_the_reason() -> None:
    published = {**attributes_of(BOARD), "engine.memory.type.TYPE4": "{}"}
    with pytest.raises(ConfigError, match=r"engine\.memory\.type\.TYPE4: results is empty"):
        board_from_attributes(published)


def test_a_declaration_comes_back_from_the_boards_file() -> None:
    tree = {
        "rpi4b": [
            {
                "target_uid": "rpi4b-0001-0001",
                "memory": {"ram": "1 GiB", "storage": "1 GiB"},
                "engines": {"memory": ENTRY},
            }
        ]
    }
    inventory = Inventory.from_json(tree)
    assert inventory.boards[0].engines == (ENGINE,)
    assert Inventory.from_json(inventory.to_json()).boards == inventory.boards
    tree["rpi4b"][0]["engines"]["memory"]["types"] = {"TYPE2": STATED}  # type: ignore[index]
    with pytest.raises(ConfigError, match="TYPE2 is Edgeyard's own type"):
        Inventory.from_json(tree)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("TYPE3", {}, "Edgeyard's own"),
        ("SPEED", {}, "not a benchmark type"),
        ("TYPE4", {"results": {}}, "results is empty"),
        ("TYPE4", {"results": []}, "results is not a JSON object"),
        ("TYPE4", {"results": {"x": {"type": "float"}}}, "results/x/type"),
        ("TYPE4", {"results": {"X": {}}}, "'X' is not a lower-case letter"),
        ("TYPE4", {"results": {f"x{n}": {} for n in range(65)}}, "at most 64"),
        ("TYPE4", {"dataset": "some"}, "dataset is not one of none, optional, required"),
        ("TYPE4", {"results": {"x": {"better": "more"}}}, "results/x/better is not one of lower"),
        ("TYPE4", {"results": {"x": {"type": "string", "better": "lower"}}}, "for numbers only"),
        ("TYPE4", {"results": {"x": {"primary": True}}}, "results/x is primary, so better has to"),
        ("TYPE4", {"results": {"x": {"primary": 1}}}, "results/x/primary is neither"),
        ("TYPE4", {"results": {"p50": {}}}, "results/p50 has the name of a metric"),
        (
            "TYPE4",
            {"results": {name: {"better": "lower", "primary": True} for name in "xy"}},
            "results: x and y are primary, and at most one can be",
        ),
        ("TYPE4", {"unknown": 1}, "unknown field 'unknown'"),
        ("TYPE4", {"description": "a\nb"}, "description is not text"),
        ("TYPE4", {"description": 1}, "description is not text"),
        ("TYPE4", {"parameters": {"n": {}}}, "parameters/n/type"),
        ("TYPE4", {"parameters": {"n": {"type": "integer", "choices": ["a"]}}}, "choices"),
        ("TYPE4", {"parameters": {"n": {"type": "string", "minimum": 1}}}, "for numbers only"),
        ("TYPE4", {"parameters": {"n": {"type": "number", "minimum": "1"}}}, "is not a number"),
        (
            "TYPE4",
            {"parameters": {"n": {"type": "number", "minimum": 2, "maximum": 1}}},
            "minimum is above maximum",
        ),
        ("TYPE4", {"parameters": {"n": {"type": "number", "required": 1}}}, "required"),
    ],
)
def test_an_invalid_declaration_is_refused_with_its_place(
    name: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        declared_type(name, {**STATED, **changes})


@pytest.mark.parametrize("text", ["", "[]", "[" * 9000, "x" * (MAX_DECLARATION_BYTES + 1)])
def test_a_text_that_declares_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        declared_type_of_text("TYPE4", text)


def declared(count: int, description: str = "") -> dict[str, Any]:
    tree = {**STATED, "description": description}
    return {f"TYPE{number}": tree for number in range(4, 4 + count)}


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (declared(MAX_DECLARED_TYPES), None),
        (declared(MAX_DECLARED_TYPES + 1), "17 types are declared, .* at most 16: leave some out"),
        (declared(96), "96 types are declared"),
        (
            {
                "TYPE4": (
                    large := {
                        **STATED,
                        "results": {f"x{n}": {"description": "y" * 200} for n in range(60)},
                    }
                ),
                "TYPE5": large,
                "TYPE6": large,
            },
            r"have \d+ bytes together, .* at most 32768: shorten descriptions or leave types out",
        ),
    ],
)
def test_an_engine_declares_few_and_short_types(
    types: dict[str, object], message: str | None
) -> None:
    """In the boards file of the server, and in what a host publishes."""
    stated = {**ENTRY, "types": types}
    tree = {
        "rpi4b": [
            {
                "target_uid": "rpi4b-0001-0001",
                "memory": {"ram": "1 GiB", "storage": "1 GiB"},
                "engines": {"memory": stated},
            }
        ]
    }
    every = tuple(declared_type(name, each) for name, each in types.items())
    engine = BoardEngine("memory", "1", frozenset(types), every)
    published = attributes_of(replace(BOARD, engines=(engine,)))
    if message is None:
        assert Inventory.from_json(tree).boards[0].engines[0].declared_types
        assert board_from_attributes(published).engines[0].undeclared_types == frozenset()
    else:
        with pytest.raises(ConfigError, match=rf"types: .*{message}"):
            Inventory.from_json(tree)
        with pytest.raises(ConfigError, match=rf"engine\.memory\.type: .*{message}"):
            board_from_attributes(published)


def test_a_listed_type_that_is_neither_standard_nor_declared_is_undeclared() -> None:
    listed = frozenset({"TYPE1", "TYPE4", "TYPE5", "no type"})
    engine = BoardEngine("memory", "1", listed, (BANDWIDTH,))
    assert engine.undeclared_types == {"TYPE5", "no type"}


def test_a_board_of_tests_declares_the_types_of_any_iterable() -> None:
    (engine,) = board("rpi4b-0001-0001", engines={"ort": iter(["TYPE1", "TYPE4"])}).engines
    assert engine.supported_types == {"TYPE1", "TYPE4"}
    assert engine.undeclared_types == frozenset()


def test_simulated_engines_declare_all_types_that_engines_may() -> None:
    found = simulated_types(["TYPE1", "TYPE10", "TYPE4", "TYPE100", "fast"])
    assert [each.name for each in found] == ["TYPE10", "TYPE4"]
    assert [declared_type(each.name, each.as_json()) for each in found] == list(found)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"mebibytes": 1}, []),
        ({"mebibytes": 64, "access": "fill"}, []),
        ({}, ["mebibytes"]),
        ({"mebibytes": 0}, ["mebibytes"]),
        ({"mebibytes": 65}, ["mebibytes"]),
        ({"mebibytes": 1.0}, ["mebibytes"]),
        ({"mebibytes": True}, ["mebibytes"]),
        ({"mebibytes": 1, "access": "read"}, ["access"]),
        ({"mebibytes": 1, "speed": 1}, ["speed"]),
    ],
)
def test_parameters_are_checked_by_the_declaration(
    values: dict[str, object], names: list[str]
) -> None:
    assert [each.name for each in BANDWIDTH.parameter_problems(values)] == names


def test_results_carry_their_units_and_are_what_is_declared() -> None:
    found = BANDWIDTH.checked_results({"bandwidth": 2.5, "access": "copy"})
    bandwidth = {"unit": "MiB/s", "title": "memory bandwidth", "better": "higher"}
    assert found == {"bandwidth": {"value": 2.5, **bandwidth}, "access": {"value": "copy"}}
    assert BANDWIDTH.primary == Metric("bandwidth", "", "MiB/s", "higher")
    assert declared_type("TYPE4", {"results": {"x": {}}}).primary == P50
    for values, message in (
        ({"bandwidth": 2.5}, "access is missing"),
        ({"bandwidth": float("nan"), "access": "copy"}, "bandwidth is not of type number"),
        ({"bandwidth": "2.5", "access": "copy"}, "bandwidth is not of type number"),
        ({"bandwidth": 2.5, "access": "copy", "more": 1}, "'more' is not declared"),
        ({"bandwidth": 2.5, "access": "x" * 5000}, "access is not of type string"),
    ):
        with pytest.raises(ValueError, match=message):
            BANDWIDTH.checked_results(values)


def test_a_type_without_points_in_the_policy_has_the_fewest_of_those_with() -> None:
    text = read_policy("default")
    assert parse_policy(text).priority.type_points(BenchmarkType("TYPE4")) == 50
    stated = text.replace("TYPE3 = 50", "TYPE3 = 50\nTYPE4 = 90")
    assert parse_policy(stated).priority.type_points(BenchmarkType("TYPE4")) == 90
    preempting = stated.replace("TYPE2 = [", 'TYPE4 = ["TYPE1"]\nTYPE2 = [')
    assert parse_policy(preempting).preempting_types[BenchmarkType("TYPE4")] == {"TYPE1"}
    with pytest.raises(ConfigError, match="'TYPE100' is not a type"):
        parse_policy(preempting.replace('["TYPE1"]', '["TYPE100"]'))


def test_a_minimum_of_zero_is_stated() -> None:
    tree = {
        "parameters": {"seconds": {"type": "number", "minimum": 0.0, "maximum": 1.0}},
        "results": {"joules": {"type": "number"}},
    }
    found = declared_type("TYPE9", tree)
    assert found.as_json() == tree
    assert isinstance(found, DeclaredType)
    assert [each.name for each in found.parameter_problems({"seconds": -1})] == ["seconds"]


@pytest.mark.parametrize(
    "times", [[], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")], [[1.0]], [1.0, "x"], None]
)
def test_times_that_are_none_fail_the_run_and_name_the_engine(times: Any) -> None:
    with pytest.raises(RunFailed, match="engine memory measured no times of TYPE4") as failed:
        declared_latencies(times, "memory", "TYPE4")
    assert failed.value.category == "engine_unsupported"


def test_times_may_be_a_list_or_an_array() -> None:
    for times in ([1, 2.5], np.array([1.0, 2.5], np.float32)):
        assert declared_latencies(times, "memory", "TYPE4").tolist() == [1.0, 2.5]  # type: ignore[arg-type]


def test_a_value_of_a_series_is_its_median_with_an_interval() -> None:
    run = DeclaredRun({"access": "copy"}, [1.0], series={"bandwidth": range(1, 22)})
    results, series = declared_results(BANDWIDTH, run)
    bandwidth: Any = results["bandwidth"]
    assert bandwidth["value"] == 11.0
    low, high = bandwidth["ci95"]
    assert low < 11.0 < high
    assert bandwidth["ci95_degrees"] >= 1
    assert series["bandwidth"].tolist() == list(range(1, 22))
    few, _ = declared_results(BANDWIDTH, replace(run, series={"bandwidth": [2.0]}))
    assert "ci95" not in few["bandwidth"], "one number has no interval"


@pytest.mark.parametrize(
    ("values", "series", "message"),
    [
        ({"access": "copy", "bandwidth": 1.0}, {"bandwidth": [1.0]}, "given twice"),
        ({}, {"bandwidth": [1.0], "access": [1.0]}, "'access' is not declared as a value of type"),
        ({"access": "copy"}, {"bandwidth": []}, "not one or more finite numbers"),
        ({"access": "copy"}, {"bandwidth": [float("nan")]}, "not one or more finite numbers"),
        ({"access": "copy"}, {}, "bandwidth is missing"),
    ],
)
def test_a_series_that_the_type_does_not_declare_is_refused(
    values: dict[str, Any], series: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        declared_results(BANDWIDTH, DeclaredRun(values, [1.0], series=series))
