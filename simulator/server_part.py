"""What a server has for simulations: ScenarioDB, and scenarios pulled from a Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from edgeyard.benchmark_api.prometheus import Prometheus
from edgeyard.benchmark_api.settings import Settings
from edgeyard.errors import ConfigError, InvalidInput, reason_of
from edgeyard.scheduler.ports import Clock, Store
from edgeyard.simulator import pages, routes
from edgeyard.simulator.importers.prometheus import PULLED, Pull, Queries, read_queries, source_of
from edgeyard.simulator.scenario import Scenario
from edgeyard.simulator.scenario_puller import PulledScenarios, ScenarioPuller, log_report
from edgeyard.simulator.stored import stored_scenario

ROUTERS = (routes.scenarios, routes.simulations)
PAGES = (pages.router,)


class _StoredPulls(PulledScenarios):
    """Pulled scenarios in the server's database."""

    def __init__(self, store: Store, clock: Clock, source: str) -> None:
        self._store, self._clock, self._source = store, clock, source

    def newest(self) -> tuple[str, float] | None:
        with self._store.read() as uow:
            found, _ = uow.scenarios.page(tags=[PULLED], limit=1000)
        own = [each for each in found if each.source == self._source]
        return (own[0].name, own[0].duration_s) if own else None

    def add(self, scenario: Scenario) -> None:
        stored, body = stored_scenario(scenario, created_at=self._clock.now(), source=self._source)
        self._store.transact(lambda uow: uow.scenarios.add(stored, body))


def background(
    settings: Settings, store: Store, clock: Clock, leads: Callable[[], bool]
) -> ScenarioPuller | None:
    """Return the puller of scenarios from the set Prometheus; None if none is set.

    Raises:
        ConfigError: A setting or the file of queries is wrong.
    """
    url = settings.scenario_prometheus
    if url is None:
        return None
    try:
        queries = Queries()
        if settings.scenario_queries is not None:
            queries = read_queries(settings.scenario_queries)
        prometheus = Prometheus(url)
        pull = Pull(
            query=prometheus.query_range,
            queries=queries,
            window_s=settings.scenario_window_s,
            step_s=settings.scenario_step_s,
        )
    except InvalidInput as error:
        raise ConfigError(
            [f"scenario_prometheus, scenario_queries or scenario_step_s: {error}"]
        ) from error
    except OSError as error:
        raise ConfigError(
            [f"scenario_queries: {settings.scenario_queries}: {reason_of(error)}"]
        ) from error
    return ScenarioPuller(
        pull,
        _StoredPulls(store, clock, source_of(url)),
        clock.now,
        log_report,
        leads=leads,
        close=prometheus.close,
    )
