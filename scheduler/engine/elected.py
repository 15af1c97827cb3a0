"""The engine of a server that is one of several: it works while its server leads.

While another server leads, it only keeps the answers to questions fresh.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from edgeyard.errors import ClusterUnreachable, EdgeyardError, Unavailable
from edgeyard.scheduler.cluster_decorator import ClusterDecorator
from edgeyard.scheduler.engine.election import TURN_S, Election, LeaderView
from edgeyard.scheduler.engine.service import Engine
from edgeyard.scheduler.ports import Cluster

logger = logging.getLogger(__name__)

JOIN_S = 5.0


class ElectedEngine:
    """Makes an engine for each epoch that its server leads, and one that follows in between.

    Nothing of an engine outlives its epoch, so that no cache holds what another leader changed.
    `start` runs threads; after `begin` the caller takes the turns, with `step` and those of the
    engine that is `leading`.
    """

    def __init__(
        self,
        election: Election,
        engine_of: Callable[[int | None], Engine],
        retire: Callable[[], object] = lambda: None,
    ) -> None:
        """Nothing is started before `start`.

        Args:
            election: Which server leads.
            engine_of: Makes an engine for an epoch; None: one that follows.
            retire: Ends what belongs to an epoch apart from its engine, when another server leads.
        """
        self._election = election
        self._engine_of = engine_of
        self._retire = retire
        self._stop = threading.Event()
        self._changed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._epoch: int | None = None
        self._wanted = 1
        self._made = 0
        self._has_threads = True
        self._engine = engine_of(None)

    @property
    def current(self) -> Engine:
        """The engine that answers questions now. Any thread; the next call may return another."""
        return self._engine

    @property
    def leading(self) -> Engine | None:
        """The engine of the epoch that this server leads; None while it follows."""
        return None if self._epoch is None else self._engine

    def begin(self) -> None:
        """Do what `start` does, without threads.

        Raises:
            Unavailable: The database does not answer.
        """
        self._has_threads = False
        self._election.turn()
        self._guarded("epoch", self._change)

    def step(self) -> None:
        """Take or renew the lease, and have the engine of the present epoch, on this thread."""
        self._guarded("lease", self._election.turn)
        self._guarded("epoch", self._change)

    def start(self) -> None:
        """Lead if no server does, and repair what the last leader left behind; follow otherwise.

        Raises:
            Unavailable: The database does not answer.
        """
        self._election.turn()
        for name, loop in (("lease", self._lease_loop), ("epoch", self._epoch_loop)):
            thread = threading.Thread(target=loop, name=f"edgeyard-{name}")
            self._threads.append(thread)
            if name == "lease":  # renewed while the first repair goes on
                thread.start()
        try:
            self._change()
        except Unavailable as error:  # the lease was lost at once, or the database is: tried again
            logger.warning(
                "the engine did not start",
                extra={"event": "epoch.failed", "reason": str(error)},
            )
        finally:
            self._threads[-1].start()

    def stop(self) -> None:
        """End all threads, then let another server lead."""
        self._stop.set()
        self._changed.set()
        for thread in self._threads:
            thread.join(JOIN_S)
        self._engine.stop()
        try:
            self._election.resign()
        except EdgeyardError as error:
            logger.warning(
                "the lease was not released",
                extra={"event": "leader.not_released", "reason": str(error)},
            )

    def renew(self) -> None:
        """Make the engine anew, soon, within the same epoch: its settings have changed."""
        self._wanted += 1
        self._changed.set()

    def leader(self) -> LeaderView:
        """Return which server leads, as far as this one knows. Any thread."""
        return self._election.view()

    def wake(self) -> None:
        """Implement `Engine.wake`. Where another server leads, that one looks every second."""
        self._engine.wake()

    # The loops are each the outermost of their thread, so each may catch everything.

    def _lease_loop(self) -> None:
        while not self._stop.wait(TURN_S):
            self._guarded("lease", self._election.turn)
            if self._election.epoch != self._epoch:
                self._changed.set()

    def _epoch_loop(self) -> None:
        while not self._stop.is_set():
            self._changed.wait(TURN_S)
            self._changed.clear()
            if not self._stop.is_set():
                self._guarded("epoch", self._change)

    def _change(self) -> None:
        """Have the engine of the present epoch and settings; again, where that failed."""
        epoch, wanted = self._election.epoch, self._wanted
        if self._made == wanted and epoch == self._epoch:
            return
        self._made = 0
        self._engine.stop()
        if self._epoch is not None and epoch != self._epoch:
            self._retire()
        self._epoch = epoch
        self._engine = engine = self._engine_of(epoch)
        if not self._has_threads:
            if epoch is not None:
                engine.begin()
        elif epoch is None:
            engine.follow()
        else:
            engine.start()
        self._made = wanted
        if self._stop.is_set():
            engine.stop()  # `stop` may have ended the one before

    def _guarded(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except EdgeyardError as error:
            logger.warning(
                "engine step failed", extra={"event": f"{what}.failed", "reason": str(error)}
            )
        except Exception:
            logger.exception("engine step broke", extra={"event": f"{what}.broke"})


class LeadersCluster(ClusterDecorator[Cluster]):
    """The cluster for the engine of one epoch: changes nothing there once its lease is over.

    A call that is under way when the lease ends may still take effect. Jobs are created under the
    name of their attempt, once; the next leader stops those of attempts that have ended.
    """

    def __init__(self, inner: Cluster, holds: Callable[[], bool]) -> None:
        """Pass calls on while ``holds`` says so."""
        super().__init__(inner)
        self._holds = holds

    def dispatch(self, job_id: str, hcl: str, secrets: Mapping[str, str]) -> str | None:
        """Implement `Cluster.dispatch`; ClusterUnreachable where the lease is over."""
        self._must_lead()
        return super().dispatch(job_id, hcl, secrets)

    def stop(self, job_id: str) -> None:
        """Implement `Cluster.stop`; ClusterUnreachable where the lease is over."""
        self._must_lead()
        super().stop(job_id)

    def _must_lead(self) -> None:
        if not self._holds():
            raise ClusterUnreachable("this server's lease is over: another one may lead")
