"""The variables of a trainable tflite file: read them while it runs, write them back into it.

A trained variable lives in the interpreter and is lost with it, and the interpreter has no call to
read one. In the file, a variable is a name; the values it begins with are constants of the
subgraph that ``CALL_ONCE`` runs first. So: before training, the model in memory gets one more
signature that returns every variable (`readable`); after training, the values replace those
constants in the file (`with_values`). What comes out is the same model, already trained.

Uses ``schema_py_generated`` of ``ai_edge_litert`` (the format's own object API); the standard
library and NumPy otherwise; Python 3.10.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import RunFailed

READ_SIGNATURE = "edgeyard_read_variables"

_ALIGNMENT = 16
"""Alignment of constants, as the format's schema requires (``force_align: 16``)."""

_UNREADABLE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    UnicodeDecodeError,
    ValueError,
    struct.error,
)
"""What the object API raises on a damaged file: it checks nothing itself."""


@dataclass(frozen=True)
class Variable:
    """A variable and the operation that gives it its first values.

    Attributes:
        key: Container and name, as operations refer to it.
        label: Its output in the reading signature.
        subgraph: Index of the subgraph that initialises it.
        operator: Index of the ``ASSIGN_VARIABLE`` there.
        tensor: Index of the tensor it is assigned from.
    """

    key: tuple[bytes, bytes]
    label: str
    subgraph: int
    operator: int
    tensor: int

    @property
    def name(self) -> str:
        """Name of the variable as text."""
        return self.key[1].decode("utf-8", "replace")


