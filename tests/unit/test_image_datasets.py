"""Image datasets: what pixels a model gets, and which folder is an image's class."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from edgeyard.devices.runner.dataset import open_dataset
from edgeyard.devices.runner.engine import TensorSpec
from edgeyard.errors import RunFailed

RGB = TensorSpec("image", (None, 3, 8, 8), "float32")
GREY = TensorSpec("image", (None, 1, 8, 8), "float32")


def archive(folder: Path, files: Mapping[str, bytes]) -> Path:
    path = folder / "images.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def one(folder: Path, content: bytes, spec: TensorSpec = RGB, **wishes: object) -> NDArray[Any]:
    """What a model gets of an only image: shape (channels, height, width)."""
    dataset = open_dataset(archive(folder, {"a/1.png": content}), [spec], wishes)
    return np.asarray(dataset.batch(0, 1)[spec.name][0])


def refused(folder: Path, content: bytes, spec: TensorSpec = RGB, **wishes: object) -> str:
    with pytest.raises(RunFailed) as error:
        one(folder, content, spec, **wishes)
    assert error.value.category == "user_input"
    return error.value.sentence


def of_values(values: NDArray[Any]) -> Image.Image:
    return Image.fromarray(values)


def ramp(top: float, dtype: str) -> NDArray[Any]:
    """8 by 8 values from 0 to a top."""
    return np.linspace(0, top, 64).reshape(8, 8).astype(dtype)


def pgm(values: NDArray[Any], top: int) -> bytes:
    return b"P5 8 8 %d\n" % top + values.astype(">u2").tobytes()


class TestDepth:
    @pytest.mark.parametrize(
        ("kind", "content"),
        [
            ("png", lambda values: encoded(of_values(values))),
            ("tiff", lambda values: encoded(of_values(values), "TIFF")),
            ("pgm", lambda values: pgm(values, 65535)),
        ],
    )
    @pytest.mark.parametrize("spec", [RGB, GREY])
    def test_sixteen_bits_go_from_black_to_white(
        self, tmp_path: Path, kind: str, content: Any, spec: TensorSpec
    ) -> None:
        values = ramp(65535, "uint16")
        wishes = {"color": "L"} if spec is GREY else {}
        found = one(tmp_path, content(values), spec, **wishes)
        for channel in found:
            np.testing.assert_allclose(channel, values / 65535, atol=2e-6)

    def test_a_pgm_of_12_bits_states_its_white_and_others_may_be_told(self, tmp_path: Path) -> None:
        values = ramp(4095, "uint16")
        np.testing.assert_allclose(one(tmp_path, pgm(values, 4095))[0], values / 4095, atol=1e-5)
        content = encoded(of_values(values))
        np.testing.assert_allclose(
            one(tmp_path, content, max_value=4095)[0], values / 4095, atol=1e-6
        )
        sentence = refused(tmp_path, content, max_value=1000)
        assert "values from 0 to 4095; accepted are 0 to 1000" in sentence

    @pytest.mark.parametrize("top", [1023, 4095, 65535])
    def test_a_stated_white_of_a_pgm_is_in_the_numbers_of_the_file(
        self, tmp_path: Path, top: int
    ) -> None:
        values = ramp(top, "uint16")
        plain = b"P2 8 8 %d\n" % top + " ".join(map(str, values.ravel().tolist())).encode()
        for content in (pgm(values, top), plain):
            for white in (top, 2 * top):
                found = one(tmp_path, content, max_value=white)[0]
                np.testing.assert_allclose(found, values / white, atol=1e-5)
            sentence = refused(tmp_path, content, max_value=1000)
            assert f"values from 0 to {top}; accepted are 0 to 1000" in sentence

    @pytest.mark.parametrize(("dtype", "top"), [("int32", 70_000), ("float32", 3.5)])
    def test_what_states_no_white_is_refused_until_it_is_stated(
        self, tmp_path: Path, dtype: str, top: float
    ) -> None:
        values = ramp(top, dtype)
        content = encoded(of_values(values), "TIFF")
        assert '{"max_value": 1.0}' in refused(tmp_path, content)
        found = one(tmp_path, content, max_value=top)
        np.testing.assert_allclose(found[0], values / top, atol=1e-6)

    @pytest.mark.parametrize("value", [-1.0, float("nan")])
    def test_floats_that_are_no_brightness_are_refused(self, tmp_path: Path, value: float) -> None:
        values = np.full((8, 8), value, np.float32)
        assert "has values from" in refused(
            tmp_path, encoded(of_values(values), "TIFF"), max_value=1
        )

    def test_whole_numbers_get_rounded_pixels_and_what_they_can_hold(self, tmp_path: Path) -> None:
        content = encoded(of_values(ramp(65535, "uint16")))
        expected = np.rint(ramp(65535, "uint16") / 65535 * 255)
        for dtype in ("uint8", "int32"):
            spec = TensorSpec("image", (None, 3, 8, 8), dtype)
            np.testing.assert_array_equal(one(tmp_path, content, spec)[0], expected)
        signed = TensorSpec("image", (None, 3, 8, 8), "int8")
        assert "cannot hold 255" in refused(tmp_path, content, signed)
        found = one(tmp_path, content, signed, scale=1, mean=128)
        np.testing.assert_array_equal(found[0], expected - 128)

    @pytest.mark.parametrize("value", [0, -1, "white", True])
    def test_a_white_that_can_not_be_is_named(self, tmp_path: Path, value: object) -> None:
        content = encoded(Image.new("L", (8, 8)))
        assert "preprocessing/max_value" in refused(tmp_path, content, max_value=value)


def halves(mode: str, left: Any, right: Any) -> Image.Image:
    image = Image.new(mode, (8, 8), left)
    image.paste(right, (4, 0, 8, 8))
    return image


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("kind", ["PNG", "TIFF"])
    def test_images_are_upright_or_as_stored(
        self, tmp_path: Path, kind: str, orientation: int
    ) -> None:
        upright = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
        # what a camera stores, by the meaning of the numbers in the EXIF standard
        flip, mirror = np.flipud, np.fliplr
        stored = {
            1: upright,
            2: mirror(upright),
            3: flip(mirror(upright)),
            4: flip(upright),
            5: upright.T,
            6: np.rot90(upright),
            7: flip(mirror(upright)).T,
            8: np.rot90(upright, -1),
        }[orientation]
        exif = Image.Exif()
        exif[274] = orientation
        content = encoded(of_values(np.ascontiguousarray(stored)), kind, exif=exif)
        found = one(tmp_path, content, scale=1)
        np.testing.assert_array_equal(found[0], upright)
        kept = one(tmp_path, content, scale=1, orientation="stored")
        np.testing.assert_array_equal(kept[0], stored)

    def test_another_word_is_refused(self, tmp_path: Path) -> None:
        content = encoded(Image.new("L", (8, 8)))
        assert "exif, stored" in refused(tmp_path, content, orientation="up")


class TestTransparency:
    CLEAR = (200, 100, 50, 0)

    def images(self) -> dict[str, bytes]:
        palette = halves("P", 0, 1)
        palette.putpalette([200, 100, 50, 9, 9, 9])
        return {
            "RGBA": encoded(halves("RGBA", self.CLEAR, (9, 9, 9, 255))),
            "P": encoded(palette, transparency=0),
            "RGB": encoded(halves("RGB", (200, 100, 50), (9, 9, 9)), transparency=(200, 100, 50)),
            "WEBP": encoded(halves("RGBA", self.CLEAR, (9, 9, 9, 255)), "WEBP", lossless=True,
                            exact=True),
        }  # fmt: skip

    @pytest.mark.parametrize("kind", ["RGBA", "P", "RGB", "WEBP"])
    def test_transparent_pixels_need_a_colour_behind_them(self, tmp_path: Path, kind: str) -> None:
        content = self.images()[kind]
        assert '{"alpha": [255, 255, 255]}' in refused(tmp_path, content)
        behind = one(tmp_path, content, scale=1, alpha=[1, 2, 3])
        assert behind[:, 0, 0].tolist() == [1, 2, 3]
        assert behind[:, 0, 7].tolist() == [9, 9, 9]
        ignored = one(tmp_path, content, scale=1, alpha="ignore")
        assert ignored[:, 0, 0].tolist() == [200, 100, 50]

    @pytest.mark.parametrize(("mode", "colour"), [("RGBA", (7, 8, 9, 255)), ("LA", (8, 255))])
    def test_opaque_images_with_an_alpha_channel_need_nothing(
        self, tmp_path: Path, mode: str, colour: tuple[int, ...]
    ) -> None:
        found = one(tmp_path, encoded(Image.new(mode, (8, 8), colour)), scale=1)
        expected = colour[:3] if mode == "RGBA" else (8, 8, 8)
        assert tuple(found[:, 0, 0]) == expected

    def test_grey_halftones_are_mixed(self, tmp_path: Path) -> None:
        content = encoded(Image.new("LA", (8, 8), (200, 128)))
        found = one(tmp_path, content, GREY, color="L", scale=1, alpha=[0, 0, 0])
        assert found[0, 0, 0] == pytest.approx(200 * 128 / 255, abs=1)

    @pytest.mark.parametrize("alpha", ["white", [1, 2], [0, 0, 256], 3])
    def test_what_is_no_colour_is_named(self, tmp_path: Path, alpha: object) -> None:
        content = encoded(Image.new("L", (8, 8)))
        assert "preprocessing/alpha" in refused(tmp_path, content, alpha=alpha)


PIXEL = encoded(Image.new("L", (8, 8), 1))


def classes_of(folder: Path, names: Sequence[str], **wishes: object) -> dict[str, int]:
    """How many images each class has."""
    path = archive(folder, dict.fromkeys(names, PIXEL))
    dataset = open_dataset(path, [RGB], wishes)
    assert dataset.labels is not None
    counted: dict[str, int] = {}
    for label in dataset.labels.tolist():
        name = dataset.class_names[label]
        counted[name] = counted.get(name, 0) + 1
    return counted


def unclear(folder: Path, names: Sequence[str], **wishes: object) -> str:
    with pytest.raises(RunFailed) as error:
        classes_of(folder, names, **wishes)
    assert error.value.category == "user_input"
    return error.value.sentence


CAMERAS = [f"imgs/{one}/{cam}/{n}.png" for one in "ab" for cam in ("c1", "c2", "c3") for n in "01"]
PARTS = [f"imgs/{part}/{one}/{n}.png" for part in ("train", "val") for one in "ab" for n in "01"]
TINY = [f"tiny/train/{one}/images/{n}.png" for one in ("n1", "n2") for n in "01"]
OTHERS = ["d/train/cat/1.png", "d/train/cat/2.png", "d/val/dog/1.png"]
INSIDE = [f"{one}/{part}/1.png" for one in "ab" for part in ("Training", "test-set")]


class TestClassFolders:
    @pytest.mark.parametrize("names", [CAMERAS, TINY])
    def test_one_innermost_name_in_several_folders_is_refused_with_both_readings(
        self, tmp_path: Path, names: list[str]
    ) -> None:
        sentence = unclear(tmp_path, names)
        assert '{"class_folder": "innermost"}' in sentence
        assert '{"class_folder": "outermost"}' in sentence

    def test_the_level_that_is_stated_counts(self, tmp_path: Path) -> None:
        assert classes_of(tmp_path, CAMERAS, class_folder="outermost") == {"a": 6, "b": 6}
        assert classes_of(tmp_path, CAMERAS, class_folder="innermost") == {
            "c1": 4,
            "c2": 4,
            "c3": 4,
        }
        assert classes_of(tmp_path, TINY, class_folder="outermost") == {"n1": 2, "n2": 2}
        deep = [f"{site}/{one}/cam/1.png" for site in ("s1", "s2") for one in "ab"]
        assert classes_of(tmp_path, deep, class_folder=2) == {"a": 2, "b": 2}
        assert "fewer than 4 folders" in unclear(tmp_path, deep, class_folder=4)

    @pytest.mark.parametrize("names", [PARTS, OTHERS, INSIDE, ["train/1.png", "valid/2.png"]])
    def test_parts_of_a_dataset_are_not_mixed_silently(
        self, tmp_path: Path, names: list[str]
    ) -> None:
        sentence = unclear(tmp_path, names)
        assert "which look like parts of a dataset" in sentence
        assert '{"subset": "' in sentence
        assert '{"class_folder": "innermost"}' in sentence

    def test_parts_between_other_folders_are_found_too(self, tmp_path: Path) -> None:
        names = ["s1/train/a/1.png", "s2/val/b/1.png", "s1/train/c/1.png", "s2/val/d/1.png"]
        sentence = unclear(tmp_path, names)
        assert "has the folders 'train', 'val', which look like parts" in sentence
        assert '{"subset": "val"} (2 of 4 images)' in sentence
        assert classes_of(tmp_path, names, subset="val") == {"b": 1, "d": 1}

    def test_a_part_may_be_chosen_or_all_of_them(self, tmp_path: Path) -> None:
        assert "(4 of 8 images)" in unclear(tmp_path, PARTS)
        assert classes_of(tmp_path, PARTS, subset="val") == {"a": 2, "b": 2}
        assert classes_of(tmp_path, PARTS, subset="imgs/val") == {"a": 2, "b": 2}
        assert classes_of(tmp_path, PARTS, class_folder="innermost") == {"a": 4, "b": 4}
        assert classes_of(tmp_path, INSIDE, subset="test-set") == {"a": 1, "b": 1}
        assert classes_of(tmp_path, OTHERS, class_folder="innermost") == {"cat": 2, "dog": 1}
        sentence = unclear(tmp_path, PARTS, subset="test")
        assert "no images in a folder 'test'" in sentence
        assert "'val'" in sentence

    def test_images_next_to_a_folder_of_images_are_refused(self, tmp_path: Path) -> None:
        sentence = unclear(tmp_path, ["cat/1.png", "cat/more/2.png", "dog/1.png"])
        assert "both in 'cat' and in folders inside it" in sentence

    def test_folders_of_systems_are_no_classes(self, tmp_path: Path) -> None:
        names = ["i/a/1.png", "i/b/1.png", "i/a/@eaDir/SYNO.png", "__MACOSX/i/a/._1.png",
                 "i/a/.thumbs/1.png", "i/#recycle/1.png", "$RECYCLE.BIN/x/1.png"]  # fmt: skip
        assert classes_of(tmp_path, names) == {"a": 1, "b": 1}

    @pytest.mark.parametrize(
        "names",
        [
            ["cat/1.png", "dog/1.png"],
            ["x/y/cat/1.png", "x/y/dog/1.png"],
            ["animals/cat/1.png", "animals/dog/1.png", "things/car/1.png"],
            ["train/1.png", "bus/1.png"],
            ["train/cat/1.png", "train/dog/1.png"],
            ["cat/1.png"],
            ["test tube/1.png", "train station/1.png"],
        ],
    )
    def test_what_has_one_reading_needs_nothing(self, tmp_path: Path, names: list[str]) -> None:
        expected = {Path(name).parent.name: 1 for name in names}
        assert classes_of(tmp_path, names) == expected

    @pytest.mark.parametrize("value", [0, "leaf", True, 1.5])
    def test_a_level_that_can_not_be_is_named(self, tmp_path: Path, value: object) -> None:
        assert "preprocessing/class_folder" in unclear(tmp_path, ["a/1.png"], class_folder=value)
