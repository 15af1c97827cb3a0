"""Generated requests to every route by every kind of caller; reports of hostile boards."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from edgeyard.benchmark_api.app import openapi_document
from tests.builders import answers
from tests.builders.api import Api, expired_token, running
from tests.builders.descriptions import description
from tests.builders.model_files import a_model_file
from tests.fuzz.mutations import contents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_database("what reads requests is the same for both; minutes on each"),
]

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
SEED = os.environ.get("FUZZ_SEED")
MAX_ANSWER_S = 20.0
"""For one answer; generous, because machines are shared."""

SECRET = "SECRET-OF-ALICE"
UPLOAD_TOKEN = "upload-token-of-alice"

STRANGERS = ("none", "bad", "expired", "revoked")
CALLERS = (*STRANGERS, "bob", "host", "upload", "alice", "operator")
MAY_SEE_ALICE = frozenset({"alice", "operator"})

RARE_ROLES = frozenset({"none", "bad", "expired", "revoked", "upload"})
"""Callers that most routes turn away before they read anything: sent every third request."""


@dataclass
class Lab:
    """A server, and what alice has there."""

    api: Api
    names: dict[str, list[str]] = field(default_factory=dict)

    def filled(self) -> Lab:
        """Give alice one of everything, each with her secret in it."""
        api = self.api
        alice, operator = api.as_(), api.as_("operator")
        name = f"{SECRET}.onnx"
        stored = api.upload(name, a_model_file(fill=f"{SECRET} content".encode()))
        api.upload("model.onnx", a_model_file(fill=b"of bob"), who="bob")
        benchmark_id = api.submit(model=name, tags=[SECRET], extra={"x": SECRET})
        attempt = api.dispatched(benchmark_id, UPLOAD_TOKEN)
        job = attempt.job_id.removeprefix("benchmark-")
        headers = {"Authorization": f"Bearer {UPLOAD_TOKEN}"}
        sent = api.as_(None).put(f"/upload/{job}/{SECRET}.txt", content=b"x", headers=headers)
        assert sent.status_code == 201, sent.text
        waiting = api.submit(model=name, tags=[SECRET])
        scheduled = alice.post("/v1/benchmarks", json=description(model=name, cron="0 0 * * *"))
        campaign = alice.post(
            "/v1/campaigns",
            json={
                "name": SECRET,
                "matrix": {"target": ["rpi4b"]},
                "description": {"model": name, "runtime": "ort", "benchmark_type": "TYPE1"},
            },
        )
        token = alice.post("/v1/tokens", json={"label": SECRET})
        hook = {"url": f"https://example.org/{SECRET}"}
        assert alice.put("/v1/users/alice/webhook", json=hook).status_code == 200
        lease = operator.post(
            "/v1/boards/rpi5-0001-0001/lease",
            json={"until": "2030-01-01T00:00:00Z", "user_id": "alice"},
        )
        of_bob = api.submit(who="bob")
        assert operator.post("/v1/users", json={"user_id": "carol"}).status_code == 201
        self.names = {
            "benchmark_id": [benchmark_id, waiting, of_bob],
            "campaign_id": [campaign.json()["campaign_id"]],
            "schedule_id": [scheduled.json()["schedule_id"]],
            "file_id": [stored["file_id"]],
            "token_id": [token.json()["token_id"]],
            "user_id": ["alice", "bob", "operator"],
            "lease_id": [lease.json()["lease_id"]],
            "target_uid": ["rpi4b-0001-0001", "rpi5-0001-0001"],
            "job": [job],
            "job_id": [attempt.job_id],
            "attempt": ["1", "2"],
            "filename": [f"{SECRET}.txt", "report.json"],
            "name": [f"{SECRET}.txt", "default", "native"],
            "family": ["rpi4b"],
            "role": ["shadow"],
        }
        return self

    def headers(self, caller: str) -> dict[str, str]:
        """Of a caller; nobody's are empty."""
        return {} if caller == "none" else {"Authorization": f"Bearer {self.api.tokens[caller]}"}


@pytest.fixture(scope="module", name="lab")
def a_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("fuzz")) as api:
        alice = api.as_()
        revoked = alice.post("/v1/tokens", json={}).json()
        alice.delete(f"/v1/tokens/{revoked['token_id']}").raise_for_status()
        api.tokens |= {
            "bad": "ey_nobody-has-this-token",
            "expired": expired_token(api),
            "revoked": revoked["token"],
            "upload": UPLOAD_TOKEN,
        }
        yield Lab(api).filled()


