"""Checks a Nomad with Edgeyard's token, and states what to do: ``edgeyard doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from edgeyard.devices.model import Host
from edgeyard.errors import ConfigError
from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.doctor.client import Answer, DoctorClient, NoAnswer
from edgeyard.scheduler.clusters.nomad.doctor.hosts import (
    batch_queue_finding,
    clock_findings,
    host_findings,
    is_served,
    served_findings,
    version_finding,
)
from edgeyard.scheduler.clusters.nomad.doctor.reach import (
    MAX_REACH_WAIT_S,
    Task,
    from_here,
    reach,
    reach_findings,
    runner_findings,
    sandbox_findings,
)
from edgeyard.scheduler.clusters.nomad.doctor.rights import (
    in_namespace,
    right,
    right_findings,
    token_findings,
)
from edgeyard.scheduler.clusters.nomad.nodes import hosts_of
from edgeyard.scheduler.model.finding import Finding, named

__all__ = ["examine"]


def examine(
    access: NomadAccess,
    *,
    driver: str,
    image: str,
    public_url: str,
    boards: Callable[[Sequence[Host]], Iterable[Finding]],
    runner: Sequence[str] = (),
    probe: bool = True,
    max_wait_s: float = MAX_REACH_WAIT_S,
) -> Iterator[Finding]:
    """Return all findings, in the order in which problems should be solved.

    Args:
        driver: That jobs name, with the ``image`` that it needs, or "".
        public_url: Where hosts fetch models and bring results.
        boards: Compares what the hosts report with what is expected.
        runner: Its command on the hosts; empty where an image has it.
        probe: Run a job of a moment on every host, to see whether it reaches the server.
    """
    try:
        with DoctorClient(access) as asker:
            task = Task(
                driver=driver, image=image, source=f"{public_url}/livez", runner=tuple(runner)
            )
            yield from _examine(asker, task, public_url, boards, probe, max_wait_s)
    except NoAnswer as error:
        yield _unreached(access, str(error))
    except ConfigError as error:
        fix = f"correct the files that {access.setting('ca_cert')}, client_cert and client_key name"
        yield Finding(check="nomad", state="problem", found=str(error), fix=fix)


def _examine(
    asker: DoctorClient,
    task: Task,
    public_url: str,
    boards: Callable[[Sequence[Host]], Iterable[Finding]],
    probe: bool,
    max_wait_s: float,
) -> Iterator[Finding]:
    leader = asker.ask("/v1/status/leader")
    yield _leader(asker, leader)
    if not leader.ok:
        return
    agent = asker.ask("/v1/agent/self")
    if agent.ok:
        version = agent.at("config", "Version", "Version")
        yield version_finding(str(version or ""), "the server")
    yield from token_findings(asker)
    others = _usable_namespaces(asker)
    namespace = _namespace(asker, task.driver, others)
    yield namespace
    if namespace.state == "ok" or asker.access.namespace in others or not others:
        yield from right_findings(asker)  # elsewhere each right seems to be missing
    listed = asker.ask("/v1/nodes", resources="true")
    if listed.ok:
        nodes = listed.items()
        hosts = sorted(hosts_of(nodes, asker.access.device), key=lambda host: host.name)
        yield from host_findings(nodes, hosts, asker.access.device, task.driver)
        yield from served_findings(nodes, hosts, asker.access)
        yield batch_queue_finding(asker)
        yield from boards(hosts)
        probe = probe and namespace.state == "ok"
        served = {str(node.get("ID")) for node in nodes if is_served(node, asker.access)}
        setting = asker.access.setting("public_url")
        used = [host for host in hosts if host.ready and host.boards and host.host_id in served]
        yield from clock_findings(asker, leader, used)
        yield _preemption(asker)
        here = from_here(public_url, setting)
        if here.state != "ok" or not (used and probe):
            yield here
        if used and probe:
            reached = reach(asker, task, used, max_wait_s=max_wait_s)
            yield from reach_findings(reached, used, public_url, setting, max_wait_s)
            if task.runner:
                yield from runner_findings(reached, used, task)
                yield from sandbox_findings(reached, used)
            if reached.logs is not None:
                rule = in_namespace(asker.access.namespace, "read-logs")
                yield right(reached.logs, "read-logs", rule, "logs of running tasks are not shown")
            if reached.folder is not None:
                rule = in_namespace(asker.access.namespace, "read-fs")
                lost = "a result that a task could not upload in time is lost"
                yield right(reached.folder, "read-fs", rule, lost)


def _leader(asker: DoctorClient, answer: Answer) -> Finding:
    access = asker.access
    if answer.ok and answer.value:
        return Finding(check="nomad", state="ok", found=f"{access.address} answers")
    if "HTTP request to an HTTPS server" in answer.text:
        return Finding(
            check="nomad",
            state="problem",
            found=f"{access.address} accepts https only",
            fix=f"set {access.setting('address')} to https://..., and {access.setting('ca_cert')}",
        )
    regions = asker.ask("/v1/regions").value if access.region is not None else None
    if isinstance(regions, list) and regions and access.region not in regions:
        return Finding(
            check="nomad",
            state="problem",
            found=f"{access.address} is a Nomad that knows no region {access.region}; it knows "
            + named([str(each) for each in regions]),
            fix=f"correct {access.setting('region')}",
        )
    return Finding(
        check="nomad",
        state="problem",
        found=f"{access.address} is a Nomad without a leader, or no Nomad: {answer.said}",
        fix="see `nomad server members`, and the servers' logs",
    )


def _unreached(access: NomadAccess, why: str) -> Finding:
    fix = f"start it, or correct {access.setting('address')}"
    if "client_cert" in why:
        fix = (
            "nomad tls cert create -cli, where its CA lies; then set "
            f"{access.setting('client_cert')} and {access.setting('client_key')}"
        )
    elif "ca_cert" in why:
        fix = (
            f"set {access.setting('ca_cert')} to its CA, and {access.setting('tls_server_name')} "
            "to the name in its certificate, e.g. server.global.nomad"
        )
    found = f"{access.address} does not answer: {why}"
    return Finding(check="nomad", state="problem", found=found, fix=fix)


def _namespace(asker: DoctorClient, driver: str, others: Sequence[str]) -> Finding:
    name = asker.access.namespace
    answer = asker.ask(f"/v1/namespace/{name}")
    if not answer.ok:
        instead = f"; the token may use {named(others)}" if others else ""
        return Finding(
            check="namespace",
            state="problem",
            found=f"{name} does not exist, or the token may not use it{instead}",
            fix=f"correct {asker.access.setting('namespace')}, or: nomad namespace apply {name}; "
            "its name must be that of the policy",
        )
    disabled = answer.at("Capabilities", "DisabledTaskDrivers")
    if isinstance(disabled, list) and driver in disabled:
        return Finding(
            check="namespace",
            state="problem",
            found=f"{name} forbids the driver {driver}",
            fix="take it from disabled_task_drivers of the namespace, or set EDGEYARD_DRIVER",
        )
    return Finding(check="namespace", state="ok", found=f"{name} is there")


def _usable_namespaces(asker: DoctorClient) -> list[str]:
    """Return the namespaces that the token may use: Nomad lists no others."""
    return [str(each.get("Name")) for each in asker.ask("/v1/namespaces").items()]


def _preemption(asker: DoctorClient) -> Finding:
    answer = asker.ask("/v1/operator/scheduler/configuration")
    batch = answer.at("SchedulerConfig", "PreemptionConfig", "BatchSchedulerEnabled")
    if not answer.ok or not isinstance(batch, bool):
        return Finding(
            check="preemption",
            state="unknown",
            found="the token may not see Nomad's setting"
            if answer.denied
            else f"Nomad does not report its setting: {answer.said}",
            fix="add to its policy, as in deploy/nomad/edgeyard.policy.hcl: "
            'operator { policy = "read" }'
            if answer.denied
            else "",
        )
    if batch:
        return Finding(
            check="preemption",
            state="warning",
            found="Nomad itself preempts batch jobs by priority, whatever their progress",
            fix="leave it to Edgeyard: nomad operator scheduler set-config "
            "-preempt-batch-scheduler=false",
        )
    return Finding(check="preemption", state="ok", found="left to Edgeyard")
