"""Job descriptions, as the API accepts them."""

from __future__ import annotations

import pytest

from edgeyard.benchmark_api.schemas.description import parse_description, to_description
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.model.benchmark import JobDescription


def description(**changes: object) -> dict[str, object]:
    """A job description that is right; ``...`` takes a field away."""
    whole: dict[str, object] = {
        "model": "model.onnx",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi4b",
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not ...}


def read(**changes: object) -> JobDescription:
    """Read `description` as the API does; raises InvalidInput."""
    return to_description(parse_description(description(**changes)))


def refused(**changes: object) -> tuple[FieldError, ...]:
    """Return the errors for which `description` is refused."""
    with pytest.raises(InvalidInput) as caught:
        read(**changes)
    return caught.value.errors
