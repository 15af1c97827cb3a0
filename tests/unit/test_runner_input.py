"""What a run is asked: description, random feeds, datasets and configurations, all checked."""

from __future__ import annotations

import io
import json
import stat
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeyard.benchmark_api.settings import Settings
from edgeyard.devices.runner import dataset as dataset_module
from edgeyard.devices.runner.accuracy import batch_size_of
from edgeyard.devices.runner.arrays import headers_of, read_all_arrays, read_arrays
from edgeyard.devices.runner.dataset import numbered, open_dataset, open_datasets
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.devices.runner.engines.ort import OrtEngine
from edgeyard.devices.runner.feeds import random_feeds
from edgeyard.devices.runner.interval import wilson_interval
from edgeyard.devices.runner.preprocessing import parse_preprocessing
from edgeyard.devices.runner.spec import read_board, read_spec, take_token
from edgeyard.devices.runner.training import curve, parse_config, read_config
from edgeyard.errors import RunFailed
from edgeyard.scheduler.engine.dispatch import TaskLimits
from edgeyard.scheduler.model.knowledge import Knowledge
from tests.builders.runner import LIGHT, linear_model

IMAGE = TensorSpec("image", ("n", 3, 8, 8), "float32")
ROWS = TensorSpec("x", ("n", 4), "float32")


def environ(folder: Path, spec: object = None, **more: str) -> dict[str, str]:
    if spec is not None:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        (folder / "spec.json").write_text(text)
    return {
        "NOMAD_TASK_DIR": str(folder),
        "MODEL_FILENAME": "m.onnx",
        "RUNTIME": "ort",
        "BENCHMARK_TYPE": "TYPE1",
        "RESULTS_PUB_URL": "http://10.0.0.1:1/upload/rpi4b-ort-1/",
        **more,
    }


def labels_of(dataset: dataset_module.Dataset) -> list[int]:
    assert dataset.labels is not None
    return [int(label) for label in dataset.labels]


