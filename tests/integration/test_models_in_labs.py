"""Simulated labs under registered models, as the live service uses its active ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.engine.active_models import named_models
from edgeyard.scheduler.engine.registered_models import promote
from edgeyard.scheduler.framework.policy import load_policy, read_policy
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import model_files
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import load_run
from edgeyard.simulator.scenario import Scenario, scenario_to_toml
from tests.builders.history import benchmark, outcome, write_export
from tests.builders.labs import lab_scenario
from tests.builders.registered import active_run_times, add_candidate


def lab(busy: str, idle: str) -> Scenario:
    """One benchmark at a time, and two equal boards on hosts of different loads."""
    uids = ["rpi5-0001-0001", "rpi5-0002-0001"]
    return lab_scenario(
        boards=[{"family": "rpi5", "count": 2, "uids": uids, "hosts": ["h1", "h2"]}],
        jobs=[{"submit_s": 200.0 * row, "run_s": 60.0, "model": "m"} for row in range(5)],
        loads=[
            {"host": busy, "cpu": 0.9, "memory": 0.5},
            {"host": idle, "cpu": 0.1, "memory": 0.5},
        ],
        past=[{"target_uid": uid, "ended_s": 60.0, "run_s": 60.0, "model": "m"} for uid in uids],
    )


def boards_of(scenario: Scenario, *models: ActiveModel) -> set[str]:
    policy = load_policy("learned")
    weighted = [each for each in policy.scorers if each.name == "run_time_model"]
    policy = replace(policy, scorers=tuple(weighted))
    plugins = registry(entry_points=False).resolve(policy)
    run = simulate_lab(scenario, policy, plugins, models=models)
    return {run.boards[board] for board in run.jobs.board.tolist()}


def test_a_model_that_knows_loads_chooses_the_board_of_the_idle_host() -> None:
    model = active_run_times(by_load=2.0)
    assert boards_of(lab(busy="h1", idle="h2"), model) == {"rpi5-0002-0001"}
    assert boards_of(lab(busy="h2", idle="h1"), model) == {"rpi5-0001-0001"}
    opposite = active_run_times(by_load=-2.0)
    assert boards_of(lab(busy="h1", idle="h2"), opposite) == {"rpi5-0001-0001"}


@pytest.fixture(name="data")
def a_server_with_a_model(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    store = SqlStore(f"sqlite:///{folder}/edgeyard.db")
    add_candidate(store, by_load=3.0)
    store.close()
    return folder


def test_models_are_taken_from_the_registry_by_name_or_because_they_are_active(data: Path) -> None:
    store = SqlStore(f"sqlite:///{data}/edgeyard.db")
    try:
        (found,) = named_models(store, ["failure/1"])
        assert (found.kind, found.version, found.problem) == (ModelKind.FAILURE, 1, "")
        with pytest.raises(InvalidInput, match=r"no model is active \(accepted: failure/1, active"):
            named_models(store, ["active"])
        with pytest.raises(InvalidInput, match="--model: there is no model 'run_time/7'"):
            named_models(store, ["run_time/7"])
        with pytest.raises(InvalidInput, match="names two models of failure"):
            named_models(store, ["failure/1", "failure/1"])
        for _ in ("shadow", "active"):
            with store.write() as uow:
                at = uow.models.get(ModelKind.FAILURE, 1).state_at
                promote(uow, ModelKind.FAILURE, 1, at, by_user_id="", force=True)
        assert named_models(store, ["active"]) == (found,)
    finally:
        store.close()


def test_a_model_whose_file_was_replaced_is_refused(data: Path) -> None:
    store = SqlStore(f"sqlite:///{data}/edgeyard.db")
    try:
        with store.write() as uow:
            model = uow.models.get(ModelKind.FAILURE, 1)
            uow.models.save(
                replace(model, manifest=model.manifest.replace("host_cpu", "no_column"))
            )
        with pytest.raises(ConfigError, match="failure/1"):
            named_models(store, ["failure/1"])
    finally:
        store.close()


def test_the_refusal_of_a_replaced_file_names_the_model_once(data: Path) -> None:
    store = SqlStore(f"sqlite:///{data}/edgeyard.db")
    try:
        with store.write() as uow:
            uow.tx.run(model_files.update().values(data=b"another file"))
        with pytest.raises(ConfigError, match="its file has SHA-256") as refused:
            named_models(store, ["failure/1"])
    finally:
        store.close()
    assert str(refused.value).count("failure/1") == 1


def test_sim_run_uses_the_named_model(data: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "lab.toml", tmp_path / "out"
    file.write_text(scenario_to_toml(lab(busy="h1", idle="h2")))
    text = read_policy("learned").replace('name = "learned"', 'name = "by_failures"')
    head, *scorers = text.split("[[scorers]]")
    rest = scorers[-1].partition("[priority]")
    policy = tmp_path / "by_failures.toml"
    policy.write_text(
        f'{head}[[scorers]]\nname = "failure_model"\nweight = 1.0\n\n[priority]{rest[2]}'
    )
    words = ["sim", "run", str(file), "--policy", str(policy), "--data-dir", str(data)]
    found = CliRunner().invoke(app, [*words, "--model", "failure/1", "--out", str(out)])
    assert found.exit_code == 0, found.output
    (written,) = out.iterdir()
    run = load_run(written)
    assert {run.boards[board] for board in run.jobs.board.tolist()} == {"rpi5-0002-0001"}


def test_a_model_that_no_policy_uses_is_refused(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(scenario_to_toml(lab(busy="h1", idle="h2")))
    words = ["sim", "run", str(file), "--data-dir", str(data), "--model", "failure/1"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1
    assert "--model: has no effect: no scorer of default uses failure/1" in " ".join(
        found.output.split()
    )
    found = CliRunner().invoke(app, [*words, "--policy", "default", "--policy", "learned"])
    assert found.exit_code == 0, found.output


def test_exported_days_are_decided_with_a_model_of_the_server(data: Path, tmp_path: Path) -> None:
    folder = write_export(
        tmp_path / "export", [benchmark("b0", 0.0)], [outcome("b0", 1000.0, 1300.0)]
    )
    words = ["sim", "from-history", "--export", str(folder), "--data-dir", str(data)]
    learned = ["--policy", "learned", "--model", "failure/1", "--json"]
    found = CliRunner().invoke(app, [*words, *learned])
    assert found.exit_code == 0, found.output
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 1
    assert "--export: can't be combined with" in found.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "failure/1", "--jobs", "2"], "--model: is given for several runs at a time"),
        (["--model", "failure/2"], "--model: there is no model 'failure/2' (accepted: failure/1"),
        ([], "--data-dir: names a server without --model"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    data: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(scenario_to_toml(lab(busy="h1", idle="h2")))
    arguments = ["sim", "run", str(file), "--data-dir", str(data), *words]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 1
    assert message in " ".join(found.output.split())
