"""Predicted energies, policies that weigh them, and what these take in time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import pytest

from edgeyard.errors import ConfigError
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.scorers.frugal import Frugal
from edgeyard.plugins.testing import (
    NOW,
    all_pairs,
    batch_of,
    board,
    past_run,
    pending,
    snapshot_of,
)
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.figures.metrics import Interval
from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.policy import Policy, parse_policy, read_policy
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.prediction.estimates import past_pairs
from edgeyard.simulator.cli.sim_documents import make_report, part_plots
from edgeyard.simulator.cli.sim_plots import save, time_against_energy
from edgeyard.simulator.cli.sim_reports import show_part
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import SimulatedRun
from edgeyard.simulator.scenario import load_scenario
from tests.builders.decision import places

UIDS = ("rpi4b-0001-0001", "rpi4b-0001-0002")


def weighing(weight_s_per_j: float, changes: Mapping[str, str] = MappingProxyType({})) -> Policy:
    text = read_policy("default")
    text = text.replace("energy_weight_s_per_j = 0.0", f"energy_weight_s_per_j = {weight_s_per_j}")
    for old, new in changes.items():
        text = text.replace(old, new)
    return parse_policy(text)


def measured(uid: str, joules: float | None, number: int) -> PastRun:
    return replace(past_run(uid, run_s=60.0), energy_j=joules, seq=number)


def batch_with(runs: list[PastRun]) -> Batch:
    return batch_of([board(uid) for uid in UIDS], [pending()], runs)


def test_the_energy_of_the_next_run_is_predicted_with_an_interval() -> None:
    spread = np.random.default_rng(5).lognormal(0.0, 0.05, 40)
    runs = [
        measured(uid, base * float(factor), number)
        for number, factor in enumerate(spread)
        for uid, base in zip(UIDS, (300.0, 900.0), strict=True)
    ]
    batch = batch_with(runs)
    past = past_pairs(batch, all_pairs(batch))
    low, middle, high = (past.energy_parts().quantile(each) for each in (0.025, 0.5, 0.975))
    assert middle == pytest.approx([300.0, 900.0], rel=0.05)
    assert (low < middle).all()
    assert (middle < high).all()
    held = np.mean([(low[0] < 300.0 * each < high[0]) for each in spread])
    assert held >= 0.9
    answer = Frugal().answer(batch, all_pairs(batch))
    assert answer.scores == pytest.approx(middle, rel=1e-5)
    assert answer.errors is not None
    assert (answer.errors < 0.1 * answer.scores).all()


def test_a_decision_states_predicted_joules_and_weighs_them() -> None:
    """The first board is twice as fast, and takes three times the energy."""
    runs = History(
        replace(measured(uid, joules, number), run_s=run_s)
        for number in range(20)
        for uid, joules, run_s in zip(UIDS, (900.0, 300.0), (10.0, 20.0), strict=True)
    )
    boards = snapshot_of([board(uid) for uid in UIDS])

    def decided(weight_s_per_j: float) -> CycleResult:
        policy = weighing(weight_s_per_j)
        return decide(
            CycleInput(
                snapshot=boards,
                pending=[pending()],
                now=NOW,
                knowledge=Knowledge(runs=runs),
            ),
            replace(policy, explore_share=0.0),
            registry(entry_points=False).resolve(policy),
        )

    fast, frugal = decided(0.0), decided(0.1)
    assert list(places(fast).values()) == [UIDS[0]]
    assert list(places(frugal).values()) == [UIDS[1]]
    first, second = frugal.explanation("b-1").verdicts
    assert first.energy_j == pytest.approx(900.0, rel=0.05)
    assert second.energy_j == pytest.approx(300.0, rel=0.05)
    for each in (first, second):
        assert each.energy_j is not None
        assert each.energy_low_j is not None
        assert each.energy_high_j is not None
        assert 0 < each.energy_low_j <= each.energy_j <= each.energy_high_j
        assert each.cost_parts_s["joules"] == pytest.approx(0.1 * each.energy_j, rel=0.01)


def test_runs_that_state_no_energy_predict_none() -> None:
    batch = batch_with([measured(uid, None, number) for number, uid in enumerate(UIDS * 5)])
    assert np.isnan(past_pairs(batch, all_pairs(batch)).energy_parts().quantile(0.5)).all()
    assert np.isnan(Frugal().answer(batch, all_pairs(batch)).scores).all()


def test_a_weight_of_energy_is_an_option_of_the_policy() -> None:
    assert all(each.name != "frugal" for each in weighing(0.0).scorers)
    policy = weighing(0.25)
    assert policy.energy_weight_s_per_j == 0.25
    assert {each.name: each.weight for each in policy.scorers}["frugal"] == 0.25
    for changes, said in (
        ({'aggregator = "expected_cost"': 'aggregator = "hedge"'}, "must be 0 unless aggregator"),
        ({'name = "least_loaded"': 'name = "frugal"'}, "'frugal' is named twice"),
    ):
        with pytest.raises(ConfigError, match=said):
            weighing(0.25, changes)
    with pytest.raises(ConfigError, match="energy_weight_s_per_j"):
        weighing(-1.0)


def simulated(weight_s_per_j: float, seed: int = 1) -> SimulatedRun:
    policy = replace(weighing(weight_s_per_j), name=f"{weight_s_per_j:g} s/J")
    scenario = msgspec.structs.replace(load_scenario("power_modes"), duration_s=4 * 3600.0)
    plugins = registry(entry_points=False).resolve(policy)
    return simulate_lab(scenario, policy, plugins, seed=seed)


@pytest.mark.slow
def test_energy_is_saved_for_time_in_a_shipped_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [simulated(weight, seed) for weight in (0.0, 1.0) for seed in range(1, 6)]
    (part,) = make_report(runs).parts
    fast, frugal = part.summaries
    assert frugal.figures["energy_j"].high < fast.figures["energy_j"].low
    assert frugal.figures["turnaround_s"].low > fast.figures["turnaround_s"].high
    picture = part_plots(part, several=False)[-1]
    assert picture.title == "Time against energy"
    drawn = save(picture, tmp_path, "", "svg").read_text("utf-8")
    assert "energy of all boards, kWh" in drawn
    assert "no bar" not in drawn
    capsys.readouterr()
    show_part(part)
    shown = capsys.readouterr().out
    kwh = f"{fast.figures['energy_j'].mean / 3.6e6:.3g}"
    (head,) = [line for line in shown.splitlines() if line.startswith("POLICY")]
    titles = re.split(r" {2,}", head)
    assert titles[titles.index("TURNAROUND, s") + 1] == "95 %"
    assert "ENERGY, kWh" in head
    assert kwh in shown


@pytest.mark.slow
def test_few_seeds_are_said_to_be_too_few_where_an_interval_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "80")
    runs = [simulated(weight, seed) for weight in (0.0, 1.0) for seed in (1, 2)]
    (part,) = make_report(runs).parts
    drawn = save(part_plots(part, several=False)[-1], tmp_path, "", "svg").read_text("utf-8")
    assert "no bar: below 5 seeds an interval is not known" in drawn
    show_part(part)
    shown = capsys.readouterr().out
    assert "too few seeds (below 5)" in shown
    (head,) = [line for line in shown.splitlines() if line.startswith("POLICY")]
    assert {"TURNAROUND, s", "ENERGY, kWh"} <= set(re.split(r" {2,}", head)), "to read them by"


def test_a_point_without_an_interval_is_drawn_without_one(tmp_path: Path) -> None:
    unknown = Interval(2e6, math.nan, math.nan)
    plot = time_against_energy({"a": (Interval(10.0, 9.0, 12.0), unknown)}, "lab")
    assert plot.title == "Time against energy · lab"
    assert save(plot, tmp_path, "", "svg").stat().st_size > 1000
