"""The composition root: the one place that builds adapters and hands them to the parts."""

from __future__ import annotations

import fcntl
import importlib.metadata
import ipaddress
import logging
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api import logs
from edgeyard.benchmark_api.app import create_app
from edgeyard.benchmark_api.auth import new_token, token_hash
from edgeyard.benchmark_api.extensions import Background, server_background
from edgeyard.benchmark_api.fetch import AddressRules, Fetcher
from edgeyard.benchmark_api.lab_inventory import InventoryWatch, LabInventory
from edgeyard.benchmark_api.live_twin import MetricsSource
from edgeyard.benchmark_api.local_acts import acting_here
from edgeyard.benchmark_api.mail import MailSender, mail_settings
from edgeyard.benchmark_api.messages import Messages
from edgeyard.benchmark_api.metrics import Metrics
from edgeyard.benchmark_api.prometheus import Prometheus
from edgeyard.benchmark_api.reloading import Reloader
from edgeyard.benchmark_api.remote_scorer import MAX_BUDGET_S as MAX_REMOTE_BUDGET_S
from edgeyard.benchmark_api.remote_scorer import RemoteScorers
from edgeyard.benchmark_api.routes.browser_sessions import first_token
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.routes.health import disk_room
from edgeyard.benchmark_api.schemas.body import read_json
from edgeyard.benchmark_api.services import Services, task_limits
from edgeyard.benchmark_api.settings import ENGINE_SETTINGS, PREFIX, Settings
from edgeyard.benchmark_api.webhooks import WebhookKeys, WebhookSender
from edgeyard.devices.inventory import Inventory, default_embedded_inventory
from edgeyard.devices.machine import engine_attributes, machine_attributes
from edgeyard.devices.machine_facts import ENGINE_PACKAGES
from edgeyard.devices.model import SANDBOX_MODES, BoardEngine, Sandbox
from edgeyard.devices.providers import CallableProvider, FileProvider, InventoryProvider
from edgeyard.devices.runner.engines import BUILT_IN as ENGINES
from edgeyard.devices.runner.sandbox.plan import plan_for
from edgeyard.errors import ConfigError, Conflict, InvalidInput, NotFound, RunFailed, reason_of
from edgeyard.failpoints import failpoint
from edgeyard.home import expanded
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.clock import ClockFile, SharedClock, SteadyClock, boot_id
from edgeyard.scheduler.clusters.local import LocalCluster
from edgeyard.scheduler.clusters.local.shim import tied
from edgeyard.scheduler.clusters.nomad import NomadAccess, NomadCluster
from edgeyard.scheduler.clusters.nomad.doctor import examine
from edgeyard.scheduler.clusters.observed import ClusterWithNodes, ObservedCluster
from edgeyard.scheduler.engine.canaries import SHIPPED
from edgeyard.scheduler.engine.claims import Claims
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.dispatch import Dispatcher, Verify
from edgeyard.scheduler.engine.elected import ElectedEngine, LeadersCluster
from edgeyard.scheduler.engine.election import Election
from edgeyard.scheduler.engine.explanations import Explanations
from edgeyard.scheduler.engine.forecaster import Forecaster
from edgeyard.scheduler.engine.housekeeping import Retention, collect_garbage
from edgeyard.scheduler.engine.lifecycle import NewId, new_benchmark_id
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.engine.notify import Notifier, Outbound
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.reconcile import Reconciler, ReconcileRules
from edgeyard.scheduler.engine.recurring import RecurringStarts
from edgeyard.scheduler.engine.retraining import Retraining
from edgeyard.scheduler.engine.service import FULL_REPAIR_S, Engine, EngineParts
from edgeyard.scheduler.engine.twin_refresher import TwinRefresher
from edgeyard.scheduler.files import MARK_FILE, ContentFiles
from edgeyard.scheduler.framework.policy import Policy, parse_policy, read_policy
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.hcl.build import RenderSettings
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.model.acts import acting_as, difference
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import FileRole
from edgeyard.scheduler.model.canaries import stated_canaries
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.finding import Finding
from edgeyard.scheduler.model.recurring import ScheduleJobState, is_parent, parent_of, schedule_of
from edgeyard.scheduler.model.retention import RetentionClass
from edgeyard.scheduler.model.subscriptions import Channel
from edgeyard.scheduler.model.tariff import parse_tariff
from edgeyard.scheduler.model.users import ApiToken, Role, User
from edgeyard.scheduler.ports import (
    Clock,
    FileStore,
    Store,
    UnitOfWork,
    UrlFetcher,
)
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.s3_files import S3Access, S3Files
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.backup import DatabaseCopier
from edgeyard.scheduler.store.sql_store import check_url
from edgeyard.scheduler.twin.checkup import board_findings
from edgeyard.scheduler.twin.twin import Twin, UnknownDevices
from edgeyard.scheduler.workers.isolated import MAX_BUDGET_S as MAX_ISOLATED_BUDGET_S
from edgeyard.scheduler.workers.isolated import Workers

