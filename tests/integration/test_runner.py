"""The runner as a process: environment and local/ in, uploads out."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from edgeyard.devices.runner import launches, pyz
from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.spec import read_spec
from tests.builders.runner import (
    LIGHT,
    TOKEN,
    Task,
    UploadServer,
    bomb_model,
    linear_model,
    make_task,
    model_of,
    nan_model,
    upload_server,
)

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/result.schema.json").read_text("utf-8")
)
ENGINES = Path(__file__).parents[1] / "data/attacking_engine"
SQUEEZENET = LIGHT / "light_squeezenet.onnx"
WEB = {
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx",
    "sqlalchemy",
    "pydantic",
    "jinja2",
    "rich",
    "typer",
}


@pytest.fixture
def server() -> Iterator[UploadServer]:
    with upload_server() as running:
        yield running


def report_of(server: UploadServer, status: str = "ok") -> dict[str, Any]:
    """The uploaded report, after it was checked against its schema."""
    report = server.report
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert report["status"] == status, report["failure"]
    assert server.order[-1] == "report.json"
    return report


def failure_of(task: Task, **changes: str) -> dict[str, str]:
    """What the report of a failing run says."""
    code, output = task.run(**changes)
    assert code == 3, output
    assert TOKEN not in output
    failure: dict[str, str] = report_of(task.server, "failed")["failure"]
    return failure


def eventually(holds: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    return [
        int(one)
        for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if alive(int(one))
    ]


def test_latencies_of_a_real_network_are_measured_and_uploaded(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=25)
    task.complete()
    report = report_of(server)
    latencies = np.load(io.BytesIO(server.files["latencies.npy"]))
    assert len(latencies) >= 25
    first = np.split(latencies, report["launches"])[0]
    assert first.sum() >= 125, "its share of half a second, however many runs that takes"
    assert (report["inner_loops"], report["nb_inference"]) == (1, len(latencies))
    reported = report["inference_latency"]
    assert reported["p50"] == pytest.approx(np.median(latencies))
    assert reported["p99"] == pytest.approx(np.percentile(latencies, 99))
    assert reported["min"] == latencies.min()
    assert reported["p50_ci95"][0] <= reported["p50"] <= reported["p50_ci95"][1]
    assert report["runs_per_s"] == pytest.approx(1e3 * len(latencies) / latencies.sum())
    assert report["rows_per_s"] == report["runs_per_s"]
    assert report["model"]["sha256"] == task.spec["model"]["sha256"]
    assert report["engine_facts"]["threads"] == 1
    assert report["engine_facts"]["execution_provider"] == "CPUExecutionProvider"
    assert report["load"]["cold_ms"] > 0
    assert report["load"]["warm_ms"] > 0
    assert report["ram_peak"] > 10_000_000
    assert report["ram_peak"] == report["ram_baseline"] + report["ram_model"]
    assert report["ram_model"] > SQUEEZENET.stat().st_size / 2
    assert report["target"] == "rpi4b"
    assert report["target_id"] == "rpi4b-0001-0001"
    assert report["warmup"]["runs"] > 0
    assert server.tokens == {f"Bearer {TOKEN}"}
    assert b"TYPE1" in server.files["runner.log"]
    assert not (task.local / "results").exists(), "what is safe need not be kept"
    assert float((tmp_path / "progress").read_text()) == 0.0, "the board is idle again"
    assert server.progress[0]["phase"] == "loading"


def test_callers_at_once_are_measured_and_the_result_is_that_of_the_knee(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=25, concurrency=[1, 3])
    task.complete()
    report = report_of(server)
    curve = report["concurrency"]
    assert [each["callers"] for each in curve["levels"]] == [1, 3]
    for each in curve["levels"]:
        assert each["nb_inference"] >= 25
        assert each["runs_per_s_low"] <= each["runs_per_s"] <= each["runs_per_s_high"]
        assert each["p50_low_ms"] <= each["p50_ms"] <= each["p50_high_ms"] <= each["p99_ms"] * 2
    chosen = next(each for each in curve["levels"] if each["callers"] == curve["callers"])
    latencies = np.load(io.BytesIO(server.files["latencies.npy"]))
    assert len(latencies) == chosen["nb_inference"] == report["nb_inference"]
    assert report["primary_metric"] == "runs_per_s"
    assert report["runs_per_s"] == chosen["runs_per_s"]
    ends = [chosen["runs_per_s_low"], chosen["runs_per_s_high"]]
    assert report["runs_per_s_ci95"] == ends
    # Little's law, of all that was counted
    rate = chosen["nb_inference"] / chosen["duration_s"]
    assert rate * latencies.mean() / 1e3 == pytest.approx(chosen["callers"], rel=0.3)
    codes = [each["code"] for each in report["verdict"]["reasons"]]
    assert ("callers_exceed_cores" in codes) == (curve["cores"] < 3)


def test_numbers_of_callers_that_can_not_be_are_the_users_input(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, concurrency=[4, 2])
    failure = failure_of(task)
    assert failure["category"] == "user_input"
    assert "concurrency: has a number twice, or numbers that do not rise" in failure["sentence"]


@pytest.mark.parametrize("own_inputs", [False, True])
def test_a_board_with_a_duty_cycle_idles_and_the_report_names_it(
    server: UploadServer, tmp_path: Path, own_inputs: bool
) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.ones((1, 3, 224, 224), np.float32))
    task = make_task(
        tmp_path,
        server,
        SQUEEZENET,
        board={"duty_cycle": 0.25},
        datasets={"inputs.npz": inputs} if own_inputs else None,
        keep_outputs=own_inputs,
        nb_inference=4,
    )
    task.complete()
    report = report_of(server)
    assert report["board"]["duty_cycle"] == 0.25
    # A busy machine makes this share smaller; what is besides the inferences, larger.
    conditions = report["conditions"]
    assert conditions["own_cpu_s"] < 0.6 * conditions["wall_s"]


def test_a_model_is_launched_several_times_and_each_launch_counts_alike(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    task.complete()
    report = report_of(server)
    latencies = np.load(io.BytesIO(server.files["latencies.npy"]))
    assert report["launches"] == 4
    medians = [float(np.median(one)) for one in np.split(latencies, 4)]
    low, high = report["inference_latency"]["p50_ci95"]
    # Student's quantile for four launches is over 3: their spread is in the interval
    assert high - low >= np.std(medians)
    phases = [each["phase"] for each in server.progress]
    if "measuring" in phases:
        assert "loading" not in phases[phases.index("measuring") :]
    assert set(server.files) == {"latencies.npy", "report.json", "runner.log"}


def test_a_model_of_microseconds_is_measured_in_loops_for_long_enough(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)), nb_inference=20)
    code, output = task.run()
    assert code == 0, output
    report = report_of(server)
    latencies = np.load(io.BytesIO(server.files["latencies.npy"]))
    loops = report["inner_loops"]
    assert loops > 1
    assert report["nb_inference"] == loops * len(latencies)
    assert latencies.sum() * loops >= 500
    # one number covers a tenth of a millisecond, and is the mean of its inferences
    assert 0.05 < np.median(latencies) * loops < 1.0
    assert report["inference_latency"]["p50"] == pytest.approx(np.median(latencies))
    assert report["runs_per_s"] == pytest.approx(1e3 / latencies.mean())
    reasons = {each["code"] for each in report["verdict"]["reasons"]}
    assert "clock_resolution" not in reasons


def test_peak_memory_shows_what_the_model_itself_needs(
    server: UploadServer, tmp_path: Path
) -> None:
    found = {}
    for name, model in (("small", linear_model(np.eye(4))), ("large", bomb_model(64 * 2**20))):
        task = make_task(tmp_path / name, server, model, nb_inference=6)
        task.complete()
        found[name] = report_of(server)["ram_model"]
    assert found["small"] < 24 * 2**20, "Python and the engine are no part of the model"
    assert 256 * 2**20 < found["large"] < 600 * 2**20, "its output alone has 256 MiB"


def test_the_numbers_of_a_long_measurement_are_no_memory_of_the_model(
    server: UploadServer, tmp_path: Path
) -> None:
    model = linear_model(np.eye(4))
    task = make_task(tmp_path, server, model, nb_inference=300_000, concurrency=[2])
    task.complete()
    report = report_of(server)
    assert report["nb_inference"] >= 100_000  # those of the first and last callers do not count
    assert report["ram_model"] < 48 * 2**20  # it was over 90 MiB


def test_a_host_that_sets_only_the_eleven_variables_is_served(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    task.legacy = True
    task.complete(EDGEYARD_BOARD="", NB_INFERENCE="12")
    report = report_of(server)
    assert report["nb_inference"] >= 12
    assert report["job_id"] == "benchmark-rpi4b-ort-20250813091714-abc"
    assert server.tokens == {None}


def test_a_precision_that_the_time_does_not_allow_keeps_what_was_measured(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, precision=0.0001, user_time_s=6)
    code, output = task.run()
    assert code == 0, output
    report = report_of(server)
    assert report["precision"]["reached"] is False
    assert report["inference_latency"]["p50_ci95"]
    reasons = {one["code"]: one["sentence"] for one in report["verdict"]["reasons"]}
    assert "The time limit of 6 s (user_time) was used up" in reasons["precision_not_reached"]
    messages = [each["message"] for each in server.progress if each["phase"] == "measuring"]
    assert messages[-1].startswith("p50 ")
    assert "±0.01% asked for; " in messages[-1]
    assert " of at most 60 launches, time limit of 6 s (user_time)" in messages[-1]


def test_a_precision_that_the_most_launches_do_not_reach_says_so(
    server: UploadServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has set a time, and none was up."""
    monkeypatch.setattr(launches, "MAX_LAUNCHES", 3)
    task = make_task(tmp_path, server, linear_model(np.eye(4)), precision=0.0001)
    (tmp_path / "local/spec.json").write_text(json.dumps(task.spec))
    spec = read_spec({"NOMAD_TASK_DIR": str(tmp_path / "local")})
    spec.results_dir.mkdir()
    notes: list[str] = []
    _, found = launches.measure_in_launches(
        spec,
        BoardFacts(),
        {},
        lambda percent, phase: None,
        note=notes.append,
        left_s=60.0,
        max_warmup_s=5.0,
        confined=False,
    )
    assert found.launches == 3
    reasons = {one.code: one.sentence for one in found.verdict.reasons}
    reason = reasons["precision_not_reached"]
    assert reason.startswith("The maximum of 3 launches was reached after ")
    assert "time" not in reason
    assert [each.split("; ")[1].split(",")[0] for each in notes] == [
        f"{count} of at most 3 launches" for count in range(3)
    ]


