"""Comparing results: only equal work gets a ratio, with its interval."""

from typing import Any

import pytest

from edgeyard.benchmark_api.sdk.comparison import (
    WORKLOAD,
    compare,
    differences,
    model_labels,
    model_name,
)
from edgeyard.scheduler.model.workload import other_work
from tests.builders.answers import row, workload


def ratios(rows: list[dict[str, Any]]) -> dict[object, object]:
    return {one["benchmark_id"]: one["ratio"] for one in compare(rows)}


def test_ratios_are_to_the_fastest_valid_number_that_measured_the_same_work() -> None:
    rows = [
        row("a", p50_ms=10.0),
        row("b", p50_ms=25.0, verdict="suspect"),
        row("c", p50_ms=1.0, verdict="invalid"),
        row("d", p50_ms=4.0, workload=workload(model_sha256="f" * 64)),
        row("e", p50_ms=None),
    ]
    assert ratios(rows) == {"a": 1.0, "b": 2.5, "c": None, "d": None, "e": None}


OTHERS: dict[str, object] = {
    "model_sha256": "f" * 64,
    "dataset_sha256": ["e" * 64],
    "benchmark_type": "TYPE2",
    "engine": "tflite",
    "engine_version": "1.30.0",
    "parameters": {"threads": 2},
    "inputs": [{"name": "x", "shape": [32, 3, 224, 224], "dtype": "float32"}],
    "batch_size": 32,
    "training": {"epochs": 3},
    "load": "soak of 1800 s",
    "metric": "tokens_per_s in 1/s, higher is better",
}


@pytest.mark.parametrize("name", WORKLOAD)
def test_work_that_differs_in_any_part_gets_no_ratio(name: str) -> None:
    rows = [row("a"), row("b", p50_ms=24.6, workload=workload(**{name: OTHERS[name]}))]
    assert ratios(rows) == {"a": None, "b": None}
    assert differences(rows) == [name]
    assert len({one["group"] for one in compare(rows)}) == 2


def test_equal_files_of_other_names_are_one_model() -> None:
    rows = [row("a", model="model.onnx"), row("b", model="net.onnx", p50_ms=24.6)]
    assert ratios(rows) == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    "file",
    ["digits.onnx", "digits.tflite", "digits.xml.zip", "digits.ncnn.param.zip", "digits.onnx.zip"],
)
def test_files_of_one_model_in_the_forms_of_all_engines_have_one_name(file: str) -> None:
    assert model_name({"model": file}) == "digits"


def test_a_ratio_holds_one_where_the_difference_is_within_its_error() -> None:
    rows = [
        row("a", p50_ms=10.0, p50_low_ms=9.8, p50_high_ms=10.2),
        row("b", p50_ms=10.1, p50_low_ms=9.9, p50_high_ms=10.3),
        row("c", p50_ms=12.0, p50_low_ms=11.9, p50_high_ms=12.1),
        row("d", p50_ms=13.0, p50_low_ms=None, p50_high_ms=None),
    ]
    found = {one["benchmark_id"]: (one["ratio_low"], one["ratio_high"]) for one in compare(rows)}
    assert found["a"] == (None, None), "the fastest is what the others are compared with"
    low, high = found["b"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < 1 < high
    low, high = found["c"]
    assert isinstance(low, float)
    assert 1.15 < low < 1.2
    assert found["d"] == (None, None)


def test_models_of_one_name_are_labelled_by_what_sets_them_apart() -> None:
    rows = [
        row("a", model="model.onnx"),
        row("b", model="model.onnx", workload=workload(model_sha256="f" * 64)),
        row("c", model="other.onnx"),
    ]
    assert model_labels(rows) == ["model.onnx (01234567)", "model.onnx (ffffffff)", "other.onnx"]


@pytest.mark.parametrize(
    ("parameters", "differ"),
    [
        ({"preset": "tg128"}, []),
        ({"prompt_length": 1, "output_length": 128, "threads": 2, "requests": 30}, []),
        (
            {"prompt_length": 8, "output_length": 8},
            [
                "requests (a prompt of 1 token and 128 generated against a prompt of 8 tokens and "
                "8 generated)"
            ],
        ),
    ],
)
def test_other_requests_to_a_language_model_are_other_work(
    parameters: dict[str, object], differ: list[str]
) -> None:
    baseline = {"benchmark_type": "GENAI", "parameters": {"preset": "tg128", "threads": 1}}
    candidate = {"benchmark_type": "GENAI", "parameters": parameters}
    assert other_work(baseline, candidate) == differ
