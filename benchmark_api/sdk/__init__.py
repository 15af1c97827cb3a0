"""The client for programs: ``from edgeyard import Client``. Needs httpx only."""

from edgeyard.benchmark_api.sdk.benchmark import AttemptState, Benchmark
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
from edgeyard.benchmark_api.sdk.explanation import BoardVerdict, Explanation
from edgeyard.benchmark_api.sdk.fields import Reason
from edgeyard.benchmark_api.sdk.results import Latency, ResultFile, Results, Trust
from edgeyard.benchmark_api.sdk.submission import UploadedFile

__all__ = [
    "ApiError",
    "AttemptState",
    "AuthError",
    "Benchmark",
    "BenchmarkCancelled",
    "BenchmarkEnded",
    "BenchmarkExpired",
    "BenchmarkFailed",
    "BoardVerdict",
    "Client",
    "ClientError",
    "Explanation",
    "Latency",
    "MissingExtra",
    "NotFoundError",
    "Reason",
    "ResultFile",
    "Results",
    "ServerNotReached",
    "StateConflict",
    "Trust",
    "UploadedFile",
    "ValidationFailed",
    "WaitTimeout",
]