SLOW_ENGINE = """
import time
import numpy as np
from edgeyard.devices.runner.engine import TensorSpec

class Session:
    inputs = outputs = (TensorSpec("x", (1,), "float32"),)
    facts = {"version": "1", "execution_provider": "none", "threads": 1}

    def run(self, feeds):
        time.sleep(0.01)
        return [np.ones(1, np.float32)]

class SlowEngine:
    name = "slow"

    def load(self, model, *, threads, parameters):
        time.sleep(5.1)
        return Session()
"""


@pytest.mark.slow
def test_a_measurement_in_one_launch_shows_what_it_knows_and_how_far_it_is(
    server: UploadServer, tmp_path: Path
) -> None:
    """A model that loads for more than 5 s is launched once, and all progress is its own."""
    task = make_task(tmp_path, server, linear_model(np.eye(4)), precision=0.0001, user_time_s=11)
    site = tmp_path / "site"
    install_engine(site, "slow_engine", SLOW_ENGINE, "slow = slow_engine:SlowEngine")
    task.spec["engine"] = "slow"
    task.complete(PYTHONPATH=str(site))
    measuring = [each for each in server.progress if each["phase"] == "measuring"]
    assert max(each["progress"] for each in measuring) > 30
    last = str(measuring[-1]["message"])
    assert last.startswith("p50 ±")
    assert last.endswith(", ±0.01% asked for; time limit of 11 s (user_time) at most")


