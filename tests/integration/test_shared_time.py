"""Servers whose clocks differ by minutes share one time: a take-over ends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgeyard.benchmark_api.auth import Authenticator
from edgeyard.scheduler.clock import SETTLE_S, SLEW, SharedClock, SteadyClock
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.election import LEASE_S, TURN_S, Election
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.users import Role
from edgeyard.scheduler.store import SqlStore
from tests.builders.api import add_account
from tests.builders.engine import A, B, Lab
from tests.databases import open_store
from tests.fakes.clock import FixedClock
from tests.fakes.cluster import FakeCluster, board

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TEN_MINUTES_S = 600.0
BOTH_WAYS = pytest.mark.parametrize(
    "ahead_s", [TEN_MINUTES_S, -TEN_MINUTES_S], ids=["ahead", "behind"]
)


class Server:
    """A server on a machine of its own."""

    def __init__(self, servers: Servers, name: str, ahead_s: float = 0.0) -> None:
        self.servers, self.name = servers, name
        self.machine = FixedClock(servers.truth.at + timedelta(seconds=ahead_s))
        self.start()
        servers.all.append(self)

    def start(self) -> None:
        """A new process, which knows nothing."""
        self.time = SharedClock(SteadyClock(self.machine.now, self.machine.monotonic_s))
        self.election = Election(self.servers.store, self.time, self.name, f"http://{self.name}")
        self.lab: Lab | None = None

    def turn(self) -> None:
        """What its threads do meanwhile."""
        self.election.turn()
        epoch = self.election.epoch
        if epoch is None:
            return
        if self.lab is None:
            self.servers.leader = self
            self.lab = Lab(
                self.servers.folder,
                A,
                B,
                store=self.servers.store.fenced(epoch),
                cluster=self.servers.cluster,
                clock=self.machine,
                time=self.time,
            )
            self.lab.reconciler.run(after_restart=True)
        self.lab.turn()


class Servers:
    """All servers on one store and one cluster; time passes for all machines alike."""

    def __init__(self, folder: Path, store: SqlStore) -> None:
        self.folder, self.store = folder, store
        self.truth = FixedClock(NOON)
        self.all: list[Server] = []
        self.leader: Server | None = None
        self.cluster = FakeCluster(self._now, board(A), board(B))

    def _now(self) -> datetime:
        return self.truth.now() if self.leader is None else self.leader.time.now()

    def forward(self, seconds: float, *alive: Server) -> None:
        for _ in range(round(seconds / TURN_S)):
            self.truth.forward(TURN_S)
            for server in self.all:
                server.machine.forward(TURN_S)
            for server in alive:
                server.turn()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    store = open_store(tmp_path)
    yield Servers(tmp_path, store)
    store.close()


def two_servers(servers: Servers, ahead_s: float) -> tuple[Server, Server]:
    """The first one leads; the clock of the second is ahead."""
    first, second = Server(servers, "first"), Server(servers, "second", ahead_s)
    servers.forward(15, first, second)
    return first, second


def lab_of(server: Server) -> Lab:
    assert server.lab is not None, f"{server.name} does not lead"
    return server.lab


@BOTH_WAYS
def test_a_take_over_by_a_server_with_another_clock_ends_nothing(
    servers: Servers, ahead_s: float
) -> None:
    first, second = two_servers(servers, ahead_s)
    lab = lab_of(first)
    runs = lab.submit(user_time_s=400.0, target=None, target_uid=A)
    job_id = lab.running(runs)
    began = servers.truth.now()
    due = servers.truth.now() + timedelta(seconds=300)
    late = lab.submit(target=None, target_uid=A, deadline=due)
    patient = lab.submit(target=None, target_uid=A, queue_timeout_s=300.0)
    lab.lease(B, seconds=300)
    leased = lab.submit(target=None, target_uid=B)
    token = add_account(servers.store, "ann", Role.SUBMITTER, servers.truth.now(), expires_at=due)
    servers.forward(30, first, second)

    servers.forward(LEASE_S + 4 * TURN_S, second)  # the first one is dead
    assert second.election.epoch == 2
    servers.forward(150, second)
    now = lab_of(second)
    assert servers.cluster.stopped == []
    assert now.attempt(job_id).state == "running"
    assert {now.show(each).status for each in (late, patient, leased)} == {Status.PENDING}
    assert Authenticator(servers.store, second.time).caller(token).user_id == "ann"

    servers.forward((due - servers.truth.now()).total_seconds() + 15, second)
    assert [now.show(each).status for each in (late, patient)] == [Status.EXPIRED] * 2
    assert now.show(leased).status is Status.SCHEDULED
    assert servers.cluster.stopped == []
    now.upload(job_id)
    servers.cluster.end(job_id)
    ran_s = (servers.truth.now() - began).total_seconds()
    servers.forward(TURN_S, second)
    assert now.show(runs).status is Status.COMPLETED
    with servers.store.read() as uow:
        (outcome,) = (each for each in uow.attempts.outcomes() if each.benchmark_id == runs)
        assert uow.credits.balance("ann").spent == pytest.approx(ran_s, rel=0.01)
    assert outcome.run_s == pytest.approx(ran_s, rel=0.01)


@BOTH_WAYS
def test_times_that_a_following_server_stores_are_the_leaders(
    servers: Servers, ahead_s: float
) -> None:
    first, second = two_servers(servers, ahead_s)
    lab = lab_of(first)
    benchmark_id = lab.submit()
    lab.turn()
    (attempt,) = lab.attempts(benchmark_id)
    with servers.store.write() as uow:  # a host reports its progress to the second server
        found = uow.attempts.by_job_id(attempt.job_id)
        lifecycle.progress_received(uow, found, 5.0, "measuring", second.time.now())
    (attempt,) = lab.attempts(benchmark_id)
    assert _seconds_since_start(attempt, servers) == pytest.approx(0, abs=2.5)
    assert second.time.ahead_s() == pytest.approx(ahead_s, abs=2.5)


@BOTH_WAYS
def test_the_new_leader_reports_how_far_its_clock_differs(servers: Servers, ahead_s: float) -> None:
    _, second = two_servers(servers, ahead_s)
    servers.forward(2 * LEASE_S, second)
    with servers.store.read() as uow:
        events = uow.log.events(after=0, limit=100)
    (event,) = [each for each in events if each.kind == "server.clock_differs"]
    assert event.data["server_id"] == "second"
    assert event.data["ahead_s"] == pytest.approx(ahead_s, abs=2.5)


@BOTH_WAYS
def test_the_shared_time_approaches_the_leaders_clock_slowly(
    servers: Servers, ahead_s: float
) -> None:
    _, second = two_servers(servers, ahead_s)
    servers.forward(15, second)
    before_s = second.time.ahead_s()
    servers.forward(300, second)
    assert abs(before_s) - abs(second.time.ahead_s()) == pytest.approx(300 * SLEW, rel=0.1)


@BOTH_WAYS
def test_a_clock_that_is_corrected_after_a_take_over_changes_no_time(
    servers: Servers, ahead_s: float
) -> None:
    _, second = two_servers(servers, ahead_s)
    servers.forward(15, second)
    second.machine.step(-ahead_s)
    servers.forward(SETTLE_S + 30, second)
    off_s = (second.time.now() - servers.truth.now()).total_seconds()
    assert off_s == pytest.approx(0, abs=2.5)
    assert second.time.ahead_s() == pytest.approx(0, abs=2.5)


@BOTH_WAYS
def test_a_server_that_starts_again_with_a_wrong_clock_ends_nothing_before_it_is_set(
    servers: Servers, ahead_s: float
) -> None:
    """The machine started again, so that nothing but the database knows the time."""
    only = Server(servers, "only")
    servers.forward(15, only)
    lab = lab_of(only)
    job_id = lab.running(lab.submit(user_time_s=100.0, target=None, target_uid=A))
    due = servers.truth.now() + timedelta(seconds=300)
    waits = [
        lab.submit(target=None, target_uid=A, deadline=due),
        lab.submit(target=None, target_uid=A, queue_timeout_s=300.0),
    ]
    servers.forward(15, only)
    only.machine.step(ahead_s)
    only.start()
    servers.forward(45, only)
    only.machine.step(-ahead_s)
    servers.forward(SETTLE_S - 30, only)
    lab = lab_of(only)
    assert servers.cluster.stopped == []
    assert lab.attempt(job_id).state == "running"
    assert {lab.show(each).status for each in waits} == {Status.PENDING}


def _seconds_since_start(attempt: Attempt, servers: Servers) -> float:
    assert attempt.started_at is not None
    return (servers.truth.now() - attempt.started_at).total_seconds()
