"""Results next to a baseline that somebody chose, and one model over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.api import Api, running
from tests.builders.measured import Generated, Measured, store_measured

RESULTS = (
    Measured(benchmark_id="base", p50_ms=10.0),
    Measured(benchmark_id="again", p50_ms=10.02),
    Measured(benchmark_id="slow", p50_ms=15.0, board="rpi4b-0001-0002"),
    Measured(benchmark_id="tflite", p50_ms=8.0, model="mobilenet.tflite", engine="tflite"),
    Measured(
        benchmark_id="larger",
        p50_ms=11.0,
        feeds={"input": {"shape": [8, 3, 224, 224], "dtype": "float32"}},
    ),
    Measured(benchmark_id="broken", p50_ms=90.0, verdict="invalid"),
    Measured(benchmark_id="of-bob", user_id="bob"),
    Generated(benchmark_id="lm", tokens_per_s=20.0),
    Generated(
        benchmark_id="lm-same",
        tokens_per_s=30.0,
        parameters={"preset": "pp512+tg128", "threads": 2},
    ),
    Generated(
        benchmark_id="lm-short",
        tokens_per_s=60.0,
        parameters={"prompt_length": 64, "output_length": 32},
    ),
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, each_database: None) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("comparison")) as found:
        store_measured(found.store, RESULTS)
        yield found


def compared(api: Api, *ids: str, who: str = "alice", **more: object) -> dict[str, Any]:
    answer = api.as_(who).post("/v1/results/comparison", json={"benchmark_ids": list(ids), **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_rows_are_relative_to_the_chosen_baseline_and_noise_is_told_apart(api: Api) -> None:
    found = compared(api, "slow", "base", "again", "broken", baseline="base")
    rows = {each["benchmark_id"]: each for each in found["items"]}
    assert list(rows) == ["slow", "base", "again", "broken"]
    assert found["baseline"] == "base"
    assert rows["slow"]["ratio"] == pytest.approx(1.5)
    assert rows["slow"]["ratio_low"] < 1.5 < rows["slow"]["ratio_high"]
    shown = {name: row["shown_to_differ"] for name, row in rows.items()}
    assert shown == {"slow": True, "base": False, "again": False, "broken": False}
    assert rows["base"]["ratio"] == 1
    assert rows["broken"]["ratio"] is None


def test_the_first_is_the_baseline_unless_one_is_chosen(api: Api) -> None:
    assert compared(api, "slow", "base")["baseline"] == "slow"


def test_a_model_in_two_formats_is_compared_and_says_in_what_it_differs(api: Api) -> None:
    found = compared(api, "base", "tflite")
    row = found["items"][1]
    assert row["ratio"] == pytest.approx(0.8)
    assert row["differs"] == ["model_sha256", "engine", "engine_version", "inputs"]
    assert found["differences"] == row["differs"]


def test_other_requests_to_a_language_model_have_no_ratio(api: Api) -> None:
    found = compared(api, "lm", "lm-same", "lm-short", baseline="lm")
    rows = {each["benchmark_id"]: each["ratio"] for each in found["items"]}
    assert rows == {"lm": 1, "lm-same": pytest.approx(1.5), "lm-short": None}


def test_other_inputs_of_the_same_model_have_no_ratio(api: Api) -> None:
    row = compared(api, "base", "larger")["items"][1]
    assert (row["differs"], row["ratio"], row["shown_to_differ"]) == (["inputs"], None, False)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"benchmark_ids": ["base", "of-bob"]}, 404),
        ({"benchmark_ids": ["base", "absent"]}, 404),
        ({"benchmark_ids": ["base"], "baseline": "slow"}, 422),
        ({"benchmark_ids": []}, 422),
        ({"benchmark_ids": ["base"], "campaign_id": "x"}, 422),
        ({"campaign_id": "absent"}, 404),
        ({"benchmark_ids": [f"id-{number}" for number in range(501)]}, 422),
    ],
)
def test_what_cannot_be_compared_is_refused(api: Api, body: dict[str, object], status: int) -> None:
    answer = api.as_().post("/v1/results/comparison", json=body)
    assert answer.status_code == status, answer.text
