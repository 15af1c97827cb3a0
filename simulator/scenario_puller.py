"""Pulls scenarios from a Prometheus on a timer: one turn after another, with back-off."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from edgeyard.errors import EdgeyardError, InvalidInput
from edgeyard.simulator.importers.prometheus import Pull
from edgeyard.simulator.scenario import Scenario

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 5.0
"""Wait after a first failure; each failure in a row doubles it."""

MAX_WAIT_S = 300.0
_FOLLOWING_S = 10.0


class Report(StrEnum):
    """Events that a puller reports about one window of time."""

    STORED = "stored"
    EMPTY = "empty"
    SKIPPED = "skipped"
    FAILED = "failed"
    RECOVERED = "recovered"


class PulledScenarios(Protocol):
    """Stores the scenarios that a puller has made."""

    def newest(self) -> tuple[str, float] | None:
        """Return name and length of the newest one of this Prometheus; None: there is none."""
        ...

    def add(self, scenario: Scenario) -> None:
        """Store a scenario."""
        ...


class ScenarioPuller:
    """Pulls each complete window once, and continues where the stored ones end.

    While Prometheus does not answer, what is stored stays as it is, each failure is reported, and
    the next try comes after a wait that doubles. Prometheus keeps its past: the windows
    that were missed are pulled when it answers again.
    """

    def __init__(
        self,
        pull: Pull,
        scenarios: PulledScenarios,
        now: Callable[[], datetime],
        report: Callable[[Report, str], None],
        *,
        leads: Callable[[], bool] = lambda: True,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is pulled yet.

        Args:
            pull: What is pulled.
            scenarios: Where it is stored.
            now: The time.
            report: Called with a kind and a sentence.
            leads: Whether this server pulls, of several on one database.
            close: Called at the end.
        """
        self._pull, self._scenarios = pull, scenarios
        self._now, self._report, self._leads = now, report, leads
        self._close = close
        self._failures = 0
        self._continues = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def turn(self) -> float:
        """Pull what is due; return after how many seconds to look again."""
        if not self._leads():
            self._continues = False  # another server has pulled meanwhile
            return _FOLLOWING_S
        try:
            self.pull_due()
        except (EdgeyardError, OSError) as error:
            self._failures += 1
            wait_s = min(FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 32), MAX_WAIT_S)
            self._report(
                Report.FAILED,
                f"nothing was pulled, what is stored stays: {error}; next try in {wait_s:.0f} s "
                f"(failure {self._failures} in a row)",
            )
            return wait_s
        return max((self._pull.due_at(self._now()) - self._now()).total_seconds(), 0.1)

    def pull_due(self) -> None:
        """Pull all windows that are over.

        A window whose data can't be used is left out once a later one is over.

        Raises:
            InvalidInput: The data of the newest window that is over can't be used: Prometheus knows
                no node, for instance.
            Unavailable: Prometheus, or where scenarios are stored, does not answer.
        """
        if not self._continues:
            newest = self._scenarios.newest()
            if newest is not None:
                self._pull.continue_after(*newest)
            self._continues = True
        while self._pull.due_at(self._now()) <= self._now() and not self._stop.is_set():
            self._pull_window()

    def _pull_window(self) -> None:
        try:
            window = self._pull.pull_next(self._now())
        except InvalidInput as error:
            left_out = self._pull.leave_out(self._now())
            if left_out is None:
                raise
            begin, end = left_out
            self._report(Report.SKIPPED, f"{begin} to {end} was left out: {error}")
            return
        if window.skipped:
            self._report(
                Report.SKIPPED, f"{window.skipped} windows before {window.begin} were left out"
            )
        if window.imported is None:
            self._report(Report.EMPTY, f"nothing ran from {window.begin} to {window.end}")
        else:
            scenario = window.imported.scenario
            self._scenarios.add(scenario)
            assert scenario.nodes is not None
            notes = "".join(f"; {note}" for note in window.imported.notes)
            self._report(
                Report.STORED, f"{scenario.name} has {len(scenario.nodes.jobs)} jobs{notes}"
            )
        self._pull.done(window)
        if self._failures:
            self._report(Report.RECOVERED, f"pulled again after {self._failures} failures")
            self._failures = 0

    def start(self) -> None:
        """Pull on a thread from now on."""
        self._thread = threading.Thread(
            target=self._run, name="edgeyard-scenario-puller", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a request to Prometheus that is under way is not waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        self._close()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            try:
                wait_s = self.turn()
            except Exception:
                logger.exception("pulling scenarios failed", extra={"event": "scenarios.broken"})
                wait_s = MAX_WAIT_S


def log_report(kind: Report, sentence: str) -> None:
    """Report to the server's log."""
    level = logging.WARNING if kind in (Report.FAILED, Report.SKIPPED) else logging.INFO
    logger.log(level, "scenarios: %s", sentence, extra={"event": f"scenarios.{kind.value}"})
