"""What the content of files shows at submission is refused there, before a board is used."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeyard.benchmark_api.content import ContentChecks, UnseenContent
from edgeyard.benchmark_api.sdk.model_folder import packed
from edgeyard.devices.model import BoardEngine
from edgeyard.devices.runner.engines import BUILT_IN
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.files import ContentFiles
from edgeyard.scheduler.model.benchmark import (
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
)
from edgeyard.scheduler.model.event import Event
from tests.builders.api import Api, running
from tests.builders.descriptions import description
from tests.builders.language_models import TINY_LLAMA, folder_of, unchecked_archive
from tests.builders.networks import DEMO
from tests.builders.runner import linear_model, model_of
from tests.builders.tflite import Quantized, requantizing_model
from tests.fakes.cluster import board
from tests.integration.test_api_benchmarks import refusal
from tests.unit.test_labels import classifier

pytestmark = pytest.mark.one_database("files are read; nothing is asked of the database")

WEIGHTS = np.ones((4, 3), np.float32)
TFLITE = b"\x1c\0\0\0TFL3" + bytes(100)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("content")) as started:
        yield started


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{name.replace("__", "/"): value for name, value in arrays.items()})
    return file.getvalue()


def refused(api: Api, model: bytes, dataset: bytes | None = None, **changes: Any) -> dict[str, Any]:
    """All that is wrong with a submission of these files, by pointer."""
    changes["model"] = put(api, "net.onnx", model)
    if dataset is not None:
        changes["dataset"] = put(api, "data.npz", dataset)
    whole = description(**changes)
    found = refusal(api.as_().post("/v1/benchmarks", json=whole))["errors"]
    dry = refusal(api.as_().post("/v1/benchmarks?dry_run=true", json=whole))["errors"]
    assert found == dry, "a dry run says the same"
    return {each["pointer"]: each for each in found}


def put(api: Api, name: str, content: bytes) -> str:
    answer = api.as_().post("/v1/files", files={"file": (name, content)})
    assert answer.status_code == 201, answer.text
    return name


def open_model() -> bytes:
    return model_of(
        [helper.make_node("Add", ["ids", "mask"], ["y"])],
        {"ids": ["batch", "length", 8], "mask": ["batch", "length", "width"]},
        {"y": [None, None, None]},
    )


def test_all_open_dimensions_are_named_with_the_flag_that_states_them(api: Api) -> None:
    found = refused(api, open_model())
    assert found["/input/ids"]["reason"] == (
        "the model leaves dimension 1 of [batch, length, 8] open"
    )
    assert found["/input/ids"]["accepted"] == "all sizes, e.g. --input 'ids=1x1x8'"
    assert "dimensions 1, 2 of [batch, length, width]" in found["/input/mask"]["reason"]


def test_shapes_that_do_not_fit_and_unknown_inputs_are_refused(api: Api) -> None:
    given = {"ids": {"shape": [1, 4, 7]}, "mask": {"shape": [1, 4, 8]}, "other": {}}
    found = refused(api, open_model(), input=given)
    assert "not [1, 4, 7]" in found["/input/ids"]["reason"]
    assert found["/input/other"]["accepted"] == "one of ids, mask"
    assert "/input/mask" not in found


@pytest.mark.parametrize(
    ("content", "says", "accepted"),
    [
        (TFLITE, "is a TensorFlow Lite model", "the runtime tflite"),
        (b"<!DOCTYPE html><html>login</html>", "is a web page", "an ONNX file"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    api: Api, content: bytes, says: str, accepted: str
) -> None:
    error = refused(api, content)["/model"]
    assert says in error["reason"]
    assert accepted in error["accepted"]


@pytest.mark.parametrize(
    ("content", "says", "accepted"),
    [
        (linear_model(WEIGHTS), "is an ONNX file", "the runtime ort"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "a TensorFlow"),
    ],
)
def test_a_file_that_is_no_tflite_model_is_refused(
    tmp_path: Path, content: bytes, says: str, accepted: str
) -> None:
    files = ContentFiles(tmp_path)
    writer = files.writer(10_000)
    writer.write(content)
    stored = writer.commit()
    with pytest.raises(InvalidInput) as refused_one:
        ContentChecks(files).check(asked_of("tflite"), [model_file(stored.sha256, len(content))])
    [error] = refused_one.value.errors
    assert says in error.reason
    assert accepted in error.accepted


def asked_of(runtime: str) -> JobDescription:
    return JobDescription(
        model="m", runtime=runtime, benchmark_type=BenchmarkType.TYPE1, target="rpi4b"
    )


def model_file(sha256: str, size_bytes: int) -> BenchmarkFile:
    return BenchmarkFile(
        role=FileRole.MODEL, position=0, name="m", sha256=sha256, size_bytes=size_bytes
    )


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (npz(y=np.zeros((1, 4), np.float32)), "has an array 'y'; the model takes 'x'"),
        (npz(x=np.zeros((1, 5), np.float32)), "has shape [1, 5] for input 'x'"),
        (npz(x=np.zeros((1, 4), "U2")), "has type <U2 for input 'x', which takes float32"),
        (npz(x=np.full((2, 4), np.nan, np.float32)), "8 of 8 values that are NaN in 'x'"),
        (npz(x=np.full((2, 4), -np.inf, np.float32)), "8 of 8 values that are infinite in 'x'"),
        (npz(a__x=np.zeros((1, 4)), b__x=np.full((1, 4), np.inf)), "are infinite in 'b/x'"),
        (npz(x=np.full((1, 4), 1e300)), "cannot hold 1e+300"),
        (npz(a__x=np.zeros((1, 4)), b__z=np.zeros(1)), "set 'b' has an array 'z'"),
        (b"no archive", "is not a readable .npz"),
    ],
)
def test_own_inputs_that_do_not_fit_are_refused(api: Api, dataset: bytes, says: str) -> None:
    error = refused(api, linear_model(WEIGHTS), dataset, keep_outputs=True)["/dataset"]
    assert says in error["reason"]
    assert error["accepted"]


def test_own_inputs_that_fit_are_accepted(api: Api) -> None:
    put(api, "net.onnx", linear_model(WEIGHTS))
    put(api, "data.npz", npz(a__x=np.zeros((1, 4), np.float32), b__x=np.zeros((9, 4))))
    whole = description(model="net.onnx", dataset="data.npz", keep_outputs=True)
    assert api.as_().post("/v1/benchmarks", json=whole).status_code == 202


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (
            npz(p=np.zeros((2, 3), np.int8), q=np.zeros((2, 4), np.int8)),
            "dimension 'm' is 3 in input 'p' [2, 3] and 4 in input 'q' [2, 4]",
        ),
        (
            npz(**{f"{name}__{one}": np.zeros((2, 3 + (name == "b" and one == "q")), np.int8)
                   for name in "ab" for one in "pq"}),
            "set 'b': dimension 'm' is 3 in input 'p'",
        ),
        (
            npz(p=np.zeros((2, 3), np.int8), q=np.array([[0, 0, 300], [0, 0, 0]])),
            "input 'q' takes int8, which cannot hold 300",
        ),
        (
            npz(p=np.zeros((2, 3), np.int8), q=np.zeros((2, 3))),
            "has type float64 for input 'q', which takes int8: whole numbers",
        ),
    ],
)  # fmt: skip
def test_own_inputs_that_contradict_each_other_are_refused(
    api: Api, dataset: bytes, says: str
) -> None:
    model = model_of(
        [helper.make_node("Add", ["p", "q"], ["y"])],
        {"p": ["n", "m"], "q": ["n", "m"]},
        {"y": ["n", "m"]},
        dtype=TensorProto.INT8,
    )
    error = refused(api, model, dataset, keep_outputs=True)["/dataset"]
    assert says in error["reason"]
    assert error["accepted"]


def test_sizes_of_random_data_that_contradict_each_other_are_refused(api: Api) -> None:
    given = {"ids": {"shape": [4, 5, 8]}, "mask": {"shape": [1, 5, 1]}}
    found = refused(api, open_model(), input=given)
    assert "dimension 'batch' is 4 in input 'ids' [4, 5, 8]" in found["/input/mask"]["reason"]
    assert "--input 'mask=4x5x1'" in found["/input/mask"]["accepted"]


@pytest.mark.parametrize(
    ("metric", "y", "says"),
    [
        (None, np.zeros(2), "has 'y' of shape [2] and type float64"),
        (None, np.zeros((2, 3), int), "has 'y' of shape [2, 3] and type int64"),
        ("regression", np.zeros((2, 4)), "'y' of shape [2, 4], and the output has shape [rows, 3]"),
        ("segmentation", np.zeros((2, 3, 4)), "has 'y' of shape [2, 3, 4] and type float64"),
        ("segmentation", np.zeros((2, 3, 4), int), "and the output has shape [rows, 3]"),
        ("detection", np.zeros((2, 3, 4)), "has 'y' of shape [2, 3, 4]"),
        ("detection", np.zeros((2, 3, 5)), "and the output has shape [rows, 3]"),
    ],
)  # fmt: skip
def test_a_y_that_no_output_can_be_compared_with_is_refused(
    api: Api, metric: str | None, y: Any, says: str
) -> None:
    parameters = {} if metric is None else {"metric": metric}
    dataset = npz(x=np.zeros((2, 4), np.float32), y=y)
    found = refused(
        api, linear_model(WEIGHTS), dataset, benchmark_type="TYPE2", parameters=parameters
    )
    assert says in found["/dataset"]["reason"]
    assert found["/dataset"]["accepted"].startswith("y: ")


def test_a_y_that_fits_is_accepted(api: Api) -> None:
    put(api, "net.onnx", linear_model(WEIGHTS))
    for metric, y in (("classification", np.zeros(2, int)), ("regression", np.zeros((2, 1, 3)))):
        put(api, "data.npz", npz(x=np.zeros((2, 4), np.float32), y=y))
        whole = description(
            model="net.onnx",
            dataset="data.npz",
            benchmark_type="TYPE2",
            parameters={"metric": metric},
        )
        assert api.as_().post("/v1/benchmarks", json=whole).status_code == 202


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (npz(picture=np.zeros((1, 1, 8, 8), np.float32)), "has an array 'picture'"),
        (npz(image=np.zeros((1, 8, 8), np.float32)), "has shape [1, 8, 8] for input 'image'"),
        (npz(image=np.full((1, 1, 8, 8), "a")), "has type <U1 for input 'image'"),
        (npz(image=np.full((1, 1, 8, 8), np.nan)), "64 of 64 values that are NaN in 'image'"),
    ],
)
def test_own_inputs_of_a_tflite_model_are_checked(
    tmp_path: Path, dataset: bytes, says: str
) -> None:
    with pytest.raises(InvalidInput) as refused_one:
        check_own_inputs(tmp_path, (DEMO / "digits.tflite").read_bytes(), dataset)
    [error] = refused_one.value.errors
    assert error.pointer == "/dataset"
    assert says in error.reason


def test_own_inputs_of_a_quantized_model_are_real_or_its_own_whole_numbers(
    tmp_path: Path,
) -> None:
    model = requantizing_model((3,), Quantized("int8", 0.05, -3), Quantized("int8", 0.08, 5))
    for values in (np.full((1, 3), 99.5), np.ones((1, 3), np.int8)):
        check_own_inputs(tmp_path, model, npz(x=values))
    with pytest.raises(InvalidInput, match=r"real numbers from -6.25 to 6.5, or int8"):
        check_own_inputs(tmp_path, model, npz(x=np.ones((1, 3), np.int64)))


def check_own_inputs(folder: Path, model_content: bytes, dataset: bytes) -> None:
    """Check a submission for own inputs of a ``.tflite`` model."""
    files = ContentFiles(folder)
    stored = []
    for content in (model_content, dataset):
        writer = files.writer(10_000_000)
        writer.write(content)
        stored.append(writer.commit())
    model, data = stored
    asked = JobDescription(
        model="m",
        runtime="tflite",
        benchmark_type=BenchmarkType.TYPE1,
        target="rpi4b",
        keep_outputs=True,
    )
    inputs = BenchmarkFile(
        role=FileRole.DATASET, position=0, name="d.npz", sha256=data.sha256, size_bytes=1
    )
    ContentChecks(files).check(asked, [model_file(model.sha256, 1), inputs])


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (npz(x=np.zeros((2, 4)), labels=np.zeros(2)), "has no array 'y'; it holds x, labels"),
        (npz(x=np.zeros((2, 5)), y=np.zeros(2, int)), "has 'x' of shape [2, 5]"),
        (npz(x=np.zeros((2, 4)), y=np.zeros(3, int)), "has 2 rows of 'x' and 3 of 'y'"),
    ],
)
def test_datasets_that_do_not_fit_are_refused(api: Api, dataset: bytes, says: str) -> None:
    found = refused(api, linear_model(WEIGHTS), dataset, benchmark_type="TYPE2")
    assert says in found["/dataset"]["reason"]


def images(*folders: str, **description: object) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for folder in folders:
            archive.writestr(f"{folder}/a.png", b"not looked into")
        if description:
            archive.writestr("dataset.json", json.dumps(description))
    return file.getvalue()


def of_rows(*labels: int) -> bytes:
    return npz(x=np.zeros((len(labels), 4), np.float32), y=np.array(labels))


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (of_rows(1, 2, 3), "has class 3, the model has 3 classes from 0 on"),
        (of_rows(0, 99), "has class 99, the model has 3 classes"),
        (of_rows(-1, 0), "has a class number below 0 in 'y'"),
        (images("1", "2", "3"), "has 3 class folders ('1', '2', '3'), the model has 3 classes"),
        (images("cat", "dog"), "has 2 class folders ('cat', 'dog'), the model has 3 classes"),
        (images("cat", labels={"cat": 7}), "has class 7, the model has 3 classes"),
        (images("cat", labels={"dog": 0}), "has a folder 'cat' that preprocessing/labels"),
        (images("cat/c1", "dog/c1", "owl/c1"), '{"class_folder": "outermost"}'),
        (images("train/cat", "val/cat"), "look like parts of a dataset"),
    ],
)
def test_classes_that_the_model_has_no_score_for_are_refused(
    api: Api, dataset: bytes, says: str
) -> None:
    found = refused(api, linear_model(WEIGHTS), dataset, benchmark_type="TYPE2")
    assert says in found["/dataset"]["reason"]


def test_class_numbers_that_a_classifier_does_not_state_are_refused(api: Api) -> None:
    model = classifier([1, 2, 3]).SerializeToString()
    dataset = npz(x=np.zeros((3, 3), np.float32), y=np.arange(3))
    found = refused(api, model, dataset, benchmark_type="TYPE2")
    assert found["/dataset"]["reason"] == "has class 0, and output 'label' gives only 1, 2, 3"
    of_scores = {"preprocessing": {"output": "probabilities"}}
    dataset = npz(x=np.zeros((3, 3), np.float32), y=np.arange(1, 4))
    found = refused(api, model, dataset, benchmark_type="TYPE2", parameters=of_scores)
    assert found["/dataset"]["reason"] == "has class 3, the model has 3 classes from 0 on"


@pytest.mark.parametrize(
    ("model", "dataset", "parameters"),
    [
        (linear_model(WEIGHTS), of_rows(0, 1, 2), {}),
        (linear_model(WEIGHTS), images("2", "0"), {}),
        (linear_model(WEIGHTS), images("cat", "dog", "owl"), {}),
        (linear_model(WEIGHTS), images("cat", labels={"cat": 2}), {}),
        (linear_model(WEIGHTS), images("val/0", "train/1"), {"preprocessing": {"subset": "val"}}),
        (classifier([1, 2, 300]).SerializeToString(),
         npz(x=np.zeros((2, 3), np.float32), y=np.array([1, 300])), {}),
    ],
)  # fmt: skip
def test_classes_that_the_model_can_give_are_accepted(
    api: Api, model: bytes, dataset: bytes, parameters: dict[str, Any]
) -> None:
    names = {"model": put(api, "net.onnx", model), "dataset": put(api, "data.zip", dataset)}
    whole = description(**names, benchmark_type="TYPE2", parameters=parameters)
    answer = api.as_().post("/v1/benchmarks?dry_run=true", json=whole)
    assert answer.status_code == 200, answer.text


def test_an_input_that_has_the_name_of_the_truth_is_refused_with_the_way_out(api: Api) -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "y"], ["scores"])],
        {"x": ["N", 4], "y": ["N", 4]},
        {"scores": ["N", 4]},
    )
    x = np.zeros((2, 4), np.float32)
    found = refused(api, model, npz(x=x, y=x), benchmark_type="TYPE2")
    assert '{"truth": "labels"}' in found["/dataset"]["reason"]
    truth = {"truth": "labels"}
    found = refused(api, model, npz(x=x, y=x), benchmark_type="TYPE2", parameters=truth)
    assert found["/dataset"]["reason"] == "has no array 'labels'; it holds x, y"
    put(api, "data.npz", npz(x=x, y=x, labels=np.zeros(2, int)))
    whole = description(
        model="net.onnx", dataset="data.npz", benchmark_type="TYPE2", parameters=truth
    )
    answer = api.as_().post("/v1/benchmarks", json=whole)
    assert answer.status_code == 202, answer.text


def test_scalars_empty_arrays_and_any_number_of_dimensions_are_accepted(api: Api) -> None:
    scaled = model_of(
        [helper.make_node("Mul", ["x", "factor"], ["scores"])],
        {"x": ["N", 4], "factor": []},
        {"scores": ["N", 4]},
    )
    put(api, "net.onnx", scaled)
    x = np.zeros((2, 4), np.float32)
    datasets = {
        "one.npz": npz(x=x, factor=np.float32(2), y=np.zeros(2, int)),
        "empty.npz": npz(x=x[:0], factor=np.float32(2)),
    }
    for name, content in datasets.items():
        put(api, name, content)
    for changes in (
        {},
        {"input": {"x": {"shape": [0, 4]}, "factor": {"shape": []}}},
        {"benchmark_type": "TYPE2", "dataset": "one.npz"},
        {"keep_outputs": True, "dataset": "empty.npz"},
    ):
        answer = api.as_().post("/v1/benchmarks", json=description(model="net.onnx", **changes))
        assert answer.status_code == 202, answer.text
    found = refused(
        api, scaled, npz(x=x, factor=np.zeros(2, np.float32), y=np.zeros(2, int)),
        benchmark_type="TYPE2",
    )  # fmt: skip
    assert found["/dataset"]["accepted"] == "one value"


def test_the_shape_of_any_number_of_dimensions_has_to_be_stated(api: Api) -> None:
    model = onnx.load_from_string(
        model_of([helper.make_node("Abs", ["x"], ["scores"])], {"x": [1]}, {"scores": [1]})
    )
    model.graph.input[0].type.tensor_type.ClearField("shape")
    found = refused(api, model.SerializeToString())
    assert "how many dimensions" in found["/input/x"]["reason"]
    assert found["/input/x"]["accepted"] == "its sizes, e.g. --input 'x=1'"
    whole = description(model="net.onnx", input={"x": {"shape": [2, 3]}})
    assert api.as_().post("/v1/benchmarks", json=whole).status_code == 202


def test_an_uploaded_training_configuration_is_checked(api: Api) -> None:
    put(api, "odt.json", json.dumps({"epochs": -1}).encode())
    found = refused(
        api,
        linear_model(WEIGHTS),
        npz(x=np.zeros((2, 4), np.float32), y=np.zeros(2, int)),
        benchmark_type="TYPE3",
        odt_config="odt.json",
    )
    assert "epochs" in found["/odt_config"]["reason"]


def test_a_model_larger_than_the_memory_of_all_boards_is_refused(tmp_path: Path) -> None:
    checks = ContentChecks(ContentFiles(tmp_path))
    file = model_file("ab" * 32, 5 * 2**30)
    with pytest.raises(InvalidInput, match=r"has 5 GiB, and the boards of .* have at most 4 GiB"):
        checks.check(asked_of("ort"), [file], max_ram_bytes=4 * 2**30)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"profile_layers": True, "runtime": "tflite"}, "/profile_layers"),
        ({"profile_layers": True, "benchmark_type": "TYPE2", "dataset": "d"}, "/profile_layers"),
        ({"keep_outputs": True}, "/dataset"),
        ({"keep_outputs": True, "dataset": "d", "input": {"x": {}}}, "/input"),
        ({"keep_outputs": True, "dataset": "d", "precision": "2 %"}, "/precision"),
        ({"keep_outputs": True, "dataset": "d", "profile_layers": True}, "/profile_layers"),
        ({"keep_outputs": "yes"}, "/keep_outputs"),
    ],
)
def test_what_can_not_be_combined_is_refused(
    api: Api, changes: dict[str, object], pointer: str
) -> None:
    found = refusal(api.as_().post("/v1/benchmarks", json=description(**changes)))["errors"]
    assert pointer in {each["pointer"] for each in found}
    assert all(each["accepted"] for each in found)


def test_a_dry_run_states_the_inputs_that_would_be_measured(api: Api) -> None:
    put(api, "open.onnx", open_model())
    given = {"ids": {"shape": [2, 4, 8]}, "mask": {"shape": [2, 4, 8]}}
    whole = description(model="open.onnx", input=given)
    answer = api.as_().post("/v1/benchmarks?dry_run=true", json=whole)
    assert answer.status_code == 200, answer.text
    assert answer.json()["workload"]["inputs"] == [
        {"name": name, "shape": [2, 4, 8], "dtype": "float32"} for name in ("ids", "mask")
    ]


@pytest.mark.parametrize("content", [b"abc", bytes(range(256)), b"PK\x03\x04 no archive"])
@pytest.mark.parametrize("runtime", ["ort", "tflite"])
def test_random_bytes_are_no_model(tmp_path: Path, content: bytes, runtime: str) -> None:
    files = ContentFiles(tmp_path)
    writer = files.writer(10_000)
    writer.write(content)
    stored = writer.commit()
    with pytest.raises(InvalidInput, match="/model: "):
        ContentChecks(files).check(asked_of(runtime), [model_file(stored.sha256, len(content))])


def test_random_bytes_are_refused_over_http(api: Api) -> None:
    assert "not a valid ONNX file" in refused(api, b"abc")["/model"]["reason"]


def test_the_size_of_a_model_is_checked_before_it_is_sent(tmp_path: Path) -> None:
    with running(tmp_path, model_limit_bytes=2**34) as api:

        def answer(size_bytes: int) -> Any:
            params = {"model_bytes": size_bytes}
            return api.as_().post("/v1/benchmarks/check", json=description(), params=params)

        assert answer(1000).status_code == 200
        [error] = refusal(answer(2**33))["errors"]
        assert (error["pointer"], error["reason"]) == (
            "/model",
            "has 8 GiB, and the boards of rpi4b that may run it have at most 4 GiB of memory",
        )
        [limit, memory] = refusal(answer(2**35))["errors"]
        assert limit["accepted"] == "at most 16 GiB as a model"
        assert memory["accepted"] == "a model of at most 4 GiB, or another target"


def test_other_requests_write_while_a_submission_is_checked(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file store may be slow: no transaction is open while content is read."""
    weights = np.full((4, 3), 2.0, np.float32)  # of this test alone: what was seen is remembered
    name = put(api, "slow.onnx", linear_model(weights))
    read, read_while_others_wrote = ContentFiles.path, []

    def write() -> None:
        api.store.transact(lambda uow: uow.log.append(Event(at=api.clock.now(), kind="test.wrote")))

    def slow_path(files: ContentFiles, sha256: str) -> Path:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(write).result(60.0)
        read_while_others_wrote.append(sha256)
        return read(files, sha256)

    monkeypatch.setattr(ContentFiles, "path", slow_path)
    api.submit(model=name)
    assert read_while_others_wrote


