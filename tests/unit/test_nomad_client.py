"""Calls of Nomad's API without a Nomad: what is sent, what is tried again, what is reported."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
import respx

from edgeyard.errors import (
    ClusterUnreachable,
    ConfigError,
    HclError,
    HclMismatch,
    JobExists,
    JobRefused,
    NotFound,
)
from edgeyard.scheduler.clusters.nomad import NomadAccess, NomadCluster
from edgeyard.scheduler.clusters.nomad.allocations import moment
from edgeyard.scheduler.clusters.nomad.client import NomadClient
from edgeyard.scheduler.clusters.nomad.expected import api_job, mismatches
from edgeyard.scheduler.clusters.nomad.garbage_collection import GarbageCollector
from edgeyard.scheduler.clusters.nomad.nodes import NodeReader
from edgeyard.scheduler.clusters.nomad.retry import CircuitBreaker, RetryPolicy
from edgeyard.scheduler.hcl.cron import cron_of
from edgeyard.scheduler.hcl.job import Periodic
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.ports import JobRun, JobState, RecurringJob, StartedRun
from tests.builders.cluster import TOKEN, a_job, eventually, on
from tests.builders.nomad import (
    ADDRESS,
    JOB,
    NOMAD_2,
    STARTED,
    UID,
    Json,
    allocation,
    blocked,
    device,
    job,
    node,
    terminated,
)

ACCESS = NomadAccess(address=ADDRESS, token="s3cret", namespace="lab", region="eu")
QUICK = RetryPolicy(first_s=0.0, max_s=0.0)
TEXT = a_job("pass", on(UID))
PARSED = api_job(parse_job(TEXT))
TAKEN = httpx.Response(500, text="Enforcing job modify index 0: job already exists")
NO_LEADER = httpx.Response(500, text="rpc error: No cluster leader")
DONE = httpx.Response(200, json={"EvalID": "e"})


@pytest.fixture
def nomad() -> Iterator[respx.Router]:
    with respx.mock(base_url=ADDRESS, assert_all_called=False) as router:
        router.get(path__startswith="/v1/node/").respond(
            json={"Attributes": {"cpu.arch": "arm64"}, "Meta": {"rack": "b"}}
        )
        yield router


@pytest.fixture
def client(nomad: respx.Router) -> Iterator[NomadClient]:
    client = NomadClient(ACCESS, policy=QUICK)
    yield client
    client.close()


@pytest.fixture
def cluster(nomad: respx.Router) -> Iterator[NomadCluster]:
    nomad.post("/v1/jobs/parse").respond(json=PARSED)
    nomad.put(path__startswith="/v1/var/").respond(json={})
    nomad.get("/v1/agent/self").respond(json={})
    nomad.get("/v1/vars").respond(json=[])
    cluster = NomadCluster(ACCESS, retry=QUICK)
    yield cluster
    cluster.close()


class TestFiles:
    def test_are_read_whole(self, client: NomadClient, nomad: respx.Router) -> None:
        nomad.get("/v1/client/fs/stat/a").respond(json={"Size": 4})
        nomad.get("/v1/client/fs/cat/a").respond(content=b"text")
        assert b"".join(client.file("a", "task/local/x")) == b"text"

    def test_that_arrive_without_their_end_are_errors(
        self, client: NomadClient, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/client/fs/stat/a").respond(json={"Size": 5})
        nomad.get("/v1/client/fs/cat/a").respond(content=b"text")
        with pytest.raises(ClusterUnreachable, match="the last 1 bytes of task/local/x"):
            b"".join(client.file("a", "task/local/x"))

    @pytest.mark.parametrize(
        ("status", "said", "error"),
        [
            (404, "stat /alloc/x: no such file or directory", NotFound),
            (404, "Unknown allocation 'a'", NotFound),
            (404, "No path to node", ClusterUnreachable),
            (403, "Permission denied", ClusterUnreachable),
            (500, "rpc error", ClusterUnreachable),
        ],
    )
    def test_that_are_gone_are_distinguished_from_hosts_that_do_not_answer(
        self,
        client: NomadClient,
        nomad: respx.Router,
        status: int,
        said: str,
        error: type[Exception],
    ) -> None:
        nomad.get("/v1/client/fs/stat/a").respond(status, text=said)
        with pytest.raises(error):
            b"".join(client.file("a", "task/local/x"))


class TestEvents:
    def test_a_registration_is_news_unless_its_answer_reported_it(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        late = "benchmark-late"
        nomad.post("/v1/jobs").mock(return_value=DONE)
        cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        events = [
            {"Topic": "Job", "Type": "JobRegistered", "Key": job_id} for job_id in (JOB, late)
        ]
        line = json.dumps({"Index": 5, "Events": events}).encode()
        nomad.get("/v1/event/stream").respond(content=line + b"\n")
        stop = threading.Event()
        hints = cluster.events(stop)
        assert [next(hints), next(hints)] == ["", late]
        stop.set()
        assert list(hints) == []


class TestCalls:
    def test_carry_token_namespace_and_region(
        self, client: NomadClient, nomad: respx.Router
    ) -> None:
        listing = nomad.get("/v1/jobs").respond(json=[])
        nodes = nomad.get("/v1/nodes").respond(json=[])
        assert client.jobs("benchmark-") == []
        assert client.nodes(NodeReader("daiedge/edgedevice").hosts) == ((), 0)
        for route in (listing, nodes):
            request = route.calls.last.request
            assert request.headers["X-Nomad-Token"] == "s3cret"
            assert request.url.params["region"] == "eu"
            assert request.url.params["namespace"] == "lab"

    @pytest.mark.parametrize(
        "bad",
        [
            NO_LEADER,
            httpx.Response(429),
            httpx.Response(200, text='[{"ID": "benchm'),
            httpx.Response(200, text="<html>"),
            httpx.ConnectError("refused"),
            httpx.ReadTimeout("slow"),
            httpx.RemoteProtocolError("cut"),
        ],
    )
    def test_are_made_again_after_what_may_pass(
        self, client: NomadClient, nomad: respx.Router, bad: httpx.Response | Exception
    ) -> None:
        nomad.get("/v1/jobs").side_effect = [bad, bad, httpx.Response(200, json=[job()])]
        assert client.jobs("")[0]["ID"] == JOB

    def test_are_given_up_after_three_tries(self, client: NomadClient, nomad: respx.Router) -> None:
        route = nomad.get("/v1/jobs").mock(side_effect=httpx.ReadTimeout("slow"))
        with pytest.raises(ClusterUnreachable, match="ReadTimeout: slow"):
            client.jobs("")
        assert route.call_count == 3

    def test_that_are_not_allowed_are_not_made_again(
        self, client: NomadClient, nomad: respx.Router
    ) -> None:
        route = nomad.get("/v1/jobs").respond(403, text="Permission denied")
        with pytest.raises(ClusterUnreachable, match="403: Permission denied"):
            client.jobs("")
        assert route.call_count == 1

    def test_with_a_null_for_a_list_tell_nothing(
        self, client: NomadClient, nomad: respx.Router
    ) -> None:
        for path in ("jobs", "allocations", "nodes", "evaluations"):
            nomad.get(f"/v1/{path}").respond(text="null")
        for call in (
            lambda: client.jobs("benchmark-"),
            lambda: client.allocations("JobID matches `^benchmark-`"),
            lambda: client.nodes(NodeReader("daiedge/edgedevice").hosts),
            client.holders,
            lambda: client.blocked(None),
        ):
            with pytest.raises(ClusterUnreachable):
                call()

    @pytest.mark.parametrize("odd", [{}, [1], "text", 7])
    def test_with_an_answer_of_another_shape_tell_nothing(
        self, client: NomadClient, nomad: respx.Router, odd: object
    ) -> None:
        nomad.get("/v1/jobs").respond(json=odd)
        with pytest.raises(ClusterUnreachable, match="not a list"):
            client.jobs("")

    def test_open_the_circuit_and_close_it_again(self) -> None:
        now = [0.0]
        breaker = CircuitBreaker(RetryPolicy(trips_at=2), lambda: now[0])
        breaker.failed("no answer")
        breaker.enter()
        breaker.failed("no answer")
        with pytest.raises(ClusterUnreachable, match="2 times in a row"):
            breaker.enter()
        now[0] += 2.0
        breaker.enter()  # one looks ...
        with pytest.raises(ClusterUnreachable):
            breaker.enter()  # ... the others wait for what it finds
        breaker.succeeded()
        breaker.enter()

    def test_wait_longer_each_time_but_never_too_long(self) -> None:
        policy = RetryPolicy(first_s=1.0, max_s=30.0)
        for failures, whole_s in ((1, 1), (2, 2), (4, 8), (6, 30), (1000, 30)):
            assert whole_s / 2 <= policy.wait_s(failures) <= whole_s

    def test_over_tls_need_readable_files(self, tmp_path: Path) -> None:
        access = replace(ACCESS, address="https://nomad.test", ca_cert=tmp_path / "none.pem")
        with pytest.raises(ConfigError, match="TLS"):
            NomadClient(access)

    def test_do_not_show_the_token(self) -> None:
        assert "s3cret" not in repr(ACCESS)


class TestDispatch:
    def test_puts_the_secret_first_and_registers_create_only(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        route = nomad.post("/v1/jobs").mock(return_value=DONE)
        cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        sent = [call.request for call in nomad.calls]
        assert [f"{each.method} {each.url.path}" for each in sent] == [
            "POST /v1/jobs/parse",
            f"PUT /v1/var/nomad/jobs/{JOB}",
            "POST /v1/jobs",
        ]
        assert sent[1].url.params["cas"] == "0"
        assert json.loads(sent[1].content)["Items"] == {TOKEN: "t"}
        body = json.loads(route.calls.last.request.content)
        assert (body["EnforceIndex"], body["JobModifyIndex"]) == (True, 0)
        assert body["Job"] == PARSED
        assert "t" not in json.dumps(body).split('"')

    def test_registers_what_was_verified_without_reading_it_again(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.post("/v1/jobs").mock(return_value=DONE)
        cluster.verify(parse_job(TEXT), TEXT)
        cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        read = [call for call in nomad.calls if call.request.url.path == "/v1/jobs/parse"]
        assert len(read) == 1

    def test_a_taken_id_is_reported(self, cluster: NomadCluster, nomad: respx.Router) -> None:
        nomad.post("/v1/jobs").mock(return_value=TAKEN)
        with pytest.raises(JobExists):
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})

    @pytest.mark.parametrize("lost", [httpx.ReadTimeout("slow"), NO_LEADER])
    def test_whose_answer_was_lost_finds_its_own_effect(
        self, cluster: NomadCluster, nomad: respx.Router, lost: httpx.Response | Exception
    ) -> None:
        route = nomad.post("/v1/jobs")
        route.side_effect = [lost, TAKEN]
        cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        assert route.call_count == 2

    def test_without_any_answer_is_unknown(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.post("/v1/jobs").mock(side_effect=httpx.ReadTimeout("slow"))
        with pytest.raises(ClusterUnreachable):
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})

    @pytest.mark.parametrize("status", [400, 500])
    def test_of_a_job_that_is_not_valid_is_refused(
        self, cluster: NomadCluster, nomad: respx.Router, status: int
    ) -> None:
        text = "1 error occurred:\n\t* Missing task driver\n\n"
        route = nomad.post("/v1/jobs").respond(status, text=text)
        with pytest.raises(JobRefused, match="Missing task driver") as caught:
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        assert caught.value.lasting
        assert route.call_count == 1

    @pytest.mark.parametrize(
        "reason",
        [
            'job "b" is in nonexistent namespace "lab"',
            'job "b" is in nonexistent node pool "arm"',
            'used task driver(s) ["docker"] not allowed in namespace "lab"',
            "total count was greater than configured job_max_count: 5 > 4",
            "Quota limit of the namespace is exceeded",
            "Sentinel: rejected by policy office-hours",
        ],
    )
    def test_is_refused_for_now_where_the_cluster_may_change(
        self, cluster: NomadCluster, nomad: respx.Router, reason: str
    ) -> None:
        text = f"1 error occurred:\n\t* {reason}\n\n"
        nomad.post("/v1/jobs").respond(500, text=text)
        with pytest.raises(JobRefused) as caught:
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        assert not caught.value.lasting

    def test_of_a_job_that_is_not_valid_is_refused_for_good_whatever_its_user_wrote(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        text = (
            "1 error occurred:\n\t* Constraint 2 validation failed: 1 error occurred:\n"
            "\t* Version constraint is invalid: Malformed constraint: >= quota policy\n\n\n\n"
        )
        nomad.post("/v1/jobs").respond(500, text=text)
        with pytest.raises(JobRefused, match="Malformed constraint") as caught:
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        assert caught.value.lasting

    def test_never_overwrites_the_secret_of_a_job_that_is_there(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        put = nomad.put(path__startswith="/v1/var/").respond(409, json={})
        nomad.get(f"/v1/job/{JOB}").respond(json={"ID": JOB})
        with pytest.raises(JobExists):
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        assert put.call_count == 1

    def test_replaces_a_secret_that_was_left_without_its_job(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        put = nomad.put(path__startswith="/v1/var/")
        put.side_effect = [httpx.Response(409, json={}), httpx.Response(200, json={})]
        nomad.get(f"/v1/job/{JOB}").respond(404, text="job not found")
        nomad.post("/v1/jobs").mock(return_value=DONE)
        cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        assert "cas" not in put.calls.last.request.url.params

    def test_of_another_job_s_text_is_refused(self, cluster: NomadCluster) -> None:
        with pytest.raises(JobRefused, match="that of job benchmark-1"):
            cluster.dispatch("benchmark-2", TEXT, {TOKEN: "t"})


class TestReading:
    """What Nomad reads in a job is compared with what was meant, whole."""

    def test_equal(self) -> None:
        nulls = {**PARSED, "Region": None, "Constraints": None}
        assert mismatches(parse_job(TEXT), nulls) == []

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"Priority": 51}, "Priority: meant 50, read 51"),
            ({"Priority": 50.0}, "Priority: meant 50, read 50.0"),
            ({"Namespace": "other"}, "Namespace: read 'other', meant nothing"),
            ({"Datacenters": ["dc1", "dc2"]}, "Datacenters: meant ['dc1'], read ['dc1', 'dc2']"),
            ({"Type": None}, "Type: meant 'batch', read nothing"),
            ({"TaskGroups": []}, "TaskGroups: meant"),
        ],
    )
    def test_different(self, change: Json, expected: str) -> None:
        (difference,) = mismatches(parse_job(TEXT), {**PARSED, **change})
        assert difference.startswith(expected)

    def test_different_in_a_secret_place_says_only_where(self) -> None:
        read = json.loads(json.dumps(PARSED))
        read["TaskGroups"][0]["Tasks"][0]["Config"]["command"] = "/bin/evil"
        assert mismatches(parse_job(TEXT), read) == ["TaskGroups[0].Tasks[0].Config differs"]

    def test_what_differs_is_not_dispatched(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.post("/v1/jobs/parse").respond(json={**PARSED, "Priority": 99})
        register = nomad.post("/v1/jobs").mock(return_value=DONE)
        with pytest.raises(HclMismatch, match="Priority"):
            cluster.dispatch(JOB, TEXT, {TOKEN: "t"})
        with pytest.raises(HclMismatch, match="Priority"):
            cluster.verify(parse_job(TEXT), TEXT)
        assert not register.called

    def test_what_nomad_cannot_read_is_no_job(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.post("/v1/jobs/parse").respond(400, text="Failed to parse job: input.hcl:1")
        with pytest.raises(HclError, match=r"input\.hcl:1"):
            cluster.check(TEXT)


class TestStates:
    @pytest.fixture(autouse=True)
    def quiet(self, nomad: respx.Router) -> None:
        nomad.get("/v1/evaluations").respond(json=[])

    @pytest.fixture
    def deleted(self, nomad: respx.Router) -> respx.Route:
        return nomad.delete(path__startswith="/v1/").respond(json={})

    def test_are_asked_for_with_two_calls_however_many(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        ids = [f"benchmark-{number}" for number in range(100)]
        nomad.get("/v1/jobs").respond(json=[job(each) for each in ids])
        found = [allocation("running", job_id=each) for each in ids]
        nomad.get("/v1/allocations").respond(json=found)
        assert set(cluster.states([*ids, "benchmark-none"])) == set(ids)
        assert nomad.calls.call_count == 2
        assert nomad.calls.last.request.url.params["filter"] == "JobID matches `^benchmark\\-`"

    def test_of_nothing_ask_nothing(self, cluster: NomadCluster, nomad: respx.Router) -> None:
        assert cluster.states([]) == {}
        assert cluster.states(["../../v1", "", 'a" or "a']) == {}
        assert not nomad.calls

    def test_do_not_take_an_older_job_s_run_for_this_one_s(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/jobs").respond(json=[job(CreateIndex=30, Status="pending")])
        nomad.get("/v1/allocations").respond(json=[allocation("complete", index=20)])
        assert cluster.states([JOB])[JOB].run is JobRun.QUEUED

    def test_of_a_start_are_those_of_its_child(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        child = f"{JOB}/periodic-1795253636"
        listing = [job(Periodic=True), job(child, ParentID=JOB)]
        nomad.get("/v1/jobs").respond(json=listing)
        nomad.get("/v1/allocations").respond(json=[allocation("running", job_id=child)])
        assert cluster.states([JOB])[JOB].run is JobRun.RUNNING

    def test_of_a_start_to_come_say_when(self, cluster: NomadCluster, nomad: respx.Router) -> None:
        nomad.get("/v1/jobs").respond(json=[job(Periodic=True)])
        nomad.get("/v1/allocations").respond(json=[])
        periodic = {"Specs": ["0 0 12 1 1 * 2099"]}
        nomad.get(f"/v1/job/{JOB}").respond(json={**job(), "Periodic": periodic})
        assert cluster.states([JOB])[JOB].reason == "starts at 2099-01-01 12:00:00 UTC"

    def test_of_a_waiting_job_name_the_boards(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/jobs").respond(json=[job(status="pending")])
        holder = allocation("running", job_id="benchmark-9")
        nomad.get("/v1/allocations").mock(
            side_effect=[httpx.Response(200, json=[]), httpx.Response(200, json=[holder])]
        )
        exhausted = {"devices: no devices match request": 1}
        nomad.get("/v1/evaluations").respond(json=[blocked(exhausted=exhausted)])
        nomad.get(f"/v1/job/{JOB}").respond(json=PARSED)
        nomad.get("/v1/nodes").respond(json=[node(device())])
        reason = cluster.states([JOB])[JOB].reason
        assert reason == f"no matching board can be had now: {UID} runs a job"

    def test_of_a_waiting_start_say_what_its_run_waits_for(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        """Nomad evaluates the run, and lists no evaluation under the name of the parent."""
        child = f"{JOB}/periodic-1795253636"
        nomad.get("/v1/jobs").respond(json=[job(Periodic=True), job(child, ParentID=JOB)])
        nomad.get("/v1/allocations").respond(json=[])
        found = {child: [blocked(child, available={"dc1": 0})]}
        nomad.get("/v1/evaluations").mock(
            side_effect=lambda request: httpx.Response(
                200, json=found.get(request.url.params["job"], [])
            )
        )
        nomad.get(f"/v1/job/{JOB}").respond(json=job())
        nomad.get("/v1/nodes").respond(json=[])
        assert cluster.states([JOB])[JOB].reason == "no host of its datacenters is ready"

    def test_of_an_ended_job_have_its_secret_removed_and_its_parent_stopped(
        self, cluster: NomadCluster, nomad: respx.Router, deleted: respx.Route
    ) -> None:
        child = f"{JOB}/periodic-1795253636"
        nomad.get("/v1/jobs").respond(json=[job(Periodic=True), job(child, "dead", ParentID=JOB)])
        ended = allocation("complete", terminated(0), job_id=child)
        nomad.get("/v1/allocations").respond(json=[ended])
        assert cluster.states([JOB])[JOB].run is JobRun.ENDED
        eventually(lambda: deleted.call_count == 2, "both are gone")
        paths = [call.request.url.path for call in deleted.calls]
        assert paths == [f"/v1/job/{JOB}", f"/v1/var/nomad/jobs/{JOB}"]


class TestRecurringJobs:
    PARENT = "benchmark-cron-0123456789abcdef-1"
    RUN = f"{PARENT}/periodic-1795253636"
    LATER = f"{PARENT}/periodic-1795253696"

    def test_are_listed_with_their_runs_in_order(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        alone = "benchmark-cron-0123456789abcdef-2"
        route = nomad.get("/v1/jobs").respond(
            json=[
                job(self.LATER, ParentID=self.PARENT),
                job(self.RUN, "dead", ParentID=self.PARENT),
                job(self.PARENT, Periodic=True),
                job(alone, "dead", Stop=True),
                job("benchmark-cron-ort-20261121094000-abcdefghij"),  # of a family "cron"
                job(f"{self.PARENT}/periodic-99999999999"),  # registered by somebody else
            ]
        )
        found = cluster.recurring()
        assert route.calls.last.request.url.params["prefix"] == "benchmark-cron-"
        assert found == {
            self.PARENT: RecurringJob(
                live=True,
                runs=(
                    StartedRun(job_id=self.RUN, live=False),
                    StartedRun(job_id=self.LATER, live=True),
                ),
            ),
            alone: RecurringJob(live=False),
        }

    def test_are_stopped_without_their_runs(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/jobs").respond(
            json=[job(self.PARENT, Periodic=True), job(self.RUN, ParentID=self.PARENT)]
        )
        deleted = nomad.delete(path__startswith="/v1/").respond(json={})
        cluster.stop(self.PARENT)
        assert [call.request.url.path for call in deleted.calls] == [f"/v1/job/{self.PARENT}"]
        cluster.stop(self.RUN)
        assert deleted.calls.last.request.url.path == f"/v1/job/{self.RUN}"

    def test_have_runs_with_states_of_their_own(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/jobs").respond(
            json=[job(each, ParentID=self.PARENT) for each in (self.RUN, self.LATER)]
        )
        nomad.get("/v1/allocations").respond(
            json=[
                allocation("running", job_id=self.RUN),
                allocation("pending", job_id=self.LATER, started=False),
            ]
        )
        states = cluster.states([self.RUN, self.LATER])
        assert {each: state.run for each, state in states.items()} == {
            self.RUN: JobRun.RUNNING,
            self.LATER: JobRun.QUEUED,
        }

    def test_have_runs_whose_events_are_theirs(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        single = f"{JOB}/periodic-1795253636"
        events = [
            {"Topic": "Job", "Type": "JobRegistered", "Key": each} for each in (self.RUN, single)
        ]
        line = json.dumps({"Index": 5, "Events": events}).encode()
        nomad.get("/v1/event/stream").respond(content=line + b"\n")
        stop = threading.Event()
        hints = cluster.events(stop)
        assert [next(hints), next(hints), next(hints)] == ["", self.RUN, JOB]
        stop.set()
        assert list(hints) == []

    @pytest.mark.parametrize(
        ("status", "desired", "runs"),
        [
            ("pending", "run", True),
            ("running", "run", True),
            ("running", "stop", False),
            ("complete", "run", False),
            ("lost", "run", False),
        ],
    )
    def test_are_found_by_an_allocation_that_runs(
        self, cluster: NomadCluster, nomad: respx.Router, status: str, desired: str, runs: bool
    ) -> None:
        found = allocation(status, desired=desired, job_id=self.RUN)
        route = nomad.get("/v1/allocations").respond(json=[found])
        job_id = cluster.job_of_allocation(str(found["ID"]))
        assert job_id == (self.RUN if runs else None)
        assert route.calls.last.request.url.params["filter"] == f'ID == "{found["ID"]}"'

    @pytest.mark.parametrize("hostile", ["", "../x", 'a" or ID != "', "4A1E6A2C"])
    def test_are_not_looked_for_by_what_is_no_allocation(
        self, cluster: NomadCluster, nomad: respx.Router, hostile: str
    ) -> None:
        assert cluster.job_of_allocation(hostile) is None
        assert not nomad.calls


class TestLogs:
    def test_are_the_bytes_of_the_task(self, cluster: NomadCluster, nomad: respx.Router) -> None:
        nomad.get("/v1/jobs").respond(json=[job()])
        nomad.get("/v1/allocations").respond(json=[allocation("running")])
        route = nomad.get(path__startswith="/v1/client/fs/logs/").respond(text="two\n")
        chunk = cluster.logs(JOB, "stdout", 4)
        assert (chunk.data, chunk.next_offset, chunk.ended) == (b"two\n", 8, False)
        params = route.calls.last.request.url.params
        assert (params["offset"], params["task"], params["type"]) == (
            "4",
            "bootstrap-job",
            "stdout",
        )

    @pytest.mark.parametrize("status", [404, 500])
    def test_of_an_allocation_that_is_gone_are_gone(
        self, cluster: NomadCluster, nomad: respx.Router, status: int
    ) -> None:
        nomad.get("/v1/jobs").respond(json=[job()])
        nomad.get("/v1/allocations").respond(json=[allocation("running")])
        nomad.get(path__startswith="/v1/client/fs/logs/").respond(
            status, text='Unknown allocation "4a1e6a2c"'
        )
        with pytest.raises(NotFound):
            cluster.logs(JOB, "stdout", 0)

    def test_before_the_task_are_empty(self, cluster: NomadCluster, nomad: respx.Router) -> None:
        nomad.get("/v1/jobs").respond(json=[job()])
        pending = allocation("pending", started=False)
        nomad.get("/v1/allocations").respond(json=[pending])
        nomad.get(path__startswith="/v1/client/fs/logs/").respond(404, text="not started yet")
        assert cluster.logs(JOB, "stdout", 0).data == b""


class SlowAnswer:
    """An answer that takes a while, with events of its request and its end."""

    def __init__(self, status: int) -> None:
        self.begun, self.answered = threading.Event(), threading.Event()
        self._status = status

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.begun.set()
        time.sleep(0.2)
        self.answered.set()
        return httpx.Response(self._status, json=[])


class TestNodes:
    def test_are_read_whole_only_when_their_index_moved(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/allocations").respond(json=[])
        small = nomad.get("/v1/nodes", params={"per_page": "1"}).respond(
            json=[], headers={"X-Nomad-Index": "5"}
        )
        whole = nomad.get("/v1/nodes", params={"resources": "true"}).respond(
            json=[node(device())], headers={"X-Nomad-Index": "5"}
        )
        for _ in range(3):
            assert cluster.hosts()[0].boards[0].target_uid == UID
        assert (whole.call_count, small.call_count) == (1, 2)
        small.respond(json=[], headers={"X-Nomad-Index": "6"})
        cluster.hosts()
        assert whole.call_count == 2

    def test_that_are_being_read_when_another_answer_fails_are_waited_for_at_the_end(
        self, nomad: respx.Router
    ) -> None:
        slowly = SlowAnswer(500)
        nomad.get("/v1/nodes").mock(side_effect=slowly)
        nomad.get("/v1/allocations").respond(403)
        cluster = NomadCluster(ACCESS, retry=RetryPolicy(first_s=600.0, max_s=600.0))
        with pytest.raises(ClusterUnreachable, match="403"):
            cluster.hosts()
        slowly.begun.wait()
        cluster.close()  # it is not tried again: that would take ten minutes
        assert slowly.answered.is_set()

    def test_that_another_thread_is_reading_are_waited_for_at_the_end(
        self, nomad: respx.Router
    ) -> None:
        slowly = SlowAnswer(200)
        nomad.get("/v1/nodes").mock(side_effect=slowly)
        client = NomadClient(ACCESS)
        thread = threading.Thread(target=client.nodes_index)
        thread.start()
        slowly.begun.wait()
        client.close()
        assert slowly.answered.is_set()
        thread.join()


CORE = {"CPU": "cpu0", "Idle": 75.0, "System": 5.0, "Total": 25.0, "User": 20.0}


class TestNomadsClock:
    """Starts are made by Nomad's clock, which may be off."""

    NOW = datetime(2026, 11, 21, 9, 40, tzinfo=UTC)
    BOTH_WAYS = pytest.mark.parametrize("offset_s", [600, -600])

    @pytest.fixture
    def lab(self, nomad: respx.Router) -> Iterator[NomadCluster]:
        nomad.put(path__startswith="/v1/var/").respond(json={})
        nomad.get("/v1/allocations").respond(json=[])
        lab = NomadCluster(ACCESS, retry=QUICK, now=lambda: self.NOW)
        yield lab
        lab.close()

    def seen(self, lab: NomadCluster, nomad: respx.Router, offset_s: int, start: datetime) -> None:
        """Nomad is asked for a job that waits for its start, by Nomad's clock."""
        periodic = {"Specs": [cron_of(start + timedelta(seconds=offset_s))]}
        nomad.get(f"/v1/job/{JOB}").respond(json={**job(), "Periodic": periodic})
        date = format_datetime(self.NOW + timedelta(seconds=offset_s), usegmt=True)
        nomad.get("/v1/jobs").respond(json=[job(Periodic=True)], headers={"Date": date})

    @BOTH_WAYS
    def test_does_not_make_a_start_seem_missed(
        self, lab: NomadCluster, nomad: respx.Router, offset_s: int
    ) -> None:
        start = self.NOW + timedelta(seconds=30)
        self.seen(lab, nomad, offset_s, start)
        state = lab.states([JOB])[JOB]
        assert (state.run, state.reason) == (JobRun.QUEUED, f"starts at {start:%F %T} UTC")
        missed = self.NOW - timedelta(seconds=90)
        self.seen(lab, nomad, offset_s, missed)
        state = lab.states([JOB])[JOB]
        assert state.failure is not None
        assert f"{missed:%F %T} UTC" in state.failure.sentence

    @BOTH_WAYS
    def test_does_not_move_a_start(
        self, lab: NomadCluster, nomad: respx.Router, offset_s: int
    ) -> None:
        start = self.NOW + timedelta(hours=1)
        self.seen(lab, nomad, offset_s, start)
        lab.states([JOB])
        text = a_job("pass", on(UID), periodic=Periodic(cron=cron_of(start)))
        nomad.post("/v1/jobs/parse").respond(json=api_job(parse_job(text)))
        registered = nomad.post("/v1/jobs").mock(return_value=DONE)
        lab.dispatch(parse_job(text).job_id, text, {})
        specs = json.loads(registered.calls.last.request.content)["Job"]["Periodic"]["Specs"]
        assert specs == [cron_of(start + timedelta(seconds=offset_s))]


