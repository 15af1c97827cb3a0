"""Predictors next to the history: what they learn from, how they are split and judged."""

import numpy as np
import pytest

from benchmarks.examples import Run, examples, sweep_runs, usable
from benchmarks.judge import HISTORY, judge_failures, judge_run_times
from benchmarks.judge_models import SWEEP, folds, judge
from benchmarks.mlperf import FILE, TRACES, chip_of, read_runs
from benchmarks.predictors import (
    COLUMNS,
    MAX_FREEDOM,
    RUN_TIME_COLUMNS,
    Distribution,
    fit_censored,
    fit_failure_network,
    fit_lookup,
    fit_network,
    fit_ratios,
    fit_regression,
    history_distribution,
    training_rows,
)
from edgeyard.scheduler.outcomes.intervals import group_means


def made(number: int, **more: object) -> Run:
    values: dict[str, object] = {
        "group": f"g{number % 3}",
        "board": f"s{number % 6}",
        "family": "emu",
        "model": f"m{number % 2}",
        "engine": "ort",
        "nb_inference": 10,
        "run_s": 1.0 + number,
    }
    return Run(**{**values, **more})  # type: ignore[arg-type]


def test_the_sweep_is_seven_groups_of_equal_systems() -> None:
    runs = sweep_runs(SWEEP)
    assert len({run.board for run in runs}) == 24
    assert len({run.group for run in runs}) == 7
    assert all("1 CPUs, 2 threads" not in run.group for run in runs)


def test_invalid_runs_are_left_out_and_runs_that_a_limit_ended_are_not() -> None:
    found = usable(sweep_runs(SWEEP))
    assert "invalid" not in {run.verdict for run in found}
    assert sum(not run.failure for run in found) == 52
    assert sum(run.failure == "timeout" for run in found) == 142
    assert sum(run.failure == "out_of_memory" for run in found) == 102
    assert len(found) == 52 + 142 + 102


def test_equal_systems_are_never_on_both_sides() -> None:
    runs = usable(sweep_runs(SWEEP))
    held_out = []
    for past, held in folds(runs):
        assert {run.group for run in past}.isdisjoint(run.group for run in held)
        assert len(past) + len(held) == len(runs)
        held_out += held
    assert len(held_out) == len(runs)


def test_the_bound_is_no_input_of_run_times() -> None:
    assert not {name for name in RUN_TIME_COLUMNS if "bound" in name or "user_time" in name}
    assert "host_cpu" not in COLUMNS  # the sweep counts its own processes; hosts measure a load


def test_a_run_is_never_in_the_past_that_it_is_seen_with() -> None:
    """Of a lone model with one run, nothing but broader groups can be known."""
    runs = [made(number) for number in range(12)] + [made(1, model="lone", run_s=4000.0)]
    found = training_rows(runs, seed=0)
    lone = found.workloads == "lone ort"
    known = found.location[lone]
    assert (known[~np.isnan(known)] < np.log(400)).all()


def distributions_of(names: int, location: float) -> Distribution:
    return Distribution(np.full(names, location), np.ones(names), np.full(names, MAX_FREEDOM))


def test_losses_are_the_censored_log_likelihood() -> None:
    distribution = distributions_of(3, 1.0)
    loss = distribution.loss(np.array([1.0, 2.0, 1.0]), np.array([False, False, True]))
    half_log = 0.5 * np.log(2 * np.pi)
    assert loss == pytest.approx([half_log, half_log + 0.5, np.log(2.0)], abs=1e-6)


def test_a_censored_fit_finds_what_cut_values_hide() -> None:
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(4000), rng.standard_normal(4000)], axis=1)
    y = 2.0 + 0.5 * x[:, 1] + 0.7 * rng.standard_normal(4000)
    bound = np.full(4000, 2.0)
    censored = y > bound
    none = np.zeros(2)
    weights, scale = fit_censored(x, np.minimum(y, bound), censored, np.ones(4000), none)
    assert weights == pytest.approx([2.0, 0.5], abs=0.06)
    assert scale == pytest.approx(0.7, abs=0.05)
    kept = ~censored
    dropped, _ = fit_censored(x[kept], y[kept], censored[kept], np.ones(kept.sum()), none)
    assert dropped[0] < 1.6  # long runs that were cut are missing