logger = logging.getLogger(__name__)

ADMIN = "admin"
ADMIN_TOKEN_FILE = "admin.token"
SERVER_ID_FILE = "server.id"
CLOCK_FILE = "clock.json"


class Server:
    """The parts of a server, connected by name; `start` starts them.

    Attributes:
        public_url: Under which boards and people reach it.
        store: Its database.
        app: Its HTTP service.
        engine: Decides, dispatches and repairs while this server leads.
        reloader: Takes up settings and the inventory again.
    """

    def __init__(self, settings: Settings, port: int) -> None:
        """Build and connect all parts, and start none of them.

        Args:
            settings: As they are at the start.
            port: The bound one.

        Raises:
            ConfigError: A file or a setting can't be used, or another server has this data folder.
        """
        with ExitStack() as opened:  # closed again where a later part can't be built
            self._open(settings, port, opened)
            self._lead(settings)
            self._serve(settings)
            self._opened = opened.pop_all()

    def _open(self, settings: Settings, port: int, opened: ExitStack) -> None:
        """Open what the server keeps: data folder, database, files, plugins, cluster."""
        self._settings = settings
        try:
            settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                [
                    f"can't create the folder {settings.data_dir}: {reason_of(error)}; "
                    "name another folder with --data-dir"
                ]
            ) from error
        opened.enter_context(lock_data_dir(settings.data_dir))
        self._clock_file = ClockFile(settings.data_dir / CLOCK_FILE)
        self._clock = clock = SharedClock(SteadyClock(), boot_id=boot_id())
        clock.restore(self._clock_file.read())
        self.public_url = settings.cluster.public_url or f"http://{_url_host(settings.host)}:{port}"
        self.store: Store = open_store(settings, clock)
        opened.callback(self.store.close)
        with self.store.read() as uow:  # of a process that died before it wrote the file
            clock.restore(uow.leadership.clock())
        self._files = open_files(settings)
        check_file_store(settings, self.store, self._files)
        self._lab_inventory = LabInventory(
            self.store, clock, lambda each: inventory_provider(each).load()
        )
        self._inventory = self._lab_inventory.load(settings)
        self._confinement = confinement_here(settings, self._inventory)
        workers = Workers()
        opened.callback(workers.close)
        self._plugins = plugin_registry(settings, workers)
        self._policy_text, self._policies = self._read_policies(settings)
        self._metrics = Metrics(settings.cluster_name)
        self._inner, self._verify = build_cluster(settings, self._inventory, self.store, clock)
        opened.callback(self._inner.close)
        self._cluster = ObservedCluster(self._inner, self._metrics.observe)
        ensure_admin(self.store, settings.data_dir, clock.now())

    def _lead(self, settings: Settings) -> None:
        """Build what decides while this server leads."""
        self._rules = AddressRules(settings.allow_hosts)
        self._webhook_rules = AddressRules(settings.webhook_hosts, setting="webhook_hosts")
        self._webhook_keys = keys_of_webhooks(settings)
        self._render = render_settings(settings, self.public_url)
        self._election = Election(
            self.store,
            self._clock,
            server_id(settings.data_dir),
            self.public_url,
            candidate=settings.role != "api",
        )
        self._twin = Twin(
            self._inventory.boards,
            UnknownDevices(settings.unknown_devices),
            may_grow=settings.cluster.kind == "nomad",
        )
        self._file_limits = dict(settings.file_limits)
        self._past = PastRuns(settings.history_runs, settings.history_days * 86400.0)
        self._retraining = Retraining(
            tied(TRAINING), training_environment(settings), self._clock, self._metrics.observe
        )
        self.engine = ElectedEngine(self._election, self._engine_of, retire=self._retire)

    def _serve(self, settings: Settings) -> None:
        """Build what answers requests, and what runs next to the engine."""
        self._services = Services(
            store=self.store,
            files=self._files,
            cluster=self._cluster,
            engine_now=lambda: self.engine.current,
            leader=self.engine.leader,
            clock=self._clock,
            settings=settings,
            inventory=self._inventory,
            policies=self._policies,
            public_url=self.public_url,
            rules=self._rules,
            twin_max_age_s=self._policies.configured.policy.twin_max_age_s,
            webhook_rules=self._webhook_rules,
            webhook_keys=self._webhook_keys,
            unknown_boards=self._twin.unknown_boards,
            joined=self._twin.joined,
            lab_inventory=self._lab_inventory,
            confinement=self._confinement,
            twin_metrics=metrics_source(settings, self._clock.monotonic_s),
            retraining=self._retraining,
        )
        self.reloader = Reloader(self._services, self._lab_inventory.load, self._take_up)
        self._services.reload_inventory = self.reloader.reload_inventory
        self._inventory_watch = InventoryWatch(
            lambda: self._lab_inventory.state(self._services.settings),
            self.reloader.reload_inventory,
        )
        self.app = create_app(self._services, self._metrics)
        self._background: tuple[Background, ...] = (
            self._services.board_times,
            *server_background(
                settings, self.store, self._clock, lambda: self.engine.leader().leads
            ),
        )

    def start(self) -> None:
        """Start the engine and the threads that run next to it."""
        self.engine.start()
        self._inventory_watch.start()
        for each in self._background:
            each.start()

    def sign_in_link(self) -> str | None:
        """Return a link that signs its admin in once; None: it would be sent in the clear."""
        context: Context | None = getattr(self.app.state, "context", None)
        url = urlsplit(self.public_url)
        private = url.scheme == "https" or _is_loopback(url.hostname or "")
        if context is None or not private or context.services.settings.role == "engine":
            return None
        token_id = first_token(context, ADMIN)
        if token_id is None:
            return None
        return f"{self.public_url}/ui/sign-in/link?code={context.links.make(token_id)}"

    def close(self) -> None:
        """Stop in the order that loses nothing: engine, tasks, store, lock of the data folder."""
        self._inventory_watch.stop()
        for each in self._background:
            each.stop()
        self._retraining.close()
        self.engine.stop()
        self._opened.close()

    def _read_policies(self, settings: Settings) -> tuple[str, Policies]:
        """Store the policy that the settings name; return its text, and all policies by it."""
        text = read_policy(settings.policy)
        found = configured_policies(settings, text, self._plugins)
        self.store.transact(lambda uow: found.keep_configured(uow, text, self._clock.now()))
        return text, found

    def _engine_of(self, epoch: int | None) -> Engine:
        """Return an engine for the epoch that this server leads, or one that only reads."""
        messages = Messages(self.public_url, lambda: self._services.settings.lab_name)
        surroundings = EngineSurroundings(
            store=self.store,
            cluster=self._cluster,
            election=self._election,
            twin=self._twin,
            files=self._files,
            clock=self._clock,
            policies=self._policies,
            plugins=self._plugins,
            past=self._past,
            render=self._render,
            verify=self._verify,
            observe=self._metrics.observe,
            fetcher=Fetcher(self._rules, self._files, timeout_s=self._settings.fetch_timeout_s),
            outbound=Outbound(
                post=WebhookSender(self._webhook_rules),
                sign=self._webhook_keys.sign,
                write_chat=messages.chat,
                mail=MailSender(lambda: mail_settings(self._services.settings), messages),
            ),
            disk_problem=self._disk_problem,
            save_time=lambda: self._clock_file.write(self._clock.record()),
            train=lambda: self._retraining.run_if_due(self._settings.learn_every_s),
            file_limits=self._file_limits,
            live_settings=lambda: self._services.settings,
        )
        return make_engine(self._settings, surroundings, epoch)

    def _disk_problem(self) -> str:
        enough, detail = disk_room(self._settings.data_dir, self._files)
        return "" if enough else detail

    def _retire(self) -> None:
        """End what runs here and belongs to the server that leads."""
        self._inner.retire()
        self._retraining.leave()

    def _take_up(self, settings: Settings, inventory: Inventory) -> Collection[str]:
        """Hand settings that were reloaded to the parts that have copies of them.

        Returns:
            Settings whose files have changed.

        Raises:
            ConfigError: A file can't be used; nothing has changed.
        """
        text, chosen = self._read_policies(settings)
        if isinstance(self._inner, NomadCluster):
            self._inner.use_access(nomad_access(settings))
        changed = {"policy"} if text != self._policy_text else set()
        is_engine_changed = bool(changed) or any(
            getattr(settings, name) != getattr(self._settings, name) for name in ENGINE_SETTINGS
        )
        self._settings, self._policy_text = settings, text
        self._policies.replace(chosen)
        self._services.twin_max_age_s = chosen.configured.policy.twin_max_age_s
        logs.configure(settings.log_level, settings.log_format)
        self._rules.replace(settings.allow_hosts)
        self._webhook_rules.replace(settings.webhook_hosts)
        self._file_limits.update(settings.file_limits)
        self._twin.set_inventory(inventory.boards)
        if is_engine_changed:
            self.engine.renew()
        self.engine.wake()
        return changed


