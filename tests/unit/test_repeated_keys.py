"""A key that a document has twice is refused, whoever reads the document."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeyard.benchmark_api.schemas import notation
from edgeyard.benchmark_api.schemas.body import parse_object, read_document
from edgeyard.benchmark_api.sdk.submission import read_job_file
from edgeyard.devices.runner import training
from edgeyard.devices.runner.dataset import open_dataset
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.json_text import repeated_key
from edgeyard.errors import InvalidInput, RunFailed
from edgeyard.scheduler.twin.document import read_twin_data
from edgeyard.simulator.scenario import scenario_from_json
from edgeyard.training.ste_services.common import decoded

JSON = "application/json"
YAML = "application/yaml"


@pytest.mark.parametrize(
    ("text", "media", "says"),
    [
        ('{"target": "a", "target": "b"}', JSON, "/target: is given twice"),
        (r'{"target": "a", "t\u0061rget": "a"}', JSON, "/target: is given twice"),
        ('{"matrix": [{}, {"a": {"b": 1, "b": 2}}]}', JSON, "/matrix/1/a/b: is given twice"),
        ("nb_inference: 1\ntarget: a\nnb_inference: 2\n", YAML, "line 3: the key 'nb_inference'"),
        ('"a": 1\na: 2\n', YAML, "line 2: the key 'a' is there twice"),
        ("input:\n  x: {low: 0, low: 1}\n", YAML, "the key 'low' is there twice"),
    ],
)
def test_a_body_with_a_key_twice_is_refused(text: str, media: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_document(text.encode(), media)
    assert says in str(refused.value)


def test_keys_of_different_objects_and_values_may_be_alike() -> None:
    text = '{"a": {"a": "a"}, "b": [{"a": 1}, {"a": 1}]}'
    assert read_document(text.encode()) == read_document(text.encode(), YAML) == json.loads(text)


@pytest.mark.parametrize("name", ["job.json", "job.yaml"])
def test_a_job_file_with_a_key_twice_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('{"target": "a",\n "target": "b"}')
    with pytest.raises(InvalidInput, match=rf"{name}.*twice"):
        read_job_file(path)


def _dataset(text: str, folder: Path) -> None:
    from PIL import Image

    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    with zipfile.ZipFile(folder / "d.zip", "w") as archive:
        archive.writestr("a/1.png", picture.getvalue())
        archive.writestr("dataset.json", text)
    open_dataset(folder / "d.zip", [TensorSpec("x", (1, 3, 2, 2), "float32")], None)


def _odt_config(text: str, folder: Path) -> None:
    (folder / "odt.json").write_text(text)
    training.read_config(None, folder / "odt.json")


class _Anything(msgspec.Struct):
    pass


READERS: dict[str, Any] = {
    "large body": lambda text, _: parse_object(text.encode(), JSON),
    "twin": lambda text, _: read_twin_data(text.encode()),
    "scenario": lambda text, _: scenario_from_json(text),
    "test environment": lambda text, _: decoded(text.encode(), _Anything),
    "--odt-config": lambda text, _: notation.odt_config(text),
    "--parameter": lambda text, _: notation.parameters([f"preprocessing={text}"]),
    "odt_config": _odt_config,
    "dataset.json": _dataset,
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_what_people_write_refuses_it(reader: str, tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, RunFailed)) as refused:
        READERS[reader]('{"epochs": 1, "epochs": 2}', tmp_path)
    assert "twice" in str(refused.value)


@given(
    st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_json_that_was_written_by_a_program_has_no_key_twice(tree: object) -> None:
    assert repeated_key(json.dumps(tree)) is None
