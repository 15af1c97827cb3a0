"""Integer programmes against brute force, the document and the plan as JSON, windows of queues."""

from itertools import product

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.plugins.scorers.assignment import AssignmentScorer
from edgeyard.plugins.scorers.ilp import CompletionIlp, DeadlinesIlp, FairnessIlp
from edgeyard.plugins.testing import NOW, all_pairs, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge
from edgeyard.scheduler.solvers.assignment import assign_now
from edgeyard.scheduler.solvers.document import (
    DOCUMENT_SCHEMA,
    PLAN_SCHEMA,
    Document,
    check_plan,
    document_from_json,
    plan_from_json,
)
from edgeyard.scheduler.solvers.programmes import fairness_costs, solve
from edgeyard.scheduler.solvers.run import Limits

EXACT = Limits(time_s=30.0, gap=0.0)
OBJECTIVES = ("completion", "deadlines", "fairness")

RUN = st.one_of(st.just(np.nan), st.integers(1, 20).map(float))
DUE = st.one_of(st.just(np.nan), st.integers(1, 40).map(float))


@st.composite
def documents(draw: st.DrawFn, objective: str) -> Document:
    jobs, boards = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    users = draw(st.integers(1, 3))

    def several(values: st.SearchStrategy[float], count: int) -> NDArray[np.float64]:
        return np.array(draw(st.lists(values, min_size=count, max_size=count)), np.float64)

    return Document(
        objective=objective,
        boards=tuple(f"b{each}" for each in range(boards)),
        run_s=several(RUN, jobs * boards).reshape(jobs, boards),
        deadlines_s=several(DUE, jobs),
        users=np.array(
            draw(st.lists(st.integers(0, users - 1), min_size=jobs, max_size=jobs)), np.intp
        ),
        usage_board_s=several(st.integers(0, 100).map(float), users),
        shares=several(st.sampled_from([0.5, 1.0, 2.0]), users),
    )


def places(document: Document) -> list[tuple[int, ...]]:
    """Every way to give each job a board that it may use, or none (-1)."""
    choices = [[-1, *np.flatnonzero(~np.isnan(row)).tolist()] for row in document.run_s]
    return list(product(*choices))


def total_completion_s(document: Document, boards: tuple[int, ...]) -> float:
    total = 0.0
    for at in set(boards) - {-1}:
        runs = sorted(document.run_s[job, at] for job, its in enumerate(boards) if its == at)
        total += float(np.cumsum(runs).sum())  # the shortest first is best on one board
    return total


def in_time(document: Document, boards: tuple[int, ...]) -> bool:
    for at in set(boards) - {-1}:
        jobs = [job for job, its in enumerate(boards) if its == at]
        jobs.sort(key=lambda job: document.deadlines_s[job])
        ends = np.cumsum(document.run_s[jobs, at])
        if not (ends <= document.deadlines_s[jobs]).all():
            return False
    return True


