"""The engine's threads: one decides, others watch, repair, dispatch and fetch.

======== ===========================================================================
thread   what it does
======== ===========================================================================
cycle    the only one that places benchmarks; wakes on news and every second;
         then decides the same again by the shadow policy, if there is one
dispatch commits to calls of the cluster, and stores their outcomes
call     makes them: registers the jobs of prepared attempts
watch    turns the cluster's events into jobs to compare
repair   compares store and cluster: on each hint, and fully every few seconds
fetch    downloads what users' URLs name
forecast rolls the queue forward, as often as it costs little
notify   sends messages to users: mail, webhooks
timers   one each: full repair, schedules, checks, series, canaries, quarantine, conditions of the
         lab, housekeeping, models
follow   instead of all others while another server leads: refreshes the twin and
         decides, to answer questions alone
======== ===========================================================================

Each turn of a thread is a `Step`. `Engine.step` takes one on the calling thread, so that a
simulation drives the whole engine on one thread, in virtual time; the threads call the same
function.

All of them share the store and the cluster. Those that make decisions (cycle, forecast, and threads
of requests that ask for a preview, a forecast or changes) also share the plugins of a policy, and
call them one at a time (`Plugins.lock`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from edgeyard.errors import ClusterUnreachable, EdgeyardError, LeadershipLost, Unavailable
from edgeyard.scheduler.decide.changes import Bounds, Changes
from edgeyard.scheduler.engine.active_models import REFRESH_S
from edgeyard.scheduler.engine.adoption import Adopter
from edgeyard.scheduler.engine.canaries import CanaryKeeper
from edgeyard.scheduler.engine.checks import advance_checks
from edgeyard.scheduler.engine.claims import Claims
from edgeyard.scheduler.engine.confirmation import advance_changes
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.cycle_outcome import CycleOutcome, QueueView
from edgeyard.scheduler.engine.dispatch import MAX_COMMIT_DELAY_S, Dispatcher, TaskLimits
from edgeyard.scheduler.engine.downloads import DEFAULT_PER_USER, Download, DownloadQueue
from edgeyard.scheduler.engine.drift import quarantine_drifted
from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.engine.event_metrics import EventMetrics
from edgeyard.scheduler.engine.explanations import Explanations
from edgeyard.scheduler.engine.forecaster import Forecaster
from edgeyard.scheduler.engine.hints import Hints
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.engine.intake import fetch_files, fire_due
from edgeyard.scheduler.engine.lab_watch import CHECK_S as LAB_CHECK_S
from edgeyard.scheduler.engine.lab_watch import LabSources, LabWatch
from edgeyard.scheduler.engine.lifecycle import NewId, new_benchmark_id
from edgeyard.scheduler.engine.metrics import Observe, observe_cycle, observe_scorers
from edgeyard.scheduler.engine.notify import Notifier
from edgeyard.scheduler.engine.outages import Outages
from edgeyard.scheduler.engine.preview import Candidate, Preview, SubmissionForecaster, preview
from edgeyard.scheduler.engine.quarantine import QuarantineController
from edgeyard.scheduler.engine.queue_cache import board_holds
from edgeyard.scheduler.engine.reconcile import Reconciler
from edgeyard.scheduler.engine.recurring import RecurringStarts
from edgeyard.scheduler.engine.replay import CycleComparison
from edgeyard.scheduler.engine.retraining import CHECK_S
from edgeyard.scheduler.engine.series_watch import SeriesWatch
from edgeyard.scheduler.engine.throttle import Throttle
from edgeyard.scheduler.engine.twin_refresher import TwinRefresher
from edgeyard.scheduler.hcl.build import RenderSettings
from edgeyard.scheduler.model.benchmark import BenchmarkFile, FileRole, JobDescription
from edgeyard.scheduler.model.canaries import CanaryModel
from edgeyard.scheduler.model.decision import CycleInput, Explanation, PlannedStart
from edgeyard.scheduler.model.forecast import Coverage, Forecast
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.quotas import Quotas
from edgeyard.scheduler.model.tariff import Tariff
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.ports import Clock, Cluster, FileStore, Store, UrlFetcher
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.twin.comparison import Comparison
from edgeyard.scheduler.twin.twin import BoardView

logger = logging.getLogger(__name__)

TICK_S = 1.0
"""Maximum time until a submission that another process made is seen."""

FOLLOW_S = 2.0
"""Interval between decisions of a follower, unless something is submitted there."""

FORECAST_S = 1.0
"""Minimum interval between forecasts."""

FORECAST_SHARE = 0.05
"""Maximum share of a core that forecasts take, whatever the length of the queue."""

MAX_DISPATCH_WAIT_S = 0.1
"""Longest wait of a cycle for the jobs of what it placed to be registered, before it stores why the
other benchmarks wait."""

FULL_REPAIR_S = 5.0
"""Interval between comparisons of all jobs with the cluster."""

SERIES_INTERVAL_S = 5.0
"""Interval between looks at series that have new points, and steps of confirmations."""

GARBAGE_INTERVAL_S = 3600.0
"""Interval between garbage collections."""

SAVE_TIME_INTERVAL_S = 10.0
"""Interval between saves of the time for the next process."""

IDLE_WAIT_S = 0.5
"""Longest wait of a thread for work before it looks whether the engine stops."""

JOIN_S = 5.0
_CLAIM_THREADS = 4
"""Hosts from which results are fetched at the same time."""
_FETCH_THREADS = 16
"""Benchmarks whose files are downloaded at once, so that slow addresses do not hold up others."""
_ALL = ""


class Step(StrEnum):
    """What the engine does in one turn of one of its threads."""

    CYCLE = "cycle"  # decide, and commit what was decided
    DISPATCH = "dispatch"  # store the outcomes of calls, begin others
    WATCH = "watch"  # take in the cluster's events
    REPAIR = "repair"  # compare the jobs of which there is news
    FULL_REPAIR = "full-repair"  # have all jobs compared
    CLAIM = "claim"  # fetch one result from its host
    FETCH = "fetch"  # download one benchmark's files
    NOTIFY = "notify"  # send messages to users
    FORECAST = "forecast"
    SCHEDULES = "fire"  # submit what cron schedules state
    CHECKS = "checks"  # take the next steps of checks
    SERIES = "series"  # look at series with new points, and confirm what is suspected
    CANARIES = "canaries"  # send canaries to idle boards
    QUARANTINE = "watch-over"  # judge the boards' records
    LAB = "lab"  # report conditions of the lab
    GARBAGE = "garbage"  # collect garbage
    SAVE_TIME = "save-time"
    MODELS = "models"  # load active models before a decision needs them
    TRAINING = "training"  # begin or end the training of models


_TIMERS = (
    Step.FULL_REPAIR,
    Step.SCHEDULES,
    Step.CHECKS,
    Step.SERIES,
    Step.CANARIES,
    Step.QUARANTINE,
    Step.LAB,
    Step.GARBAGE,
    Step.SAVE_TIME,
    Step.MODELS,
    Step.TRAINING,
)
"""Steps that have a thread of their own and nothing to wait for but their interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What the engine's threads drive; built by the composition root.

    Attributes:
        collect_garbage: See `edgeyard.scheduler.engine.housekeeping`; called every hour.
        save_time: Stores what the next process needs to notice a step of the clock.
        disk_problem: Returns how little room the server's disk has; "" if there is enough.
        leader: Returns which server leads.
        max_twin_age_s: Age of the boards' state past which nothing is dispatched.
        file_limits: Largest file that is fetched, bytes, by role.
        full_repair_s: See `FULL_REPAIR_S`.
        dispatch_threads: Jobs that are handed to the cluster at the same time.
        downloads_per_user: Of these, those of one user.
        quotas: Gives the quotas of users whose accounts have none of their own.
        max_pending_total: Gives how many benchmarks of all users may wait; None: any number.
        confirm_budget_s: Gives the time for a check that confirms a change of a series, seconds; 0:
            none is confirmed.
        calls: Makes the dispatcher's calls; None: ``dispatch_threads`` threads.
        new_id: Makes the ids of benchmarks that Edgeyard itself submits.
        canaries: The reference models of the lab's own runs.
        canary_share: Gives the share of a board's time that these may take; 0: there are none.
        quarantine_on_drift: Gives whether boards are put into quarantine when a drift is confirmed.
        train: Begins a training of models if it is due, and notes the end of one.
    """

    store: Store
    cluster: Cluster
    refresher: TwinRefresher
    render: RenderSettings
    cycle: Cycle
    past: PastRuns
    explanations: Explanations
    forecaster: Forecaster
    dispatcher: Dispatcher
    reconciler: Reconciler
    claims: Claims
    recurring: RecurringStarts
    fetcher: UrlFetcher
    notifier: Notifier
    files: FileStore
    clock: Clock
    observe: Observe
    collect_garbage: Callable[[], object]
    save_time: Callable[[], object]
    disk_problem: Callable[[], str]
    leader: Callable[[], LeaderView]
    max_twin_age_s: float
    file_limits: Mapping[FileRole, int]
    limits: TaskLimits
    full_repair_s: float = FULL_REPAIR_S
    dispatch_threads: int = 8
    downloads_per_user: int = DEFAULT_PER_USER
    quotas: Callable[[], Quotas] = Quotas
    max_pending_total: Callable[[], int | None] = lambda: None
    confirm_budget_s: Callable[[], float] = lambda: 0.0
    calls: Executor | None = None
    tariff: Tariff | None = None
    new_id: NewId = new_benchmark_id
    canaries: Sequence[CanaryModel] = ()
    canary_share: Callable[[], float] = lambda: 0.0
    quarantine_on_drift: Callable[[], bool] = lambda: False
    train: Callable[[], object] = lambda: None


class Engine:
    """Starts and stops the threads, or takes their turns one at a time: `begin`, then `step`."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._hints = Hints()
        self._downloads = DownloadQueue(parts.downloads_per_user)
        self._threads: list[threading.Thread] = []
        self._event_metrics = EventMetrics(parts.store, parts.observe)
        self._quarantines = QuarantineController(
            parts.store,
            parts.files,
            self.boards,
            parts.clock,
            parts.observe,
            parts.past,
            parts.new_id,
        )
        self._canaries = CanaryKeeper(
            parts.store,
            parts.files,
            self.boards,
            parts.clock,
            parts.canaries,
            parts.canary_share,
            parts.new_id,
        )
        self._lab_watch = LabWatch(
            parts.store,
            LabSources(
                boards=self.boards,
                twin_age_s=self.twin_age_s,
                max_twin_age_s=parts.max_twin_age_s,
                twin_problem=self.cluster_problem,
                disk_problem=parts.disk_problem,
                leader=parts.leader,
            ),
            parts.clock,
        )
        self._submission_forecaster = SubmissionForecaster(
            parts.cycle, parts.clock, lambda: self._parts.forecaster.interval_scales
        )
        self._series_watch = SeriesWatch(parts.store, parts.clock)
        self._outages = Outages()
        self._adopter = Adopter(parts.store, parts.clock, parts.limits.user_time_s, parts.tariff)
        self._calls = parts.calls or ThreadPoolExecutor(parts.dispatch_threads, "edgeyard-call")
        self._forecast_took_s = 0.0
        self._steps: Mapping[Step, Callable[[float], object]] = {
            Step.CYCLE: self._cycle,
            Step.DISPATCH: self._dispatch,
            Step.WATCH: self._watch,
            Step.REPAIR: self._repair_hinted,
            Step.FULL_REPAIR: self._repair_all,
            Step.CLAIM: self._claim,
            Step.FETCH: self._fetch_next,
            Step.NOTIFY: lambda _: parts.notifier.run(),
            Step.FORECAST: self._forecast,
            Step.SCHEDULES: self._fire_due,
            Step.CHECKS: self._advance_checks,
            Step.SERIES: self._watch_series,
            Step.CANARIES: self._send_canaries,
            Step.QUARANTINE: self._check_quarantines,
            Step.LAB: lambda _: self._lab_watch.run(),
            Step.GARBAGE: lambda _: parts.collect_garbage(),
            Step.SAVE_TIME: lambda _: parts.save_time(),
            Step.MODELS: lambda _: parts.cycle.models.refresh(),
            Step.TRAINING: lambda _: parts.train(),
        }

    @property
    def intervals_s(self) -> Mapping[Step, float]:
        """Seconds between two turns of the steps that are taken whether or not there is news."""
        return {
            Step.CYCLE: TICK_S,
            Step.WATCH: TICK_S,
            Step.NOTIFY: TICK_S,
            Step.FORECAST: max(FORECAST_S, self._forecast_took_s / FORECAST_SHARE),
            Step.FULL_REPAIR: self._parts.full_repair_s,
            Step.SCHEDULES: TICK_S,
            Step.CHECKS: TICK_S,
            Step.SERIES: SERIES_INTERVAL_S,
            Step.CANARIES: TICK_S,
            Step.QUARANTINE: TICK_S,
            Step.LAB: LAB_CHECK_S,
            Step.GARBAGE: GARBAGE_INTERVAL_S,
            Step.SAVE_TIME: SAVE_TIME_INTERVAL_S,
            Step.MODELS: REFRESH_S,
            Step.TRAINING: CHECK_S,
        }

    def step(self, step: Step, wait_s: float = 0.0) -> None:
        """Take one turn of one of the engine's threads, on this one; failures are logged.

        Args:
            step: What to do.
            wait_s: Maximum wait for something to do, where the step waits for work.
        """
        self._guarded(step.value, lambda: self._steps[step](wait_s))

    def steps_with_work(self) -> tuple[Step, ...]:
        """Return the steps that have something to do before their interval is over."""
        parts = self._parts
        work = {
            Step.DISPATCH: bool(parts.dispatcher.in_flight),
            Step.REPAIR: bool(self._hints),
            Step.CYCLE: self._wake.is_set(),
            Step.CLAIM: parts.claims.is_due(),
            Step.FETCH: self._downloads.has_next(),
        }
        return tuple(step for step, wanted in work.items() if wanted)

    def begin(self) -> None:
        """Do what `start` does before the threads run; afterwards the caller takes the steps."""
        self._guarded("past", self._parts.cycle.load_past)
        self.step(Step.MODELS)
        self._repair_first()
        self.wake()

    def _repair_first(self) -> None:
        try:
            self._repair(None, after_restart=True)
        except LeadershipLost:
            raise
        except Unavailable as error:  # the repair thread tries again; others can work meanwhile
            logger.warning(
                "the first repair failed", extra={"event": "repair.failed", "reason": str(error)}
            )

    def start(self) -> None:
        """Repair what the last process left behind, then start all threads."""
        self._load_past()
        self._repair_first()
        loops: list[tuple[str, Callable[[], None]]] = [
            ("cycle", self._cycle_loop),
            ("watch", self._watch_loop),
            ("repair", self._repair_loop),
            ("notify", partial(self._timer_loop, Step.NOTIFY)),
            ("forecast", self._forecast_loop),
            ("dispatch", self._dispatch_loop),
        ]
        working = partial(self._working_loop, Step.CLAIM)
        loops += [(f"claim-{n}", working) for n in range(_CLAIM_THREADS)]
        working = partial(self._working_loop, Step.FETCH)
        loops += [(f"fetch-{n}", working) for n in range(_FETCH_THREADS)]
        loops += [(step.value, partial(self._timer_loop, step)) for step in _TIMERS]
        for name, loop in loops:
            self._run(name, loop)
        self.wake()

    def follow(self) -> None:
        """Keep answers to questions fresh while another server leads; nothing is written."""
        self._load_past()
        self._run("follow", self._follow_loop)
        self._run(Step.MODELS.value, partial(self._timer_loop, Step.MODELS))
        self.wake()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"edgeyard-{name}")
        self._threads.append(thread)
        thread.start()

    def _load_past(self) -> None:
        def load() -> None:
            self._guarded("past", self._parts.cycle.load_past)
            self.step(Step.MODELS)

        self._run("past", load)

    def wake(self) -> None:
        """There is news: decide now rather than at the next tick. Any thread."""
        self._wake.set()

    def preview(
        self, description: JobDescription, files: Sequence[BenchmarkFile], user_id: str
    ) -> Preview:
        """Return what a submission would lead to, without changing anything. Any thread."""
        parts = self._parts
        interval_scales = parts.forecaster.interval_scales
        now = parts.clock.now()
        return preview(parts.cycle, parts.render, description, files, user_id, now, interval_scales)

    def forecast_submission(self, candidate: Candidate, user_id: str) -> Forecast | None:
        """Predict the times of a benchmark that is about to be submitted. Any thread."""
        return self._submission_forecaster.of(candidate, user_id)

    def explanation(self, benchmark_id: str) -> Explanation:
        """Return the newest explanation of a benchmark. Any thread.

        Raises:
            NotFound: No cycle has considered it yet.
        """
        return self._parts.explanations.of(benchmark_id)

    def changes(self, benchmark_id: str, bounds: Bounds | None = None) -> Changes | None:
        """Return changes that would let it start sooner; None if it does not wait. Any thread.

        Args:
            bounds: What its user may ask for; None: what anybody may.

        Raises:
            NotFound: No cycle has considered it yet.
        """
        forecast, scale = self.forecast(benchmark_id), self._parts.forecaster.interval_scales
        return self._parts.explanations.changes(benchmark_id, bounds, forecast, scale)

    def shadows(
        self, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[tuple[int, CycleComparison]]:
        """Return what shadow policies decided in recorded cycles, newest first. Any thread."""
        return self._parts.explanations.shadows(since, until, limit)

    def forecast(self, benchmark_id: str) -> Forecast | None:
        """Return its expected start and end; None if they can't be predicted. Any thread."""
        return self._parts.forecaster.of(benchmark_id)

    def planned(self, benchmark_id: str) -> PlannedStart | None:
        """Return its planned board and start while it waits; None without a plan. Any thread."""
        return self._parts.forecaster.planned(benchmark_id)

    def coverage(self) -> Coverage:
        """Return how many of the newest forecasts came true. Any thread."""
        return self._parts.forecaster.coverage

    def queue(self) -> QueueView:
        """Return the queue in the order of the last cycle. Any thread."""
        outcome = self._parts.cycle.latest
        return QueueView("", "", ()) if outcome is None else outcome.queue

    def priority_parts(self, benchmark_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return the terms of the last cycle's priorities, by benchmark. Any thread."""
        outcome = self._parts.cycle.latest
        if outcome is None:
            return {}
        decided = outcome.decided
        rows = decided.row_of_id
        return {
            each: decided.priorities.parts_of(rows[each]) for each in benchmark_ids if each in rows
        }

    def state(self) -> CycleInput:
        """Return the input of a decision made now. Any thread."""
        return self._parts.cycle.state()

    def boards(self) -> tuple[BoardView, ...]:
        """Return the state of every board in the twin. Any thread."""
        now = self._parts.clock.now()
        with self._parts.store.read() as uow:
            drained, holders = board_holds(uow)
            aside = uow.reservations.quarantines().values()
            leases = uow.reservations.leases(now)
        return self._parts.refresher.twin.views(
            drained=drained,
            holders=holders,
            quarantined={each.target_uid: each.reason for each in aside if each.active},
            leased={each.target_uid: _lease_words(each) for each in leases if each.since <= now},
        )

    def comparison(self) -> Comparison | None:
        """Return how reports differ from the inventory; None before the first. Any thread."""
        return self._parts.refresher.twin.comparison()

    def twin_age_s(self) -> float:
        """Return the age of what is known of boards; inf before the first answer. Any thread."""
        return self._parts.refresher.twin.age_s(self._parts.clock.now())

    def cluster_problem(self) -> str:
        """Return why the last call to the cluster failed; "" if it succeeded. Any thread."""
        return self._parts.refresher.twin.problem

    def repair_failures(self) -> Mapping[str, str]:
        """Return the errors of attempts that could not be repaired, by job id. Any thread."""
        return self._parts.reconciler.failing()

    def claims(self) -> Mapping[str, tuple[float, str]]:
        """Return `Claims.waiting`; any thread may ask."""
        return self._parts.claims.waiting()

    def stop(self) -> None:
        """End all threads; the cluster's tasks are not touched."""
        self._stop.set()
        self._wake.set()
        self._parts.notifier.close()
        for thread in self._threads:
            thread.join(JOIN_S)
            if thread.is_alive():
                logger.error(
                    "thread did not stop",
                    extra={"event": "thread.stuck", "thread_name": thread.name},
                )
        self._parts.refresher.close()

    # The loops are each the outermost of their thread, so each may catch everything.

    def _follow_loop(self) -> None:
        throttle = Throttle()
        while not self._stop.is_set():
            self._wake.wait(FOLLOW_S)
            self._wake.clear()
            if self._stop.is_set():
                return
            with throttle.turn(self._stop.wait):
                self._guarded("follow", self._parts.cycle.follow)
                self._guarded("forecast", lambda: self._parts.forecaster.run(keep=False))

    def _cycle_loop(self) -> None:
        throttle = Throttle()
        while not self._stop.is_set():
            self._wake.wait(TICK_S)
            if self._stop.is_set():
                return
            with throttle.turn(self._stop.wait):
                self.step(Step.CYCLE)

    def _cycle(self, wait_s: float) -> None:
        self._wake.clear()
        self._turn()

    def _turn(self) -> None:
        parts = self._parts
        parts.refresher.refresh()
        adopted = self._adopter.run(parts.cluster.strays())
        if adopted:
            parts.dispatcher.put(*adopted)
        outcome = parts.cycle.place()
        if outcome.placed:
            parts.dispatcher.put(*outcome.placed)
            if self._threads:  # without threads there is no concurrent dispatch
                parts.dispatcher.await_done(MAX_DISPATCH_WAIT_S)
        outcome = parts.cycle.explain(outcome)
        for job_id in outcome.preempted:
            self._hints.put(job_id)
        self._downloads.replace(outcome.downloads)
        observe_cycle(parts.observe, outcome)
        self._event_metrics.catch_up()
        self._guarded("shadow", lambda: self._decide_shadow(outcome))

    def _decide_shadow(self, outcome: CycleOutcome) -> None:
        turn = self._parts.cycle.decide_shadow(outcome)
        if turn is not None:
            observe_scorers(self._parts.observe, turn)

    def _forecast_loop(self) -> None:
        import scipy.special  # noqa: F401  takes a moment: not when the first benchmarks wait

        self._timer_loop(Step.FORECAST)

    def _forecast(self, wait_s: float) -> None:
        self._forecast_took_s = self._parts.forecaster.run()

    def _dispatch_loop(self) -> None:
        while not self._stop.is_set():
            self.step(Step.DISPATCH, MAX_COMMIT_DELAY_S)
        self._calls.shutdown()
        self._guarded("dispatch", self._parts.dispatcher.note)  # calls that were under way

    def _dispatch(self, wait_s: float) -> None:
        self._parts.dispatcher.turn(self._calls, wait_s)

    def _timer_loop(self, step: Step) -> None:
        """Do something now and then, by the monotonic clock: the machine's may be set."""
        while not self._stop.wait(self.intervals_s[step]):
            self.step(step)

    def _working_loop(self, step: Step) -> None:
        while not self._stop.is_set():
            self.step(step, IDLE_WAIT_S)

    def _watch_loop(self) -> None:
        while not self._stop.is_set():
            self.step(Step.WATCH)
            self._stop.wait(TICK_S)

    def _watch(self, wait_s: float) -> None:
        for job_id in self._parts.cluster.events(self._stop):
            self._hints.put(job_id)

    def _repair_loop(self) -> None:
        throttle = Throttle()
        while not self._stop.is_set():
            if self._hints.wait(IDLE_WAIT_S):
                with throttle.turn(self._stop.wait):
                    self.step(Step.REPAIR)

    def _repair_hinted(self, wait_s: float) -> None:
        hints = set(self._hints.take())
        if _ALL in hints:
            self._repair(None)
        if any(map(self._parts.recurring.is_news, hints)):
            self._take_recurring(refresh=True)
        if named := hints - {_ALL}:  # jobs of attempts that have ended, too
            self._repair(named)

    def _repair_all(self, wait_s: float) -> None:
        self._hints.put(_ALL)
        self._parts.store.restore_reserve()

    def _repair(self, job_ids: set[str] | None, *, after_restart: bool = False) -> None:
        wanted = None if job_ids is None else sorted(job_ids)
        stepped = bool(self._parts.clock.pending_step_s())
        try:
            # Where boards fell free, the next thing is to decide on them: they are asked for now.
            prepared = self._parts.reconciler.run(
                wanted, after_restart=after_restart, ended=self._parts.refresher.prefetch
            )
        except ClusterUnreachable as error:
            self._outages.failed("repair.missed", "the cluster did not answer", str(error))
            return
        finally:
            if stepped:  # a process that dies now goes on with the new time
                self._parts.save_time()
        self._outages.succeeded("repair.missed")
        self._parts.dispatcher.put(*prepared)
        if job_ids is None or self._parts.reconciler.moved:
            self.wake()  # boards may be free, or others

    def _claim(self, wait_s: float) -> None:
        job_id = self._parts.claims.turn(wait_s, self._stop.is_set)
        if job_id is not None:
            self._hints.put(job_id)

    def _fetch_next(self, wait_s: float) -> None:
        download = self._downloads.next(wait_s)
        if download is not None:
            self._fetch(download)

    def _fetch(self, download: Download) -> None:
        parts = self._parts
        try:
            fetch_files(
                parts.store,
                parts.fetcher,
                download.benchmark_id,
                parts.clock,
                parts.file_limits,
                self._stop.wait,
                self._stop.is_set,
                parts.quotas(),
                self._discard,
            )
        finally:
            self._downloads.done(download)
            self.wake()

    def _discard(self, sha256: str) -> None:
        """Remove content that no benchmark needs any more."""
        release(self._parts.store, self._parts.files, {sha256: self._parts.clock.now()})

    def _fire_due(self, wait_s: float) -> None:
        parts = self._parts
        if fire_due(parts.store, parts.clock, parts.quotas(), parts.max_pending_total()):
            self.wake()
        self._take_recurring(refresh=False)

    def _advance_checks(self, wait_s: float) -> None:
        parts = self._parts
        if advance_checks(parts.store, parts.clock, parts.quotas(), parts.max_pending_total()):
            self.wake()

    def _watch_series(self, wait_s: float) -> None:
        parts = self._parts
        self._series_watch.turn()
        boards = self.boards()
        if boards:  # otherwise nothing is known of the lab yet
            budget_s = parts.confirm_budget_s()
            advance_changes(parts.store, parts.files, parts.clock, boards, budget_s)

    def _take_recurring(self, *, refresh: bool) -> None:
        """Have schedules that are left to Nomad kept in line with it."""
        try:
            started = self._parts.recurring.turn(refresh=refresh)
        except ClusterUnreachable as error:
            self._outages.failed("recurring.missed", "the cluster did not answer", str(error))
            return
        self._outages.succeeded("recurring.missed")
        for job_id in started:
            self._hints.put(job_id)

    def _send_canaries(self, wait_s: float) -> None:
        parts = self._parts
        moved = quarantine_drifted(
            parts.store, parts.clock.now(), wanted=parts.quarantine_on_drift()
        )
        if self._canaries.run() or moved:
            self.wake()

    def _check_quarantines(self, wait_s: float) -> None:
        if self._quarantines.run():
            self.wake()

    def _guarded(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
            self._outages.succeeded(f"{what}.failed")
        except EdgeyardError as error:
            self._outages.failed(f"{what}.failed", "engine step failed", str(error))
        except Exception:
            logger.exception("engine step broke", extra={"event": f"{what}.broke"})


def _lease_words(lease: Lease) -> str:
    whose = "for maintenance" if lease.user_id is None else "to a user"
    why = f" ({lease.reason})" if lease.reason else ""
    return f"leased {whose} until {time_text(lease.until)}{why}"
