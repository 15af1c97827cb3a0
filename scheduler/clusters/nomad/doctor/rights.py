"""Checks the token, and each right that Edgeyard needs, one by one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from edgeyard.scheduler.clusters.nomad.doctor.client import Answer, DoctorClient
from edgeyard.scheduler.clusters.nomad.doctor.reach import Task, probe_job
from edgeyard.scheduler.model.finding import Finding

EXPIRES_SOON = timedelta(days=7)

_POLICY = "apply deploy/nomad/edgeyard.policy.hcl and give the token that policy"
_NO_JOB = "edgeyard-doctor"
_PREFIX = "nomad/jobs/benchmark-"


def token_findings(asker: DoctorClient) -> Iterator[Finding]:
    """Check the token itself."""
    answer = asker.ask("/v1/acl/token/self")
    if "ACL support disabled" in answer.text:
        yield Finding(
            check="nomad token",
            state="warning",
            found="ACLs are off: any client that reaches Nomad may do anything",
            fix="enable ACLs on every agent, bootstrap them, then " + _POLICY,
        )
        return
    if asker.access.token is None:
        yield Finding(
            check="nomad token",
            state="problem",
            found="Nomad requires a token, and none is set",
            fix=f"set {asker.access.setting('token_file')} to a file with the token",
        )
        return
    if not answer.ok:
        yield Finding(
            check="nomad token",
            state="problem",
            found=f"{answer.said}: it does not know this token, or it has expired",
            fix="nomad acl token create -name edgeyard -policy edgeyard, and set its secret",
        )
        return
    name, kind = answer.at("Name") or "without a name", answer.at("Type")
    if kind == "management":
        yield Finding(
            check="nomad token",
            state="warning",
            found=f"{name}: a management token, which may do anything",
            fix=_POLICY,
        )
    else:
        policies = answer.at("Policies")
        names = ", ".join(map(str, policies)) if isinstance(policies, list) else ""
        yield Finding(
            check="nomad token", state="ok", found=f"{name}; policies: {names or 'by roles'}"
        )
    yield from _expiry(answer)


def _expiry(answer: Answer) -> Iterator[Finding]:
    until = answer.at("ExpirationTime")
    try:
        at = datetime.fromisoformat(until) if isinstance(until, str) else None
    except ValueError:
        at = None
    if at is not None and at.tzinfo is not None and at - datetime.now(UTC) < EXPIRES_SOON:
        yield Finding(
            check="nomad token",
            state="warning",
            found=f"expires at {at:%Y-%m-%d %H:%M} UTC: nothing is dispatched from then on",
            fix="make another in time, and set it",
        )


def right_findings(asker: DoctorClient) -> Iterator[Finding]:
    """Yield every right but ``read-logs`` and ``read-fs``, which need a job: `reach`.

    Nothing stays of what is tried: a variable of our own is written, read and removed.
    """
    space = asker.access.namespace
    listed = asker.ask("/v1/jobs", per_page="1")
    lost = "jobs are not found again after a restart"
    yield right(listed, "list-jobs", in_namespace(space, "list-jobs"), lost)
    read = asker.ask(f"/v1/job/{_NO_JOB}")
    yield right(read, "read-job", in_namespace(space, "read-job"), "no benchmark can be followed")
    # a namespace that is not there: only the rule for all of them lets us ask
    elsewhere = asker.ask(f"/v1/job/{_NO_JOB}", namespace=_NO_JOB)
    lost = "boards that jobs of other namespaces hold may be shown as idle"
    yield right(elsewhere, "read-job elsewhere", in_namespace("*", "read-job"), lost)
    plan = {"Job": probe_job(_NO_JOB, asker.access, Task(driver="raw_exec"), [])}
    planned = asker.ask(f"/v1/job/{_NO_JOB}/plan", "POST", plan)
    lost = "no benchmark is started, and none can be stopped"
    yield right(planned, "submit-job", in_namespace(space, "submit-job"), lost)
    yield from _variables(asker)
    nodes = asker.ask("/v1/nodes", per_page="1")
    yield right(nodes, "node read", 'node { policy = "read" }', "no boards are seen")
    agent = asker.ask("/v1/agent/self")
    lost = "Nomad's version is not checked"
    yield right(agent, "agent read", 'agent { policy = "read" }', lost)


def _variables(asker: DoctorClient) -> Iterator[Finding]:
    def rule(capability: str) -> str:
        return in_namespace(
            asker.access.namespace,
            f'variables {{ path "{_PREFIX}*" {{ capabilities = ["{capability}"] }} }}',
        )

    path = f"{_PREFIX}doctor-{secrets.token_hex(4)}"
    body = {"Path": path, "Namespace": asker.access.namespace, "Items": {"doctor": "was here"}}
    written = asker.ask(f"/v1/var/{path}", "PUT", body)
    no_token = "no task gets its upload token, so that nothing is started"
    yield right(written, "variables write", rule("write"), no_token)
    listed = asker.ask("/v1/vars", prefix=path)
    seen = any(each.get("Path") == path for each in listed.items())
    read = asker.ask(f"/v1/var/{path}")
    removed = asker.ask(f"/v1/var/{path}", "DELETE")
    # Nomad leaves out what may not be listed, and says nothing
    hidden = listed.ok and not seen
    if hidden and not written.ok:
        found = "can't be tried without the right to write"
        yield Finding(check="right variables list", state="unknown", found=found)
    else:
        lost = "tokens of jobs that are gone are not found and stay"
        yield right(listed, "variables list", rule("list"), lost, denied=hidden)
    lost = "jobs that an older backup does not know are not adopted"
    yield right(read, "variables read", rule("read"), lost)
    yield right(removed, "variables destroy", rule("destroy"), "upload tokens stay in Nomad")


def in_namespace(namespace: str, capability: str) -> str:
    """Return the rule of a policy that grants a right."""
    block = capability
    if not capability.startswith("variables"):
        block = f'capabilities = ["{capability}"]'
    return f'namespace "{namespace}" {{ {block} }}'


def right(answer: Answer, name: str, rule: str, without: str, *, denied: bool = False) -> Finding:
    """Return the finding about a right from an answer.

    Args:
        rule: Of a policy that grants it.
        without: What does not work as long as it is missing.
        denied: Whether the right is missing although the answer does not say so.
    """
    if answer.denied or denied:
        return Finding(
            check=f"right {name}",
            state="problem",
            found=f"the token does not have this right: {without}",
            fix=f"add to its policy, as in deploy/nomad/edgeyard.policy.hcl: {rule}",
        )
    if answer.status >= 500:
        return Finding(check=f"right {name}", state="unknown", found=answer.said)
    # 400, 404, 409: it was let through, and stumbled over what does not exist
    return Finding(check=f"right {name}", state="ok", found="granted")
