"""Answers that tests write by hand are answers that the API could give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from edgeyard.scheduler.model.benchmark import Status
from tests.builders import answers

OPENAPI = json.loads((Path(__file__).parents[2] / "docs/reference/openapi.json").read_text())

ANSWERS = [
    *(
        pytest.param("Benchmark", answers.benchmark(status=status), id=f"benchmark {status}")
        for status in Status
    ),
    pytest.param("Accepted", answers.accepted(), id="accepted"),
    pytest.param("Board", answers.board(), id="board"),
    pytest.param("Board", answers.board(state="offline"), id="board offline"),
    pytest.param("Explanation", answers.explanation(), id="explanation"),
    pytest.param("ResultRow", answers.row(), id="row"),
    pytest.param("Results", answers.results(), id="results"),
    pytest.param("Results", answers.results(verdict="suspect"), id="results suspect"),
    pytest.param("Problem", answers.problem(404, "not_found"), id="problem"),
]


@pytest.mark.parametrize(("schema", "answer"), ANSWERS)
def test_an_answer_written_by_hand_has_the_published_shape(
    schema: str, answer: dict[str, Any]
) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": OPENAPI["components"]}
    errors = list(Draft202012Validator(whole).iter_errors(answer))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []
    assert set(answer) <= set(OPENAPI["components"]["schemas"][schema]["properties"])
