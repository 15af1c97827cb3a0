"""A model with its data files in one archive: it runs, and hostile archives are refused."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeyard.benchmark_api.sdk.model_folder import packed, with_weights
from edgeyard.devices.runner.engines.ort import OrtEngine
from edgeyard.devices.runner.model_archive import open_archive
from edgeyard.devices.runner.onnx_file import inspect
from edgeyard.errors import InvalidInput, RunFailed
from tests.builders.networks import DEMO
from tests.builders.runner import linear_model

WEIGHTS = np.arange(4096, dtype=np.float32).reshape(64, 64)


def folder_of(folder: Path, location: str = "net.data") -> Path:
    """A folder of a model whose weights lie in a file next to it."""
    folder.mkdir()
    model = onnx.load_from_string(linear_model(WEIGHTS))
    onnx.save_model(
        model,
        folder / "net.onnx",
        save_as_external_data=True,
        location=location,
        size_threshold=0,
    )
    return folder


def test_a_folder_with_data_files_runs(tmp_path: Path) -> None:
    archive = packed(folder_of(tmp_path / "net"))
    session = OrtEngine().load(archive, threads=1, parameters={})
    x = np.random.default_rng(0).random((2, 64), dtype=np.float32)
    scores: Any = session.run({"x": x})[0]
    np.testing.assert_allclose(scores, x @ WEIGHTS, rtol=1e-5)
    assert packed(tmp_path / "net") == archive, "packed once"


@pytest.mark.parametrize("name", ["160ea76f-0000.data", "net_data", ".hidden", "a b (1)%", "é"])
def test_a_data_file_has_any_name_that_onnx_writes(tmp_path: Path, name: str) -> None:
    session = OrtEngine().load(packed(folder_of(tmp_path / "net", name)), threads=1, parameters={})
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(np.asarray(session.run({"x": x})[0]), x @ WEIGHTS, rtol=1e-5)


def test_a_file_for_each_tensor_runs_and_none_is_taken_for_an_open_file(tmp_path: Path) -> None:
    """onnx names such a file like its tensor, in PyTorch's models often a number."""
    folder = tmp_path / "net"
    folder.mkdir()
    model = onnx.load_from_string(linear_model(WEIGHTS))
    other = (tmp_path / "other").open("w+b")
    other.write(bytes(WEIGHTS.nbytes))
    other.flush()
    name = str(other.fileno())
    model.graph.initializer[0].name = model.graph.node[0].input[1] = name
    onnx.save_model(
        model,
        folder / "net.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
    )
    assert (folder / name).is_file()
    (folder / "._net.onnx").write_bytes(b"macOS writes such a file")
    with other:
        session = OrtEngine().load(packed(folder), threads=1, parameters={})
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(np.asarray(session.run({"x": x})[0]), x @ WEIGHTS, rtol=1e-5)


def test_only_what_the_model_names_is_sent_and_no_link(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "net")
    (folder / "secrets.txt").write_text("not part of the model")
    (folder / "passwd").symlink_to("/etc/passwd")
    with zipfile.ZipFile(packed(folder)) as archive:
        assert archive.namelist() == ["net.onnx", "net.data"]
    (folder / "net.data").rename(tmp_path / "net.data")
    (folder / "net.data").symlink_to(tmp_path / "net.data")
    with pytest.raises(InvalidInput, match=r"net\.data is a link, and links are not followed"):
        packed(folder)


def test_a_folder_without_its_data_files_is_refused_by_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "net")
    (folder / "net.data").rename(folder / "other.data")
    with pytest.raises(
        InvalidInput, match=r"lie in 'net\.data', which is not among .* other\.data"
    ):
        packed(folder)
    (folder / "other.data").unlink()
    with pytest.raises(InvalidInput, match=r"lie outside the ONNX file, in 'net\.data'"):
        packed(folder)
    (folder / "net.onnx").unlink()
    with pytest.raises(InvalidInput, match=r"holds no \.onnx or"):
        packed(folder)


def test_data_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "net")
    content = (folder / "net.data").read_bytes()
    (folder / "net.data").write_bytes(content[:-4])
    with pytest.raises(InvalidInput, match=r"beyond the end of 'net\.data'"):
        packed(folder)


def test_a_place_outside_of_the_archive_is_never_read(tmp_path: Path) -> None:
    for location in ("../secret", "/etc/passwd", "3"):
        model = onnx.load_from_string(linear_model(WEIGHTS))
        [weights] = model.graph.initializer
        weights.ClearField("raw_data")
        weights.data_location = onnx.TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=location)
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("net.onnx", model.SerializeToString())
            archive.writestr("data.bin", WEIGHTS.tobytes())
        with pytest.raises(RunFailed, match="is not among the model's data files"):
            OrtEngine().load(path, threads=1, parameters={})