def test_unchecked_content_is_not_read_in_a_unit_of_work(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    writer = files.writer(1000)
    writer.write(TFLITE)
    stored = writer.commit()
    checks = ContentChecks(files)
    model = BenchmarkFile(
        role=FileRole.MODEL, position=0, name="net.onnx", sha256=stored.sha256, size_bytes=108
    )
    asked = JobDescription(model="net.onnx", runtime="ort", benchmark_type=BenchmarkType.TYPE1)
    with checks.from_memory(), pytest.raises(UnseenContent):
        checks.check(asked, [model])
    with pytest.raises(InvalidInput):
        checks.check(asked, [model])
    with checks.from_memory(), pytest.raises(InvalidInput):
        checks.check(asked, [model])


def pair(param: bytes, weights: bytes | None, suffix: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"net{suffix}", param)
        if weights is not None:
            archive.writestr("net.bin", weights)
    return out.getvalue()


ONNX_FILE, TFLITE_FILE = (DEMO / "digits.onnx").read_bytes(), (DEMO / "digits.tflite").read_bytes()
XML, XML_BIN = (DEMO / "digits.xml").read_bytes(), (DEMO / "digits.bin").read_bytes()
PARAM = (DEMO / "digits.ncnn.param").read_bytes()
PARAM_BIN = (DEMO / "digits.ncnn.bin").read_bytes()
GENAI_ZIP = packed(TINY_LLAMA).read_bytes()
GENAI_WEIGHTS = (TINY_LLAMA / "model.onnx.data").read_bytes()


def of_counts(counts: str) -> bytes:
    """Return the ncnn model with other numbers of layers and blobs in its header."""
    magic, _, layers = PARAM.split(b"\n", 2)
    return pair(b"\n".join((magic, counts.encode(), layers)), PARAM_BIN, ".param")


def damaged(archive: bytes, part: bytes) -> bytes:
    """Return an archive in whose part a byte has changed."""
    at = archive.index(part) + len(part) // 2
    return archive[:at] + bytes([archive[at] ^ 1]) + archive[at + 1 :]


IR_ZIP, NCNN_ZIP = pair(XML, XML_BIN, ".xml"), pair(PARAM, PARAM_BIN, ".param")
OF_ENGINE = {
    "ort": (ONNX_FILE,),
    "tflite": (TFLITE_FILE,),
    "openvino": (ONNX_FILE, IR_ZIP),
    "ncnn": (NCNN_ZIP,),
    "ort-genai": (GENAI_ZIP,),
}
MODELS = {
    "onnx": ONNX_FILE,
    "tflite": TFLITE_FILE,
    "ir": IR_ZIP,
    "ncnn": NCNN_ZIP,
    "genai": GENAI_ZIP,
}


@pytest.fixture(scope="module")
def api_of_all_engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    engines = tuple(BoardEngine(name, "1", frozenset(BUILT_IN[name].types)) for name in OF_ENGINE)
    boards = (board("rpi4b-0001-0001", engines=engines),)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.builders.api.BOARDS", boards)
        with running(tmp_path_factory.mktemp("engines")) as started:
            yield started


@pytest.mark.parametrize("runtime", OF_ENGINE)
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_another_engine_is_refused_with_the_engine_that_takes_it(
    api_of_all_engines: Api, runtime: str, kind: str
) -> None:
    api, content = api_of_all_engines, MODELS[kind]
    if content in OF_ENGINE[runtime]:
        shape = {"input": {"input_ids": {"shape": [1, 16]}}} if runtime == "ort-genai" else {}
        whole = description(model=put(api, "net", content), runtime=runtime, **shape)
        answer = api.as_().post("/v1/benchmarks?dry_run=true", json=whole)
        assert answer.status_code == 200, answer.text
        return
    error = refused(api, content, runtime=runtime)["/model"]
    takers = [name for name, models in OF_ENGINE.items() if content in models]
    assert any(name in error["accepted"].partition("or the runtime ")[2] for name in takers), error


@pytest.mark.parametrize(
    ("runtime", "content", "says"),
    [
        pytest.param("openvino", XML, ".bin", id="ir alone"),
        pytest.param("openvino", pair(XML, None, ".xml"), "net.bin", id="ir without weights"),
        pytest.param("openvino", pair(XML, XML_BIN[:99], ".xml"), "99", id="ir of short weights"),
        pytest.param(
            "openvino",
            pair(XML.replace(b"<net ", b"<!DOCTYPE a><net ", 1), XML_BIN, ".xml"),
            "document type",
            id="ir with a document type",
        ),
        pytest.param("openvino", b"\x80\x04nothing", "ONNX", id="neither"),
        pytest.param("ncnn", PARAM, ".bin", id="param alone"),
        pytest.param("ncnn", pair(PARAM, None, ".param"), "net.bin", id="param without weights"),
        pytest.param("ncnn", pair(PARAM[:300], b"1", ".param"), "layer", id="param cut short"),
        pytest.param("ncnn", PARAM_BIN, "no archive", id="weights alone"),
        pytest.param("ncnn", damaged(NCNN_ZIP, PARAM_BIN), "checksum", id="a byte of weights"),
        pytest.param("openvino", damaged(IR_ZIP, XML_BIN), "checksum", id="a byte of an ir's"),
        pytest.param("ort-genai", damaged(GENAI_ZIP, GENAI_WEIGHTS), "checksum", id="of tokens"),
        pytest.param("ncnn", of_counts("999999999 9"), "999999999", id="layers that are not there"),
        pytest.param("ncnn", of_counts("9 999999999"), "1000000", id="too many blobs"),
    ],
)
def test_half_of_a_pair_and_damaged_ones_are_refused(
    api_of_all_engines: Api, runtime: str, content: bytes, says: str
) -> None:
    error = refused(api_of_all_engines, content, runtime=runtime)["/model"]
    assert says in f"{error['reason']} {error['accepted']}", error


@pytest.mark.parametrize("kind", ["onnx", "ir", "ncnn"])
def test_inputs_of_every_engines_models_are_compared_with_the_description(
    api_of_all_engines: Api, kind: str
) -> None:
    runtime = {"onnx": "openvino", "ir": "openvino", "ncnn": "ncnn"}[kind]
    wrong = {"picture": {"shape": [1, 1, 8, 8]}}
    error = refused(api_of_all_engines, MODELS[kind], runtime=runtime, input=wrong)
    assert "image" in error["/input/picture"]["accepted"]
    small = {"image": {"shape": [1, 1, 8, 9]}}
    assert "/input/image" in refused(api_of_all_engines, MODELS[kind], runtime=runtime, input=small)
    data = npz(x=np.zeros((4, 1, 8, 9), np.uint8), y=np.zeros(4, np.uint8))
    errors = refused(
        api_of_all_engines, MODELS[kind], data, runtime=runtime, benchmark_type="TYPE2"
    )
    assert "/dataset" in errors


@pytest.mark.parametrize("runtime", ["openvino", "ncnn"])
def test_an_engine_that_does_not_train_is_refused_before_a_board_is_used(
    api_of_all_engines: Api, runtime: str
) -> None:
    data = npz(x=np.zeros((4, 1, 8, 8), np.float32), y=np.zeros(4, np.uint8))
    error = refused(
        api_of_all_engines,
        OF_ENGINE[runtime][0],
        data,
        runtime=runtime,
        benchmark_type="TYPE3",
        odt_config={"epochs": 1},
    )["/benchmark_type"]
    assert "does not train" in error["reason"]
    assert "ort or tflite" in error["accepted"]


def refused_request(api: Api, content: bytes = GENAI_ZIP, **changes: Any) -> dict[str, Any]:
    return refused(api, content, runtime="ort-genai", benchmark_type="GENAI", **changes)


@pytest.mark.parametrize(
    ("parameters", "named", "says"),
    [
        ({"prompt_length": 1000, "output_length": 100}, "prompt_length", "context of 1024"),
        ({"prompt_tokens": [1] * 1000}, "prompt_tokens", "context of 1024"),
        ({"prompt_tokens": [259]}, "prompt_tokens", "0 to 258"),
        ({"prompt_tokens": ["a"]}, "prompt_tokens", "token ids"),
        ({"preset": "pp512", "prompt": "a"}, "preset", "prompt"),
        ({"output_length": 0}, "output_length", "0"),
        ({"prompts": 3}, "prompts", "no such parameter"),
        ({"batch_size": 2}, "batch_size", "dataset"),
    ],
)
def test_a_request_that_the_language_model_can_not_take_is_refused(
    api_of_all_engines: Api, parameters: dict[str, object], named: str, says: str
) -> None:
    error = refused_request(api_of_all_engines, parameters=parameters)[f"/parameters/{named}"]
    assert says in f"{error['reason']} {error['accepted']}", error


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shape": [1, 16], "low": 0, "high": 999, "integers": True}, "0 to 258, but got 999"),
        ({"shape": [1, 16], "low": -1, "high": 5, "integers": True}, "0 to 258, but got -1"),
        ({"shape": [1, 2000]}, "1 to 1023 tokens, but got [1, 2000]"),
    ],
)
def test_random_tokens_that_a_language_model_does_not_take_are_refused(
    api_of_all_engines: Api, given: dict[str, object], says: str
) -> None:
    error = refused(api_of_all_engines, GENAI_ZIP, runtime="ort-genai", input={"input_ids": given})[
        "/input/input_ids"
    ]
    assert says in error["reason"]
    assert "0..258:int" in error["accepted"]


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (np.array([[1, 999]]), "0 to 258, but got 999"),
        (np.array([[1, -1]]), "0 to 258, but got -1"),
        (np.ones((1, 3000), dtype=np.int64), "1 to 1023 tokens, but got [1, 3000]"),
        (np.ones((1, 3), dtype=np.float32), "input_ids"),
    ],
)
def test_own_tokens_that_a_language_model_does_not_take_are_refused(
    api_of_all_engines: Api, tokens: Any, says: str
) -> None:
    error = refused(
        api_of_all_engines,
        GENAI_ZIP,
        runtime="ort-genai",
        keep_outputs=True,
        dataset=npz(input_ids=tokens),
    )["/dataset"]
    assert says in f"{error['reason']} {error['accepted']}"


