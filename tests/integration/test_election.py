"""One server leads: who, until when, and what a server that no longer does can still change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeyard.errors import ClusterUnreachable, LeadershipLost
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.clock import SharedClock, SteadyClock
from edgeyard.scheduler.engine.cycle import Cycle
from edgeyard.scheduler.engine.elected import LeadersCluster
from edgeyard.scheduler.engine.election import LEASE_S, TURN_S, Election
from edgeyard.scheduler.engine.twin_refresher import TwinRefresher
from edgeyard.scheduler.framework.policy import load_policy
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.twin.twin import Twin
from tests.builders.engine import A, B, Lab
from tests.fakes.clock import FixedClock
from tests.fakes.cluster import FakeCluster, board

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Server:
    """One that takes part in the election; its clock shows what it likes."""

    def __init__(self, store: SqlStore, name: str, at: datetime = NOON, **changes: bool) -> None:
        self.clock = FixedClock(at)
        self.time = SharedClock(SteadyClock(self.clock.now, self.clock.monotonic_s))
        self.election = Election(store, self.time, name, f"http://{name}", **changes)

    @property
    def leads(self) -> bool:
        return self.election.view().leads


def _pass(seconds: float, *servers: Server) -> None:
    """Time goes by; the servers that are named are alive."""
    for _ in range(round(seconds / TURN_S)):
        for server in servers:
            server.clock.forward(TURN_S)
            server.election.turn()


def test_the_first_server_leads_and_the_others_know_it(store: SqlStore) -> None:
    first, second = Server(store, "first"), Server(store, "second")
    first.election.turn()
    second.election.turn()
    assert (first.leads, second.leads) == (True, False)
    view = second.election.view()
    assert (view.epoch, view.server_id, view.url, view.alive) == (1, "first", "http://first", True)


def test_a_live_leader_is_not_replaced_at_any_clock_difference(store: SqlStore) -> None:
    first = Server(store, "first", NOON)
    second = Server(store, "second", NOON.replace(year=2031))
    third = Server(store, "third", NOON.replace(year=2020))
    _pass(600, first, second, third)
    assert (first.leads, second.leads, third.leads) == (True, False, False)
    assert first.election.epoch == 1


def test_a_dead_leader_is_replaced_in_time_by_one_server(store: SqlStore) -> None:
    first, second, third = (Server(store, name) for name in ("first", "second", "third"))
    _pass(30, first, second, third)
    _pass(LEASE_S - TURN_S, second, third)
    assert not (second.leads)
    assert not (third.leads)
    _pass(15 - LEASE_S, second, third)
    assert second.leads != third.leads
    assert {second.election.epoch, third.election.epoch} == {2, None}


def test_a_leader_that_was_stopped_finds_that_another_one_leads(store: SqlStore) -> None:
    first, second = Server(store, "first"), Server(store, "second")
    _pass(15, first, second)
    first.clock.forward(LEASE_S)
    assert not first.election.holds(1), "its lease is over by its own clock before it asks anybody"
    _pass(2 * LEASE_S, second)
    assert second.leads
    first.election.turn()
    assert not first.leads
    assert first.election.view().server_id == "second"


def test_a_leader_that_could_not_renew_goes_on_where_nobody_took_over(store: SqlStore) -> None:
    first = Server(store, "first")
    first.election.turn()
    first.clock.forward(10 * LEASE_S)
    assert not first.election.holds(1)
    first.election.turn()
    assert first.election.holds(1)


def test_a_server_that_was_paused_does_not_take_over_at_once(
    store: SqlStore,
) -> None:
    first, second = Server(store, "first"), Server(store, "second")
    _pass(15, first, second)
    for each in (first, second):  # as while the database is away
        each.clock.forward(10 * LEASE_S)
    second.election.turn()
    first.election.turn()
    assert (first.leads, second.leads) == (True, False)


def test_a_server_leads_again_at_once_after_its_own_death(store: SqlStore) -> None:
    Server(store, "first").election.turn()
    again = Server(store, "first")
    again.election.turn()
    assert again.election.epoch == 2


def test_a_leader_that_resigns_is_replaced_at_the_next_turn(store: SqlStore) -> None:
    first, second = Server(store, "first"), Server(store, "second")
    _pass(15, first, second)
    first.election.resign()
    _pass(TURN_S, second)
    assert second.leads


def test_a_server_of_role_api_never_leads(store: SqlStore) -> None:
    server = Server(store, "only", candidate=False)
    _pass(60, server)
    assert not server.leads
    assert not server.election.view().alive


# --- what a server that no longer leads can still change ------------------------------------------


class Engines:
    """Two servers' engines on one store and one cluster, which tests run step by step."""

    def __init__(self, folder: Path, store: SqlStore) -> None:
        self.store = store
        self.clock = FixedClock(NOON)
        self.cluster = FakeCluster(self.clock.now, board(A), board(B))
        self.folder = folder

    def lead(self, name: str) -> Lab:
        """A server that takes the lead, and its engine."""
        time = SharedClock(SteadyClock(self.clock.now, self.clock.monotonic_s))
        election = Election(self.store, time, name, "")
        with self.store.write() as uow:
            uow.leadership.release(uow.leadership.current().epoch)
        election.turn()
        epoch = election.epoch
        assert epoch is not None
        return Lab(
            self.folder,
            A,
            B,
            store=self.store.fenced(epoch),
            cluster=self.cluster,
            engine_cluster=LeadersCluster(self.cluster, lambda: election.holds(epoch)),
            clock=self.clock,
        )


