"""Benchmarks, attempts and other rows of the store, with everything that doesn't matter set."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import zstandard

from edgeyard.scheduler.model.attempt import Attempt, AttemptState, Outcome, job_id_of
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    Binding,
    FileRole,
    JobDescription,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.cycle_record import OUTCOME, CycleRecord
from edgeyard.scheduler.model.decision import Explanation, Placement, Verdict
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import DownloadGrant, Report, ResultFile, UserFile
from edgeyard.scheduler.model.forecast import Forecast
from edgeyard.scheduler.model.history import PastRun, RunKind
from edgeyard.scheduler.model.recurring import ScheduleJob, ScheduleJobState, parent_id_of
from edgeyard.scheduler.model.submissions import Campaign, CronSchedule
from edgeyard.scheduler.model.users import ApiToken, Role, User

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_sha256(content: str = "content") -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def a_description(**changes: Any) -> JobDescription:
    given: dict[str, Any] = {
        "model": "mobilenet.onnx",
        "runtime": "ort",
        "benchmark_type": BenchmarkType.TYPE1,
        "target": "rpi4b",
    }
    return JobDescription(**(given | changes))


def a_benchmark_file(**changes: Any) -> BenchmarkFile:
    given: dict[str, Any] = {
        "role": FileRole.MODEL,
        "position": 0,
        "name": "mobilenet.onnx",
        "sha256": a_sha256("model"),
        "size_bytes": 14_000_000,
    }
    return BenchmarkFile(**(given | changes))


def a_benchmark(benchmark_id: str = "b-1", **changes: Any) -> Benchmark:
    given: dict[str, Any] = {
        "benchmark_id": benchmark_id,
        "user_id": "ada",
        "description": a_description(),
        "submit_time": NOW,
    }
    return Benchmark(**(given | changes))


def an_attempt(benchmark_id: str = "b-1", number: int = 1, **changes: Any) -> Attempt:
    given: dict[str, Any] = {
        "benchmark_id": benchmark_id,
        "number": number,
        "job_id": job_id_of(benchmark_id, number, "rpi4b", "ort", NOW),
        "state": AttemptState.PREPARED,
        "binding": Binding.STRICT,
        "priority": 50,
        "created_at": NOW,
        "family": "rpi4b",
    }
    return Attempt(**(given | changes))


def an_outcome(benchmark_id: str = "b-1", attempt: int = 1, **changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "benchmark_id": benchmark_id,
        "attempt": attempt,
        "target_uid": "rpi4b-0001-0001",
        "family": "rpi4b",
        "engine": "ort",
        "benchmark_type": "TYPE1",
        "model_sha256": a_sha256("model"),
        "wait_s": 1.5,
        "run_s": 20.0,
        "failure_category": None,
        "latency_p50_ms": 41.5,
        "verdict": "comparable",
        "ended_at": NOW,
    }
    return Outcome(**(given | changes))


def past_run(outcome: Outcome) -> PastRun:
    """What the history keeps of an outcome."""
    return PastRun(
        benchmark_id=outcome.benchmark_id,
        user_id=outcome.user_id,
        target_uid=outcome.target_uid or "",
        family=outcome.family,
        kind=RunKind(
            engine=outcome.engine,
            benchmark_type=BenchmarkType(outcome.benchmark_type),
            model_sha256=outcome.model_sha256,
            nb_inference=outcome.nb_inference,
            variant=outcome.variant,
        ),
        run_s=outcome.run_s,
        failure=outcome.failure_category,
        ended_at=outcome.ended_at,
        loading_s=outcome.loading_s,
        wait_s=outcome.wait_s,
        comparable=None if outcome.verdict is None else outcome.verdict == "comparable",
        seq=outcome.seq,
        replaces=outcome.replaces,
    )


def a_user(user_id: str = "ada", **changes: Any) -> User:
    given: dict[str, Any] = {"user_id": user_id, "role": Role.SUBMITTER, "created_at": NOW}
    return User(**(given | changes))


def a_token(token_id: str = "t-1", **changes: Any) -> ApiToken:
    given: dict[str, Any] = {
        "token_id": token_id,
        "user_id": "ada",
        "role": Role.SUBMITTER,
        "sha256": a_sha256(token_id),
        "label": "laptop",
        "created_at": NOW,
    }
    return ApiToken(**(given | changes))


def a_user_file(file_id: str = "f-1", **changes: Any) -> UserFile:
    given: dict[str, Any] = {
        "file_id": file_id,
        "user_id": "ada",
        "name": "mobilenet.onnx",
        "sha256": a_sha256("model"),
        "size_bytes": 14_000_000,
        "created_at": NOW,
    }
    return UserFile(**(given | changes))


def a_grant(name: str = "unguessable-mobilenet.onnx", **changes: Any) -> DownloadGrant:
    given: dict[str, Any] = {
        "name": name,
        "benchmark_id": "b-1",
        "attempt": 1,
        "filename": "mobilenet.onnx",
        "sha256": a_sha256("model"),
        "size_bytes": 14_000_000,
    }
    return DownloadGrant(**(given | changes))


def a_result(name: str = "latencies.npy", **changes: Any) -> ResultFile:
    given: dict[str, Any] = {
        "benchmark_id": "b-1",
        "attempt": 1,
        "name": name,
        "sha256": a_sha256(name),
        "size_bytes": 288,
        "received_at": NOW,
    }
    return ResultFile(**(given | changes))


def a_report(**changes: Any) -> Report:
    given: dict[str, Any] = {
        "benchmark_id": "b-1",
        "attempt": 1,
        "report": {"status": "ok", "inference_latency": {"p50": 41.5, "unit": "ms"}},
        "received_at": NOW,
    }
    return Report(**(given | changes))


def an_event(kind: str = "benchmark.submitted", **changes: Any) -> Event:
    given: dict[str, Any] = {"at": NOW, "kind": kind, "benchmark_id": "b-1", "user_id": "ada"}
    return Event(**(given | changes))


def a_campaign(campaign_id: str = "c-1", **changes: Any) -> Campaign:
    given: dict[str, Any] = {
        "campaign_id": campaign_id,
        "user_id": "ada",
        "name": "boards compared",
        "created_at": NOW,
    }
    return Campaign(**(given | changes))


def a_schedule(schedule_id: str = "s-1", **changes: Any) -> CronSchedule:
    given: dict[str, Any] = {
        "schedule_id": schedule_id,
        "user_id": "ada",
        "cron": "0 3 * * *",
        "description": {"model": "mobilenet.onnx"},
        "created_at": NOW,
        "next_fire": at(3600),
    }
    return CronSchedule(**(given | changes))


def a_schedule_job(version: int = 1, schedule_id: str = "s-1", **changes: Any) -> ScheduleJob:
    given: dict[str, Any] = {
        "job_id": parent_id_of(schedule_id, version),
        "schedule_id": schedule_id,
        "version": version,
        "token_sha256": "a" * 64,
        "fingerprint": "b" * 64,
        "hcl": "job {}",
        "created_at": NOW,
        "state": ScheduleJobState.ENDED,
    }
    return ScheduleJob(**(given | changes))


def an_override(target_uid: str = "rpi4b-0001-0001", **changes: Any) -> BoardOverride:
    given: dict[str, Any] = {
        "target_uid": target_uid,
        "drained": True,
        "reason": "new SD card",
        "by_user_id": "op",
        "at": NOW,
    }
    return BoardOverride(**(given | changes))


def a_record(*, outcome: bytes = b"o", **changes: Any) -> CycleRecord:
    """A cycle's; the outcome as it is before it is compressed."""
    parts = changes.pop("parts", (("policy", b"p"), ("snapshot", b"s")))
    return CycleRecord(
        **{
            "decided_at": NOW,
            "policy": "default/1",
            "parts": (*parts, (OUTCOME, zstandard.compress(outcome))),
            **changes,
        }
    )


