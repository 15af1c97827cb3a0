"""What a submission refuses before any board is used, and what the lab states for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.api import Api, running
from tests.builders.descriptions import description

pytestmark = pytest.mark.one_database("checks of descriptions do not depend on the database")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running(tmp_path) as found:
        found.upload()
        yield found


@pytest.mark.parametrize(
    ("parameters", "pointer", "accepted"),
    [
        ({"preprocessing": {}}, "/parameters/preprocessing", "TYPE2"),
        ({"raw": True}, "/parameters/raw", "TYPE2"),
        ({"thread": 2}, "/parameters/thread", "did you mean threads?"),
        ({"xnnpack": True}, "/parameters/xnnpack", "graph_optimization"),
        ({"threads": 0}, "/parameters/threads", "1 or more"),
        ({"execution_mode": "fast"}, "/parameters/execution_mode", "sequential or parallel"),
    ],
)
def test_a_parameter_without_effect_is_refused_with_what_is_accepted(
    api: Api, parameters: dict[str, object], pointer: str, accepted: str
) -> None:
    answer = api.as_().post("/v1/benchmarks", json=description(parameters=parameters))
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert accepted in error["accepted"]


def test_the_members_of_a_campaign_are_checked_like_one_benchmark(api: Api) -> None:
    body = {
        "matrix": {"target": ["rpi4b"]},
        "description": {
            "model": "model.onnx",
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "parameters": {"raw": True},
        },
    }
    answer = api.as_().post("/v1/campaigns", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/description/parameters/raw"


def test_parameters_of_a_dataset_are_accepted_where_one_is_read(api: Api) -> None:
    api.upload("rows.npz", b"rows")
    asked = description(
        benchmark_type="TYPE2", dataset="rows.npz", parameters={"batch_size": 8, "raw": True}
    )
    assert api.as_().post("/v1/benchmarks", json=asked).status_code == 202


@pytest.mark.parametrize("value", ["4 GiB", "4GiB", "4294967296", 4 * 2**30])
def test_a_size_in_a_constraint_may_have_a_unit(api: Api, value: object) -> None:
    condition = {"attribute": "memory.ram", "operator": ">=", "value": value}
    answer = api.as_().post("/v1/benchmarks", json=description(constraints=[condition]))
    assert answer.status_code == 202, answer.text
    shown = api.as_().get(f"/v1/benchmarks/{answer.json()['benchmark_id']}").json()
    assert shown["description"]["constraints"] == [{**condition, "value": "4294967296"}]


@pytest.mark.parametrize("value", ["4 GiBs", "much", True])
def test_a_size_in_a_constraint_that_is_none_is_refused(api: Api, value: object) -> None:
    condition = {"attribute": "memory.ram", "operator": ">=", "value": value}
    answer = api.as_().post("/v1/benchmarks", json=description(constraints=[condition]))
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/constraints/0"
    assert "'4 GiB'" in error["accepted"]


def test_an_invalid_regular_expression_is_named_as_such(api: Api) -> None:
    condition = {"attribute": "cpu.model", "operator": "regexp", "value": "(Cortex"}
    answer = api.as_().post("/v1/benchmarks", json=description(constraints=[condition]))
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["pointer"] == "/constraints/0"
    assert error["reason"].endswith("invalid regular expression: missing ): (Cortex")


def test_the_attributes_of_the_lab_are_listed_with_their_values(api: Api) -> None:
    items = {item["name"]: item for item in api.as_().get("/v1/attributes").json()["items"]}
    assert items["memory.ram"]["values"] == [4 * 2**30, 8 * 2**30]
    assert items["memory.ram"]["meaning"]
    assert "rpi4b" in items["family"]["values"]
    alone = api.as_().get("/v1/attributes?family=rpi4b").json()["items"]
    assert [each["boards"] for each in alone if each["name"] == "family"] == [2]
    assert api.as_().get("/v1/attributes?family=nano").json()["items"] == []
    shown = api.as_().get("/v1/boards/rpi4b-0001-0001").json()
    assert shown["attributes"]["family"] == "rpi4b"
    assert api.as_(None).get("/v1/attributes").status_code == 401


def test_a_list_of_a_type_that_does_not_exist_is_refused(api: Api) -> None:
    answer = api.as_().get("/v1/benchmarks?benchmark_type=TYPE100")
    assert answer.status_code == 422
    assert "TYPE3" in answer.text
    assert api.as_().get("/v1/benchmarks?benchmark_type=TYPE1").json()["items"] == []


def test_the_reference_page_is_swagger_ui_of_this_server_alone(api: Api) -> None:
    anybody = api.as_(None)
    page = anybody.get("/docs")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "start.js"):
        assert f"docs/{name}" in page.text
        part = anybody.get(f"/docs/{name}")
        assert part.status_code == 200
        assert len(part.content) > 100
    assert "openapi.json" in anybody.get("/docs/start.js").text
    assert anybody.get("/docs/favicon.png").status_code == 404
    assert anybody.get("/livez").headers["content-security-policy"].startswith("default-src 'none'")
