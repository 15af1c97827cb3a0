"""Errors of other processes are as readable as our own."""

from __future__ import annotations

import inspect
import pickle

import pytest

from edgeyard import errors
from edgeyard.errors import EdgeyardError, FieldError, InvalidInput

EXAMPLES: dict[str, object] = {
    "errors": [FieldError("/model", "is missing", "a file")],
    "problems": ["one", "two"],
    "differences": ["constraint"],
    "url": "http://10.0.0.1/",
    "limit_bytes": 10,
    "reserve_bytes": 10,
    "value": 3,
    "used": 4,
    "epoch": 7,
    "retry_after_s": 2.0,
}
"""Arguments by their names; all others are texts."""


def _classes(root: type[EdgeyardError] = EdgeyardError) -> list[type[EdgeyardError]]:
    found = [each for each in root.__subclasses__() if each.__module__ == errors.__name__]
    return found + [below for each in found for below in _classes(each)]


def _example(kind: type[EdgeyardError]) -> EdgeyardError:
    names = [
        name
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if name != "self" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    arguments = {name: EXAMPLES.get(name, f"a {name}") for name in names}
    return kind(**arguments) if names else kind("a reason")


@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_it_crossed_processes(kind: type[EdgeyardError]) -> None:
    error = _example(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_error_of_a_long_result_keeps_its_own_text() -> None:
    error = errors.TooLarge.of_run("result_bytes", 10, 11, "user alice")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_fields_of_wrong_input_can_be_read_in_another_process() -> None:
    again = pickle.loads(pickle.dumps(InvalidInput.at("--seed", "is negative", "0 or more")))
    assert again.errors == (FieldError("--seed", "is negative", "0 or more"),)
