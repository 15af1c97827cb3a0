"""Settings that are taken up while the server runs: on SIGHUP."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from edgeyard.benchmark_api import cluster_settings
from edgeyard.benchmark_api.cluster_settings import ClusterSettings
from edgeyard.benchmark_api.lab_inventory import board_facts
from edgeyard.benchmark_api.local_acts import FILE, SIGNAL, acting_here
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.settings import RELOADED_SETTINGS, Settings
from edgeyard.devices.inventory import Inventory
from edgeyard.errors import ConfigError, EdgeyardError
from edgeyard.scheduler.model.acts import acting, acting_as
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.event_types import EVENT_TYPES
from edgeyard.scheduler.ports import UnitOfWork

logger = logging.getLogger(__name__)

MAX_BOARDS_IN_ACT = 100
"""Boards of which the record of a changed inventory states what was before and is after."""

_Apply = Callable[[Settings, Inventory], Collection[str]]
"""Hands the new values to the parts that have copies of them, all or nothing; returns the settings
whose files have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadResult:
    """What a reload did.

    Attributes:
        changed: Settings that were taken up; those that name files also where only the file
            changed.
        restart_needed: Settings that changed and stay as they were until a restart.
        problems: Why nothing was taken up; empty where it was.
        before: What was taken up, as it was: values by name, without secrets.
        after: The same, as it is now.
    """

    changed: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    before: Mapping[str, object] = field(default_factory=dict)
    after: Mapping[str, object] = field(default_factory=dict)


class Reloader:
    """Takes up what changed in settings, inventory and token; all of it or nothing."""

    def __init__(
        self,
        services: Services,
        load_inventory: Callable[[Settings], Inventory],
        apply: _Apply,
    ) -> None:
        """Nothing is read yet.

        Args:
            services: Whose settings and inventory are replaced.
            load_inventory: Reads the inventory that settings name.
            apply: Takes up the new values; may raise ConfigError before it has changed anything.
        """
        self._services = services
        self._load_inventory = load_inventory
        self._apply = apply
        self._lock = threading.Lock()
        self._first = services.inventory

    def reload(self, load: Callable[[], Settings]) -> ReloadResult:
        """Read everything again, take up what may change, and report it in log and events.

        Args:
            load: Reads the settings from everywhere that they come from.
        """
        with self._lock:
            try:
                result = self._take_up(load())
            except ConfigError as error:
                result = ReloadResult(problems=tuple(error.problems))
            except Exception as error:
                logger.exception("the reload broke", extra={"event": "reload.broke"})
                result = ReloadResult(problems=(type(error).__name__,))
        self._report(result)
        return result

    def reload_inventory(self) -> ReloadResult:
        """Read the inventory alone again; where it is broken, the old one stays.

        Nothing is reported where nothing changed.
        """
        services = self._services
        with self._lock:
            try:
                inventory = self._load_inventory(services.settings)
                self._refuse_new_slices(inventory)
            except ConfigError as error:
                return self._broken(error)
            was_broken, services.inventory_problem = bool(services.inventory_problem), ""
            before = {board.target_uid: board for board in services.inventory.boards}
            after = {board.target_uid: board for board in inventory.boards}
            if before == after:
                if was_broken:
                    nothing: dict[str, object] = {"added": [], "removed": [], "changed": []}
                    self._keep("inventory.reloaded", nothing, FILE)
                return ReloadResult()
            self._apply(services.settings, inventory)
            services.inventory = inventory
        facts = {
            "added": sorted(after.keys() - before.keys()),
            "removed": sorted(before.keys() - after.keys()),
            "changed": sorted(
                uid for uid in before.keys() & after.keys() if before[uid] != after[uid]
            ),
        }
        logger.info("the inventory was reloaded", extra={"event": "inventory.reloaded", **facts})
        touched = [uid for uids in facts.values() for uid in uids][:MAX_BOARDS_IN_ACT]
        changes = {
            name: {uid: board_facts(boards[uid]) for uid in touched if uid in boards}
            for name, boards in (("before", before), ("after", after))
        }
        self._keep("inventory.reloaded", {**facts, **changes}, FILE)
        return ReloadResult(changed=("inventory",))

    def _broken(self, error: ConfigError) -> ReloadResult:
        problem = "; ".join(error.problems)
        if problem != self._services.inventory_problem:
            self._services.inventory_problem = problem
            facts = {"problems": list(error.problems)}
            logger.error(
                "the inventory is broken: the boards that were known before stay",
                extra={"event": "inventory.reload_failed", **facts},
            )
            self._keep("inventory.reload_failed", facts, FILE)
        return ReloadResult(problems=tuple(error.problems))

    def _refuse_new_slices(self, inventory: Inventory) -> None:
        """Raise ConfigError where boards of this machine are new or changed: they need a restart.

        The embedded cluster's boards are cut up at its start. It may lose boards meanwhile.
        """
        if self._services.settings.cluster.kind != "embedded":
            return
        known = {board.target_uid: board.local for board in self._first.boards}
        new = [
            board.target_uid
            for board in inventory.boards
            if board.local is not None and known.get(board.target_uid) != board.local
        ]
        if new:
            raise ConfigError(
                [f"{uid}: a slice of this machine is cut at the server's start" for uid in new]
            )

    def _take_up(self, read: Settings) -> ReloadResult:
        services = self._services
        before = services.settings
        differing = [
            name
            for name in Settings.model_fields
            if name != "clusters" and getattr(read, name) != getattr(before, name)
        ]
        taken = {name: getattr(read, name) for name in differing if name in RELOADED_SETTINGS}
        cluster, of_cluster, later = _cluster_of(read, before)
        settings = before.model_copy(update={**taken, "clusters": cluster})
        inventory = self._load_inventory(settings)
        changed = {*taken, *of_cluster}
        restart_needed = {*later, *(name for name in differing if name not in RELOADED_SETTINGS)}
        if inventory.boards != services.inventory.boards:
            try:
                self._refuse_new_slices(inventory)
                changed.add("inventory")
            except ConfigError:
                inventory = services.inventory
                changed.discard("inventory")
                restart_needed.add("inventory")
        changed.update(self._apply(settings, inventory))
        services.settings, services.inventory = settings, inventory
        return ReloadResult(
            changed=tuple(sorted(changed)),
            restart_needed=tuple(sorted(restart_needed)),
            before=_values(before, changed),
            after=_values(settings, changed),
        )

    def _report(self, result: ReloadResult) -> None:
        facts: Mapping[str, object] = {
            "changed": list(result.changed),
            "restart_needed": list(result.restart_needed),
            "problems": list(result.problems),
        }
        kind = "server.reload_failed" if result.problems else "server.reloaded"
        if result.problems:
            logger.error(
                "the settings were not reloaded: all stay as they were",
                extra={"event": kind, **facts},
            )
        else:
            logger.info("the settings were reloaded", extra={"event": kind, **facts})
        values = {} if result.problems else {"before": result.before, "after": result.after}
        self._keep(kind, {**facts, **values}, SIGNAL)

    def _keep(self, kind: str, facts: Mapping[str, object], by: str) -> None:
        """Record an event, if the database takes it, and who caused it by a signal or a file."""
        now = self._services.clock.now()
        # Within a request it follows from an act that has a record of its own.
        alone = acting() is None and EVENT_TYPES[kind].act
        who = acting_here(kind, now, by) if alone else None

        def keep(uow: UnitOfWork) -> None:
            uow.log.append(Event(at=now, kind=kind, data=facts))

        try:
            with acting_as(who):
                self._services.store.transact(keep)
        except EdgeyardError as error:
            logger.warning(
                "the reload is not in the events",
                extra={"event": "reload.unrecorded", "reason": str(error)},
            )


