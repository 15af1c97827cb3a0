"""Prometheus figures in a registry of our own; known label values are there from the start."""

from __future__ import annotations

import threading
from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edgeyard import __version__
from edgeyard.benchmark_api.services import Services
from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.engine.retraining import TRAINING_RESULTS
from edgeyard.scheduler.figures.live import measure_policies
from edgeyard.scheduler.figures.metrics import RunMetrics
from edgeyard.scheduler.model.benchmark import (
    RETRYABLE,
    TERMINAL,
    BenchmarkType,
    FailureCategory,
    Status,
    WaitingReason,
)
from edgeyard.scheduler.model.registered_models import ModelKind, ModelState, RegisteredModel
from edgeyard.scheduler.model.subscriptions import Channel
from edgeyard.scheduler.twin.twin import BoardState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_WAITS_S = (0.1, 0.3, 1, 3, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
_RUNS_S = (0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600)
_CYCLES_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
_GAPS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_HTTP_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

_ENDED = 1000
_POLICIES_OF = timedelta(days=1)
_POLICIES_FOR = timedelta(seconds=15)
_POLICY_FIGURES = {
    "wait_s": ("wait_seconds", "From submission to start"),
    "turnaround_s": ("turnaround_seconds", "From submission to end, of completed ones"),
    "slowdown": ("slowdown_ratio", "Turnaround over run time, of completed ones"),
    "bounded_slowdown": ("bounded_slowdown_ratio", "Slowdown with runs of at least 10 s"),
}
_POLICY_NUMBERS = {
    "deadlines": ("deadlines", "Benchmarks with a deadline"),
    "deadline_misses": ("deadline_misses", "Benchmarks that missed their deadline"),
    "preemptions": ("preemptions", "Preempted attempts"),
    "failed_attempts": ("failed_attempts", "Failed attempts"),
    "makespan_s": ("makespan_seconds", "From the first submission to the last end"),
    "fairness": ("fairness_ratio", "Jain's index of the users' mean bounded slowdowns"),
}

_CLUSTER = "cluster"
"""Label of what happens on a cluster: its name in the settings."""

_CLUSTER_OPS = ("dispatch", "stop", "states", "logs", "hosts")


class Metrics:
    """The figures that are counted as things happen. Thread-safe."""

    def __init__(self, cluster: str) -> None:
        """Begin with zeros.

        Args:
            cluster: Name of the cluster in the settings, a label of what happens there.
        """
        # The library's only switch; each counter would have one more series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._cluster = cluster
        self._by_name: dict[str, Counter | Histogram | Gauge] = {}
        self._of_cluster: set[str] = set()
        self.http = self._histogram(
            "http_request_seconds", "Answered requests.", _HTTP_S, ("method", "route", "status")
        )
        self.submitted = self._counter("submitted_total", "Accepted submissions.", ("type",))
        self.finished = self._counter(
            "finished_total", "Benchmarks that have ended.", ("status", "category")
        )
        self.uploaded = self._counter("uploads_bytes_total", "Bytes received as files.", ("kind",))
        self._histogram("queue_wait_seconds", "Time from submission to start.", _WAITS_S)
        self._histogram(
            "run_seconds", "Run time of an attempt's task.", _RUNS_S, ("family", "engine", _CLUSTER)
        )
        self._histogram("cycle_seconds", "Duration of a decision cycle.", _CYCLES_S)
        self._counter("decisions_total", "Decisions on benchmarks.", ("policy", "result"))
        self._histogram("scorer_seconds", "Duration of a scorer's call.", _CYCLES_S, ("scorer",))
        self._counter("scorer_failures_total", "Failed calls of scorers.", ("scorer", "cause"))
        fallbacks = "Answers of scorers that explain states under FALLBACK."
        self._counter("scorer_fallbacks_total", fallbacks, ("scorer",))
        self._histogram(
            "ilp_seconds", "Run time of a solver, killed or not.", _CYCLES_S, ("scorer",)
        )
        self._histogram("ilp_gap_ratio", "Optimality gap of a plan.", _GAPS, ("scorer",))
        self._histogram("eta_error_seconds", "Error of the first forecast of an end.", _WAITS_S)
        coverage = "Times within their first forecast's interval, of the last 100; aim 0.8."
        held = self._gauge("eta_interval_coverage_ratio", coverage, ("of",))
        for of in ("start", "end"):
            held.labels(of).set(float("nan"))
        retries = self._counter("retries_total", "Further attempts.", ("category",))
        self._counter("deadline_missed_total", "Deadlines that were missed.")
        self._counter("preemptions_total", "Benchmarks preempted by more urgent ones.")
        quarantines = self._counter(
            "quarantines_total", "Boards put into quarantine.", ("cause", _CLUSTER)
        )
        messages = self._counter(
            "messages_total", "Tries to send messages to users.", ("channel", "result")
        )
        trainings = self._counter("trainings_total", "Trainings of models.", ("result",))
        requests = self._counter(
            "cluster_requests_total", "Calls to the cluster.", ("op", "code", _CLUSTER)
        )
        self._histogram(
            "cluster_request_seconds", "Calls to the cluster.", _CYCLES_S, ("op", _CLUSTER)
        )
        build = self._gauge("build_info", "Always 1.", ("version",))
        build.labels(__version__).set(1)
        for benchmark_type in BenchmarkType:
            self.submitted.labels(benchmark_type.value)
        for category in RETRYABLE:
            retries.labels(category.value)
        for status in TERMINAL:
            for cause in ("", *(each.value for each in FailureCategory)):
                # Only what can be: nothing but a failure has a cause, and no end is a preemption.
                if cause == FailureCategory.PREEMPTED:
                    continue
                if (status is Status.FAILED) == bool(cause):
                    self.finished.labels(status.value, cause)
        for kind in ("file", "result"):
            self.uploaded.labels(kind)
        for cause in ("record", "operator"):
            quarantines.labels(cause, cluster)
        for channel in Channel:
            for result in ("delivered", "failed", "given_up"):
                messages.labels(channel.value, result)
        for result in TRAINING_RESULTS:
            trainings.labels(result)
        for op in _CLUSTER_OPS:
            requests.labels(op, "ok", cluster)

    def observe(self, metric: str, value: float, labels: Mapping[str, str]) -> None:
        """Count, time or set a metric by its name without prefix; unknown names are ignored."""
        known = self._by_name.get(metric)
        if known is None:
            return
        if metric in self._of_cluster:
            labels = {**labels, _CLUSTER: self._cluster}
        one = known.labels(**labels) if labels else known
        if isinstance(one, Counter):
            one.inc(value)
        elif isinstance(one, Histogram):
            one.observe(value)
        else:
            one.set(value)

    def watch(self, services: Services) -> None:
        """Export what is asked for at each scrape; once an app."""
        self.registry.register(_StoreMetrics(services))

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:
        made = Counter(f"edgeyard_{name}", help, labels, registry=self.registry)
        self._remember(name, made, labels)
        return made

    def _gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Gauge:
        made = Gauge(f"edgeyard_{name}", help, labels, registry=self.registry)
        self._remember(name, made, labels)
        return made

    def _histogram(
        self, name: str, help: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()
    ) -> Histogram:
        made = Histogram(f"edgeyard_{name}", help, labels, buckets=buckets, registry=self.registry)
        self._remember(name, made, labels)
        return made

    def _remember(
        self, name: str, made: Counter | Gauge | Histogram, labels: Sequence[str]
    ) -> None:
        self._by_name[name] = made
        if _CLUSTER in labels:
            self._of_cluster.add(name)


class _StoreMetrics(Collector):
    """Figures that the store and the twin know better than any counter."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._measured: tuple[datetime, Mapping[str, RunMetrics]] | None = None

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, so that registering the collector does not read the store."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Ask now; what can't be had is left out rather than made up."""
        services = self._services
        cluster = services.settings.cluster_name
        age = GaugeMetricFamily(
            "edgeyard_twin_age_seconds", "Age of the boards' state.", labels=(_CLUSTER,)
        )
        age.add_metric((cluster,), services.engine.twin_age_s())
        yield age
        yield self._board_seconds()
        yield from self._leader()
        try:
            yield self._boards()
            yield from self._stored()
        except EdgeyardError:
            return

    def _boards(self) -> GaugeMetricFamily:
        boards = GaugeMetricFamily(
            "edgeyard_boards", "Boards by state.", labels=("state", "family", _CLUSTER)
        )
        views = self._services.engine.boards()
        counts = Counts((view.state, view.board.family) for view in views)
        cluster = self._services.settings.cluster_name
        for family in sorted({view.board.family for view in views}):
            for state in BoardState:
                boards.add_metric((state.value, family, cluster), counts[state, family])
        return boards

    def _board_seconds(self) -> CounterMetricFamily:
        seconds = CounterMetricFamily(
            "edgeyard_board_seconds",
            "Seconds of a family's boards, all boards together, by what they were spent on.",
            labels=("family", "use", _CLUSTER),
        )
        cluster = self._services.settings.cluster_name
        for family, found in sorted(self._services.board_times.of_families().items()):
            for use, value in found.items():
                seconds.add_metric((family, use.value, cluster), value)
        return seconds

    def _leader(self) -> Iterable[GaugeMetricFamily]:
        view = self._services.leader()
        leads = GaugeMetricFamily("edgeyard_leader", "Whether this server leads: 1 or 0.")
        leads.add_metric((), float(view.leads))
        yield leads
        epoch = GaugeMetricFamily("edgeyard_leader_epoch", "Epoch of the leader that is known.")
        epoch.add_metric((), view.epoch)
        yield epoch
        ahead = GaugeMetricFamily(
            "edgeyard_clock_ahead_seconds",
            "How far this server's clock is ahead of the time that all servers share.",
        )
        ahead.add_metric((), view.clock_ahead_s)
        yield ahead

    def _stored(self) -> Iterable[GaugeMetricFamily]:
        services = self._services
        with services.store.read() as uow:
            by_status = uow.benchmarks.counts_by_status()
            by_reason = uow.benchmarks.counts_by_waiting_reason()
            models = uow.models.all()
        statuses = GaugeMetricFamily(
            "edgeyard_benchmarks", "Stored benchmarks.", labels=("status",)
        )
        for status in Status:
            statuses.add_metric((status.value,), by_status.get(status, 0))
        yield statuses
        pending = GaugeMetricFamily(
            "edgeyard_pending", "Waiting benchmarks.", labels=("waiting_reason",)
        )
        for reason in WaitingReason:
            pending.add_metric((reason.value,), by_reason.get(reason, 0))
        yield pending
        free = GaugeMetricFamily("edgeyard_files_free_bytes", "Room left for files.")
        free.add_metric((), services.files.free_bytes())
        yield free
        yield from _models(models)
        yield from self._policies()

    def _policies(self) -> Iterable[GaugeMetricFamily]:
        """Figures of the policies that decided the benchmarks of the last day, for a while."""
        services = self._services
        now = services.clock.now()
        with self._lock:
            if self._measured is None or now - self._measured[0] >= _POLICIES_FOR:
                with services.store.read() as uow:
                    ended = uow.policies.ended(since=now - _POLICIES_OF, until=None, limit=_ENDED)
                self._measured = (now, measure_policies(ended, resamples=1))
            found = self._measured[1]
        counts = _gauge("benchmarks", "Ended benchmarks", ("policy", "status"))
        spread = {
            name: _gauge(metric, text, ("policy", "statistic"))
            for name, (metric, text) in _POLICY_FIGURES.items()
        }
        alone = {
            name: _gauge(metric, text, ("policy",))
            for name, (metric, text) in _POLICY_NUMBERS.items()
        }
        for policy, metrics in found.items():
            label = policy or "unknown"
            for status in TERMINAL:
                counts.add_metric((label, status.value), metrics.statuses.get(status.value, 0))
            for name, family in spread.items():
                figure = metrics.figures[name]
                for statistic, value in (
                    ("mean", figure.interval.mean),
                    ("p50", figure.p50),
                    ("p90", figure.p90),
                    ("p99", figure.p99),
                    ("max", figure.max),
                ):
                    family.add_metric((label, statistic), value)
            for name, family in alone.items():
                family.add_metric((label,), getattr(metrics, name))
        yield counts
        yield from spread.values()
        yield from alone.values()


def _models(found: Sequence[RegisteredModel]) -> Iterable[GaugeMetricFamily]:
    versions = GaugeMetricFamily(
        "edgeyard_models",
        "Versions of models from the lab's history.",
        labels=("kind", "state"),
    )
    active = GaugeMetricFamily(
        "edgeyard_model_active_version",
        "Version that predicts; 0: past runs do.",
        labels=("kind",),
    )
    for kind in ModelKind:
        mine = [each for each in found if each.kind is kind]
        for state in ModelState:
            versions.add_metric(
                (kind.value, state.value), sum(each.state is state for each in mine)
            )
        in_use = [each.version for each in mine if each.state is ModelState.ACTIVE]
        active.add_metric((kind.value,), max(in_use, default=0))
    yield versions
    yield active


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    help = f"{text}, of the newest {_ENDED} benchmarks of the last 24 h that the policy decided."
    return GaugeMetricFamily(f"edgeyard_policy_{name}", help, labels=labels)
