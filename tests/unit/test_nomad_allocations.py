"""What Nomad says of jobs, nodes and waiting, in our own words."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from edgeyard.scheduler.clusters.nomad.allocations import (
    by_our_clock,
    first_of,
    moment,
    of_no_run,
    of_run,
    of_start_to_come,
    placed_at_of,
    placement_problem,
)
from edgeyard.scheduler.clusters.nomad.nodes import NodeReader, hosts_of, with_holders
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.ports import JobRun, JobState
from tests.builders.nomad import (
    JOB,
    UID,
    Json,
    allocation,
    blocked,
    device,
    event,
    job,
    node,
    terminated,
)

DEVICE = "daiedge/edgedevice"
MOVED = "alloc is being migrated"
KILLED = (event("Killing"), terminated(130, 2), event("Killed"))
NOT_DOWNLOADED = (
    'failed to download artifact "http://api/download/{name}": getter subprocess failed: '
    "exit status 1: failed to download artifact: {why}"
)
MODEL = "x" * 32 + "-model.onnx"


def state(found: Json) -> JobState:
    return of_run(JOB, found, DEVICE)


class TestAnEndedJob:
    def test_went_well(self) -> None:
        ended = state(allocation("complete", terminated(0)))
        assert ended.run is JobRun.ENDED
        assert (ended.failure, ended.stopped, ended.target_uid) == (None, False, UID)
        assert state(allocation("complete", terminated(0, oom=True))).failure is None
        assert ended.started_at == datetime(2026, 11, 21, 9, 33, 50, 763364, UTC)
        assert ended.ended_at == datetime(2026, 11, 21, 9, 33, 52, 874562, UTC)

    @pytest.mark.parametrize(
        ("found", "category", "words"),
        [
            (allocation("failed", terminated(7)), "unknown", "exit status 7"),
            (allocation("failed", terminated(3)), "upload", "its report did not arrive"),
            (allocation("failed", terminated(4)), "upload", "could not upload it"),
            (allocation("failed", terminated(127)), "board_fault", "could not run the runner"),
            (allocation("failed", terminated(6)), "cluster", "no room is left on the disk"),
            (allocation("failed", terminated(120)), "cluster", "no room is left on the disk"),
            (allocation("failed", terminated(139, 11)), "board_fault", "SIGSEGV"),
            (allocation("failed", terminated(137, 9)), "board_fault", "SIGKILL"),
            (allocation("failed", terminated(137, 9, oom=True)), "out_of_memory", "memory"),
            (allocation("failed", terminated(137, oom=True)), "out_of_memory", "memory"),
            # one of its processes was killed, and the runner has said what that means
            (allocation("failed", terminated(3, oom=True)), "upload", "its report did not arrive"),
            (allocation("failed", terminated(4, oom=True)), "upload", "could not upload it"),
            (
                allocation(
                    "failed",
                    event(
                        "Failed Artifact Download",
                        download_error=NOT_DOWNLOADED.format(
                            name=MODEL, why="bad response code: 404"
                        ),
                    ),
                    started=False,
                ),
                "cluster",
                "model.onnx could not be downloaded by its host: bad response code: 404",
            ),
            (
                allocation(
                    "failed",
                    event(
                        "Failed Artifact Download",
                        download_error=NOT_DOWNLOADED.format(
                            name=MODEL,
                            why=f'Get "http://api/download/{MODEL}": dial tcp 127.0.0.1:9: '
                            "connect: connection refused",
                        ),
                    ),
                    started=False,
                ),
                "cluster",
                "host: dial tcp 127.0.0.1:9: connect: connection refused",
            ),
            (
                allocation(
                    "failed",
                    event(
                        "Failed Artifact Download",
                        download_error=NOT_DOWNLOADED.format(
                            name=MODEL, why="Checksums did not match for /tmp/x.\nExpected: 1"
                        ),
                    ),
                    started=False,
                ),
                "user_input",
                "model.onnx is not the file that was submitted",
            ),
            (
                allocation(
                    "failed", event("Driver Failure", driver_error="no such image"), started=False
                ),
                "cluster",
                "no such image",
            ),
            (
                allocation("failed", event("Setup Failure", "disk full"), started=False),
                "cluster",
                "disk full",
            ),
            (
                allocation("failed", TaskStates=None, ClientDescription="hook failed"),
                "cluster",
                "hook failed",
            ),
            (allocation("lost"), "board_fault", "pi-host was lost"),
            (allocation("lost", started=False), "board_fault", "pi-host was lost"),
            (allocation("lost", desired="stop"), "board_fault", "pi-host was lost"),
            (allocation("complete", *KILLED, desired="evict"), "preempted", "more urgent"),
            (
                allocation("complete", *KILLED, PreemptedByAllocation="other"),
                "preempted",
                "more urgent",
            ),
        ],
    )
    def test_failed_and_says_whose_matter_that_is(
        self, found: Json, category: str, words: str
    ) -> None:
        ended = state(found)
        assert ended.run is JobRun.ENDED
        assert ended.failure is not None
        assert ended.failure.category is FailureCategory(category)
        assert words in ended.failure.sentence
        assert "/download/" not in ended.failure.sentence  # the URL is a key to the file

    def test_that_nomad_lost_sight_of_may_have_a_result_yet_and_says_so(self) -> None:
        """So it reports a task whose container engine was killed."""
        ended = state(allocation("failed", terminated(0, message="unexpected EOF")))
        assert (ended.run, ended.failure) == (JobRun.ENDED, None)
        assert ended.reason == "Nomad lost sight of the task: unexpected EOF"
        known = state(allocation("failed", terminated(7, message="exited with 7")))
        assert (known.failure is None, known.reason) == (False, "")

    @pytest.mark.parametrize(
        ("said", "advice"),
        [
            ("Cannot connect to the Docker daemon at unix:///x.sock.", "starts Docker there"),
            (
                "Docker privileged mode is disabled on this Nomad agent",
                "sets docker_privileged = false",
            ),
            (
                "Failed to pull `a/b:1`: unauthorized: authentication required",
                "corrects docker_auth_username, docker_auth_password and docker_image",
            ),
            (
                "Failed to pull `b`: pull access denied for b, repository does not exist",
                "corrects docker_auth_username, docker_auth_password and docker_image",
            ),
            (
                "Failed to pull `a/b:1`: manifest unknown",
                "corrects docker_image, or loads the image there",
            ),
            ("Failed to pull `a/b:1`: connection refused", "checks docker_image"),
        ],
    )
    def test_that_docker_did_not_start_says_what_the_operator_does(
        self, said: str, advice: str
    ) -> None:
        whole = (
            f"{said} {'x' * 400}"  # what is shown of an error is bounded, the advice is not lost
        )
        ended = state(allocation("failed", event("Driver Failure", driver_error=whole)))
        assert ended.failure is not None
        assert ended.failure.category is FailureCategory.CLUSTER
        assert said in ended.failure.sentence
        assert f"; the lab's operator {advice}" in ended.failure.sentence

    def test_was_stopped(self) -> None:
        ended = state(allocation("complete", *KILLED, desired="stop"))
        assert (ended.stopped, ended.failure) == (True, None)

    @pytest.mark.parametrize(
        "found",
        [
            allocation("complete", *KILLED, desired="stop", DesiredDescription=MOVED),
            allocation("failed", *KILLED, desired="stop", DesiredDescription=MOVED),
            allocation("complete", desired="stop", started=False, DesiredDescription=MOVED),
            # shut down right after the drain
            allocation("lost", desired="stop", DesiredTransition={"Migrate": True}),
        ],
    )
    def test_was_moved_off_its_host_by_an_operator(self, found: Json) -> None:
        ended = state(found)
        assert ended.stopped
        assert ended.failure is not None
        assert ended.failure.category is FailureCategory.CLUSTER
        assert "pi-host was drained, or the allocation was stopped in" in ended.failure.sentence

    def test_had_failed_by_itself_before_its_host_was_drained(self) -> None:
        ended = state(allocation("failed", terminated(7), desired="stop", DesiredDescription=MOVED))
        assert not ended.stopped
        assert ended.failure is not None
        assert "exit status 7" in ended.failure.sentence

    def test_was_over_before_it_was_stopped(self) -> None:
        ended = state(allocation("failed", terminated(7), desired="stop"))
        assert not ended.stopped
        assert ended.failure is not None

    def test_was_stopped_before_its_task_ran(self) -> None:
        assert state(allocation("complete", desired="stop", started=False)).stopped

    def test_without_a_run(self) -> None:
        assert of_no_run(JOB, job(Stop=True)).stopped
        dead = of_no_run(JOB, job(status="dead"))
        assert dead.failure is not None
        assert dead.failure.category is FailureCategory.CLUSTER


class TestALiveJob:
    def test_runs(self) -> None:
        running = state(allocation("running"))
        assert (running.run, running.target_uid, running.reason) == (JobRun.RUNNING, UID, "")
        assert running.ended_at is None

    def test_is_still_running_while_it_is_being_stopped(self) -> None:
        assert state(allocation("running", event("Killing"), desired="stop")).run is JobRun.RUNNING

    def test_on_a_host_that_is_silent_runs_on(self) -> None:
        assert "pi-host does not answer" in state(allocation("unknown")).reason

    def test_shows_what_it_waits_for_on_its_host(self) -> None:
        waiting = state(allocation("pending", event("Downloading Artifacts"), started=False))
        assert (waiting.run, waiting.reason) == (JobRun.QUEUED, "downloading its files")
        assert waiting.target_uid == UID
        assert state(allocation("pending", started=False, TaskStates=None)).run is JobRun.QUEUED

    def test_with_a_second_allocation_is_judged_by_its_first(self) -> None:
        """Nomad places again what it preempted; tries are Edgeyard's to count."""
        first = allocation("complete", *KILLED, desired="evict", index=20)
        assert first_of([allocation("running", index=30), first]) is first
        assert first_of([]) is None

    def test_that_starts_later_says_when_and_fails_when_nomad_slept_through_it(self) -> None:
        due = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
        assert "2026-11-21 09:00:00 UTC" in of_start_to_come(JOB, due, due).reason
        missed = of_start_to_come(JOB, due, due + timedelta(seconds=61))
        assert missed.failure is not None
        assert missed.failure.category is FailureCategory.CLUSTER


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        (blocked(filtered={"missing devices": 3}), "3 hosts: no board of the kind it needs"),
        (
            blocked(exhausted={"devices: no devices match request": 1}),
            "1 host: every board that it needs is taken",
        ),
        (blocked(exhausted={"memory": 2}), "2 hosts: no memory left"),
        (blocked(filtered={"${node.class} = lab": 1}), "1 host: not ${node.class} = lab"),
        (blocked(available={}), "no host of its datacenters is ready"),
        (blocked(quota=["cpu"]), "quota: cpu"),
        (blocked(), "it waits for room in Nomad"),
        ({"JobID": JOB, "FailedTGAllocs": None}, "it waits for room in Nomad"),
    ],
)
def test_nomad_s_reasons_in_plain_words(evaluation: Json, words: str) -> None:
    assert placement_problem(evaluation) == words


