"""What is committed about the API is what it is; and no input breaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from deploy.reference import DOCUMENTS, FOLDER
from edgeyard.benchmark_api.app import openapi_document
from edgeyard.benchmark_api.schemas.description import description_schema
from tests.builders.api import Api, description, running


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        yield found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_committed_reference_is_current(name: str) -> None:
    committed = (FOLDER / name).read_text("utf-8")
    assert committed == DOCUMENTS[name](), f"{name} is old: run `make docs` and look at the change"


def test_the_server_answers_the_committed_reference(api: Api) -> None:
    assert api.as_(None).get("/openapi.json").json() == openapi_document()


@pytest.mark.parametrize(
    "body",
    [
        description(),
        description(ram="4 GiB", storage=1, user_time="15 min", precision="2 %"),
        description(odt_config={"epochs": 1}, dataset_urls=["https://example.org/x"]),
    ],
)
def test_the_schema_takes_what_the_server_takes(body: dict[str, object]) -> None:
    jsonschema.validate(body, description_schema())


@pytest.mark.parametrize("body", [{}, description(colour="red"), description(target="RPi4")])
def test_the_schema_refuses_what_the_server_refuses(body: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, description_schema())


def test_answers_have_the_documented_shapes(api: Api) -> None:
    benchmark_id = api.submit()
    attempt = api.dispatched(benchmark_id)
    job = attempt.job_id.removeprefix("benchmark-")
    sent = api.as_("host").put(f"/upload/{job}/report.json", content=json.dumps({"status": "ok"}))
    assert sent.status_code == 201
    documented = openapi_document()
    paths = {
        "/v1/benchmarks": "/v1/benchmarks?total=1",
        "/v1/benchmarks/{benchmark_id}": f"/v1/benchmarks/{benchmark_id}",
        "/v1/benchmarks/{benchmark_id}/events": f"/v1/benchmarks/{benchmark_id}/events",
        "/v1/benchmarks/{benchmark_id}/results": f"/v1/benchmarks/{benchmark_id}/results",
        "/v1/results": f"/v1/results?benchmark_id={benchmark_id}",
        "/v1/boards": "/v1/boards",
        "/v1/boards/{target_uid}": "/v1/boards/rpi4b-0001-0001",
        "/v1/inventory": "/v1/inventory",
        "/v1/queue": "/v1/queue",
        "/v1/files": "/v1/files",
        "/v1/users": "/v1/users",
        "/v1/tokens": "/v1/tokens",
        "/v1/me": "/v1/me",
        "/v1/schedules": "/v1/schedules",
        "/v1/version": "/v1/version",
    }
    api.engine.order = (api.submit(),)
    for template, path in paths.items():
        operation = documented["paths"][template]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        answer = api.as_("operator").get(path)
        assert answer.status_code == 200, answer.text
        jsonschema.validate(answer.json(), {**schema, "components": documented["components"]})
    refused = api.as_().get("/v1/benchmarks/absent").json()
    problem = {"$ref": "#/components/schemas/Problem", "components": documented["components"]}
    jsonschema.validate(refused, problem)


@pytest.mark.slow
def test_no_input_breaks_the_server(api: Api) -> None:
    """Generated requests, right and wrong, to every operation as an operator."""
    broken: list[str] = []
    tried: list[str] = []
    headers = {"Authorization": f"Bearer {api.tokens['operator']}"}

    def call(case: schemathesis.Case[Any]) -> None:
        answer = case.call(base_url=api.url, headers=headers)
        tried.append(case.path)
        if answer.status_code >= 500 and answer.status_code not in (501, 503):  # 501: not built
            broken.append(f"{answer.status_code}: {case.as_curl_command()}")

    few = settings(
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    for found in schemathesis.openapi.from_dict(openapi_document()).get_all_operations():
        assert isinstance(found, Ok)
        few(given(case=found.ok().as_strategy())(call))()
    assert len(set(tried)) > 30
    assert broken == []
