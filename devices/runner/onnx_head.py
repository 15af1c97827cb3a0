"""The last dense layer of an ONNX model: find it, cut the graph before it, give it new weights.

Works on the file itself (`onnx_file`), which must have passed `onnx_file.inspect`. Only the
standard library and NumPy; Python 3.10.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner import onnx_file as onnx
from edgeyard.devices.runner.onnx_wire import Message
from edgeyard.errors import RunFailed

_TAIL_OPERATORS = {"Softmax", "LogSoftmax", "Identity", "Dropout", "Flatten", "Cast"}
"""What may stand between the last dense layer and an output: none has weights."""

_FREE_INITIALIZERS = 4
"""First IR version in which initialisers need not be inputs of the graph, too."""


@dataclass(frozen=True)
class Head:
    """Where the last dense layer is in its graph.

    Attributes:
        name: Of the node, or of its output.
        node: Index among the graph's nodes of the Gemm or MatMul.
        features: The value that it gets.
        weight: The value that holds its weights.
        bias: The value that holds its bias; "" where there is none.
        bias_node: Index of the node that adds the bias.
        bias_position: Which input of that node the bias is.
        alpha: Factor of the product; 1 but for a Gemm.
        beta: Factor of the bias; 1 but for a Gemm.
        transposed: The weights are stored as (outputs, inputs).
        output: Index among the graph's outputs.
        tail: Operators between the layer and that output.
    """

    name: str
    node: int
    features: str
    weight: str
    bias: str
    bias_node: int
    bias_position: int
    alpha: float
    beta: float
    transposed: bool
    output: int
    tail: tuple[str, ...]


def find_head(model: Path) -> Head:
    """Return the dense layer (Gemm, or MatMul with or without Add) that an output comes from.

    Raises:
        RunFailed: ``user_model``: there is none.
    """
    graph = _Graph(Message(onnx.open_model(model)))
    found = []
    for index, name in enumerate(graph.outputs):
        head, last = graph.head_of(name, index)
        if head is not None:
            return head
        found.append(last)
    ends = ", ".join(sorted(set(found))) or "nothing"
    raise RunFailed(
        "user_model",
        "engine ort trains the last dense layer (Gemm, or MatMul and Add), but this model ends in "
        f"{ends}",
    )


def cut(model: Path, head: Head) -> bytes:
    """Return the model without the head; the inputs of the head become its outputs."""
    message = Message(onnx.open_model(model))
    graph = _Graph(message)
    gone = set(graph.nodes[head.node].strings(onnx.NODE_OUTPUT))
    kept = [node for index, node in enumerate(graph.nodes) if index != head.node]
    size = -1
    while size != len(gone):
        size = len(gone)
        for node in kept:
            if gone.intersection(_reads(node)):
                gone.update(node.strings(onnx.NODE_OUTPUT))
        kept = [node for node in kept if not gone.intersection(node.strings(onnx.NODE_OUTPUT))]
    graph.message.drop(onnx.GRAPH_NODE)
    for node in kept:
        graph.message.add(onnx.GRAPH_NODE, node)
    graph.message.drop(onnx.GRAPH_OUTPUT)
    # An output that is an input too is refused by onnxruntime: hand it through.
    through = "edgeyard_features" if head.features in graph.inputs else ""
    if through:
        identity = Message()
        identity.add(onnx.NODE_INPUT, head.features)
        identity.add(onnx.NODE_OUTPUT, through)
        identity.add(onnx.NODE_OP_TYPE, "Identity")
        graph.message.add(onnx.GRAPH_NODE, identity)
    for name in [through or head.features, head.weight, head.bias]:
        if name:
            value = Message()
            value.add(onnx.VALUE_NAME, name)
            graph.message.add(onnx.GRAPH_OUTPUT, value)
    return message.encode()


def replaced(
    model: Path, head: Head, weight: NDArray[np.generic], bias: NDArray[np.generic] | None
) -> Message:
    """Return the model with other weights in its head.

    Args:
        weight: As the file stores them: shape, type and orientation of what is replaced.
        bias: None to leave it as it is.
    """
    message = Message(onnx.open_model(model))
    graph = _Graph(message)
    graph.put(head.node, 1, weight)
    if bias is not None:
        graph.put(head.bias_node, head.bias_position, bias)
    return message


class _Graph:
    """The main graph of a model, as far as cutting and patching need it."""

    def __init__(self, model: Message) -> None:
        graphs = model.messages(onnx.MODEL_GRAPH)
        if len(graphs) != 1:
            raise RunFailed("user_model", f"the ONNX file has {len(graphs)} graphs")
        self.message = graphs[0]
        self.ir_version = model.integer(onnx.MODEL_IR_VERSION)
        self.nodes = self.message.messages(onnx.GRAPH_NODE)
        self.tensors = {
            tensor.string(onnx.TENSOR_NAME): tensor
            for tensor in self.message.messages(onnx.GRAPH_INITIALIZER)
        }
        values = self.message.messages(onnx.GRAPH_INPUT)
        names = [value.string(onnx.VALUE_NAME) for value in values]
        self.inputs = [name for name in names if name not in self.tensors]
        values = self.message.messages(onnx.GRAPH_OUTPUT)
        self.outputs = [value.string(onnx.VALUE_NAME) for value in values]
        self.producer = {
            name: index
            for index, node in enumerate(self.nodes)
            for name in node.strings(onnx.NODE_OUTPUT)
        }

    def head_of(self, output: str, index: int) -> tuple[Head | None, str]:
        """Return the dense layer that produces an output, or the operator that prevents it."""
        tail: list[str] = []
        at = self.producer.get(output)
        while at is not None and len(tail) <= len(self.nodes):
            node = self.nodes[at]
            operator = node.string(onnx.NODE_OP_TYPE)
            inputs = node.strings(onnx.NODE_INPUT)
            head = None
            if operator == "Gemm" and len(inputs) >= 2:
                head = self._gemm(at, inputs, index, tail)
            elif operator == "MatMul" and len(inputs) == 2 and self.constant(inputs[1]):
                head = self._head(at, inputs, index, tail)
            elif operator == "Add" and len(inputs) == 2:
                head = self._matmul_and_add(at, inputs, index, tail)
            if head is not None:
                return head, operator
            if operator not in _TAIL_OPERATORS or not inputs:
                return None, operator
            tail.append(operator)
            at = self.producer.get(inputs[0])
        return None, tail[-1] if tail else "no node"

    def constant(self, name: str) -> bool:
        """Return whether a value is the same whatever the input."""
        waiting, seen = [name], set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or name in self.tensors or not name:
                continue
            seen.add(name)
            node = self.producer.get(name)
            if node is None:
                return False
            waiting.extend(_reads(self.nodes[node]))
        return True

    def put(self, node: int, position: int, array: NDArray[np.generic]) -> None:
        """Make an array the input of a node; a value that others use too stays what it is."""
        name = self.nodes[node].strings(onnx.NODE_INPUT)[position]
        uses = sum(_reads(each).count(name) for each in self.nodes) + self.outputs.count(name)
        if name in self.tensors and uses == 1:
            self.tensors[name].fields = onnx.tensor(name, array).fields
            return
        taken = {*self.tensors, *self.producer, *self.inputs}
        new = f"{name}_trained"
        while new in taken:
            new += "_"
        self.message.add(onnx.GRAPH_INITIALIZER, onnx.tensor(new, array))
        if self.ir_version < _FREE_INITIALIZERS:
            self.message.add(onnx.GRAPH_INPUT, onnx.value_info(new, array))
        self.nodes[node].replace_string(onnx.NODE_INPUT, position, new)

    def _gemm(self, at: int, inputs: list[str], output: int, tail: list[str]) -> Head | None:
        attributes = {
            attribute.string(onnx.ATTRIBUTE_NAME): attribute
            for attribute in self.nodes[at].messages(onnx.NODE_ATTRIBUTE)
        }

        def number(name: str) -> float:
            attribute = attributes.get(name)
            return 1.0 if attribute is None else attribute.floating(onnx.ATTRIBUTE_FLOAT, 0.0)

        def flag(name: str) -> bool:
            attribute = attributes.get(name)
            return attribute is not None and attribute.integer(onnx.ATTRIBUTE_INT) != 0

        alpha, beta = number("alpha"), number("beta")
        bias = inputs[2] if len(inputs) > 2 and beta != 0 else ""
        if flag("transA") or alpha == 0 or not self.constant(inputs[1]) or not self.constant(bias):
            return None
        return self._head(at, inputs, output, tail, bias, at, 2, alpha, beta, flag("transB"))

    def _matmul_and_add(
        self, at: int, inputs: list[str], output: int, tail: list[str]
    ) -> Head | None:
        for position in (0, 1):
            product = self.producer.get(inputs[1 - position])
            if product is None or not self.constant(inputs[position]):
                continue
            node = self.nodes[product]
            factors = node.strings(onnx.NODE_INPUT)
            is_product = node.string(onnx.NODE_OP_TYPE) == "MatMul" and len(factors) == 2
            if is_product and self.constant(factors[1]):
                return self._head(product, factors, output, tail, inputs[position], at, position)
        return None

    def _head(
        self,
        at: int,
        inputs: list[str],
        output: int,
        tail: list[str],
        bias: str = "",
        bias_node: int = -1,
        bias_position: int = -1,
        alpha: float = 1.0,
        beta: float = 1.0,
        transposed: bool = False,
    ) -> Head:
        node = self.nodes[at]
        return Head(
            name=node.string(onnx.NODE_NAME) or node.strings(onnx.NODE_OUTPUT)[0],
            node=at,
            features=inputs[0],
            weight=inputs[1],
            bias=bias,
            bias_node=bias_node,
            bias_position=bias_position,
            alpha=alpha,
            beta=beta,
            transposed=transposed,
            output=output,
            tail=tuple(tail),
        )


def _reads(node: Message) -> list[str]:
    """Every value that a node uses, those that its inner graphs take from outside included."""
    names = node.strings(onnx.NODE_INPUT)
    for attribute in node.messages(onnx.NODE_ATTRIBUTE):
        for number in (onnx.ATTRIBUTE_GRAPH, onnx.ATTRIBUTE_GRAPHS):
            for graph in attribute.messages(number):
                names.extend(
                    value.string(onnx.VALUE_NAME) for value in graph.messages(onnx.GRAPH_OUTPUT)
                )
                for inner in graph.messages(onnx.GRAPH_NODE):
                    names.extend(_reads(inner))
    return names
