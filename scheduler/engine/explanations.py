"""What recorded cycles tell when somebody asks: of a benchmark, and of a shadow policy."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from edgeyard.errors import NotFound
from edgeyard.scheduler.decide.changes import Changes, what_would_change
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.record import given_of, policy_of, result_of
from edgeyard.scheduler.engine.replay import Compared, beside
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.model.decision import Explanation
from edgeyard.scheduler.ports import Store


class Explanations:
    """Reads recorded cycles; remembers the last one, which most questions are about. Any thread."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._lock = threading.Lock()  # a result belongs to one thread at a time
        self._last: tuple[int, CycleResult] | None = None

    def of(self, benchmark_id: str) -> Explanation:
        """The newest of a benchmark.

        Raises:
            NotFound: No cycle has looked at it yet.
            ConfigError: A plugin of the cycle's policy is no longer installed.
        """
        with self._store.read() as uow:
            explained = uow.cycles.explained(benchmark_id)
            with self._lock:
                known = self._last
            record = None
            if known is None or known[0] != explained.seq:
                record = uow.cycles.get(explained.seq)
        with self._lock:
            if record is not None:
                plugins = self._registry.resolve(policy_of(record))
                known = self._last = (explained.seq, result_of(record, plugins))
            assert known is not None
            found = known[1].explanation(benchmark_id)
        return found if explained.waiting is None else replace(found, waiting=explained.waiting)

    def shadows(
        self, since: datetime | None, until: datetime | None, limit: int
    ) -> Sequence[tuple[int, Compared]]:
        """What shadows decided beside the cycles decided within [since, until), newest first.

        Raises:
            ConfigError: A plugin of a recorded policy is no longer installed.
        """
        with self._store.read() as uow:
            heads = uow.cycles.shadows(since=since, until=until, limit=limit)
        found = []
        for head in heads:
            assert head.shadow_of is not None
            with self._store.read() as uow:
                try:
                    record, shadow = uow.cycles.get(head.shadow_of), uow.cycles.get(head.seq)
                except NotFound:  # dropped by age meanwhile
                    continue
            compared = beside(record, shadow, self._registry)
            found.append((head.shadow_of, replace(compared, policy=shadow.policy)))
        return found

    def changes(self, benchmark_id: str) -> Changes | None:
        """What would let it start sooner, by deciding its cycle again.

        Returns:
            None where it did not wait in that cycle.

        Raises:
            NotFound: No cycle has looked at it yet.
            ConfigError: A plugin of the cycle's policy is no longer installed.
        """
        with self._store.read() as uow:
            record = uow.cycles.get(uow.cycles.explained(benchmark_id).seq)
        policy = policy_of(record)
        plugins = self._registry.resolve(policy)
        if benchmark_id not in result_of(record, plugins).waiting:
            return None
        return what_would_change(given_of(record), policy, plugins, benchmark_id)
