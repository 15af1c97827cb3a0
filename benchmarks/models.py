"""Real networks without a download: the light models that the onnx package carries."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

NETWORKS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


def light(name: str) -> Path:
    """``light_<name>.onnx``: the real graph with constant weights, so the latency is real."""
    return Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"


def ncnn_squeezenet(folder: Path) -> Path:
    """``light_squeezenet.onnx`` in ncnn's form, with made-up weights, in a folder.

    The committed text was made by pnnx 20261020 of that file, after its weights had been written
    out; the input got the file's name and its size, which pnnx does not write. Each convolution has
    a mark for float32, its weights and its biases.
    """
    text = (Path(__file__).parent / "data/squeezenet.ncnn.param").read_text()
    rng = np.random.default_rng(0)
    parts = []
    for line in text.splitlines():
        if line.startswith("Convolution"):
            stated = dict(word.split("=") for word in line.split() if "=" in word)
            weights = rng.normal(0, 0.05, int(stated["6"])).astype("<f4")
            parts += [bytes(4), weights.tobytes(), bytes(4 * int(stated["0"]))]
    (folder / "squeezenet.param").write_text(text)
    (folder / "squeezenet.bin").write_bytes(b"".join(parts))
    return folder / "squeezenet.param"


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """What a network asks of a board, by its graph alone.

    Attributes:
        parameters: Elements of all weights, those that the light models make up included.
        macs: Multiplications of its convolutions and dense layers, one inference.
        largest: Elements of its largest activation.
    """

    nodes: int
    parameters: int
    macs: int
    largest: int


def with_batch(name: str, batch: int) -> onnx.ModelProto:
    """A light model that takes ``batch`` images at once; all its fixed shapes follow."""
    model = onnx.load(light(name))
    if batch == 1:
        return model
    fixed = {each.name: each for each in model.graph.initializer}
    for value in [*model.graph.input, *model.graph.output]:
        shape = value.type.tensor_type.shape.dim
        if value.name not in fixed and len(shape) > 1:
            shape[0].dim_value = batch
    del model.graph.value_info[:]
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[1] in fixed:
            target = numpy_helper.to_array(fixed[node.input[1]]).copy()
            if target[0] == 1:
                target[0] = batch
                fixed[node.input[1]].CopyFrom(numpy_helper.from_array(target, node.input[1]))
    return model


def facts_of(model: onnx.ModelProto) -> NetworkFacts:
    """By shape inference, whatever the weights are."""
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: tuple(each.dim_value for each in value.type.tensor_type.shape.dim)
        for value in [*inferred.value_info, *inferred.input, *inferred.output]
    }
    constants = {each.name for each in inferred.initializer}
    shapes |= {each.name: tuple(each.dims) for each in inferred.initializer}
    macs = 0
    for node in inferred.node:
        if node.op_type == "ConstantOfShape" or (
            node.op_type == "Reshape" and node.input[0] in constants
        ):
            constants.add(node.output[0])
        elif node.op_type == "Conv":
            macs += prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:])
        elif node.op_type == "Gemm":
            weights, out = shapes[node.input[1]], shapes[node.output[0]]
            macs += prod(out) * prod(weights) // out[-1]
    made = {out for node in inferred.node for out in node.output} - constants
    return NetworkFacts(
        nodes=len(inferred.node),
        parameters=sum(
            prod(shapes.get(name, ())) for name in constants if len(shapes.get(name, ())) > 1
        ),
        macs=int(macs),
        largest=max(int(np.prod(shapes.get(name, (0,)))) for name in made),
    )
