"""Inference engines, found by name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Callable, Mapping, Tuple, cast

from edgeyard.devices.runner.engine import Engine
from edgeyard.devices.runner.sandbox import seccomp
from edgeyard.errors import RunFailed

GROUP = "edgeyard.engines"


@dataclass(frozen=True)
class BuiltInEngine:
    """An engine that Edgeyard brings, and what submissions to it are checked by.

    Attributes:
        reference: Its class, as ``module:name``.
        display_name: Its name for people.
        description: What it does, one sentence.
        suffixes: Of the names of its model files.
        profiles_layers: Whether its class is a `ProfilingEngine`.
        types: Edgeyard's own benchmark types that it offers.
    """

    reference: str
    display_name: str
    description: str
    suffixes: Tuple[str, ...]
    profiles_layers: bool = False
    types: Tuple[str, ...] = ("TYPE1", "TYPE2")

    @property
    def trains(self) -> bool:
        """Whether its class is a `TrainingEngine`."""
        return "TYPE3" in self.types


BUILT_IN: Mapping[str, BuiltInEngine] = {
    "ort": BuiltInEngine(
        reference="edgeyard.devices.runner.engines.ort:OrtEngine",
        display_name="ONNX Runtime",
        description="Runs ONNX models, and trains their last dense layer.",
        suffixes=(".onnx",),
        profiles_layers=True,
        types=("TYPE1", "TYPE2", "TYPE3"),
    ),
    # LiteRT has a profiler of layers, but its Python package does not give what it measured.
    "tflite": BuiltInEngine(
        reference="edgeyard.devices.runner.engines.tflite:TfliteEngine",
        display_name="LiteRT (TensorFlow Lite)",
        description="Runs and trains TensorFlow Lite models.",
        suffixes=(".tflite",),
        types=("TYPE1", "TYPE2", "TYPE3"),
    ),
    "openvino": BuiltInEngine(
        reference="edgeyard.devices.runner.engines.openvino:OpenvinoEngine",
        display_name="OpenVINO",
        description="Runs ONNX models and OpenVINO's own (IR).",
        suffixes=(".onnx", ".xml"),
        profiles_layers=True,
    ),
    # The package ncnn is built without its profiler (NCNN_BENCHMARK).
    "ncnn": BuiltInEngine(
        reference="edgeyard.devices.runner.engines.ncnn:NcnnEngine",
        display_name="ncnn",
        description="Runs models in ncnn's own form (.param with .bin).",
        suffixes=(".param",),
    ),
    "ort-genai": BuiltInEngine(
        reference="edgeyard.devices.runner.engines.ort_genai:OrtGenaiEngine",
        display_name="onnxruntime-genai",
        description="Runs language models: folders with genai_config.json.",
        suffixes=(),
        types=("TYPE1", "GENAI"),
    ),
}
"""No entry points are read for these: a zipapp has none, reading those of a full installation
takes 60 ms, and no other package can take these names."""


def find(name: str) -> Engine:
    """Return the engine of that name: a built-in one, or an installed package's entry point.

    An entry point of the group ``edgeyard.engines`` names a class without arguments, or a function
    that returns an `Engine`.

    Raises:
        RunFailed: ``engine_unsupported``: none of that name, two of it, or one that can't be
            imported here.
    """
    try:
        make = _built_in(BUILT_IN[name].reference) if name in BUILT_IN else _installed(name)
        return make()
    except ImportError as error:
        raise RunFailed(
            "engine_unsupported", f"engine {name!r} can't be loaded on this host: {error}"
        ) from error


def confine(engine: Engine) -> None:
    """Give up the right to start processes, for good, unless the engine needs it.

    Called when the engine is loaded and before it sees a model.
    """
    if not getattr(engine, "starts_processes", False):
        seccomp.forbid_new_processes()


def _built_in(reference: str) -> Callable[[], Engine]:
    module, _, attribute = reference.partition(":")
    return cast(Callable[[], Engine], getattr(importlib.import_module(module), attribute))


def _installed(name: str) -> Callable[[], Engine]:
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    named = [point for point in found if point.name == name]
    if not named:
        known = ", ".join(sorted({*BUILT_IN, *(point.name for point in found)}))
        raise RunFailed("engine_unsupported", f"no engine {name!r} on this host; it has {known}")
    if len({point.value for point in named}) > 1:
        places = ", ".join(sorted(point.value for point in named))
        raise RunFailed("engine_unsupported", f"engine {name!r} is installed twice: {places}")
    return cast(Callable[[], Engine], named[0].load())
