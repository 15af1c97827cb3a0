"""Completed benchmarks with their reports, written to a store as if they had run."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from edgeyard.devices.metrics import TIME_TO_FIRST_TOKEN_MS, generation_primary
from edgeyard.devices.runner.generation_request import read_request
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    Failure,
    FileRole,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.files import Report
from edgeyard.scheduler.model.workload import work_of_series
from edgeyard.scheduler.store import SqlStore

DAY = datetime(2026, 11, 2, 8, tzinfo=UTC)
VERSIONS = {"ort": "1.23.1", "tflite": "2.1.0", "openvino": "2026.1"}
_NHWC = {"serving_default_x:0": {"shape": [1, 224, 224, 3], "dtype": "float32"}}
_NCHW = {"input": {"shape": [1, 3, 224, 224], "dtype": "float32"}}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A result; all that does not matter has a default."""

    benchmark_id: str
    model: str = "mobilenet.onnx"
    content: str = ""
    engine: str = "ort"
    version: str = ""
    board: str = "rpi4b-0001-0001"
    p50_ms: float = 12.3
    half_width: float = 0.01
    verdict: str = "comparable"
    kernel: str = "6.6.51"
    firmware: str = "2026-05-11"
    ended_at: datetime = DAY
    tags: tuple[str, ...] = ()
    user_id: str = "alice"
    campaign_id: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    feeds: Mapping[str, object] | None = None
    series: str = ""
    git_commit: str = ""
    link: str = ""
    benchmark_type: BenchmarkType = BenchmarkType.TYPE1

    def benchmark(self) -> Benchmark:
        """As it is stored at its end."""
        ended = Benchmark(
            benchmark_id=self.benchmark_id,
            user_id=self.user_id,
            description=JobDescription(
                model=self.model,
                runtime=self.engine,
                benchmark_type=self.benchmark_type,
                target=self.board.split("-")[0],
                tags=self.tags,
                parameters=self.parameters,
                series=self.series,
                git_commit=self.git_commit,
                link=self.link,
            ),
            submit_time=self.ended_at - timedelta(seconds=60),
            status=Status.COMPLETED,
            campaign_id=self.campaign_id,
            files=(
                BenchmarkFile(
                    role=FileRole.MODEL,
                    position=0,
                    name=self.model,
                    sha256=hashlib.sha256((self.content or self.model).encode()).hexdigest(),
                    size_bytes=1000,
                ),
            ),
            target_uid=self.board,
            started_at=self.ended_at - timedelta(seconds=20),
            ended_at=self.ended_at,
        )
        return replace(ended, work=work_of_series(ended, self.report().report))

    def report(self) -> Report:
        """Of its only attempt."""
        p50, width = self.p50_ms, self.half_width
        body: dict[str, object] = {
            "schema": "edgeyard/result/v1",
            "status": "ok",
            "benchmark_type": self.benchmark_type.value,
            "nb_inference": 200,
            "runs_per_s": 1000 / p50,
            "first_inference_ms": 3 * p50,
            "ram_peak": int(80e6 + 1e6 * p50),
            "inference_latency": {
                "unit": "ms",
                "mean": 1.02 * p50,
                "p50": p50,
                "p50_ci95": [p50 * (1 - width), p50 * (1 + width)],
                "p50_ci95_half_width": width,
                "p50_ci95_degrees": 20.0,
                "p90": 1.1 * p50,
                "p99": 1.3 * p50,
            },
            "engine_facts": {"version": self.version or VERSIONS.get(self.engine, "1.0")},
            "feeds": self.feeds or (_NHWC if self.engine == "tflite" else _NCHW),
            "runner": {"version": "0.9"},
            "conditions": {"other_load": 0.02, "temperature_c": {"before": 48.0, "after": 51.5}},
            "board": {
                "kernel": self.kernel,
                "firmware": self.firmware,
                "governor": "performance",
            },
            "verdict": {
                "verdict": self.verdict,
                "reasons": []
                if self.verdict == "comparable"
                else [{"code": "other_load", "sentence": "Other work had 40 % of the time."}],
            },
        }
        return Report(
            benchmark_id=self.benchmark_id, attempt=1, report=body, received_at=self.ended_at
        )


