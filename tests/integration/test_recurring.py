"""Schedules that are left to Nomad: what is registered there, and what becomes of its runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgeyard.errors import ClusterUnreachable, JobRefused, NotFound
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.intake import add_schedule, fire_due
from edgeyard.scheduler.engine.recurring import (
    LAST_START_GRACE,
    MAX_RETRY_INTERVAL_S,
    RETRY_INTERVAL_S,
    RecurringStarts,
)
from edgeyard.scheduler.hcl.build import UPLOAD_TOKEN, RenderSettings
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.job import NomadJob, Periodic
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.model.attempt import AttemptState
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    Binding,
    CronBy,
    FileRole,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.quotas import Quotas
from edgeyard.scheduler.model.recurring import ScheduleJobState, is_parent, parent_of, schedule_of
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import BenchmarkFilter
from edgeyard.scheduler.store import SqlStore
from tests.builders.engine import Lab as EngineLab
from tests.databases import open_store
from tests.fakes.clock import FixedClock
from tests.fakes.cluster import FakeCluster, board

BOARD = "rpi4b-0001-0001"
DESCRIPTION = JobDescription(
    model="net.onnx",
    runtime="ort",
    benchmark_type=BenchmarkType.TYPE1,
    target="rpi4b",
    cron="*/2 * * * *",
    cron_by=CronBy.NOMAD,
)
MODEL = BenchmarkFile(
    role=FileRole.MODEL, position=0, name="net.onnx", sha256="a" * 64, size_bytes=5
)
SETTINGS = RenderSettings(public_url="http://api.test", driver="raw_exec", command="runner")


class Lab:
    """A store, a Nomad and a server that leads."""

    def __init__(self, store: SqlStore, clock: FixedClock) -> None:
        self.store, self.clock = store, clock
        self.nomad = FakeCluster(clock.now, board(BOARD))
        self.starts = self.server()
        with store.write() as uow:
            owner = User(user_id="ann", role=Role.SUBMITTER, created_at=clock.now())
            uow.accounts.add_user(replace(owner, max_priority=5))

    def server(self, quotas: Quotas | None = None) -> RecurringStarts:
        return RecurringStarts(
            self.store,
            self.nomad,
            self.clock,
            SETTINGS,
            check_round_trip,
            quotas=lambda: quotas or Quotas(),
            max_run_s=60,
        )

    def scheduled(self, **changes: object) -> CronSchedule:
        described = replace(DESCRIPTION, **changes)  # type: ignore[arg-type]
        with self.store.write() as uow:
            schedule = add_schedule(uow, described, "ann", [MODEL], self.clock.now())
        self.turn()
        return schedule

    def turn(self) -> Sequence[str]:
        return self.starts.turn(refresh=True)

    def parents(self) -> Mapping[str, bool]:
        """Whether each parent may start runs, by id."""
        return {job_id: job.live for job_id, job in self.nomad.recurring().items()}

    def parent(self) -> str:
        (found,) = [job_id for job_id, live in self.parents().items() if live]
        return found

    def job(self) -> NomadJob:
        return parse_job(self.nomad.texts[self.parent()])

    def launch(self, after_s: float = 60) -> tuple[str, str]:
        parent = self.parent()
        self.clock.forward(after_s)
        return self.nomad.launch(parent, self.clock.now())

    def benchmarks(self) -> Sequence[Benchmark]:
        """Oldest first."""
        with self.store.read() as uow:
            found = uow.benchmarks.page(BenchmarkFilter(), limit=50, cursor=None)[0]
        return sorted(found, key=lambda each: each.submit_time)

    def kept(self, schedule: CronSchedule) -> CronSchedule:
        with self.store.read() as uow:
            return uow.schedules.get(schedule.schedule_id)

    def change(self, schedule: CronSchedule, **changes: object) -> None:
        with self.store.write() as uow:
            kept = uow.schedules.get(schedule.schedule_id)
            uow.schedules.save(replace(kept, **changes))  # type: ignore[arg-type]

    def states(self, schedule: CronSchedule) -> Sequence[ScheduleJobState]:
        with self.store.read() as uow:
            return [each.state for each in uow.schedules.jobs(schedule.schedule_id)]

    def events(self, kind: str) -> Sequence[Event]:
        with self.store.read() as uow:
            found = uow.log.events(after=0, limit=200)
        return [each for each in found if each.kind == kind]

    def skipped(self) -> Sequence[Event]:
        return self.events("schedule.skipped")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    clock = FixedClock(datetime(2026, 11, 21, 9, 0, 30, tzinfo=UTC))
    store = open_store(tmp_path, now=clock.now)
    yield Lab(store, clock)
    store.close()


def test_a_schedule_is_one_periodic_job(lab: Lab) -> None:
    schedule = lab.scheduled(prohibit_overlap=True)
    parent = lab.parent()
    assert parent == f"benchmark-{schedule.schedule_id}-1"
    assert is_parent(parent)
    job = lab.job()
    assert job.periodic == Periodic(cron="*/2 * * * *", prohibit_overlap=True, time_zone="UTC")
    assert job.priority == 50
    values = {each.attribute: each.value for each in job.constraints}
    assert values["${device.attr.family}"] == "rpi4b"
    assert "${device.attr.target_uid}" not in values
    (token,) = lab.nomad.secrets[parent].values()
    assert list(lab.nomad.secrets[parent]) == [UPLOAD_TOKEN]
    assert token not in lab.nomad.texts[parent]
    with lab.store.read() as uow:
        kept = uow.schedules.job(parent)
        assert kept.token_sha256 == hashlib.sha256(token.encode()).hexdigest()
        sources = [each.source for each in job.artifacts]
        names = [each.rpartition("/")[2] for each in sources]
        assert [uow.schedules.grant(name).filename for name in names] == ["net.onnx", "spec.json"]
        assert f"/v1/runs/{parent.removeprefix('benchmark-')}/exchange".encode() in (
            uow.schedules.grant(names[1]).content or b""
        )
    for _ in range(3):
        lab.clock.forward(60)
        assert lab.turn() == ()
    assert lab.nomad.dispatched == [parent]


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({"binding": Binding.LOOSE}, None),
        ({"target_uid": BOARD, "target": None}, ("${device.attr.target_uid}", BOARD)),
        ({}, ("${device.attr.dynamic.progress}", "1")),
    ],
)
def test_its_runs_are_bound_as_the_description_says(
    lab: Lab, changes: Mapping[str, object], constraint: tuple[str, str] | None
) -> None:
    lab.scheduled(**changes)
    job = lab.job()
    usual = ("family", "engines", "engine.ort.supported_types")
    further = [
        (each.attribute, each.value)
        for each in job.constraints
        if each.attribute not in {f"${{device.attr.{name}}}" for name in usual}
    ]
    assert further == ([] if constraint is None else [constraint])


def test_edgeyard_itself_does_not_fire_it(lab: Lab) -> None:
    schedule = lab.scheduled()
    lab.clock.forward(3600)
    assert fire_due(lab.store, lab.clock) == 0
    lab.turn()
    assert lab.benchmarks() == []
    assert lab.kept(schedule).next_fire > lab.clock.now()


def test_each_run_is_a_benchmark_of_the_schedule_and_adopted_once(lab: Lab) -> None:
    schedule = lab.scheduled()
    other = lab.server()  # of another server, which led until a moment ago
    runs = []
    for number in range(1, 4):
        run, _ = lab.launch()
        runs.append(run)
        assert lab.starts.is_news(run)
        assert lab.turn() == (run,)
        assert not lab.starts.is_news(run)
        assert other.turn(refresh=True) == lab.turn() == ()
        benchmark = lab.benchmarks()[-1]
        assert benchmark.schedule_id == benchmark.series == schedule.schedule_id
        assert benchmark.status is Status.SCHEDULED
        assert benchmark.description.cron is None
        assert lab.kept(schedule).last_benchmark_id == benchmark.benchmark_id
        assert len(lab.benchmarks()) == number
    with lab.store.read() as uow:
        live = uow.attempts.live()
    assert {each.job_id for each in live} == set(runs)
    assert all(each.state is AttemptState.QUEUED for each in live)
    assert all(each.upload_token_sha256 is None for each in live)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [({"name": "nightly"}, "nightly"), ({"name": "nightly", "series": "detector"}, "detector")],
)
def test_the_runs_of_a_schedule_are_one_series(
    lab: Lab, stated: Mapping[str, object], expected: str
) -> None:
    lab.scheduled(**stated)
    for _ in range(2):
        lab.launch()
        lab.turn()
    assert [each.series for each in lab.benchmarks()] == [expected, expected]


def test_a_server_that_was_away_adopts_what_runs_and_makes_up_for_the_newest_that_ended(
    lab: Lab,
) -> None:
    schedule = lab.scheduled()
    ended = [lab.launch()[0] for _ in range(3)]
    for run in ended:
        lab.nomad.end(run, began=False)
    runs = [lab.launch()[0] for _ in range(2)]
    assert lab.server().turn(refresh=True) == tuple(runs)
    assert len(lab.benchmarks()) == 2
    assert lab.kept(schedule).skipped == 3
    assert len(lab.skipped()) == 3

    last = [lab.launch()[0] for _ in range(2)]
    for run in last:
        lab.nomad.end(run, began=False)
    assert lab.server().turn(refresh=True) == (last[1],)
    assert lab.kept(schedule).skipped == 4


def test_a_deleted_schedule_starts_no_more_and_its_runs_go_on(lab: Lab) -> None:
    schedule = lab.scheduled()
    parent = lab.parent()
    run, _ = lab.launch()
    lab.turn()
    names = [each.source.rpartition("/")[2] for each in lab.job().artifacts]
    lab.change(schedule, active=False)
    lab.turn()
    assert lab.nomad.stopped == [parent]
    lab.turn()
    assert lab.nomad.recurring()[parent].runs[0].live
    assert lab.states(schedule) == [ScheduleJobState.REGISTERED]
    with lab.store.read() as uow:
        assert uow.schedules.grant(names[0]).filename == "net.onnx"  # its run may still need it
    lab.nomad.end(run)
    lab.turn()
    assert lab.states(schedule) == [ScheduleJobState.ENDED]
    with lab.store.read() as uow, pytest.raises(NotFound):
        uow.schedules.grant(names[0])
    with lab.store.read() as uow:
        assert uow.schedules.left_to_nomad() == []
    assert lab.nomad.stopped == [parent]


def test_what_changes_the_job_registers_another_version(lab: Lab) -> None:
    schedule = lab.scheduled()
    first = lab.parent()
    run, _ = lab.launch()
    with lab.store.write() as uow:
        uow.accounts.save_user(replace(uow.accounts.user("ann"), max_priority=2))
    assert lab.turn() == (run,)  # of the old one
    assert lab.parents() == {first: False, f"benchmark-{schedule.schedule_id}-2": True}
    assert lab.job().priority == 20
    later, _ = lab.launch()
    assert lab.turn() == (later,)
    assert lab.benchmarks()[-1].description.user_priority == 2


def test_a_disabled_account_has_its_schedule_stopped_and_an_enabled_one_gets_it_back(
    lab: Lab,
) -> None:
    schedule = lab.scheduled()
    first = lab.parent()
    for disabled in (True, False):
        with lab.store.write() as uow:
            uow.accounts.save_user(replace(uow.accounts.user("ann"), disabled=disabled))
        lab.clock.forward(RETRY_INTERVAL_S)
        lab.turn()
    assert lab.kept(schedule).active
    assert lab.parents() == {first: False, f"benchmark-{schedule.schedule_id}-2": True}


def test_a_registration_of_unknown_outcome_is_replaced_and_what_came_of_it_is_stopped(
    lab: Lab,
) -> None:
    lab.nomad.answers_after_the_effect = False
    lab.scheduled()
    lab.nomad.answers_after_the_effect = True
    (first,) = lab.parents()
    run, _ = lab.nomad.launch(first, lab.clock.now())
    assert lab.turn() == (run,)  # a run is a run
    assert not lab.parents()[first]
    lab.clock.forward(RETRY_INTERVAL_S)
    lab.turn()
    assert lab.parent() != first
    assert len(lab.parents()) == 2


def test_one_moment_is_one_run_even_of_two_jobs(lab: Lab) -> None:
    schedule = lab.scheduled()
    first, (run, _) = lab.parent(), lab.launch()
    lab.nomad.launch(first.removesuffix("1") + "2", lab.clock.now())  # not known to the database
    assert lab.turn() == (run,)
    with lab.store.write() as uow:
        uow.schedules.add_job(
            replace(uow.schedules.job(first), job_id=first.removesuffix("1") + "2", version=2), ()
        )
    assert lab.turn() == ()
    assert len(lab.benchmarks()) == 1
    assert lab.kept(schedule).skipped == 0


def test_a_job_that_was_removed_in_nomad_is_registered_again_but_not_at_once(lab: Lab) -> None:
    lab.scheduled()
    first = lab.parent()
    del lab.nomad.jobs[first]
    lab.turn()
    assert lab.parents() == {}
    lab.clock.forward(RETRY_INTERVAL_S)
    lab.turn()
    assert lab.parent() == first.removesuffix("1") + "2"


def test_a_run_past_a_quota_is_stopped_and_counted_as_skipped(lab: Lab) -> None:
    schedule = lab.scheduled()
    lab.starts = lab.server(Quotas(max_live=1))
    first, _ = lab.launch()
    assert lab.turn() == (first,)
    second, _ = lab.launch()
    assert lab.turn() == ()
    assert lab.nomad.stopped == [second]
    assert lab.kept(schedule).skipped == 1
    (event,) = lab.skipped()
    assert "max_live" in str(event.data["sentence"])
    assert len(lab.benchmarks()) == 1


def test_a_schedule_that_is_over_is_ended_after_its_last_start(lab: Lab) -> None:
    due = lab.clock.now() + timedelta(seconds=30)
    schedule = lab.scheduled(cron=f"{due:%S %M %H %d %m} * {due:%Y}")
    run, _ = lab.launch(31)
    assert lab.turn() == (run,)
    assert lab.kept(schedule).active
    lab.clock.forward(LAST_START_GRACE.total_seconds())
    lab.turn()
    assert not lab.kept(schedule).active
    assert not any(lab.parents().values())
    assert lab.nomad.recurring()[lab.nomad.dispatched[0]].runs[0].live


def test_a_broken_schedule_holds_up_no_other(lab: Lab) -> None:
    with lab.store.write() as uow:
        broken = add_schedule(uow, DESCRIPTION, "ann", [MODEL], lab.clock.now())
        uow.schedules.save(replace(broken, description={}))
    good = lab.scheduled()
    assert list(lab.parents()) == [f"benchmark-{good.schedule_id}-1"]
    assert lab.starts.turn() == ()


def test_a_schedule_without_its_file_is_ended_and_says_why(lab: Lab) -> None:
    with lab.store.write() as uow:
        files = [replace(MODEL, sha256=None)]
        schedule = add_schedule(uow, DESCRIPTION, "ann", files, lab.clock.now())
    lab.turn()
    ended = lab.kept(schedule)
    assert not ended.active
    (event,) = lab.events("schedule.ended")
    assert "net.onnx" in str(event.data["sentence"])
    assert ended.problem == event.data["sentence"]
    assert lab.parents() == {}


def test_a_refusal_that_may_pass_is_tried_again_after_longer_and_longer_waits(lab: Lab) -> None:
    lab.nomad.refuses = ("the quota of the namespace is exceeded", False)
    schedule = lab.scheduled()
    waits = []
    for _ in range(7):
        kept = lab.kept(schedule)
        assert kept.active
        assert "quota" in (kept.problem or "")
        assert kept.retry_at is not None
        waits.append((kept.retry_at - lab.clock.now()).total_seconds())
        lab.clock.forward(waits[-1] - 1)
        lab.turn()
        assert lab.kept(schedule) == replace(kept, next_fire=lab.kept(schedule).next_fire)
        lab.clock.forward(1)
        lab.turn()
    assert waits == [10, 20, 40, 80, 160, MAX_RETRY_INTERVAL_S, MAX_RETRY_INTERVAL_S]
    (event,) = lab.events("schedule.postponed")
    assert (event.user_id, event.data["schedule_id"]) == ("ann", schedule.schedule_id)
    assert set(lab.states(schedule)) == {ScheduleJobState.ENDED}
    assert lab.kept(schedule).skipped == 0

    lab.nomad.refuses = None
    lab.clock.forward(MAX_RETRY_INTERVAL_S)
    lab.turn()
    assert lab.parent()
    assert (lab.kept(schedule).problem, lab.kept(schedule).retry_at) == (None, None)


def test_a_refusal_for_good_ends_the_schedule_with_its_reason(lab: Lab) -> None:
    lab.nomad.refuses = ("1 error occurred: * Missing task driver", True)
    schedule = lab.scheduled()
    ended = lab.kept(schedule)
    assert (ended.active, ended.retry_at) == (False, None)
    assert "Missing task driver" in (ended.problem or "")
    (event,) = lab.events("schedule.ended")
    assert event.data["sentence"] == ended.problem
    assert lab.states(schedule) == [ScheduleJobState.ENDED]
    with lab.store.read() as uow:
        assert uow.schedules.left_to_nomad() == []


def test_a_refusal_that_names_the_job_is_one_event_however_often_it_is_tried(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        raise JobRefused(job_id, f'job "{job_id}" is in nonexistent node pool "arm"', lasting=False)

    monkeypatch.setattr(lab.nomad, "dispatch", refuse)
    schedule = lab.scheduled()
    for _ in range(3):
        lab.clock.forward(MAX_RETRY_INTERVAL_S)
        lab.turn()
    assert len(lab.states(schedule)) == 4
    (event,) = lab.events("schedule.postponed")
    assert 'nonexistent node pool "arm"' in str(event.data["sentence"])
    assert lab.kept(schedule).problem == event.data["sentence"]


def test_a_schedule_that_is_ended_while_nomad_refuses_its_job_has_no_problem(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        with lab.store.write() as uow:
            ended = uow.schedules.get(schedule_of(job_id) or "")
            uow.schedules.save(replace(ended, active=False))
        raise JobRefused(job_id, "1 error occurred: * Missing task driver")

    monkeypatch.setattr(lab.nomad, "dispatch", refuse)
    schedule = lab.scheduled()
    assert (lab.kept(schedule).active, lab.kept(schedule).problem) == (False, None)
    assert lab.events("schedule.ended") == []


def test_a_schedule_whose_crontab_is_none_any_more_is_ended_and_its_job_stopped(lab: Lab) -> None:
    schedule = lab.scheduled()
    parent = lab.parent()
    lab.change(schedule, cron="* * * * mon#2")
    lab.clock.forward(120)
    lab.turn()
    ended = lab.kept(schedule)
    assert not ended.active
    assert "mon#2" in (ended.problem or "")
    (event,) = lab.events("schedule.ended")
    assert event.data["sentence"] == ended.problem
    assert lab.parents() == {parent: False}


def test_one_schedule_that_nomad_does_not_take_now_holds_up_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither registrations of others, nor the runs that its earlier job has started."""
    refused = lab.scheduled()
    run, _ = lab.launch()
    with lab.store.write() as uow:
        uow.accounts.save_user(replace(uow.accounts.user("ann"), max_priority=2))
        bob = User(user_id="bob", role=Role.SUBMITTER, created_at=lab.clock.now())
        uow.accounts.add_user(bob)
        add_schedule(uow, DESCRIPTION, "bob", [MODEL], lab.clock.now())
    dispatch = lab.nomad.dispatch

    def answer(job_id: str, hcl: str, secrets: Mapping[str, str]) -> None:
        if schedule_of(job_id) == refused.schedule_id:
            raise ClusterUnreachable("Nomad answered 500: it knows no such host")
        dispatch(job_id, hcl, secrets)

    monkeypatch.setattr(lab.nomad, "dispatch", answer)
    assert lab.turn() == (run,)
    assert schedule_of(lab.parent()) != refused.schedule_id
    assert "no such host" in (lab.kept(refused).problem or "")
    later, _ = lab.nomad.launch(
        f"benchmark-{refused.schedule_id}-1", lab.clock.now() + timedelta(1)
    )
    assert lab.turn() == (later,)