def an_explanation(benchmark_id: str = "b-1", **changes: Any) -> Explanation:
    given: dict[str, Any] = {
        "benchmark_id": benchmark_id,
        "decided_at": NOW,
        "policy": "default/1",
        "rank": 3,
        "rank_reason": "older than those of the same priority",
        "priority": 57,
        "priority_parts": {"type": 40.0, "user": 12.5, "age": 4.5},
        "verdicts": (
            Verdict(
                target_uid="rpi4b-0001-0001",
                reason=WaitingReason.BOARD_BUSY,
                sentence="runs b-0",
            ),
            Verdict(
                target_uid="rpi4b-0001-0002",
                reason=None,
                sentence="",
                score=0.75,
                scores={"idle": 1.0, "history": None},
            ),
            Verdict(
                target_uid="rpi5-0001-0001",
                reason=WaitingReason.NO_SUCH_FAMILY,
                sentence="is a rpi5",
                never=True,
            ),
        ),
        "placement": Placement(
            benchmark_id=benchmark_id,
            target_uid="rpi4b-0001-0002",
            family="rpi4b",
            binding=Binding.FILTERED,
            priority=57,
            allowed_uids=("rpi4b-0001-0002",),
        ),
    }
    return Explanation(**(given | changes))


def a_forecast(
    made_at: datetime, low: datetime, middle: datetime, high: datetime, **changes: Any
) -> Forecast:
    """Of a start, and of an end that comes at once."""
    forecast = Forecast(
        benchmark_id="b-1",
        made_at=made_at,
        place=1,
        start=middle,
        start_low=low,
        start_high=high,
        finish=middle,
        finish_low=low,
        finish_high=high,
        deadline_chance=None,
        grounded=True,
    )
    return replace(forecast, **changes)


def a_waiting(reason: WaitingReason = WaitingReason.BOARD_BUSY) -> WaitReason:
    return WaitReason(reason=reason, sentence="all boards of family rpi4b are busy")
