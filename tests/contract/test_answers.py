"""Answers that tests write by hand are answers that the API could give."""

from __future__ import annotations

from typing import Any

import pytest

from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.scheduler.model.benchmark import Status
from tests.builders import answers
from tests.builders.contract import violation

ANSWERS = [
    *(
        pytest.param(shapes.Benchmark, answers.benchmark(status=status), id=f"benchmark {status}")
        for status in Status
    ),
    pytest.param(shapes.SubmissionAnswer, answers.accepted(), id="accepted"),
    pytest.param(shapes.DryRun, answers.dry_run(), id="dry run"),
    pytest.param(shapes.Boards, answers.boards(answers.board()), id="boards"),
    pytest.param(shapes.Me, answers.me(), id="me"),
    pytest.param(shapes.Campaign, answers.campaign(), id="campaign"),
    pytest.param(shapes.Event, answers.event(), id="event"),
    pytest.param(shapes.UserFile, answers.user_file(), id="user file"),
    pytest.param(shapes.Board, answers.board(), id="board"),
    pytest.param(shapes.Board, answers.board(state="offline"), id="board offline"),
    pytest.param(shapes.Explanation, answers.explanation(), id="explanation"),
    pytest.param(shapes.ResultRow, answers.row(), id="row"),
    pytest.param(shapes.Results, answers.results(), id="results"),
    pytest.param(shapes.Results, answers.results(verdict="suspect"), id="results suspect"),
    pytest.param(shapes.Problem, answers.problem(404, "not_found"), id="problem"),
]


@pytest.mark.parametrize(("shape", "answer"), ANSWERS)
def test_an_answer_written_by_hand_is_one_of_its_model(shape: Any, answer: object) -> None:
    assert violation(shape, answer) is None
