"""What is committed about the API is what it is; and no input breaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import pytest

from deploy import job_fields
from deploy.reference import DOCUMENTS, FOLDER
from edgeyard.benchmark_api.app import openapi_document
from edgeyard.benchmark_api.schemas.description import description_schema
from tests.builders.api import Api, running
from tests.builders.descriptions import description


@pytest.fixture(scope="module")
def api(each_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api")) as found:
        found.upload()
        yield found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_committed_reference_is_current(name: str) -> None:
    committed = (FOLDER / name).read_text("utf-8")
    assert committed == DOCUMENTS[name](), f"{name} is old: run `make docs` and look at the change"


def test_the_sdks_fields_are_those_of_the_schema() -> None:
    assert job_fields.FILE.read_text("utf-8") == job_fields.page(), "run `make docs`"


def test_the_server_answers_the_committed_reference(api: Api) -> None:
    assert api.as_(None).get("/openapi.json").json() == openapi_document()


@pytest.mark.parametrize(
    "body",
    [
        description(),
        description(ram="4 GiB", storage=1, user_time="15 min", precision="2 %"),
        description(
            benchmark_type="TYPE3",
            odt_config={"epochs": 1},
            dataset_urls=["https://example.org/x"],
        ),
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


NUL = "a%00b"


@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "patch"])
def test_a_nul_in_a_path_or_a_parameter_is_no_error_of_the_server(api: Api, method: str) -> None:
    """PostgreSQL has no such text, and refuses it in the middle of a query."""
    operator = api.as_("operator")
    for path, operations in openapi_document()["paths"].items():
        operation = operations.get(method)
        if operation is None:
            continue
        parameters = operation.get("parameters", [])
        here = path
        for each in parameters:
            if each["in"] == "path":
                here = here.replace("{" + each["name"] + "}", NUL)
        named = "&".join(f"{each['name']}={NUL}" for each in parameters if each["in"] == "query")
        answer = operator.request(method.upper(), f"{here}?{named}")
        assert answer.status_code < 500 or answer.status_code == 501, (
            f"{method} {here}?{named}: {answer.text}"
        )
