"""What `edgeyard doctor` finds at a Nomad, and what it says to do, without a Nomad."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path

import httpx
import pytest
import respx

from edgeyard.scheduler.clusters.nomad import NomadAccess
from edgeyard.scheduler.clusters.nomad.doctor import examine
from edgeyard.scheduler.clusters.nomad.doctor.reach import last_words
from edgeyard.scheduler.model.finding import Finding
from edgeyard.scheduler.twin.checkup import board_findings
from tests.builders.cluster import GIB, a_board
from tests.builders.nomad import ADDRESS, NOMAD_2, UID, Json, device, node

ACCESS = NomadAccess(address=ADDRESS, token="s3cret", namespace="edgeyard")
SERVER = "http://edgeyard.test:42777"
DENIED = httpx.Response(403, text="Permission denied")
RUNNER = ("edgeyard-runner",)
RIGHTS = [
    *["list-jobs", "read-job", "submit-job", "node read", "agent read", "read-logs"],
    *["read-fs", "read-job elsewhere"],
    *["variables write", "variables list", "variables read", "variables destroy"],
]

Handler = Callable[[httpx.Request], httpx.Response]


class Nomad:
    """Answers as a Nomad does where all is well; ``changes`` come first, by method and path."""

    def __init__(self) -> None:
        self.changes: dict[tuple[str, str], httpx.Response | Exception | Handler] = {}
        self.nodes: list[Json] = [a_node()]
        self.events: list[Json] = [
            {"Type": "Received"},
            {"Type": "Downloading Artifacts"},
            {"Type": "Started"},
            {"Type": "Terminated", "ExitCode": 0},
        ]
        self.run: Json = {}
        self.log = self.said = ""
        self.clock_ahead_s = 0.0
        self.variables: dict[str, object] = {}
        self.jobs: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        name = next((each for each in self.changes if matches(each, request)), None)
        if name is not None:
            change = self.changes[name]
            if isinstance(change, Exception):
                raise change
            return change if isinstance(change, httpx.Response) else change(request)
        if path.startswith("/v1/var/"):
            return self._variable(request, path.removeprefix("/v1/var/"))
        if path == "/v1/vars":
            found = [{"Path": each} for each in self.variables]
            return httpx.Response(200, json=found)
        if request.method == "PUT" and path == "/v1/jobs":
            self.jobs.append(json.loads(request.content)["Job"]["ID"])
            return httpx.Response(200, json={})
        if request.method == "DELETE":
            self.jobs.remove(path.rpartition("/")[2])
            return httpx.Response(200, json={})
        if "/logs/" in path:
            stdout = request.url.params["type"] == "stdout"
            return httpx.Response(200, text=self.said if stdout else self.log)
        return self._plain(path)

    def _plain(self, path: str) -> httpx.Response:
        answers: Mapping[str, object] = {
            "/livez": {"status": "alive"},  # Edgeyard's own
            "/v1/status/leader": "127.0.0.1:4647",
            "/v1/agent/self": {"config": {"Version": {"Version": "1.11.3"}}},
            "/v1/acl/token/self": {"Name": "edgeyard", "Type": "client", "Policies": ["edgeyard"]},
            "/v1/jobs": [],
            "/v1/namespace/edgeyard": {"Name": "edgeyard"},
            "/v1/nodes": self.nodes,
            "/v1/client/stats": {"Timestamp": int((time.time() + self.clock_ahead_s) * 1e9)},
        }
        if path in answers:
            now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=self.clock_ahead_s)
            date = {"Date": format_datetime(now, usegmt=True)}
            return httpx.Response(200, json=answers[path], headers=date)
        if path.endswith("/allocations"):
            states = {"reach": {"Events": self.events}}
            runs = [
                {"ID": "a", "NodeID": each["ID"], "TaskStates": states, **self.run}
                for each in self.nodes
            ]
            return httpx.Response(200, json=runs)
        if path.endswith("/plan"):
            return httpx.Response(200, json={})
        if "/operator/" in path:
            return preemption(on=False)
        return httpx.Response(404, text="not found")

    def _variable(self, request: httpx.Request, path: str) -> httpx.Response:
        if request.method == "PUT":
            self.variables[path] = {}
        elif path not in self.variables:
            return httpx.Response(404, text="variable not found")
        elif request.method == "DELETE":
            del self.variables[path]
        return httpx.Response(200, json={})


def preemption(*, on: bool) -> httpx.Response:
    config = {"SchedulerConfig": {"PreemptionConfig": {"BatchSchedulerEnabled": on}}}
    return httpx.Response(200, json=config)


def matches(each: tuple[str, str], request: httpx.Request) -> bool:
    return each[0] == request.method and request.url.path.startswith(each[1])


def a_node(**changes: object) -> Json:
    drivers = {
        "docker": {"Detected": False, "Healthy": False, "HealthDescription": "no daemon"},
        "raw_exec": {"Detected": True, "Healthy": True},
    }
    own = {"Name": "pi-host", "Datacenter": "dc1", "Version": "1.11.3", "Drivers": drivers}
    return {**node(device()), **own, **changes}


@pytest.fixture
def nomad() -> Iterator[Nomad]:
    made = Nomad()
    with respx.mock(assert_all_called=False) as router:
        router.route().mock(side_effect=made)
        yield made


def look(
    *,
    access: NomadAccess = ACCESS,
    expected: Sequence[str] = (UID,),
    driver: str = "raw_exec",
    datacenters: Sequence[str] = ("dc1",),
) -> list[Finding]:
    boards = [a_board(uid, storage_bytes=16 * GIB) for uid in expected]
    findings = examine(
        replace(access, datacenters=tuple(datacenters)),
        driver=driver,
        image="",
        public_url=SERVER,
        boards=partial(board_findings, boards, "deny"),
        runner=RUNNER if driver == "raw_exec" else (),
        max_wait_s=0.0,
    )
    return list(findings)


def trouble(findings: Sequence[Finding]) -> list[Finding]:
    return [each for each in findings if each.state in ("problem", "warning")]


def only(findings: Sequence[Finding], check: str, state: str) -> Finding:
    """The only trouble, of this kind; it says what to do."""
    (found,) = trouble(findings)
    assert (found.check, found.state) == (check, state), found
    assert found.fix
    return found


def test_where_all_is_well_nothing_is_to_be_done(nomad: Nomad) -> None:
    findings = look()
    assert trouble(findings) == []
    checks = [each.check for each in findings]
    assert {f"right {each}" for each in RIGHTS} <= set(checks)
    seen = {"nomad", "nomad version", "nomad token", "nomad boards", "nomad clock", "namespace"}
    assert seen | {"plugin", "driver", "preemption", "public url", "runner"} <= set(checks)
    assert len(checks) == len(set(checks))  # nothing is reported twice
    assert nomad.variables == {}  # nothing stays
    assert nomad.jobs == []


def test_hosts_that_can_t_confine_runs_are_named(nomad: Nomad) -> None:
    nomad.said = "edgeyard-runner 1\nsandbox open: runs are held by resource limits only\n"
    found = only(look(), "sandbox", "warning")
    assert found.found == "on pi-host runs are held by resource limits only"
    assert "bubblewrap" in found.fix


def test_hosts_that_confine_runs_are_named_as_good(nomad: Nomad) -> None:
    nomad.said = "edgeyard-runner 1\nsandbox ok: each run is confined by bubblewrap\n"
    findings = look()
    assert trouble(findings) == []
    (found,) = [each for each in findings if each.check == "sandbox"]
    assert found.found == "on pi-host each run is confined by bubblewrap"


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        ("[Errno 111] Connection refused", "correct clusters.nomad.address"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: no issuer (_ssl.c:1)",
            "clusters.nomad.ca_cert",
        ),
        ("[SSL: X] tlsv13 alert certificate required (_ssl.c:2580)", "clusters.nomad.client_cert"),
    ],
)
def test_a_nomad_that_does_not_answer(nomad: Nomad, why: str, fix: str) -> None:
    nomad.changes["GET", "/v1/status/leader"] = httpx.ConnectError(why)
    found = only(look(), "nomad", "problem")
    assert ("certificate" in why) is ("of its cluster" in found.found)
    assert fix in found.fix


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        (httpx.Response(400, text="Client sent an HTTP request to an HTTPS server."), "https://"),
        (httpx.Response(500, text="No cluster leader"), "nomad server members"),
        (httpx.Response(200, text="<html>"), "nomad server members"),
    ],
)
def test_a_nomad_that_is_not_well(nomad: Nomad, answer: httpx.Response, fix: str) -> None:
    nomad.changes["GET", "/v1/status/leader"] = answer
    assert fix in only(look(), "nomad", "problem").fix


def test_a_region_that_nomad_does_not_know_is_named_with_those_it_knows(nomad: Nomad) -> None:
    nomad.changes["GET", "/v1/status/leader"] = httpx.Response(500, text="No path to region")
    nomad.changes["GET", "/v1/regions"] = httpx.Response(200, json=["global", "lab"])
    found = only(look(access=replace(ACCESS, region="labb")), "nomad", "problem")
    assert "knows no region labb; it knows global, lab" in found.found
    assert "clusters.nomad.region" in found.fix


@pytest.mark.parametrize("status", [403, 404])
def test_a_wrong_namespace_is_the_only_problem_and_no_right_is_missing(
    nomad: Nomad, status: int
) -> None:
    nomad.changes["GET", "/v1/namespaces"] = httpx.Response(200, json=[{"Name": "lab"}])
    nomad.changes["GET", "/v1/namespace/"] = httpx.Response(status, text="Permission denied")
    for path in ("/v1/jobs", "/v1/job/", "/v1/vars"):
        nomad.changes["GET", path] = DENIED
    found = only(look(), "namespace", "problem")
    assert "edgeyard does not exist, or the token may not use it" in found.found
    assert found.found.endswith("the token may use lab")
    assert "clusters.nomad.namespace" in found.fix
    assert nomad.jobs == []


@pytest.mark.parametrize("datacenters", [("dc1",), ("*",), ("other", "*1"), ("d*",)])
def test_datacenters_of_hosts_are_good(nomad: Nomad, datacenters: Sequence[str]) -> None:
    nomad.nodes = [a_node(Datacenter="dc1")]
    assert trouble(look(datacenters=datacenters)) == []


def test_datacenters_that_no_host_with_boards_is_in_are_a_problem(nomad: Nomad) -> None:
    nomad.nodes = [a_node(Datacenter="lab")]
    found = only(look(datacenters=("dc1", "dc2")), "datacenters", "problem")
    assert found.found == "no job can run on pi-host (in lab): jobs name dc1, dc2"
    assert found.fix == 'set clusters.nomad.datacenters to ["lab"]'


def test_a_file_of_certificates_that_is_not_there(nomad: Nomad, tmp_path: Path) -> None:
    access = replace(ACCESS, address="https://nomad.test:4646", ca_cert=tmp_path / "none.pem")
    assert "clusters.nomad.ca_cert" in only(look(access=access), "nomad", "problem").fix


@pytest.mark.parametrize("version", ["1.11.1", "1.9.12", "1.11.2-beta.1", "1.11.2", "2.0.0"])
def test_versions_with_known_bugs(nomad: Nomad, version: str) -> None:
    content = {"config": {"Version": {"Version": version}}}
    nomad.changes["GET", "/v1/agent/self"] = httpx.Response(200, json=content)
    nomad.nodes = [a_node(Version=version)]
    old = version in ("1.11.1", "1.9.12")
    assert len(trouble(look())) == (2 if old else 0)
    if old:
        assert all("update it to 1.11.2 or later" in each.fix for each in trouble(look()))


@pytest.fixture
def nomad_2(nomad: Nomad) -> Nomad:
    """As `NOMAD_2`; what that does not state, as 1.11 answers."""
    nomad.nodes = [dict(each) for each in NOMAD_2["/v1/nodes"]]
    agent = httpx.Response(200, json=NOMAD_2["/v1/agent/self"])
    nomad.changes["GET", "/v1/agent/self"] = agent
    nomad.changes["GET", "/v1/queue/jobs"] = httpx.Response(200, json=NOMAD_2["no queue"])
    return nomad


def test_a_nomad_2_where_all_is_well_has_nothing_to_be_done(nomad_2: Nomad) -> None:
    findings = look()
    assert trouble(findings) == []
    assert found_of(findings, "nomad version").found == "the server: 2.1.0"
    assert found_of(findings, "batch queue").found == "node pool default has none"


@pytest.mark.parametrize("kind", ["fifo", "dynamic_priority"])
def test_a_node_pool_that_queues_batch_jobs_is_refused(nomad_2: Nomad, kind: str) -> None:
    asked: list[str] = []

    def queue(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["node_pool"])
        return httpx.Response(200, json=NOMAD_2[kind])

    nomad_2.nodes = [{**each, "NodePool": "edge"} for each in nomad_2.nodes]
    nomad_2.changes["GET", "/v1/queue/jobs"] = queue
    found = only(look(access=replace(ACCESS, node_pool="edge")), "batch queue", "problem")
    assert f"node pool edge has a queue of batch jobs ({kind})" in found.found
    assert "batch_queue" in found.fix
    assert "clusters.nomad.node_pool" in found.fix
    assert asked == ["edge"]


def test_a_nomad_without_batch_queues_has_none(nomad: Nomad) -> None:
    assert found_of(look(), "batch queue").state == "ok"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (DENIED, "may not list jobs"),
        (httpx.Response(500, text="No leader"), "No leader"),
        (httpx.Response(200, text="<html>"), "does not report"),
    ],
)
def test_a_batch_queue_that_is_not_known_is_no_problem(
    nomad_2: Nomad, answer: httpx.Response, words: str
) -> None:
    nomad_2.changes["GET", "/v1/queue/jobs"] = answer
    findings = look()
    assert trouble(findings) == []
    found = found_of(findings, "batch queue")
    assert (found.state, words in found.found) == ("unknown", True)


def test_a_cluster_without_acls_is_reported(nomad: Nomad) -> None:
    off = httpx.Response(400, text="ACL support disabled")
    nomad.changes["GET", "/v1/acl/token/self"] = off
    assert "enable ACLs" in only(look(), "nomad token", "warning").fix


def test_tokens_that_are_not_good(nomad: Nomad) -> None:
    assert "clusters.nomad.token_file" in only(look(access=replace(ACCESS, token=None)), *BAD).fix
    nomad.changes["GET", "/v1/acl/token/self"] = httpx.Response(403, text="ACL token not found")
    assert "nomad acl token create" in only(look(), *BAD).fix
    management = {"Name": "root", "Type": "management"}
    nomad.changes["GET", "/v1/acl/token/self"] = httpx.Response(200, json=management)
    assert "edgeyard.policy.hcl" in only(look(), "nomad token", "warning").fix


BAD = ("nomad token", "problem")


def test_a_token_that_soon_expires(nomad: Nomad) -> None:
    soon = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    content = {"Name": "edgeyard", "Type": "client", "Policies": None, "ExpirationTime": soon}
    nomad.changes["GET", "/v1/acl/token/self"] = httpx.Response(200, json=content)
    assert "expires at" in only(look(), "nomad token", "warning").found


@pytest.mark.parametrize(
    ("call", "right", "rule"),
    [
        (("GET", "/v1/jobs"), "list-jobs", 'namespace "edgeyard" { capabilities = ["list-jobs"] }'),
        (("GET", "/v1/job/edgeyard-doctor"), "read-job", '"read-job"'),
        (("POST", "/v1/job/"), "submit-job", '"submit-job"'),
        (("GET", "/v1/vars"), "variables list", '["list"]'),
        (("GET", "/v1/var/"), "variables read", 'variables { path "nomad/jobs/benchmark-*"'),
        (("DELETE", "/v1/var/"), "variables destroy", '["destroy"]'),
        (("GET", "/v1/client/fs/logs"), "read-logs", '"read-logs"'),
        (("GET", "/v1/agent/self"), "agent read", 'agent { policy = "read" }'),
    ],
)
def test_each_right_that_is_missing_is_named(
    nomad: Nomad, call: tuple[str, str], right: str, rule: str
) -> None:
    if right == "read-job":  # not the job's allocations
        nomad.changes["GET", "/v1/job/edgeyard-doctor"] = lambda request: (
            httpx.Response(200, json=[]) if "-" in request.url.path[24:] else DENIED
        )
        others = ("public url", "right read-job elsewhere")
        findings = [each for each in trouble(look()) if each.check not in others]
    else:
        nomad.changes[call] = DENIED
        findings = trouble(look())
    assert rule in only(findings, f"right {right}", "problem").fix


def test_a_token_without_variables_or_nodes(nomad: Nomad) -> None:
    for call in (("PUT", "/v1/var/"), ("GET", "/v1/var/"), ("DELETE", "/v1/var/")):
        nomad.changes[call] = DENIED
    nomad.changes["GET", "/v1/nodes"] = DENIED
    findings = look()
    kinds = ("variables write", "variables read", "variables destroy", "node read")
    assert [each.check for each in trouble(findings)] == [f"right {kind}" for kind in kinds]
    assert "without the right to write" in found_of(findings, "right variables list").found


def test_variables_that_nomad_hides_are_not_listed(nomad: Nomad) -> None:
    nomad.changes["GET", "/v1/vars"] = httpx.Response(200, json=[])
    only(look(), "right variables list", "problem")


def test_a_namespace_that_is_missing_or_forbids_the_driver(nomad: Nomad) -> None:
    nomad.changes["GET", "/v1/namespace/"] = httpx.Response(404, text="Namespace not found")
    assert "nomad namespace apply edgeyard" in only(look(), "namespace", "problem").fix
    capabilities = {"Capabilities": {"DisabledTaskDrivers": ["raw_exec"]}}
    nomad.changes["GET", "/v1/namespace/"] = httpx.Response(200, json=capabilities)
    assert "disabled_task_drivers" in only(look(), "namespace", "problem").fix


def test_hosts_without_the_plugin(nomad: Nomad) -> None:
    bare = a_node(ID="node-2", Name="bare", NodeResources=None)
    nomad.nodes.append(bare)
    findings = look()
    assert trouble(findings) == []
    assert [each.found for each in findings if each.check == "plugin"] == [
        "daiedge/edgedevice on pi-host (1 board)",
        "no boards on bare",
    ]
    nomad.nodes = [bare]
    checks = {each.check: each for each in trouble(look())}
    assert "docs/how-to/lab-hosts.md" in checks["plugin"].fix
    assert checks["nomad boards"].state == "problem"


def test_a_boards_file_that_can_not_be_used(nomad: Nomad) -> None:
    why = "boards_file: $.rpi4b[0]: is empty"
    instances = [{"ID": "boards-file", "Healthy": False, "HealthDescription": why}]
    group = {"Vendor": "daiedge", "Type": "boardsfile", "Name": "error", "Instances": instances}
    nomad.nodes.append(
        a_node(ID="node-2", Name="other", NodeResources={"Devices": [group, device()]})
    )
    found = [each for each in trouble(look()) if each.check == "boards file"]
    assert [each.found for each in found] == [f"other: {why}"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"Status": "down"}, "down"),
        ({"Drain": True}, "draining"),
        ({"SchedulingEligibility": "ineligible"}, "ineligible"),
    ],
)
def test_hosts_that_are_out(nomad: Nomad, changes: Json, why: str) -> None:
    nomad.nodes = [a_node(**changes)]
    found = next(each for each in trouble(look()) if each.check == "host")
    assert found.found == f"{why}: pi-host; 1 board out"
    assert found.fix


def test_boards_that_are_not_as_expected(nomad: Nomad) -> None:
    found = only(look(expected=(UID, "rpi5-0001-0001")), "board missing", "warning")
    assert found.found == "rpi5-0001-0001: no host reports it"
    checks = {each.check: each for each in look(expected=("rpi5-0001-0001",))}
    assert checks["board unknown"].found == f"on pi-host, they are never used: {UID}"
    nomad.nodes = [a_node(NodeResources={"Devices": [device(healthy=False)]})]
    assert "/dev/ttyUSB0 is gone" in only(look(), "board unhealthy", "warning").found
    smaller = device(further={"memory.ram": GIB})
    nomad.nodes = [a_node(NodeResources={"Devices": [smaller]})]
    assert "ram is 1 GiB, not 4 GiB" in only(look(), "board differs", "warning").found


def test_many_boards_do_not_flood_the_screen(nomad: Nomad) -> None:
    uids = [f"rpi5-0001-{number:04}" for number in range(300)]
    (found,) = trouble(look(expected=(UID, *uids)))
    assert found.found.endswith("rpi5-0001-0019 and 280 more: no host reports it")


def test_a_driver_that_a_host_has_not(nomad: Nomad) -> None:
    findings = [each for each in look(driver="docker") if each.check == "driver"]
    found = only(findings, "driver", "problem")
    assert found.found == "no healthy docker on pi-host: no daemon"
    assert "EDGEYARD_DRIVER=raw_exec" in found.fix


@pytest.mark.parametrize(("ahead_s", "word"), [(60.0, "ahead"), (-60.0, "behind")])
def test_clocks_that_differ(nomad: Nomad, ahead_s: float, word: str) -> None:
    nomad.clock_ahead_s = ahead_s
    found = trouble(look())
    assert {each.check for each in found} == {"nomad clock"}  # one where both round to one second
    assert all(word in each.found and "NTP" in each.fix for each in found)
    assert "pi-host" in found[-1].found


def test_a_host_that_does_not_tell_its_clock(nomad: Nomad) -> None:
    nomad.changes["GET", "/v1/client/stats"] = httpx.ReadTimeout("")
    findings = look()
    assert trouble(findings) == []
    assert "unknown" in [each.state for each in findings if each.check == "nomad clock"]


def test_preemption_by_nomad_itself(nomad: Nomad) -> None:
    assert found_of(look(), "preemption").state == "ok"
    nomad.changes["GET", "/v1/operator/"] = preemption(on=True)
    assert "-preempt-batch-scheduler=false" in only(look(), "preemption", "warning").fix


def test_a_token_that_may_not_see_the_preemption_setting(nomad: Nomad) -> None:
    nomad.changes["GET", "/v1/operator/"] = DENIED
    found = found_of(look(), "preemption")
    assert (found.state, trouble(look())) == ("unknown", [])
    assert found.fix.endswith('operator { policy = "read" }')
    nomad.changes["GET", "/v1/operator/"] = httpx.Response(500, text="No leader")
    assert "No leader" in found_of(look(), "preemption").found


def test_hosts_that_do_not_reach_the_server_are_one_finding(nomad: Nomad) -> None:
    nomad.nodes = [a_node(ID=f"node-{n}", Name=f"host-{n}") for n in range(3)]
    del nomad.events[2:]
    nested = (
        f'failed to download artifact "{SERVER}/livez": getter subprocess failed: exit status 1: '
        f'failed to download artifact: Get "{SERVER}/livez": dial tcp 10.0.0.1:42777: connect: '
        "connection refused"
    )
    nomad.events.append({"Type": "Failed Artifact Download", "DisplayMessage": nested})
    found = only(look(), "public url", "problem")
    assert found.found == f"{SERVER} is not reached by host-0, host-1, host-2: connection refused"
    assert "clusters.nomad.public_url" in found.fix
    assert nomad.jobs == []


def test_hosts_that_say_nothing(nomad: Nomad) -> None:
    del nomad.events[2:]  # it still tries
    assert "no answer from pi-host" in only(look(), "public url", "problem").found
    nomad.changes["PUT", "/v1/jobs"] = DENIED
    assert found_of(look(), "public url", "unknown").found.startswith("no job could be run")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a: b: connection refused", "connection refused"),
        ("failed: bad response code: 404", "bad response code: 404"),
        ('rpc error: code = Unknown desc = binary "x" not found', 'binary "x" not found'),
        ("", ""),
        ("404", "404"),
    ],
)
def test_of_nested_errors_the_cause_is_reported(text: str, cause: str) -> None:
    assert last_words(text) == cause


def test_a_host_without_the_runner(nomad: Nomad) -> None:
    why = 'rpc error: code = Unknown desc = binary "edgeyard-runner" could not be found'
    nomad.events[2:] = [{"Type": "Driver Failure", "DisplayMessage": why}]
    found = only(look(), "runner", "problem")
    assert found.found == (
        'edgeyard-runner does not start on pi-host: binary "edgeyard-runner" could not be found'
    )
    assert "EDGEYARD_RAW_EXEC_COMMAND" in found.fix
    assert found_of(look(), "public url").state == "ok"  # that much is known


def test_a_runner_that_ends_at_once_says_why(nomad: Nomad) -> None:
    nomad.events[3] = {"Type": "Terminated", "ExitCode": 1}
    assert only(look(), "runner", "problem").found.endswith("it ended with exit status 1")
    nomad.log = "Traceback:\nModuleNotFoundError: No module named 'edgeyard'\n"
    found = only(look(), "runner", "problem").found
    assert found.endswith("on pi-host: ModuleNotFoundError: No module named 'edgeyard'")


def test_a_run_that_ends_without_saying_how(nomad: Nomad) -> None:
    del nomad.events[3]
    nomad.run = {"ClientStatus": "failed", "ClientDescription": "Failed tasks"}
    assert only(look(), "runner", "problem").found.endswith("on pi-host: Failed tasks")
    del nomad.events[2]
    assert only(look(), "public url", "problem").found.endswith("by pi-host: Failed tasks")
    nomad.run = {"ClientStatus": "complete"}
    assert trouble(look()) == []


def test_a_runner_that_does_not_end_and_one_in_an_image(nomad: Nomad) -> None:
    del nomad.events[3]
    assert found_of(look(), "runner").state == "unknown"
    assert "runner" not in {each.check for each in look(driver="docker")}


def test_a_server_that_does_not_answer_here(nomad: Nomad) -> None:
    nomad.changes["GET", "/livez"] = httpx.ConnectError("refused")
    assert "start the server" in only(look(), "public url", "warning").fix
    nomad.changes["GET", "/livez"] = httpx.Response(404)
    assert "not an Edgeyard server" in only(look(), "public url", "warning").found


def found_of(findings: Sequence[Finding], check: str, state: str = "") -> Finding:
    return next(
        each for each in findings if each.check == check and (not state or each.state == state)
    )


def test_no_secret_is_reported(nomad: Nomad) -> None:
    nomad.changes["GET", "/v1/jobs"] = httpx.Response(500, text="No path to region")
    assert "s3cret" not in str(look())


@pytest.mark.parametrize("text", ["null", "[]", "{}", '"x"', "[[[", "[null]", '{"config": 3}'])
def test_answers_that_make_no_sense_are_no_crash(nomad: Nomad, text: str) -> None:
    answer = httpx.Response(200, text=text)
    for path in ("/v1/agent", "/v1/acl", "/v1/job", "/v1/var", "/v1/nodes", "/v1/client", "/v1/op"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            nomad.changes[method, path] = answer
    assert look()


@pytest.mark.parametrize(
    ("right", "path", "rule", "lost"),
    [
        ("read-fs", "/v1/client/fs/ls/", 'namespace "edgeyard"', "could not upload"),
        ("read-job elsewhere", "", 'namespace "*"', "shown as idle"),
    ],
)
def test_a_missing_right_is_named_with_what_does_not_work(
    nomad: Nomad, right: str, path: str, rule: str, lost: str
) -> None:
    def elsewhere(request: httpx.Request) -> httpx.Response:
        own = request.url.params["namespace"] == ACCESS.namespace
        return httpx.Response(404, text="not found") if own else DENIED

    nomad.changes["GET", path or "/v1/job/edgeyard-doctor"] = DENIED if path else elsewhere
    found = only(
        [each for each in look() if each.check.startswith("right")], f"right {right}", "problem"
    )
    assert lost in found.found
    assert rule in found.fix