def test_a_cancelled_run_is_only_that(lab: Lab) -> None:
    schedule = lab.scheduled()
    lab.launch()
    lab.turn()
    (benchmark,) = lab.benchmarks()
    with lab.store.write() as uow:
        lifecycle.cancel(uow, benchmark.benchmark_id, lab.clock.now(), "ann")
    lab.turn()
    assert lab.kept(schedule).active
    assert lab.parents() == {lab.parent(): True}


def test_a_quiet_nomad_is_asked_every_few_seconds_only(lab: Lab) -> None:
    lab.scheduled()
    lab.turn()
    lab.nomad.reachable = False
    assert lab.starts.turn() == ()  # no call
    lab.clock.forward(RETRY_INTERVAL_S)
    with pytest.raises(ClusterUnreachable):
        lab.starts.turn()


def of_schedule(engine: EngineLab) -> tuple[RecurringStarts, CronSchedule]:
    """A schedule without overlaps of an engine's own, and what keeps it in line with Nomad."""
    starts = RecurringStarts(
        engine.store, engine.cluster, engine.clock, SETTINGS, check_round_trip, max_run_s=60
    )
    with engine.store.write() as uow:
        owner = User(user_id="ann", role=Role.SUBMITTER, created_at=engine.clock.now())
        uow.accounts.add_user(owner)
        described = replace(DESCRIPTION, prohibit_overlap=True)
        schedule = add_schedule(uow, described, "ann", [MODEL], engine.clock.now())
    starts.turn()
    return starts, schedule


