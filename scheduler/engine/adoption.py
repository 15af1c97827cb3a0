"""Jobs that are ours although the database does not know them: an older backup was restored.

The end of a job's name is a function of its benchmark and the number of the attempt, so that a
benchmark which waits, as far as the database knows, finds the job that runs for it. The attempt is
made again, and dispatched again: the cluster has the job, and its token is taken over with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from functools import partial

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.attempt import Attempt, AttemptState, job_suffix_of
from edgeyard.scheduler.model.benchmark import Benchmark, Binding, Status
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork

logger = logging.getLogger(__name__)

MAX_LOST_NUMBERS = 10
"""Attempts that may have been made since the backup."""


class Adopter:
    """Judges stray jobs before each cycle places anything. One thread.

    Those that can't be adopted yet, because their user's account can't pay for instance, are tried
    again, so that no cycle starts a benchmark anew that runs already.
    """

    def __init__(
        self, store: Store, clock: Clock, max_run_s: float, tariff: Tariff | None = None
    ) -> None:
        """Nothing is read before `run`.

        Args:
            max_run_s: Bound on a run that states no ``user_time``, seconds.
            tariff: Factors on the rates by hour of the day; None: 1 at all hours.
        """
        self._store = store
        self._clock = clock
        self._max_run_s, self._tariff = max_run_s, tariff
        self._reported: frozenset[str] = frozenset()
        self._foreign: frozenset[str] = frozenset()  # of these, those that were not adopted

    def run(self, strays: Mapping[str, str | None]) -> tuple[str, ...]:
        """Adopt what is ours, and put what is not into the events.

        Args:
            strays: Board by job id; None where it holds none.

        Returns:
            Job ids of attempts that are prepared, for the dispatcher.
        """
        new = strays.keys() - self._reported
        left = {job_id: uid for job_id, uid in strays.items() if job_id in new | self._foreign}
        gone = sorted(self._foreign - strays.keys())
        adopted = self._store.transact(partial(self._adopt, left, new)) if left else ()
        if gone:
            self._store.transact(partial(self._report_end, gone))
        self._reported = frozenset(strays)
        self._foreign = (self._foreign | new) - set(adopted) - set(gone)
        return adopted

    def _report_end(self, job_ids: Sequence[str], uow: UnitOfWork) -> None:
        """Note that jobs that were reported hold no board any more: nothing is left to decide."""
        for job_id in job_ids:
            uow.log.append(
                Event(
                    at=self._clock.now(),
                    kind="cluster.stray_ended",
                    data={
                        "job_id": job_id,
                        "sentence": "the live job that the database did not know has ended; "
                        "it holds no board any more",
                    },
                )
            )

    def _adopt(
        self, strays: Mapping[str, str | None], new: Set[str], uow: UnitOfWork
    ) -> tuple[str, ...]:
        now = self._clock.now()
        live = uow.benchmarks.get_many(sorted(uow.benchmarks.live_versions()))
        pending = [each for each in live if each.status is Status.PENDING]
        last = uow.attempts.last_numbers([each.benchmark_id for each in pending])
        stray_by_suffix = {job_id.rpartition("-")[2]: job_id for job_id in strays}
        wanted: list[tuple[Benchmark, Attempt]] = []
        for benchmark in pending:
            description = benchmark.description
            first = last.get(benchmark.benchmark_id, 0) + 1
            for number in range(first, first + MAX_LOST_NUMBERS):
                job_id = stray_by_suffix.get(job_suffix_of(benchmark.benchmark_id, number))
                if job_id is not None:
                    target_uid = strays[job_id]
                    binding = description.binding or Binding.FILTERED
                    if target_uid is None and binding is Binding.STRICT:
                        binding = Binding.FILTERED  # which board was decided is not known
                    attempt = Attempt(
                        benchmark_id=benchmark.benchmark_id,
                        number=number,
                        job_id=job_id,
                        state=AttemptState.PREPARED,
                        binding=binding,
                        priority=benchmark.priority or 50,
                        created_at=now,
                        family=description.family,
                        target_uid=target_uid,
                        adopted=True,
                    )
                    wanted.append((benchmark, attempt))
        prepared = lifecycle.prepare(
            uow, wanted, now, max_run_s=self._max_run_s, tariff=self._tariff
        )
        ours = {attempt.job_id for _, attempt in prepared}
        for benchmark, attempt in prepared:
            uow.log.append(
                Event(
                    at=now,
                    kind="attempt.adopted",
                    benchmark_id=benchmark.benchmark_id,
                    user_id=benchmark.user_id,
                    data={"attempt": attempt.number, "job_id": attempt.job_id},
                )
            )
        for job_id in sorted(new - ours):
            uow.log.append(
                Event(
                    at=now,
                    kind="cluster.stray_job",
                    data={
                        "job_id": job_id,
                        "target_uid": strays[job_id],
                        "sentence": "the database does not know this live job; its board is "
                        "held until it ends or an operator stops it (edgeyard strays stop)",
                    },
                )
            )
        if new or ours:
            logger.warning(
                "live jobs that the database did not know",
                extra={
                    "event": "cluster.strays",
                    "adopted": len(ours),
                    "unknown": len(strays) - len(ours),
                },
            )
        return tuple(attempt.job_id for _, attempt in prepared)