def _values(settings: Settings, names: Collection[str]) -> dict[str, object]:
    """Return these settings for the log of acts, without secrets and without contents of files."""
    found: dict[str, object] = {}
    for name in sorted(names):
        of_cluster = name.startswith("clusters.")
        holder = settings.cluster if of_cluster else settings
        value = getattr(holder, name.rpartition(".")[2])
        if not isinstance(value, SecretStr):
            plain = isinstance(value, (str, int, float, type(None)))
            found[name] = value if plain else str(value)
    return found


def _cluster_of(
    read: Settings, before: Settings
) -> tuple[Mapping[str, ClusterSettings], set[str], set[str]]:
    """Return the clusters from now on, the names of what was taken up and of what was not."""
    if read.clusters.keys() != before.clusters.keys():
        return before.clusters, set(), {"clusters"}
    name, now, then = read.cluster_name, read.cluster, before.cluster
    if now == then:
        return before.clusters, set(), set()
    differing = [
        each for each in ClusterSettings.model_fields if getattr(now, each) != getattr(then, each)
    ]
    # An address that comes or goes makes it another kind of cluster.
    can_be_taken = cluster_settings.RELOADED if now.kind == then.kind else frozenset[str]()
    taken = {each: getattr(now, each) for each in differing if each in can_be_taken}
    return (
        {name: then.model_copy(update=taken)},
        {f"clusters.{name}.{each}" for each in taken},
        {f"clusters.{name}.{each}" for each in differing if each not in can_be_taken},
    )
