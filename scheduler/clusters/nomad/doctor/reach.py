"""A job of a moment on each host that has boards: whether it gets a file from the server, and
whether the runner is there."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.doctor.client import Answer, DoctorClient
from edgeyard.scheduler.model.finding import MAX_NAMED, Finding, by_reason, named
from edgeyard.tls import context_for

MAX_REACH_WAIT_S = 60.0
"""Maximum wait for hosts that do not answer, for example because a network drops their requests. A
host that is refused tries for about 20 s before it reports so."""

_POLL_INTERVAL_S = 0.2
_TASK = "reach"
_DOWNLOAD, _FAILED = "Downloading Artifacts", "Failed Artifact Download"
_DRIVER_FAILED, _TERMINATED = "Driver Failure", "Terminated"
_RPC = re.compile(r"rpc error: code = \w+ desc = ")
_SANDBOX = re.compile(r"^sandbox (ok|open): .+$", re.MULTILINE)
_MIN_WORDS = 2
_MEMORY_MIB = 64
"""What the runner's Python needs: Nomad holds a task to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the job does on each host.

    Attributes:
        driver: As the benchmarks' own; the file is fetched before it does anything.
        image: Of a driver that needs one.
        source: URL of a small file; "" for none.
        runner: The command of benchmarks on their hosts, which is asked how it confines runs;
            empty where the image has it.
    """

    driver: str
    image: str = ""
    source: str = ""
    runner: Sequence[str] = ()


def probe_job(job_id: str, access: NomadAccess, task: Task, host_ids: Sequence[str]) -> object:
    """Return the job for Nomad's API, which runs once on every host."""
    command, *args = (*task.runner, "--confinement") if task.runner else ("true",)
    config: dict[str, object] = {"command": command, "args": args}
    if task.image:
        config["image"] = task.image
    artifacts = [{"GetterSource": task.source, "GetterMode": "file", "RelativeDest": "local/live"}]
    return {
        "ID": job_id,
        "Name": job_id,
        "Type": "sysbatch",
        "Namespace": access.namespace,
        "Datacenters": list(access.datacenters),
        "NodePool": access.node_pool,
        "Constraints": [
            {
                "LTarget": "${node.unique.id}",
                "Operand": "regexp",
                "RTarget": f"^({'|'.join(host_ids)})$",
            }
        ],
        "TaskGroups": [
            {
                "Name": _TASK,
                "RestartPolicy": {"Attempts": 0, "Mode": "fail", "Interval": 10**11},
                "EphemeralDisk": {"SizeMB": 10},
                "Tasks": [
                    {
                        "Name": _TASK,
                        "Driver": task.driver,
                        "Config": config,
                        "Artifacts": artifacts if task.source else [],
                        "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
                        "Resources": {"CPU": 1, "MemoryMB": _MEMORY_MIB if task.runner else 10},
                    }
                ],
            }
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachReport:
    """The results of the job, by host.

    Attributes:
        files: By host id: why it does not reach the server; "" where it does. A host that said
            nothing in time is not among them.
        runners: By host id: why the runner does not start there; "" where it does.
        sandboxes: By host id: what its runner says of how it confines runs, where it does.
        logs: Nomad's answer to our wish to read a log; None where there was no task to have one.
        folder: The same, to our wish to list a task's folder.
        refused: Why there was no job at all.
    """

    files: Mapping[str, str]
    runners: Mapping[str, str]
    sandboxes: Mapping[str, str] = field(default_factory=dict)
    logs: Answer | None = None
    folder: Answer | None = None
    refused: str = ""


def reach(
    asker: DoctorClient,
    task: Task,
    hosts: Sequence[Host],
    *,
    max_wait_s: float = MAX_REACH_WAIT_S,
    pause: Callable[[float], object] = time.sleep,
) -> ReachReport:
    """Run the job, and remove it afterwards."""
    job_id = f"edgeyard-doctor-{secrets.token_hex(4)}"
    wanted = [host.host_id for host in hosts]
    job = probe_job(job_id, asker.access, task, wanted)
    body = {"Job": job, "EnforceIndex": True, "JobModifyIndex": 0}
    registered = asker.ask("/v1/jobs", "PUT", body)
    if not registered.ok:
        return ReachReport(files={}, runners={}, refused=registered.said)
    try:
        until = time.monotonic() + max_wait_s
        while True:
            runs = {
                str(run.get("NodeID")): run
                for run in asker.ask(f"/v1/job/{job_id}/allocations").items()
            }
            files = {host: why for host, run in runs.items() if (why := _file(run)) is not None}
            runners = {
                host: why
                for host, run in runs.items()
                if task.runner and files.get(host) == "" and (why := _runner(run)) is not None
            }
            answered = sum(
                bool(why) or not task.runner or host in runners for host, why in files.items()
            )
            if answered >= len(wanted) or time.monotonic() >= until:
                break
            pause(_POLL_INTERVAL_S)
        logs = folder = None
        ended = [host for host, why in runners.items() if why]
        for host in ended[:MAX_NAMED] or list(runs)[:1]:  # one shows whether they may be read
            path = f"/v1/client/fs/logs/{runs[host].get('ID')}"
            logs = asker.ask(path, task=_TASK, type="stderr", plain="true")
            lines = [line for line in logs.text.splitlines() if line.strip()]
            if host in runners and logs.ok and lines:
                runners[host] = " ".join(lines[-1].split())
        sandboxes = {
            host: said.group(0)
            for host in runners
            if not runners[host] and (said := _SANDBOX.search(_stdout(asker, runs[host])))
        }
        for host in list(runs)[:1]:
            folder = asker.ask(f"/v1/client/fs/ls/{runs[host].get('ID')}")
        return ReachReport(
            files=files, runners=runners, sandboxes=sandboxes, logs=logs, folder=folder
        )
    finally:
        asker.ask(f"/v1/job/{job_id}", "DELETE", purge="true")


def _stdout(asker: DoctorClient, run: Mapping[str, object]) -> str:
    path = f"/v1/client/fs/logs/{run.get('ID')}"
    answer = asker.ask(path, task=_TASK, type="stdout", plain="true")
    return answer.text if answer.ok else ""


def _events(run: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    states = run.get("TaskStates")
    state = states.get(_TASK) if isinstance(states, Mapping) else None
    events = state.get("Events") if isinstance(state, Mapping) else None
    return [each for each in events or () if isinstance(each, Mapping)]


def _file(run: Mapping[str, object]) -> str | None:
    """Return why the file did not get there; "" if it did; None as long as that is open."""
    after = False
    for event in _events(run):
        kind = event.get("Type")
        if kind == _FAILED:
            return last_words(str(event.get("DisplayMessage")))
        if after:
            return ""  # the driver's turn has come: whatever it says, the file is there
        after = kind == _DOWNLOAD
    return _end(run)


def _runner(run: Mapping[str, object]) -> str | None:
    """Return why the runner did not start; "" if it did; None as long as that is open."""
    for event in _events(run):
        if event.get("Type") == _DRIVER_FAILED:
            return last_words(str(event.get("DisplayMessage")))
        if event.get("Type") == _TERMINATED:
            code = event.get("ExitCode")
            return f"it ended with exit status {code}" if code else ""
    return _end(run)


def _end(run: Mapping[str, object]) -> str | None:
    """Return why a run failed whose events do not say: "" if it did not, None while it goes on."""
    if run.get("ClientStatus") in ("failed", "lost"):
        return str(run.get("ClientDescription") or run["ClientStatus"])
    return "" if run.get("ClientStatus") == "complete" else None


def last_words(text: str) -> str:
    """Return the cause in a message that several layers have prefixed."""
    text = _RPC.sub("", text)
    clauses = [" ".join(each.split()) for each in text.split(": ") if each.strip()]
    kept = 1
    while kept < len(clauses) and len(": ".join(clauses[-kept:]).split()) < _MIN_WORDS:
        kept += 1  # a bare number or word says nothing by itself
    return ": ".join(clauses[-kept:])


def reach_findings(
    reached: ReachReport,
    hosts: Sequence[Host],
    url: str,
    setting: str,
    max_wait_s: float = MAX_REACH_WAIT_S,
) -> Iterator[Finding]:
    """Report whether hosts reach the server under the URL of benchmarks' files.

    Args:
        setting: Name of the setting that states the URL.
    """
    if reached.refused:
        found = f"no job could be run on the hosts: {reached.refused}"
        yield Finding(check="public url", state="unknown", found=found)
        return
    results = [(host.name, reached.files.get(host.host_id)) for host in hosts]
    good = [name for name, why in results if why == ""]
    if good:
        yield Finding(check="public url", state="ok", found=f"{url} is reached by {named(good)}")
    fix = f"set {setting} to an address that hosts reach, and open it in the firewall"
    for why, names in by_reason((name, why) for name, why in results if why).items():
        yield Finding(
            check="public url",
            state="problem",
            found=f"{url} is not reached by {named(names)}: {why}",
            fix=fix,
        )
    silent = [name for name, why in results if why is None]
    if silent:
        yield Finding(
            check="public url",
            state="problem",
            found=f"no answer from {named(silent)} within {max_wait_s:g} s: they have no room for "
            f"a job, or packets to {url} are dropped on the way",
            fix=fix,
        )


def runner_findings(reached: ReachReport, hosts: Sequence[Host], task: Task) -> Iterator[Finding]:
    """Report whether the runner is installed on the hosts that ran the job."""
    results = [(host.name, reached.runners.get(host.host_id)) for host in hosts]
    command = " ".join(task.runner)
    good = [name for name, why in results if why == ""]
    if good:
        yield Finding(check="runner", state="ok", found=f"{command}: on {named(good)}")
    for why, names in by_reason((name, why) for name, why in results if why).items():
        yield Finding(
            check="runner",
            state="problem",
            found=f"{command} does not start on {named(names)}: {why}",
            fix="install it there, and set EDGEYARD_RAW_EXEC_COMMAND to its path on the hosts: "
            "docs/how-to/lab-hosts.md",
        )
    silent = [
        name
        for host, (name, why) in zip(hosts, results, strict=True)
        if why is None and reached.files.get(host.host_id) == ""
    ]
    if silent:
        found = f"{command} has not reported its version on {named(silent)} yet"
        yield Finding(check="runner", state="unknown", found=found)


def sandbox_findings(reached: ReachReport, hosts: Sequence[Host]) -> Iterator[Finding]:
    """Report how the runners confine benchmarks, and what they cannot confine."""
    results = [(host.name, reached.sandboxes.get(host.host_id, "")) for host in hosts]
    for said, names in by_reason((name, said) for name, said in results if said).items():
        state, _, sentence = said.removeprefix("sandbox ").partition(": ")
        yield Finding(
            check="sandbox",
            state="ok" if state == "ok" else "warning",
            found=f"on {named(names)} {sentence}",
            fix=""
            if state == "ok"
            else "install bubblewrap and libseccomp there: docs/explanation/sandbox.md",
        )


def from_here(url: str, setting: str) -> Finding:
    """Return whether the server answers under that URL here; hosts may see another network.

    Args:
        setting: Name of the setting that states the URL.
    """
    try:
        tls = context_for(url, trust_env=False)
        answer = httpx.get(f"{url}/livez", timeout=5.0, trust_env=False, verify=tls)
        status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(
            check="public url",
            state="warning",
            found=f"{url} does not answer here ({type(error).__name__})",
            fix=f"start the server, or correct {setting}",
        )
    if status != 200:
        return Finding(
            check="public url",
            state="warning",
            found=f"{url}/livez answers {status}: that is not an Edgeyard server",
            fix=f"correct {setting}",
        )
    return Finding(check="public url", state="ok", found=f"{url} answers here")
