"""Plugins by name: those that Edgeyard brings, and those of entry points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata

from edgeyard.errors import ConfigError
from edgeyard.scheduler.framework.policy import Policy, ScorerChoice
from edgeyard.scheduler.framework.protocols import (
    Aggregator,
    Evaluator,
    Filter,
    QueuePolicy,
    Scorer,
)


class Kind(StrEnum):
    """An extension point; its value is the group of its entry points."""

    QUEUE_POLICY = "edgeyard.queue_policies"
    FILTER = "edgeyard.filters"
    SCORER = "edgeyard.scorers"
    EVALUATOR = "edgeyard.evaluators"
    AGGREGATOR = "edgeyard.aggregators"


_MEMBERS: Mapping[Kind, tuple[str, ...]] = {
    Kind.QUEUE_POLICY: ("order", "reason"),
    Kind.FILTER: ("refusals", "admit", "phrase", "explain_infeasible"),
    Kind.SCORER: ("objective", "kind", "unit", "score"),
    Kind.EVALUATOR: ("evaluate",),
    Kind.AGGREGATOR: ("combine", "learn"),
}

_OURSELVES = "edgeyard"

Factory = Callable[..., object]
"""Makes a plugin; a scorer's takes the options that a policy states, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedScorer:
    """A scorer in a policy.

    Attributes:
        weight: How much its answer counts before anything was learned.
        budget_s: Time for an answer; inf: any.
    """

    scorer: Scorer
    weight: float = 1.0
    budget_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """The plugins that a policy names, ready to be used.

    Attributes:
        scorers: In the policy's order.
        fallback: Scores when no scorer does; None: all boards are equal then.
        evaluator: None: no scorer is rated.
        lock: Held during each call of one of them. The engine, where several threads make
            decisions, puts one in; nothing here knows of threads.
    """

    queue_policy: QueuePolicy
    filters: tuple[Filter, ...]
    scorers: tuple[WeightedScorer, ...]
    aggregator: Aggregator
    fallback: Scorer | None = None
    evaluator: Evaluator | None = None
    lock: AbstractContextManager[object] = field(
        default_factory=nullcontext, compare=False, repr=False
    )


Options = Mapping[str, str | int | float | bool]

OutOfProcessFactory = Callable[[str, str, Options], Scorer]
"""``(name, where, options)`` to a scorer that runs outside of this process."""