@pytest.mark.parametrize("text", [None, "", "0001-01-01T00:00:00Z", "yesterday", 7])
def test_a_missing_time_is_none(text: object) -> None:
    assert moment(text) is None


class TestHosts:
    def test_a_board_is_what_its_plugin_reports(self) -> None:
        (host,) = hosts_of([node(device(UID, {"soc.cores": 4, "npu": False, "load": 1.0}))], DEVICE)
        (board,) = host.boards
        assert (host.name, host.ready, board.target_uid) == ("pi-host", True, UID)
        assert (board.ram_bytes, board.progress, board.healthy) == (4 * 2**30, 0.0, True)
        assert board.attributes == {"soc.cores": 4, "npu": False, "load": 1.0}
        assert board.engines[0].supported_types == {"TYPE1", "TYPE2"}

    def test_an_attribute_with_a_unit_is_no_plain_number(self) -> None:
        power = {"Float": 3.5, "Unit": "W"}
        (host,) = hosts_of([node(device(UID, {"power": power}))], DEVICE)
        assert host.boards[0].attributes["power"] == "3.5 W"

    def test_an_unhealthy_board_says_why(self) -> None:
        (host,) = hosts_of([node(device(healthy=False))], DEVICE)
        assert not host.boards[0].healthy
        assert host.boards[0].health_reason == "/dev/ttyUSB0 is gone"

    @pytest.mark.parametrize(
        "bare",
        [
            node(NodeResources=None),
            node(NodeResources={"Devices": None}),
            node({**device(), "Instances": None}),
            node({**device(), "Attributes": None}),
            node({**device(), "Vendor": "nvidia"}),
            node(device(UID, {"family": 7})),
            node({**device(), "Instances": [{"ID": "another", "Healthy": True}]}),
            {"ID": "node-1"},
        ],
    )
    def test_what_describes_no_board_gives_none(self, bare: Json) -> None:
        (host,) = hosts_of([bare], DEVICE)
        assert host.boards == ()

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"Status": "down"}, "down"),
            ({"Status": "disconnected"}, "disconnected"),
            ({"Drain": True, "SchedulingEligibility": "ineligible"}, "draining"),
            ({"SchedulingEligibility": "ineligible"}, "ineligible"),
        ],
    )
    def test_a_node_that_is_out_says_why(self, changes: Json, reason: str) -> None:
        (host,) = hosts_of([node(device(), **changes)], DEVICE)
        assert (host.ready, host.ready_reason) == (False, reason)

    def test_an_allocation_makes_a_board_busy_whatever_it_reports(self) -> None:
        hosts = hosts_of([node(device(), device("rpi4b-0001-0002"))], DEVICE)
        first, second = with_holders(
            hosts, [allocation("running")], DEVICE, lambda each: "runs a job"
        )[0].boards
        assert (first.busy, first.busy_reason) == (True, "runs a job")
        assert not second.busy
        (elsewhere,) = with_holders(
            hosts[:1], [allocation(NodeID="node-2")], DEVICE, lambda each: "runs a job"
        )
        assert not any(board.busy for board in elsewhere.boards)
        (reported,) = hosts_of([node(device(UID, {"dynamic.status": "busy"}))], DEVICE)
        assert not reported.boards[0].busy
        assert reported.boards[0].reports_task