def test_while_its_board_is_down_at_most_one_benchmark_of_a_schedule_waits(tmp_path: Path) -> None:
    """Nomad starts another run as soon as the one before it is taken back."""
    engine = EngineLab(tmp_path, start_grace_s=300.0)
    starts, schedule = of_schedule(engine)
    parent = f"benchmark-{schedule.schedule_id}-1"
    first, _ = engine.cluster.launch(parent, engine.clock.now())
    assert starts.turn(refresh=True) == (first,)
    engine.clock.forward(301)
    engine.reconciler.run()
    assert engine.cluster.stopped == [first]
    early, _ = engine.cluster.launch(parent, engine.clock.now())
    assert starts.turn(refresh=True) == ()  # the end of the first one is not known here yet
    assert starts.is_news(early)
    assert engine.cluster.stopped == [first]
    engine.reconciler.run()
    runs = [early]
    for _ in range(3):
        assert starts.turn() == ()
        assert engine.cluster.stopped[1:] == runs
        engine.clock.forward(60)
        runs.append(engine.cluster.launch(parent, engine.clock.now())[0])
    with engine.store.read() as uow:
        (waits,) = uow.benchmarks.page(BenchmarkFilter(), limit=10, cursor=None)[0]
        assert waits.status is Status.PENDING
        kept = uow.schedules.get(schedule.schedule_id)
        assert (kept.skipped, kept.last_benchmark_id) == (3, waits.benchmark_id)
    with engine.store.write() as uow:
        lifecycle.cancel(uow, waits.benchmark_id, engine.clock.now(), "ann")
    assert starts.turn(refresh=True) == (runs[-1],)
    engine.store.close()