@given(document=documents("completion"))
@settings(max_examples=25, deadline=None)
def test_mean_completion_time_is_that_of_brute_force(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    usable = np.asarray(~np.isnan(document.run_s).all(axis=1))
    assert np.array_equal(plan.board >= 0, usable)
    if not usable.any():
        return
    best = min(
        total_completion_s(document, each)
        for each in places(document)
        if all((where >= 0) == bool(can) for where, can in zip(each, usable.tolist(), strict=True))
    )
    done = plan.start_s[usable] + document.run_s[usable, plan.board[usable]]
    assert done.sum() == pytest.approx(best)
    assert plan.value == pytest.approx(best / usable.sum())
    assert plan.status == "optimal"
    assert plan.gap == pytest.approx(0.0, abs=1e-9)


@given(document=documents("deadlines"))
@settings(max_examples=25, deadline=None)
def test_no_other_plan_meets_more_deadlines(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    planned = plan.board >= 0
    ends = plan.start_s[planned] + document.run_s[planned, plan.board[planned]]
    assert (ends <= document.deadlines_s[planned] + 1e-6).all()
    best = max(
        sum(where >= 0 for where in each) for each in places(document) if in_time(document, each)
    )
    assert planned.sum() == best


@given(document=documents("fairness"))
@settings(max_examples=25, deadline=None)
def test_boards_go_to_who_used_least(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    matchings = [
        each
        for each in places(document)
        if len({w for w in each if w >= 0}) == sum(w >= 0 for w in each)
    ]
    most = max(sum(w >= 0 for w in each) for each in matchings)
    assert (plan.board >= 0).sum() == most
    if not most:
        return
    costs = fairness_costs(document)

    def cost(boards: tuple[int, ...]) -> float:
        counts = np.bincount(
            [document.users[job] for job, its in enumerate(boards) if its >= 0],
            minlength=len(costs),
        )
        return float(sum(row[:n].sum() for row, n in zip(costs, counts.tolist(), strict=True)))

    best = min(cost(each) for each in matchings if sum(w >= 0 for w in each) == most)
    assert cost(tuple(plan.board.tolist())) == pytest.approx(best, rel=1e-3)


@given(document=documents("run time"))
@settings(max_examples=100, deadline=None)
def test_one_job_a_board_as_many_as_can_in_the_shortest_time(document: Document) -> None:
    plan = assign_now(document)
    check_plan(document, plan)
    best: tuple[int, float] = (0, 0.0)
    for each in places(document):
        used = [w for w in each if w >= 0]
        if len(set(used)) == len(used):
            took = sum(document.run_s[job, w] for job, w in enumerate(each) if w >= 0)
            best = max(best, (len(used), -float(took)))
    planned = plan.board >= 0
    took = document.run_s[planned, plan.board[planned]].sum()
    assert (int(planned.sum()), -float(took)) == pytest.approx(best)


def random_document(objective: str, jobs: int, boards: int, seed: int = 0) -> Document:
    rng = np.random.default_rng(seed)
    run_s = rng.lognormal(2.0, 0.8, (jobs, boards))
    run_s[rng.random((jobs, boards)) > 0.7] = np.nan
    return Document(
        objective=objective,
        boards=tuple(f"b{each}" for each in range(boards)),
        run_s=run_s,
        deadlines_s=np.where(rng.random(jobs) > 0.3, rng.uniform(2, 40, jobs), np.nan),
        users=rng.integers(0, 4, jobs),
        usage_board_s=rng.uniform(0, 100, 4),
        shares=np.ones(4),
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_highs_finds_what_cbc_finds(objective: str) -> None:
    pytest.importorskip("highspy", reason="the extra highs is not installed")
    document = random_document(objective, 12, 5)
    ours, theirs = (
        solve(document, Limits(time_s=30.0, gap=0.0, solver=name)) for name in ("cbc", "highs")
    )
    check_plan(document, theirs)
    assert theirs.value == pytest.approx(ours.value, rel=1e-3)
    assert (ours.status, theirs.status) == ("optimal", "optimal")
    assert theirs.gap == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_document_gets_the_same_plan(objective: str) -> None:
    document = random_document(objective, 15, 6)
    first, second = solve(document, EXACT), solve(document, EXACT)
    assert np.array_equal(first.board, second.board)
    assert np.array_equal(first.start_s, second.start_s, equal_nan=True)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_when_time_is_up_there_is_still_a_plan_that_keeps_the_rules(objective: str) -> None:
    document = random_document(objective, 60, 20)
    plan = solve(document, Limits(time_s=0.001))
    check_plan(document, plan)
    assert plan.status in ("feasible", "optimal")  # what a solver does at once, it does
    assert (plan.board >= 0).any()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_document_and_plan_are_json_that_others_can_read(objective: str) -> None:
    document = random_document(objective, 8, 4)
    written = document.as_json()
    jsonschema.validate(written, DOCUMENT_SCHEMA)
    again = document_from_json(written)
    assert np.array_equal(again.run_s, document.run_s, equal_nan=True)
    assert np.array_equal(again.deadlines_s, document.deadlines_s, equal_nan=True)
    plan = solve(again, EXACT)
    jsonschema.validate(plan.as_json(), PLAN_SCHEMA)
    back = plan_from_json(plan.as_json(), document)
    assert np.array_equal(back.board, plan.board)


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ([(0, 0, 0.0), (1, 0, 1.0)], "two jobs at a time"),
        ([(0, 1, 0.0)], "not allowed"),
        ([(0, 0, 0.0), (0, 0, 9.0)], "not allowed"),
        ([(0, 0, float("nan"))], "no time"),
        ([(0, 0, -5.0)], "no time"),
        ([(7, 0, 0.0)], "no plan"),
    ],
)
def test_a_plan_of_others_is_checked(starts: list[tuple[int, int, float]], words: str) -> None:
    document = Document(
        objective="completion",
        boards=("a", "b"),
        run_s=np.array([[2.0, np.nan], [2.0, 2.0]]),
        deadlines_s=np.array([np.nan, np.nan]),
        users=np.array([0, 0]),
        usage_board_s=np.zeros(1),
        shares=np.ones(1),
    )
    planned = [{"job": j, "board": b, "start_s": s} for j, b, s in starts]
    with pytest.raises(ValueError, match=words):
        plan_from_json({"status": "feasible", "gap": None, "starts": planned}, document)


def batch_of(jobs: int, boards: int, **more: object) -> Batch:
    return build_batch(
        snapshot_of([board(f"rpi4b-0001-{each + 1:04}") for each in range(boards)]),
        [pending(f"b-{each:03}", user_time_s=10.0 + each, **more) for each in range(jobs)],
        NOW,
        0,
    )


def test_a_programme_says_nothing_beyond_its_window() -> None:
    batch = batch_of(8, 3)
    scores = CompletionIlp(window=3).score(batch, all_pairs(batch)).reshape(8, 3)
    assert not np.isnan(scores[:3]).any()
    assert np.isnan(scores[3:]).all()


def test_a_programme_for_deadlines_says_nothing_of_benchmarks_without_one() -> None:
    batch = batch_of(4, 3)
    assert np.isnan(DeadlinesIlp().score(batch, all_pairs(batch))).all()


def test_each_board_that_is_free_starts_one_benchmark_now() -> None:
    batch = batch_of(6, 3)
    for scorer in (CompletionIlp(), FairnessIlp(), AssignmentScorer()):
        table = scorer.score(batch, all_pairs(batch)).reshape(6, 3)
        assert ((table == 1.0).sum(axis=0) == 1).all(), scorer.name
        assert (table == 1.0).sum(axis=1).max() == 1


def test_who_used_less_gets_the_board() -> None:
    snapshot = snapshot_of([board("rpi4b-0001-0001")])
    jobs = [pending("b-1", user_id="greedy"), pending("b-2", user_id="modest", ram_bytes=1)]
    owed = {
        "greedy": Entitlement(usage_board_s=5000.0),
        "modest": Entitlement(usage_board_s=10.0),
    }
    batch = build_batch(snapshot, jobs, NOW, 0, Knowledge(entitlements=owed))
    scores = FairnessIlp().score(batch, all_pairs(batch))
    assert np.isnan(scores[0])
    assert scores[1] == 1.0


def test_a_programme_reports_its_gap() -> None:
    batch = batch_of(5, 2)
    reported = CompletionIlp().answer(batch, all_pairs(batch)).facts
    assert reported["gap"] == pytest.approx(0.0, abs=0.005)
    assert reported["planned"] == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [({"solver": "guess"}, "solver"), ({"window": 0}, "window"), ({"time_s": -1.0}, "time_s")],
)
def test_wrong_options_are_reported(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CompletionIlp(**options)  # type: ignore[arg-type]
