"""`edgeyard replay` and `edgeyard export` on the records of a server that ran."""

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edgeyard.benchmark_api.cli import app
from edgeyard.plugins.builtin import registry
from edgeyard.plugins.testing import NOW, sample_pending, sample_snapshot
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.decide.record import Recorder
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.model.series import SeriesKey
from edgeyard.scheduler.model.series_changes import ChangeStatus, SeriesChange
from edgeyard.scheduler.store import SqlStore
from tests.builders import records as make
from tests.builders.decision import policy
from tests.builders.measured import Measured, store_measured
from tests.builders.outcomes import add_past, disturbed_by_load
from tests.builders.series import change

HOUR = timedelta(minutes=59)

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(name="ran")
def a_server_ran(tmp_path: Path) -> tuple[Path, list[CycleResult]]:
    results, recorder = [], Recorder()
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark("b-1"))
        uow.attempts.add_all([make.an_attempt("b-1")])
        uow.attempts.add_outcome(make.an_outcome("b-1"))
        for seed in range(3):
            given = CycleInput(
                snapshot=sample_snapshot(60, seed), pending=sample_pending(40, seed), now=NOW
            )
            results.append(decide(given, policy(), registry().resolve(policy())))
            uow.cycles.add(recorder.record(given, results[-1]))
    store.close()
    return tmp_path, results


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(each) for each in args])
    return result.exit_code, result.stdout, result.stderr


def test_the_same_policy_decides_the_same(ran: tuple[Path, list[CycleResult]]) -> None:
    folder, results = ran
    code, out, _ = run("replay", "--data-dir", folder)
    placed = sum(len(result.placements) for result in results)
    assert placed
    assert code == 0
    assert out == (
        f"3 cycles, 3 decided the same; benchmarks placed: {placed} recorded, {placed} replayed; "
        "0 with another place in the queue\n"
    )


def test_another_policy_differs_and_names_benchmarks_and_boards(
    ran: tuple[Path, list[CycleResult]], tmp_path: Path
) -> None:
    folder, results = ran
    text = Path("scheduler/framework/policies/default.toml").read_text()
    other = tmp_path / "other.toml"
    # nothing is fresh enough any more: whoever was placed waits
    other.write_text(text.replace("fresh_age_s = 15.0", "fresh_age_s = 0.0"))
    other.write_text(other.read_text().replace("twin_max_age_s = 60.0", "twin_max_age_s = 0.0"))
    code, out, _ = run("replay", "--data-dir", folder, "--policy", other, "--json")
    assert code == 0
    cycles = json.loads(out)["cycles"]
    assert [cycle["seq"] for cycle in cycles] == [1, 2, 3]
    for cycle, result in zip(cycles, results, strict=True):
        then = {each.benchmark_id: each.target_uid for each in result.placements}
        if cycle["placed_now"] == 0:
            content = {each["benchmark_id"]: each["then"] for each in cycle["differences"]}
            assert content == then


def test_where_no_board_differs_what_else_does_is_reported(
    ran: tuple[Path, list[CycleResult]], tmp_path: Path
) -> None:
    folder, _ = ran
    text = Path("scheduler/framework/policies/default.toml").read_text()
    points = text.replace("user_points = 2.0 ", "user_points = 0.0 ")
    assert points != text
    other = tmp_path / "other.toml"
    other.write_text(points)
    code, out, _ = run("replay", "--data-dir", folder, "--policy", other)
    _, output, _ = run("replay", "--data-dir", folder, "--policy", other, "--json")
    assert code == 0
    for cycle in json.loads(output)["cycles"]:
        assert cycle["reprioritised"] > 0
        assert cycle["preemptions"] == 0
        line = f"cycle {cycle['seq']}: the same boards; "
        assert (line in out) == (not cycle["differences"])
        if not cycle["differences"]:
            assert f"{cycle['reprioritised']} priorities" in out
    other.write_text(text.replace('name = "default"', 'name = "other"'))
    _, out, _ = run("replay", "--data-dir", folder, "--policy", other)
    assert len(out.splitlines()) == 1  # nothing differs but the name


@pytest.mark.parametrize("verb", [["replay"], ["export", "out"]])
def test_a_folder_without_a_server_s_data_is_named(verb: list[str], tmp_path: Path) -> None:
    code, _, err = run(*verb, "--data-dir", tmp_path)
    assert code == 2
    assert f"{tmp_path} has no database" in err