def test_a_run_waits_until_the_result_of_the_one_before_it_is_taken_up(tmp_path: Path) -> None:
    engine = EngineLab(tmp_path, BOARD)
    starts, schedule = of_schedule(engine)
    parent = f"benchmark-{schedule.schedule_id}-1"
    first, _ = engine.cluster.launch(parent, engine.clock.now())
    starts.turn(refresh=True)
    engine.cluster.start(first, BOARD)
    engine.reconciler.run()
    engine.upload(first)
    engine.cluster.end(first)
    engine.clock.forward(60)
    second, _ = engine.cluster.launch(parent, engine.clock.now())
    assert starts.turn(refresh=True) == ()
    engine.reconciler.run()
    assert starts.turn() == (second,)
    with engine.store.read() as uow:
        assert uow.schedules.get(schedule.schedule_id).skipped == 0
        found = uow.benchmarks.page(BenchmarkFilter(), limit=10, cursor=None)[0]
    assert sorted(each.status.value for each in found) == ["completed", "scheduled"]
    engine.store.close()


def test_runs_of_two_versions_of_a_job_do_not_overlap_where_that_is_prohibited(lab: Lab) -> None:
    schedule = lab.scheduled(prohibit_overlap=True)
    first, _ = lab.launch()
    with lab.store.write() as uow:
        uow.accounts.save_user(replace(uow.accounts.user("ann"), max_priority=2))
    assert lab.turn() == (first,)
    second, _ = lab.launch()
    assert lab.turn() == ()
    assert second in lab.nomad.stopped
    assert lab.nomad.recurring()[parent_of(first) or ""].runs[0].live
    assert lab.kept(schedule).skipped == 1
    (event,) = lab.skipped()
    assert "prohibits overlaps" in str(event.data["sentence"])


