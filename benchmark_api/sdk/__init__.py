"""The client for programs: ``from edgeyard import Client``. Needs httpx and msgspec."""

from edgeyard.benchmark_api.schemas.answers import (
    Attempt,
    Board,
    CampaignSummary,
    DryRun,
    Event,
    Explanation,
    Failure,
    Forecast,
    QueueItem,
    Reason,
    ResultFile,
    ResultRow,
    Verdict,
    as_json,
)
from edgeyard.benchmark_api.schemas.job_fields import JobChanges, JobFields
from edgeyard.benchmark_api.sdk.benchmark import Benchmark
from edgeyard.benchmark_api.sdk.client import Client
from edgeyard.benchmark_api.sdk.errors import (
    ApiError,
    AuthError,
    BenchmarkCancelled,
    BenchmarkEnded,
    BenchmarkExpired,
    BenchmarkFailed,
    ClientError,
    MissingExtra,
    NotFoundError,
    ServerNotReached,
    StateConflict,
    ValidationFailed,
    WaitTimeout,
)
from edgeyard.benchmark_api.sdk.gate import Check, Decision
from edgeyard.benchmark_api.sdk.inference import (
    Evaluation,
    Inference,
    OutputComparison,
    SetOutputs,
)
from edgeyard.benchmark_api.sdk.results import Latency, Results, Trust
from edgeyard.benchmark_api.sdk.submission import Filters, UploadedFile
from edgeyard.devices.metrics import MeasuredMetric, Metric
from edgeyard.scheduler.model.checks import Pair

__all__ = [
    "ApiError",
    "Attempt",
    "AuthError",
    "Benchmark",
    "BenchmarkCancelled",
    "BenchmarkEnded",
    "BenchmarkExpired",
    "BenchmarkFailed",
    "Board",
    "CampaignSummary",
    "Check",
    "Client",
    "ClientError",
    "Decision",
    "DryRun",
    "Evaluation",
    "Event",
    "Explanation",
    "Failure",
    "Filters",
    "Forecast",
    "Inference",
    "JobChanges",
    "JobFields",
    "Latency",
    "MeasuredMetric",
    "Metric",
    "MissingExtra",
    "NotFoundError",
    "OutputComparison",
    "Pair",
    "QueueItem",
    "Reason",
    "ResultFile",
    "ResultRow",
    "Results",
    "ServerNotReached",
    "SetOutputs",
    "StateConflict",
    "Trust",
    "UploadedFile",
    "ValidationFailed",
    "Verdict",
    "WaitTimeout",
    "as_json",
]