def hypothesis_settings(examples: int) -> Any:
    """Few fixed examples; others where the environment says so."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=SEED is None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )


def seeded(test: Any) -> Any:
    """Random numbers of ``FUZZ_SEED``, if it is given."""
    return test if SEED is None else seed(int(SEED))(test)


def test_every_caller_and_any_request_get_a_documented_answer(lab: Lab) -> None:
    """No answer is an internal error, late, of another form than documented, or another's."""
    found: list[str] = []
    tried: set[str] = set()
    count = 0
    session = requests.Session()
    session.trust_env = False

    def send(case: schemathesis.Case[Any]) -> None:
        nonlocal count
        count += 1
        tried.add(case.path)
        generated = dict(case.path_parameters or {})
        key = zlib.crc32(repr((case.method, case.path, case.query, generated)).encode())
        for caller in CALLERS:
            if caller in RARE_ROLES and count % 3:
                continue
            if generated and key % 4:  # three of four name what is there, of alice or of others
                case.path_parameters = {
                    name: lab.names[name][key % len(lab.names[name])]
                    if name in lab.names
                    else value
                    for name, value in generated.items()
                }
            if caller == "operator" and case.method != "GET" and "user_id" in generated:
                case.path_parameters = {"user_id": "carol"}  # the others are needed to the end
            answer = case.call(
                base_url=lab.api.url,
                headers=lab.headers(caller),
                session=session,
                timeout=MAX_ANSWER_S,
            )
            what = f"{caller}: {case.method} {case.path} -> {answer.status_code}"
            try:
                case.validate_response(
                    answer,
                    checks=[
                        status_code_conformance,
                        content_type_conformance,
                        response_schema_conformance,
                    ],
                )
            except (Failure, FailureGroup) as error:
                found.append(f"{what}: {error}\n{case.as_curl_command()}")
            if answer.status_code >= 500 and answer.status_code not in (501, 503, 507):
                found.append(f"{what}\n{case.as_curl_command()}")
            if caller in STRANGERS and answer.status_code < 300 and not is_public(case):
                found.append(f"{what}: a stranger is let in\n{case.as_curl_command()}")
            if caller not in MAY_SEE_ALICE and SECRET.encode() in answer.content:
                sent = repr((case.path_parameters, case.query, case.body, case.headers))
                if SECRET not in sent:
                    found.append(f"{what}: shows what is alice's\n{case.as_curl_command()}")

    for operation in schemathesis.openapi.from_dict(openapi_document()).get_all_operations():
        assert isinstance(operation, Ok)
        test = given(case=operation.ok().as_strategy())(send)
        seeded(hypothesis_settings(EXAMPLES)(test))()
    assert len(tried) > 50
    assert not found, _report(found)
    assert lab.api.as_(None).get("/livez").status_code == 200
    assert lab.api.leftovers() == []


def _report(found: list[str]) -> str:
    """What was found in a line each, and the first in full."""
    lines = dict.fromkeys(each.splitlines()[0] for each in found)
    return "\n".join([*lines, "", *found[:5]])


def is_public(case: schemathesis.Case[Any]) -> bool:
    operation = openapi_document()["paths"][case.path][case.method.lower()]
    return not operation["security"]


def test_no_report_of_a_board_breaks_who_reads_it(tmp_path: Path) -> None:
    """Whatever a task states in its report, its owner can look at it and the attempt ends."""
    with running(tmp_path) as api:
        _attack_by_reports(api)


def _attack_by_reports(api: Api) -> None:
    alice = api.as_()
    api.upload()
    seeds = [json.dumps(answers.report()).encode()]
    found: list[str] = []

    def send(content: bytes) -> None:
        benchmark_id = api.submit()
        attempt = api.dispatched(benchmark_id, "upload-token-1")
        job = attempt.job_id.removeprefix("benchmark-")
        headers = {"Authorization": "Bearer upload-token-1"}
        sent = api.as_(None).put(f"/upload/{job}/report.json", content=content, headers=headers)
        if sent.status_code not in (201, 422):
            found.append(f"{sent.status_code} {sent.text[:200]}: {content!r}")
        for path in (
            f"/v1/benchmarks/{benchmark_id}",
            f"/v1/benchmarks/{benchmark_id}/results",
            f"/v1/benchmarks/{benchmark_id}/events",
            f"/v1/results?benchmark_id={benchmark_id}",
        ):
            shown = alice.get(path)
            if shown.status_code != 200:
                found.append(f"{path}: {shown.status_code} {shown.text[:200]}: {content!r}")
        api.ended(benchmark_id)
        if api.as_("operator").post(f"/v1/benchmarks/{benchmark_id}/cancel").status_code >= 500:
            found.append(f"can't be cancelled: {content!r}")

    test = given(content=contents(seeds, tree=True))(send)
    seeded(hypothesis_settings(EXAMPLES * 10)(test))()
    assert not found, "\n\n".join(found[:5])
