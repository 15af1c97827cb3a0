"""Fields of a job as a page shows them."""

import pytest

from edgeyard.benchmark_api.pages.job_form import fields
from edgeyard.benchmark_api.pages.results import stated_fields
from edgeyard.benchmark_api.schemas.description import JobDescriptionIn, parse_description
from edgeyard.errors import InvalidInput

KEYWORDS = {
    *("type", "title", "description", "default", "examples", "enum", "const", "format", "pattern"),
    *("anyOf", "oneOf", "allOf", "$ref", "items", "properties", "additionalProperties", "required"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "propertyNames"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("uniqueItems", "prefixItems", "$defs", "discriminator"),
}


JOB = {"model": "net.onnx", "runtime": "ort", "benchmark_type": "TYPE1", "target": "rpi4b"}


def accepts_durations(name: str) -> bool:
    try:
        parse_description({**JOB, name: "31 days"})
    except InvalidInput as error:
        return any("30 days" in (each.accepted or "") for each in error.errors)
    return False


def test_all_durations_are_shown_with_a_unit() -> None:
    durations = [name for name in fields() if accepts_durations(name)]
    assert {"user_time", "load_bound", "load_duration"} <= set(durations)
    shown = stated_fields(dict.fromkeys(durations, 90.0))
    assert shown == {fields()[name].label: "1 min 30 s" for name in durations}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2e-6, "0.002 ms"), (0.02, "20 ms"), (0.155, "155 ms"), (1.25, "1.25 s"), (12.0, "12 s")],
)
def test_a_short_duration_is_shown_as_it_was_stated(seconds: float, text: str) -> None:
    shown = stated_fields({"load_bound": seconds})
    assert shown == {fields()["load_bound"].label: text}


def test_the_schema_has_keywords_of_json_schema_alone() -> None:
    def found(node: object, *, names: bool = False) -> set[str]:
        if isinstance(node, list):
            return set[str]().union(*(found(each) for each in node))
        if not isinstance(node, dict):
            return set()
        below = (
            found(value, names=key in ("properties", "$defs"))
            for key, value in node.items()
            if names or key not in ("default", "examples", "const", "enum")
        )
        return set[str]().union(set() if names else set(node), *below)

    assert found(JobDescriptionIn.model_json_schema()) <= KEYWORDS
