"""The model of Lublin and Feitelson: its distributions, computed again, and its published log."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, gamma, ks_2samp, kstest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import InvalidInput
from edgeyard.simulator.scenario import load_scenario
from edgeyard.training.generators.lublin import (
    LublinOptions,
    RigidJobs,
    draw_gaps,
    draw_run_times,
    draw_sizes,
    half_hour_weights,
    lublin,
    lublin_log,
    rigid_jobs,
    short_run_share,
    time_of_day_cycle,
)
from edgeyard.training.worlds.swf import read_swf
from tests.builders.cli import refusal, run
from tests.traces import trace

UNLIKELY = 1e-6
MANY = 40_000


def random(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def stage_cdf(x: float, processors: int) -> float:
    """P(log2 of a parallel job's size <= x), with the constants as published for 128 processors."""
    low, high = 0.8, math.log2(processors)
    middle = {8: 1.5, 128: 4.5, 256: 5.5}[processors]
    if x <= middle:
        return 0.86 * max(x - low, 0.0) / (middle - low)
    return 0.86 + 0.14 * (min(x, high) - middle) / (high - middle)


def size_probability(size: int, processors: int) -> float:
    """Closed form of the model's probability of a size, for machines of 2^k processors."""
    if size == 1:
        return 0.244

    def between(low: float, high: float) -> float:
        return stage_cdf(high, processors) - stage_cdf(low, processors)

    any_size = between(math.log2(size - 0.5), math.log2(size + 0.5))
    power = math.log2(size)
    of_powers = between(power - 0.5, power + 0.5) if power.is_integer() else 0.0
    return 0.576 * of_powers + (1.0 - 0.244 - 0.576) * any_size


@pytest.mark.parametrize("processors", [8, 128, 256])
def test_sizes_have_the_probabilities_of_the_closed_form(processors: int) -> None:
    expected = [size_probability(size, processors) for size in range(1, processors + 1)]
    assert math.fsum(expected) == pytest.approx(1.0)
    counts = np.bincount(draw_sizes(random(), MANY, processors), minlength=processors + 1)[1:]
    often = np.array(expected) * MANY >= 5  # the rest in one cell, as the test needs
    found = [*counts[often], counts[~often].sum()]
    wanted = [*np.array(expected)[often], np.array(expected)[~often].sum()]
    if not (~often).any():
        found, wanted = found[:-1], wanted[:-1]
    assert chisquare(found, np.array(wanted) * MANY).pvalue > UNLIKELY


@pytest.mark.parametrize(
    ("size", "share"), [(1, 0.7746), (16, 0.6936), (100, 0.24), (145, 0.0), (256, 0.0)]
)
def test_run_times_have_the_quantiles_of_the_mixture(size: int, share: float) -> None:
    """A mixture of gamma(4.2, 0.94) and gamma(312, 0.03) of ln(run time), cut at 12."""
    assert short_run_share(np.array([size])) == pytest.approx([share])

    def mixture(x: NDArray[np.float64]) -> NDArray[np.float64]:
        both = share * gamma.cdf(x, 4.2, scale=0.94) + (1 - share) * gamma.cdf(x, 312, scale=0.03)
        return np.asarray(both, dtype=np.float64)

    run_s = draw_run_times(random(), np.full(MANY, size))
    assert run_s.min() >= 1
    assert run_s.max() <= math.exp(12)
    # a run time of n seconds stands for those from n to n + 1
    cut = mixture(np.array([12.0]))
    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        seconds = float(np.quantile(run_s, quantile))
        expected = mixture(np.log(np.array([math.floor(seconds) + 1.0]))) / cut
        found = float((run_s <= math.floor(seconds)).mean())
        assert found == pytest.approx(float(expected[0]), abs=5 * 0.5 / math.sqrt(MANY))


def test_the_logarithm_of_gaps_is_gamma_distributed() -> None:
    shape, scale = 10.2303 * 1.0225, 0.4871
    cut = gamma.cdf(13.0, shape, scale=scale)
    logs = np.log(draw_gaps(random(), MANY))
    assert logs.max() <= 13.0
    assert kstest(logs, lambda x: gamma.cdf(x, shape, scale=scale) / cut).pvalue > UNLIKELY


def test_arrivals_are_those_of_the_papers_walk_through_the_half_hours() -> None:
    """The paper's procedure, step by step: gaps are points, which half-hours cost by weight."""
    gaps = draw_gaps(random(), 2000)
    weights = half_hour_weights().tolist()
    expected, half_hour, points, begun, now = [], 0, 0.0, 0.0, 0.0
    for gap in gaps.tolist():
        points += gap / 1800
        passed = 0.0
        while points > weights[half_hour]:
            points -= weights[half_hour]
            half_hour = (half_hour + 1) % 48
            passed += 1800
        share = points / weights[half_hour]
        now += passed + 1800 * (share - begun)
        begun = share
        expected.append(now)
    assert time_of_day_cycle(np.cumsum(gaps)).tolist() == pytest.approx(expected, abs=1e-3)


def test_a_day_has_the_papers_cycle() -> None:
    weights = half_hour_weights()
    assert weights.mean() == pytest.approx(1.0)
    assert int(weights.argmin()) == 10  # 5:00 to 5:30
    mode = (8.1737 - 1) * 3.9631  # of the gamma distribution, in half-hours numbered from 1
    assert int(weights.argmax()) + 1 == round(mode)
    submit = rigid_jobs(LublinOptions(name="x", jobs=MANY)).submit_s
    found = np.bincount(submit % 86400 // 1800, minlength=48)
    assert np.corrcoef(found, weights)[0, 1] > 0.97


def statistics(jobs: RigidJobs) -> tuple[float, float, float, float]:
    parallel = jobs.processors[jobs.processors > 1]
    return (
        float((jobs.processors == 1).mean()),
        float((np.log2(parallel) % 1 == 0).mean()),
        float(np.log2(parallel).mean()),
        float(np.log(jobs.run_s).mean()),
    )


def test_jobs_agree_with_the_log_of_the_authors_generator() -> None:
    """Lublin-1, 256 processors, which published comparisons of schedulers use."""
    log = read_swf(trace("lublin_256.swf.gz"))
    made = rigid_jobs(LublinOptions(name="x", processors=256))
    published = RigidJobs(
        submit_s=log.submit.astype(np.int64),
        run_s=log.run.astype(np.int64),
        processors=log.procs,
    )
    assert statistics(made) == pytest.approx(statistics(published), rel=0.02)
    assert ks_2samp(made.run_s, published.run_s).pvalue > 0.001
    assert ks_2samp(made.processors, published.processors).pvalue > 0.001
    edges = np.arange(49) * 1800.0
    passed = np.concatenate([[0.0], np.cumsum(half_hour_weights() * 1800)])
    days, rest = np.divmod(log.submit, 86400.0)
    gaps = np.diff(days * 86400 + np.interp(rest, edges, passed))
    assert ks_2samp(gaps, draw_gaps(random(), len(gaps))).pvalue > 0.001


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_a_stated_load_stretches_the_times_between_jobs(load: float) -> None:
    own = rigid_jobs(LublinOptions(name="x", jobs=5000))
    made = rigid_jobs(LublinOptions(name="x", jobs=5000, load=load))
    assert np.array_equal(made.run_s, own.run_s)
    assert np.array_equal(made.processors, own.processors)
    offered = float((made.run_s * made.processors).sum()) / (128 * float(made.submit_s[-1]))
    assert offered == pytest.approx(load, rel=0.02)  # the last day is not whole


def test_a_machine_without_a_power_of_two_processors_runs_all_jobs() -> None:
    sizes = draw_sizes(random(), MANY, 240)
    assert sizes.max() == 240
    assert sizes.min() == 1


def generate(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["scenarios", "generate", "lublin", *map(str, words)])


def test_the_command_writes_a_log_that_is_read_as_the_scenario(tmp_path: Path) -> None:
    words = ("--jobs", "500", "--processors", "64", "--seed", "3", "--name", "x")
    log_file, scenario_file = tmp_path / "x.swf", tmp_path / "x.toml"
    for out in (log_file, scenario_file):
        made = generate(*words, "--out", out)
        assert made.exit_code == 0, made.output
    options = LublinOptions(name="x", jobs=500, processors=64, seed=3)
    assert log_file.read_text() == lublin_log(options)
    log = read_swf(log_file)
    jobs = rigid_jobs(options)
    assert log.submit.tolist() == jobs.submit_s.tolist()
    assert log.run.tolist() == log.requested.tolist() == jobs.run_s.tolist()
    assert log.procs.tolist() == jobs.processors.tolist()
    assert (len(log), log.max_procs) == (500, 64)
    assert log.notes == (
        "500 jobs without a requested time taken to request the run time",
        "500 jobs without a user counted as one user's",
    )
    imported = tmp_path / "imported.toml"
    runner = CliRunner()
    words_of_import = ["scenarios", "import", str(log_file), "--out", str(imported)]
    assert runner.invoke(app, words_of_import).exit_code == 0
    assert load_scenario(imported).nodes == load_scenario(scenario_file).nodes
    assert load_scenario(scenario_file) == lublin(options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "5"], "--rate: is not for lublin"),
        (["--boards", "5"], "--boards: is not for lublin"),
        (["--load", "0"], "--load: is 0"),
        (["--load", "nan"], "--load: is nan"),
        (["--processors", "4"], "--processors"),
        (["--jobs", "0"], "--jobs"),
        (["--load", "0.00001"], "--jobs: these jobs take"),
        (["--tag", "course"], "--tag: is not for .swf files"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    out = tmp_path / "out.swf"
    refused = generate(*words, "--out", out)
    assert refused.exit_code != 0
    assert message in refused.stderr
    assert not out.exists()


def test_other_kinds_write_no_log(tmp_path: Path) -> None:
    out = tmp_path / "out.swf"
    refused = refusal(run("scenarios", "generate", "paper", "--out", str(out)))
    assert "--out: out.swf is not a file name for a scenario" in refused
    words = ["scenarios", "generate", "paper", "--jobs", "5", "--out", str(tmp_path / "out.toml")]
    assert "--jobs: is not for paper" in refusal(run(*words))


def test_a_machine_that_the_model_does_not_describe_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"--processors: is 7 \(accepted: 8 or more"):
        rigid_jobs(LublinOptions(name="x", processors=7))
