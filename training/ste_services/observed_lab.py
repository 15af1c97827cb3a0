"""A lab as it is observed from outside: by its cluster and a Prometheus, without a server."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from edgeyard.benchmark_api.live_twin import Metrics, MetricsSource, live_data
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ClusterUnreachable
from edgeyard.scheduler.clock import SharedClock, SteadyClock, boot_id
from edgeyard.scheduler.framework.policy import parse_policy, read_policy
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun, RunKind
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.ports import Clock, JobRun
from edgeyard.scheduler.twin.document import PLAIN_ENGINE, PLAIN_FAMILY, TwinData
from edgeyard.scheduler.twin.twin import Twin, UnknownDevices
from edgeyard.training.lab_view import ClusterView, ObservedJob
from edgeyard.training.nomad_view import NomadView

logger = logging.getLogger(__name__)

REFRESH_S = 5.0
"""Interval from the end of a refresh to the next one."""

_JOIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHealth:
    """How well the lab is known.

    Attributes:
        status: ``ok``; ``stale``: what is known is older than it may be; ``degraded``: the cluster
            answers, but Prometheus does not.
        age_s: Age of what is known of the cluster; None: it has not answered yet.
        cluster_problem: Why the cluster did not answer last time; "": it did.
        metrics_problem: Why Prometheus did not answer last time; "": it did, or there is none.
    """

    status: str
    age_s: float | None
    cluster_problem: str
    metrics_problem: str


class ObservedLab:
    """Reads a cluster and a Prometheus again and again on a thread of its own. Thread-safe.

    What was known stays while they do not answer; its age and the problem are shown with it.
    """

    def __init__(
        self,
        cluster: ClusterView,
        twin: Twin,
        clock: Clock,
        *,
        name: str,
        metrics: MetricsSource | None,
        max_age_s: float,
        max_run_s: float,
    ) -> None:
        """Nothing is read yet.

        Args:
            cluster: Where hosts, boards and jobs are known from.
            twin: Joins the boards with the inventory.
            clock: Dates all.
            name: Of the cluster, for people.
            metrics: Of a Prometheus; None: there is none.
            max_age_s: What is older is stale.
            max_run_s: Time limit of runs, for those who decide on the state.
        """
        self._cluster, self._twin, self._clock = cluster, twin, clock
        self._name, self._metrics = name, metrics
        self._max_age_s, self._max_run_s = max_age_s, max_run_s
        self._lock = threading.Lock()
        self._jobs: Sequence[ObservedJob] = ()
        self._figures = Metrics()
        self._wake, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="edgeyard-lab", daemon=True)

    def start(self) -> None:
        """Refresh from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Refresh soon."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; a request that is under way is not waited for."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        self._cluster.close()

    def refresh(self) -> None:
        """Read the cluster and Prometheus once."""
        try:
            jobs, hosts = self._cluster.jobs(), self._cluster.hosts()
            self._twin.refresh(hosts, self._clock.now(), self._cluster.loads())
        except ClusterUnreachable as error:
            self._twin.record_failed_refresh(f"{self._name} does not answer: {error}")
        else:
            with self._lock:
                self._jobs = jobs
        if self._metrics is not None:
            figures = self._metrics.read(self._clock.now())
            with self._lock:
                self._figures = figures

    def health(self) -> LabHealth:
        """Return how well the lab is known now."""
        age_s, problem = self._twin.age_s(self._clock.now()), self._twin.problem
        with self._lock:
            metrics_problem = self._figures.problem
        fresh = "degraded" if metrics_problem else "ok"
        return LabHealth(
            status=fresh if age_s <= self._max_age_s else "stale",
            age_s=round(age_s, 3) if math.isfinite(age_s) else None,
            cluster_problem=problem,
            metrics_problem=metrics_problem,
        )

    def data(self) -> TwinData:
        """Return what is known of the lab, with its age."""
        with self._lock:
            jobs, figures = self._jobs, self._figures
        now = self._clock.now()
        ended = [each for each in jobs if each.state.run is JobRun.ENDED]
        live = {each.benchmark_id: each for each in jobs if each.state.run is not JobRun.ENDED}
        holders = [_holder(each) for each in live.values() if each.state.target_uid]
        pending = [_pending(each) for each in live.values() if not each.state.target_uid]
        runs = [_past_run(each) for each in ended if not each.state.stopped]
        given = CycleInput(
            snapshot=self._twin.snapshot(
                now,
                drained={},
                holders={each.target_uid: each.benchmark_id for each in holders},
            ),
            pending=pending,
            now=now,
            holders=holders,
            knowledge=Knowledge(
                runs=History(tuple(sorted(runs, key=lambda run: run.ended_at))),
                max_run_s=self._max_run_s,
                host_loads=self._twin.loads(now),
            ),
        )
        return live_data(
            given,
            cluster=self._name,
            reports={},
            metrics=figures,
            job_ids={name: each.state.job_id for name, each in live.items()},
            problem=self._twin.problem,
        )

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            try:
                self.refresh()
            except Exception as error:
                self._twin.record_failed_refresh(
                    f"reading {self._name} failed: {type(error).__name__}: {error}"
                )
                logger.exception("reading the lab failed", extra={"event": "lab.broken"})
            if not self._stopped:
                self._wake.wait(REFRESH_S)


