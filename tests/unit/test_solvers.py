"""Integer programmes against brute force, the document and the plan as JSON, windows of queues."""

import os
import re
import sys
import time
from dataclasses import replace
from itertools import count, permutations, product
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeyard.errors import ConfigError
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.ilp import (
    AssignmentScorer,
    CompletionIlp,
    DeadlinesIlp,
    FairnessIlp,
    PlanScorer,
)
from edgeyard.plugins.testing import NOW, all_pairs, board, pending, snapshot_of
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.record import Recorder, result_of
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import ScorerChoice, load_policy, parse_policy, read_policy
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.knowledge import Entitlement, Knowledge
from edgeyard.scheduler.solvers import programmes
from edgeyard.scheduler.solvers.assignment import assign_one_each
from edgeyard.scheduler.solvers.document import DOCUMENT_SCHEMA, PLAN_SCHEMA, Document, check_plan
from edgeyard.scheduler.solvers.programmes import fairness_costs, solve
from edgeyard.scheduler.solvers.run import Limits
from tests.builders.cluster import eventually
from tests.fakes.ilp_json import document_from_json, plan_from_json

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

EXACT = Limits(time_s=30.0, gap=0.0)
OBJECTIVES = ("completion", "deadlines", "fairness")
PROGRAMMES = ("deadlines", "fairness")

RUN = st.one_of(st.just(np.nan), st.integers(1, 20).map(float))
DUE = st.one_of(st.just(np.nan), st.integers(1, 40).map(float))
READY = st.sampled_from([0.0, 0.0, 3.0, 11.0])
OPEN = st.just(np.inf)
CLOSES = st.sampled_from([np.inf, 15.0, 30.0])


@st.composite
def documents(draw: st.DrawFn, objective: str, closes: st.SearchStrategy[float] = OPEN) -> Document:
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
        ready_s=several(READY, boards),
        closes_s=several(closes, boards),
        weights=several(st.sampled_from([1.0, 1.0, 3.0]), jobs),
        cool_down_s=draw(st.sampled_from([0.0, 2.0])),
    )


def places(document: Document) -> list[tuple[int, ...]]:
    """Every way to give each job a board that it may use, or none (-1)."""
    choices = [[-1, *np.flatnonzero(~np.isnan(row)).tolist()] for row in document.run_s]
    return list(product(*choices))


def ends_of(document: Document, order: tuple[int, ...], at: int) -> list[float]:
    """When jobs end that a board runs in this order, with its rest in between."""
    free_s, ends = float(document.ready_s[at]), []
    for job in order:
        ends.append(free_s + float(document.run_s[job, at]))
        free_s = ends[-1] + document.cool_down_s
    return ends


