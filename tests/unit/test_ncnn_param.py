"""An ncnn model's text is looked through before ncnn, which trusts it, reads it."""

import pytest

from edgeyard.devices.runner import ncnn_param
from edgeyard.devices.runner.ncnn_param import read_param
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO

DIGITS = (DEMO / "digits.ncnn.param").read_bytes()


def text(*layers: str, blobs: int = 2, count: int | None = None) -> bytes:
    stated = len(layers) if count is None else count
    return "\n".join(["7767517", f"{stated} {blobs}", *layers, ""]).encode()


def test_inputs_and_outputs_are_the_blobs_that_nothing_makes_or_takes() -> None:
    found = read_param(DIGITS)
    (image,) = found.inputs
    assert (image.name, image.shape, image.dtype) == ("image", (None, 1, 8, 8), "float32")
    assert found.outputs == ("logits",)
    assert found.layers == 9
    assert found.operators["Convolution"] == 2


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ("", None),
        ("0=5", (None, 5)),
        ("0=5 1=4", (None, 4, 5)),
        ("0=5 1=4 2=3", (None, 3, 4, 5)),
        ("0=5 1=4 11=2 2=3", (None, 3, 2, 4, 5)),
    ],
)
def test_sizes_are_in_numpys_order_behind_the_rows(sizes: str, shape: object) -> None:
    found = read_param(text(f"Input in 0 1 a {sizes}", "ReLU r 1 1 a b"))
    assert found.inputs[0].shape == shape


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "7767517", id="nothing"),
        pytest.param(b"\x80\x04pickle", "7767517", id="another kind"),
        pytest.param(b"7767517x\n1 1\n", "7767517", id="magic"),
        pytest.param(b"7767517\n\xff\xff\n", "no text", id="encoding"),
        pytest.param(b"7767517\n", "how many", id="no counts"),
        pytest.param(b"7767517\n-1 1\n", "how many", id="negative"),
        pytest.param(text("Input in 0 1 a", count=99), "states 99 layers", id="layers"),
        pytest.param(text("Input in 0 1 a", count=999_999_999), "and has 1", id="too many"),
        pytest.param(text("Input in 0 1 a", "ReLU r 1 1 a b", blobs=7), "7 blobs", id="blobs"),
        pytest.param(text("Input in 0 1 a", "ReLU r 1 999999 a b"), "all its blobs", id="count"),
        pytest.param(text("Input in 0 1 a", "ReLU r 1 1 z b"), "'z' before", id="unknown blob"),
        pytest.param(text("Input in 0 1 a", "ReLU r 1 1 a a"), "twice", id="made twice"),
        pytest.param(text("Input in 0 1 a", "ReLU r 1 1 a b zero"), "parameter", id="parameter"),
        pytest.param(text("Input in 0 1 a 0=-5", "ReLU r 1 1 a b"), "size", id="size"),
        pytest.param(text("Input in 0 1 a 0=99999999", "ReLU r 1 1 a b"), "size", id="large"),
        pytest.param(text("ReLU r 0 1 b", blobs=1), "no input", id="no input"),
        pytest.param(text("Input in 0 1 a", blobs=1), "no output", id="no output"),
        pytest.param(text("Input in 0 1 " + "a" * 300, blobs=1), "a name", id="name"),
        pytest.param(text("Input in 0 1 a " + "0=1 " * 30_000, blobs=1), "a line", id="line"),
    ],
)
def test_hostile_and_damaged_files_are_the_models_fault(content: bytes, reason: str) -> None:
    with pytest.raises(RunFailed, match=reason) as caught:
        read_param(content)
    assert caught.value.category == "user_model"


def test_a_parameter_may_be_a_text_with_blanks() -> None:
    """As pnnx writes the sizes of a reshape that depend on the input's."""
    content = text("Input in 0 1 a", 'Reshape r 1 1 a b 6="1,1, //(1000,0n),0n" 2=1')
    assert read_param(content).outputs == ("b",)


def test_layers_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFailed, match="more than 5 layers"):
        read_param(DIGITS, max_layers=5)
    monkeypatch.setattr(ncnn_param, "MAX_BYTES", 100)
    with pytest.raises(RunFailed, match="at most 100"):
        read_param(DIGITS)
