"""`edgeyard doctor` against a real Nomad, with the least-privilege token."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.process import in_cluster, on_nomad
from edgeyard import testbed
from edgeyard.benchmark_api.cli import app
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import file_server
from tests.nomad_cluster import HOSTS

pytestmark = [pytest.mark.nomad, pytest.mark.xdist_group("nomad")]

RIGHTS = {
    *("list-jobs", "read-job", "submit-job", "read-logs", "node read", "agent read"),
    *("variables write", "variables list", "variables read", "variables destroy"),
}


def run(*options: str, **settings: str) -> str:
    """Its output; the server of the settings does not run, which it says, and ends with 1."""
    bare = dict.fromkeys(name for name in os.environ if name.startswith("EDGEYARD_"))
    words = ["doctor", "--url", "http://127.0.0.1:9", *options]
    done = CliRunner().invoke(app, words, env={**bare, "EDGEYARD_COLUMNS": "80", **settings})
    assert done.exit_code == 1, done.output
    return done.stdout


def test_all_checks_work_with_the_smallest_acl_policy(
    nomad_cluster: LoopbackNomad, tmp_path: Path
) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps(HOSTS[1]))  # what the other hosts have is not known
    settings = on_nomad(nomad_cluster, inventory)
    with file_server({"livez": b"alive"}) as url:
        output = run("--json", **settings, **in_cluster(public_url=url))
    findings = [each for each in json.loads(output) if each["check"] not in ("server", "disk")]
    checks = {each["check"]: each for each in findings}
    for right in RIGHTS:
        assert checks[f"right {right}"]["state"] == "ok", checks[f"right {right}"]
    assert [each for each in findings if each["state"] == "problem"] == []
    warned = {each["check"] for each in findings if each["state"] == "warning"}
    assert warned == {"board unknown"}
    assert "client-0" in checks["board unknown"]["found"] + str(findings)
    assert checks["nomad boards"]["found"] == "4 of 4 expected boards are there"
    assert checks["public url"]["found"] == f"{url} is reached by client-0, client-1, client-2"
    assert checks["driver"]["found"] == "raw_exec on 3 of 3 hosts"
    clocks = checks["nomad clock"]["found"]
    assert clocks == "agrees with this machine's: the server, client-0, client-1, client-2"
    assert checks["preemption"]["state"] == "ok"
    assert checks["runner"]["found"].endswith(": on client-0, client-1, client-2")
    assert checks["nomad version"]["state"] == "ok"

    # The same for people, with a token that may see the hosts alone.
    poor = {"Name": "poor", "Rules": 'node { policy = "read" }'}
    nomad_cluster.call("POST", "/v1/acl/policy/poor", poor)
    body = {"Name": "poor", "Type": "client", "Policies": ["poor"]}
    token = nomad_cluster.call("POST", "/v1/acl/token", body)
    missing = "/opt/none/edgeyard-runner"
    with file_server({"livez": b"alive"}) as url:
        without = {**in_cluster(public_url=url), "EDGEYARD_RAW_EXEC_COMMAND": missing}
        output = run("--json", **{**settings, **without})
    (found,) = [each for each in json.loads(output) if each["check"] == "runner"]
    assert found["state"] == "problem"
    assert found["found"].startswith(f"{missing} does not start on client-0, client-1, client-2: ")
    assert "could not be found" in found["found"]

    text = run("--no-probe", **{**settings, **in_cluster(token=token["SecretID"])})
    assert all(len(line) <= 80 for line in text.splitlines())
    denied = [line.split()[1:3] for line in text.splitlines() if line.startswith("problem")]
    shown = {" ".join(words) for words in denied}
    assert {"right list-jobs", "right read-job", "right submit-job", "right agent"} <= shown
    assert "namespace edgeyard" in shown
    assert 'operator { policy = "read" }' in " ".join(text.split())
    assert str(token["SecretID"]) not in text

    # Nothing stays.
    path = "/v1/jobs?namespace=edgeyard&prefix=edgeyard-doctor"
    assert testbed.call(nomad_cluster.address, "GET", path, nomad_cluster.token) == []
    assert nomad_cluster.call("GET", "/v1/vars?namespace=edgeyard&prefix=nomad/jobs/bench") == []
