"""Models and datasets in memory, and what shells complete."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgeyard
from edgeyard import Client
from edgeyard.benchmark_api.sdk import JobChanges, JobFields
from edgeyard.benchmark_api.sdk.submission import CHECK_FIELDS, OWN_INPUT_FIELDS, SCHEDULE_FIELDS
from edgeyard.errors import InvalidInput
from tests.builders.answers import accepted, benchmark, user_file
from tests.builders.model_files import a_model_file
from tests.fakes.api_server import Answer, FakeServer


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    server.on("POST", "/v1/files", Answer(user_file(), 201))
    server.on("POST", "/v1/benchmarks", Answer(accepted(), 202))
    return server


NETWORK = a_model_file()
LITE = b"\0\0\0\0TFL3rest"


def submit(model: Any, runtime: str = "ort", **fields: Any) -> None:
    with Client() as client:
        kind = fields.pop("benchmark_type", "TYPE1")
        client.submit(model=model, runtime=runtime, benchmark_type=kind, target="rpi4b", **fields)


def uploaded(server: FakeServer) -> list[tuple[str, bytes]]:
    """Name and content of each upload."""
    found = []
    for request in server.of("POST", "/v1/files"):
        head, _, rest = request.body.partition(b"\r\n\r\n")
        name = re.search(rb'filename="([^"]*)"', head)
        assert name is not None
        found.append((name[1].decode(), rest.rpartition(b"\r\n--")[0]))
    return found


class Proto:
    def SerializeToString(self) -> bytes:
        return NETWORK


@pytest.mark.parametrize(
    ("model", "content", "suffix"),
    [
        (NETWORK, NETWORK, ".onnx"),
        (Proto(), NETWORK, ".onnx"),
        (LITE, LITE, ".tflite"),
    ],
)
def test_a_model_may_be_in_memory(
    server: FakeServer, model: object, content: bytes, suffix: str
) -> None:
    submit(model, "tflite" if suffix == ".tflite" else "ort")
    ((name, sent),) = uploaded(server)
    assert sent == content
    assert name.endswith(suffix)


def test_models_of_different_content_have_different_names(server: FakeServer) -> None:
    for model in (a_model_file(fill=b"1"), a_model_file(fill=b"2"), a_model_file(fill=b"1")):
        submit(model)
    names = [name for name, _ in uploaded(server)]
    assert names[0] == names[2] != names[1]


def test_a_dataset_may_be_arrays(server: FakeServer) -> None:
    rows, labels = np.zeros((4, 3), np.float32), [0, 1, 2, 0]
    submit(NETWORK, benchmark_type="TYPE2", dataset={"x": rows, "y": labels})
    (_, (name, content)) = uploaded(server)
    assert name.endswith(".npz")
    with np.load(io.BytesIO(content)) as found:
        assert found["x"].dtype == np.float32
        assert found["y"].tolist() == labels


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"dataset": {}}, "/dataset: has no arrays"),
        ({"dataset": {"x": ["a"]}}, "/dataset/x: has the type"),
        ({"dataset": {"x": [[1], [1, 2]]}}, "/dataset/x"),
    ],
)
def test_what_is_no_dataset_is_refused_before_anything_is_sent(
    server: FakeServer, fields: Mapping[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected.lstrip("/")):
        submit(NETWORK, **fields)
    assert server.asked == []


def test_an_empty_model_is_refused(server: FakeServer) -> None:
    with pytest.raises(InvalidInput, match="is empty"):
        submit(b"")
    assert server.asked == []


def test_shells_can_complete_the_client_and_its_fields() -> None:
    assert "Client" in dir(edgeyard)
    assert JobFields.__annotations__.keys() <= inspect.signature(Client.submit).parameters.keys()


@pytest.mark.parametrize("name", ["infer", "evaluate"])
def test_shells_complete_the_fields_of_runs_on_own_inputs(name: str) -> None:
    shown = inspect.signature(getattr(Client, name)).parameters.keys()
    assert JobFields.__annotations__.keys() - shown == {*OWN_INPUT_FIELDS, *SCHEDULE_FIELDS}


def test_shells_complete_the_fields_of_a_clone_and_a_check() -> None:
    for function, without in ((Client.clone, ()), (Client.check, CHECK_FIELDS)):
        shown = inspect.signature(function).parameters.keys()
        assert JobChanges.__annotations__.keys() - shown == set(without)


def test_fields_that_own_inputs_state_are_refused(server: FakeServer) -> None:
    with Client() as client, pytest.raises(InvalidInput, match="/input: its inputs are stated"):
        client.infer(NETWORK, np.ones((1, 2)), "rpi4b", input={"x": {}})
    assert server.asked == []


def test_signatures_show_types_that_people_can_read() -> None:
    shown = str(inspect.signature(Client.submit))
    assert "ForwardRef" not in shown
    assert "deadline: 'str | None' = None" in shown


def test_a_mistyped_argument_names_the_one_that_was_meant(server: FakeServer) -> None:
    wrong: Mapping[str, Any] = {"compare_locl": True}
    with Client() as client, pytest.raises(InvalidInput, match=r"did you mean compare_local\?"):
        client.infer(NETWORK, np.ones((1, 2)), "rpi4b", **wrong)
    assert server.asked == []


NIGHTLY: Mapping[str, Any] = {"cron": "0 3 * * *"}


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.infer(NETWORK, np.ones((1, 2)), "rpi4b", **NIGHTLY),
        lambda client: client.evaluate(
            NETWORK, {"x": np.ones((1, 2)), "y": np.ones(1)}, lambda *_: 0, "rpi4b", **NIGHTLY
        ),
        lambda client: client.check("base", model="net.onnx", **NIGHTLY),
        lambda client: client.submit(
            model="net.onnx", runtime="ort", benchmark_type="TYPE1", wait=True, **NIGHTLY
        ),
    ],
    ids=["infer", "evaluate", "check", "submit"],
)
def test_a_schedule_is_refused_where_a_run_is_waited_for(
    server: FakeServer, call: Callable[[Client], object]
) -> None:
    with Client() as client, pytest.raises(InvalidInput, match="/cron: "):
        call(client)
    assert server.asked == []


def test_a_schedule_is_no_benchmark_to_wait_for(server: FakeServer) -> None:
    answer = accepted(benchmark_id=None, schedule_id="schedule-1")
    server.on("POST", "/v1/benchmarks", Answer(answer, 202))
    with Client() as client:
        made = client.submit(model="net.onnx", runtime="ort", benchmark_type="TYPE1", **NIGHTLY)
        asked = len(server.asked)
        with pytest.raises(InvalidInput, match="a cron creates a schedule"):
            made.wait()
    assert len(server.asked) == asked


def test_the_limit_of_a_wait_needs_a_wait(server: FakeServer) -> None:
    with Client() as client, pytest.raises(InvalidInput, match="with wait=True only"):
        client.submit(model="net.onnx", runtime="ort", benchmark_type="TYPE1", timeout=5)
    assert server.asked == []


def test_eight_threads_share_a_client(server: FakeServer) -> None:
    for number in range(8):
        server.on("GET", f"/v1/benchmarks/b{number}", benchmark(f"b{number}"))
    with Client() as client, ThreadPoolExecutor(8) as threads:
        names = [f"b{number % 8}" for number in range(80)]
        found = threads.map(client.benchmark, names)
        assert [each.benchmark_id for each in found] == names


def test_files_are_listed_found_by_name_and_downloaded(server: FakeServer, tmp_path: Path) -> None:
    server.on("GET", "/v1/files", {"items": [user_file(file_id="new")], "next_cursor": None})
    server.on("GET", "/v1/files/new/content", Answer(b"content"))
    server.on("DELETE", "/v1/files/new", Answer(None, 204))
    with Client() as client:
        (only,) = client.files()
        assert only.file_id == "new"
        path = client.download_file("net.onnx", tmp_path)
        client.delete_file(only)
    assert (path.name, path.read_bytes()) == ("net.onnx", b"content")
    assert len(server.of("DELETE", "/v1/files/new")) == 1