def refused(category: str, call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(RunFailed) as error:
        call(*arguments, **named)
    assert error.value.category == category
    return error.value.sentence


class TestDescription:
    def test_bounds_that_nobody_states_are_the_same_on_boards_and_on_the_server(
        self, tmp_path: Path
    ) -> None:
        spec = read_spec(environ(tmp_path))
        fields = Settings.model_fields
        for limits in (spec, TaskLimits()):
            assert limits.user_time_s == fields["default_user_time_s"].default
            assert limits.no_output_timeout_s == fields["no_output_timeout_s"].default
            assert limits.upload_timeout_s == fields["upload_timeout_s"].default
        assert Knowledge().max_run_s == spec.user_time_s

    def test_the_environment_alone_is_enough(self, tmp_path: Path) -> None:
        spec = read_spec(environ(tmp_path, NB_INFERENCE="7", DATASET_FILENAME="d.npz"))
        assert (spec.engine, spec.benchmark_type, spec.nb_inference) == ("ort", "TYPE1", 7)
        assert spec.job_id == "benchmark-rpi4b-ort-1"
        assert [one.filename for one in spec.datasets] == ["d.npz"]
        assert spec.user_time_s > 0

    def test_spec_json_wins_over_the_environment(self, tmp_path: Path) -> None:
        spec = read_spec(
            environ(tmp_path, {"nb_inference": 9, "engine": "tflite"}, NB_INFERENCE="7")
        )
        assert (spec.nb_inference, spec.engine) == (9, "tflite")

    def test_the_token_is_in_no_repr(self, tmp_path: Path) -> None:
        spec = read_spec(environ(tmp_path), "CANARY-SECRET-1")
        assert spec.token == "CANARY-SECRET-1"
        assert "CANARY" not in repr(spec)

    def test_the_token_comes_from_a_file_that_is_gone_once_it_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "token.env"
        path.write_text("EDGEYARD_UPLOAD_TOKEN=CANARY-SECRET-1\n")
        assert take_token({"NOMAD_SECRETS_DIR": str(tmp_path)}) == "CANARY-SECRET-1"
        assert not path.exists()
        assert take_token({"NOMAD_SECRETS_DIR": str(tmp_path)}) is None
        assert take_token({"EDGEYARD_UPLOAD_TOKEN": "CANARY-SECRET-1"}) is None
        assert take_token({}) is None

    @pytest.mark.parametrize(
        "wrong",
        [
            "not json",
            "[]",
            '{"nb_inference": NaN}',
            "[" * 100_000,
            {"version": 2},
            {"nb_inference": 0},
            {"nb_inference": True},
            {"precision": 7},
            {"user_time_s": -1},
            {"model": {"filename": "../../etc/passwd"}},
            {"model": {"filename": "a/b"}},
            {"model": {"filename": ".."}},
            {"model": "m.onnx"},
            {"datasets": [{"filename": "a\u0000b"}]},
            {"benchmark_type": "TYPE100"},
            {"upload_url": "file:///etc/passwd"},
            {"input": {"x": [1]}},
        ],
    )
    def test_a_wrong_value_is_the_users_matter(self, tmp_path: Path, wrong: object) -> None:
        refused("user_input", read_spec, environ(tmp_path, wrong))

    def test_an_unreadable_board_is_the_boards_matter(self) -> None:
        assert "EDGEYARD_BOARD" in refused("board_fault", read_board, {"EDGEYARD_BOARD": "{"})
        assert read_board({"TARGET": "rpi5"}).threads >= 1


class TestRandomData:
    def test_a_batch_is_one_and_other_open_sizes_are_asked_for(self) -> None:
        (feed,) = random_feeds([IMAGE], {}).values()
        assert feed.shape == (1, 3, 8, 8)
        tokens = TensorSpec("ids", ("n", "length"), "int64")
        sentence = refused("user_input", random_feeds, [tokens], {})
        assert "'ids'" in sentence
        assert '"input": {"ids": {"shape": [1, 1]}}' in sentence

    def test_ranges_and_integers_are_honoured(self) -> None:
        tokens = TensorSpec("ids", ("n", "length"), "int64")
        wish = {"ids": {"shape": [2, 500], "low": 5, "high": 9}}
        feed = random_feeds([tokens], wish)["ids"]
        assert feed.dtype == np.int64
        assert (feed.min(), feed.max()) == (5, 9)
        floats = random_feeds([ROWS], {"x": {"shape": [500, 4], "low": -2, "high": 3}})["x"]
        assert -2 <= floats.min() < -1.5
        assert 2.5 < floats.max() < 3
        whole = random_feeds([ROWS], {"x": {"low": 0, "high": 9, "integers": True}})["x"]
        assert set(whole.ravel().tolist()) <= set(range(10))
        assert whole.dtype == np.float32

    @pytest.mark.parametrize(
        "dtype",
        ["float16", "float64", "int8", "uint8", "int16", "int32", "uint16", "uint64", "bool"],
    )
    def test_every_type_has_a_default(self, dtype: str) -> None:
        feed = random_feeds([TensorSpec("x", (50,), dtype)], {})["x"]
        assert feed.dtype == np.dtype(dtype)
        assert len(np.unique(feed)) > 1

    def test_the_same_seed_gives_the_same_data(self) -> None:
        first, again = (random_feeds([IMAGE], {})["image"] for _ in range(2))
        assert (first == again).all()

    @pytest.mark.parametrize(
        ("wish", "word"),
        [
            ({"y": {}}, "'y'"),
            ({"x": {"form": 1}}, "'form'"),
            ({"x": {"shape": [1, 5]}}, "[n, 4]"),
            ({"x": {"shape": [1]}}, "[n, 4]"),
            ({"x": {"shape": [-1, 4]}}, "whole numbers"),
            ({"x": {"shape": "4"}}, "whole numbers"),
            ({"x": {"shape": [2**31 - 1, 4]}}, "more than the board has"),
            ({"x": {"low": 2, "high": 1}}, "above"),
            ({"x": {"low": "a"}}, "'a'"),
        ],
    )
    def test_a_wish_that_can_not_be_names_its_input(
        self, wish: Mapping[str, Mapping[str, object]], word: str
    ) -> None:
        assert word in refused("user_input", random_feeds, [ROWS], wish, limit_bytes=2**30)

    def test_text_can_not_be_made_up(self) -> None:
        text = TensorSpec("words", (1,), "string")
        assert "'string'" in refused("user_input", random_feeds, [text], {})


def array_header(shape: tuple[int, ...]) -> bytes:
    """The beginning of a ``.npy`` without its values."""
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


class TestArrays:
    @pytest.mark.parametrize("shape", [(2**31, 8), (2**62, 8), (-1, -1), (-1, 0)])
    def test_headers_that_state_more_than_there_is_are_refused(
        self, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        path = tmp_path / "d.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", array_header(shape) + bytes(4))
        for read in (headers_of, lambda path: read_arrays(path, ["x"])):
            assert "x.npy is shorter than its header says" in refused("user_input", read, path)

    def test_a_directory_that_states_another_size_or_a_name_twice_is_refused(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "d.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", array_header((2**28,)) + bytes(4))
        content = path.read_bytes()
        entry = content.index(b"PK\x01\x02")
        for first, fields in ((24, b"\xff\xff\xff\xff"), (20, b"\xff\xff\xff\xff" * 2)):
            at = entry + first
            path.write_bytes(content[:at] + fields + content[at + len(fields) :])
            refused("user_input", headers_of, path)
        with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(2):
                archive.writestr("x.npy", array_header((1,)) + bytes(4))
        assert "holds 'x' twice" in refused("user_input", headers_of, path)

    def test_a_long_header_is_refused_in_one_line(self, tmp_path: Path) -> None:
        path = tmp_path / "d.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", array_header((1,) * 20_000))
        reason = refused("user_input", headers_of, path)
        assert "x.npy is not an array" in reason
        assert "\n" not in reason
        assert "allow_pickle" not in reason

    def test_hostile_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "d.npz"
        path.write_bytes(b"PK\x03\x04 no zip")
        refused("user_input", read_arrays, path, ["x"])
        np.savez(path, x=np.array([{"a": 1}], dtype=object))
        assert "Python objects" in refused("user_input", read_arrays, path, ["x"])
        np.savez(path, y=np.zeros(3))
        assert "'x'; it holds y" in refused("user_input", read_arrays, path, ["x"])
        np.savez_compressed(path, x=np.zeros(10_000_000))
        sentence = refused("user_input", read_arrays, path, ["x"], limit_bytes=1_000_000)
        assert "unpacks to more" in sentence

    def test_a_header_that_promises_too_much_is_not_believed(self, tmp_path: Path) -> None:
        head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n"
        content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
        with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
            archive.writestr("x.npy", content)
        assert "shorter" in refused("user_input", read_arrays, tmp_path / "d.npz", ["x"])

    def test_order_and_types_survive(self, tmp_path: Path) -> None:
        x = np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4))
        np.savez(tmp_path / "d.npz", x=x, y=np.arange(3))
        found = read_arrays(tmp_path / "d.npz", ["x", "y"])
        assert (found["x"] == x).all()
        assert found["x"].dtype == np.int16


