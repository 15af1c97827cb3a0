"""Small quantised ``.tflite`` models, written by the format's own object API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray


@dataclass(frozen=True)
class Quantized:
    """How a tensor of whole numbers states real ones: scale * (whole - zero_point)."""

    dtype: str
    scale: float
    zero_point: int

    def whole(self, real: Any) -> NDArray[Any]:
        """The nearest whole numbers, within the type."""
        bounds = np.iinfo(self.dtype)
        nearest = np.round(np.asarray(real, np.float64) / self.scale) + self.zero_point
        return np.clip(nearest, bounds.min, bounds.max).astype(self.dtype)

    def real(self, whole: Any) -> NDArray[np.float64]:
        """What whole numbers state."""
        found: NDArray[np.float64] = (np.asarray(whole, np.float64) - self.zero_point) * self.scale
        return found


def _tensor(name: str, shape: Sequence[int], how: Quantized, buffer: int = 0) -> Any:
    kinds = {"int8": "INT8", "uint8": "UINT8", "int16": "INT16", "int32": "INT32"}
    return schema.TensorT(
        name=name.encode(),
        shape=list(shape),
        shapeSignature=[-1, *shape[1:]] if buffer == 0 else None,
        type=getattr(schema.TensorType, kinds[how.dtype]),
        buffer=buffer,
        quantization=schema.QuantizationParametersT(scale=[how.scale], zeroPoint=[how.zero_point]),
    )


def _model(
    operator: Any, code: int, version: int, tensors: list[Any], constants: list[NDArray[Any]]
) -> bytes:
    model = schema.ModelT(
        version=3,
        operatorCodes=[
            schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=version)
        ],
        subgraphs=[
            schema.SubGraphT(
                tensors=tensors,
                inputs=[0],
                outputs=[len(tensors) - 1],
                operators=[operator],
                name=b"main",
            )
        ],
        buffers=[
            schema.BufferT(data=None),
            *(schema.BufferT(data=np.frombuffer(each.tobytes(), np.uint8)) for each in constants),
        ],
    )
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def requantizing_model(shape: Sequence[int], x: Quantized, y: Quantized, version: int = 2) -> bytes:
    """``y = x``, quantised in another way; ``shape`` is that of one row."""
    return _model(
        schema.OperatorT(opcodeIndex=0, inputs=[0], outputs=[1]),
        schema.BuiltinOperator.QUANTIZE,
        version,
        [_tensor("x", (1, *shape), x), _tensor("y", (1, *shape), y)],
        [],
    )


def custom_model(operator: str) -> bytes:
    """A model with an operator that is not one of TensorFlow Lite's own."""
    how = Quantized("int8", 0.1, 0)
    known = requantizing_model((4,), how, how)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(known))
    code = model.operatorCodes[0]
    code.deprecatedBuiltinCode = code.builtinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = operator.encode()
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def dense_model(shape: Sequence[int], weights: NDArray[Any], x: Quantized, y: Quantized) -> bytes:
    """``y = weights @ x`` of each flattened row of this shape; weights: (outputs, values)."""
    how = Quantized(x.dtype, float(np.abs(weights).max()) / 127, 0 if x.dtype == "int8" else 128)
    bias = Quantized("int32", x.scale * how.scale, 0)
    tensors = [
        _tensor("x", (1, *shape), x),
        _tensor("w", weights.shape, how, buffer=1),
        _tensor("b", (len(weights),), bias, buffer=2),
        _tensor("y", (1, len(weights)), y),
    ]
    operator = schema.OperatorT(
        opcodeIndex=0,
        inputs=[0, 1, 2],
        outputs=[3],
        builtinOptionsType=schema.BuiltinOptions.FullyConnectedOptions,
        builtinOptions=schema.FullyConnectedOptionsT(),
    )
    return _model(
        operator,
        schema.BuiltinOperator.FULLY_CONNECTED,
        4,
        tensors,
        [how.whole(weights), np.zeros(len(weights), np.int32)],
    )
