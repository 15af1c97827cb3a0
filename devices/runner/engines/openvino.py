"""Engine ``openvino``: ONNX models and OpenVINO's own (IR, ``.xml`` with ``.bin``)."""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import (
    Engine,
    ProfilingEngine,
    Session,
    SharingEngine,
    TensorSpec,
    dimension_of,
)
from edgeyard.devices.runner.engine_parameters import (
    bad_parameter,
    check_names,
    read_choice,
    read_threads,
)
from edgeyard.devices.runner.feeds import check_feeds
from edgeyard.devices.runner.file_kind import HEAD_BYTES, is_ir
from edgeyard.devices.runner.layers import LayerEvent, LayerRun
from edgeyard.devices.runner.model_archive import IR, ONNX, is_archive, open_archive
from edgeyard.devices.runner.onnx_file import inspect, interface_of, open_model
from edgeyard.devices.runner.openvino_ir import ELEMENT_TYPES, port_name, read_ir
from edgeyard.devices.runner.sealed import sealed
from edgeyard.errors import RunFailed

if TYPE_CHECKING:
    from edgeyard.devices.runner.feeds import Feeds

Array = NDArray[np.generic]
T = TypeVar("T")

PARAMETERS = ("threads", "device", "performance_hint", "streams", "inference_precision")
HINTS = ("latency", "throughput", "none")
MAX_STREAMS = 1024

PROFILED_WARMUP_RUNS = 3
MAX_EVENTS = 200_000
"""Maximum layers of all profiled runs together."""

_MEMORY = re.compile(r"bad_alloc|allocate memory|out of memory|Cannot allocate", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"does not support the following ONNX operations|OpenVINO does not support|opset\d* |"
    r"unsupported opset|Unsupported operation|not supported|NOT_IMPLEMENTED|No conversion rule",
    re.IGNORECASE,
)
_MISSING_OPERATORS = re.compile(r"No conversion rule found for operations: (.*?)(?: --|$)")
_EXECUTED = "EXECUTED"
_Layer = Tuple[str, str, str, float]
"""Name, operator, kernel, and microseconds of a run on average."""


class OpenvinoSession:
    """A model that OpenVINO has compiled for one device."""

    def __init__(self, compiled: Any, facts: Mapping[str, object], names: "frozenset[str]") -> None:
        self.facts = facts
        self._compiled, self._names = compiled, names
        self.inputs: Sequence[TensorSpec] = [_spec(port, names) for port in compiled.inputs]
        self.outputs: Sequence[TensorSpec] = [_spec(port, names) for port in compiled.outputs]
        self._request = compiled.create_infer_request()
        self._infer: Any = self._request.infer
        self._places = {spec.name: place for place, spec in enumerate(self.inputs)}
        self._kinds: "Optional[List[Tuple[str, Tuple[int, ...], np.dtype[Any]]]]" = None

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Implement `Session.run`."""
        kinds = [(name, value.shape, value.dtype) for name, value in feeds.items()]
        if kinds != self._kinds:
            check_feeds(self.inputs, feeds)
            self._kinds = kinds
        places = self._places
        try:
            found = self._infer(
                {places[name]: value for name, value in feeds.items()}, share_inputs=True
            )
        except Exception as error:
            # OpenVINO's exceptions share no base but Exception
            raise _translated(error, running=True) from error
        return list(found.values())

    def another(self) -> "OpenvinoSession":
        """Return a session of the same compiled model with an inference request of its own."""
        return OpenvinoSession(self._compiled, self.facts, self._names)

    def layers(self) -> "List[_Layer]":
        """Return the layers in the order of the graph, with OpenVINO's counters."""
        return [
            (each.node_name, each.node_type, each.exec_type, each.real_time.total_seconds() * 1e6)
            for each in self._request.profiling_info
            if each.status.name == _EXECUTED
        ]


