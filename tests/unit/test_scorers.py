"""What the heuristics prefer, and where they abstain."""

from datetime import timedelta

import numpy as np
import pytest

from edgeyard.plugins.builtin import BUILT_IN
from edgeyard.plugins.testing import GIB, NOW, all_pairs, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch_builder import build_batch, kind_of
from edgeyard.scheduler.framework.registry import Kind
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import HostLoad, Knowledge

A, B, C = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0001-0003"
MODEL = "a" * 64
JOB = pending(model_sha256=MODEL)


def scores(
    name: str,
    snapshot: Snapshot,
    knowledge: Knowledge | None = None,
    *jobs: PendingBenchmark,
    seed: int = 0,
) -> list[list[float]]:
    """A row a class, of all boards."""
    batch = build_batch(snapshot, jobs or (JOB,), NOW, seed, knowledge)
    scorer = BUILT_IN[Kind.SCORER][name]()
    found = scorer.score(batch, all_pairs(batch))  # type: ignore[attr-defined]  # a scorer
    return np.round(found.reshape(batch.shape), 4).tolist()  # type: ignore[no-any-return]


def runs(*expected: tuple[str, float | None, str | None]) -> Knowledge:
    return Knowledge(
        runs=History(
            PastRun(
                benchmark_id=f"b-{number}",
                user_id="user-1",
                target_uid=uid,
                family="rpi4b",
                kind=kind_of(JOB),
                run_s=run_s,
                failure=failure,
                ended_at=NOW - timedelta(hours=1, seconds=-number),
            )
            for number, (uid, run_s, failure) in enumerate(expected)
        )
    )


def three() -> Snapshot:
    return snapshot_of([board(A), board(B), board(C)])


@pytest.mark.parametrize("name", ["fastest", "reliable", "locality", "host_load"])
def test_a_scorer_that_knows_nothing_abstains(name: str) -> None:
    assert np.isnan(scores(name, three())).all()


def test_fastest_states_expected_seconds() -> None:
    many = [(A, 10.0, None), (B, 20.0, None)] * 20
    ((a, b, c),) = scores("fastest", three(), runs(*many))
    assert a == pytest.approx(10.0, rel=0.05)
    assert b == pytest.approx(20.0, rel=0.05)
    assert a < c < b  # of a board without a past of its own, the others' is the best guess


def test_a_board_that_fails_is_more_likely_to_fail_than_one_that_does_not() -> None:
    past = [(A, 10.0, "board_fault"), (B, 10.0, None)] * 5
    ((a, b, _),) = scores("reliable", three(), runs(*past))
    assert 0.0 <= b < a <= 1.0


def test_boards_on_which_the_model_ran_lately_come_first() -> None:
    past = runs((A, 1.0, None), (B, 1.0, None), (C, None, "board_fault"))  # C: it never began
    other = pending(model_sha256="b" * 64)
    ((a, b, c),) = scores("locality", three(), past)
    assert (a, b) == (1.0, 1.0)
    assert np.isnan(c)
    assert list(scores("locality", three(), past, other)[0][:2]) == [0.0, 0.0]
    assert np.isnan(scores("locality", three(), past, pending(model_sha256=None))).all()


def test_a_busy_host_scores_low_and_one_that_does_not_tell_not_at_all() -> None:
    snapshot = snapshot_of([board(A), board(B), board(C)], hosts={A: "x", B: "y", C: "z"})
    loads = {"x": HostLoad(cpu=0.25, memory=0.75), "y": HostLoad(cpu=0.0, memory=0.5)}
    ((a, b, c),) = scores("host_load", snapshot, Knowledge(host_loads=loads))
    assert (a, b) == (0.25, 0.5)
    assert np.isnan(c)


def test_spread_counts_what_runs_on_the_host_and_what_was_just_given_out() -> None:
    boards = [board(A), board(B), board(C), board("rpi4b-0002-0001", busy=True)]
    hosts = {A: "x", B: "x", C: "y", "rpi4b-0002-0001": "y"}
    ((a, b, c, busy),) = scores("spread", snapshot_of(boards, hosts=hosts))
    assert sorted((a, b)) == [0.5, 1.0]
    assert (c, busy) == (0.5, 0.5)


def test_best_fit_takes_the_smallest_board_that_will_do() -> None:
    boards = [board(A, ram_bytes=8 * GIB), board(B, ram_bytes=2 * GIB), board(C, ram_bytes=4 * GIB)]
    ((a, b, c),) = scores("best_fit", snapshot_of(boards), None, pending(ram_bytes=GIB))
    assert b > c > a
    assert a == pytest.approx(0.5 * (1 - (8 - 1) / 8) + 0.5 * 0.0)


def test_tetris_weighs_packing_against_shortness() -> None:
    boards = [board(A, ram_bytes=8 * GIB), board(B, ram_bytes=2 * GIB)]
    job = pending(model_sha256=MODEL, ram_bytes=GIB)
    ((a, b),) = scores("tetris", snapshot_of(boards), None, job)
    assert (a, b) == (0.0, 1.0)  # packing alone
    slow = runs(*[(A, 10.0, None), (B, 100.0, None)] * 20)
    ((a, b),) = scores("tetris", snapshot_of(boards), slow, job)
    assert (a, b) == (1.0, 0.0)


def test_chance_depends_on_the_seed_the_class_and_the_board_alone() -> None:
    many = snapshot_of([board(f"rpi4b-0001-{n:04}") for n in range(1, 401)])
    jobs = pending("b-1"), pending("b-2", ram_bytes=GIB)
    first, second = scores("random", many, None, *jobs)
    assert [first, second] == scores("random", many, None, *jobs)
    assert first != scores("random", many, None, *jobs, seed=1)[0]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    assert np.mean(first) == pytest.approx(0.5, abs=0.06)


def test_every_heuristic_says_what_it_is_good_for() -> None:
    objectives = {}
    for name, factory in BUILT_IN[Kind.SCORER].items():
        scorer = factory()
        objectives[name] = scorer.objective  # type: ignore[attr-defined]  # a scorer
    assert {"least_loaded", "fastest", "reliable", "locality", "spread"} <= objectives.keys()
    assert {"best_fit", "random", "tetris", "host_load"} <= objectives.keys()
    assert all(objectives.values())