class TestImages:
    def archive(self, tmp_path: Path, entries: Mapping[str, bytes | zipfile.ZipInfo]) -> Path:
        path = tmp_path / "images.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries.items():
                if isinstance(content, zipfile.ZipInfo):
                    archive.writestr(content, "/etc/passwd")
                else:
                    archive.writestr(name, content)
        return path

    def png(self, colour: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> bytes:
        from PIL import Image

        file = io.BytesIO()
        Image.new("RGB", size, colour).save(file, "PNG")
        return file.getvalue()

    def test_files_that_do_not_fit_together_are_refused_by_name(self, tmp_path: Path) -> None:
        first = self.archive(tmp_path, {"a/1.png": self.png((1, 2, 3), (8, 8))})
        rows = tmp_path / "rows.npz"
        np.savez(rows, x=np.zeros((2, 3, 8, 8), np.float32), y=np.zeros(2, np.int64))
        sentence = refused("user_input", open_datasets, [first, rows], [IMAGE], None)
        assert "rows.npz" in sentence
        assert "same folders" in sentence
        odd = tmp_path / "odd.npz"
        np.savez(odd, x=np.zeros((2, 3, 8, 9), np.float32), y=np.zeros(2, np.int64))
        sentence = refused("user_input", read_all_arrays, [rows, odd], ["x", "y"])
        assert "[3, 8, 9]" in sentence

    @pytest.mark.parametrize("ending", ["png", "jpg", "tif"])
    def test_a_postscript_file_reaches_no_interpreter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
    ) -> None:
        """Pillow would start Ghostscript, which runs programs, for whatever begins as one."""
        from PIL import EpsImagePlugin

        started: list[object] = []
        monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: started.append(args))
        image = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
        path = self.archive(tmp_path, {f"a/1.{ending}": image, f"b/1.{ending}": image})
        with pytest.raises(RunFailed, match="can't be decoded"):
            open_dataset(path, [IMAGE], None)
        assert started == []

    def test_damaged_compression_is_the_users_fault(self, tmp_path: Path) -> None:
        path = tmp_path / "damaged.zip"
        for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            with zipfile.ZipFile(path, "w", kind) as archive:
                archive.writestr("a/1.png", bytes(range(256)) * 8)
                archive.writestr("b/1.png", bytes(range(256)))
                offset = 30 + len("a/1.png")
            content = bytearray(path.read_bytes())
            content[offset : offset + 40] = b"\xff" * 40
            path.write_bytes(content)
            refused("user_input", open_dataset, path, [IMAGE], None)

    def test_a_picture_that_claims_a_gigapixel_is_refused(self, tmp_path: Path) -> None:
        header = b"P6 100000 100000 255\n"
        path = self.archive(tmp_path, {"a/1.ppm": header, "b/1.ppm": header})
        assert "can't be decoded" in refused("user_input", open_dataset, path, [IMAGE], None)

    def test_pixels_are_scaled_normalised_and_laid_out(self, tmp_path: Path) -> None:
        path = self.archive(
            tmp_path,
            {
                "a/1.png": self.png((255, 51, 0), (30, 20)),
                "b/1.png": self.png((0, 0, 0)),
                "__MACOSX/a/._1.png": b"junk",
                "dataset.json": json.dumps(
                    {"mean": [0.5, 0.1, 0.0], "std": [0.5, 0.1, 1.0]}
                ).encode(),
            },
        )
        found = open_dataset(path, [IMAGE], None)
        rows = found.batch(0, 2)["image"]
        assert rows.shape == (2, 3, 8, 8)
        assert rows.dtype == np.float32
        # (1.0 - 0.5) / 0.5, (0.2 - 0.1) / 0.1, 0
        assert rows[0, :, 4, 4].tolist() == pytest.approx([1.0, 1.0, 0.0], abs=1e-5)
        assert rows[1, :, 0, 0].tolist() == pytest.approx([-1.0, -1.0, 0.0], abs=1e-5)
        assert labels_of(found) == [0, 1]
        assert found.class_names == {0: "a", 1: "b"}

    def test_wishes_of_the_job_win_over_the_file(self, tmp_path: Path) -> None:
        path = self.archive(
            tmp_path,
            {"a/1.png": self.png((10, 20, 30)), "dataset.json": b'{"color": "RGB", "scale": 9}'},
        )
        nhwc = TensorSpec("image", (1, 8, 8, 3), "float32")
        found = open_dataset(path, [nhwc], {"color": "BGR", "scale": 1.0})
        assert found.batch(0, 1)["image"][0, 0, 0].tolist() == [30.0, 20.0, 10.0]

    def folders(self, tmp_path: Path, *names: str, **description: object) -> Path:
        entries = {f"{name}/1.png": self.png((1, 1, 1)) for name in names}
        content = {"dataset.json": json.dumps(description).encode()} if description else {}
        return self.archive(tmp_path, entries | content)

    def test_folders_named_by_numbers_are_those_classes(self, tmp_path: Path) -> None:
        found = open_dataset(self.folders(tmp_path, "7", "0042", "3"), [IMAGE], None)
        mapped = numbered(found, 100)
        assert labels_of(mapped) == [42, 3, 7]
        assert mapped.class_names == {42: "0042", 3: "3", 7: "7"}
        assert labels_of(numbered(found, 0)) == [42, 3, 7]
        assert "dataset.json" in refused("user_input", numbered, found, 3)

    def test_numbers_go_by_their_value_not_by_the_alphabet(self, tmp_path: Path) -> None:
        names = [str(number) for number in range(11)]
        mapped = numbered(open_dataset(self.folders(tmp_path, *names), [IMAGE], None), 11)
        assert mapped.class_names == {number: str(number) for number in range(11)}

    def test_other_names_go_by_the_alphabet_where_there_is_one_a_class(
        self, tmp_path: Path
    ) -> None:
        found = open_dataset(self.folders(tmp_path, "dog", "cat"), [IMAGE], None)
        assert numbered(found, 2) is found
        assert numbered(found, 0) is found
        assert found.class_names == {0: "cat", 1: "dog"}

    @pytest.mark.parametrize("names", [("cat", "dog"), ("1", "dog"), ("0", "10"), ("²", "1")])
    def test_folders_that_tell_no_class_are_refused(
        self, tmp_path: Path, names: tuple[str, ...]
    ) -> None:
        found = open_dataset(self.folders(tmp_path, *names), [IMAGE], None)
        sentence = refused("user_input", numbered, found, 10)
        assert "2 class folders" in sentence
        assert "10 classes" in sentence
        assert all(repr(name) in sentence for name in names)
        assert "dataset.json" in sentence

    def test_labels_say_which_folder_is_which_class(self, tmp_path: Path) -> None:
        path = self.folders(tmp_path, "cat", "dog", labels={"cat": 8, "dog": 2})
        found = numbered(open_dataset(path, [IMAGE], None), 10)
        assert labels_of(found) == [8, 2]

    def test_the_middle_is_cut_out(self, tmp_path: Path) -> None:
        path = self.archive(tmp_path, {"a/1.png": self.png((1, 1, 1), (64, 64))})
        found = open_dataset(path, [IMAGE], {"resize": [16, 16], "crop": [8, 8]})
        assert found.batch(0, 1)["image"].shape == (1, 3, 8, 8)
        sentence = refused("user_input", open_dataset, path, [IMAGE], {"resize": [9, 9]})
        assert "[3, 9, 9]" in sentence
        assert "[3, 8, 8]" in sentence

    def test_unsafe_archives_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = zipfile.ZipInfo("a/1.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        for entries, word in (
            ({"../1.png": b"x"}, "leads out"),
            ({"/a/1.png": b"x"}, "leads out"),
            ({"a\\..\\1.png": b"x"}, "leads out"),
            ({"a/1.png": link}, "link"),
            ({"a/1.png": b"\0" * 30_000_000}, "times its size"),
            ({"1.png": b"x"}, "one folder for each class"),
            ({"a/1.txt": b"x"}, "one folder for each class"),
            ({"a/1.png": b"no picture"}, "decoded"),
            ({"a/1.png": b"x", "dataset.json": b"{"}, "not JSON"),
        ):
            path = self.archive(tmp_path, entries)
            assert word in refused("user_input", open_dataset, path, [IMAGE], None)
        path = self.archive(tmp_path, {"a/1.png": self.png((1, 1, 1))})
        sentence = refused("user_input", open_dataset, path, [IMAGE], {"labels": ["b"]})
        assert "'a'" in sentence
        monkeypatch.setattr(dataset_module, "MAX_ENTRIES", 0)
        assert "entries" in refused("user_input", open_dataset, path, [IMAGE], None)

    def test_a_host_without_pillow_is_refused_with_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "PIL", None)
        path = self.archive(tmp_path, {"a/1.png": b"x"})
        sentence = refused("engine_unsupported", open_dataset, path, [IMAGE], None)
        assert "pip install pillow" in sentence