def install_engine(site: Path, module: str, source: str, entry_point: str) -> None:
    """Make an engine of its own importable from a folder."""
    site.mkdir()
    (site / f"{module}.py").write_text(source)
    about = site / f"{module}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[edgeyard.engines]\n{entry_point}\n")


def test_a_precision_is_measured_until_it_is_reached(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(64)), precision=0.2)
    task.complete()
    reported = report_of(server)["precision"]
    assert reported["asked"] == 0.2
    assert reported["reached"] is True
    assert reported["half_width"] <= 0.2


def test_accuracy_on_arrays(server: UploadServer, tmp_path: Path) -> None:
    # identity weights: the largest input is the answer; 3 of 40 labels are made wrong
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 6, 40)
    x = rng.random((40, 6)).astype(np.float32) * 0.5
    x[np.arange(40), labels] = 1.0
    wrong = labels.copy()
    wrong[:3] = (wrong[:3] + 1) % 6
    np.savez(tmp_path / "data.npz", x=x, y=wrong)
    task = make_task(
        tmp_path,
        server,
        linear_model(np.eye(6)),
        datasets={"data.npz": tmp_path / "data.npz"},
        benchmark_type="TYPE2",
    )
    task.complete()
    report = report_of(server)
    assert report["accuracy"]["top1"] == pytest.approx(37 / 40)
    assert report["accuracy"]["rows"] == 40
    low, high = report["accuracy"]["top1_ci95"]
    assert low < 37 / 40 < high
    predictions = np.load(io.BytesIO(server.files["predictions.npz"]))
    assert (predictions["predicted"][:, 0] == labels).all()
    assert (predictions["y"] == wrong).all()
    assert report["nb_inference"] == 40


