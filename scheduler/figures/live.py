"""The figures of simulations, of benchmarks that really ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.figures.metrics import RESAMPLES, JobOutcomes, RunMetrics, measure
from edgeyard.scheduler.model.ended import EndedBenchmark


def measure_policies(
    ended: Sequence[EndedBenchmark], *, resamples: int = RESAMPLES
) -> Mapping[str, RunMetrics]:
    """Return the metrics of each policy over the benchmarks that it decided.

    The policies ran at different times on different benchmarks, so that they can't be paired.
    The utilisation is unknown, because policies share the boards.

    Args:
        ended: In any order.
        resamples: Of the bootstrap.
    """
    by_policy: dict[str, list[EndedBenchmark]] = {}
    for each in sorted(ended, key=lambda one: (one.submit_time, one.benchmark_id)):
        by_policy.setdefault(each.policy, []).append(each)
    return {
        policy: measure(
            _outcomes(rows),
            failed_attempts=sum(each.failed_attempts for each in rows),
            resamples=resamples,
        )
        for policy, rows in sorted(by_policy.items())
    }


def _outcomes(rows: Sequence[EndedBenchmark]) -> JobOutcomes:
    origin = rows[0].submit_time

    def seconds(times: Sequence[datetime | None]) -> NDArray[np.float64]:
        return np.array(
            [float("nan") if each is None else (each - origin).total_seconds() for each in times]
        )

    end = seconds([each.ended_at for each in rows])
    return JobOutcomes(
        job=np.array([each.benchmark_id for each in rows], dtype=object),
        user=np.array([each.user_id for each in rows], dtype=object),
        submit_s=seconds([each.submit_time for each in rows]),
        start_s=seconds([each.started_at for each in rows]),
        end_s=end,
        status=np.array([each.status.value for each in rows], dtype=object),
        attempts=np.array([each.attempts for each in rows], dtype=np.int64),
        preemptions=np.array([each.preemptions for each in rows], dtype=np.int64),
        deadline_s=seconds([each.deadline for each in rows]),
        until_s=float(end.max()),
    )