def _link(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("data.bin")
    info.external_attr = 0o120777 << 16
    archive.writestr(info, "/etc/passwd")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda archive: archive.writestr("../data.bin", b"x"), "without a folder"),
        (lambda archive: archive.writestr("/etc/x", b"x"), "without a folder"),
        (lambda archive: archive.writestr("a/b.bin", b"x"), "without a folder"),
        (lambda archive: archive.writestr("..", b"x"), "without a folder"),
        (lambda archive: archive.writestr("a\nb", b"x"), "printable"),
        (lambda archive: archive.writestr("b.onnx", b"x"), "holds 2 files named .onnx"),
        (lambda archive: archive.writestr("z", b"x" * 99, zipfile.ZIP_DEFLATED), "compressed"),
        (_link, "is a link"),
    ],
)
def test_hostile_archives_are_refused(
    tmp_path: Path, spoil: Callable[[zipfile.ZipFile], Any], says: str
) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net.onnx", linear_model(WEIGHTS))
        spoil(archive)
    with pytest.raises(RunFailed, match=says) as refused:
        open_archive(path)
    assert refused.value.category == "user_model"


def test_every_cut_and_changed_byte_of_an_archive_is_refused_or_read_within_it(
    tmp_path: Path,
) -> None:
    whole = packed(folder_of(tmp_path / "net")).read_bytes()
    path = tmp_path / "b.zip"
    rng = np.random.default_rng(1)
    places = [*range(0, 60), *range(len(whole) - 200, len(whole))]
    for place in places:
        content = bytearray(whole)
        content[place] ^= int(rng.integers(1, 256))
        for each in (bytes(content), whole[:place]):
            path.write_bytes(each)
            with contextlib.suppress(RunFailed):
                archive = open_archive(path)
                inspect(archive.model, archive.data)


@pytest.mark.parametrize("name", ["digits.xml", "digits.ncnn.param"])
def test_of_a_pair_the_weights_are_packed_with_the_file_that_is_named(
    tmp_path: Path, name: str
) -> None:
    stem = name.rpartition(".")[0]
    for each in (name, f"{stem}.bin"):
        (tmp_path / each).write_bytes((DEMO / each).read_bytes())
    (tmp_path / "notes.txt").write_text("not sent")
    archive = with_weights(tmp_path / name)
    with zipfile.ZipFile(archive) as file:
        assert sorted(file.namelist()) == sorted((name, f"{stem}.bin"))
        assert file.read(f"{stem}.bin") == (DEMO / f"{stem}.bin").read_bytes()
    with zipfile.ZipFile(packed(tmp_path)) as file:
        assert sorted(file.namelist()) == sorted((name, f"{stem}.bin")), "a folder of both"


def test_a_file_that_is_no_half_of_a_pair_is_sent_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(b"weights of something else")
    for name in ("net.onnx", "net.xml", "net.bin"):
        path = tmp_path / name
        if not path.exists():
            path.write_bytes(linear_model(WEIGHTS))
        assert with_weights(path) == path
    alone = tmp_path / "alone.xml"
    alone.write_bytes((DEMO / "digits.xml").read_bytes())
    assert with_weights(alone) == alone


def test_weights_that_are_a_link_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.param").write_bytes((DEMO / "digits.ncnn.param").read_bytes())
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "net.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match=r"net\.bin is a link"):
        with_weights(tmp_path / "net.param")


def test_a_folder_of_half_a_pair_or_of_two_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.param").write_bytes((DEMO / "digits.ncnn.param").read_bytes())
    with pytest.raises(InvalidInput, match=r"net\.bin"):
        packed(tmp_path)
    (tmp_path / "net.bin").write_bytes(b"x")
    (tmp_path / "net.xml").write_bytes((DEMO / "digits.xml").read_bytes())
    with pytest.raises(InvalidInput, match="holds 2 files"):
        packed(tmp_path)


def test_files_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    """A small archive would fill the board's disk."""
    path = tmp_path / "net.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net.onnx", b"x" * 1000)
        for number in range(3):
            again = zipfile.ZipInfo(f"net.data{number}")
            again.file_size = again.compress_size = 1000
            again.CRC = archive.filelist[0].CRC
            again.header_offset = archive.filelist[0].header_offset
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    with pytest.raises(RunFailed, match="its files overlap"):
        open_archive(path)