def plugin_registry(
    settings: Settings, workers: Workers, min_remote_budget_s: float = 0.0
) -> Registry:
    """Return all plugins installed on this machine; scorers of other packages run in ``workers``.

    Args:
        settings: Of this machine.
        workers: That run them.
        min_remote_budget_s: Time that a scorer's service has also where the policy allows less.

    Raises:
        ConfigError: Two plugins of one kind have the same name, or a model's manifest is wrong.
    """
    remote = RemoteScorers(
        AddressRules(settings.scorer_hosts, setting="scorer_hosts"),
        min_budget_s=min_remote_budget_s,
    )
    return registry(models=settings.models_dir, isolated=workers.scorer, remote=remote.scorer)


@contextmanager
def known_plugins(settings: Settings, models: Path | None = None) -> Iterator[Registry]:
    """Yield `plugin_registry` for a command, and end its worker processes afterwards.

    No benchmark waits for a simulation or a replay. So that its result does not depend on how busy
    this machine is, a scorer in another process has the maximum time for each answer, whatever
    time its policy allows.

    Args:
        settings: Of this machine.
        models: Folder of registered models instead of the one of the settings.

    Raises:
        ConfigError: As there.
    """
    workers = Workers(min_budget_s=MAX_ISOLATED_BUDGET_S)
    if models is not None:
        settings = settings.model_copy(update={"models_dir": models})
    try:
        yield plugin_registry(settings, workers, MAX_REMOTE_BUDGET_S)
    finally:
        workers.close()