def test_accuracy_on_several_files_counts_the_rows_of_all(
    server: UploadServer, tmp_path: Path
) -> None:
    labels = np.arange(40) % 6
    x = np.eye(6, dtype=np.float32)[labels]
    wrong = labels.copy()
    wrong[-4:] = (wrong[-4:] + 1) % 6
    parts = {"a.npz": slice(0, 7), "b.npz": slice(7, 33), "c.npz": slice(33, 40)}
    for name, rows in parts.items():
        np.savez(tmp_path / name, x=x[rows], y=wrong[rows])
    task = make_task(
        tmp_path,
        server,
        linear_model(np.eye(6)),
        datasets={name: tmp_path / name for name in parts},
        benchmark_type="TYPE2",
        parameters={"batch_size": 5},
    )
    task.complete()
    assert report_of(server)["accuracy"]["rows"] == 40
    assert report_of(server)["accuracy"]["top1"] == pytest.approx(36 / 40)
    predictions = np.load(io.BytesIO(server.files["predictions.npz"]))
    assert (predictions["predicted"][:, 0] == labels).all()
    assert (predictions["y"] == wrong).all()


@pytest.mark.parametrize(
    ("red", "blue", "labels"), [("red", "blue", {"red": 0, "blue": 2}), ("0", "2", None)]
)
def test_accuracy_on_a_folder_of_images(
    server: UploadServer, tmp_path: Path, red: str, blue: str, labels: object
) -> None:
    from PIL import Image

    # red and blue pictures; the model adds up each channel, class 0 = red, 1 = green, 2 = blue
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for name, colour in ((red, (255, 0, 0)), (blue, (0, 0, 255))):
            for number in range(4):
                file = io.BytesIO()
                Image.new("RGB", (20 + number, 17), colour).save(file, "PNG")
                archive.writestr(f"set/{name}/{number}.png", file.getvalue())
        if labels is not None:
            archive.writestr("set/dataset.json", json.dumps({"version": 1, "labels": labels}))
    model = model_of(
        [
            helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["scores"]),
        ],
        {"x": ["n", 3, 8, 8]},
        {"scores": ["n", 3]},
    )
    task = make_task(
        tmp_path,
        server,
        model,
        datasets={"images.zip": tmp_path / "images.zip"},
        benchmark_type="TYPE2",
        parameters={"batch_size": 3},
    )
    task.complete()
    report = report_of(server)
    assert report["accuracy"]["top1"] == 1.0
    assert report["accuracy"]["classes"] == 3
    assert report["nb_inference"] == 3, "8 rows in batches of 3"