class TestSmallSchemas:
    @pytest.mark.parametrize(
        "document",
        [
            [],
            {"sise": 1},
            {"version": 2},
            {"resize": [1]},
            {"resize": [10**9, 1]},
            {"layout": "CHWN"},
            {"std": [1, 0]},
            {"mean": ["a"]},
            {"mean": float("nan")},
            {"labels": {"a": -1}},
            {"top_k": [0]},
            {"output": 3},
        ],
    )
    def test_wrong_preprocessing_is_named(self, document: object) -> None:
        assert "preprocessing" in refused("user_input", parse_preprocessing, document)

    @pytest.mark.parametrize(
        "document",
        [
            [],
            {"epoch": 3},
            {"epochs": 0},
            {"epochs": 1.5},
            {"learning_rate": 0},
            {"learning_rate": float("nan")},
            {"validation_split": 0.95},
            {"options": 1},
            {"batch_size": True},
        ],
    )
    def test_wrong_training_configurations_are_named(self, document: object) -> None:
        assert "odt_config" in refused("user_input", parse_config, document)

    def test_a_training_configuration_comes_from_the_job_or_from_a_file(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "odt.json"
        file.write_text('{"epochs": 4, "options": {"layer": "fc"}}')
        assert read_config(None, file).epochs == 4
        assert read_config({"epochs": 2}, file).epochs == 2
        refused("user_input", read_config, None, None)
        file.write_text("epochs: 4")
        refused("user_input", read_config, None, file)
        assert "can't be read" in refused("board_fault", read_config, None, tmp_path / "absent")

    def test_a_long_loss_curve_is_thinned_and_keeps_its_end(self) -> None:
        points = curve([float(step) for step in range(12_345)])
        assert len(points) <= 1000
        assert points[0] == {"step": 1, "loss": 0.0}
        assert points[-1] == {"step": 12_345, "loss": 12_344.0}

    def test_batches(self) -> None:
        assert batch_size_of([IMAGE], None) == 1
        assert batch_size_of([IMAGE], 7) == 7
        fixed = TensorSpec("x", (4, 2), "float32")
        assert batch_size_of([fixed], None) == 4
        assert "4 rows" in refused("user_input", batch_size_of, [fixed], 7)
        refused("user_input", batch_size_of, [IMAGE], 0)

    def test_wilsons_interval(self) -> None:
        # centre (0.5 + z²/20) / (1 + z²/10) = 0.5; half = z sqrt(0.025 + z²/400) / (1 + z²/10)
        z = 1.959963984540054
        half = z * (0.025 + z * z / 400) ** 0.5 / (1 + z * z / 10)
        assert wilson_interval(5, 10) == pytest.approx((0.5 - half, 0.5 + half))
        assert wilson_interval(0, 10)[0] == 0.0
        assert wilson_interval(10, 10)[1] == pytest.approx(1.0)


class TestOrt:
    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"turbo": 1}, ["turbo", "threads", "execution_provider"]),
            ({"threads": 3}, ["1 to 2"]),
            ({"threads": True}, ["1 to 2"]),
            ({"graph_optimization": "most"}, ["disabled, basic, extended, all"]),
            ({"execution_mode": []}, ["sequential, parallel"]),
            ({"execution_provider": "TPUExecutionProvider"}, ["CPUExecutionProvider"]),
        ],
    )
    def test_wrong_parameters_name_what_is_accepted(
        self, tmp_path: Path, parameters: Mapping[str, object], words: list[str]
    ) -> None:
        model = tmp_path / "m.onnx"
        model.write_bytes(linear_model(np.eye(4)))
        sentence = refused("user_input", OrtEngine().load, model, threads=2, parameters=parameters)
        assert all(word in sentence for word in words), sentence

    def test_parameters_reach_the_engine(self, tmp_path: Path) -> None:
        model = tmp_path / "m.onnx"
        model.write_bytes(linear_model(np.eye(4)))
        facts = (
            OrtEngine()
            .load(
                model,
                threads=2,
                parameters={
                    "threads": 1,
                    "graph_optimization": "basic",
                    "execution_mode": "parallel",
                },
            )
            .facts
        )
        assert (facts["threads"], facts["graph_optimization"]) == (1, "basic")
        assert facts["execution_mode"] == "parallel"

    def test_inputs_are_described_in_numpys_words(self, tmp_path: Path) -> None:
        session = OrtEngine().load(LIGHT / "light_squeezenet.onnx", threads=1, parameters={})
        assert list(session.inputs) == [TensorSpec("data_0", (1, 3, 224, 224), "float32")]

    def test_feeds_that_do_not_fit_are_the_users_matter(self, tmp_path: Path) -> None:
        model = tmp_path / "m.onnx"
        model.write_bytes(linear_model(np.eye(4)))
        session = OrtEngine().load(model, threads=1, parameters={})
        refused("user_input", session.run, {"x": np.zeros((1, 5), np.float32)})
        refused("user_input", session.run, {})

    def test_an_onnxruntime_that_does_not_confine_models_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import onnxruntime

        for version in ("1.20.1", "1.23.2", "1.24.4"):
            monkeypatch.setattr(onnxruntime, "__version__", version)
            sentence = refused("engine_unsupported", OrtEngine)
            assert version in sentence
            assert "1.25 or later" in sentence
        monkeypatch.setattr(onnxruntime, "__version__", "1.100.0.dev20260101")
        OrtEngine()

    def test_a_model_that_keeps_weights_elsewhere_is_refused(self, tmp_path: Path) -> None:
        import onnx

        model = onnx.load_from_string(linear_model(np.eye(64)))
        onnx.save_model(
            model,
            str(tmp_path / "m.onnx"),
            save_as_external_data=True,
            location="weights.bin",
            size_threshold=0,
        )
        sentence = refused(
            "user_model", OrtEngine().load, tmp_path / "m.onnx", threads=1, parameters={}
        )
        assert "outside the ONNX file" in sentence


