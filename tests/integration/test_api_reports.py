"""Reports of other work than was asked for, which a host that errs or lies uploads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.answers import concurrency_report, load_report, report, soak_report
from tests.builders.api import Api, running


def changed_window(**changes: object) -> dict[str, Any]:
    """A soak whose third window is another one."""
    found: Any = soak_report()
    found["windows"][2] |= changes
    return dict(found)


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        yield found


@pytest.mark.parametrize(
    ("wanted", "stated", "pointer"),
    [
        ({}, {"benchmark_type": "TYPE2"}, "/benchmark_type"),
        ({}, {"engine": "tflite"}, "/engine"),
        ({}, {"inference_engine": "tflite"}, "/inference_engine"),
        ({}, {"soak": soak_report()}, "/soak"),
        ({}, {"concurrency": concurrency_report()}, "/concurrency"),
        ({}, {"load_test": load_report()}, "/load_test"),
        ({"soak": "10m"}, {}, "/soak"),
        ({"soak": "10m"}, {"soak": "steady"}, "/soak"),
        ({"concurrency": "1,2", "parameters": {"threads": 1}}, {}, "/concurrency"),
        ({"load": "single-stream"}, {}, "/load_test"),
        ({"load": "single-stream"}, {"load_test": load_report()}, "/load_test/kind"),
        (
            {"load": "server", "load_bound": "20ms"},
            {"load_test": load_report(), "primary_metric": "load_rate"},
            "/load_test/bound_ms",
        ),
        (
            {"concurrency": "1,2", "parameters": {"threads": 1}},
            {"concurrency": concurrency_report()},
            "/concurrency/levels/2/callers",
        ),
        ({}, {"energy": {"power_w": -5.0}}, "/energy/power_w"),
        (
            {},
            {"energy": {"per_inference": {"value": 1.0, "ci95": [-3.0, 2.0]}}},
            "/energy/per_inference/ci95/0",
        ),
        ({}, {"nb_inference": -5}, "/nb_inference"),
        ({}, {"runs_per_s": 1e300}, "/runs_per_s"),
        ({}, {"energy": {"power_w": 1e300}}, "/energy/power_w"),
        ({}, {"verdict": {"verdict": "excellent", "reasons": []}}, "/verdict/verdict"),
        ({}, {"verdict": "comparable"}, "/verdict"),
        ({}, {"inference": [{"verdict": {"verdict": "fine"}}]}, "/inference/0/verdict/verdict"),
        ({}, {"inference_latency": {"unit": "ms", "p50": 0.0}}, "/inference_latency/p50"),
        ({"soak": "10m"}, {"soak": soak_report() | {"window_s": 1e15}}, "/soak/window_s"),
        ({"soak": "10m"}, {"soak": soak_report() | {"overhead": 1e17}}, "/soak/overhead"),
        (
            {"soak": "10m"},
            {"soak": changed_window(temperature_c=1e9)},
            "/soak/windows/2/temperature_c",
        ),
        ({"soak": "10m"}, {"soak": changed_window(begin_s=0.0)}, "/soak/windows/2"),
        ({"soak": "4m"}, {"soak": soak_report(5)}, "/soak/windows/4"),
        (
            {"soak": "10m"},
            {"soak": soak_report() | {"steady": {"p50_ms": -5.0}}},
            "/soak/steady/p50_ms",
        ),
        ({"load": "single-stream"}, {"load_test": None, "soak": soak_report()}, "/load_test"),
    ],
)
def test_numbers_of_other_work_than_was_asked_for_are_refused(
    api: Api, wanted: dict[str, Any], stated: dict[str, Any], pointer: str
) -> None:
    benchmark_id = api.submit(**wanted)
    api.dispatched(benchmark_id)
    answer = api.uploaded(benchmark_id, {**report(benchmark_id=benchmark_id), **stated})
    assert answer.status_code == 422, answer.text
    assert pointer in [each["pointer"] for each in answer.json()["errors"]]


def test_a_clock_that_stood_still_is_a_number_of_an_invalid_result(api: Api) -> None:
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    still = {"unit": "ms", "p50": 0.0}
    verdict = {"verdict": "invalid", "reasons": [{"code": "clock", "sentence": "It stood still."}]}
    stated = {"inference_latency": still, "verdict": verdict}
    answer = api.uploaded(benchmark_id, {**report(benchmark_id=benchmark_id), **stated})
    assert answer.status_code == 201, answer.text


def test_a_run_that_failed_has_none_of_the_numbers_that_were_asked_for(api: Api) -> None:
    benchmark_id = api.submit(soak="10m")
    api.dispatched(benchmark_id)
    failure = {"category": "user_model", "sentence": "The engine can't load the model."}
    failed = {"schema": "edgeyard/result/v1", "status": "failed", "benchmark_id": benchmark_id}
    answer = api.uploaded(benchmark_id, {**failed, "failure": failure})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("wanted", "part", "rows", "stated", "changes"),
    [
        ({"soak": "10m"}, "soak", "windows", soak_report(), {}),
        (
            {"concurrency": "1,2,4", "parameters": {"threads": 1}},
            "concurrency",
            "levels",
            concurrency_report(),
            {"primary_metric": "runs_per_s", "runs_per_s": 180.0},
        ),
    ],
)
def test_parts_of_a_load_have_no_ends_of_an_interval_that_is_not_known(
    api: Api, wanted: dict[str, Any], part: str, rows: str, stated: Any, changes: dict[str, Any]
) -> None:
    benchmark_id = api.submit(**wanted)
    api.dispatched(benchmark_id)
    first, second, *_ = stated[rows]
    second |= {"p50_low_ms": second["p50_ms"] / 1000, "p50_high_ms": second["p50_ms"] * 1000}
    uploaded = {**report(benchmark_id=benchmark_id), part: stated, **changes}
    answer = api.uploaded(benchmark_id, uploaded)
    assert answer.status_code == 201, answer.text
    shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}/results").json()[part][rows]
    assert shown[0]["p50_low_ms"] == first["p50_low_ms"]
    assert (shown[1]["p50_low_ms"], shown[1]["p50_high_ms"]) == (None, None)


def test_trials_of_a_load_have_no_ends_of_an_interval_that_is_not_known(api: Api) -> None:
    benchmark_id = api.submit(load="server", load_bound="50ms")
    api.dispatched(benchmark_id)
    stated = load_report()
    trial = stated["trials"][0]
    trial |= {"p50_low_ms": trial["p50_ms"] / 1000, "p50_high_ms": trial["p50_ms"] * 1000}
    stated["alone"] |= {"p99_low_ms": 3 * stated["alone"]["p99_ms"]}  # it does not contain its p99
    changes = {"load_test": stated, "primary_metric": "load_rate"}
    answer = api.uploaded(benchmark_id, {**report(benchmark_id=benchmark_id), **changes})
    assert answer.status_code == 201, answer.text
    shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}/results").json()["load_test"]
    assert (shown["trials"][0]["p50_low_ms"], shown["trials"][0]["p50_high_ms"]) == (None, None)
    assert (shown["alone"]["p99_low_ms"], shown["alone"]["p99_high_ms"]) == (None, None)
    assert shown["result"]["p50_low_ms"] == stated["result"]["p50_low_ms"]
    assert shown["latency_ci95"] == stated["latency_ci95"]


@pytest.mark.parametrize("interval", [[0.015, 0.00375], [0.0151, 0.0226]])
def test_an_interval_that_does_not_contain_its_number_is_not_shown(
    api: Api, interval: list[float]
) -> None:
    benchmark_id = api.submit()
    api.dispatched(benchmark_id)
    uploaded: Any = report(benchmark_id=benchmark_id)
    uploaded["inference_latency"] |= {"p50": 0.0075, "p50_ci95": interval}
    assert api.uploaded(benchmark_id, uploaded).status_code == 201
    shown = api.as_().get(f"/v1/benchmarks/{benchmark_id}/results").json()["summary"]
    assert (shown["p50_low_ms"], shown["p50_high_ms"]) == (None, None)
    assert (shown["primary_low"], shown["primary_high"]) == (None, None)
