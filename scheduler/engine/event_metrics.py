"""Metrics of what happened, read off the event log: one place instead of a counter at each move."""

from __future__ import annotations

from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.model.benchmark import TERMINAL, FailureCategory, Status
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Store

_BATCH = 1000
_TERMINAL = frozenset(status.value for status in TERMINAL)


class EventMetrics:
    """Follows the log from where it was made. One thread."""

    def __init__(self, store: Store, observe: Observe) -> None:
        self._store = store
        self._observe = observe
        with store.read() as uow:
            self._seen = uow.log.last_seq()

    def catch_up(self) -> None:
        """Report the metrics of all events that are new."""
        while True:
            with self._store.read() as uow:
                events = uow.log.events(after=self._seen, limit=_BATCH)
            for event in events:
                self._observe_event(event)
                self._seen = event.seq
            if len(events) < _BATCH:
                return

    def _observe_event(self, event: Event) -> None:
        data = event.data
        if event.kind == "attempt.state" and isinstance(data.get("run_s"), float):
            labels = {"family": str(data.get("family")), "engine": str(data.get("engine"))}
            self._observe("run_seconds", float(str(data["run_s"])), labels)
        if event.kind == "benchmark.preempted":
            self._observe("preemptions_total", 1, {})
        if event.kind != "benchmark.status":
            return
        status, category = str(data.get("status")), str(data.get("category", ""))
        if status in _TERMINAL:
            cause = category if status == Status.FAILED else ""
            self._observe("finished_total", 1, {"status": status, "category": cause})
        if data.get("deadline_missed") is True:
            self._observe("deadline_missed_total", 1, {})
        if data.get("retry") is True and category != FailureCategory.PREEMPTED:
            self._observe("retries_total", 1, {"category": category})
        if status == Status.RUNNING and isinstance(data.get("wait_s"), float):
            self._observe("queue_wait_seconds", float(str(data["wait_s"])), {})