def observed_lab(settings: Settings) -> ObservedLab:
    """Return the observer of the set Nomad and Prometheus, for a stand-alone digital twin.

    Without an inventory all boards that Nomad reports are shown as expected.

    Raises:
        ConfigError: A setting or a file that it names is wrong.
    """
    from edgeyard.benchmark_api.bootstrap import (
        inventory_provider,
        metrics_source,
        nomad_access,
    )

    clock = SharedClock(SteadyClock(), boot_id=boot_id())
    if settings.inventory is None:
        twin = Twin((), UnknownDevices.ALLOW)
    else:
        boards = inventory_provider(settings).load().boards
        twin = Twin(boards, UnknownDevices(settings.unknown_devices), may_grow=True)
    max_age_s = settings.twin_max_age_s
    if max_age_s is None:
        policy = parse_policy(read_policy(settings.policy), source=settings.policy)
        max_age_s = policy.twin_max_age_s
    return ObservedLab(
        NomadView(nomad_access(settings), now=clock.now),
        twin,
        clock,
        name=f"Nomad at {settings.cluster.address}",
        metrics=metrics_source(settings, clock.monotonic_s),
        max_age_s=max_age_s,
        max_run_s=settings.default_user_time_s,
    )


def _kind(each: ObservedJob) -> RunKind:
    return RunKind(
        engine=each.engine or PLAIN_ENGINE,
        benchmark_type=each.benchmark_type,
        model_sha256=None,
        nb_inference=each.nb_inference,
    )


def _holder(each: ObservedJob) -> BoardHolder:
    return BoardHolder(
        benchmark_id=each.benchmark_id,
        target_uid=each.state.target_uid or "",
        priority=each.priority,
        user_id=each.user_id,
        started_at=each.state.started_at,
        kind=_kind(each),
    )


def _pending(each: ObservedJob) -> PendingBenchmark:
    return PendingBenchmark(
        benchmark_id=each.benchmark_id,
        user_id=each.user_id,
        submit_time=each.submitted_at,
        family=each.family or PLAIN_FAMILY,
        engine=each.engine or PLAIN_ENGINE,
        benchmark_type=each.benchmark_type,
        nb_inference=each.nb_inference,
    )


def _past_run(each: ObservedJob) -> PastRun:
    state = each.state
    ended_at = state.ended_at or each.submitted_at
    began = state.started_at
    return PastRun(
        benchmark_id=each.benchmark_id,
        user_id=each.user_id,
        target_uid=state.target_uid or "",
        family=each.family or PLAIN_FAMILY,
        kind=_kind(each),
        run_s=None if began is None else max((ended_at - began).total_seconds(), 0.0),
        failure=None if state.failure is None else state.failure.category.value,
        ended_at=ended_at,
    )