STATS = {"CPU": [CORE, CORE | {"Idle": 25.0}], "Memory": {"Available": 3 << 30, "Total": 4 << 30}}


class TestHostsClocks:
    """Times of a host whose clock is off, as the server should know them."""

    NOW = datetime(2026, 11, 21, 9, 40, tzinfo=UTC)
    RAN = timedelta(seconds=2, microseconds=111198)

    @pytest.fixture
    def lab(self, nomad: respx.Router) -> Iterator[NomadCluster]:
        nomad.get("/v1/agent/self").respond(json={})
        nomad.get("/v1/vars").respond(json=[])
        nomad.get("/v1/nodes").respond(json=[node(device(), Name="pi-host")])
        nomad.get("/v1/jobs").respond(json=[job()])
        lab = NomadCluster(ACCESS, retry=QUICK, now=lambda: self.NOW)
        nomad.get("/v1/allocations").respond(json=[])
        lab.hosts()
        yield lab
        lab.close()

    def state(
        self,
        lab: NomadCluster,
        nomad: respx.Router,
        status: str,
        placed_before_s: float | None = None,
    ) -> JobState:
        found = allocation(status, *([terminated(0)] if status == "complete" else []))
        started = moment(STARTED)
        assert started is not None
        if placed_before_s is not None:
            found["CreateTime"] = int((started.timestamp() - placed_before_s) * 1e9)
        nomad.get("/v1/allocations").respond(json=[found])
        return lab.states([JOB])[JOB]

    def measured(self, lab: NomadCluster, nomad: respx.Router, offset_s: float) -> None:
        reported = int((self.NOW.timestamp() + offset_s) * 1e9)
        nomad.get("/v1/client/stats").respond(json=STATS | {"Timestamp": reported})
        eventually(lambda: "pi-host" in lab.loads(), "it reported")
        found = lab.loads()["pi-host"].clock_offset_s
        assert found == pytest.approx(offset_s, abs=0.01)

    @pytest.mark.parametrize("offset_s", [-600.0, 600.0])
    def test_are_corrected_by_how_far_it_is_off(
        self, lab: NomadCluster, nomad: respx.Router, offset_s: float
    ) -> None:
        self.measured(lab, nomad, offset_s)
        said = moment(STARTED)
        assert said is not None
        running = self.state(lab, nomad, "running")
        assert running.started_at == said - timedelta(seconds=offset_s)
        ended = self.state(lab, nomad, "complete")
        assert ended.started_at == running.started_at
        assert ended.ended_at is not None
        assert ended.started_at is not None
        assert ended.ended_at - ended.started_at == self.RAN

    @pytest.mark.parametrize("placed_before_s", [None, -600.0])
    def test_count_from_receipt_where_its_clock_was_not_measured(
        self, lab: NomadCluster, nomad: respx.Router, placed_before_s: float | None
    ) -> None:
        """A start before Nomad's server had placed the job can't be."""
        assert self.state(lab, nomad, "running", placed_before_s).started_at == self.NOW
        ended = self.state(lab, nomad, "complete", placed_before_s)
        assert (ended.started_at, ended.ended_at) == (self.NOW - self.RAN, self.NOW)

    def test_are_as_it_says_where_they_can_be_and_its_clock_was_not_measured(
        self, lab: NomadCluster, nomad: respx.Router
    ) -> None:
        """Else each look would find another time, and ends of two jobs be out of order."""
        assert self.state(lab, nomad, "running", 1.0).started_at == moment(STARTED)
        ended = self.state(lab, nomad, "complete", 1.0)
        assert ended.started_at == moment(STARTED)
        assert ended.ended_at == moment(STARTED) + self.RAN  # type: ignore[operator]

    def test_are_as_it_says_where_it_agrees(self, lab: NomadCluster, nomad: respx.Router) -> None:
        self.measured(lab, nomad, 0.7)
        assert self.state(lab, nomad, "running").started_at == moment(STARTED)


