"""Numbers of bodies are numbers: not true, not a text."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from edgeyard.benchmark_api.app import BODIES


def types(schema: dict[str, Any], definitions: dict[str, Any]) -> set[str]:
    """The JSON types that a schema allows at its top."""
    if "$ref" in schema:
        return types(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return set().union(*(types(each, definitions) for each in branches))
    stated = schema.get("type", [])
    return {stated} if isinstance(stated, str) else set(stated)


def numbers(body: type[BaseModel]) -> list[str]:
    """Fields of a body that are numbers, and neither booleans nor texts."""
    schema = body.model_json_schema()
    definitions = schema.get("$defs", {})
    found = {name: types(each, definitions) for name, each in schema["properties"].items()}
    return [
        name
        for name, each in found.items()
        if each & {"number", "integer"} and not each & {"boolean", "string"}
    ]


FIELDS = [(body, name) for body in BODIES for name in numbers(body)]


def test_there_are_such_fields() -> None:
    assert ("JobDescriptionIn", "user_budget") in {(body.__name__, name) for body, name in FIELDS}


@pytest.mark.parametrize(("body", "name"), FIELDS)
@pytest.mark.parametrize("value", [True, False, "1"])
def test_a_number_is_neither_true_nor_a_text(
    body: type[BaseModel], name: str, value: object
) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(body).validate_python({name: value})
    assert (name,) in {each["loc"][:1] for each in caught.value.errors()}