class TestReadingNodes:
    def test_a_node_that_is_as_it_was_is_not_read_again(self) -> None:
        reader = NodeReader(DEVICE)
        quiet = node(device("rpi4b-0001-0002"), ID="node-2", Name="quiet")
        first = reader.hosts(json.dumps([node(device(UID)), quiet]).encode())
        assert first == hosts_of([node(device(UID)), quiet], DEVICE)
        changed = node(device(UID, healthy=False))
        second = reader.hosts(json.dumps([changed, quiet]).encode())
        assert second == hosts_of([changed, quiet], DEVICE)
        assert second[1] is first[1]

    @pytest.mark.parametrize("content", [b'[{"ID": "benchm', b"<html>", b"[1]", b'{"ID": "x"}'])
    def test_what_is_no_list_of_nodes_is_an_error(self, content: bytes) -> None:
        with pytest.raises(ValueError, match=r"JSON|Expected|truncated"):
            NodeReader(DEVICE).hosts(content)

    def test_a_null_does_not_say_that_there_are_no_nodes(self) -> None:
        assert NodeReader(DEVICE).hosts(b"[]") == ()
        with pytest.raises(ValueError, match="null"):
            NodeReader(DEVICE).hosts(b"null")


@pytest.mark.parametrize("offset_s", [None, 0.0, 1e6, -1e6, 1e12, -1e12])
@pytest.mark.parametrize(
    ("started", "finished"),
    [
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59"),
        ("9999-12-31T23:59:59Z", "0002-01-01T00:00:00+23:59"),
        ("0002-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        ("9999-12-31T23:59:59Z", None),
    ],
)
def test_times_that_no_calendar_has_stop_nobody(
    started: str, finished: str | None, offset_s: float | None
) -> None:
    """A host's own clock and its word for when a task ran may say anything."""
    reported = allocation("complete")
    states = reported["TaskStates"]
    assert isinstance(states, dict)
    states["bootstrap-job"] |= {"StartedAt": started, "FinishedAt": finished}
    state = of_run("job", reported, "daiedge/edgedevice")
    moved = by_our_clock(state, offset_s, None, datetime(2026, 11, 21, 12, tzinfo=UTC))
    assert moved.started_at is not None


@pytest.mark.parametrize("number", [10**30, 2**63, -(10**30), "9" * 5000, 1e30])
def test_a_time_in_nanoseconds_that_is_none_is_left_out(number: object) -> None:
    assert placed_at_of({"CreateTime": number}) is None