def test_an_unknown_policy_is_named(ran: tuple[Path, list[CycleResult]]) -> None:
    code, _, err = run("replay", "--data-dir", ran[0], "--policy", "nonesuch")
    assert code == 1
    assert "--policy: 'nonesuch' is neither a file" in err


def test_names_of_policies_are_those_of_simulations(ran: tuple[Path, list[CycleResult]]) -> None:
    for name in ("sjf", "shortest_first"):  # a baseline, and a queue policy
        code, out, err = run("replay", "--data-dir", ran[0], "--policy", name, "--json")
        assert code == 0, err
        assert json.loads(out)["policy"] == name


def test_parquet_files_join_by_benchmark(
    ran: tuple[Path, list[CycleResult]], tmp_path: Path
) -> None:
    folder, results = ran
    code, out, _ = run("export", tmp_path / "out", "--data-dir", folder, "--json")
    assert code == 0
    rows = {each["table"]: each["rows"] for each in json.loads(out)}
    assert rows.pop("boards") > 0
    assert rows.pop("loads") >= 0
    assert rows.pop("users") >= 0
    assert rows == {"benchmarks": 1, "decisions": 120, "outcomes": 1, "series": 0, "changes": 0}
    decisions = parquet.read_table(tmp_path / "out/decisions.parquet").to_pylist()
    placed = {
        (cycle, each.benchmark_id): each.target_uid
        for cycle, result in enumerate(results, start=1)
        for each in result.placements
    }
    found = {
        (row["cycle"], row["benchmark_id"]): row["target_uid"]
        for row in decisions
        if row["target_uid"]
    }
    assert found == placed
    for row in decisions:
        assert (row["waiting"] is None) == (row["target_uid"] is not None)
        if row["target_uid"]:
            explained = results[row["cycle"] - 1].explanation(row["benchmark_id"])
            board = next(v for v in explained.verdicts if v.target_uid == row["target_uid"])
            assert row["score"] == pytest.approx(board.score)
            assert dict(row["scores"]) == pytest.approx(dict(board.scores))
    [benchmark] = parquet.read_table(tmp_path / "out/benchmarks.parquet").to_pylist()
    assert json.loads(benchmark["description"])["runtime"]
    [outcome] = parquet.read_table(tmp_path / "out/outcomes.parquet").to_pylist()
    assert outcome["benchmark_id"] == benchmark["benchmark_id"] == "b-1"