def zip_of(folder: Path) -> bytes:
    return unchecked_archive(folder).read_bytes()


def test_a_folder_that_no_board_would_load_is_refused(
    api_of_all_engines: Api, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "bare")
    (folder / "genai_config.json").unlink()
    error = refused_request(api_of_all_engines, zip_of(folder))["/model"]
    assert "genai_config.json" in error["reason"]

    def for_cuda(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["session_options"]["provider_options"] = [{"cuda": {}}]

    error = refused_request(api_of_all_engines, zip_of(folder_of(tmp_path / "gpu", for_cuda)))
    assert "cuda" in error["/model"]["reason"]
    folder = folder_of(tmp_path / "without weights")
    (folder / "model.onnx.data").unlink()
    error = refused_request(api_of_all_engines, zip_of(folder))["/model"]
    assert "model.onnx.data" in error["reason"]


def test_text_for_a_model_without_tokenizer_is_refused(
    api_of_all_engines: Api, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    error = refused_request(api_of_all_engines, zip_of(folder), parameters={"prompt": "a"})
    assert "no tokenizer" in error["/parameters/prompt"]["reason"]


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"runtime": "ort"}, "/benchmark_type", "ort does not run language models"),
        ({"benchmark_type": "TYPE2", "dataset": "d"}, "/benchmark_type", "accuracy"),
        ({"nb_inference": 50}, "/nb_inference", "requests"),
        ({"dataset": "d"}, "/dataset", "a prompt"),
        ({"precision": 0.1}, "/precision", "TYPE1"),
        ({"soak": 60}, "/soak", "TYPE1"),
        ({"concurrency": [1, 2]}, "/concurrency", "TYPE1"),
        ({"profile_layers": True}, "/profile_layers", "time of layers"),
    ],
)
def test_what_does_not_belong_to_a_language_model_is_refused(
    api_of_all_engines: Api, changes: dict[str, object], field: str, says: str
) -> None:
    whole: dict[str, Any] = {"runtime": "ort-genai", "benchmark_type": "GENAI", **changes}
    if "dataset" in changes:
        whole["dataset"] = put(api_of_all_engines, "d.npz", npz(x=np.zeros(3)))
    content = ONNX_FILE if whole["runtime"] == "ort" else GENAI_ZIP
    error = refused(api_of_all_engines, content, **whole)[field]
    assert says in f"{error['reason']} {error['accepted']}", error


def test_requests_are_parameters_of_language_models_alone(api_of_all_engines: Api) -> None:
    error = refused(
        api_of_all_engines, GENAI_ZIP, runtime="ort-genai", parameters={"output_length": 3}
    )["/parameters/output_length"]
    assert "GENAI" in error["accepted"]
