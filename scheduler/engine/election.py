"""Which server's engine may write: the leader's lease, taken, renewed and watched."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

from edgeyard.errors import LeadershipLost
from edgeyard.scheduler.clock import TOLERANCE_S, SharedClock
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.leadership import LeaderLease
from edgeyard.scheduler.ports import Store

logger = logging.getLogger(__name__)

LEASE_S = 8.0
"""A leader that was not seen to renew its lease for so long is replaced."""

TURN_S = 1.5
"""Interval between renewals, or checks of the leader's; a lease outlasts some late renewals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """Who leads, as one server sees it.

    Attributes:
        leads: Whether it is this server.
        epoch: Of the lease; 0: no server has led.
        server_id: Who leads, or led last; "" where the last leader released the lease.
        url: Where that server is reached.
        since: When it began to lead.
        silent_s: For how long this server has seen no sign of life of the leader, seconds.
        lease_s: For how long a leader may be silent.
        clock_ahead_s: How far this server's clock is ahead of the time that all servers share.
    """

    leads: bool
    epoch: int
    server_id: str
    url: str
    since: datetime | None
    silent_s: float
    lease_s: float
    clock_ahead_s: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether a server leads whose lease has not expired."""
        return self.server_id != "" and self.silent_s < self.lease_s + 2 * TURN_S


class Election:
    """Leads, or watches the leader and replaces it. `turn` on one thread, the rest on any.

    This server's clock follows the leader's, whose time comes with each renewal.

    A lease is judged by this server's monotonic clock alone. The leader stops its calls to the
    cluster when its lease is over by its own clock, counted from before its last renewal; others
    count from when they saw that renewal, which is later. Its transactions are fenced by the
    database: see `Store.fenced`.
    """

    def __init__(
        self,
        store: Store,
        clock: SharedClock,
        server_id: str,
        url: str,
        *,
        candidate: bool = True,
        lease_s: float = LEASE_S,
    ) -> None:
        """Nothing is read before `turn`.

        Args:
            store: The one that all servers share; not a fenced one.
            clock: This server's, which follows the leader's.
            server_id: Never that of two servers that run at the same time. A server that finds
                its own lease of a former life takes it at once.
            url: Where this server is reached, for people.
            candidate: Whether it may lead.
            lease_s: Silence after which a leader is replaced.
        """
        self._store = store
        self._clock = clock
        self._server_id = server_id
        self._url = url
        self._candidate = candidate
        self._lease_s = lease_s
        self._lock = threading.Lock()  # guards all below
        self._seen: LeaderLease | None = None
        self._seen_s = -math.inf
        self._read_s = -math.inf
        self._epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch that this server leads; None while it follows."""
        with self._lock:
            return self._epoch

    def holds(self, epoch: int) -> bool:
        """Return whether this server leads the epoch, and its lease is valid by its own clock."""
        with self._lock:
            in_time = self._clock.monotonic_s() < self._seen_s + self._lease_s
            return self._epoch == epoch and in_time

    def view(self) -> LeaderView:
        """Return which server leads, as far as this one knows."""
        with self._lock:
            seen = self._seen or LeaderLease(epoch=0, renewals=0, server_id="", url="")
            return LeaderView(
                leads=self._epoch is not None,
                epoch=seen.epoch,
                server_id=seen.server_id,
                url=seen.url,
                since=seen.since,
                silent_s=self._clock.monotonic_s() - self._seen_s,
                lease_s=self._lease_s,
                clock_ahead_s=self._clock.ahead_s(),
            )

    def turn(self) -> None:
        """Renew the lease, or take it where it is over.

        Raises:
            Unavailable: The database does not answer.
        """
        epoch = self.epoch
        if epoch is None:
            self._watch()
            return
        now_s = self._clock.monotonic_s()
        self._clock.lead()
        try:
            with self._store.write() as uow:
                uow.leadership.renew(epoch, self._clock.now())
        except LeadershipLost:
            logger.warning(
                "another server has taken the lead", extra={"event": "leader.lost", "epoch": epoch}
            )
            with self._lock:
                self._epoch, self._seen = None, None
            self._watch()
        else:
            with self._lock:
                self._seen_s = now_s

    def resign(self) -> None:
        """Let another server lead at once.

        Raises:
            Unavailable: The database does not answer; the lease runs out.
        """
        epoch = self.epoch
        if epoch is None:
            return
        with self._lock:
            self._epoch = None
        with self._store.write() as uow:
            uow.leadership.release(epoch)

    def _watch(self) -> None:
        now_s = self._clock.monotonic_s()
        with self._store.read() as uow:
            lead = uow.leadership.current()
        self._follow_time(lead)
        with self._lock:
            # Who did not look for a while has not seen that the leader was silent.
            if lead != self._seen or now_s > self._read_s + self._lease_s:
                self._seen, self._seen_s = lead, now_s
            self._read_s = now_s
            over = now_s >= self._seen_s + self._lease_s
        if self._candidate and (over or lead.server_id in ("", self._server_id)):
            self._take(lead)

    def _follow_time(self, lead: LeaderLease) -> None:
        """Adopt the leader's time where it has shown it since the last check."""
        seen = self._seen
        if lead.at is None or (seen is not None and seen.at == lead.at):
            return
        if lead.age_s is not None:
            self._clock.follow(lead.at + timedelta(seconds=max(0.0, lead.age_s)))
        elif seen is not None:
            self._clock.follow(lead.at)
        else:
            self._clock.resume(lead.at, lag_s=TURN_S)  # what it stored since its last renewal

    def _take(self, lead: LeaderLease) -> None:
        now_s, ahead_s = self._clock.monotonic_s(), self._clock.ahead_s()
        with self._store.write() as uow:
            now = self._clock.now()
            taken = uow.leadership.take(lead, self._server_id, self._url, now, self._lease_s)
            if taken is not None and abs(ahead_s) > TOLERANCE_S:
                data = {"server_id": self._server_id, "ahead_s": round(ahead_s, 1)}
                uow.log.append(Event(at=now, kind="server.clock_differs", data=data))
        if taken is None:
            return
        self._clock.lead()
        with self._lock:
            self._epoch, self._seen, self._seen_s = taken.epoch, taken, now_s
        logger.info(
            "this server leads",
            extra={"event": "leader.taken", "epoch": taken.epoch, "before": lead.server_id},
        )
