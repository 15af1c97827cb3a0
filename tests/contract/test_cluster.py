"""What every cluster must do; an adapter joins by giving a cluster with these three boards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgeyard.devices.model import Board
from edgeyard.errors import HclError, JobExists, JobRefused, NotFound
from edgeyard.scheduler.clusters.local import LocalCluster, load
from edgeyard.scheduler.clusters.nomad import NomadCluster
from edgeyard.scheduler.clusters.observed import ClusterWithNodes, ObservedCluster
from edgeyard.scheduler.hcl.job import DeviceConstraint, NodeConstraint
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.ports import JobRun
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import (
    PRINT_TOKEN,
    TOKEN,
    Submitter,
    a_board,
    a_job,
    eventually,
    on,
    where,
)
from tests.nomad_cluster import access_of, clear

FIRST, SECOND, OTHER = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi5-0001-0001"
BOARDS = (
    a_board(FIRST, attributes={"soc.vendor": "broadcom", "soc.cores": 4, "npu": False}),
    a_board(SECOND, engines={"ort": ["TYPE1"], "tflite": ["TYPE1", "TYPE3"]}),
    a_board(OTHER, ram_bytes=8 * 2**30),
)

UNTIL_STOPPED = "import sys, time; print('up', flush=True); time.sleep(600)"


NOMAD = pytest.param("nomad", marks=[pytest.mark.nomad, pytest.mark.xdist_group("nomad")])


@pytest.fixture(params=["local", "observed", NOMAD])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Submitter]:
    if request.param == "nomad":
        real: LoopbackNomad = request.getfixturevalue("nomad_cluster")
        with NomadLab(real) as lab:
            yield lab
        return
    cluster: ClusterWithNodes = LocalCluster(BOARDS, tmp_path)
    if request.param == "observed":
        cluster = ObservedCluster(cluster, lambda metric, value, labels: None)
    yield Submitter(cluster)
    cluster.close()


class NomadLab(Submitter):
    """A real Nomad, emptied before and after; its boards are some more than `BOARDS`."""

    def __init__(self, real: LoopbackNomad) -> None:
        self._real = real
        super().__init__(NomadCluster(access_of(real)))

    def __enter__(self) -> NomadLab:
        clear(self._real)
        return self

    def __exit__(self, *exception: object) -> None:
        self.cluster.close()
        clear(self._real)


class TestRegistration:
    def test_a_job_runs_and_ends_and_says_where_and_when(self, lab: Submitter) -> None:
        state = lab.run(a_job("print('hello')", on(SECOND)))
        assert state.target_uid == SECOND
        assert state.failure is None
        assert not state.stopped
        assert state.started_at is not None
        assert state.ended_at is not None
        assert state.started_at <= state.ended_at
        assert lab.log() == "hello\n"

    def test_an_id_is_taken_once_and_for_all(self, lab: Submitter) -> None:
        lab.run(a_job("print('first')"))
        with pytest.raises(JobExists):
            lab.dispatch(a_job("print('second')"))
        assert lab.log() == "first\n"

    def test_an_unknown_job_has_no_state_and_no_log_and_can_be_stopped(
        self, lab: Submitter
    ) -> None:
        assert lab.cluster.states(["benchmark-none"]) == {}
        lab.cluster.stop("benchmark-none")
        with pytest.raises(NotFound):
            lab.cluster.logs("benchmark-none", "stdout", 0)

    @pytest.mark.parametrize(
        ("old", "new", "named"),
        [
            ("      env {", "      volume_mount {\n      }\n      env {", "volume_mount"),
            ('driver = "raw_exec"', 'driver = "raw_exec"\n      user = "root"', "user"),
            ('operator  = "="', 'operator  = "distinct_property"', "distinct_property"),
        ],
    )
    def test_what_it_does_not_know_is_refused_by_name(
        self, lab: Submitter, old: str, new: str, named: str
    ) -> None:
        text = a_job("pass", on(FIRST))
        assert old in text
        text = text.replace(old, new, 1)
        with pytest.raises((JobRefused, HclError), match=named):
            lab.cluster.check(text)
        with pytest.raises((JobRefused, HclError), match=named):
            lab.dispatch(text)
        assert lab.cluster.states(["benchmark-1"]) == {}

    def test_a_good_job_passes_the_check_and_is_not_registered_by_it(self, lab: Submitter) -> None:
        lab.cluster.check(a_job())
        assert lab.cluster.states(["benchmark-1"]) == {}


class TestTheTask:
    def test_has_the_job_s_variables_and_its_secret(self, lab: Submitter) -> None:
        hcl = a_job(
            f"import os; print(os.environ['TARGET'], '{TOKEN}' in os.environ); {PRINT_TOKEN}",
            env={"TARGET": "rpi4b"},
        )
        assert "s3cret" not in hcl
        lab.dispatch(hcl, token="s3cret")
        lab.until("benchmark-1", JobRun.ENDED)
        assert lab.log() == "rpi4b False\ns3cret\n"

    def test_interpolations_are_filled_in(self, lab: Submitter) -> None:
        env = {"NOMAD_ALLOC_ID": "${NOMAD_ALLOC_ID}", "NOMAD_NODE_ID": "${node.unique.id}"}
        show = "import os; print(os.environ['NOMAD_ALLOC_ID'], os.environ['NOMAD_NODE_ID'])"
        lab.run(a_job(show, env=env))
        alloc_id, node_id = lab.log().split()
        assert len(alloc_id) == 36
        assert "$" not in node_id

    def test_a_bad_end_says_why(self, lab: Submitter) -> None:
        state = lab.run(a_job("import sys; sys.exit(7)"))
        assert state.failure is not None
        assert "7" in state.failure.sentence
        assert not state.stopped

    def test_a_task_that_is_killed_from_outside_is_the_board_s_matter(self, lab: Submitter) -> None:
        state = lab.run(a_job("import os; os.kill(os.getpid(), 11)"))
        assert state.failure is not None
        assert state.failure.category is FailureCategory.BOARD_FAULT
        assert "SIGSEGV" in state.failure.sentence


class TestStop:
    def test_ends_the_task_and_frees_the_board(self, lab: Submitter) -> None:
        lab.dispatch(a_job(UNTIL_STOPPED, on(FIRST)))
        lab.until_log("benchmark-1", "up")
        lab.cluster.stop("benchmark-1")
        state = lab.until("benchmark-1", JobRun.ENDED)
        assert state.stopped
        assert state.failure is None
        after = lab.run(a_job("pass", on(FIRST), job_id="benchmark-2"), job_id="benchmark-2")
        assert after.target_uid == FIRST

    def test_takes_a_waiting_job_out_of_the_queue(self, lab: Submitter) -> None:
        lab.dispatch(a_job("pass", where("family", "=", "rpi9")))
        lab.cluster.stop("benchmark-1")
        state = lab.until("benchmark-1", JobRun.ENDED)
        assert state.stopped
        assert state.target_uid is None
        assert state.started_at is None

    def test_leaves_an_ended_job_as_it_is(self, lab: Submitter) -> None:
        before = lab.run(a_job("pass"))
        lab.cluster.stop("benchmark-1")
        assert lab.state() == before


class TestQueue:
    def test_two_jobs_for_one_board_run_one_after_the_other(self, lab: Submitter) -> None:
        lab.dispatch(a_job(UNTIL_STOPPED, on(FIRST)))
        lab.until("benchmark-1", JobRun.RUNNING)
        lab.dispatch(a_job("pass", on(FIRST), job_id="benchmark-2"), job_id="benchmark-2")
        eventually(lambda: FIRST in lab.state("benchmark-2").reason, "it says what it waits for")
        waiting = lab.state("benchmark-2")
        assert waiting.run is JobRun.QUEUED
        assert waiting.target_uid is None
        assert "benchmark-1" not in waiting.reason  # it may be another user's
        lab.cluster.stop("benchmark-1")
        second = lab.until("benchmark-2", JobRun.ENDED)
        first = lab.state("benchmark-1")
        assert first.ended_at is not None
        assert second.started_at is not None
        assert first.ended_at <= second.started_at

    def test_a_job_that_fits_no_board_waits_and_says_why_and_holds_up_nobody(
        self, lab: Submitter
    ) -> None:
        lab.dispatch(a_job("pass", where("family", "=", "rpi9")))
        eventually(lambda: "rpi9" in lab.state().reason, "it says what it waits for")
        assert lab.state().run is JobRun.QUEUED
        lab.run(a_job("pass", job_id="benchmark-2"), job_id="benchmark-2")

    def test_the_higher_priority_comes_first(self, lab: Submitter) -> None:
        lab.dispatch(a_job(UNTIL_STOPPED, on(FIRST)))
        lab.until("benchmark-1", JobRun.RUNNING)
        for job_id, priority in (("benchmark-low", 10), ("benchmark-high", 90)):
            hcl = a_job("pass", on(FIRST), job_id=job_id, priority=priority)
            lab.dispatch(hcl, job_id=job_id)
        lab.cluster.stop("benchmark-1")
        low = lab.until("benchmark-low", JobRun.ENDED)
        high = lab.until("benchmark-high", JobRun.ENDED)
        assert high.ended_at is not None
        assert low.started_at is not None
        assert high.ended_at <= low.started_at


class TestLogs:
    def test_are_read_from_an_offset_to_their_end(self, lab: Submitter) -> None:
        lab.run(a_job("import sys; print('one two'); print('bad', file=sys.stderr)"))
        part = lab.cluster.logs("benchmark-1", "stdout", 4)
        assert part.data == b"two\n"
        assert part.next_offset == 8
        assert part.ended
        assert lab.log(stream="stderr") == "bad\n"
        beyond = lab.cluster.logs("benchmark-1", "stdout", 1000)
        assert (beyond.data, beyond.next_offset) == (b"", 1000)

    def test_of_a_running_task_have_not_ended(self, lab: Submitter) -> None:
        lab.dispatch(a_job(UNTIL_STOPPED))
        lab.until_log("benchmark-1", "up")
        assert not lab.cluster.logs("benchmark-1", "stdout", 0).ended

    @pytest.mark.parametrize(
        ("job_id", "stream"), [("benchmark-1", "../x"), ("..", "stdout"), (".", "stdout")]
    )
    def test_lead_nowhere_else(self, lab: Submitter, job_id: str, stream: str) -> None:
        lab.run(a_job("pass"))
        with pytest.raises(NotFound):
            lab.cluster.logs(job_id, stream, 0)


def test_events_begin_with_look_at_everything_and_name_what_changed(lab: Submitter) -> None:
    stop = threading.Event()
    events = lab.cluster.events(stop)
    assert next(events) == ""
    lab.dispatch(a_job("pass"))
    assert next(events) == "benchmark-1"
    stop.set()
    assert set(events) <= {"benchmark-1", ""}


def test_hosts_tell_how_busy_they_are(lab: Submitter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MIN_LOAD_INTERVAL", timedelta(milliseconds=50))
    names = {host.name for host in lab.cluster.hosts() if host.boards}
    eventually(lambda: lab.cluster.loads().keys() == names, "every host reports its load")
    for report in lab.cluster.loads().values():
        assert 0.0 <= report.load.cpu <= 1.0
        assert 0.0 < report.load.memory < 1.0
        assert report.at <= datetime.now(UTC)


def test_hosts_show_which_board_is_taken_and_how_far(lab: Submitter) -> None:
    def shown(target_uid: str) -> Board:
        boards = {b.target_uid: b for host in lab.cluster.hosts() for b in host.boards}
        return boards[target_uid]

    lab.dispatch(
        a_job(
            # As the runner does it: the lock says that the task lives.
            "import fcntl, json, os, time\n"
            "path = json.loads(os.environ['EDGEYARD_BOARD'])['progress_file']\n"
            "lock = open(path + '.lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
            "open(path, 'w').write('41.5\\n'); print('up', flush=True); time.sleep(600)",
            on(SECOND),
        )
    )
    lab.until_log("benchmark-1", "up")
    assert shown(SECOND).busy
    assert shown(SECOND).busy_reason
    assert "benchmark-1" not in shown(SECOND).busy_reason  # every user reads it
    assert not shown(FIRST).busy
    assert shown(FIRST).progress == 0
    # Nomad gets whole steps, and not more often than every few seconds.
    eventually(lambda: 41 <= (shown(SECOND).progress or 0) <= 41.5, "the progress shows")
    lab.cluster.stop("benchmark-1")
    lab.until("benchmark-1", JobRun.ENDED)
    eventually(lambda: not shown(SECOND).busy, "the board is free")
    eventually(lambda: shown(SECOND).progress == 0, "its progress is gone")


ALL = {FIRST, SECOND, OTHER}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraints", "boards"),
    [
        ([], ALL),
        ([where("family", "=", "rpi4b")], {FIRST, SECOND}),
        ([where("family", "!=", "rpi4b")], {OTHER}),
        ([where("engines", "set_contains", "tflite")], {SECOND}),
        ([where("engines", "set_contains", "ort,tflite")], {SECOND}),
        ([where("engines", "set_contains_any", "tflite,other")], {SECOND}),
        ([where("engine.ort.supported_types", "set_contains", "TYPE2")], {FIRST, OTHER}),
        ([where("engine.tflite.supported_types", "set_contains", "TYPE3")], {SECOND}),
        ([where("memory.ram", ">=", "4294967296")], ALL),
        ([where("memory.ram", ">", "4294967296")], {OTHER}),
        ([where("memory.ram", "<", "4294967297")], {FIRST, SECOND}),
        ([where("memory.ram", "<=", "4294967296")], {FIRST, SECOND}),
        ([where("memory.storage", ">=", "17179869185")], set()),
        ([where("target_uid", "=", OTHER)], {OTHER}),
        ([where("target_uid", "set_contains_any", f"{FIRST},{OTHER}")], {FIRST, OTHER}),
        ([where("target_uid", "regexp", "^rpi4b-.*2$")], {SECOND}),
        ([where("soc.vendor", "is_set", "")], {FIRST}),
        ([where("soc.vendor", "is_not_set", "")], {SECOND, OTHER}),
        ([where("soc.vendor", "=", "broadcom")], {FIRST}),
        ([where("soc.cores", ">=", "4")], {FIRST}),
        ([where("npu", "=", "false")], {FIRST}),
        ([where("dynamic.progress", "<", "1")], ALL),
        ([where("dynamic.progress", "<", "0")], set()),
        ([where("no.such", "<", "1")], set()),
        ([where("family", "=", "rpi4b"), where("engines", "set_contains", "tflite")], {SECOND}),
    ],
)
def test_constraints_choose_boards_as_nomad_s_operators_do(
    lab: Submitter, constraints: list[DeviceConstraint], boards: set[str]
) -> None:
    """Asked board by board, so that what fits is known and not only what was preferred."""
    for target_uid in sorted(ALL):
        job_id = f"benchmark-{target_uid}"
        lab.dispatch(a_job("pass", *constraints, on(target_uid), job_id=job_id), job_id=job_id)
    for target_uid in sorted(boards):
        assert lab.until(f"benchmark-{target_uid}", JobRun.ENDED).target_uid == target_uid
    for target_uid in sorted(ALL - boards):
        assert lab.state(f"benchmark-{target_uid}").run is JobRun.QUEUED
        assert "no matching board" in lab.state(f"benchmark-{target_uid}").reason


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        (("${attr.kernel.name}", "=", "linux"), True),
        (("${attr.kernel.name}", "regexp", "^win"), False),
        (("${attr.cpu.numcores}", ">=", "1"), True),
        (("${attr.cpu.numcores}", ">", "9999"), False),
        (("${attr.cpu.arch}", "set_contains_any", "amd64,arm64"), True),
        (("${node.datacenter}", "=", "dc1"), True),
        (("${node.class}", "=", "other"), False),
        (("${meta.no_such}", "is_not_set", ""), True),
        (("${meta.no_such}", "is_set", ""), False),
        (("${meta.no_such}", "!=", "x"), True),
        (("${meta.no_such}", "<", "1"), False),
    ],
)
def test_constraints_on_nodes_hold_as_nomad_s_operators_do(
    lab: Submitter, condition: tuple[str, str, str], runs: bool
) -> None:
    attribute, operator, value = condition
    own = NodeConstraint(attribute=attribute, operator=operator, value=value)
    lab.dispatch(a_job("pass", on(FIRST), node_constraints=(own,)))
    if runs:
        assert lab.until("benchmark-1", JobRun.ENDED).target_uid == FIRST
    else:
        eventually(lambda: bool(lab.state("benchmark-1").reason), "it says why it waits")
        assert lab.state("benchmark-1").run is JobRun.QUEUED


def test_hcl_that_was_edited_by_hand_changes_where_it_runs(lab: Submitter) -> None:
    hcl = a_job("pass", on(FIRST))
    assert lab.run(hcl).target_uid == FIRST
    edited = hcl.replace(FIRST, OTHER).replace('job "benchmark-1"', 'job "benchmark-2"')
    edited = edited.replace("nomad/jobs/benchmark-1", "nomad/jobs/benchmark-2")
    assert lab.run(edited, job_id="benchmark-2").target_uid == OTHER
