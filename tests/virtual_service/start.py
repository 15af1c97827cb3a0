"""Starts servers in virtual time, as `bootstrap.Server`, on a simulated store and cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from edgeyard.benchmark_api.bootstrap import (
    CLOCK_FILE,
    EngineSurroundings,
    configured_policies,
    make_engine,
    render_settings,
)
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import RunFailed
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.clock import ClockFile, SharedClock, SteadyClock
from edgeyard.scheduler.engine.elected import ElectedEngine
from edgeyard.scheduler.engine.election import LEASE_S, Election
from edgeyard.scheduler.engine.notify import Outbound
from edgeyard.scheduler.engine.policies import Policies
from edgeyard.scheduler.engine.service import FULL_REPAIR_S
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.framework.policy import Policy, read_policy
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.model.files import StoredFile
from edgeyard.scheduler.model.run_bounds import DEFAULT_MAX_RUN_S
from edgeyard.scheduler.ports import MailSend, Sent, UrlFetcher, WebhookPost
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.twin.twin import Twin
from edgeyard.simulator.lab.world import refuse_backfill_in_labs
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import Scenario
from tests.virtual_service.lab import IDLE_S, simulate_service
from tests.virtual_service.server import SimServer
from tests.virtual_service.simulation import ServersCluster, ServiceSimulation, SimMachine
from tests.virtual_service.store import SimStore
from tests.virtual_service.virtual_time import InlineExecutor


class _NoOutbound(UrlFetcher, WebhookPost, MailSend):
    """Simulated servers reach no addresses of users."""

    def fetch(self, url: str, limit_bytes: int, cancelled: Callable[[], bool]) -> StoredFile:
        raise RunFailed("network", "a simulated server downloads nothing")

    def post(
        self, url: str, body: bytes, headers: Mapping[str, str], cancelled: Callable[[], bool]
    ) -> int:
        raise RunFailed("network", "a simulated server calls no webhooks")

    def send(
        self,
        address: str,
        message_id: str,
        message: Mapping[str, object],
        cancelled: Callable[[], bool],
    ) -> Sent:
        return Sent("a simulated server sends no mail")


def simulated_server(
    simulation: ServiceSimulation,
    machine: SimMachine,
    settings: Settings,
    *,
    policy: Policy | None = None,
    plugins: Registry | None = None,
    lease_s: float = LEASE_S,
    full_repair_s: float = FULL_REPAIR_S,
) -> SimServer:
    """Start a server, as `Server`, on the store and the cluster of a simulation, on one thread.

    Args:
        simulation: The whole service in virtual time.
        machine: On which the server starts.
        settings: With a data folder of the simulation's own, in which all servers have their files.
        policy: Decides; None: the one that the settings name.
        plugins: All that can be named; None: those that Edgeyard brings.
        lease_s: Silence after which a leader is replaced.
        full_repair_s: Between two comparisons of all jobs with the cluster.

    Raises:
        EdgeyardError: It can't start now: the store does not answer, for example.
    """
    clock_file = ClockFile(settings.data_dir / f"{machine.name}-{CLOCK_FILE}")
    clocks = machine.clocks
    clock = SharedClock(SteadyClock(clocks.wall, clocks.monotonic_s), boot_id=machine.name)
    clock.restore(clock_file.read())

    def save_time() -> None:
        if not machine.faults.dead:
            clock_file.write(clock.record())

    public_url = "http://127.0.0.1:1"
    store = SimStore(simulation.url, machine.faults, now=clock.now)
    try:
        with store.read() as uow:
            clock.restore(uow.leadership.clock())
        plugins = plugins or registry(entry_points=False)
        if policy is None:
            policy_text = read_policy(settings.policy)
            policies = configured_policies(settings, policy_text, plugins)
            store.transact(lambda uow: policies.keep_configured(uow, policy_text, clock.now()))
        else:
            policies = Policies(plugins, policy)
        election = Election(store, clock, machine.name, public_url, lease_s=lease_s)
        twin = Twin(simulation.cluster.boards())
        outbound = _NoOutbound()
        surroundings = EngineSurroundings(
            store=store,
            cluster=ServersCluster(simulation, machine, store),
            election=election,
            twin=twin,
            files=ContentFiles(settings.data_dir / "files"),
            clock=clock,
            policies=policies,
            plugins=plugins,
            past=PastRuns(settings.history_runs, settings.history_days * 86400.0),
            render=render_settings(settings, public_url),
            verify=simulation.reader.verify,
            observe=lambda name, value, labels: None,
            fetcher=outbound,
            outbound=Outbound(
                post=outbound,
                sign=lambda hook, body, at: {},
                write_chat=lambda form, message: b"",
                mail=outbound,
            ),
            save_time=save_time,
            file_limits=settings.file_limits,
            live_settings=lambda: settings,
            executor=InlineExecutor(),
            new_id=simulation.new_id,
            full_repair_s=full_repair_s,
        )
        engine = ElectedEngine(election, partial(make_engine, settings, surroundings))
        engine.begin()
    except BaseException:
        store.close()
        raise
    return SimServer(
        store=store, engine=engine, clock=clock, set_inventory=twin.set_inventory, close=store.close
    )


def simulate_whole_service(
    scenario: Scenario,
    policy: Policy,
    plugins: Registry | None = None,
    *,
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> SimulatedRun:
    """Simulate a scenario of a lab with the whole service, in a temporary folder.

    Args:
        scenario: Its world must be ``boards``.
        policy: Decides.
        plugins: All that can be named; None: those that Edgeyard brings.
        seed: Of arrivals and faults; None: the scenario's.
        progress: Called now and then with the share of benchmarks that have ended, 0-1.

    Raises:
        ConfigError: A plugin of the policy is not installed.
        InvalidInput: The scenario has no end, or is of another world; or the policy backfills.
    """
    refuse_backfill_in_labs(policy)
    max_run_s = DEFAULT_MAX_RUN_S if scenario.lab is None else scenario.lab.max_run_s
    changed: dict[str, Any] = {"default_user_time_s": max_run_s}
    if scenario.lab is not None:
        changed["tariff"] = ",".join(f"{each:g}" for each in scenario.lab.tariff)
    with TemporaryDirectory(prefix="edgeyard-sim-") as folder:
        settings = Settings(data_dir=Path(folder), **changed)
        server_factory = partial(
            simulated_server,
            settings=settings,
            policy=policy,
            plugins=plugins,
            lease_s=10 * IDLE_S,
            full_repair_s=IDLE_S,
        )
        return simulate_service(
            scenario,
            policy.name,
            f"sqlite:///{folder}/edgeyard.db",
            server_factory,
            seed=seed,
            progress=progress,
        )