class OpenvinoEngine:
    """OpenVINO, one compiled model a session."""

    name = "openvino"

    def __init__(self) -> None:
        self._ov = import_openvino()
        self._core = self._ov.Core()
        # loads the devices' libraries, which belong to no model: neither their time nor memory
        self._devices = tuple(self._core.available_devices)

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, object]) -> Session:
        """Load an ONNX file, an IR without weights, or an archive of an IR and its weights.

        ``parameters``: ``threads`` (1 to the board's), ``device`` (one that OpenVINO finds),
        ``performance_hint`` (latency, throughput, none), ``streams`` (1 or more; by default as the
        hint decides), ``inference_precision`` (a type that the device computes with).

        Raises:
            RunFailed: ``user_model``, ``user_input``, ``engine_unsupported``, ``out_of_memory``.
        """
        return self._open(model, threads, parameters, profiling=False)

    def session_of_another_caller(self, session: Session) -> Session:
        """Return a request of the same compiled model; see `SharingEngine`.

        How many run at the same time is decided by ``streams`` and ``performance_hint``.
        """
        assert isinstance(session, OpenvinoSession)
        return _translating(session.another)

    def profile(
        self,
        model: Path,
        feeds_of: Callable[[Sequence[TensorSpec]], Mapping[str, Array]],
        out: Path,
        *,
        runs: int,
        max_s: float,
        threads: int,
        parameters: Mapping[str, object],
    ) -> Sequence[LayerRun]:
        """Measure the time of each layer by OpenVINO's counters; see `ProfilingEngine.profile`.

        They state how long a layer ran on average since the model was loaded, in whole
        microseconds, and not when: here each run has the mean of the runs after the first few, and
        its layers follow each other.
        """
        session = self._open(model, threads, parameters, profiling=True)
        feeds: Feeds = dict(feeds_of(session.inputs))
        for _ in range(PROFILED_WARMUP_RUNS):
            session.run(feeds)
        before = session.layers()
        if not before:
            raise RunFailed("engine_unsupported", "OpenVINO's counters reported no layer")
        spans: List[Tuple[float, float]] = []
        began = time.monotonic()
        for _ in range(max(1, min(runs, MAX_EVENTS // len(before)))):
            if spans and time.monotonic() - began > max_s:
                break
            started = time.perf_counter()
            session.run(feeds)
            spans.append((started * 1e6, (time.perf_counter() - started) * 1e6))
        layers = _means(before, session.layers(), len(spans))
        return [_layer_run(start_us, took_us, layers) for start_us, took_us in spans]

    def _open(
        self,
        model: Path,
        threads: int,
        parameters: Mapping[str, object],
        *,
        profiling: bool,
    ) -> OpenvinoSession:
        check_names(parameters, PARAMETERS, self.name)
        threads = read_threads(parameters, threads)
        device = read_choice(parameters, "device", self._devices, "CPU")
        config = self._config(parameters, device, threads)
        if profiling:
            config["PERF_COUNT"] = "YES"
        with ExitStack() as held:
            paths, names = _checked(model, held)
            started = time.perf_counter()
            compiled = _translating(
                lambda: self._core.compile_model(self._core.read_model(*paths), device, config)
            )
            loaded_ms = (time.perf_counter() - started) * 1e3
            facts = {
                "load_ms": loaded_ms,
                "version": _version(self._ov.__version__),
                "build": self._ov.__version__,
                "execution_provider": device,
                "device_name": self._property(self._core, "FULL_DEVICE_NAME", device),
                "threads": self._property(compiled, "INFERENCE_NUM_THREADS") or threads,
                "performance_hint": parameters.get("performance_hint", HINTS[0]),
                "streams": self._property(compiled, "NUM_STREAMS"),
                "inference_precision": _type_name(
                    self._property(compiled, "INFERENCE_PRECISION_HINT")
                ),
            }
            return _translating(lambda: OpenvinoSession(compiled, facts, names))

    def _config(
        self, parameters: Mapping[str, object], device: str, threads: int
    ) -> Dict[str, object]:
        hint = read_choice(parameters, "performance_hint", HINTS, HINTS[0])
        supported = self._property(self._core, "SUPPORTED_PROPERTIES", device) or {}
        config: Dict[str, object] = {}
        if hint != "none":
            config["PERFORMANCE_HINT"] = hint.upper()
        if "INFERENCE_NUM_THREADS" in supported:
            config["INFERENCE_NUM_THREADS"] = threads
        if "ENABLE_CPU_PINNING" in supported:
            config["ENABLE_CPU_PINNING"] = False  # the runner stays on the board's CPUs itself
        streams = parameters.get("streams")
        if streams is not None:
            if type(streams) is not int or not 1 <= streams <= MAX_STREAMS:
                raise bad_parameter("streams", f"is not a whole number from 1 to {MAX_STREAMS}")
            config["NUM_STREAMS"] = streams
        if "inference_precision" in parameters:
            config["INFERENCE_PRECISION_HINT"] = self._precision(parameters, device)
        return config

    def _precision(self, parameters: Mapping[str, object], device: str) -> str:
        """Return OpenVINO's name of a type that the device computes with."""
        stated = self._property(self._core, "OPTIMIZATION_CAPABILITIES", device) or ()
        known = {"FP32": "f32", "FP16": "f16", "BF16": "bf16"}
        accepted = {known[each] for each in stated if each in known} | {"f32"}
        return read_choice(parameters, "inference_precision", tuple(sorted(accepted)), "f32")

    def _property(self, of: Any, name: str, *device: str) -> Any:
        """Return a property; None where the device does not have it."""
        try:
            return of.get_property(*device, name)
        except Exception:  # devices differ in what they have
            return None


def import_openvino() -> Any:
    """Return the package, which would report its import to its maker.

    Raises:
        ImportError: It is not installed, or has no build for this machine.
    """
    # None: it can't be imported, and OpenVINO does without
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def _checked(model: Path, held: ExitStack) -> "Tuple[Tuple[Path, ...], frozenset[str]]":
    """Look into a model; return what OpenVINO reads, and the names that it states.

    Raises:
        RunFailed: ``user_model``, ``board_fault``.
    """
    if is_archive(model):
        archive = open_archive(model, (IR, ONNX))
        if archive.name.lower().endswith(ONNX):
            raise RunFailed(
                "user_model",
                "engine openvino takes an ONNX model as one file with its weights inside; with "
                "data files, convert it to OpenVINO's IR (ovc)",
            )
        at, size = archive.weights()
        read_ir(archive.model, size)
        xml = held.enter_context(sealed(model, archive.offset, len(archive.model)))
        return (xml, held.enter_context(sealed(model, at, size))), frozenset()
    view = open_model(model)  # of a size that is taken
    if is_ir(bytes(view[:HEAD_BYTES])):
        read_ir(view, None)
        return (held.enter_context(sealed(model)),), frozenset()
    view.release()
    copy = held.enter_context(sealed(model))
    inspect(copy)  # no external data, within limits
    inputs, outputs = interface_of(copy)
    return (copy,), frozenset(spec.name for spec in (*inputs, *outputs))


def _spec(port: Any, stated: "frozenset[str]") -> TensorSpec:
    names = sorted(port.names)
    preferred = [name for name in names if name in stated]
    kind = port.element_type.get_type_name()
    shape = port.partial_shape
    return TensorSpec(
        name=port_name(preferred or names, port.node.friendly_name),
        shape=None
        if shape.rank.is_dynamic
        else tuple(dimension_of(None if size.is_dynamic else size.get_length()) for size in shape),
        dtype=ELEMENT_TYPES.get(kind, kind),
    )


def _means(before: "List[_Layer]", after: "List[_Layer]", runs: int) -> "List[_Layer]":
    """Return the mean times of the last runs, from the means of all before them and of all."""
    spent_us = {layer[:3]: layer[3] for layer in before}
    all_runs = PROFILED_WARMUP_RUNS + runs
    return [
        (
            *layer[:3],
            max(
                0.0,
                (layer[3] * all_runs - spent_us.get(layer[:3], 0.0) * PROFILED_WARMUP_RUNS) / runs,
            ),
        )
        for layer in after
    ]


def _layer_run(start_us: float, took_us: float, layers: "List[_Layer]") -> LayerRun:
    events = []
    at_us = start_us
    for number, (name, operator, kernel, spent_us) in enumerate(layers):
        events.append(LayerEvent(name, operator, kernel, at_us, spent_us, 0, str(number)))
        at_us += spent_us
    return LayerRun(start_us, took_us, events)


def _version(build: str) -> str:
    """Return the release of a build such as ``2026.4.1-22982-27cdf1b2d1b-releases/2026/4``."""
    return build.partition("-")[0]


def _type_name(kind: Any) -> Optional[str]:
    return None if kind is None else kind.get_type_name()


def _translating(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        # OpenVINO's exceptions share no base but Exception
        raise _translated(error, running=False) from error


def _translated(error: Exception, *, running: bool) -> RunFailed:
    """Return the failure that an exception of OpenVINO means."""
    lines = [line for line in str(error).splitlines() if not line.startswith("Exception from")]
    whole = " ".join(" ".join(lines).split())
    text = whole[:500]
    if isinstance(error, MemoryError) or _MEMORY.search(text):
        return RunFailed("out_of_memory", f"OpenVINO had not enough memory: {text}")
    if missing := _MISSING_OPERATORS.search(whole):
        names = missing[1][:200]
        return RunFailed("engine_unsupported", f"this OpenVINO has no operator {names!r}")
    if not running and _UNSUPPORTED.search(whole):
        return RunFailed("engine_unsupported", f"this OpenVINO can't run the model: {text}")
    doing = "failed while running" if running else "could not be loaded"
    return RunFailed("user_model", f"the model {doing}: {text}")


if TYPE_CHECKING:
    _engine: Engine = OpenvinoEngine()
    _profiling: ProfilingEngine = OpenvinoEngine()
    _sharing: SharingEngine = OpenvinoEngine()
    _session: Callable[..., Session] = OpenvinoSession