class TrainableFile:
    """A tflite model with variables.

    Raises:
        RunFailed: ``user_model``: damaged, or without variables that a signature could train.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        try:
            self.variables = _variables(self._parsed())
        except _UNREADABLE as error:
            raise _damaged(error) from error
        if not self.variables:
            raise RunFailed(
                "user_model",
                "the tflite model has no variables: convert it with "
                "experimental_enable_resource_variables=True so that its train signature can "
                "change weights",
            )

    def readable(self) -> bytes:
        """Return the model with the signature `READ_SIGNATURE`, whose outputs are the labels."""
        from ai_edge_litert import schema_py_generated as schema

        try:
            model = self._parsed()
            _add_reading(model, self.variables, schema)
            return _packed(model)
        except _UNREADABLE as error:
            raise _damaged(error) from error

    def with_values(self, values: Mapping[str, NDArray[np.generic]]) -> bytes:
        """Return the model with these initial values of its variables (by label)."""
        try:
            model = self._parsed()
            for variable in self.variables:
                _set_first_value(model, variable, values[variable.label])
            _empty_unused(model, self.variables)
            return _packed(model)
        except _UNREADABLE as error:
            raise _damaged(error) from error

    def _parsed(self) -> Any:
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromPackedBuf(bytearray(self._content), 0)
        if any(buffer.offset > 1 for buffer in model.buffers):
            raise RunFailed("user_model", "tflite files with weights past 2 GB can't be trained")
        return model


def _variables(model: Any) -> tuple[Variable, ...]:
    from ai_edge_litert import schema_py_generated as schema

    operators = schema.BuiltinOperator
    code = [max(each.builtinCode, each.deprecatedBuiltinCode) for each in model.operatorCodes]
    initialisers = {
        int(operator.builtinOptions.initSubgraphIndex)
        for graph in model.subgraphs
        for operator in graph.operators or []
        if code[operator.opcodeIndex] == operators.CALL_ONCE
    }
    found: dict[tuple[bytes, bytes], Variable] = {}
    for index in sorted(initialisers):
        handles: dict[int, tuple[bytes, bytes]] = {}
        for position, operator in enumerate(model.subgraphs[index].operators or []):
            kind = code[operator.opcodeIndex]
            if kind == operators.VAR_HANDLE:
                handles[int(operator.outputs[0])] = _key(operator)
            elif kind == operators.ASSIGN_VARIABLE:
                key = handles[int(operator.inputs[0])]
                label = found[key].label if key in found else f"variable_{len(found)}"
                found[key] = Variable(key, label, index, position, int(operator.inputs[1]))
    return tuple(found.values())


def _key(operator: Any) -> tuple[bytes, bytes]:
    options = operator.builtinOptions
    return bytes(options.container or b""), bytes(options.sharedName or b"")


def _add_reading(model: Any, variables: tuple[Variable, ...], schema: Any) -> None:
    """Append a subgraph that initialises what is not yet, and returns every variable."""
    graph = schema.SubGraphT(
        tensors=[], inputs=[], outputs=[], operators=[], name=READ_SIGNATURE.encode()
    )
    outputs = []
    for index in sorted({variable.subgraph for variable in variables}):
        once = schema.CallOnceOptionsT(initSubgraphIndex=index)
        graph.operators.append(
            schema.OperatorT(
                opcodeIndex=_code_of(model, schema.BuiltinOperator.CALL_ONCE, schema),
                inputs=[],
                outputs=[],
                builtinOptionsType=schema.BuiltinOptions.CallOnceOptions,
                builtinOptions=once,
            )
        )
    for number, variable in enumerate(variables):
        source = model.subgraphs[variable.subgraph].tensors[variable.tensor]
        handle, value = 2 * number, 2 * number + 1
        graph.tensors += [
            schema.TensorT(shape=[], type=schema.TensorType.RESOURCE, name=b"handle_%d" % number),
            schema.TensorT(shape=source.shape, type=source.type, name=variable.label.encode()),
        ]
        container, shared_name = variable.key
        graph.operators += [
            schema.OperatorT(
                opcodeIndex=_code_of(model, schema.BuiltinOperator.VAR_HANDLE, schema),
                inputs=[],
                outputs=[handle],
                builtinOptionsType=schema.BuiltinOptions.VarHandleOptions,
                builtinOptions=schema.VarHandleOptionsT(
                    container=container, sharedName=shared_name
                ),
            ),
            schema.OperatorT(
                opcodeIndex=_code_of(model, schema.BuiltinOperator.READ_VARIABLE, schema),
                inputs=[handle],
                outputs=[value],
                builtinOptionsType=schema.BuiltinOptions.ReadVariableOptions,
                builtinOptions=schema.ReadVariableOptionsT(),
            ),
        ]
        graph.outputs.append(value)
        outputs.append(schema.TensorMapT(name=variable.label.encode(), tensorIndex=value))
    model.subgraphs.append(graph)
    model.signatureDefs = [
        *(model.signatureDefs or []),
        schema.SignatureDefT(
            inputs=[],
            outputs=outputs,
            signatureKey=READ_SIGNATURE.encode(),
            subgraphIndex=len(model.subgraphs) - 1,
        ),
    ]


def _code_of(model: Any, builtin: int, schema: Any) -> int:
    """Index of an operator in the model's table, added where the model doesn't use it."""
    for index, each in enumerate(model.operatorCodes):
        if max(each.builtinCode, each.deprecatedBuiltinCode) == builtin:
            return index
    # Codes above 127 don't fit the deprecated byte; 127 marks them (schema.fbs).
    model.operatorCodes.append(
        schema.OperatorCodeT(deprecatedBuiltinCode=127, builtinCode=builtin, version=1)
    )
    return len(model.operatorCodes) - 1


def _set_first_value(model: Any, variable: Variable, value: NDArray[np.generic]) -> None:
    """Let a variable begin with a constant of its own: the old one may be that of others, too."""
    from ai_edge_litert import schema_py_generated as schema

    graph = model.subgraphs[variable.subgraph]
    model.buffers.append(schema.BufferT(data=np.frombuffer(value.tobytes(), np.uint8)))
    graph.tensors.append(
        schema.TensorT(
            shape=list(value.shape),
            type=graph.tensors[variable.tensor].type,
            buffer=len(model.buffers) - 1,
            name=variable.label.encode(),
        )
    )
    operator = graph.operators[variable.operator]
    operator.inputs = [operator.inputs[0], len(graph.tensors) - 1]


def _empty_unused(model: Any, variables: tuple[Variable, ...]) -> None:
    """Drop the constants that variables began with, where nothing else uses them."""
    replaced = {(variable.subgraph, variable.tensor) for variable in variables}
    still_read = {
        (index, int(tensor))
        for index, graph in enumerate(model.subgraphs)
        for operator in graph.operators or []
        for tensor in (() if operator.inputs is None else operator.inputs)
    }
    unused = replaced - still_read
    in_use = {entry.buffer for entry in model.metadata or []}
    in_use |= {
        tensor.buffer
        for index, graph in enumerate(model.subgraphs)
        for number, tensor in enumerate(graph.tensors or [])
        if (index, number) not in unused
    }
    for index, number in unused:
        tensor = model.subgraphs[index].tensors[number]
        if tensor.buffer not in in_use:
            model.buffers[tensor.buffer].data = None


class _AlignedBuffer:
    """Packs a constant on the boundary that the schema demands; the generated class does not."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def Pack(self, builder: Any) -> Any:
        from ai_edge_litert import schema_py_generated as schema

        vector = None
        if self._buffer.data is not None:
            content = bytes(memoryview(self._buffer.data))
            builder.StartVector(1, len(content), _ALIGNMENT)
            builder.head -= len(content)
            builder.Bytes[builder.head : builder.head + len(content)] = content
            vector = builder.EndVector()
        schema.BufferStart(builder)
        if vector is not None:
            schema.BufferAddData(builder, vector)
        return schema.BufferEnd(builder)


def _packed(model: Any) -> bytes:
    import flatbuffers

    model.buffers = [_AlignedBuffer(buffer) for buffer in model.buffers]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _damaged(error: Exception) -> RunFailed:
    return RunFailed(
        "user_model", f"the tflite file is damaged ({type(error).__name__} while reading it)"
    )