def training_task(
    tmp_path: Path,
    server: UploadServer,
    x: NDArray[Any],
    labels: NDArray[Any],
    *,
    weights: NDArray[Any] | None = None,
    **spec: Any,
) -> Task:
    """A task that trains a linear layer, of the identity by default, on these rows."""
    np.savez(tmp_path / "train.npz", x=x.astype(np.float32), y=labels)
    return make_task(
        tmp_path,
        server,
        linear_model(np.eye(3) if weights is None else weights),
        datasets={"train.npz": tmp_path / "train.npz"},
        benchmark_type="TYPE3",
        **spec,
    )


@pytest.mark.parametrize("given", ["object", "file"])
def test_training_uploads_the_trained_model_and_the_fall_of_the_loss(
    server: UploadServer, tmp_path: Path, given: str
) -> None:
    # three clouds of points that a linear layer can tell apart, and weights that can't yet
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 150)
    x = np.eye(3)[labels] * 4 + rng.normal(0, 0.5, (150, 3))
    config = {"epochs": 5, "batch_size": 10, "learning_rate": 0.1, "validation_split": 0.2}
    task = training_task(
        tmp_path,
        server,
        x,
        labels,
        weights=rng.normal(0, 0.1, (3, 3)),
        odt_config=config if given == "object" else None,
    )
    (task.local / "odt.json").write_text(json.dumps(config))
    (task.local / "odt.json").chmod(0o600)  # as the embedded cluster writes it
    task.complete(ODT_CONFIG_FILENAME="odt.json" if given == "file" else "")
    report = report_of(server)
    reported = report["training"]
    # 120 rows for training in batches of 10, five times over
    assert reported["steps"] == 60
    assert report["nb_inference"] == 60
    assert reported["final_loss"] < reported["first_loss"] / 2
    assert reported["validation_accuracy"][-1] > 0.9
    curve = np.load(io.BytesIO(server.files["training.npz"]))
    assert curve["step_losses"][-1] == pytest.approx(reported["final_loss"])
    trained = onnx.load_from_string(server.files[reported["model_file"]])
    onnx.checker.check_model(trained)
    assert reported["model_file"] in {file["name"] for file in report["files"]}


def test_a_training_that_diverges_says_what_to_change(server: UploadServer, tmp_path: Path) -> None:
    task = training_task(
        tmp_path,
        server,
        np.full((40, 3), 1e30),
        np.arange(40) % 3,
        odt_config={"epochs": 3, "learning_rate": 1e6},
    )
    failure = failure_of(task)
    assert failure["category"] in ("user_input", "user_model")
    assert "learning rate" in failure["sentence"].replace("_", " ")


def test_an_unknown_key_of_a_training_configuration_is_named(
    server: UploadServer, tmp_path: Path
) -> None:
    task = training_task(
        tmp_path, server, np.zeros((4, 3)), np.arange(4) % 3, odt_config={"epoch": 3}
    )
    assert "odt_config/epoch" in failure_of(task)["sentence"]


@pytest.mark.parametrize("engine", ["openvino", "ncnn"])
def test_an_engine_that_does_not_train_is_named(
    server: UploadServer, tmp_path: Path, engine: str
) -> None:
    task = training_task(tmp_path, server, np.zeros((4, 3)), np.arange(4) % 3, engine=engine)
    failure = failure_of(task)
    assert failure["category"] == "engine_unsupported"
    assert failure["sentence"] == f"engine {engine} does not train (TYPE3)"


@pytest.mark.parametrize(
    ("shape", "labels", "words"),
    [
        ((5, 7), [0] * 5, ["[7]", "[4]", "'x'"]),
        ((5, 4), [0, 1, 2, 3, 9], ["class 9", "4 classes"]),
        ((5, 4), [0] * 4, ["5 rows", "4 of 'y'"]),
    ],
)
def test_a_dataset_that_does_not_fit_is_distinguished(
    server: UploadServer,
    tmp_path: Path,
    shape: tuple[int, ...],
    labels: list[int],
    words: list[str],
) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros(shape, np.float32), y=np.array(labels))
    task = make_task(
        tmp_path,
        server,
        linear_model(np.eye(4)),
        datasets={"data.npz": tmp_path / "data.npz"},
        benchmark_type="TYPE2",
    )
    failure = failure_of(task)
    assert failure["category"] == "user_input"
    assert all(word in failure["sentence"] for word in words), failure["sentence"]


