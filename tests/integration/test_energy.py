"""The energy of real runs, on fake sensors that replay a supply."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from edgeyard.benchmark_api.sdk.model_folder import packed
from edgeyard.devices.metrics import known_ends, measured_metrics
from tests.builders.language_models import TINY_LLAMA
from tests.builders.runner import LIGHT, Task, UploadServer, make_task, upload_server
from tests.builders.sensors import HWMON, ORIN_NX, package, replayed, write_tree

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/result.schema.json").read_text("utf-8")
)
SQUEEZENET = LIGHT / "light_squeezenet.onnx"

QUICK = """
import sys
from dataclasses import replace
from pathlib import Path
from edgeyard.devices.runner import energy
from edgeyard.devices.runner.__main__ import main
of = energy.energy_of
def quick(board, root):
    found, why = of(board, Path(sys.argv.pop()))
    if found is not None:
        found.measuring = replace(found.measuring, idle_s=1.3, measure_s=2.0, part_s=0.2)
    return found, why
energy.energy_of = quick
main()
"""
"""The runner with the sensors of another root, and short times."""


@pytest.fixture(scope="module")
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def task_of(folder: Path, server: UploadServer, model: Path = SQUEEZENET, **changes: Any) -> Task:
    """Return a task on a board that is no slice of a machine, with time for a slow machine."""
    task = make_task(folder, server, model, **{"user_time_s": 300.0, **changes})
    task.board["emulated"] = False
    return task


def energy_of_run(task: Task, root: Path) -> dict[str, Any]:
    """Run, and return the report, which has its schema."""
    status, output = task.run(sys.executable, "-c", QUICK, str(root))
    assert status == 0, output
    report = task.server.report
    jsonschema.validate(report, SCHEMA)
    return report


def test_a_run_on_a_jetson_states_its_joules(server: UploadServer, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", ORIN_NX)
    report = energy_of_run(task_of(tmp_path, server), root)
    energy = report["energy"]
    assert energy["void"] is None
    assert (energy["sensor"], energy["rail"], energy["scope"]) == ("ina3221", "VDD_IN", "board")
    assert (energy["method"], energy["samples_per_s"]) == ("current times voltage", 10.0)
    assert report["power_consumption"] == pytest.approx(6.0)
    latency = report["inference_latency"]
    each = energy["per_inference"]
    # other work of this machine makes some inferences long, and a part is the mean of its own
    slowest_ms = max(latency["p99"], latency["mean"])
    fastest_ms = min(latency["p50"], latency["mean"])
    assert 0.9 * fastest_ms <= each["value"] / 6.0 * 1e3 <= 1.1 * slowest_ms
    low, high = known_ends(each["value"], each["ci95"])  # unknown where launches differ too much
    assert (low or 0.0) <= each["value"] <= (high or math.inf)
    assert energy["idle"]["value"] == pytest.approx(6.0)
    assert energy["per_inference_above_idle"] is None, "it drew no more than idle"
    assert energy["joules"] == pytest.approx(6.0 * energy["seconds"])
    assert 0 <= energy["cpu_share"] < 0.5, "its own share of a core is stated"


def test_the_energy_of_a_language_model_is_that_of_a_token(
    server: UploadServer, tmp_path: Path
) -> None:
    root = write_tree(tmp_path / "root", ORIN_NX)
    task = task_of(
        *(tmp_path, server, packed(TINY_LLAMA)),
        engine="ort-genai",
        benchmark_type="GENAI",
        parameters={"prompt_length": 4, "output_length": 64},
    )
    report = energy_of_run(task, root)
    token_ms = np.load(io.BytesIO(server.files["generation.npz"]))["token_ms"]
    energy = {each.metric.name: each for each in measured_metrics(report)}["energy_j"]
    assert energy.metric.title == "energy of a token"
    # other work of this machine makes some tokens late, and a part is the mean of its own
    latest_ms = max(np.quantile(token_ms, 0.99), token_ms.mean())
    earliest_ms = min(np.median(token_ms), token_ms.mean())
    assert 0.7 * earliest_ms <= energy.value / 6.0 * 1e3 <= 1.3 * latest_ms
    assert (energy.low or 0.0) <= energy.value <= (energy.high or math.inf)


@pytest.mark.parametrize(
    ("load", "holder", "key"),
    [
        ({"soak_s": 2.1, "soak_window_s": 0.7}, "soak", "windows"),
        ({"concurrency": [1, 2]}, "concurrency", "levels"),
    ],
    ids=["soak", "concurrency"],
)
def test_each_part_of_a_load_has_its_joules(
    server: UploadServer, tmp_path: Path, load: dict[str, Any], holder: str, key: str
) -> None:
    task = task_of(tmp_path, server, **load)
    report = energy_of_run(task, write_tree(tmp_path / "root", ORIN_NX))
    parts = report[holder][key]
    for each in parts:
        took_s = each.get("duration_s") or each["end_s"] - each["begin_s"]
        assert 0 < each["energy_j"] <= 6.0 * took_s / each["nb_inference"] * 1.4
        if holder == "concurrency":
            assert each["energy_low_j"] <= each["energy_j"] <= each["energy_high_j"]
    per_inference = report["energy"]["per_inference"]
    chosen = (
        parts
        if holder == "soak"
        else [each for each in parts if each["callers"] == report[holder]["callers"]]
    )
    values = [each["energy_j"] for each in chosen]
    assert min(values) * 0.999 <= per_inference["value"] <= max(values) * 1.001


@pytest.mark.parametrize(
    "load",
    [
        {"kind": "single-stream", "percentile": 90, "duration_s": 1.0},
        {"kind": "server", "percentile": 90, "duration_s": 1.0, "bound_s": 5.0, "rate": 64.0},
    ],
    ids=["single-stream", "server"],
)
def test_the_energy_of_a_query_contains_the_wait_for_it(
    server: UploadServer, tmp_path: Path, load: dict[str, Any]
) -> None:
    task = task_of(tmp_path, server, load=load)
    report = energy_of_run(task, write_tree(tmp_path / "root", ORIN_NX))
    trial = report["load_test"]["result"]
    each = report["energy"]["per_inference"]
    assert each["value"] == pytest.approx(6.0 * trial["duration_s"] / trial["nb_inference"])
    assert report["power_consumption"] == pytest.approx(6.0)


def test_a_package_that_begins_again_loses_no_joule(server: UploadServer, tmp_path: Path) -> None:
    max_uj = 30_000_000  # at 20 W it begins again every 1.5 s

    def supply(seconds: float) -> Mapping[str, str]:
        return package(int(20e6 * seconds) % max_uj, max_uj)

    with replayed(tmp_path / "root", supply) as root:
        report = energy_of_run(task_of(tmp_path, server), root)
    energy = report["energy"]
    assert energy["void"] is None
    assert energy["method"] == "energy counter"
    assert energy["power_w"] == pytest.approx(20.0, rel=0.1)
    assert report["power_consumption"] is None, "of the processor, not of the board"


def test_a_sensor_that_fails_voids_the_energy_and_not_the_latency(
    server: UploadServer, tmp_path: Path
) -> None:
    def supply(seconds: float) -> Mapping[str, str]:
        count = int(1e9 + 5e6 * seconds - 5e6 * int(seconds / 0.4))  # backwards again and again
        return {f"{HWMON}/hwmon0/name": "ina260", f"{HWMON}/hwmon0/energy1_input": str(count)}

    with replayed(tmp_path / "root", supply) as root:
        report = energy_of_run(task_of(tmp_path, server), root)
    energy = report["energy"]
    assert "ran backwards" in energy["void"]
    assert "not of the model or its user" in energy["void"]
    assert energy["per_inference"] is energy["joules"] is report["power_consumption"] is None
    assert report["inference_latency"]["p50"] > 0


def test_a_board_without_a_known_input_says_why(server: UploadServer, tmp_path: Path) -> None:
    task = task_of(tmp_path, server)
    task.board["energy_rail"] = "VDD_5V"
    report = energy_of_run(task, write_tree(tmp_path / "root", ORIN_NX))
    assert "names the rail 'VDD_5V'" in report["energy"]["void"]
    assert report["power_consumption"] is None


def test_a_meter_of_the_host_is_asked_by_a_program(server: UploadServer, tmp_path: Path) -> None:
    meter = tmp_path / "joules"
    meter.write_text("#!/bin/sh\nawk '{print 7.5 * $1}' /proc/uptime\n")
    meter.chmod(0o755)
    task = task_of(tmp_path, server)
    task.board |= {"energy_command": [str(meter)], "emulated": True}
    report = energy_of_run(task, tmp_path)
    energy = report["energy"]
    assert (energy["sensor"], energy["rail"], energy["scope"]) == ("joules", None, "meter")
    assert energy["power_w"] == pytest.approx(7.5, rel=0.2)
    assert report["power_consumption"] == energy["power_w"]
    assert energy["cpu_share"] > 0, "with the programs that it starts"
