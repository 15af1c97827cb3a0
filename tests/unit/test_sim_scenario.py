"""Scenarios from TOML and JSON, and runs as files."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeyard.devices.benchmark_types import ACCEPTED_TYPES
from edgeyard.errors import InvalidInput
from edgeyard.simulator import runs
from edgeyard.simulator.runs import (
    JobColumns,
    OccupancyColumns,
    RunMeta,
    SeriesColumns,
    SimulatedRun,
    load_run,
    save_run,
)
from edgeyard.simulator.scenario import (
    Scenario,
    load_scenario,
    scenario_from_json,
    scenario_from_toml,
    scenario_hash,
    scenario_to_json,
    scenario_to_toml,
)

LAB = """
name = "small"
world = "boards"
duration_s = 3600

[[lab.boards]]
family = "rpi5"
count = 4
engines = { ort = ["TYPE1"], tflite = ["TYPE1", "TYPE3"] }

[[lab.boards]]
family = "rpi4b"
count = 2
speed = 0.5
faults = { task_rate = 0.1 }

[lab.arrivals]
rate_per_hour = 60

[[lab.arrivals.mix]]
model = "squeezenet"
run_s = 30
family_run_s = { rpi4b = 70 }
deadline_s = 600

[[lab.changes]]
at_s = 1800
what = "boards_leave"
family = "rpi4b"
"""
NODES = """
name = "nodes"
world = "nodes"
duration_s = 50
[[nodes.nodes]]
count = 2
cpu_cores = 48
memory_mb = 393216
[[nodes.jobs]]
job_id = "74426695482326"
submit_s = 0
run_s = 415
cpus = 5
memory_mb = 15360
"""


@pytest.mark.parametrize("text", [LAB, NODES])
def test_a_scenario_is_the_same_after_toml_and_json(text: str) -> None:
    scenario = scenario_from_toml(text)
    assert scenario_from_json(json.dumps(scenario_to_json(scenario))) == scenario
    assert scenario_from_toml(scenario_to_toml(scenario)) == scenario
    assert scenario_hash(scenario_from_toml(scenario_to_toml(scenario))) == scenario_hash(scenario)


def test_any_text_of_a_scenario_is_the_same_after_toml() -> None:
    words = 'a "lab"\n[board]\r\t\x7f\\ of \u2028 many words'
    scenario = scenario_from_json({**tomllib.loads(LAB), "description": words})
    assert scenario_from_toml(scenario_to_toml(scenario)) == scenario


def test_the_hash_is_that_of_what_is_simulated() -> None:
    scenario = scenario_from_toml(LAB)
    renamed = scenario_from_toml(LAB.replace('"small"', '"other"') + "")
    assert scenario_hash(renamed) == scenario_hash(scenario)
    slower = scenario_from_toml(LAB.replace("speed = 0.5", "speed = 0.25"))
    assert scenario_hash(slower) != scenario_hash(scenario)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("count = 4", "count = 0", "lab.boards[0].count: is 0"),
        ("count = 4", 'count = "x"', "lab.boards[0].count: is of type str (accepted: int)"),
        ("count = 4", "count = 4\ncpu_cores = 0", "lab.boards[0].cpu_cores: is 0"),
        ("run_s = 30", "run_s = 30\nmodel_bytes = -1", "lab.arrivals.mix[0].model_bytes: is -1"),
        (
            "[[lab.changes]]",
            '[[lab.loads]]\nhost = "rpi5-host-0001"\ncpu = 0.5\n[[lab.changes]]',
            "lab.loads[0].cpu: goes with memory (accepted: both or neither)",
        ),
        (
            "[[lab.changes]]",
            '[[lab.loads]]\nhost = "h"\ncpu = 1.5\nmemory = 0.5\n[[lab.changes]]',
            "lab.loads[0].cpu: is 1.5 (accepted: a number from 0 to 1)",
        ),
        (
            "[[lab.changes]]",
            '[[lab.past]]\ntarget_uid = "x"\nended_s = 1\nrun_s = 1\n[[lab.changes]]',
            "lab.past[0].target_uid: is 'x'",
        ),
        (
            "[[lab.changes]]",
            '[[lab.past]]\ntarget_uid = "rpi5-0001-0001"\nended_s = 1\n[[lab.changes]]',
            "the field 'run_s' is missing",
        ),
        (
            "[[lab.changes]]",
            '[[lab.past]]\ntarget_uid = "rpi5-0001-0001"\nended_s = 1\nrun_s = 1\n'
            f"nb_inference = {10**30}\n[[lab.changes]]",
            f"lab.past[0].nb_inference: is {10**30}",
        ),
        ("run_s = 30", f"nb_inference = {2**63}", f"lab.arrivals.mix[0].nb_inference: is {2**63}"),
        ("count = 4", "counts = 4", "there is no field 'counts'; did you mean count?"),
        ("rate_per_hour = 60", "rate_per_hour = 0", "lab.arrivals.rate_per_hour: is 0"),
        ("run_s = 30", "run_s = nan", "lab.arrivals.mix[0].run_s: is nan"),
        ("run_s = 30", "run_s = -3", "lab.arrivals.mix[0].run_s: is -3"),
        ("rpi4b = 70", "rpi9 = 70", "there is no family 'rpi9' (accepted: rpi4b, rpi5)"),
        ("task_rate = 0.1", "task_rate = 2", "lab.boards[1].faults.task_rate: is 2"),
        ("duration_s = 3600", "duration_s = inf", "duration_s: is inf"),
        ("duration_s = 3600", "", "the field 'duration_s' is missing"),
        ('world = "boards"', 'world = "nodes"', "nodes: is missing: the world is 'nodes'"),
        (
            '["TYPE1"], tflite',
            '["TYPE100"], tflite',
            f"lab.boards[0].engines[...][0]: is 'TYPE100' (accepted: {ACCEPTED_TYPES})",
        ),
        (
            "run_s = 30",
            "run_s = 30\nbenchmark_type = 'latency'",
            f"lab.arrivals.mix[0].benchmark_type: is 'latency' (accepted: {ACCEPTED_TYPES})",
        ),
        ("duration_s = 3600", "duration_s = [", "is not valid TOML"),
        ('name = "small"', 'name = "../x"', "name: is '../x'"),
    ],
)
def test_a_wrong_scenario_names_file_key_and_what_is_accepted(
    tmp_path: Path, before: str, after: str, expected: str
) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(LAB.replace(before, after, 1))
    with pytest.raises(InvalidInput) as error:
        load_scenario(file)
    assert expected in str(error.value)
    assert str(file) in str(error.value)


def test_a_scenario_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        load_scenario(tmp_path / "none.toml")


def test_a_scenario_can_be_a_json_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.json"
    file.write_text(json.dumps(scenario_to_json(scenario_from_toml(LAB))))
    assert isinstance(load_scenario(file), Scenario)


def _run() -> SimulatedRun:
    return SimulatedRun(
        meta=RunMeta(
            scenario="small",
            scenario_hash="0" * 64,
            world="boards",
            policy="default",
            seed=3,
            version="0",
            figures={"lost": 1.0},
        ),
        jobs=JobColumns(
            job=np.array(["a", "b"]),
            user=np.array(["u", "u"]),
            submit_s=np.array([0.0, 1.0]),
            start_s=np.array([2.0, np.nan]),
            end_s=np.array([5.0, 9.0]),
            board=np.array([0, runs.NO_BOARD]),
            status=np.array([runs.COMPLETED, runs.EXPIRED]),
            attempts=np.array([1, 0]),
            preemptions=np.array([0, 0]),
            deadline_s=np.array([np.nan, 9.0]),
            procs=np.array([1, 1]),
        ),
        occupancy=OccupancyColumns(
            board=np.array([0]),
            job=np.array([0]),
            from_s=np.array([2.0]),
            to_s=np.array([5.0]),
            how=np.array([runs.ENDED]),
        ),
        series=SeriesColumns(
            time_s=np.array([0.0]),
            pending=np.array([1]),
            running=np.array([0]),
            busy_share=np.array([0.0]),
            overloaded=np.array([0]),
        ),
        boards=("rpi5-0001-0001",),
        families=("rpi5",),
    )


def test_a_run_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    run = _run()
    save_run(run, tmp_path / "run.npz")
    found = load_run(tmp_path / "run.npz")
    assert found.meta == run.meta
    assert (found.boards, found.families) == (run.boards, run.families)
    for part in ("jobs", "occupancy", "series"):
        before, after = getattr(run, part), getattr(found, part)
        for name in before.__slots__:
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_the_schedule_of_a_run_has_its_completed_jobs() -> None:
    schedule = _run().schedule
    assert schedule.wait_s.tolist() == [2.0]
    assert schedule.run_s.tolist() == [3.0]


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="can't be written"):
        save_run(_run(), tmp_path / "missing" / "run.npz")
    broken = replace(_run(), meta=replace(_run().meta, figures={"x": object()}))  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        save_run(broken, tmp_path / "run.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    for content in (b"", b"PK\x03\x04 cut", b"text"):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match="is not a simulated run"):
            load_run(file)
