"""An OpenVINO IR is looked through before anything loads it, whatever strangers wrote into it."""

import pytest

from edgeyard.devices.runner import openvino_ir
from edgeyard.devices.runner.openvino_ir import read_ir
from edgeyard.errors import RunFailed
from tests.builders.networks import DEMO

XML, WEIGHTS = (DEMO / "digits.xml").read_bytes(), (DEMO / "digits.bin").read_bytes()


def net(layers: str, head: str = "") -> bytes:
    graph = f'<net name="n" version="11"><layers>{layers}</layers></net>'
    return f'<?xml version="1.0"?>{head}{graph}'.encode()


def parameter(shape: str, names: str = 'names="x"', kind: str = "f32") -> str:
    return (
        f'<layer id="0" name="given" type="Parameter" version="opset1"><data shape="{shape}" '
        f'element_type="{kind}"/><output><port id="0" {names}/></output></layer>'
    )


def constant(offset: str, size: str) -> str:
    return (
        '<layer id="1" name="w" type="Const" version="opset1">'
        f'<data element_type="f32" shape="1" offset="{offset}" size="{size}"/></layer>'
    )


def refusal(xml: bytes, weights_bytes: int | None = None) -> str:
    with pytest.raises(RunFailed) as caught:
        read_ir(xml, weights_bytes)
    assert caught.value.category == "user_model"
    return caught.value.sentence


def test_inputs_have_names_shapes_and_types() -> None:
    found = read_ir(XML, len(WEIGHTS))
    (image,) = found.inputs
    assert (image.name, image.shape, image.dtype) == ("image", (None, 1, 8, 8), "float32")
    assert found.operators["Convolution"] == 2
    assert found.weights_bytes == len(WEIGHTS)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("", ()),
        ("1,3", (1, 3)),
        ("?,3", (None, 3)),
        ("-1, 3", (None, 3)),
        ("1..8,3", (None, 3)),
        ("...", None),
    ],
)
def test_open_and_ranged_dimensions_are_open(shape: str, expected: object) -> None:
    assert read_ir(net(parameter(shape)), None).inputs[0].shape == expected


def test_a_name_may_hold_a_comma_and_the_layers_own_is_the_last_resort() -> None:
    several = net(parameter("1", r'names="b,a\,c"'))
    assert read_ir(several, None).inputs[0].name == "a,c"
    assert read_ir(net(parameter("1", "")), None).inputs[0].name == "given"


def test_an_inner_graphs_inputs_are_not_the_models() -> None:
    inner = (
        f'<layer id="2" name="if" type="If"><body><layers>{parameter("7")}</layers></body></layer>'
    )
    assert [each.shape for each in read_ir(net(parameter("1") + inner), None).inputs] == [(1,)]


def test_weights_that_are_missing_or_too_short_are_named() -> None:
    assert ".bin" in refusal(XML)
    assert f"needs {len(WEIGHTS)} bytes" in refusal(XML, len(WEIGHTS) - 1)
    assert read_ir(net(parameter("1")), None).weights_bytes == 0


@pytest.mark.parametrize("place", [("-4", "4"), ("x", "4"), ("", "4"), ("9" * 30, "4")])
def test_weights_lie_at_a_number(place: tuple[str, str]) -> None:
    assert "'w'" in refusal(net(constant(*place)), 100)


BOMB = '<!DOCTYPE net [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        pytest.param(net(parameter("&b;"), BOMB), "document type", id="entities"),
        pytest.param(
            net(parameter("1"), '<!DOCTYPE net SYSTEM "file:///etc/passwd">'),
            "document type",
            id="external",
        ),
        pytest.param(net("<a>" * 200), "deep", id="depth"),
        pytest.param(net(parameter(",".join("1" * 40))), "dimensions", id="dimensions"),
        pytest.param(b"<html></html>", "root", id="web page"),
        pytest.param(net(""), "no layers", id="empty"),
        pytest.param(XML[:5000], "can't be read", id="cut"),
        pytest.param(b"\xff\xfe" + XML, "can't be read", id="encoding"),
        pytest.param(b"", "can't be read", id="nothing"),
    ],
)
def test_hostile_and_damaged_files_are_the_models_fault(xml: bytes, reason: str) -> None:
    assert reason in refusal(xml, 10**6)


def test_elements_layers_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFailed, match="more than 20 elements"):
        read_ir(XML, len(WEIGHTS), max_elements=20)
    monkeypatch.setattr(openvino_ir, "MAX_LAYERS", 5)
    assert "more than 5 layers" in refusal(XML, len(WEIGHTS))
    monkeypatch.setattr(openvino_ir, "MAX_BYTES", 100)
    assert "at most 100" in refusal(XML, len(WEIGHTS))