@pytest.fixture
def engines(store: SqlStore, tmp_path: Path) -> Engines:
    return Engines(tmp_path, store)


def _decide(lab: Lab, job_ids: list[str]) -> None:
    lab.decide()


def _dispatch(lab: Lab, job_ids: list[str]) -> None:
    lab.dispatch(*job_ids)


def _repair(lab: Lab, job_ids: list[str]) -> None:
    lab.reconciler.run()


@pytest.mark.parametrize("step", [_decide, _dispatch, _repair])
def test_no_step_of_a_former_leader_changes_anything(
    engines: Engines, step: Callable[[Lab, list[str]], None]
) -> None:
    former = engines.lead("former")
    first = former.submit()
    job_id = former.running(first)
    former.submit()
    prepared = former.decide()
    third = former.submit()
    engines.cluster.end(job_id)
    leader = engines.lead("leader")
    dispatched = list(engines.cluster.dispatched)
    with engines.store.read() as uow:
        before = uow.benchmarks.live_versions(), uow.attempts.live_versions()
    with pytest.raises(LeadershipLost):
        step(former, prepared)
    with engines.store.read() as uow:
        assert (uow.benchmarks.live_versions(), uow.attempts.live_versions()) == before
    assert engines.cluster.dispatched == dispatched
    leader.dispatch(*prepared)
    leader.turn()
    assert leader.attempts(first)[-1].state is AttemptState.UPLOADING
    assert len(engines.cluster.dispatched) == len(set(engines.cluster.dispatched)) == 2
    assert leader.show(third).status is Status.PENDING


def test_a_call_that_a_former_leader_is_about_to_make_is_not_made(engines: Engines) -> None:
    clock = FixedClock(NOON)
    time = SharedClock(SteadyClock(clock.now, clock.monotonic_s))
    election = Election(engines.store, time, "former", "")
    election.turn()
    cluster = LeadersCluster(engines.cluster, lambda: election.holds(1))
    cluster.dispatch("job-1", "", {})
    clock.forward(LEASE_S)  # the process was stopped, say, between commit and call
    with pytest.raises(ClusterUnreachable, match="lease"):
        cluster.dispatch("job-2", "", {})
    with pytest.raises(ClusterUnreachable, match="lease"):
        cluster.stop("job-1")
    assert engines.cluster.dispatched == ["job-1"]
    assert not engines.cluster.stopped


def test_a_server_that_follows_answers_questions_and_writes_nothing(engines: Engines) -> None:
    leader = engines.lead("leader")
    running = leader.submit()
    leader.running(running)
    waiting = [leader.submit(), leader.submit()]
    leader.turn()
    policy = load_policy("default")
    follower = Cycle(
        engines.store.fenced(99),  # an epoch that never was: whatever writes fails
        TwinRefresher(Twin((board(A), board(B))), engines.cluster, engines.clock),
        policy,
        registry().resolve(policy),
        engines.clock,
    )
    outcome = follower.follow()
    assert set(outcome.queue.order) <= set(waiting)
    assert {each.benchmark_id for each in outcome.decided.holders} >= {running}
    assert follower.preview(replace(outcome.decided.pending[0], benchmark_id="asked")).order