DATABASE = f"{PREFIX}DATABASE_URL"
TRAINING = [sys.executable, "-m", "edgeyard", "learn", "outcomes", "--by-server"]
"""The process that learns from the server's database, with limits that it sets itself."""


def training_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a training: the server's own, with its data and its rules."""
    found = {name: each for name, each in os.environ.items() if name != f"{DATABASE}_FILE"}
    found[f"{PREFIX}DATA_DIR"] = str(settings.data_dir)
    found[f"{PREFIX}LEARN_PROMOTE"] = settings.learn_promote
    if settings.database_url is not None:
        found[DATABASE] = settings.database_url.get_secret_value()
    return found


TWIN_TIMEOUT_S = 5.0
"""Timeout of a query to the digital twin's Prometheus, for which a request waits."""


def metrics_source(settings: Settings, monotonic_s: Callable[[], float]) -> MetricsSource | None:
    """Return the reader of hosts' loads for the digital twin; None if no Prometheus is set.

    Raises:
        ConfigError: The URL is wrong.
    """
    if settings.twin_prometheus is None:
        return None
    try:
        prometheus = Prometheus(settings.twin_prometheus, timeout_s=TWIN_TIMEOUT_S)
    except InvalidInput as error:
        raise ConfigError([f"twin_prometheus: {error}"]) from error
    return MetricsSource(prometheus.query_range, monotonic_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSurroundings:
    """What an engine is connected to; the same for all epochs of a server.

    Attributes:
        save_time: Stores what the next process needs to notice a step of the clock.
        file_limits: Largest file that is fetched, bytes, by role.
        live_settings: Gives the settings as they are now: a reload replaces them.
        executor: Makes all calls; None: threads of the engine's own.
        new_id: Makes the ids of benchmarks that Edgeyard itself submits.
        full_repair_s: Between two comparisons of all jobs with the cluster.
        disk_problem: Returns how little room the server's disk has; "" if there is enough.
        train: Begins a training of models if it is due; called while this server leads.
    """

    store: Store
    cluster: ClusterWithNodes
    election: Election
    twin: Twin
    files: FileStore
    clock: Clock
    policies: Policies
    plugins: Registry
    past: PastRuns
    render: RenderSettings
    verify: Verify
    observe: Observe
    fetcher: UrlFetcher
    outbound: Outbound
    save_time: Callable[[], object]
    file_limits: Mapping[FileRole, int]
    live_settings: Callable[[], Settings]
    executor: Executor | None = None
    new_id: NewId = new_benchmark_id
    full_repair_s: float = FULL_REPAIR_S
    disk_problem: Callable[[], str] = lambda: ""
    train: Callable[[], object] = lambda: None


def make_engine(settings: Settings, found: EngineSurroundings, epoch: int | None) -> Engine:
    """Return an engine for the epoch that this server leads.

    Args:
        settings: As they were when the engine was wanted.
        found: What it is connected to.
        epoch: None: one that follows.
    """
    clock, policies, twin = found.clock, found.policies, found.twin
    limits = task_limits(settings)
    store: Store = found.store if epoch is None else found.store.fenced(epoch)
    election = found.election
    cluster = LeadersCluster(found.cluster, lambda: epoch is not None and election.holds(epoch))
    refresher = TwinRefresher(twin, found.cluster, clock, found.executor)
    cycle = Cycle(
        store,
        refresher,
        policies.configured.policy,
        policies.configured.plugins,
        clock,
        start_lead_s=settings.start_lead_s,
        pin_grace_s=settings.pin_grace_s,
        max_run_s=settings.default_user_time_s,
        tariff=parse_tariff(settings.tariff),
        past=found.past,
        policies=policies,
    )
    dispatcher = Dispatcher(store, cluster, found.render, limits, clock, found.verify)
    claims = _claims(settings, found, store, cluster)
    return Engine(
        EngineParts(
            store=store,
            cluster=cluster,
            refresher=refresher,
            render=found.render,
            cycle=cycle,
            past=found.past,
            explanations=Explanations(store, found.plugins, clock, lambda: cycle.latest),
            forecaster=Forecaster(cycle, store, clock, found.observe),
            dispatcher=dispatcher,
            reconciler=Reconciler(
                store,
                cluster,
                dispatcher,
                _reconcile_rules(settings),
                limits,
                clock,
                twin.unusable_since,
                claims,
                twin.is_forbidden,
            ),
            claims=claims,
            recurring=_recurring_starts(settings, found, store, cluster),
            notifier=Notifier(
                store,
                found.outbound,
                clock,
                found.observe,
                found.render.public_url,
                per_day=lambda channel: messages_per_day(found.live_settings(), channel),
                executor=found.executor,
            ),
            fetcher=found.fetcher,
            files=found.files,
            clock=clock,
            observe=found.observe,
            collect_garbage=partial(
                collect_garbage, store, found.files, clock, retention(settings)
            ),
            save_time=found.save_time,
            disk_problem=found.disk_problem,
            leader=election.view,
            max_twin_age_s=policies.configured.policy.twin_max_age_s,
            file_limits=found.file_limits,
            limits=limits,
            dispatch_threads=settings.dispatch_threads,
            downloads_per_user=settings.downloads_per_user,
            quotas=lambda: found.live_settings().quotas,
            tariff=parse_tariff(settings.tariff),
            max_pending_total=lambda: found.live_settings().max_pending_total,
            confirm_budget_s=lambda: found.live_settings().confirm_budget_s,
            calls=found.executor,
            new_id=found.new_id,
            full_repair_s=found.full_repair_s,
            canaries=stated_canaries(settings.canaries) or SHIPPED,
            canary_share=lambda: found.live_settings().canary_share,
            quarantine_on_drift=lambda: found.live_settings().quarantine_on_drift,
            train=found.train,
        )
    )


def _claims(
    settings: Settings, found: EngineSurroundings, store: Store, cluster: LeadersCluster
) -> Claims:
    return Claims(
        store,
        found.files,
        cluster,
        found.clock,
        lambda: found.live_settings().result_limit_bytes,
        read_json=read_json,
        grace_s=settings.upload_grace_s,
        timeout_s=settings.claim_timeout_s,
        defaults=lambda: found.live_settings().quotas,
        host_of=found.twin.host_of,
    )


def _reconcile_rules(settings: Settings) -> ReconcileRules:
    return ReconcileRules(
        upload_grace_s=settings.upload_grace_s,
        start_grace_s=settings.start_grace_s,
        setup_grace_s=settings.setup_grace_s,
        board_grace_s=settings.board_grace_s,
        lost_grace_s=settings.lost_grace_s,
    )


def _recurring_starts(
    settings: Settings, found: EngineSurroundings, store: Store, cluster: LeadersCluster
) -> RecurringStarts:
    return RecurringStarts(
        store,
        cluster,
        found.clock,
        found.render,
        found.verify,
        quotas=lambda: found.live_settings().quotas,
        max_pending_total=lambda: found.live_settings().max_pending_total,
        max_run_s=settings.default_user_time_s,
        tariff=parse_tariff(settings.tariff),
    )


def configured_policies(settings: Settings, text: str, plugins: Registry) -> Policies:
    """Return the policies of a server whose settings name this one.

    Args:
        settings: With what they change of every policy.
        text: TOML of the policy that they name.
        plugins: All that can be named.

    Raises:
        ConfigError: The policy can't be used.
    """

    def adjust(policy: Policy) -> Policy:
        max_age_s = settings.twin_max_age_s
        return policy if max_age_s is None else replace(policy, twin_max_age_s=max_age_s)

    return Policies(plugins, parse_policy(text, source=settings.policy), adjust)


def confinement_here(settings: Settings, inventory: Inventory) -> tuple[bool, str] | None:
    """Try out how this machine can confine runs of the embedded cluster, log it, and return it.

    Returns:
        Whether they are in all that matters, and in words; None: there is no embedded cluster.

    Raises:
        ConfigError: It is required, and can't be.
    """
    boards = [board for board in inventory.boards if board.local is not None]
    if settings.cluster.kind != "embedded" or not boards:
        return None
    modes = {settings.sandbox or board.sandbox.mode for board in boards}
    mode = next(mode for mode in SANDBOX_MODES if mode in modes)
    try:
        plan = plan_for(Sandbox(mode), ram_bytes=min(board.ram_bytes for board in boards) or None)
    except RunFailed as error:
        raise ConfigError([f"sandbox: {error.sentence}"]) from error
    level = logging.INFO if plan.confined else logging.WARNING
    logger.log(level, plan.sentence(), extra={"event": "server.confinement"})
    return plan.confined, plan.sentence()


def build_cluster(
    settings: Settings, inventory: Inventory, store: Store, clock: Clock
) -> tuple[ClusterWithNodes, Verify]:
    """Return the cluster that runs the jobs, embedded or Nomad, and the parser of its job text.

    Raises:
        ConfigError: A file of certificates can't be used.
    """
    if settings.cluster.kind == "embedded":
        boards = tuple(board for board in inventory.boards if board.local is not None)
        described = [
            replace(board, attributes={**machine_attributes(board), **board.attributes})
            for board in boards
        ]
        local = LocalCluster(
            described, settings.data_dir / "embedded", now=clock.now, sandbox=settings.sandbox
        )
        # Loading the engines takes longer than the rest of a start.
        describing = threading.Thread(
            target=lambda: local.describe(engine_attributes()), name="engines", daemon=True
        )
        describing.start()
        return local, check_round_trip

    def ended(job_ids: Collection[str]) -> Collection[str]:
        with store.read() as uow:
            return {job_id for job_id in job_ids if _has_ended(uow, job_id)}

    def known(job_ids: Collection[str]) -> Collection[str]:
        with store.read() as uow:
            return {job_id for job_id in job_ids if _is_known(uow, job_id)}

    def database_empty() -> bool:
        with store.read() as uow:
            return uow.attempts.is_empty() and not uow.schedules.has_jobs()

    nomad = NomadCluster(
        nomad_access(settings),
        purge_age_s=settings.cluster.purge_age_s,
        ended=ended,
        known=known,
        database_empty=database_empty,
        now=clock.now,
    )
    return nomad, nomad.verify


def _is_known(uow: UnitOfWork, job_id: str) -> bool:
    parent = parent_of(job_id)
    try:
        if parent is None:
            uow.attempts.by_job_id(job_id)
        else:  # its runs become attempts within seconds, or are stopped
            uow.schedules.job(parent)
    except NotFound:
        return False
    return True


def _has_ended(uow: UnitOfWork, job_id: str) -> bool:
    """Return whether a job of ours has ended; False for one that is none of ours."""
    if is_parent(job_id):
        try:
            return uow.schedules.job(job_id).state is ScheduleJobState.ENDED
        except NotFound:
            return _is_pruned(uow, job_id)
    try:
        return uow.attempts.by_job_id(job_id).state is AttemptState.ENDED
    except NotFound:
        return False


def _is_pruned(uow: UnitOfWork, parent_id: str) -> bool:
    """Return whether an unknown parent job is one of a schedule of ours whose row was pruned.

    Only rows of ended jobs are, and never the last one of an active schedule: a later one belongs
    to a database of which this one is an older backup.
    """
    schedule_id = schedule_of(parent_id) or ""
    try:
        active = uow.schedules.get(schedule_id).active
    except NotFound:
        return False
    last_version = max((job.version for job in uow.schedules.jobs(schedule_id)), default=0)
    return not active or int(parent_id.rpartition("-")[2]) < last_version


def nomad_access(settings: Settings) -> NomadAccess:
    """Return address, token and certificates of Nomad's API, from the settings.

    Raises:
        ConfigError: They name no Nomad.
    """
    cluster = settings.cluster
    if cluster.address is None:
        raise ConfigError(
            [
                f"clusters.{settings.cluster_name} is this machine: name a Nomad with its address "
                "in [clusters.NAME], see docs/how-to/clusters.md"
            ]
        )
    return NomadAccess(
        name=settings.cluster_name,
        address=cluster.address,
        token=cluster.token.get_secret_value() if cluster.token is not None else None,
        namespace=cluster.namespace,
        region=cluster.region,
        datacenters=cluster.datacenters,
        node_pool=cluster.node_pool,
        ca_cert=cluster.ca_cert,
        client_cert=cluster.client_cert,
        client_key=cluster.client_key,
        tls_server_name=cluster.tls_server_name,
        ui_url=cluster.ui_url,
        device=cluster.device,
        connections=cluster.connections,
        timeout_s=cluster.timeout_s,
    )


def nomad_findings(
    settings: Settings, *, probe: bool, public_url: str | None = None
) -> Iterator[Finding]:
    """Check Nomad with the server's own settings and token, and return the findings.

    Args:
        public_url: What the running server tells of its own; None: what the settings say.
        probe: Run a job of a moment on every host, to see whether it reaches the server.

    Raises:
        ConfigError: The inventory can't be used.
    """
    inventory = inventory_provider(settings).load()
    stated = settings.cluster.public_url or f"http://{_url_host(settings.host)}:{settings.port}"
    docker = settings.chosen_driver == "docker"
    return examine(
        nomad_access(settings),
        driver=settings.chosen_driver,
        image=(settings.docker_image or "") if docker else "",
        runner=() if docker else _runner(settings),
        public_url=public_url or stated,
        boards=partial(board_findings, inventory.boards, settings.unknown_devices),
        probe=probe,
    )


def retention(settings: Settings) -> Retention:
    """Return the retention time of each class of records, from the settings."""
    return {
        RetentionClass.EVENTS: settings.retain_events_s,
        RetentionClass.ACTS: settings.retain_acts_s,
        RetentionClass.CYCLES: settings.retain_cycles_s,
        RetentionClass.HCL: settings.retain_hcl_s,
        RetentionClass.UPLOADS: settings.retain_uploads_s,
        RetentionClass.RESULTS: settings.retain_results_s,
        RetentionClass.FILES: settings.retain_files_s,
        RetentionClass.BENCHMARKS: settings.retain_benchmarks_s,
    }


def open_store(settings: Settings, clock: Clock | None = None) -> SqlStore:
    """Open the database of the settings, and migrate it to this version's schema.

    Args:
        settings: Of the server.
        clock: The server's; None: of a command that only reads.
    """
    return SqlStore(
        _database_of(settings),
        now=(clock or SteadyClock()).now,
        ballast_bytes=settings.ballast_bytes,
    )


def _database_of(settings: Settings) -> str:
    url = settings.database_url
    if url is not None:
        return url.get_secret_value()
    return f"sqlite:///{settings.data_dir / 'edgeyard.db'}"


def database_copier(settings: Settings, programs: Path | None = None) -> DatabaseCopier:
    """Return what copies the database of the settings; nothing is migrated."""
    return copier_of(_database_of(settings), programs)


def copier_of(url: str, programs: Path | None = None) -> DatabaseCopier:
    """Return what copies a database; see `DatabaseCopier`."""
    return DatabaseCopier(url, programs)


def check_database(settings: Settings) -> None:
    """Check that the database of the settings can be opened from here, without a connection to it.

    Raises:
        ConfigError: The URL is wrong, or its driver is not installed.
    """
    if settings.database_url is not None:
        check_url(settings.database_url.get_secret_value())


def open_files(settings: Settings) -> FileStore:
    """Open the file store of the settings: a folder or an S3 bucket.

    Raises:
        ConfigError: There is no such bucket, or its library is not installed.
        Unavailable: It can't be used now.
    """
    named = settings.file_store
    if named is None or not named.startswith("s3:"):
        root = settings.data_dir / "files" if named is None else expanded(named)
        return ContentFiles(root, reserve_bytes=settings.reserve_bytes)
    parts = urlsplit(named)
    prefix = parts.path.strip("/")
    secret = settings.s3_secret_key
    access = S3Access(
        bucket=parts.netloc,
        prefix=f"{prefix}/" if prefix else "",
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=None if secret is None else secret.get_secret_value(),
    )
    return S3Files(access, settings.data_dir / "cache", reserve_bytes=settings.reserve_bytes)


def check_file_store(settings: Settings, store: Store, files: FileStore) -> None:
    """Refuse a file store that is not the one of the database; the first server marks both.

    Raises:
        ConfigError: It has another mark, or none although the database's has one.
        Unavailable: The file store does not answer.
    """
    mark, placed = store.transact(lambda uow: uow.files.store_mark(secrets.token_hex(16)))
    found = files.mark()
    if found is None and not placed:
        files.set_mark(mark)
        found = mark
    if found != mark:
        where = settings.file_store or str(settings.data_dir / "files")
        finding = "has no files of this database" if found is None else "is another database's"
        raise ConfigError(
            [
                f"file_store: {where} {finding}; name the one that the other servers of the "
                f"database use. If this is its place from now on, write {mark} into "
                f"{where.rstrip('/')}/{MARK_FILE}: benchmarks whose files are not there will fail"
            ]
        )
    if not placed:
        store.transact(lambda uow: uow.files.note_mark_placed())


def messages_per_day(settings: Settings, channel: Channel) -> int:
    """Return how many messages a user is sent in a day by a channel."""
    return {
        Channel.MAIL: settings.mails_per_day,
        Channel.WEBHOOK: settings.webhook_messages_per_day,
    }[channel]


def keys_of_webhooks(settings: Settings) -> WebhookKeys:
    """Return the key that the settings state, or the one of the data folder.

    Warns where several servers may share the database, each with a data folder of its own.
    """
    if settings.webhook_key is None:
        database_url = settings.database_url
        if database_url is not None and database_url.get_secret_value().startswith("postgres"):
            logger.warning(
                "webhook_key is not set: servers that share this database sign webhooks with "
                "different keys, and receivers reject the messages of all but one. Set the same "
                "webhook_key on each server",
                extra={"event": "settings.no_webhook_key"},
            )
        return WebhookKeys.of_folder(settings.data_dir)
    return WebhookKeys(settings.webhook_key.get_secret_value().encode())


def inventory_provider(settings: Settings) -> InventoryProvider:
    """Return the provider of the expected boards: the inventory file, or the emulated boards."""
    if settings.inventory is not None:
        return FileProvider(settings.inventory)
    if settings.cluster.kind == "nomad":
        raise ConfigError(["inventory: needed with a Nomad cluster: the JSON file of its boards"])
    return CallableProvider(this_machine, "boards that this machine emulates")


def this_machine() -> Inventory:
    """Return boards that this machine can emulate, with the engines that are installed."""
    return default_embedded_inventory(
        sorted(os.sched_getaffinity(0)),
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        installed_engines(),
    )


def installed_engines() -> tuple[BoardEngine, ...]:
    """Return engines whose packages are here, with their versions."""
    found = []
    for name, distributions in ENGINE_PACKAGES.items():
        types = frozenset(ENGINES[name].types)
        for distribution in distributions:
            try:
                version = importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
            found.append(BoardEngine(name, version, types))
            break
    return tuple(found)


def render_settings(settings: Settings, public_url: str) -> RenderSettings:
    """Return the parts of every job that the operator's settings decide."""
    command = _runner(settings)
    password = settings.docker_auth_password
    render = RenderSettings(
        public_url=public_url,
        driver=settings.chosen_driver,
        image=settings.docker_image,
        network_mode=settings.docker_network_mode,
        auth_username=settings.docker_auth_username or "",
        auth_password=password.get_secret_value() if password is not None else "",
        privileged=settings.docker_privileged,
        command=command[0],
        args=tuple(command[1:]),
    )
    if settings.cluster.kind == "embedded":
        return render
    return replace(
        render,
        namespace=settings.cluster.namespace,
        datacenters=settings.cluster.datacenters,
        node_pool=settings.cluster.node_pool,
        device=settings.cluster.device,
        cpu_mhz=settings.cluster.cpu_mhz,
        memory_mib=settings.cluster.memory_mib,
        lost_after_s=settings.cluster.lost_after_s or None,
    )


def _runner(settings: Settings) -> Sequence[str]:
    """Return the command that starts the runner with the driver raw_exec."""
    if settings.raw_exec_command:
        return settings.raw_exec_command
    if settings.cluster.kind == "embedded":
        return (sys.executable, "-m", "edgeyard.devices.runner")
    return ("edgeyard-runner",)  # hosts are other machines


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ensure_admin(store: Store, data_dir: Path, now: datetime) -> None:
    """Create the first operator, whose token is in the data folder, readable by its owner alone.

    A token file that is there stays; one that was removed on purpose is not made again.
    """
    path = data_dir / ADMIN_TOKEN_FILE
    with store.read() as uow:
        try:
            uow.accounts.user(ADMIN)
        except NotFound:
            known = False
        else:
            known = True
    if known:
        return
    token = new_token()
    # The file first: an admin without a token would lock everybody out.
    with open_atomically(path, mode=0o600, sync=True) as file:
        file.write(f"{token}\n".encode())
        failpoint("admin:written")
    failpoint("admin:named")

    def add(uow: UnitOfWork) -> None:
        uow.accounts.add_user(_admin(now))
        uow.accounts.add_token(_admin_token(token, "made at the first start", now))

    try:
        store.transact(add)
    except Conflict:
        path.unlink()  # another server that started with us was first: the token is in its folder


def new_admin_token(store: Store, now: datetime, reason: str = "") -> str:
    """Make another token for the account of the first operator, and the account where it is gone.

    No account is needed for this, only the server's database. The log of acts names the user of
    this machine who did it.
    """
    token = new_token()
    made = _admin_token(token, "made on the server's machine", now)

    def add(uow: UnitOfWork) -> None:
        try:
            user = uow.accounts.user(ADMIN, for_update=True)
        except NotFound:
            user = _admin(now)
            uow.accounts.add_user(user)
        usable = replace(user, role=Role.OPERATOR, disabled=False)
        if usable != user:
            uow.accounts.save_user(usable)
        uow.accounts.add_token(made)
        data = {"token_id": made.token_id, "user_id": ADMIN, **difference(None, made)}
        uow.log.append(Event(at=now, kind="token.added", user_id=ADMIN, data=data))

    with acting_as(acting_here("token.added", now, reason=reason)):
        store.transact(add)
    return token


def _admin(now: datetime) -> User:
    return User(user_id=ADMIN, role=Role.OPERATOR, created_at=now, max_priority=10)


def _admin_token(token: str, label: str, now: datetime) -> ApiToken:
    return ApiToken(
        token_id=f"token-{secrets.token_hex(8)}",
        user_id=ADMIN,
        role=Role.OPERATOR,
        sha256=token_hash(token),
        label=label,
        created_at=now,
    )


def server_id(data_dir: Path) -> str:
    """Name of the server that has this data folder: the same in its next life.

    The machine's name is part of it, so that a copy of the folder elsewhere is another server.
    """
    path = data_dir / SERVER_ID_FILE
    try:
        if not path.exists():
            with open_atomically(path, sync=True) as file:
                file.write(f"{secrets.token_hex(4)}\n".encode())
        found = path.read_bytes().decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError([f"{path} can't be read or written: {reason_of(error)}"]) from error
    if re.fullmatch(r"[0-9a-f]{8}", found) is None:
        raise ConfigError(
            [
                f"{path} is damaged: it holds no name of a server, which has 8 hexadecimal "
                "digits; remove it, and the server gets another name"
            ]
        )
    return f"{socket.gethostname()}-{found}"


def lock_data_dir(data_dir: Path) -> IO[bytes]:
    """Return the lock of a data folder, held until it is closed.

    One server a data folder: what its embedded cluster runs and its name are its own.

    Raises:
        ConfigError: Another server has it.
    """
    lock = (data_dir / "server.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise ConfigError(
            [f"another server uses {data_dir}: stop it, or name another folder with --data-dir"]
        ) from error
    return lock


def _url_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # listening everywhere is no address to send boards to
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
