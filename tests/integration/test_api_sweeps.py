"""Matrices over parameters and the fronts of their results, by the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.measured import Measured, store_measured
from tests.builders.runner import linear_model

SWEPT = (
    Measured(benchmark_id="one", p50_ms=10.0, parameters={"threads": 1}),
    Measured(benchmark_id="two", p50_ms=6.0, parameters={"threads": 2}),
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, each_database: None) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("sweeps")) as found:
        store_measured(found.store, SWEPT)
        found.upload("open.onnx", linear_model(np.ones((4, 2))))
        found.upload("fixed.onnx", linear_model(np.ones((4, 2)), 1))
        yield found


def sweep(api: Api, values: Any, matrix: Any = (), /, **common: Any) -> Any:
    body = {
        "matrix": {**dict(matrix), "parameters": values},
        "description": description(**{"model": "open.onnx", **common}),
    }
    return api.as_().post("/v1/campaigns", json=body)


def problems(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 422, answer.text
    return [(each["pointer"], each["reason"]) for each in answer.json()["errors"]]


def test_every_combination_of_values_is_a_benchmark(api: Api) -> None:
    shared = {"graph_optimization": "basic"}
    answer = sweep(api, {"threads": [1, 2], "batch_size": [1, 8]}, parameters=shared)
    assert answer.status_code == 202, answer.text
    ids = [each["benchmark_id"] for each in answer.json()["benchmarks"]]
    with api.store.read() as uow:
        found = [uow.benchmarks.get(each) for each in ids]
    assert [dict(each.description.parameters) for each in found] == [
        {"graph_optimization": "basic", "threads": threads, "batch_size": rows}
        for threads in (1, 2)
        for rows in (1, 8)
    ]


def test_a_value_that_can_not_be_is_named_with_its_parameter(api: Api) -> None:
    ((pointer, reason),) = problems(sweep(api, {"threads": [0, 1]}))
    assert (pointer, reason) == ("/matrix/parameters/threads", "0: has a wrong value")
    ((pointer, reason),) = problems(sweep(api, {"batch_size": [1, 8]}, model="fixed.onnx"))
    assert pointer == "/matrix/parameters/batch_size"
    assert reason.startswith("8: the model has 1 rows in input 'x'")


def test_a_pair_that_can_not_be_is_left_out_by_name(api: Api) -> None:
    matrix = {"model": ["open.onnx", "fixed.onnx"]}
    answer = sweep(api, {"batch_size": [1, 8]}, matrix, model=...)
    assert answer.status_code == 202, answer.text
    (left_out,) = answer.json()["left_out"]
    assert left_out["values"] == {"model": "fixed.onnx", "parameters/batch_size": "8"}
    (warning,) = answer.json()["warnings"]
    assert warning.startswith("left out fixed.onnx × batch_size=8: ")


@pytest.mark.parametrize(
    ("parameters", "common", "pointer"),
    [
        ({}, {}, "/matrix/parameters"),
        ({"threads": []}, {}, "/matrix/parameters/threads"),
        ({"threads": 1}, {}, "/matrix/parameters/threads"),
        ({"threads": [1, 1]}, {}, "/matrix/parameters/threads"),
        ({"threads": [1, 2]}, {"parameters": {"threads": 4}}, "/description/parameters/threads"),
        ({"threads": [1, 2]}, {"parameters": [1]}, "/description/parameters"),
        ({"threads": list(range(1, 5000))}, {}, "/matrix"),
    ],
)
def test_a_sweep_that_says_nothing_or_two_things_is_refused(
    api: Api, parameters: Any, common: Any, pointer: str
) -> None:
    assert [each for each, _ in problems(sweep(api, parameters, **common))] == [pointer]


def test_a_comparison_states_the_front_of_a_sweep(api: Api) -> None:
    body = {"benchmark_ids": ["one", "two"]}
    found = api.as_().post("/v1/results/comparison", json=body).json()
    assert {each["benchmark_id"]: each["on_front"] for each in found["items"]} == {
        "one": False,
        "two": True,
    }
    (front,) = found["fronts"]
    assert (front["benchmark_ids"], front["others"]) == (["two"], ["one"])
    assert front["metrics"][0] == {"name": "p50", "unit": "ms", "better": "lower"}
