"""What the past says of run times and failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from edgeyard.plugins.testing import NOW, board, pending, snapshot_of
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.batch_builder import build_batch, kind_of
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun, with_load
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.distributions import PastRunDraws
from edgeyard.scheduler.prediction.estimates import PastPairs, failure_rates, run_counts, run_times

A, B, C = "rpi4b-0001-0001", "rpi4b-0001-0002", "rpi4b-0001-0003"
JOB = pending(model_sha256="a" * 64)
OTHER = pending("other", model_sha256="b" * 64)


def run(
    uid: str, run_s: float | None, job: PendingBenchmark = JOB, *, age_s: float = 0.0, **more: str
) -> PastRun:
    return PastRun(
        benchmark_id=f"{uid}-{run_s}-{age_s}",
        user_id="user-1",
        target_uid=uid,
        family="rpi4b",
        kind=kind_of(job),
        run_s=run_s,
        failure=more.get("failure"),
        ended_at=NOW - timedelta(seconds=age_s),
    )


def batch_of(runs: Sequence[PastRun], *jobs: PendingBenchmark) -> Batch:
    snapshot = snapshot_of([board(A), board(B), board(C)])
    return build_batch(snapshot, jobs or (JOB,), NOW, 0, Knowledge(runs=History(runs)))


def times(runs: Sequence[PastRun], job: PendingBenchmark = JOB, q: float = 0.5) -> list[float]:
    """On A, B and C."""
    rows, boards = np.zeros(3, dtype=np.intp), np.arange(3)
    return run_times(batch_of(runs, job), rows, boards, q).tolist()  # type: ignore[no-any-return]


def cut_on_the_first(seed: int, median_s: float, spread: float = 0.2) -> list[PastRun]:
    """30 runs on each of three boards; on A, those above the quantile 0.8 end at that limit."""
    rng = np.random.default_rng(seed)
    limit_s = median_s * math.exp(spread * NormalDist().inv_cdf(0.8))
    found = []
    for uid in (A, B, C):
        for age, run_s in enumerate(median_s * np.exp(rng.normal(0.0, spread, 30))):
            cut = uid == A and run_s > limit_s
            if cut:
                found.append(run(uid, limit_s, age_s=age, failure="timeout"))
            else:
                found.append(run(uid, float(run_s), age_s=age))
    return sorted(found, key=lambda each: each.ended_at)


def test_runs_that_a_limit_ended_do_not_bias_the_estimate() -> None:
    """Without them the median is too low by 10 %, and the quantile 0.9 is far too near to it."""
    median_s, spread, seeds = 60.0, 0.2, range(30)
    truth = {q: spread * NormalDist().inv_cdf(q) for q in (0.5, 0.9)}
    bias: dict[tuple[str, float], float] = {}
    for q, true in truth.items():
        for name in ("all", "results"):
            errors = []
            for seed in seeds:
                runs = cut_on_the_first(seed, median_s)
                some = [each for each in runs if name == "all" or each.failure is None]
                errors.append(math.log(times(some, q=q)[0] / median_s) - true)
            bias[name, q] = sum(errors) / len(errors)
    assert bias["results", 0.5] < -0.05
    assert abs(bias["all", 0.5]) < 0.02
    assert bias["results", 0.9] < -0.08
    assert abs(bias["all", 0.9]) < 0.05


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_many_runs_that_a_limit_ended_early_make_nothing_certain(share: float) -> None:
    """Of 120 runs, 100 have a limit that this share of runs meets."""
    median_s, spread = 60.0, 0.2
    limit_s = median_s * math.exp(spread * NormalDist().inv_cdf(share))
    medians, widths = [], []
    for seed in range(30):
        drawn = median_s * np.exp(np.random.default_rng(seed).normal(0.0, spread, 120))
        runs = [
            run(A, limit_s, failure="timeout") if place >= 20 and run_s > limit_s else run(A, run_s)
            for place, run_s in enumerate(drawn.tolist())
        ]
        low, middle, high = (times(runs, q=q)[0] for q in (0.1, 0.5, 0.9))
        medians.append(math.log(middle / median_s))
        widths.append(math.log(high / low))
    assert abs(sum(medians) / 30) < 0.02
    true_width = spread * (NormalDist().inv_cdf(0.9) - NormalDist().inv_cdf(0.1))
    assert sum(widths) / 30 == pytest.approx(true_width, rel=0.1)


def test_runs_that_hung_and_runs_of_boards_without_results_are_left_out() -> None:
    good = [run(uid, run_s) for uid in (A, B) for run_s in noisy(10.0, 5)]
    max_run_s = max(each.run_s or 0.0 for each in good)
    for other in (
        run(A, 2.0 * max_run_s, failure="timeout"),
        run(C, max_run_s, failure="timeout"),
        run(A, 1.0, failure="timeout"),
        run(A, max_run_s, OTHER, failure="timeout"),
        run(A, max_run_s, failure="user_model"),
    ):
        assert times([*good, other]) == times(good)
    assert times([*good, run(A, max_run_s, failure="timeout")])[0] > times(good)[0]


def test_a_run_time_that_is_not_finite_is_left_out() -> None:
    good = [run(uid, run_s) for uid in (A, B) for run_s in noisy(10.0, 5)]
    for other in (run(A, math.inf), run(A, math.inf, failure="timeout")):
        assert times([*good, other]) == times(good)


def test_a_run_that_hung_is_left_out_though_boards_of_a_slow_family_take_as_long() -> None:
    slow = [replace(run("rpi3-0001-0001", s), family="rpi3") for s in noisy(400.0, 5)]
    good = [*slow, *(run(A, s) for s in noisy(10.0, 5))]
    assert times([*good, run(A, 600.0, failure="timeout")]) == times(good)


def test_only_results_count_as_what_a_prediction_rests_on() -> None:
    good = [run(A, run_s) for run_s in noisy(10.0, 5)]
    batch = batch_of([*good, run(A, 10.0, failure="timeout")])
    assert run_counts(batch, np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)) == [5.0]


def rates(runs: Sequence[PastRun], job: PendingBenchmark = JOB) -> list[float]:
    """On A, B and C."""
    rows, boards = np.zeros(3, dtype=np.intp), np.arange(3)
    return failure_rates(batch_of(runs, job), rows, boards).tolist()  # type: ignore[no-any-return]


def noisy(seconds: float, count: int, seed: int = 0, spread: float = 0.05) -> list[float]:
    rng = np.random.default_rng(seed)
    return (seconds * np.exp(rng.normal(0.0, spread, count))).tolist()  # type: ignore[no-any-return]


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert all(math.isnan(each) for each in times([]))
    assert all(math.isnan(each) for each in times([run(A, None), run(A, 3.0, failure="timeout")]))
    assert rates([]) == [0.0, 0.0, 0.0]


def test_a_board_with_many_runs_of_a_kind_speaks_for_itself() -> None:
    slow, fast = noisy(40.0, 60), noisy(10.0, 60, seed=1)
    found = times([run(A, s) for s in slow] + [run(B, s) for s in fast])
    assert found[0] == pytest.approx(np.exp(np.mean(np.log(slow))), rel=0.02)
    assert found[1] == pytest.approx(np.exp(np.mean(np.log(fast))), rel=0.02)
    assert found[1] < found[2] < found[0]  # of a board that nothing is known of: between them


def test_a_single_odd_run_moves_little() -> None:
    usual = [run(uid, s) for uid in (A, B) for s in noisy(10.0, 30, seed=2)]
    found = times([*usual, run(C, 30.0)])
    assert 10.0 < found[2] < 30.0
    assert abs(found[2] - 10.0) < abs(times([*usual, *[run(C, 30.0)] * 20])[2] - 10.0)


def test_a_slow_board_is_expected_to_be_slow_on_what_it_never_ran() -> None:
    kinds = [pending(str(k), model_sha256=f"{k:064d}") for k in range(6)]
    past = [
        run(uid, s * factor * (k + 1), kind)
        for k, kind in enumerate(kinds[:5])
        for uid, factor in ((A, 1.0), (B, 1.0), (C, 2.0))
        for s in noisy(10.0, 5, seed=10 * k + len(uid))
    ]
    known = [run(uid, s, kinds[5]) for uid in (A, B) for s in noisy(30.0, 5, seed=3)]
    found = times([*past, *known], kinds[5])
    assert found[2] / found[0] == pytest.approx(2.0, rel=0.25)


def test_time_grows_with_the_number_of_runs_as_far_as_the_past_shows() -> None:
    few, many = pending(nb_inference=10), pending(nb_inference=100)
    past = [run(A, s, few) for s in noisy(10.0, 20)] + [run(A, s, many) for s in noisy(100.0, 20)]
    assert times(past, pending(nb_inference=1000))[0] == pytest.approx(1000.0, rel=0.15)
    flat = [run(A, s, few) for s in noisy(10.0, 20)] + [run(A, s, many) for s in noisy(10.0, 20)]
    assert times(flat, pending(nb_inference=1000))[0] == pytest.approx(10.0, rel=0.15)


def test_what_was_run_with_one_number_of_runs_says_little_of_far_other_numbers() -> None:
    """Such runs may be all set-up: then a thousand times as many take as long."""
    past = [run(A, s, pending(nb_inference=50)) for s in noisy(3.0, 20)]

    def bounds(nb_inference: int) -> tuple[float, float]:
        job = pending(nb_inference=nb_inference)
        return times(past, job, 0.1)[0], times(past, job, 0.9)[0]

    low, high = bounds(50)
    assert 2.0 < low < high < 4.5
    low, high = bounds(50_000)
    assert low < 6.0
    assert high > 3_000.0


def test_quantiles_are_of_the_next_run_and_hold() -> None:
    reported = noisy(10.0, 400, spread=0.3)
    past, later = reported[:200], reported[200:]
    low, high = (times([run(A, s) for s in past], q=q)[0] for q in (0.1, 0.9))
    within = np.mean([low <= s <= high for s in later])
    assert within == pytest.approx(0.8, abs=0.07)


def test_what_is_less_known_has_wider_quantiles() -> None:
    past = [run(A, s) for s in noisy(10.0, 50)] + [run(B, s) for s in noisy(12.0, 50, seed=1)]
    width_of_known, width_of_board, width_of_model = (
        high / low
        for high, low in (
            (times(past, job, 0.9)[column], times(past, job, 0.1)[column])
            for job, column in ((JOB, 0), (JOB, 2), (OTHER, 2))
        )
    )
    assert width_of_known < width_of_board < width_of_model


@pytest.mark.parametrize("quantile", [0.01, 0.5, 0.99])
def test_one_run_is_enough_for_a_number(quantile: float) -> None:
    found = times([run(A, 10.0)], q=quantile)
    assert all(0.0 < each < math.inf for each in found)
    if quantile == 0.5:
        assert found == pytest.approx([10.0] * 3)


def test_who_fails_often_is_expected_to() -> None:
    bad = [run(A, 1.0, failure="board_fault")] * 10
    good = [run(B, 1.0)] * 10 + [run(C, 1.0)] * 10
    found = rates([*bad, *good])
    assert found[0] > 0.5 > 2 * found[1]
    assert rates([*bad, *good], OTHER)[0] > 0.5  # whatever runs there


def test_a_model_that_fails_everywhere_blames_no_board() -> None:
    past = [run(uid, 1.0, failure="out_of_memory") for uid in (A, B, C) for _ in range(8)]
    past += [run(uid, 1.0, OTHER) for uid in (A, B, C) for _ in range(8)]
    assert min(rates(past)) > 0.5
    assert max(rates(past, OTHER)) < 0.3


def test_a_board_that_got_well_is_trusted_again() -> None:
    weeks = 14 * 86400.0
    failed = [run(A, 1.0, age_s=4 * weeks, failure="board_fault")] * 10
    since = [run(A, 1.0)] * 5
    assert (
        rates([*failed, *since])[0]
        < 0.2
        < rates([*since, *[run(A, 1.0, failure="thermal")] * 5])[0]
    )


@pytest.mark.parametrize("category", ["cluster", "network", "preempted", "rejected"])
def test_failures_of_neither_model_nor_board_count_for_nothing(category: str) -> None:
    assert rates([run(A, 1.0, failure=category)] * 9) == [0.0, 0.0, 0.0]


def test_pairs_are_answered_in_their_order_however_many() -> None:
    jobs = [pending(str(k), model_sha256=f"{k:064d}") for k in range(4)]
    past = [run(uid, s, job) for uid in (A, B) for job in jobs[:3] for s in noisy(5.0, 3)]
    batch = batch_of(past, *jobs)
    rows, boards = np.nonzero(np.ones(batch.shape, dtype=bool))
    all_at_once = run_times(batch, rows, boards)
    shuffled = np.random.default_rng(0).permutation(len(rows))
    assert np.array_equal(run_times(batch, rows[shuffled], boards[shuffled]), all_at_once[shuffled])
    one = [run_times(batch, rows[i : i + 1], boards[i : i + 1])[0] for i in range(len(rows))]
    assert np.allclose(one, all_at_once)


def test_a_history_grows_by_a_new_value_and_forgets() -> None:
    first = History([run(A, 1.0, age_s=50.0), run(B, 2.0, age_s=20.0)])
    later = first.extended([run(C, None, OTHER, failure="timeout")])
    assert (len(first), len(later)) == (2, 3)
    assert list(later)[:2] == list(first)
    assert later[2] == run(C, None, OTHER, failure="timeout")
    assert [each.target_uid for each in later.extended([], max_runs=2)] == [B, C]
    since = NOW - timedelta(seconds=30)
    assert [each.target_uid for each in later.extended([], since=since)] == [B, C]
    assert later.extended([]) is later
    assert len(later[1:]) == 2


def test_what_is_derived_of_a_history_is_made_once() -> None:
    calls = []
    history = History([run(A, 1.0)])

    def count(of: History) -> int:
        calls.append(of)
        return len(of)

    assert (history.derived(count), history.derived(count)) == (1, 1)
    assert calls == [history]


def test_of_many_runs_up_to_one_per_cent_waits_for_the_next_fit() -> None:
    few = History(run(A, 1.0) for _ in range(199))
    assert few.settled is few
    history, seen = History(run(A, 1.0) for _ in range(1000)), set()
    for _ in range(40):
        history = history.extended([run(A, 1.0)])
        assert 0 <= len(history) - len(history.settled) < len(history) / 100
        assert len(History(history).settled) == len(history.settled)  # the runs alone decide it
        seen.add(id(history.settled))
    assert len(seen) <= 5


def test_a_full_history_does_not_settle_anew_with_each_run() -> None:
    history = History(run(A, 1.0) for _ in range(1000))
    settled = [history.settled]
    for _ in range(100):
        history = history.extended([run(A, 1.0)], max_runs=1000)
        if history.settled is not settled[-1]:
            settled.append(history.settled)
        assert 1000 <= len(history) <= 1010
    assert len(settled) <= 30


def past_pairs_of(runs: Sequence[PastRun], job: PendingBenchmark = JOB) -> PastPairs:
    return PastPairs(batch_of(runs, job), np.zeros(3, dtype=np.intp), np.arange(3))


def test_loading_is_known_by_board_and_does_not_grow_with_the_number_of_runs() -> None:
    runs = [
        replace(run(uid, 10.0, age_s=age), loading_s=loading_s * (1.0 + 0.01 * age))
        for uid, loading_s in ((A, 2.0), (B, 8.0))
        for age in range(20)
    ]
    found = np.exp(past_pairs_of(runs).loading_parts().location)
    assert found[:2] == pytest.approx([2.2, 8.8], rel=0.1)
    assert found[0] < found[2] < found[1]
    many = np.exp(past_pairs_of(runs, replace(JOB, nb_inference=2000)).loading_parts().location)
    assert many == pytest.approx([4.4] * 3, rel=0.1)  # of both boards


def test_runs_without_a_time_of_loading_say_nothing_of_it() -> None:
    assert np.isnan(past_pairs_of([run(A, 10.0)]).loading_parts().location).all()


def soak_of(job: PendingBenchmark, load_s: float) -> PendingBenchmark:
    return replace(job, variant=with_load(load_s, f"digest{load_s}"))


def test_a_load_lasts_for_its_stated_length_before_any_has_run() -> None:
    runs = [run(A, 8.0 + 0.1 * (age % 5), age_s=age) for age in range(20)]
    low, middle, high = (times(runs, soak_of(JOB, 840.0), q)[0] for q in (0.025, 0.5, 0.975))
    assert 800.0 < low <= middle <= high < 900.0  # to first order
    assert middle == pytest.approx(848.2, rel=0.01)


def test_a_long_load_says_what_a_short_run_takes_and_the_reverse() -> None:
    soaks = [run(A, 1808.0, soak_of(JOB, 1800.0), age_s=age) for age in range(20)]
    assert times(soaks)[0] == pytest.approx(8.0, rel=0.3)
    assert times(soaks, soak_of(JOB, 60.0))[0] == pytest.approx(68.0, rel=0.05)


def test_draws_of_a_load_last_for_its_stated_length_too() -> None:
    runs = [run(A, 8.0, age_s=age) for age in range(20)]
    past = past_pairs_of(runs, soak_of(JOB, 840.0))
    draws, count = PastRunDraws(past), 64
    levels = np.linspace(-2.0, 2.0, count)
    drawn = np.exp(draws.draw(np.zeros(count, dtype=np.intp), "user-1", levels, levels))
    assert np.isfinite(drawn).any()
    assert drawn[np.isfinite(drawn)] == pytest.approx(848.0, rel=0.01)
    alike, offset = draws.of(0, "user-1")
    assert np.exp(alike.log_s + offset) == pytest.approx(848.0, rel=0.01)


def test_the_energy_of_a_load_is_power_times_its_length() -> None:
    runs = [replace(run(A, 8.0 + 0.01 * age, age_s=age), energy_j=40.0) for age in range(20)]
    found = past_pairs_of(runs, soak_of(JOB, 840.0)).energy_parts().quantile(0.5)[0]
    assert found == pytest.approx(848.0 * 5.0, rel=0.05)
    soak = soak_of(JOB, 840.0)
    soaks = [replace(run(A, 848.0, soak, age_s=age), energy_j=4240.0) for age in range(20)]
    only_soaks = past_pairs_of(soaks).energy_parts().quantile(0.5)[0]
    assert math.isnan(only_soaks)  # none of its kind states any


def test_each_number_that_is_not_comparable_raises_the_chance_of_another_one() -> None:
    def chances(bad: int) -> list[float]:
        runs = [replace(run(A, 10.0, age_s=n), comparable=n >= bad) for n in range(10)]
        runs += [replace(run(B, 10.0, age_s=n), comparable=True) for n in range(10)]
        return past_pairs_of(runs).measurement_chances()[0].tolist()  # type: ignore[no-any-return]

    by_count = [chances(bad) for bad in range(11)]
    assert all(more[0] > less[0] for less, more in pairwise(by_count))
    assert all(a > c > b for a, b, c in by_count[1:])  # C never ran: it is judged by its family
    assert np.isnan(past_pairs_of([run(A, 10.0)]).measurement_chances()[0]).all()


def test_failures_are_known_by_cause() -> None:
    fine = [
        run(uid, 10.0, job, age_s=n) for uid in (A, B) for job in (JOB, OTHER) for n in range(9)
    ]
    faults = [run(A, None, OTHER, failure="board_fault") for _ in range(9)]
    errors = [run(B, None, JOB, failure="user_model") for _ in range(9)]
    of_job, of_other = (
        past_pairs_of([*fine, *faults, *errors], job).failure_causes() for job in (JOB, OTHER)
    )
    assert of_job.board[0] > 3 * of_job.board[1]  # A has faults, whatever it runs
    assert of_job.board == pytest.approx(of_other.board)
    assert of_job.model[0] > 3 * of_other.model[0]  # JOB has errors, wherever it runs
    assert of_job.model[:2] == pytest.approx(of_job.model[0])