def test_a_web_page_instead_of_a_dataset_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    path.write_bytes(b"<html><body>Sign in</body></html>")
    sentence = refused("user_input", open_dataset, path, [TestRawRows.INPUT], None)
    assert sentence.startswith("dataset 'rows.npz' is a web page, not an .npz or a ZIP file: check")


class TestRawRows:
    INPUT = TensorSpec("x", (None, 2, 3), "float32")

    def test_rows_without_a_header_are_the_model_s_input(self, tmp_path: Path) -> None:
        rows = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        path = tmp_path / "rows.bin"
        rows.tofile(path)
        found = open_dataset(path, [self.INPUT], None, raw=True)
        assert (found.rows, found.labels) == (4, None)
        np.testing.assert_array_equal(found.batch(1, 3)["x"], rows[1:3])
        assert "neither an .npz" in refused("user_input", open_dataset, path, [self.INPUT], None)

    @pytest.mark.parametrize(
        ("content", "shape", "expected"),
        [
            (b"", (None, 2, 3), "not whole rows"),
            (b"x" * 25, (None, 2, 3), "24 bytes each"),
            (b"x" * 24, (None, None, 3), "leaves a size open"),
        ],
    )
    def test_what_is_no_whole_rows_is_refused(
        self, tmp_path: Path, content: bytes, shape: tuple[int | None, ...], expected: str
    ) -> None:
        path = tmp_path / "rows.bin"
        path.write_bytes(content)
        spec = TensorSpec("x", shape, "float32")
        assert expected in refused("user_input", open_dataset, path, [spec], None, raw=True)
