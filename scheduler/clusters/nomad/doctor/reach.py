"""A job of a moment on each host that has boards: whether it gets a file from the server."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx

from edgeyard.devices.model import Host
from edgeyard.scheduler.clusters.nomad.doctor.asking import Answer, Asker
from edgeyard.scheduler.model.finding import Finding

PATIENCE_S = 60.0
"""For hosts that say nothing, as where a network swallows all that is sent. One that is refused
tries for some 20 s before it says so."""

_LOOK_S = 0.2
_TASK = "reach"
_DOWNLOAD, _FAILED = "Downloading Artifacts", "Failed Artifact Download"
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the job is to do on each host.

    Attributes:
        driver: As the benchmarks' own; the file is fetched before it does anything.
        image: Of a driver that needs one.
        source: URL of a small file; "" for none.
    """

    driver: str
    image: str = ""
    source: str = ""


def probe_job(job_id: str, namespace: str, task: Task, host_ids: Sequence[str]) -> object:
    """The job as Nomad's API takes it: once on every host, never again."""
    config: dict[str, object] = {"command": "true"}
    if task.image:
        config["image"] = task.image
    artifacts = [{"GetterSource": task.source, "GetterMode": "file", "RelativeDest": "local/live"}]
    return {
        "ID": job_id,
        "Name": job_id,
        "Type": "sysbatch",
        "Namespace": namespace,
        "Datacenters": ["*"],
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
                        "Resources": {"CPU": 1, "MemoryMB": 10},
                    }
                ],
            }
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What became of the job.

    Attributes:
        failures: By host id: why it does not reach the server; "" where it does. A host that said
            nothing in time is not among them.
        logs: Nomad's answer to our wish to read a log; None where there was no task to have one.
        refused: Why there was no job at all.
    """

    failures: Mapping[str, str]
    logs: Answer | None = None
    refused: str = ""


def reach(
    asker: Asker,
    task: Task,
    hosts: Sequence[Host],
    *,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], object] = time.sleep,
) -> Reached:
    """Run the job, and remove it."""
    job_id = f"edgeyard-doctor-{secrets.token_hex(4)}"
    wanted = [host.host_id for host in hosts]
    job = probe_job(job_id, asker.access.namespace, task, wanted)
    body = {"Job": job, "EnforceIndex": True, "JobModifyIndex": 0}
    registered = asker.ask("/v1/jobs", "PUT", body)
    if not registered.ok:
        return Reached(failures={}, refused=registered.said)
    try:
        until = time.monotonic() + patience_s
        while True:
            runs = asker.ask(f"/v1/job/{job_id}/allocations").items()
            failures = {
                str(run.get("NodeID")): failure
                for run in runs
                if (failure := _failure(run)) is not None
            }
            if len(failures) >= len(wanted) or time.monotonic() >= until:
                break
            pause(_LOOK_S)
        logs = None
        if runs:
            path = f"/v1/client/fs/logs/{runs[0].get('ID')}"
            logs = asker.ask(path, task=_TASK, type="stdout", plain="true")
        return Reached(failures=failures, logs=logs)
    finally:
        asker.ask(f"/v1/job/{job_id}", "DELETE", purge="true")


def _failure(run: Mapping[str, object]) -> str | None:
    """Why the file did not get there; "" if it did; None as long as that is open."""
    states = run.get("TaskStates")
    state = states.get(_TASK) if isinstance(states, Mapping) else None
    events = state.get("Events") if isinstance(state, Mapping) else None
    after = False
    for event in events if isinstance(events, list) else ():
        kind = event.get("Type") if isinstance(event, Mapping) else None
        if kind == _FAILED:
            return " ".join(str(event.get("DisplayMessage")).split())
        if after:
            return ""  # the driver's turn has come: whatever it says, the file is there
        after = kind == _DOWNLOAD
    if run.get("ClientStatus") in ("complete", "failed", "lost"):
        return "" if run.get("ClientStatus") == "complete" else str(run.get("ClientDescription"))
    return None


def reach_findings(
    reached: Reached, hosts: Sequence[Host], url: str, patience_s: float = PATIENCE_S
) -> Iterator[Finding]:
    """Whether the hosts reach the server under the URL that benchmarks name."""
    if reached.refused:
        found = f"no job could be run on the hosts: {reached.refused}"
        yield Finding(check="public url", state="unknown", found=found)
        return
    good = [host for host in hosts if reached.failures.get(host.host_id) == ""]
    if good:
        yield Finding(check="public url", state="ok", found=f"{url} is reached by {_names(good)}")
    fix = "set EDGEYARD_PUBLIC_URL to an address that hosts reach, and let them through to it"
    bad = [host for host in hosts if reached.failures.get(host.host_id)]
    for host in bad[:_MOST_NAMED]:
        why = reached.failures[host.host_id]
        yield Finding(
            check="public url",
            state="problem",
            found=f"{host.name} does not get {url}: {why}",
            fix=fix,
        )
    if bad[_MOST_NAMED:]:
        found = f"nor do {_names(bad[_MOST_NAMED:])}"
        yield Finding(check="public url", state="problem", found=found, fix=fix)
    silent = [host for host in hosts if host.host_id not in reached.failures]
    if silent:
        yield Finding(
            check="public url",
            state="problem",
            found=f"nothing heard of {_names(silent)} in {patience_s:g} s: no room there for a "
            f"job, or {url} swallows what it is sent",
            fix=fix,
        )


def from_here(url: str) -> Finding:
    """Whether the server answers under that URL here; hosts may see another network."""
    try:
        tls = url.startswith("https:")
        answer = httpx.get(f"{url}/livez", timeout=5.0, trust_env=False, verify=tls)
        status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(
            check="public url",
            state="warning",
            found=f"{url} does not answer here ({type(error).__name__})",
            fix="start the server, or correct EDGEYARD_PUBLIC_URL",
        )
    if status != 200:
        return Finding(
            check="public url",
            state="warning",
            found=f"{url}/livez answers {status}: that is no Edgeyard",
            fix="correct EDGEYARD_PUBLIC_URL",
        )
    return Finding(check="public url", state="ok", found=f"{url} answers here")


def _names(hosts: Sequence[Host]) -> str:
    names = ", ".join(host.name for host in hosts[:_MOST_NAMED])
    more = len(hosts) - _MOST_NAMED
    return f"{names} and {more} more" if more > 0 else names
