"""What the client raises; all of it hangs under `edgeyard.errors.EdgeyardError`.

::

    EdgeyardError
    ├── InvalidInput            a local file or value that can't be used (from `edgeyard.errors`)
    ├── ConfigError             the client's settings can't be used (from `edgeyard.errors`)
    └── ClientError
        ├── ServerNotReached    no answer: is it up, is the URL right?
        ├── ApiError            the server said no: status, code, detail, errors
        │   ├── AuthError           401, 403
        │   ├── NotFoundError       404
        │   ├── StateConflict       409
        │   └── ValidationFailed    400, 422: fix the fields it lists
        ├── BenchmarkEnded      it ended without a result
        │   ├── BenchmarkFailed
        │   ├── BenchmarkExpired
        │   └── BenchmarkCancelled
        ├── WaitTimeout         the wait is over, the benchmark goes on
        └── MissingExtra        an optional package is not installed
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeyard.errors import EdgeyardError, FieldError
from edgeyard.installing import extra_command


class ClientError(EdgeyardError):
    """Root of what the client raises of its own; never raised itself."""


class ServerNotReached(ClientError):
    """No answer from the server, after all tries."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(
            f"no answer from {url}: {reason}; is the server up and the URL right? "
            "(--url, EDGEYARD_URL or a profile set it; `edgeyard doctor` checks more)"
        )


class ApiError(ClientError):
    """The server refused the call.

    Attributes:
        status: HTTP status.
        code: Stable code of the problem, e.g. ``invalid_input``; "" if the answer had none.
        detail: The problem in words.
        errors: One for each field that is wrong.
        retry_after_s: When to try again; None where the server didn't say.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after_s = retry_after_s
        super().__init__(self._message())

    def _message(self) -> str:
        if not self.errors:
            return self.detail or f"the server answered {self.status}"
        lines = [str(error) for error in self.errors]
        return lines[0] if len(lines) == 1 else "\n".join(["several fields are wrong:", *lines])


class AuthError(ApiError):
    """No token, a bad one, or one that may not do this."""


class NotFoundError(ApiError):
    """No such thing, or not yours."""


class StateConflict(ApiError):
    """The thing is not in a state that allows this, or the key was used for something else."""


class ValidationFailed(ApiError):
    """The request is wrong; ``errors`` names the fields."""


class BenchmarkEnded(ClientError):
    """A benchmark that was waited for ended without a result.

    Attributes:
        benchmark_id: The first that ended so.
        benchmarks: The last known state of all that were waited for.
    """

    def __init__(self, benchmark_id: str, message: str, benchmarks: Sequence[object] = ()) -> None:
        self.benchmark_id = benchmark_id
        self.benchmarks = tuple(benchmarks)
        super().__init__(message)


class BenchmarkFailed(BenchmarkEnded):
    """It ran, or could not be run, and failed.

    Attributes:
        category: Failure category, e.g. ``user_model``.
        sentence: What happened, in words.
    """

    def __init__(
        self, benchmark_id: str, category: str, sentence: str, benchmarks: Sequence[object] = ()
    ) -> None:
        self.category = category
        self.sentence = sentence
        super().__init__(benchmark_id, f"{benchmark_id} failed: {category}: {sentence}", benchmarks)


class BenchmarkExpired(BenchmarkEnded):
    """Its deadline or its queue time-out passed."""

    def __init__(
        self, benchmark_id: str, sentence: str = "", benchmarks: Sequence[object] = ()
    ) -> None:
        why = sentence or "its deadline or queue time-out passed"
        super().__init__(benchmark_id, f"{benchmark_id} expired: {why}", benchmarks)


class BenchmarkCancelled(BenchmarkEnded):
    """Its owner or an operator ended it."""

    def __init__(self, benchmark_id: str, benchmarks: Sequence[object] = ()) -> None:
        super().__init__(benchmark_id, f"{benchmark_id} was cancelled", benchmarks)


class WaitTimeout(ClientError):
    """The time to wait is over; the benchmarks go on.

    Attributes:
        benchmark_ids: Those that have not ended.
        benchmarks: The last known state of all that were waited for.
    """

    def __init__(
        self, benchmark_ids: Sequence[str], timeout_s: float, benchmarks: Sequence[object] = ()
    ) -> None:
        self.benchmark_ids = tuple(benchmark_ids)
        self.timeout_s = timeout_s
        self.benchmarks = tuple(benchmarks)
        super().__init__(f"not ended after {timeout_s:g} s: {', '.join(self.benchmark_ids)}")


class MissingExtra(ClientError):
    """A package that only some need is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"{purpose} needs {package}, which is not installed: {extra_command(extra)}"
        )