def test_runs_that_a_limit_ended_make_predictions_longer() -> None:
    """Of one model on one board, half of the runs are cut at 4 s."""
    rng = np.random.default_rng(1)
    seconds = np.exp(np.log(4.0) + 0.5 * rng.standard_normal(80))
    runs = [
        made(0, run_s=min(float(each), 4.0), failure="timeout" if each > 4.0 else "", board="b")
        for each in seconds
    ]
    rows = examples(runs, [], COLUMNS)
    good = rows.only(~rows.censored)
    with_cut, without = fit_lookup(rows)(rows), fit_lookup(good)(rows)
    assert with_cut.location[0] > without.location[0] + 0.2
    assert with_cut.location[0] == pytest.approx(np.log(4.0), abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("fit", [fit_regression, fit_network])
def test_what_corrects_the_history_learns_what_it_does_not_know(fit: object) -> None:
    """Boards with more memory are quicker, which the history cannot know of new boards."""
    rng = np.random.default_rng(2)
    runs = [
        made(
            number,
            group=f"g{number % 24}",
            board=f"b{number % 24}",
            family=f"f{number % 24}",
            ram_bytes=1 << 28 + number % 24 // 4,
            run_s=float(np.exp(5.0 - 0.5 * (number % 24 // 4) + 0.1 * rng.standard_normal())),
        )
        for number in range(240)
    ]
    past = [run for run in runs if int(run.group[1:]) % 4]
    held = [run for run in runs if not int(run.group[1:]) % 4]
    tested = examples(held, past, COLUMNS)
    predictor = fit(training_rows(past, 0))  # type: ignore[operator]
    ours = predictor(tested).loss(tested.log_s, tested.censored).mean()
    history = history_distribution(tested).loss(tested.log_s, tested.censored).mean()
    assert ours < history - 0.3


@pytest.mark.parametrize("fit", [fit_ratios, fit_failure_network])
def test_what_predicts_failures_learns_the_limit(fit: object) -> None:
    runs = [
        made(
            number,
            run_s=4.0,
            user_time_s=float(2 + number % 12),
            failure="timeout" if 2 + number % 12 < 8 else "",
        )
        for number in range(96)
    ]
    rows = examples(runs, runs, COLUMNS)
    chance = fit(rows)(rows)  # type: ignore[operator]
    assert chance[rows.censored].min() > chance[~rows.censored].max()


def test_figures_are_those_of_their_definitions() -> None:
    log_s = np.log([4.0, 8.0, 1.0, 4.0])
    censored = np.array([False, False, False, True])
    groups = np.array(["a", "a", "b", "b"])
    narrow = Distribution(np.full(4, np.log(4.0)), np.full(4, 0.6), np.full(4, MAX_FREEDOM))
    history, other = judge_run_times(
        "new",
        {HISTORY: distributions_of(4, np.log(4.0)), "narrow": narrow},
        log_s,
        censored,
        groups,
    )
    assert (history.rows, other.rows) == (4, 4)
    assert history.figures["error factor"] == pytest.approx(2.0)  # of 1, 2 and 4
    assert history.figures["in the 80 % interval"] == pytest.approx(2 / 3)  # within 1.28 of 0
    assert other.figures["in the 80 % interval"] == pytest.approx(2 / 3)


def test_runs_of_which_somebody_knows_nothing_are_judged_for_nobody() -> None:
    unsure = distributions_of(4, 0.0)
    unsure.location[1:3] = np.nan
    rows = judge_run_times(
        "new",
        {HISTORY: distributions_of(4, 0.0), "unsure": unsure},
        np.zeros(4),
        np.zeros(4, np.bool_),
        np.array(["a", "b", "c", "d"]),
    )
    assert [row.rows for row in rows] == [2, 2]


def test_intervals_are_over_groups_not_over_runs() -> None:
    """A thousand equal runs of two systems are two observations."""
    values = np.repeat([1.0, 3.0], 1000)
    interval = group_means(values, np.repeat(["a", "b"], 1000))
    assert (interval.mean, interval.low, interval.high) == (2.0, 1.0, 3.0)
    spread = group_means(values, np.arange(2000).astype(str))
    assert spread.high - spread.low < 0.2


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(3)
    failed = rng.random(400) < 0.5
    chance = np.clip(0.5 + 0.3 * (failed - 0.5) + 0.2 * rng.standard_normal(400), 0.01, 0.99)
    rows = judge_failures(
        "new",
        {HISTORY: chance, "same": chance, "worse": 1.0 - chance},
        failed,
        np.repeat(np.arange(40), 10).astype(str),
    )
    same, worse = rows[1].difference, rows[2].difference
    assert rows[0].difference is None
    assert same is not None
    assert worse is not None
    assert (same.low, same.mean, same.high) == (0.0, 0.0, 0.0)
    assert worse.low > 0.0
    assert rows[0].figures["AUC"] == pytest.approx(1.0 - rows[2].figures["AUC"])


@pytest.mark.slow
def test_judging_takes_every_case_and_predictor_with_intervals() -> None:
    runs = [made(number, model="m", run_s=1.0 + number % 5) for number in range(24)]
    runs += [made(n, model="m", run_s=2.0, user_time_s=2.0, failure="timeout") for n in range(12)]
    steps: list[str] = []
    run_times, failures = judge(runs, True, steps.append)
    assert [(row.case, row.predictor) for row in run_times] == [
        (case, predictor)
        for case in ("new", "known")
        for predictor in (HISTORY, "lookup model x engine", "regression", "network")
    ]
    assert {row.predictor for row in failures} == {
        HISTORY, "rate of all", "logistic of three ratios", "network",
    }  # fmt: skip
    for row in (*run_times, *failures):
        assert row.loss.low - 1e-9 <= row.loss.mean <= row.loss.high + 1e-9
        assert (row.difference is None) == (row.predictor == HISTORY)
    assert len(steps) == 3


@pytest.mark.parametrize(
    ("processor", "accelerator", "chip"),
    [
        ("Arm Cortex-A72 MP4", "-", "bcm2711"),
        ("BCM2835 Arm Cortex-A72 r0p3", "-", "bcm2711"),
        ("Arm Cortex-A72 MP4", "Coral USB Accelerator", "bcm2711"),
        ("NVIDIA Carmel (ARMv8.2)", "NVIDIA AGX Xavier", "xavier"),
        ("AMD EPYC 7742", "NVIDIA A100-SXM-80GB (1x1g.10gb MIG)", "a100"),
        ("Intel(R) Core(TM) i7-7820HQ CPU @ 2.90GHz", "Hailo8", "hailo8"),
    ],
)
def test_one_chip_is_one_board(processor: str, accelerator: str, chip: str) -> None:
    assert chip_of(processor, accelerator) == chip


def test_the_threads_of_one_machine_are_no_boards_of_their_own() -> None:
    if not (TRACES / FILE).is_file():
        pytest.skip(f"{FILE} is not beside this checkout: it is not part of Edgeyard")
    runs = read_runs(TRACES)
    chips = {run.group for run in runs}
    boards = {run.board for run in runs}
    assert len(chips) < len(boards) / 3
    of_xavier = {run.board for run in runs if run.group == "xavier"}
    assert len(of_xavier) > 10  # power modes, fans, frameworks of one board
