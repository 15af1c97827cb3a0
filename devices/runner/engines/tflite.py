"""Engine ``tflite``: LiteRT (formerly TensorFlow Lite) by ``ai-edge-litert``."""

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import (
    Engine,
    Progress,
    Session,
    TensorSpec,
    TrainingConfig,
    TrainingEngine,
    TrainingResult,
    dimension_of,
)
from edgeyard.devices.runner.engine_parameters import bad_parameter
from edgeyard.devices.runner.engines.litert import (
    Options,
    interpreter_of,
    read_model,
    translated,
)
from edgeyard.devices.runner.feeds import check_feeds
from edgeyard.devices.runner.quantization import quantization_of
from edgeyard.devices.runner.tflite_file import DEFAULT_SIGNATURES

Array = NDArray[np.generic]

_Kind = tuple[tuple[int, ...], np.dtype[Any]]
"""What feeds are compared by: checked once, they may differ in nothing but their values."""


class TfliteEngine:
    """Runs ``.tflite`` models, and trains those that carry a ``train`` signature."""

    name = "tflite"

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, object]) -> Session:
        """Load a model; see `Engine.load`."""
        options = Options.of(parameters, threads)
        interpreter = interpreter_of(read_model(model), options)
        session: Session = translated("load", session_of, interpreter, options)
        return session

    def train(
        self,
        model: Path,
        config: TrainingConfig,
        x: Array,
        y: Array,
        out: Path,
        progress: Progress,
        *,
        threads: int,
        parameters: Mapping[str, object],
    ) -> TrainingResult:
        """Train by the model's own ``train`` signature; see `TrainingEngine.train`."""
        from edgeyard.devices.runner.engines import tflite_training

        return tflite_training.train(
            model, config, x, y, out, progress, threads=threads, parameters=parameters
        )


def session_of(interpreter: Any, options: Options) -> Session:
    """Return a session of one signature, or of the main graph where there is none to choose.

    Raises:
        RunFailed: ``user_input``: no such signature.
    """
    names: list[str] = list(interpreter.get_signature_list())
    signature = options.signature
    if signature and signature not in names:
        raise bad_parameter("signature", f"is not one of {', '.join(sorted(names)) or '(none)'}")
    chosen = signature or next((name for name in DEFAULT_SIGNATURES if name in names), "")
    if not chosen and len(names) == 1:
        chosen = names[0]
    facts = {
        "version": metadata.version("ai-edge-litert"),
        "execution_provider": "XNNPACK" if options.xnnpack else "CPU",
        "threads": options.threads,
        "signature": chosen or None,
    }
    main = _Main(interpreter, facts)
    if not chosen:
        return main
    runner = interpreter.get_signature_runner(chosen)
    return main.renamed(runner) or _Signature(runner, facts)


class _Main:
    """The interpreter's main graph, by its plain calls: what costs least around a run."""

    def __init__(self, interpreter: Any, facts: Mapping[str, object]) -> None:
        self._interpreter = interpreter
        self.facts = facts
        self._inputs: list[dict[str, Any]] = interpreter.get_input_details()
        self._outputs = [detail["index"] for detail in interpreter.get_output_details()]
        self.inputs: Sequence[TensorSpec] = [_spec(each["name"], each) for each in self._inputs]
        self.outputs: Sequence[TensorSpec] = [
            _spec(each["name"], each) for each in interpreter.get_output_details()
        ]
        self._has_scalars = any(spec.shape == () for spec in self.outputs)
        self._kinds: list[_Kind] | None = None

    def renamed(self, runner: Any) -> "_Main | None":
        """This graph under a signature's names; None where the signature has another graph."""
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        for details, own in (
            (inputs, self._inputs),
            (outputs, self._interpreter.get_output_details()),
        ):
            mine = {(each["index"], each["name"]) for each in own}
            if {(each["index"], each["name"]) for each in details.values()} != mine:
                return None
        position = {each["index"]: name for name, each in inputs.items()}
        self._inputs.sort(key=lambda each: position[each["index"]])
        self.inputs = [_spec(position[each["index"]], each) for each in self._inputs]
        self._outputs = [outputs[name]["index"] for name in sorted(outputs)]
        self.outputs = [_spec(name, outputs[name]) for name in sorted(outputs)]
        return self

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Implement `Session.run`."""
        values = [feeds[spec.name] for spec in self.inputs if spec.name in feeds]
        kinds = [(value.shape, value.dtype) for value in values]
        if kinds != self._kinds or len(feeds) != len(values):
            check_feeds(self.inputs, feeds)
            self._resize(kinds)
        found: list[Array] = translated("run", self._invoke, values)
        return [np.asarray(value) for value in found] if self._has_scalars else found

    def _resize(self, kinds: list[_Kind]) -> None:
        def resize() -> None:
            for detail, (shape, _) in zip(self._inputs, kinds, strict=True):
                self._interpreter.resize_tensor_input(detail["index"], shape)
            self._interpreter.allocate_tensors()

        self._kinds = None
        translated("run", resize)
        self._kinds = kinds

    def _invoke(self, values: list[Array]) -> list[Array]:
        for detail, value in zip(self._inputs, values, strict=True):
            self._interpreter.set_tensor(detail["index"], value)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]


class _Signature:
    """A signature with a graph of its own."""

    def __init__(self, runner: Any, facts: Mapping[str, object]) -> None:
        self._runner = runner
        self.facts = facts
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        self.inputs: Sequence[TensorSpec] = [_spec(name, inputs[name]) for name in sorted(inputs)]
        self.outputs: Sequence[TensorSpec] = [
            _spec(name, outputs[name]) for name in sorted(outputs)
        ]
        self._has_scalars = any(spec.shape == () for spec in self.outputs)
        self._kinds: list[_Kind] | None = None

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Implement `Session.run`."""
        values = [feeds[spec.name] for spec in self.inputs if spec.name in feeds]
        kinds = [(value.shape, value.dtype) for value in values]
        if kinds != self._kinds or len(feeds) != len(values):
            check_feeds(self.inputs, feeds)
            self._kinds = kinds
        found = translated("run", lambda: self._runner(**feeds))
        outputs = [found[spec.name] for spec in self.outputs]
        # LiteRT returns scalars as numbers
        return [np.asarray(value) for value in outputs] if self._has_scalars else outputs


def _spec(name: str, detail: Mapping[str, Any]) -> TensorSpec:
    # shape_signature holds -1 for open dimensions; it is empty on models without any.
    signature = detail.get("shape_signature", ())
    sizes = signature if len(signature) else detail["shape"]
    shape = tuple(dimension_of(int(size)) for size in sizes)
    dtype = np.dtype(detail["dtype"]).name
    stated = detail["quantization_parameters"]
    quantization = quantization_of(
        dtype, stated["scales"], stated["zero_points"], int(stated["quantized_dimension"])
    )
    return TensorSpec(name=name, shape=shape, dtype=dtype, quantization=quantization)


if TYPE_CHECKING:
    _engine: Engine = TfliteEngine()
    _training: TrainingEngine = TfliteEngine()
