"""The SDK's keyword arguments and the CLI's flags are the fields of the job description."""

from __future__ import annotations

import typer

from edgeyard.benchmark_api.app import openapi_document
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.schemas.description import JobDescriptionIn
from edgeyard.benchmark_api.sdk import Filters, JobChanges

SERVER_ONLY = {"version", "user_id", "submit_time"}


def test_every_field_of_a_job_description_is_a_keyword_argument() -> None:
    assert JobChanges.__annotations__.keys() == JobDescriptionIn.model_fields.keys() - SERVER_ONLY


def test_every_field_of_a_job_description_has_a_flag() -> None:
    submit = typer.main.get_group(app).commands["submit"]
    named_otherwise = {"dataset_urls": "dataset", "input": "inputs", "model_url": "model"}
    fields = JobDescriptionIn.model_fields.keys() - SERVER_ONLY - {"extra"}
    parameters = {each.name for each in submit.params}
    assert {named_otherwise.get(field, field) for field in fields} <= parameters


def test_every_filter_of_the_list_is_a_keyword_argument() -> None:
    parameters = openapi_document()["paths"]["/v1/benchmarks"]["get"]["parameters"]
    paging = {"limit", "cursor", "total"}
    names = {each["name"] for each in parameters} - paging
    taken_by_name = {"campaign" if each == "campaign_id" else each for each in names}
    assert Filters.__annotations__.keys() == taken_by_name
