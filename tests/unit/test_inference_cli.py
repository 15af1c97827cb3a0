"""``infer`` and what ``results`` shows of it on the command line, against canned answers."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.sdk import Client
from edgeyard.errors import InvalidInput
from tests.builders.answers import ID, accepted, benchmark, results, row, user_file
from tests.builders.cli import refusal, run
from tests.builders.interrupted import interrupted
from tests.builders.model_files import a_model_file
from tests.builders.runner import linear_model
from tests.fakes.api_server import Answer, FakeServer

ONE = f"/v1/benchmarks/{ID}"
INFER = ["infer", "-m", "net.onnx", "-i", "in.npz", "--target", "rpi4b"]
FETCH = f"edgeyard wait {ID} && edgeyard results {ID} --download ."


def inference_set(name: str, **changes: object) -> dict[str, Any]:
    """What was measured with a set of inputs."""
    return {
        "name": name,
        "rows": 20,
        "batch_size": 8,
        "batches": 3,
        "feeds": {"x": {"shape": [8, 4], "dtype": "float32"}},
        "outputs": {"scores": {"shape": [20, 3], "dtype": "float32"}},
        "left_out": {},
        "first_inference_ms": 9.5,
        "inner_loops": 1,
        "p50_ms": 2.0,
        "p50_low_ms": 1.9,
        "p50_high_ms": 2.1,
        "p90_ms": 2.5,
        "mean_ms": 2.0,
        "runs_per_s": 500.0,
        "rows_per_s": 4000.0,
        "nb_inference": 100,
        "p99_ms": 14.9,
        "verdict": "comparable",
        "reasons": [],
    } | changes


def inferred(server: FakeServer, *sets: dict[str, Any]) -> None:
    """Have a server run own inputs and keep the outputs."""
    outputs = io.BytesIO()
    np.savez(outputs, **{f"{each['name']}/scores": np.ones((20, 3), "f4") for each in sets})  # type: ignore[arg-type]
    answer = results() | {"inference": list(sets)}
    answer["files"][0] |= {"name": "outputs.npz"}
    server.on("POST", "/v1/files", user_file())
    server.on("POST", "/v1/benchmarks", accepted())
    server.on("GET", ONE, benchmark())
    server.on("GET", f"{ONE}/results", answer)
    server.on("GET", f"{ONE}/results/1/outputs.npz", Answer(outputs.getvalue()))


@pytest.fixture
def server(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setenv("EDGEYARD_COLUMNS", "160")
    Path("net.onnx").write_bytes(a_model_file())
    np.savez("in.npz", x=np.zeros((20, 4), np.float32))
    return server


def test_throughput_is_shown_in_runs_and_in_rows(server: FakeServer) -> None:
    answer = results(verdict="suspect")
    answer["summary"] |= {"runs_per_s": 80.0, "rows_per_s": 640.0}
    server.on("GET", f"{ONE}/results", answer)
    assert "throughput 80 runs/s, 640 rows/s suspect" in " ".join(run("results", ID).stdout.split())
    rows = [row("a", runs_per_s=80.0, rows_per_s=640.0), row("b", rows_per_s=None)]
    server.on("GET", "/v1/results", {"items": rows})
    shown = run("results", "a", "b").stdout
    assert "RUNS/s  ROWS/s" in shown
    assert "640" in shown


def test_no_form_of_the_output_lacks_the_latency(server: FakeServer) -> None:
    inferred(server, inference_set("prefill"), inference_set("decode", p50_ms=0.5))
    shown = run(*INFER)
    assert shown.exit_code == 0, shown.stderr
    assert "SET      INPUTS  BATCHES  P50 ms  P90 ms  FIRST ms  RUNS/s  ROWS/s" in shown.stdout
    assert "wrote outputs.npz" in shown.stderr
    lines = list(csv.DictReader(io.StringIO(run(*INFER, "--force", "-o", "csv").stdout)))
    assert [(one["set"], one["output"], one["p50_ms"]) for one in lines] == [
        ("prefill", "scores", "2.0"),
        ("decode", "scores", "0.5"),
    ]
    assert (lines[0]["shape"], lines[0]["inputs"]) == ("20×3", "x 8×4")
    assert (lines[0]["rows_per_s"], lines[0]["verdict"]) == ("4000.0", "comparable")
    found = json.loads(run(*INFER, "--force", "--json").stdout)
    assert (found["benchmark_id"], found["status"]) == (ID, "completed")
    assert [one["p50_ms"] for one in found["sets"]] == [2.0, 0.5]


def test_a_run_on_own_inputs_may_have_a_name(server: FakeServer) -> None:
    inferred(server, inference_set("inputs"))
    assert run(*INFER, "--name", "nightly").exit_code == 0
    [request] = server.of("POST", "/v1/benchmarks")
    assert isinstance(request.json, dict)
    assert request.json["name"] == "nightly"


def test_results_show_all_sets_of_inputs(server: FakeServer) -> None:
    inferred(server, inference_set("prefill"), inference_set("decode", p50_ms=0.5))
    shown = " ".join(run("results", ID).stdout.split())
    assert "numbers of set prefill, the first of 2" in shown
    assert "prefill x 8×4 3 2 2.5 9.5 500 4000 comparable" in shown
    assert "decode x 8×4 3 0.5 2.5" in shown
    lines = list(csv.DictReader(io.StringIO(run("results", ID, "-o", "csv").stdout)))
    assert [(one["set"], one["p50_ms"], one["p99_ms"]) for one in lines] == [
        ("prefill", "2.0", "14.9"),
        ("decode", "0.5", "14.9"),
    ]
    found = json.loads(run("results", ID, "--json").stdout)
    assert [one["name"] for one in found["inference"]] == ["prefill", "decode"]


def test_the_p99_and_the_reasons_of_each_set_are_shown(server: FakeServer) -> None:
    why = {"code": "drift", "sentence": "Latency drifted."}
    of_decode = inference_set("decode", p99_ms=0.75, verdict="suspect", reasons=[why])
    sets = [inference_set("prefill"), of_decode]
    answer = results() | {"inference": sets}
    answer["summary"]["between_runs"] = {
        "share": 0.01, "degrees": 3.0, "source": "default", "numbers": 0, "sentence": "default"
    }  # fmt: skip
    server.on("GET", f"{ONE}/results", answer)
    found = json.loads(run("results", ID, "--json").stdout)
    assert [(one["p99_ms"], one["reasons"]) for one in found["inference"]] == [
        (14.9, []),
        (0.75, [why]),
    ]
    assert "set decode is suspect: Latency drifted." in run("results", ID).stdout
    lines = list(csv.DictReader(io.StringIO(run("results", ID, "-o", "csv").stdout)))
    assert [one["p99_ms"] for one in lines] == ["14.9", "0.75"]
    assert "Latency drifted." in lines[1]["reasons"]
    assert [one["between_runs"] for one in lines] == ["0.01", ""]


def test_infer_shows_why_a_set_is_not_to_be_trusted(server: FakeServer) -> None:
    why = {"code": "drift", "sentence": "Latency drifted."}
    inferred(
        server, inference_set("prefill"), inference_set("decode", verdict="suspect", reasons=[why])
    )
    done = run(*INFER)
    assert "set decode is suspect: Latency drifted." in done.stdout
    assert "set prefill" not in done.stdout
    found = json.loads(run(*INFER, "--force", "--json").stdout)
    assert [one["reasons"] for one in found["sets"]] == [[], [why]]
    lines = list(csv.DictReader(io.StringIO(run(*INFER, "--force", "-o", "csv").stdout)))
    assert "Latency drifted." in lines[1]["reasons"]


@pytest.mark.parametrize(("status", "code"), [("failed", 3), ("expired", 3), ("cancelled", 5)])
def test_infer_exits_as_the_benchmark_ended(server: FakeServer, status: str, code: int) -> None:
    inferred(server, inference_set("inputs"))
    server.on("GET", ONE, benchmark(status=status))
    done = run(*INFER, "--json")
    assert done.exit_code == code
    assert f"edgeyard: {ID} {'was ' if code == 5 else ''}{status}" in done.stderr
    assert json.loads(done.stdout) == {
        "benchmark_id": ID, "status": status, "out": None, "sets": []
    }  # fmt: skip
    assert not Path("outputs.npz").exists()


def test_infer_that_times_out_says_how_to_fetch_the_outputs(server: FakeServer) -> None:
    inferred(server, inference_set("inputs"))
    server.on("GET", ONE, benchmark(status="running"))
    server.on("POST", f"{ONE}/cancel", benchmark(status="cancelled"))
    done = run(*INFER, "--timeout", "0")
    assert done.exit_code == 4
    assert FETCH in done.stderr
    assert server.of("POST", f"{ONE}/cancel") == []
    assert run(*INFER, "--timeout", "0", "--cancel-on-timeout").exit_code == 4
    assert len(server.of("POST", f"{ONE}/cancel")) == 1


@pytest.mark.slow
def test_ctrl_c_says_how_to_fetch_the_outputs(server: FakeServer) -> None:
    inferred(server, inference_set("inputs"))
    server.on("GET", ONE, benchmark(status="running"))
    talk = interrupted(*INFER)
    assert FETCH in talk
    assert f"or end it with: edgeyard cancel {ID}" in talk
    assert server.of("POST", f"{ONE}/cancel") == []


def test_outputs_that_can_not_be_written_are_kept(server: FakeServer) -> None:
    inferred(server, inference_set("inputs"))
    done = refusal(run(*INFER, "--out", "/dev/full", "--force"))
    assert "No space left on device" in done
    assert f"the outputs are kept; fetch them with: {FETCH}" in done


def test_outputs_can_be_thrown_away(server: FakeServer) -> None:
    inferred(server, inference_set("inputs"))
    done = run(*INFER, "--out", "/dev/null", "--force")
    assert done.exit_code == 0, done.stderr


def test_a_folder_for_the_outputs_is_refused_first(server: FakeServer) -> None:
    Path("folder").mkdir()
    refused = refusal(run(*INFER, "--out", "folder", "--force"))
    assert "--out: folder is a folder (accepted: a file, e.g. folder/outputs.npz)" in refused
    assert server.asked == []


@pytest.mark.parametrize(
    "words", [["--nb-inference", "0"], ["--priority", "0"], ["--user-time", ""]]
)
def test_no_option_of_infer_is_dropped(server: FakeServer, words: list[str]) -> None:
    inferred(server, inference_set("inputs"))
    assert f"{words[0]}: " in refusal(run(*INFER, *words))
    assert server.of("POST", "/v1/benchmarks") == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["submit", "--input", "x=1x64", "--input", "x=32x64"], "--input: 'x' is given twice"),
        (
            ["submit", "--parameter", "threads=2", "--parameter", "threads=1"],
            "--parameter: 'threads' is given twice",
        ),
        ([*INFER, "--parameter", "a=1", "--parameter", "a=1"], "--parameter: 'a' is given twice"),
        (
            ["check", "--baseline", "x", "--parameter", "a=1", "--parameter", "a=2"],
            "--parameter: 'a' is given twice",
        ),
        ([*INFER[:3], "-i", "x=x.npy", "-i", "x=x.npy"], "--inputs: 'x' is given twice"),
    ],
)
def test_what_is_given_twice_is_refused(server: FakeServer, words: list[str], problem: str) -> None:
    np.save("x.npy", np.zeros(2))
    assert problem in refusal(run(*words))
    assert server.asked == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("image=pictures.zip", "dataset 'pictures.zip' is not an .npz: it holds no array"),
        ("pictures.zip", "dataset 'pictures.zip' is not an .npz: it holds no array"),
        ("image=notes.txt", "notes.txt is neither an .npy nor an .npz"),
        ("image=empty.npy", "empty.npy is neither an .npy nor an .npz"),
        ("image=cut.npy", "cut.npy: "),
        ("image=folder", "can't read folder: Is a directory"),
        ("image=gone.npy", "can't read gone.npy: No such file or directory"),
        ("image=", "'image=' has no file"),
        ("=x.npy", "'=x.npy' has no name"),
    ],
)
def test_inputs_that_are_no_arrays_are_named(server: FakeServer, given: str, problem: str) -> None:
    with zipfile.ZipFile("pictures.zip", "w") as archive:
        archive.writestr("0/a.png", b"pixels")
    Path("notes.txt").write_text("no array")
    Path("empty.npy").touch()
    np.save("x.npy", np.zeros(2))
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-1])
    Path("folder").mkdir()
    message = refusal(run(*INFER[:3], "-i", given, *INFER[-2:]))
    assert problem in message
    assert "pickle" not in message
    assert server.asked == []


def test_without_an_output_of_numbers_nothing_is_written(server: FakeServer) -> None:
    left_out = {"label": "an array of object"}
    inferred(server, inference_set("inputs", outputs={}, left_out=left_out))
    outputs = io.BytesIO()
    np.savez(outputs)
    server.on("GET", f"{ONE}/results/1/outputs.npz", Answer(outputs.getvalue()))
    result = run(*INFER, "--out", "out.npz")
    assert result.exit_code == 1
    assert "no output that is an array of numbers (label: an array of object)" in refusal(result)
    assert not Path("out.npz").exists()


@pytest.mark.parametrize("name", ["target", "model", "runtime"])
def test_own_inputs_run_on_one_model_and_one_target(server: FakeServer, name: str) -> None:
    given: dict[str, Any] = {"model": "net.onnx", "target": "rpi4b", "runtime": "ort"}
    given[name] = [given[name], "other"]
    with Client(server.url) as client:
        with pytest.raises(InvalidInput, match=f"/{name}: is a list of 2"):
            client.infer(inputs=np.zeros((1, 4)), **given)
        data = {"x": np.zeros((1, 4)), "y": np.zeros(1)}
        with pytest.raises(InvalidInput, match=f"/{name}: is a list of 2"):
            client.evaluate(data=data, metric=lambda outputs, y: 0, **given)
    assert server.asked == []


class Serialised:
    """A model in memory, as ``onnx.ModelProto`` is one."""

    def SerializeToString(self) -> bytes:
        return linear_model(np.ones((4, 3), np.float32))


def test_a_model_in_memory_is_compared_with_its_local_run(server: FakeServer) -> None:
    inferred(server, inference_set("inputs"))
    with Client(server.url) as client:
        found = client.infer(
            Serialised(), np.ones((20, 4)), "rpi4b", compare_local=True, progress=False
        )
    assert found.sets[0].comparison["scores"].max_error == 3.0


def test_a_link_into_a_missing_folder_is_refused_before_the_run(server: FakeServer) -> None:
    Path("out.npz").symlink_to("missing/out.npz")
    assert "--out: there is no folder" in refusal(run(*INFER, "--out", "out.npz"))
    done = run("results", ID, "--html", "missing/page.html")
    assert "--html: there is no folder missing" in done.stderr
    assert not server.asked