def all_orders(document: Document, boards: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Every order of the jobs on each board."""
    on = [
        [job for job, its in enumerate(boards) if its == at] for at in range(len(document.boards))
    ]
    return [list(permutations(each)) for each in on]


def min_total_s(document: Document, boards: tuple[int, ...]) -> float:
    """Least sum of completion times over all orders that end before the boards close."""
    total = 0.0
    for at, orders in enumerate(all_orders(document, boards)):
        sums = [
            sum(ends)
            for order in orders
            if max(ends := ends_of(document, order, at), default=0.0) <= document.closes_s[at]
        ]
        total += min(sums, default=np.inf)
    return total


def in_time(document: Document, boards: tuple[int, ...]) -> bool:
    """Whether some order on each board meets all deadlines before the board closes."""
    return all(
        any(
            all(
                end <= min(document.deadlines_s[job], document.closes_s[at])
                for job, end in zip(order, ends_of(document, order, at), strict=True)
            )
            for order in orders
        )
        for at, orders in enumerate(all_orders(document, boards))
    )


def usable_jobs(document: Document) -> NDArray[np.bool_]:
    return np.asarray(~np.isnan(document.ends_alone_s()).all(axis=1))


@given(document=documents("completion"))
@settings(max_examples=40, deadline=None)
def test_mean_completion_time_is_that_of_brute_force(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    usable = usable_jobs(document)
    assert np.array_equal(plan.board >= 0, usable)
    if not usable.any():
        assert plan.status == "none"
        return
    best = min(
        min_total_s(document, each)
        for each in places(document)
        if all((where >= 0) == bool(can) for where, can in zip(each, usable.tolist(), strict=True))
    )
    assert np.nansum(plan.ends_s(document)) == pytest.approx(best)
    assert plan.value == pytest.approx(best / usable.sum())
    assert (plan.status, plan.gap) == ("optimal", 0.0)


@given(document=documents("completion", CLOSES))
@settings(max_examples=40, deadline=None)
def test_with_boards_that_close_the_stated_gap_bounds_the_true_one(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    usable = usable_jobs(document)
    if not usable.any() or not np.array_equal(plan.board >= 0, usable):
        assert plan.status in ("feasible", "none")
        return
    best = min(
        min_total_s(document, each)
        for each in places(document)
        if all((where >= 0) == bool(can) for where, can in zip(each, usable.tolist(), strict=True))
    )
    found = float(np.nansum(plan.ends_s(document)))
    assert (found - best) / found <= plan.gap + 1e-9
    if plan.status == "optimal":
        assert found == pytest.approx(best)


@given(document=documents("deadlines", CLOSES))
@settings(max_examples=30, deadline=None)
def test_no_other_plan_misses_less_weight_of_deadlines(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    assert plan.status in ("optimal", "none")
    with np.errstate(invalid="ignore"):
        met = plan.ends_s(document) <= document.deadlines_s + 1e-6
    best = max(
        sum(float(document.weights[job]) for job, where in enumerate(each) if where >= 0)
        for each in places(document)
        if in_time(document, each)
    )
    assert float(document.weights[met].sum()) == pytest.approx(best)


@given(document=documents("deadlines"))
@settings(max_examples=10, deadline=None)
def test_jobs_without_a_deadline_or_a_chance_are_planned_too(document: Document) -> None:
    assert np.array_equal(solve(document, EXACT).board >= 0, usable_jobs(document))


@given(document=documents("fairness"))
@settings(max_examples=30, deadline=None)
def test_boards_go_to_users_who_used_least(document: Document) -> None:
    plan = solve(document, EXACT)
    check_plan(document, plan)
    assert np.array_equal(plan.board >= 0, usable_jobs(document))
    now = np.where(plan.start_s <= 0.0, plan.board, -1)
    matchings = [
        each
        for each in places(document)
        if len({w for w in each if w >= 0}) == sum(w >= 0 for w in each)
        and all(document.ready_s[w] <= 0.0 for w in each if w >= 0)
    ]
    most = max(sum(w >= 0 for w in each) for each in matchings)
    assert (now >= 0).sum() == most
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
    assert cost(tuple(now.tolist())) == pytest.approx(best, rel=1e-3)


@given(document=documents("run time", CLOSES))
@settings(max_examples=60, deadline=None)
def test_one_job_a_board_as_many_as_can_in_the_shortest_time(document: Document) -> None:
    plan = assign_one_each(document)
    check_plan(document, plan)
    ends = document.ends_alone_s()
    best: tuple[int, float] = (0, 0.0)
    for each in places(document):
        used = [w for w in each if w >= 0]
        total = sum(ends[job, w] for job, w in enumerate(each) if w >= 0)
        if len(set(used)) == len(used) and not np.isnan(total):
            best = max(best, (len(used), -float(total)))
    assert (int((plan.board >= 0).sum()), -float(np.nansum(plan.ends_s(document)))) == (
        pytest.approx(best)
    )


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
        ready_s=np.where(rng.random(boards) > 0.5, 0.0, rng.uniform(0, 20, boards)),
        closes_s=np.full(boards, np.inf),
        weights=rng.integers(1, 4, jobs).astype(np.float64),
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_document_gets_the_same_plan(objective: str) -> None:
    document = random_document(objective, 15, 6)
    first, second = solve(document, EXACT), solve(document, EXACT)
    assert np.array_equal(first.board, second.board)
    assert np.array_equal(first.start_s, second.start_s, equal_nan=True)


def test_a_greedy_plan_carries_no_label_and_rates_nobody() -> None:
    """The same cycle with a solver that has its time, and with one that has none."""
    boards = snapshot_of([board(f"rpi4b-0001-000{each}") for each in (1, 2, 3)])
    jobs = [
        pending(f"b-{each}", user_id=f"user-{each}", user_time_s=10.0 + each, ram_bytes=each)
        for each in (1, 2, 3)
    ]
    rated = {}
    for budget_s in (60.0, 0.001):
        chosen = (
            ScorerChoice(
                name="ilp_fairness", weight=1.0, budget_s=budget_s, options={"time_s": 60.0}
            ),
            ScorerChoice(name="random", weight=1.0, budget_s=budget_s),
        )
        policy = replace(load_policy("default"), scorers=chosen, evaluator="compared")
        given = CycleInput(snapshot=boards, pending=jobs, now=NOW)
        plugins = registry(entry_points=False).resolve(policy)
        result = decide(given, policy, plugins)
        programme = result.decided.scores.proposals[0]
        rated[programme.kind.value] = set(result.rewards)
        part = result.explanation("b-1").scorers[0]
        assert ("greedy" in part.fallback) == (budget_s < 1.0)
        again = result_of(Recorder().record(given, result), plugins)
        assert again.decided.scores.proposals[0].fallback == programme.fallback
    assert rated == {"ilp": {"random"}, "heuristic": set()}


def test_an_optimal_plan_that_came_too_late_counts_and_is_named() -> None:
    """No decision depends on the clock; who is late again and again is suspended."""
    boards = snapshot_of([board(f"rpi4b-0001-000{each}") for each in (1, 2, 3)])
    jobs = [pending(f"b-{each}", user_time_s=10.0 + each) for each in (1, 2, 3)]
    chosen = (ScorerChoice(name="ilp_completion", weight=1.0, budget_s=60.0),)
    policy = replace(load_policy("default"), scorers=chosen)
    given = CycleInput(snapshot=boards, pending=jobs, now=NOW)
    plugins = registry(entry_points=False).resolve(policy)
    in_time = decide(given, policy, plugins)
    clock = map(float, count(0, 100))
    late = decide(given, policy, plugins, monotonic_s=lambda: next(clock))
    assert [str(each) for each in late.overruns] == ["ilp_completion took too long: 100 s of 60 s"]
    assert late.placements == in_time.placements
    assert in_time.overruns == ()
    record = Recorder().record(given, late)
    for result in (late, result_of(record, plugins)):
        assert result.explanation("b-1").scorers[0].late == "100 s of 60 s"
    assert in_time.explanation("b-1").scorers[0].late == ""
    assert record.digest == Recorder().record(given, in_time).digest


@pytest.mark.parametrize("objective", PROGRAMMES)
def test_a_plan_of_a_simple_rule_is_named_so(objective: str) -> None:
    document = random_document(objective, 60, 20)
    plan = solve(document, Limits(time_s=0.001))
    check_plan(document, plan)
    assert plan.status == "greedy"
    assert np.isnan(plan.gap)
    assert "too short" in plan.problem
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
        ([(0, 0, 0.0), (1, 0, 1.0)], "two jobs at the same time"),
        ([(0, 1, 0.0)], "job 0 cannot run on board 1"),
        ([(0, 0, 0.0), (0, 0, 9.0)], "job 0 has two starts"),
        ([(0, 0, float("nan"))], "not a time from 0"),
        ([(0, 0, -5.0)], "not a time from 0"),
        ([(7, 0, 0.0)], "7 is not an index"),
        ([(-1, 0, 0.0)], "-1 is not an index"),
        ([(1, 1, 2.0)], "before its board is free"),
        ([(0, 0, 8.0)], "closes"),
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
        ready_s=np.array([0.0, 3.0]),
        closes_s=np.array([9.0, np.inf]),
        weights=np.ones(2),
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
    for scorer in (CompletionIlp(), AssignmentScorer()):
        table = scorer.score(batch, all_pairs(batch)).reshape(6, 3)
        runs = np.arange(10.0, 16.0)[:, None]  # as they state
        assert ((table == runs).sum(axis=0) == 1).all(), scorer.name
        assert ((table == runs).sum(axis=1) <= 1).all()
    table = FairnessIlp().score(batch, all_pairs(batch)).reshape(6, 3)
    assert ((table == 1.0).sum(axis=0) == 1).all()


@pytest.mark.parametrize("scorer", [CompletionIlp(), AssignmentScorer()])
def test_exact_plans_state_seconds_until_the_end(scorer: PlanScorer) -> None:
    batch = batch_of(3, 1)  # of 10, 11 and 12 s: the shortest goes first
    assert scorer.unit == "seconds"
    seconds = scorer.score(batch, all_pairs(batch))
    if scorer.name == "ilp_completion":
        assert seconds.tolist() == [10.0, 21.0, 33.0]
    else:
        assert seconds[0] == 10.0
        assert np.isnan(seconds[1:]).all()


def test_more_boards_than_jobs_leave_every_job_its_best_board() -> None:
    batch = batch_of(3, 60)
    table = CompletionIlp().score(batch, all_pairs(batch)).reshape(3, 60)
    assert (np.nanmin(table, axis=1) == [10.0, 11.0, 12.0]).all()
    assert not np.isnan(table).any()


def test_the_user_who_used_less_gets_the_board() -> None:
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


def test_an_activated_policy_that_names_a_solver_is_still_used() -> None:
    text = read_policy("learned")
    assert text.count("{ window = 50 }") == 2
    before, its = text.split('name = "ilp_deadlines"')
    its = its.replace("{ window = 50 }", '{ window = 50, solver = "cbc" }')
    policy = parse_policy(f'{before}name = "ilp_deadlines"{its}')
    plugins = registry(entry_points=False).resolve(policy)
    assert "ilp_deadlines" in [role.scorer.name for role in plugins.scorers]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"window": 0}, "window"), ({"time_s": -1.0}, "time_s")],
)
def test_wrong_options_are_reported(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DeadlinesIlp(**options)  # type: ignore[arg-type]


# --- solvers that misbehave --------------------------------------------------------------------

_CRASH = "import os; os.abort()"
_HANG = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
_SILENT = "pass"
_STARTS = (
    "import pickle, struct, sys\n"
    "def write(data): sys.stdout.buffer.write(data); sys.stdout.flush()\n"
    "def answer(*numbers): write(struct.pack(f'<Q{len(numbers)}d', 8 * len(numbers), *numbers))\n"
    "write(b'+')\n"
    "programme, options = pickle.load(sys.stdin.buffer)\n"
)
_CRASHES_LATER = _STARTS + _CRASH
_GARBAGE = _STARTS + "write(b'\\xff' * 64); sys.stdin.read()"
_HALF = _STARTS + "answer(0.0, 1.0, *[0.5] * len(programme.costs))"
_TOO_FEW = _STARTS + "answer(0.0, 1.0, 1.0)"
_TOO_MANY = _STARTS + "answer(0.0, 1.0, *[0.0] * (len(programme.costs) + 1))"
_NOTHING = _STARTS + "answer(0.0, 0.0)"
_BREAKS_RULES = _STARTS + "answer(0.0, 1.0, *[1.0] * len(programme.costs))"
_ENDLESS = _STARTS + "while True: write(b'x' * 65536)"
_HANGS_LATER = _STARTS + _HANG


@pytest.mark.parametrize(
    ("program", "time_s", "words"),
    [
        (_CRASH, 60.0, "ended during its start"),
        (_SILENT, 60.0, "ended during its start"),
        (_HANG, 0.3, "had not started"),
        (_CRASHES_LATER, 60.0, "process ended"),
        (_GARBAGE, 60.0, "cannot be read"),
        (_HALF, 60.0, "cannot be read"),
        (_TOO_FEW, 60.0, "cannot be read"),
        (_TOO_MANY, 60.0, "cannot be read"),
        (_NOTHING, 60.0, "found no plan"),
        (_BREAKS_RULES, 60.0, "breaks a constraint"),
        (_ENDLESS, 60.0, "cannot be read"),
        (_HANGS_LATER, 5.0, "killed|had not started"),
    ],
)
def test_a_solver_that_fails_costs_its_time_and_no_more(
    program: str, time_s: float, words: str
) -> None:
    document = random_document("deadlines", 12, 5)
    limits = Limits(time_s=time_s, command=(sys.executable, "-c", program))
    plan = solve(document, limits)
    check_plan(document, plan)
    assert plan.status == "greedy"
    assert re.search(words, plan.problem)


def test_a_solver_is_dead_when_its_time_is_up(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = f"import os; open({str(note)!r}, 'w').write(str(os.getpid()));" + _HANG
    for time_s in (0.5, 5.0, 60.0):  # a busy machine takes long to start it
        limits = Limits(time_s=time_s, command=(sys.executable, "-c", program))
        began = time.monotonic()
        assert solve(random_document("deadlines", 12, 5), limits).status == "greedy"
        assert time.monotonic() - began < time_s + 30.0
        if note.is_file() and note.read_text():
            break
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


@pytest.mark.parametrize("ends", ["time.sleep(600)", "os._exit(3)"])
def test_what_a_solver_started_is_dead_too(tmp_path: Path, ends: str) -> None:
    """A program that starts the solver proper, and may itself have ended before the time is up."""
    note = tmp_path / "pid"
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n{ends}\n"
    )
    for time_s in (0.5, 5.0, 60.0):  # a busy machine takes long to start it
        command = (sys.executable, "-c", program)
        limits = Limits(time_s=time_s, command=command)
        plan = solve(random_document("deadlines", 12, 5), limits)
        assert plan.status == "greedy"
        if note.is_file() and note.read_text():
            break
    eventually(lambda: not is_running(int(note.read_text())), "what the solver started is dead")


def is_running(pid: int) -> bool:
    """Whether a process still runs; one that has ended and was not collected yet does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_after_a_fault_the_solver_solves_the_next_programme() -> None:
    document = random_document("deadlines", 60, 20)
    solve(document, Limits(time_s=0.03))  # still starting, or killed
    assert solve(document, replace(EXACT, gap=0.05)).status == "optimal"


@pytest.mark.parametrize("objective", PROGRAMMES)
def test_programmes_of_many_boards_stay_small(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boards beyond as many as there are jobs change nothing; fewer cost the proof."""
    wide = replace(random_document(objective, 6, 40), ready_s=np.zeros(40))
    whole = solve(wide, EXACT)
    assert whole.status == "optimal"
    monkeypatch.setattr(programmes, "MAX_ENTRIES", 30)
    cut = solve(wide, EXACT)
    check_plan(wide, cut)
    assert (cut.status, np.isnan(cut.gap)) == ("feasible", True)
    assert (cut.board >= 0).sum() == (whole.board >= 0).sum()


@pytest.mark.parametrize("objective", [*OBJECTIVES, "run time"])
def test_documents_without_jobs_boards_or_pairs_have_no_plan(objective: str) -> None:
    whole = random_document(objective, 3, 2)
    shut = replace(whole, closes_s=np.zeros(2))
    forbidden = replace(whole, run_s=np.full((3, 2), np.nan))
    for document in (random_document(objective, 3, 0), shut, forbidden):
        plan = solve(document, EXACT)
        assert plan.status == "none"
        assert (plan.board == -1).all()
    assert len(solve(random_document(objective, 0, 2), EXACT).board) == 0
    one = solve(replace(random_document(objective, 1, 1), run_s=np.array([[4.0]])), EXACT)
    assert (one.board.tolist(), one.status) == ([0], "optimal")


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("pairs", "run_s"), float("nan"), "run_s"),
        (("pairs", "run_s"), float("inf"), "run_s"),
        (("pairs", "board"), -1, "index"),
        (("boards", "ready_s"), -1.0, "ready_s"),
        (("boards", "closes_s"), "soon", "closes_s"),
        (("jobs", "user"), 99, "index"),
        (("jobs", "weight"), 0.0, "weight"),
        (("users", "share"), 0.0, "share"),
        (("schema",), "edgeyard.ilp/1", "schema"),
        (("jobs",), 7, "not a document"),
    ],
)
def test_a_wrong_document_is_refused_with_the_field(
    place: tuple[str, ...], value: object, words: str
) -> None:
    written: dict[str, Any] = random_document("deadlines", 3, 2).as_json()
    if len(place) == 1:
        written[place[0]] = value
    else:
        written[place[0]][0][place[1]] = value
    with pytest.raises(ValueError, match=words):
        document_from_json(written)