class TestLoads:
    @pytest.fixture
    def asked(self, cluster: NomadCluster, nomad: respx.Router) -> respx.Route:
        nodes = [
            node(device(), ID=f"node-{name}", Name=name, **changes)
            for name, changes in (("a", {}), ("b", {}), ("down", {"Status": "down"}))
        ]
        nodes.append(node(ID="node-bare", Name="bare"))
        nomad.get("/v1/nodes").respond(json=nodes)
        nomad.get("/v1/allocations").respond(json=[])
        cluster.hosts()
        return nomad.get("/v1/client/stats")

    def test_come_from_what_ready_hosts_of_boards_measure(
        self, cluster: NomadCluster, asked: respx.Route
    ) -> None:
        asked.respond(json=STATS)
        assert cluster.loads() == {}  # nobody waits for hosts
        eventually(lambda: cluster.loads().keys() == {"a", "b"}, "both reported")
        load = cluster.loads()["a"].load
        assert (load.cpu, load.memory) == (0.5, 0.25)
        requests = [call.request.url.params["node_id"] for call in asked.calls]
        assert sorted(requests) == ["node-a", "node-b"]

    @pytest.mark.parametrize(
        "bad",
        [
            httpx.Response(500, text="No path to node"),
            httpx.Response(200, text="<html>"),
            httpx.Response(200, text="[" * 100_000),
            httpx.Response(200, json=[]),
            httpx.Response(200, json=STATS | {"CPU": []}),
            httpx.Response(200, json=STATS | {"CPU": [CORE | {"Idle": -1}]}),
            httpx.Response(200, json=STATS | {"CPU": ["idle"]}),
            httpx.Response(200, json=STATS | {"Memory": {"Available": 10**400, "Total": 1}}),
            httpx.Response(200, json=STATS | {"Memory": {"Available": 1, "Total": 0}}),
            httpx.Response(200, json=STATS | {"Memory": None}),
            httpx.ReadTimeout("slow"),
        ],
    )
    def test_are_none_of_a_host_that_does_not_tell(
        self, cluster: NomadCluster, asked: respx.Route, bad: httpx.Response | Exception
    ) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.params["node_id"] == "node-b":
                return httpx.Response(200, json=STATS)
            if isinstance(bad, Exception):
                raise bad
            return bad

        asked.side_effect = answer
        cluster.loads()
        eventually(lambda: cluster.loads().keys() == {"b"}, "the other reported")
        assert cluster.hosts()  # the circuit is closed, whatever hosts do