def test_the_queue_time_out_of_a_run_that_nomad_does_not_place_applies(tmp_path: Path) -> None:
    engine = EngineLab(tmp_path, BOARD)
    starts = RecurringStarts(
        engine.store, engine.cluster, engine.clock, SETTINGS, check_round_trip, max_run_s=60
    )
    with engine.store.write() as uow:
        uow.accounts.add_user(
            User(user_id="ann", role=Role.SUBMITTER, created_at=engine.clock.now())
        )
        description = replace(DESCRIPTION, queue_timeout_s=10)
        schedule = add_schedule(uow, description, "ann", [MODEL], engine.clock.now())
    starts.turn()
    parent = f"benchmark-{schedule.schedule_id}-1"
    run, _ = engine.cluster.launch(parent, engine.clock.now())
    assert starts.turn(refresh=True) == (run,)
    with engine.store.read() as uow:
        (attempt,) = uow.attempts.live()
    engine.clock.forward(9)
    engine.turn()
    assert engine.show(attempt.benchmark_id).status is Status.SCHEDULED
    engine.clock.forward(1)
    engine.turn()
    assert engine.show(attempt.benchmark_id).status is Status.EXPIRED
    engine.turn()
    assert engine.cluster.stopped == [run]
    engine.store.close()


def test_a_run_that_makes_no_benchmark_is_stopped_although_nomad_did_not_answer_at_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = lab.scheduled()
    lab.starts = lab.server(Quotas(max_live=1))
    first, _ = lab.launch()
    lab.turn()
    second, _ = lab.launch()

    def no_answer(job_id: str) -> None:
        raise ClusterUnreachable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(lab.nomad, "stop", no_answer)
        with pytest.raises(ClusterUnreachable):
            lab.turn()
    lab.turn()
    assert lab.nomad.stopped == [second]
    assert lab.kept(schedule).skipped == 1
    assert lab.nomad.recurring()[lab.parent()].runs[0].job_id == first
    assert lab.nomad.recurring()[lab.parent()].runs[0].live


