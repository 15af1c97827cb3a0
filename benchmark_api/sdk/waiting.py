"""Waiting for benchmarks to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from edgeyard.benchmark_api.sdk.benchmark import Benchmark, Benchmarks
from edgeyard.benchmark_api.sdk.errors import (
    BenchmarkCancelled,
    BenchmarkEnded,
    BenchmarkExpired,
    BenchmarkFailed,
    ServerNotReached,
    WaitTimeout,
)
from edgeyard.benchmark_api.sdk.progress import ProgressView

MIN_POLL_INTERVAL_S = 0.2
MAX_POLL_INTERVAL_S = 2.0
"""The interval grows while nothing changes, and is short again after a change."""
POLL_GROWTH = 1.3
MAX_OUTAGE_S = 600.0
"""A server that is being restarted or updated doesn't end the wait."""


Refresh = Callable[[Sequence[str], Mapping[str, Benchmark]], Benchmarks]
"""Returns the present states of benchmarks, in any order, from their ids and last known states."""


def wait_for_end(
    refresh: Refresh,
    benchmark_ids: Sequence[str],
    *,
    timeout_s: float | None,
    view: ProgressView,
    sleep: Callable[[float], None],
    monotonic_s: Callable[[], float],
) -> Benchmarks:
    """Poll until all benchmarks have ended, and return their last states.

    Args:
        refresh: Reads the present states.
        benchmark_ids: The benchmarks to wait for.
        timeout_s: Maximum wait, seconds; None: no limit.
        view: Shows the progress.
        sleep: Waits for a number of seconds.
        monotonic_s: Returns the time of a clock that only goes forward, seconds.

    Raises:
        WaitTimeout: With the last known states; the benchmarks go on.
        ServerNotReached: No answer for `MAX_OUTAGE_S`.
    """
    begin = monotonic_s()
    known: dict[str, Benchmark] = {}
    pause = MIN_POLL_INTERVAL_S
    lost_at: float | None = None
    with view:
        while True:
            live = [one for one in benchmark_ids if one not in known or not known[one].ended]
            try:
                seen = refresh(live, known)
            except ServerNotReached as error:
                lost_at = monotonic_s() if lost_at is None else lost_at
                if monotonic_s() - lost_at > MAX_OUTAGE_S:
                    raise
                view.note(f"no answer ({error.reason}); the benchmark goes on, trying again")
            else:
                lost_at = None
                changed = any(_differs(known.get(one.benchmark_id), one) for one in seen)
                pause = (
                    MIN_POLL_INTERVAL_S
                    if changed
                    else min(MAX_POLL_INTERVAL_S, pause * POLL_GROWTH)
                )
                known.update((one.benchmark_id, one) for one in seen)
                states = [known[one] for one in benchmark_ids if one in known]
                view.update(states)
                if len(states) == len(benchmark_ids) and all(one.ended for one in states):
                    return states
            left = None if timeout_s is None else timeout_s - (monotonic_s() - begin)
            if left is not None and left <= 0:
                states = [known[one] for one in benchmark_ids if one in known]
                raise WaitTimeout(_not_ended(benchmark_ids, known), timeout_s or 0.0, states)
            sleep(pause if left is None else min(pause, left))


def raise_for_end(benchmarks: Iterable[Benchmark]) -> None:
    """Raise for the first that ended without a result; failures go before cancellations."""
    states = list(benchmarks)
    errors = [error for one in states if (error := end_error(one, states)) is not None]
    for kind in (BenchmarkFailed, BenchmarkExpired, BenchmarkCancelled):
        for error in errors:
            if isinstance(error, kind):
                raise error


def end_error(benchmark: Benchmark, all_states: Sequence[Benchmark] = ()) -> BenchmarkEnded | None:
    """Return the exception for a benchmark that ended without a result; None for all others."""
    states = all_states or [benchmark]
    failure = benchmark.failure
    if benchmark.status == "failed":
        category = failure.category if failure else "unknown"
        sentence = failure.sentence if failure else "no reason was given"
        return BenchmarkFailed(benchmark.benchmark_id, category, sentence, states)
    if benchmark.status == "expired":
        return BenchmarkExpired(benchmark.benchmark_id, failure.sentence if failure else "", states)
    if benchmark.status == "cancelled":
        return BenchmarkCancelled(benchmark.benchmark_id, states)
    return None


def _differs(old: Benchmark | None, new: Benchmark) -> bool:
    return old is None or (old.status, old.phase) != (new.status, new.phase)


def _not_ended(benchmark_ids: Sequence[str], known: dict[str, Benchmark]) -> list[str]:
    return [one for one in benchmark_ids if one not in known or not known[one].ended]
