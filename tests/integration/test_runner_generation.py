"""GENAI by the runner as a process: a language model in, tokens per second out."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.sdk.model_folder import packed
from edgeyard.devices.metrics import measured_metrics, primary_metric
from edgeyard.scheduler.engine.reports import check_report
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkType
from tests.builders.language_models import (
    TINY_LLAMA,
    ends_at_once,
    folder_of,
    unchecked_archive,
    with_nan,
)
from tests.builders.networks import DEMO
from tests.builders.records import a_benchmark, a_description
from tests.builders.runner import UploadServer, make_task, upload_server
from tests.integration.test_runner import failure_of, report_of

GENAI: dict[str, Any] = {"engine": "ort-genai", "benchmark_type": "GENAI"}


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def _benchmark_of(report: Mapping[str, Any]) -> Benchmark:
    description = a_description(runtime="ort-genai", benchmark_type=BenchmarkType.GENAI)
    return a_benchmark(report["benchmark_id"], description=description)


def test_tokens_per_second_are_measured_and_uploaded(server: UploadServer, tmp_path: Path) -> None:
    parameters = {"prompt": "Once upon a time", "output_length": 32, "requests": 6, "threads": 1}
    task = make_task(tmp_path, server, packed(TINY_LLAMA), parameters=parameters, **GENAI)
    task.complete()
    report = report_of(server)
    check_report(report, _benchmark_of(report))
    found = primary_metric(report)
    assert found is not None
    assert (found.metric.name, found.metric.better) == ("decode_tokens_per_s", "higher")
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    names = {each.metric.name for each in measured_metrics(report)}
    assert {"prefill_tokens_per_s", "time_to_first_token_ms", "request_ms", "p50", "p99"} <= names
    assert {"first_request_ms", "load_cold_ms", "ram_peak", "ram_model"} <= names
    generation = report["generation"]
    assert (generation["prompt_length"], generation["output_length"]) == (16, 32)
    assert len(generation["output_tokens"]) == 32
    assert generation["requests_with_another_output"] == 0
    assert report["verdict"]["verdict"] in ("comparable", "suspect", "invalid")
    assert report["engine_facts"]["threads"] == 1
    numbers = np.load(io.BytesIO(server.files["generation.npz"]))
    token_ms = numbers["token_ms"]
    assert token_ms.shape == (generation["requests"], 31)
    assert report["inference_latency"]["p50"] == pytest.approx(np.median(token_ms))
    assert report["inference_latency"]["p99"] == pytest.approx(np.percentile(token_ms, 99))
    assert found.value == pytest.approx(np.median(numbers["decode_tokens_per_s"]))
    assert list(numbers["output_tokens"]) == generation["output_tokens"]


def test_requests_of_one_token_are_about_the_prompt(server: UploadServer, tmp_path: Path) -> None:
    parameters = {"preset": "pp512"}
    task = make_task(tmp_path, server, packed(TINY_LLAMA), parameters=parameters, **GENAI)
    task.complete()
    report = report_of(server)
    check_report(report, _benchmark_of(report))
    found = primary_metric(report)
    assert found is not None
    assert found.metric.name == "prefill_tokens_per_s"
    first = report["results"]["time_to_first_token_ms"]["value"]
    assert report["inference_latency"]["p50"] == pytest.approx(first)
    assert "decode_tokens_per_s" not in report["results"]


def test_a_slower_emulated_board_writes_fewer_tokens(server: UploadServer, tmp_path: Path) -> None:
    parameters = {"prompt_length": 8, "output_length": 64}
    rates = []
    for share in (1.0, 0.1):
        board = {"duty_cycle": share}
        folder = tmp_path / str(share)
        task = make_task(
            folder, server, packed(TINY_LLAMA), board=board, parameters=parameters, **GENAI
        )
        task.complete()
        found = primary_metric(report_of(server))
        assert found is not None
        rates.append(found.value)
    assert rates[1] < rates[0] / 3


@pytest.mark.parametrize(
    ("fault", "category", "said"),
    [
        ("nan", "user_model", "NaN"),
        ("ends", "user_model", "eos_token_id"),
        ("long", "user_input", "context"),
        ("another", "user_model", "genai_config.json"),
        ("engine", "engine_unsupported", "language models"),
    ],
)
def test_a_failure_says_whose_fault_it_was(
    server: UploadServer, tmp_path: Path, fault: str, category: str, said: str
) -> None:
    model: Path = {
        "nan": lambda: with_nan(tmp_path / "model"),
        "ends": lambda: unchecked_archive(folder_of(tmp_path / "model", ends_at_once)),
        "another": lambda: DEMO / "digits.onnx",
        "engine": lambda: DEMO / "digits.onnx",
    }.get(fault, lambda: packed(TINY_LLAMA))()
    changes: dict[str, Any] = {**GENAI, "parameters": {"prompt_length": 8, "output_length": 8}}
    if fault == "long":
        changes["parameters"] = {"prompt_length": 1024}
    if fault == "engine":
        changes["engine"] = "ort"
    found = failure_of(make_task(tmp_path / "task", server, model, **changes))
    assert found["category"] == category, found
    assert said in found["sentence"]