@dataclass(frozen=True, kw_only=True)
class Generated(Measured):
    """A result of a language model; its ``parameters`` are the request."""

    model: str = "llama-0.5b"
    engine: str = "ort-genai"
    tokens_per_s: float = 20.0
    benchmark_type: BenchmarkType = BenchmarkType.GENAI

    def report(self) -> Report:
        found = super().report()
        request = read_request(self.parameters)
        primary = generation_primary(request.output_length)
        low, high = 0.99 * self.tokens_per_s, 1.01 * self.tokens_per_s
        numbers = {
            primary: {"value": self.tokens_per_s, "ci95": [low, high], "ci95_degrees": 9.0},
            TIME_TO_FIRST_TOKEN_MS: {"value": 812.0, "ci95": [796.0, 828.0]},
        }
        stated = {
            each.name: {"unit": each.unit, "title": each.title, "better": each.better, **number}
            for each, number in numbers.items()
        }
        body = {
            **found.report,
            "runs_per_s": None,
            "first_inference_ms": None,
            "primary_metric": primary.name,
            "results": stated,
            "generation": {
                "preset": request.preset or None,
                "prompt_length": request.prompt_length,
                "output_length": request.output_length,
                "requests": request.requests,
            },
        }
        return replace(found, report=body)


def store_measured(store: SqlStore, measured: Sequence[Measured]) -> None:
    """Write them."""
    with store.write() as uow:
        for each in measured:
            uow.benchmarks.add(each.benchmark())
            uow.files.add_report(each.report())


def store_failed(store: SqlStore, failed: Sequence[Measured], failure: Failure) -> None:
    """Write runs that ended without a result."""
    with store.write() as uow:
        for each in failed:
            ended = each.benchmark()
            uow.benchmarks.add(replace(ended, status=Status.FAILED, failure=failure))


def many(
    count: int, boards: Sequence[str], user_id: str = "alice", since: datetime = DAY
) -> Iterator[Measured]:
    """Results of a campaign that ran some models by several engines on some boards, in turns."""
    chosen = random.Random(7)
    models = [
        *("mobilenet_v3", "resnet50", "squeezenet", "yolov8n", "efficientnet_b0", "tinybert"),
        *("whisper_tiny", "shufflenet_v2", "unet_small", "keyword_spotter"),
    ]
    speed = {"ort": 1.0, "tflite": 0.9, "openvino": 0.97}
    for number in range(count):
        board = boards[number // (3 * len(models)) % len(boards)]
        model, engine = models[number // 3 % len(models)], list(speed)[number % 3]
        base = 3.0 * 1.6 ** models.index(model) * (1 + boards.index(board) % 7 / 5)
        letters = "".join(chosen.choices("abcdefghijklmnopqrstuvwxyz234567", k=10))
        at = since + timedelta(seconds=47 * number)
        yield Measured(
            benchmark_id=f"{board.split('-')[0]}-{engine}-{at:%Y%m%d%H%M%S}-{letters}",
            model=f"{model}.{'tflite' if engine == 'tflite' else 'onnx'}",
            engine=engine,
            board=board,
            p50_ms=base * speed[engine] * chosen.uniform(0.98, 1.02),
            half_width=chosen.uniform(0.002, 0.03),
            verdict=chosen.choices(("comparable", "suspect", "invalid"), (90, 7, 3))[0],
            ended_at=at,
            user_id=user_id,
        )


def over_days(count: int, **same: object) -> list[Measured]:
    """One result a day of a model; content, engine, firmware and kernel change on the way."""
    chosen = random.Random(11)
    found = []
    for day in range(count):
        new_engine, new_kernel, new_model = (
            day >= count // 4,
            day >= count // 2,
            day >= 3 * count / 4,
        )
        p50 = 12.0 * (0.93 if new_engine else 1.0) * (1.08 if new_model else 1.0)
        made: dict[str, object] = {
            "benchmark_id": f"rpi4b-ort-{day:03}-nightly",
            "content": "second" if new_model else "first",
            "version": "1.23.1" if new_engine else "1.22.0",
            "kernel": "6.12.9" if new_kernel else "6.6.51",
            "firmware": "2026-10-02" if day >= 0.6 * count else "2026-05-11",
            "p50_ms": p50 * chosen.uniform(0.99, 1.01),
            "half_width": 0.01,
            "verdict": "invalid" if day == 5 else "suspect" if day == 9 else "comparable",
            "ended_at": DAY + timedelta(days=day),
        }
        found.append(Measured(**(made | same)))  # type: ignore[arg-type]
    return found
