"""Reports whose primary metric is one that the engine declares: rows, repeats, exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from httpx import Response

from edgeyard.benchmark_api.figures.results import comparison_figures
from edgeyard.benchmark_api.sdk.comparison import compare
from tests.builders.api import Api, running


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload("model.onnx")
        yield found


def uploaded(api: Api, **changes: Any) -> tuple[str, Response]:
    """A run that has uploaded a report of these members; its benchmark's id, and the answer."""
    kind = changes.get("benchmark_type", "TYPE4")
    benchmark_id = api.submit() if kind == "TYPE1" else api.submitted_as(kind)
    api.dispatched(benchmark_id)
    report = {
        "schema": "edgeyard/result/v1",
        "status": "ok",
        "benchmark_id": benchmark_id,
        "benchmark_type": kind,
        "inference_latency": {"unit": "ms", "p50": 20.0, "p50_ci95": [19.0, 21.0]},
        "verdict": {"verdict": "comparable", "reasons": []},
        **changes,
    }
    return benchmark_id, api.uploaded(benchmark_id, report)


def decoded(api: Api, tokens_per_s: float) -> str:
    """A benchmark that ended with this primary metric, by itself known to 0.1 %; its id."""
    tokens = {
        "value": tokens_per_s,
        "unit": "1/s",
        "title": "decoded tokens per second",
        "better": "higher",
        "ci95": [0.999 * tokens_per_s, 1.001 * tokens_per_s],
        "ci95_degrees": 3.0,
    }
    benchmark_id, answer = uploaded(
        api, primary_metric="tokens_per_s", results={"tokens_per_s": tokens}
    )
    assert answer.status_code == 201, answer.text
    api.ended(benchmark_id)
    return benchmark_id


def test_rows_and_outcomes_have_the_metric_that_the_report_states(api: Api) -> None:
    ids = [decoded(api, value) for value in (50.0, 51.0, 49.0, 52.0, 48.0, 50.5)]
    rows = api.as_().get("/v1/results", params={"benchmark_id": ids}).json()["items"]
    first = rows[0]
    assert {name: first[name] for name in first if name.startswith("primary_")} == {
        "primary_metric": "tokens_per_s",
        "primary_title": "decoded tokens per second",
        "primary_unit": "1/s",
        "primary_better": "higher",
        "primary_value": 50.0,
        "primary_low": pytest.approx(49.95),
        "primary_high": pytest.approx(50.05),
        "primary_degrees": 3.0,
        "primary_repeat_low": first["primary_repeat_low"],
        "primary_repeat_high": first["primary_repeat_high"],
    }
    assert first["primary_repeat_low"] < 49.0 < 51.0 < first["primary_repeat_high"]
    assert first["p50_ms"] == 20.0, "the latency stays in its own columns"
    between = first["between_runs"]
    assert (between["source"], between["numbers"]) == ("board", 5), "of tokens, not of the p50"
    assert between["share"] > 0.01
    assert first["workload"]["metric"] == "tokens_per_s in 1/s, higher is better"
    assert [each["primary_value"] for each in compare(rows)][:2] == [52.0, 51.0]

    with api.services.store.read() as uow:
        outcome = uow.attempts.outcomes()[0]
    assert (outcome.primary_metric, outcome.primary_unit) == ("tokens_per_s", "1/s")
    assert (outcome.primary_better, outcome.primary_value) == ("higher", 50.0)
    assert outcome.latency_p50_ms == 20.0


def test_an_interval_whose_ends_are_not_known_has_none(api: Api) -> None:
    """The runner ends an interval at 1000 times the number: it knows no more of it."""
    tokens = {"value": 5954.56, "unit": "1/s", "better": "higher", "ci95_degrees": 1.0}
    latency = {"unit": "ms", "p50": 0.1, "p50_ci95": [0.0999, 99.95], "p50_ci95_degrees": 1.0}
    benchmark_id, answer = uploaded(
        api,
        primary_metric="tokens_per_s",
        results={"tokens_per_s": {**tokens, "ci95": [5.95456, 5954561.57]}},
        inference_latency=latency,
    )
    assert answer.status_code == 201, answer.text
    api.ended(benchmark_id)
    answered = api.as_().get(f"/v1/benchmarks/{benchmark_id}/results").json()
    (listed,) = api.as_().get("/v1/results", params={"benchmark_id": benchmark_id}).json()["items"]
    for row in (answered["summary"], listed):
        names = ("primary_low", "primary_high", "primary_repeat_low", "p50_low_ms", "p50_high_ms")
        assert {row[name] for name in names} == {None}
        assert row["primary_value"] == 5954.56
    (figure,) = comparison_figures([listed])
    assert figure.points[0].ends is None, "no whiskers"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"primary_metric": "joules"}, "is no metric that results can be compared by"),
        ({"primary_metric": 7}, "is no metric"),
        ({"primary_metric": "joules", "benchmark_type": "TYPE1"}, "is not the primary metric of"),
    ],
)
def test_a_report_whose_primary_metric_has_no_direction_is_refused(
    api: Api, changes: dict[str, Any], reason: str
) -> None:
    joules = {"joules": {"value": 3.5, "unit": "J"}}
    _, answer = uploaded(api, results=joules, **changes)
    assert answer.status_code == 422, answer.text
    assert "/primary_metric" in answer.text
    assert reason in answer.text


def test_rows_of_language_models_state_the_first_token_and_the_prefill(api: Api) -> None:
    rate = {"unit": "1/s", "better": "higher"}
    results = {
        "decode_tokens_per_s": {**rate, "value": 41.5},
        "prefill_tokens_per_s": {**rate, "value": 900.0},
        "time_to_first_token_ms": {"unit": "ms", "better": "lower", "value": 812.0},
    }
    stated = {"primary_metric": "decode_tokens_per_s", "results": results}
    found = []
    for kind in ("GENAI", "TYPE4"):
        benchmark_id, answer = uploaded(api, benchmark_type=kind, **stated)
        assert answer.status_code == 201, answer.text
        api.ended(benchmark_id)
        params = {"benchmark_id": benchmark_id}
        (row,) = api.as_().get("/v1/results", params=params).json()["items"]
        found.append((row["time_to_first_token_ms"], row["prefill_tokens_per_s"]))
    assert found == [(812.0, 900.0), (None, None)], "another type's are its own"


def test_a_row_states_the_kernel_that_its_report_states(api: Api) -> None:
    ids = []
    for board in ({"kernel": "6.6.31-v8+"}, {}):
        benchmark_id, answer = uploaded(api, board=board)
        assert answer.status_code == 201, answer.text
        api.ended(benchmark_id)
        ids.append(benchmark_id)
    rows = api.as_().get("/v1/results", params={"benchmark_id": ids}).json()["items"]
    assert [row["kernel"] for row in rows] == ["6.6.31-v8+", None]