def test_series_are_exported_with_their_results_and_their_changes(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    done = make.a_benchmark(
        "b-1",
        description=make.a_description(series="detector"),
        status=Status.COMPLETED,
        target_uid="rpi4b-0001-0001",
        ended_at=NOW,
        work="w",
    )
    key = SeriesKey.of(done)
    assert key is not None
    alert_1 = SeriesChange(
        change_id="alert-1",
        key=key,
        begin_id="b-1",
        before_id="b-0",
        metric="p50",
        worse=True,
        size=0.08,
        low=0.07,
        high=0.09,
        found_at=NOW,
        status=ChangeStatus.CONFIRMED,
        check_ids=("check-1",),
        cause="model",
        not_tested=("the firmware",),
    )
    older = NOW - timedelta(days=30)
    with store.write() as uow:
        uow.benchmarks.add(done)
        uow.series.add_change(alert_1)
        uow.series.add_change(
            replace(alert_1, change_id="alert-0", status=ChangeStatus.NOISE, found_at=older)
        )
    store.close()
    assert run("export", tmp_path / "out", "--data-dir", tmp_path)[0] == 0
    [benchmark] = parquet.read_table(tmp_path / "out/benchmarks.parquet").to_pylist()
    [series] = parquet.read_table(tmp_path / "out/series.parquet").to_pylist()
    alert, noise = parquet.read_table(tmp_path / "out/changes.parquet").to_pylist()
    assert (series["lineage"], series["points"], series["first_at"]) == ("detector", 1, NOW)
    assert benchmark["series"] == "detector"
    assert benchmark["series_id"] == series["series_id"] == alert["series_id"]
    assert (alert["status"], alert["is_alert"], alert["cause"]) == ("confirmed", True, "model")
    assert (alert["check_ids"], alert["not_tested"]) == (["check-1"], ["the firmware"])
    assert (noise["status"], noise["is_alert"]) == ("noise", False)
    since = (NOW - timedelta(days=1)).isoformat()
    assert run("export", tmp_path / "new", "--data-dir", tmp_path, "--since", since)[0] == 0
    assert len(parquet.read_table(tmp_path / "new/changes.parquet").to_pylist()) == 1


def test_outcomes_are_exported_with_what_may_explain_them_and_as_they_are_shown(
    tmp_path: Path,
) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")
    done = Measured(benchmark_id="b-1", ended_at=NOW, version="1.2.3")
    store_measured(store, [done])
    canary = SeriesKey(
        lineage="canary/digits",
        user_id=CANARY_USER,
        target_uid=done.board,
        engine="ort",
        benchmark_type="TYPE1",
        work="w",
    )
    with store.write() as uow:
        uow.attempts.add_outcome(
            make.an_outcome("b-1", target_uid=done.board, verdict="comparable", ended_at=NOW)
        )
    assert run("export", tmp_path / "out", "--data-dir", tmp_path)[0] == 0
    [outcome] = parquet.read_table(tmp_path / "out/outcomes.parquet").to_pylist()
    assert outcome["verdict"] == "comparable"
    names = ("engine_version", "runner", "kernel", "firmware", "governor")
    assert [outcome[name] for name in names] == [
        *("1.2.3", "0.9", done.kernel, done.firmware, "performance")
    ]
    assert (outcome["temperature_c"], outcome["other_load"]) == (51.5, 0.02)
    with store.write() as uow:
        uow.series.add_change(
            change(key=canary, found_at=NOW - timedelta(days=1), status=ChangeStatus.CONFIRMED)
        )
    store.close()
    assert run("export", tmp_path / "out", "--data-dir", tmp_path)[0] == 0
    [outcome] = parquet.read_table(tmp_path / "out/outcomes.parquet").to_pylist()
    assert outcome["verdict"] == "suspect"


def test_what_a_shadow_decided_is_exported_as_such(
    ran: tuple[Path, list[CycleResult]], tmp_path: Path
) -> None:
    folder, _ = ran
    store = SqlStore(f"sqlite:///{folder}/edgeyard.db")
    with store.write() as uow:
        shadow = uow.cycles.add(uow.cycles.get(2), shadow_of=2)
    store.close()
    assert run("export", tmp_path / "out", "--data-dir", folder)[0] == 0
    rows = parquet.read_table(tmp_path / "out/decisions.parquet").to_pylist()
    assert {(row["cycle"], row["shadow_of"]) for row in rows} == {
        (1, None),
        (2, None),
        (3, None),
        (shadow, 2),
    }
    assert len([row for row in rows if row["shadow_of"] is None]) == 120


TOKENS: dict[str, Any] = {
    "primary_metric": "tokens_per_s",
    "primary_unit": "1/s",
    "primary_better": "higher",
    "primary_value": 50.0,
}


def test_outcomes_are_exported_with_what_was_known_at_their_decision(tmp_path: Path) -> None:
    known: list[Knowledge] = []
    store = SqlStore(f"sqlite:///{tmp_path}/edgeyard.db")

    def kept(knowledge: Knowledge) -> Knowledge:
        known.append(knowledge)
        return knowledge

    add_past(store, 2, knowledge=kept, quality=disturbed_by_load)
    with store.write() as uow:
        uow.attempts.add_outcome(make.an_outcome("undecided", **TOKENS))
    store.close()
    assert run("export", tmp_path / "out", "--data-dir", tmp_path)[0] == 0
    rows = parquet.read_table(tmp_path / "out/outcomes.parquet").to_pylist()
    [undecided] = [each for each in rows if each["benchmark_id"] == "undecided"]
    assert {name: undecided[name] for name in TOKENS} == TOKENS
    first = [each for each in rows if each["placed_at"] and each["placed_at"] < NOW + HOUR]
    assert len(first) == 8
    for row in first:
        features = dict(row["features"])
        load = known[0].host_loads[f"host-of-{row['target_uid']}"]
        assert features["host_cpu"] == pytest.approx(load.cpu)
        assert features["log_model_bytes"] == pytest.approx(math.log(1_000_000))
        assert "log_history_s" not in features  # no run had ended
        assert row["loading_s"] > 0.0
    assert [each["features"] for each in rows if each["benchmark_id"] == "undecided"] == [None]