class Registry:
    """Names to factories. Filled at start, read afterwards."""

    def __init__(
        self,
        *,
        isolated: OutOfProcessFactory | None = None,
        remote: OutOfProcessFactory | None = None,
    ) -> None:
        """Nothing is known yet.

        Args:
            isolated: Runs scorers of other distributions (``module:attribute``) and of files
                (``/path/to/file.py:attribute``); None: those of distributions are loaded into
                this process, and those of files refused.
            remote: Asks scorers at a URL; None: they are refused.
        """
        self._factories: dict[tuple[Kind, str], tuple[Factory, str]] = {}
        self._isolated = isolated
        self._remote = remote

    def add(self, kind: Kind, name: str, factory: Factory, source: str = "edgeyard") -> None:
        """Make a plugin known.

        Args:
            kind: Its extension point.
            name: What policies call it.
            factory: Makes the plugin; called when a policy names it.
            source: Who brings it, for messages.

        Raises:
            ConfigError: The name is taken.
        """
        taken = self._factories.get((kind, name))
        if taken is not None:
            raise ConfigError(
                [f"{kind}: two plugins are called {name!r}: one of {taken[1]}, one of {source}"]
            )
        self._factories[kind, name] = (factory, source)

    def add_entry_points(self, found: Iterable[metadata.EntryPoint] | None = None) -> None:
        """Make the plugins of installed distributions known, without loading them.

        Args:
            found: Entry points to take instead of the installed ones.

        Raises:
            ConfigError: Names that are taken; all of them.
        """
        if found is None:
            installed = metadata.entry_points()  # reads the files of all distributions: once
            found = [point for kind in Kind for point in installed.select(group=kind.value)]
        problems: list[str] = []
        groups = {kind.value: kind for kind in Kind}
        for point in found:
            source = point.dist.name if point.dist else point.value
            kind = groups[point.group]
            factory = _loading(point)
            if kind is Kind.SCORER and self._isolated is not None and source != _OURSELVES:
                factory = _out_of_process(self._isolated, point.name, point.value)
            try:
                self.add(kind, point.name, factory, source)
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems)

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Return the sorted names of all plugins of a kind."""
        return tuple(sorted(name for each, name in self._factories if each is kind))

    def resolve(self, policy: Policy) -> Plugins:
        """Return the plugins that the policy names.

        Raises:
            ConfigError: A name is unknown, or its plugin can't be made; all of them.
        """
        problems: list[str] = []

        def make(
            kind: Kind,
            name: str,
            options: Options | None = None,
            place: tuple[Factory, str] | None = None,
        ) -> object:
            found: list[str] = []
            made = self._made(kind, name, options or {}, place, found)
            problems.extend(f"policy {policy.name}: {problem}" for problem in found)
            return made

        queue_policy = make(Kind.QUEUE_POLICY, policy.queue_policy)
        filters = tuple(make(Kind.FILTER, name) for name in policy.filters)
        scorers = tuple(
            (make(Kind.SCORER, each.name, each.options, self._place(each)), each)
            for each in policy.scorers
        )
        aggregator = make(Kind.AGGREGATOR, policy.aggregator)
        fallback = make(Kind.SCORER, policy.fallback) if policy.fallback else None
        evaluator = make(Kind.EVALUATOR, policy.evaluator) if policy.evaluator else None
        if problems:
            raise ConfigError(problems)
        return Plugins(
            queue_policy=queue_policy,  # type: ignore[arg-type]  # its members were looked at
            filters=filters,  # type: ignore[arg-type]
            scorers=tuple(
                WeightedScorer(scorer=scorer, weight=each.weight, budget_s=each.budget_s)  # type: ignore[arg-type]
                for scorer, each in scorers
            ),
            aggregator=aggregator,  # type: ignore[arg-type]
            fallback=fallback,  # type: ignore[arg-type]
            evaluator=evaluator,  # type: ignore[arg-type]
        )

    def queue_policy(self, name: str) -> QueuePolicy:
        """Make a queue policy by its name.

        Raises:
            ConfigError: The name is unknown, or its plugin can't be made.
        """
        problems: list[str] = []
        made = self._made(Kind.QUEUE_POLICY, name, {}, None, problems)
        if problems:
            raise ConfigError(problems)
        return made  # type: ignore[return-value]  # its members were looked at

    def _made(
        self,
        kind: Kind,
        name: str,
        options: Options,
        place: tuple[Factory, str] | None,
        problems: list[str],
    ) -> object:
        """Make a plugin; what is wrong is added to ``problems``."""
        known = place or self._factories.get((kind, name))
        if known is None:
            problems.append(
                f"{kind} has no {name!r}; it has: {', '.join(self.names(kind)) or 'none'}"
            )
            return None
        try:
            plugin = known[0](**options)
        except Exception as error:  # of an author we don't know: named, not passed on
            problems.append(f"plugin {name!r} of {known[1]}: {error!r}")
            return None
        missing = [each for each in _MEMBERS[kind] if not hasattr(plugin, each)]
        if missing:
            problems.append(f"plugin {name!r} of {known[1]} lacks {', '.join(missing)}")
        return plugin

    def _place(self, choice: ScorerChoice) -> tuple[Factory, str] | None:
        """Return what makes a scorer that a policy brings, and its source; None: it has a name."""
        where = choice.file or choice.url
        if where is None:
            return None
        run = self._isolated if choice.file else self._remote
        if run is None:
            return _refusing, where
        return _out_of_process(run, choice.name, where), where


def _out_of_process(run: OutOfProcessFactory, name: str, where: str) -> Factory:
    def make(**options: str | int | float | bool) -> object:
        return run(name, where, options)

    return make


def _refusing(**options: str | int | float | bool) -> object:
    raise ValueError("this program does not run scorers of files and URLs")


def _loading(point: metadata.EntryPoint) -> Factory:
    def make(**options: str | int | float | bool) -> object:
        loaded: Factory = point.load()
        return loaded(**options)

    return make
