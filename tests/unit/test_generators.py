"""Generators: the same options and seed make the same scenario, with the rate that was stated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, poisson
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from edgeyard.simulator.generators.labs import LAB_KINDS, LabOptions, capacity_per_hour
from edgeyard.simulator.lab.boards import Boards
from edgeyard.simulator.lab.jobs import draw_jobs
from edgeyard.simulator.scenario import (
    LabScenario,
    NodeJob,
    Scenario,
    load_scenario,
    scenario_from_toml,
    scenario_hash,
    scenario_to_toml,
)
from edgeyard.training.cli.scenarios import Kind
from edgeyard.training.generators.paper import PAPER_KINDS, PaperOptions
from tests.builders.cli import refusal

UNLIKELY = 1e-9


def generate(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["scenarios", "generate", *map(str, words)])


def a_lab(kind: str, **options: float) -> LabScenario:
    scenario = LAB_KINDS[kind](LabOptions(name="x", **options))  # type: ignore[arg-type]
    assert scenario.lab is not None
    return scenario.lab


def jobs(scenario: Scenario) -> tuple[NodeJob, ...]:
    assert scenario.nodes is not None
    return scenario.nodes.jobs


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Kind))
def test_the_seed_decides_what_is_generated(tmp_path: Path, kind: Kind) -> None:
    rows = ["--rows"] if kind is Kind.PAPER else []
    texts = []
    for number, seed in enumerate((7, 7, 8)):
        out = tmp_path / f"{number}.toml"
        made = generate(kind.value, "--seed", str(seed), "--name", "x", *rows, "--out", out)
        assert made.exit_code == 0, made.output
        texts.append(out.read_text())
    assert texts[0] == texts[1] != texts[2]
    assert "generated" in load_scenario(tmp_path / "0.toml").tags


@given(
    kind=st.sampled_from(sorted(LAB_KINDS)),
    boards=st.integers(1, 500),
    load=st.floats(0.05, 3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_generated_lab_has_its_boards_and_its_load(
    kind: str, boards: int, load: float, seed: int
) -> None:
    options = LabOptions(name="x", boards=boards, load=load, seed=seed)
    scenario = LAB_KINDS[kind](options)
    lab = scenario.lab
    assert lab is not None
    assert lab.arrivals is not None
    assert sum(group.count for group in lab.boards) == boards
    offered = lab.arrivals.rate_per_hour / capacity_per_hour(lab.boards)
    assert offered == pytest.approx(load, rel=1e-4)
    again = scenario_from_toml(scenario_to_toml(scenario))
    assert scenario_hash(again) == scenario_hash(scenario)


def test_labs_change_as_their_kind_says() -> None:
    overload = a_lab("overload", duration_s=9000, load=0.5)
    assert [(each.at_s, each.factor) for each in overload.changes] == [
        (3000, pytest.approx(3.0)),  # 1.5 of what the boards can run
        (6000, 1.0),
    ]
    (joins,) = a_lab("new-family", duration_s=9000, at_s=1000).changes
    assert joins.group is not None
    assert (joins.what, joins.at_s, joins.group.family) == ("boards_join", 1000, "rk3588")
    topology = a_lab("topology", boards=20)
    assert [each.what for each in topology.changes] == ["boards_leave", "boards_join"]
    assert topology.changes[0].count == 6
    assert topology.faults.network_mean_between_s > 0
    processes = {}
    for kind in ("poisson", "bernoulli", "diurnal", "bursts"):
        arrivals = a_lab(kind).arrivals
        assert arrivals is not None
        processes[kind] = arrivals.process
    assert all(kind == process for kind, process in processes.items())


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.6, 0.7, 0.8, 0.9])  # those of the paper
@pytest.mark.parametrize("kind", sorted(PAPER_KINDS))
def test_jobs_of_the_paper_arrive_at_the_stated_rate(kind: str, rate: float) -> None:
    steps = 20_000
    options = PaperOptions(name="x", seed=3, rate=rate, steps=steps, rows=True)
    listed = jobs(PAPER_KINDS[kind](options))
    law = binom(steps - 1, rate) if kind == "paper" else poisson(rate * steps)
    assert law.ppf(UNLIKELY) <= len(listed) <= law.ppf(1 - UNLIKELY)
    assert all(0 <= job.submit_s <= steps for job in listed)
    short = sum(job.run_s <= 3 for job in listed)
    share = binom(len(listed), 0.8)
    assert share.ppf(UNLIKELY) <= short <= share.ppf(1 - UNLIKELY)
    assert {job.run_s for job in listed} == {1, 2, 3, 10, 11, 12, 13, 14, 15}
    assert all(5 <= max(job.cpus, job.memory_mb) <= 10 for job in listed)
    assert all(1 <= min(job.cpus, job.memory_mb) <= 2 for job in listed)
    whole = all(job.submit_s.is_integer() for job in listed)
    assert whole == (kind == "paper")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["poisson", "--rate", "5", "--load", "1"], "--load: can't be combined with --rate"),
        (["poisson", "--rate", "0"], "--rate: is 0"),
        (["poisson", "--rate", "nan"], "--rate: is nan"),
        (["poisson", "--nodes", "3"], "--nodes: is not for poisson"),
        (["poisson", "--at", "3 h"], "--at: is not for poisson"),
        (["new-family", "--at", "2 d"], "--at: is 172800 s"),
        (["poisson", "--duration", "soon"], "--duration: 'soon'"),
        (["paper", "--rate", "1.5"], "--rate: is 1.5"),
        (["paper", "--boards", "3"], "--boards: is not for paper"),
        (["poisson", "--name", "a b"], "name: is 'a b'"),
        (["storm"], "storm"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    out = tmp_path / "out.toml"
    assert message in refusal(generate(*words, "--out", out))
    assert not out.exists()


@pytest.mark.parametrize("kind", ["poisson", "bernoulli", "diurnal"])
def test_what_a_generated_lab_draws_has_the_stated_rate(kind: str) -> None:
    rate, days = 200.0, 5
    options = LabOptions(name="x", seed=5, duration_s=days * 86400.0, rate_per_hour=rate)
    scenario = LAB_KINDS[kind](options)
    assert scenario.lab is not None
    drawn = len(draw_jobs(scenario, scenario.lab, Boards(scenario.lab, 5), 5))
    law = poisson(rate * 24 * days)
    assert law.ppf(UNLIKELY) <= drawn <= law.ppf(1 - UNLIKELY)