def test_the_second_run_of_one_moment_is_stopped(lab: Lab) -> None:
    lab.scheduled()
    first, (run, _) = lab.parent(), lab.launch()
    lab.turn()
    second = first.removesuffix("1") + "2"
    with lab.store.write() as uow:
        uow.schedules.add_job(replace(uow.schedules.job(first), job_id=second, version=2), ())
    other, _ = lab.nomad.launch(second, lab.clock.now())
    lab.turn()
    assert other in lab.nomad.stopped
    assert run not in lab.nomad.stopped


def test_a_deleted_schedule_makes_up_for_no_run(lab: Lab) -> None:
    schedule = lab.scheduled()
    run, _ = lab.launch()
    lab.nomad.end(run, began=False)
    lab.change(schedule, active=False)
    assert lab.turn() == ()
    assert lab.benchmarks() == []
    assert lab.kept(schedule).skipped == 1


def test_nomad_is_asked_about_a_disabled_account_s_schedule_every_few_seconds(lab: Lab) -> None:
    lab.scheduled()
    with lab.store.write() as uow:
        uow.accounts.save_user(replace(uow.accounts.user("ann"), disabled=True))
    for _ in range(2):
        lab.turn()
    lab.nomad.reachable = False
    assert lab.starts.turn() == ()  # no call


def test_a_schedule_that_can_t_be_read_any_more_has_its_runs_stopped_and_can_be_deleted(
    lab: Lab,
) -> None:
    schedule = lab.scheduled()
    parent = lab.parent()
    lab.change(schedule, description={})
    run, _ = lab.launch()
    assert lab.turn() == ()
    assert lab.nomad.stopped == [run]
    assert lab.kept(schedule).skipped == 1
    lab.change(schedule, active=False)
    lab.clock.forward(2 * RETRY_INTERVAL_S)
    lab.turn()
    assert lab.nomad.stopped == [run, parent]