class TestAnEmptyDatabase:
    def test_that_meets_live_jobs_of_ours_shows_no_board_and_cancels_nothing(
        self, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/nodes").respond(json=[node(device())])
        nomad.get("/v1/allocations").respond(json=[])
        jobs = nomad.get("/v1/jobs").respond(json=[job("benchmark-x"), job("benchmark-y", "dead")])
        cluster = NomadCluster(ACCESS, retry=QUICK, database_empty=lambda: True)
        for _ in range(2):
            with pytest.raises(ClusterUnreachable, match=r"1 of Edgeyard.s are live .*benchmark-x"):
                cluster.hosts()
        jobs.respond(json=[job("benchmark-x", Stop=True)])
        assert cluster.hosts()[0].boards
        jobs.respond(json=[job("benchmark-z")])  # its own, from now on
        assert cluster.hosts()[0].boards
        cluster.close()

    def test_is_asked_about_only_where_there_is_one(self, nomad: respx.Router) -> None:
        nomad.get("/v1/nodes").respond(json=[node(device())])
        nomad.get("/v1/allocations").respond(json=[])
        cluster = NomadCluster(ACCESS, retry=QUICK)
        (host,) = cluster.hosts()
        assert host.boards  # jobs are not asked for: no route for them
        assert (host.attributes["${attr.cpu.arch}"], host.attributes["${meta.rack}"]) == (
            "arm64",
            "b",
        )
        cluster.close()


class TestUseByOthers:
    """Jobs that are none of ours hold boards."""

    def boards(self, cluster: NomadCluster, nomad: respx.Router, *holders: Json, **facts: object):  # type: ignore[no-untyped-def]
        nomad.get("/v1/nodes").respond(json=[node(device(further=facts))])
        nomad.get("/v1/allocations").respond(json=list(holders))
        (host,) = cluster.hosts()
        return host.boards[0]

    def test_a_job_of_another_namespace_is_named_as_such(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        other = allocation("running", job_id="train-7", Namespace="vision")
        board = self.boards(cluster, nomad, other)
        assert (board.busy, board.busy_reason) == (True, "used by a job outside Edgeyard")

    def test_one_of_nomad_2_is_read_where_2_1_states_its_devices(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        """2.1 deprecates `Resources` and `TaskResources` of allocations; here they are empty."""
        nomad.get("/v1/nodes").respond(json=NOMAD_2["/v1/nodes"])
        nomad.get("/v1/allocations").respond(json=NOMAD_2["/v1/allocations"])
        (host,) = cluster.hosts()
        (board,) = host.boards
        assert (board.target_uid, board.ram_bytes) == (UID, 4 * 2**30)
        assert (board.busy, board.busy_reason) == (True, "used by a job outside Edgeyard")

    def test_one_that_our_token_may_not_see_is_known_by_what_the_board_reports(
        self, cluster: NomadCluster, nomad: respx.Router
    ) -> None:
        content = {"dynamic.status": "busy", "dynamic.progress": 40}
        board = self.boards(cluster, nomad, **content)
        assert (board.busy, board.reports_task, board.progress) == (False, True, 40)


class TestStrays:
    """Live jobs under our names that the database does not know."""

    def test_are_named_with_the_boards_that_they_hold(self, nomad: respx.Router) -> None:
        nomad.get("/v1/jobs").respond(json=[job("benchmark-a"), job("benchmark-b")])
        nomad.get("/v1/nodes").respond(json=[node(device())])
        nomad.get("/v1/allocations").respond(
            json=[allocation("running", job_id="benchmark-b", Namespace="lab")]
        )
        cluster = NomadCluster(
            ACCESS, retry=QUICK, known=lambda job_ids: {"benchmark-a"} & set(job_ids)
        )
        (host,) = cluster.hosts()
        assert cluster.strays() == {"benchmark-b": UID}
        assert host.boards[0].busy
        assert "does not know" in host.boards[0].busy_reason
        cluster.close()

    def test_their_tokens_are_read(self, client: NomadClient, nomad: respx.Router) -> None:
        nomad.get(f"/v1/var/nomad/jobs/{JOB}").respond(json={"Items": {"T": "secret"}})
        nomad.get("/v1/var/nomad/jobs/benchmark-none").respond(404)
        assert client.secrets(JOB) == {"T": "secret"}
        assert client.secrets("benchmark-none") == {}


class TestHousekeeping:
    NOW = datetime.fromisoformat(STARTED)
    OLD_NS = int((NOW - timedelta(days=8)).timestamp() * 1e9)
    HOUR_AGO_NS = int((NOW - timedelta(hours=1)).timestamp() * 1e9)
    YOUNG_NS = int((NOW - timedelta(minutes=1)).timestamp() * 1e9)

    def test_stops_and_purges_only_what_edgeyard_knows_to_have_ended(
        self, client: NomadClient, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/jobs").respond(
            json=[
                job("benchmark-lives", SubmitTime=self.HOUR_AGO_NS),
                job("benchmark-orphan", SubmitTime=self.HOUR_AGO_NS),
                job("benchmark-young", SubmitTime=self.YOUNG_NS),
                job("benchmark-old", "dead", SubmitTime=self.OLD_NS),
                job("benchmark-kept", "dead", SubmitTime=self.HOUR_AGO_NS),
                job("benchmark-foreign", "dead", SubmitTime=self.OLD_NS),
                job("benchmark-foreign2", SubmitTime=self.OLD_NS),
            ]
        )
        nomad.get("/v1/vars").respond(
            json=[{"Path": f"nomad/jobs/{each}"} for each in ("benchmark-old", "other", JOB)]
        )
        removed = nomad.delete(path__startswith="/v1/").respond(json={})
        known = {"benchmark-orphan", "benchmark-young", "benchmark-old", "benchmark-kept", "other"}
        keeper = GarbageCollector(
            client,
            purge_age_s=7 * 86400,
            ended=lambda ids: known & set(ids),
            now=lambda: self.NOW.astimezone(UTC),
        )
        keeper.collect()
        gone = [
            (call.request.url.path, call.request.url.params.get("purge")) for call in removed.calls
        ]
        assert gone == [
            ("/v1/job/benchmark-orphan", "false"),
            ("/v1/job/benchmark-old", "true"),
            ("/v1/var/nomad/jobs/benchmark-old", None),
        ]

    def test_a_job_that_nomad_does_not_let_go_keeps_no_other(
        self, client: NomadClient, nomad: respx.Router
    ) -> None:
        nomad.get("/v1/jobs").respond(
            json=[
                job(f"benchmark-{name}", "dead", SubmitTime=self.OLD_NS) for name in ("bad", "good")
            ]
        )
        nomad.get("/v1/vars").respond(json=[])
        nomad.delete("/v1/job/benchmark-bad").respond(403, text="Permission denied")
        good = nomad.delete("/v1/job/benchmark-good").respond(json={})
        GarbageCollector(
            client,
            purge_age_s=7 * 86400,
            ended=lambda ids: ids,
            now=lambda: self.NOW.astimezone(UTC),
        ).collect()
        assert good.called


def test_a_job_has_a_page_in_nomad_s_ui() -> None:
    assert ACCESS.page_of(JOB) == f"{ADDRESS}/ui/jobs/benchmark-1@lab"
    shown = replace(ACCESS, ui_url="https://nomad.example.org")
    assert shown.page_of(JOB).startswith("https://nomad.example.org/ui/jobs/")
