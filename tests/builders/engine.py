"""The engine without threads, on a real store and a played cluster: a test says who is next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from edgeyard.benchmark_api.schemas.body import read_json
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.clock import SharedClock, SteadyClock
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.claims import Claims
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.cycle_outcome import CycleOutcome
from edgeyard.scheduler.engine.dispatch import Dispatcher, TaskLimits
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.reconcile import Reconciler, ReconcileRules
from edgeyard.scheduler.engine.twin_refresher import TwinRefresher
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.framework.policy import Policy, load_policy
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.hcl.build import RenderSettings
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    Failure,
    FileRole,
    JobDescription,
    Status,
    WaitReason,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.ports import Cluster
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.twin.twin import Twin
from tests.databases import open_store
from tests.fakes.clock import FixedClock
from tests.fakes.cluster import FakeCluster, board

A, B = "rpi4b-0001-0001", "rpi4b-0001-0002"
GOOD: Mapping[str, object] = {"status": "ok", "inference_latency": {"p50": 1.5}}


def a_model(content: bytes = b"net") -> BenchmarkFile:
    """A model's file that the store has."""
    return BenchmarkFile(
        role=FileRole.MODEL,
        position=0,
        name="net.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
    )


class _Inline(Executor):
    """Calls at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class InlineClaims(Claims):
    """Fetches a result as soon as it is asked for."""

    def ask(self, attempt: Attempt) -> bool:
        super().ask(attempt)
        self.turn()
        return self.waits(attempt.job_id)


class Lab:
    """Everything but threads: a test says who does what next.

    Without a policy of its own it decides by the default one, but leaves no decision to chance:
    which ones the default takes at random depends on random ids.
    """

    def __init__(
        self,
        folder: Path,
        *boards: str,
        start_lead_s: float = 0.0,
        pin_grace_s: float = 300.0,
        start_grace_s: float = 300.0,
        setup_grace_s: float = 3600.0,
        policy: Policy | None = None,
        plugins: Plugins | None = None,
        policies: Policies | None = None,
        store: SqlStore | None = None,
        cluster: FakeCluster | None = None,
        engine_cluster: Cluster | None = None,
        clock: FixedClock | None = None,
        time: SharedClock | None = None,
        claims_class: type[Claims] = InlineClaims,
    ) -> None:
        self.clock = clock or FixedClock(datetime(2026, 11, 21, 12, tzinfo=UTC))
        self.time = time or SharedClock(SteadyClock(self.clock.now, self.clock.monotonic_s))
        if time is None:
            self.time.lead()
        self.store = store or open_store(folder, now=self.time.now)
        self.cluster = cluster or FakeCluster(self.time.now, *(board(uid) for uid in boards))
        self.files = ContentFiles(folder / "files")
        self._engine_cluster = engine_cluster or self.cluster
        self._start_lead_s, self._pin_grace_s = start_lead_s, pin_grace_s
        self._start_grace_s, self._setup_grace_s = start_grace_s, setup_grace_s
        self._claims_class = claims_class
        self.result_limit_bytes = 2**20
        self._policy, self._plugins, self._policies = policy, plugins, policies
        self.restart()

    def restart(self) -> None:
        """Another process takes over: it knows what the store and the cluster know."""
        expected = (board(A), board(B))
        policy = self._policy or replace(load_policy("default"), explore_share=0.0)
        twin = Twin(expected)
        self.refresher = TwinRefresher(twin, self.cluster, self.time)
        self.cycle = Cycle(
            self.store,
            self.refresher,
            policy,
            self._plugins or registry().resolve(policy),
            self.time,
            start_lead_s=self._start_lead_s,
            pin_grace_s=self._pin_grace_s,
            max_run_s=100,
            policies=self._policies,
        )
        limits = TaskLimits(user_time_s=100)
        self.dispatcher = Dispatcher(
            self.store,
            self._engine_cluster,
            RenderSettings(
                public_url="http://127.0.0.1:1", driver="raw_exec", command="/bin/runner"
            ),
            limits,
            self.time,
        )
        self.claims = self._claims_class(
            self.store,
            self.files,
            self._engine_cluster,
            self.time,
            lambda: self.result_limit_bytes,
            read_json=read_json,
            grace_s=30,
        )
        self.reconciler = Reconciler(
            self.store,
            self._engine_cluster,
            self.dispatcher,
            ReconcileRules(
                upload_grace_s=30,
                start_grace_s=self._start_grace_s,
                setup_grace_s=self._setup_grace_s,
                board_grace_s=30,
            ),
            limits,
            self.time,
            twin.unusable_since,
            self.claims,
            twin.is_forbidden,
        )

    def submit(
        self,
        user_id: str = "ann",
        content: bytes = b"net",
        campaign_id: str | None = None,
        **changes: object,
    ) -> str:
        description = JobDescription(
            model="net.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1, target="rpi4b"
        )
        file = a_model(content)
        with self.store.write() as uow:
            made = lifecycle.submit(
                uow,
                replace(description, **changes),  # type: ignore[arg-type]
                user_id,
                [file],
                self.time.now(),
                campaign_id=campaign_id,
            )
        return made.benchmark_id

    def submit_gang(self, count: int, user_id: str = "ann", **changes: object) -> list[str]:
        """Submit a benchmark that runs on several boards at the same time."""
        with self.store.write() as uow:
            campaign = lifecycle.add_campaign(uow, user_id, "", self.time.now())
        with_count: dict[str, Any] = {**changes, "count": count}
        campaign_id = campaign.campaign_id
        return [self.submit(user_id, campaign_id=campaign_id, **with_count) for _ in range(count)]

    def decide(self) -> list[str]:
        """Job ids of what was placed: nobody dispatches them."""
        return list(self.cycle.run().placed)

    def turn(self) -> CycleOutcome:
        """Decide, dispatch, repair."""
        self.refresher.refresh()
        outcome = self.cycle.place()
        self.dispatch(*outcome.placed)
        outcome = self.cycle.explain(outcome)
        self.reconciler.run()
        return outcome

    def dispatch(self, *job_ids: str) -> None:
        """Hand prepared attempts to the cluster, on this thread."""
        self.dispatcher.put(*job_ids)
        while self.dispatcher.in_flight:
            self.dispatcher.turn(_Inline(), 0)

    def show(self, benchmark_id: str) -> Benchmark:
        with self.store.read() as uow:
            return uow.benchmarks.get(benchmark_id)

    def failure(self, benchmark_id: str) -> Failure:
        """Why a benchmark failed."""
        shown = self.show(benchmark_id)
        assert shown.status is Status.FAILED, shown.status
        assert shown.failure is not None
        return shown.failure

    def waiting(self, benchmark_id: str) -> WaitReason:
        """Why a benchmark waits."""
        reason = self.show(benchmark_id).waiting
        assert reason is not None
        return reason

    def attempts(self, benchmark_id: str) -> list[Attempt]:
        with self.store.read() as uow:
            return list(uow.attempts.of(benchmark_id))

    def running(self, benchmark_id: str, uid: str = A) -> str:
        """Place and start it; its job's id."""
        self.turn()
        job_id = self.attempts(benchmark_id)[-1].job_id
        self.cluster.start(job_id, uid)
        self.reconciler.run()
        assert self.show(benchmark_id).status is Status.RUNNING
        return job_id

    def upload(self, job_id: str, report: Mapping[str, object] = GOOD) -> None:
        with self.store.write() as uow:
            lifecycle.result_received(uow, uow.attempts.by_job_id(job_id), report, self.time.now())

    def complete(self, job_id: str) -> None:
        """A job uploads a good report and ends."""
        self.upload(job_id)
        self.cluster.end(job_id)

    def progress(self, job_id: str, progress: float, phase: str = "measuring") -> None:
        with self.store.write() as uow:
            attempt = uow.attempts.by_job_id(job_id)
            lifecycle.progress_received(uow, attempt, progress, phase, self.time.now())

    def attempt(self, job_id: str) -> Attempt:
        with self.store.read() as uow:
            return uow.attempts.by_job_id(job_id)

    def lease(self, uid: str, seconds: float) -> None:
        """Reserve a board for maintenance from now on."""
        now = self.time.now()
        with self.store.write() as uow:
            uow.reservations.add_lease(
                Lease(
                    lease_id=f"lease-{uid}",
                    target_uid=uid,
                    since=now,
                    until=now + timedelta(seconds=seconds),
                    reason="a new fan",
                )
            )

    def events(self, benchmark_id: str, kind: str) -> list[Event]:
        with self.store.read() as uow:
            found = uow.log.events(after=0, limit=1000, benchmark_id=benchmark_id)
        return [event for event in found if event.kind == kind]