@pytest.mark.parametrize(
    ("content", "category", "word"),
    [
        (b"", "user_model", "0 bytes"),
        (b"\x08\x08garbage that is no model", "user_model", "ONNX"),
        (SQUEEZENET.read_bytes()[:9000], "user_model", "ONNX"),
        (nan_model(), "user_model", "NaN"),
    ],
)
def test_a_bad_model_fails_with_its_reason(
    server: UploadServer, tmp_path: Path, content: bytes, category: str, word: str
) -> None:
    failure = failure_of(make_task(tmp_path, server, content))
    assert failure["category"] == category
    assert word in failure["sentence"]


def test_a_model_damaged_in_transfer_is_no_fault_of_user_or_board(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    (task.local / "model.onnx").write_bytes(b"half a mod")
    assert failure_of(task)["category"] == "network"


def test_a_memory_bomb_is_stopped_by_the_boards_limit(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(
        tmp_path,
        server,
        bomb_model(2**31),  # 8 GiB
        board={"ram_bytes": 512 * 1024**2},
    )
    failure = failure_of(task)
    assert failure["category"] == "out_of_memory", failure
    # the same limit is no hindrance to an honest model
    (tmp_path / "honest").mkdir()
    task = make_task(tmp_path / "honest", server, SQUEEZENET, board=task.board)
    task.complete()


def test_a_run_past_its_time_is_stopped(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=900_000, user_time_s=1.5)
    failure = failure_of(task)
    assert failure["category"] == "timeout"
    assert "1.5 s" in failure["sentence"]


def test_an_unknown_engine_and_parameter_are_named(server: UploadServer, tmp_path: Path) -> None:
    failure = failure_of(make_task(tmp_path, server, linear_model(np.eye(4)), engine="abacus"))
    assert failure["category"] == "engine_unsupported"
    assert "'abacus'" in failure["sentence"]
    assert "ort" in failure["sentence"]
    task = make_task(
        tmp_path / "second", server, linear_model(np.eye(4)), parameters={"turbo": True}
    )
    failure = failure_of(task)
    assert failure["category"] == "user_input"
    assert "parameters/turbo" in failure["sentence"]
    assert "threads" in failure["sentence"]


def test_a_bad_description_is_still_reported(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(tmp_path, server, linear_model(np.eye(4)), precision=-1)
    failure = failure_of(task)
    assert failure["category"] == "user_input"
    assert "precision" in failure["sentence"]


def test_uploads_are_tried_again_until_they_are_safe(server: UploadServer, tmp_path: Path) -> None:
    # the first call of each file meets a failing server, the second a cut connection
    server.answer = lambda name, nth: {1: 500, 2: 0}.get(nth)
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    task.complete()
    assert server.calls == {"latencies.npy": 3, "runner.log": 3, "report.json": 3}
    report_of(server)


def test_a_refused_token_ends_the_upload_and_keeps_the_result(
    server: UploadServer, tmp_path: Path
) -> None:
    server.answer = lambda name, nth: 401
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    code, output = task.run()
    assert code == 4, output
    assert server.calls == {"latencies.npy": 1}
    assert (task.local / "results/report.json").exists()
    # the next start in the same folder uploads it and measures nothing
    server.answer = lambda name, nth: None
    ended_at = json.loads((task.local / "results/report.json").read_text())["ended_at"]
    task.complete()
    assert report_of(server)["ended_at"] == ended_at


def test_a_file_that_is_refused_does_not_hold_up_the_report(
    server: UploadServer, tmp_path: Path
) -> None:
    server.answer = lambda name, nth: 413 if name == "latencies.npy" else None
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    task.complete()
    (refused,) = report_of(server)["files_refused"]
    assert refused["name"] == "latencies.npy"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_runner_and_child(
    server: UploadServer, tmp_path: Path, number: signal.Signals
) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=900_000)
    process = task.start()
    child = wait_until_measuring(task, process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 143, output
    assert not alive(child)
    assert server.files == {}, "nobody wants the result of a stopped run"


def test_a_signal_ends_a_long_upload_and_keeps_the_result(
    server: UploadServer, tmp_path: Path
) -> None:
    server.answer = lambda name, nth: 503
    task = make_task(tmp_path, server, linear_model(np.eye(4)))
    process = task.start()
    eventually(lambda: server.calls, "the first upload")
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 143, output
    assert (task.local / "results/report.json").exists()


def test_a_killed_runner_ends_its_child(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=900_000)
    process = task.start()
    child = wait_until_measuring(task, process.pid)
    process.kill()
    process.communicate(timeout=30)
    eventually(lambda: not alive(child), "the child's end")


def test_a_killed_parent_ends_runner_and_child(server: UploadServer, tmp_path: Path) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=900_000)
    # the runner is started from a thread that ends at once: only the process counts
    parent = task.start(
        sys.executable,
        "-c",
        "import subprocess, sys, threading, time\n"
        "run = lambda: print(subprocess.Popen([sys.executable, '-m', 'edgeyard.devices.runner'],"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join()\n"
        "time.sleep(600)\n",
    )
    assert parent.stdout is not None
    runner = int(parent.stdout.readline())
    child = wait_until_measuring(task, runner)
    parent.kill()
    parent.communicate(timeout=30)
    eventually(lambda: not alive(runner) and not alive(child), "the end of both")


def wait_until_measuring(task: Task, runner: int) -> int:
    """Wait for the timed runs; the measuring child's process id."""
    progress = task.folder / "progress"
    eventually(
        lambda: progress.exists() and float(progress.read_text() or 0) >= 15.0, "measuring", 60.0
    )
    (child,) = children_of(runner)
    return child


def test_a_busy_neighbour_makes_the_result_suspect(server: UploadServer, tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    hog = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert hog.stdout is not None
        hog.stdout.readline()
        task = make_task(
            tmp_path, server, SQUEEZENET, nb_inference=60, board={"cpus": [cpu], "threads": 1}
        )
        code, output = task.run()
    finally:
        hog.kill()
        hog.communicate()
    assert code == 0, output
    verdict = report_of(server)["verdict"]
    assert verdict["verdict"] in ("suspect", "invalid"), "invalid where others are busy as well"
    assert "other_load" in {reason["code"] for reason in verdict["reasons"]}


def test_no_web_package_is_loaded_and_the_parent_loads_no_numpy(
    server: UploadServer, tmp_path: Path
) -> None:
    task = make_task(tmp_path, server, SQUEEZENET, nb_inference=5)
    command = (
        "import json, os, sys, edgeyard.devices.runner.__main__ as m\n"
        "code = m.run(os.environ)\n"
        "open('parent.json', 'w').write(json.dumps(sorted(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    # an engine that reports what its process has loaded
    site = tmp_path / "site"
    install_engine(
        site,
        "attacking_engine",
        (ENGINES / "attacking_engine.py").read_text(),
        "attacking = attacking_engine:AttackingEngine",
    )
    task.spec.update(engine="attacking", parameters={"attacks": []})
    task.complete(sys.executable, "-c", command, PYTHONPATH=str(site))
    child = set(report_of(server)["engine_facts"]["modules"])
    parent = {name.split(".")[0] for name in json.loads((tmp_path / "parent.json").read_text())}
    assert not WEB & (parent | child)
    assert "numpy" in child
    assert not {"numpy", "onnxruntime"} & parent


def test_the_runner_as_one_file_runs_without_an_installation(
    server: UploadServer, tmp_path: Path
) -> None:
    first, again = pyz.build(tmp_path / "a.pyz"), pyz.build(tmp_path / "b.pyz")
    assert first.read_bytes() == again.read_bytes()
    # the engine's packages, and nothing of ours, beside the file
    site = tmp_path / "site"
    site.mkdir()
    import numpy
    import onnxruntime

    for package in (numpy, onnxruntime):
        folder = Path(package.__file__ or "").parent
        (site / folder.name).symlink_to(folder)
        libs = folder.with_name(f"{folder.name}.libs")
        if libs.exists():
            (site / libs.name).symlink_to(libs)
    task = make_task(tmp_path / "task", server, SQUEEZENET, nb_inference=10)
    code, output = task.run(
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import runpy, sys; sys.path.append({str(site)!r});"
        f"sys.argv[:] = [{str(first)!r}]; runpy.run_path({str(first)!r}, run_name='__main__')",
    )
    assert code == 0, output
    assert report_of(server)["nb_inference"] >= 10
