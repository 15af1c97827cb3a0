"""Engine ``ort``: ONNX models with onnxruntime."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    FrozenSet,
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
    Progress,
    Session,
    SharingEngine,
    TensorSpec,
    TrainingConfig,
    TrainingEngine,
    TrainingResult,
    dimension_of,
)
from edgeyard.devices.runner.engine_parameters import check_names, read_choice, read_threads
from edgeyard.devices.runner.model_archive import is_archive, open_archive
from edgeyard.devices.runner.onnx_file import class_numbers, inspect, interface_of, open_model
from edgeyard.devices.runner.sealed import sealed
from edgeyard.errors import RunFailed

if TYPE_CHECKING:
    import onnxruntime

    from edgeyard.devices.runner.layers import LayerRun

T = TypeVar("T")

MIN_VERSION = (1, 25)
"""Earlier ones let tensors of a model lie in any file that the process may read: up to 1.23 of any
model, in 1.24 of one that is loaded from bytes (onnxruntime's pull requests 26776 and 27430)."""

PARAMETERS = ("threads", "graph_optimization", "execution_mode", "execution_provider")

_DTYPES = {"float": "float32", "double": "float64"}
_OPTIMIZATIONS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_MODES = {"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"}
_LOG_ERRORS = 3

_MEMORY = re.compile(r"bad_alloc|allocate memory|out of memory|Cannot allocate", re.IGNORECASE)
_TOO_NEW = re.compile(
    r"Unsupported model IR version|opset \d+ is under development|Could not find an implementation"
    r"|NOT_IMPLEMENTED",
)
_MISSING_OPERATOR = re.compile(r"No Op registered for (\S+) with domain_version of (\d+)")
_MISSING_CUSTOM = re.compile(r"([\w.]+):(\w+)\(-?\d+\) is not a registered function")
_NO_IMPORT = re.compile(r"No opset import for domain '([^']*)'")
_PREFIX = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?:Load model from \S+ failed: ?)?(?:Fatal error: )?"
)
"""What onnxruntime writes before what is wrong: its own codes, and a path of the sandbox."""


class OrtSession:
    """A model in onnxruntime."""

    def __init__(self, opened: _Opened) -> None:
        session = opened.session
        self._session = session
        self._run: Any = session.run
        self._facts = opened.facts
        self._inputs = tuple(_spec(one, opened.unranked) for one in session.get_inputs())
        outputs = (_spec(one, opened.unranked) for one in session.get_outputs())
        self._outputs = tuple(replace(one, classes=opened.classes.get(one.name)) for one in outputs)

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Return the inputs of the network."""
        return self._inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Return the outputs of the network."""
        return self._outputs

    @property
    def facts(self) -> Mapping[str, object]:
        """Version, providers, threads and options."""
        return self._facts

    def run(self, feeds: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        """Implement `Session.run`.

        Raises:
            RunFailed: ``user_input`` for feeds that don't fit, ``out_of_memory``, ``user_model``.
        """
        try:
            # no cast(): its type would be built anew inside the timed call, which takes 5 µs
            outputs: Sequence[NDArray[np.generic]] = self._run(None, feeds)
            return outputs
        except Exception as error:
            # onnxruntime's exceptions share no base but Exception
            raise _translated(error, running=True) from error


class OrtEngine:
    """onnxruntime, one session a model."""

    name = "ort"

    def __init__(self) -> None:
        # not inside `load`, whose time is reported; not above, where it would cost those who only
        # look this class up
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes files, and reports to its maker
        import onnxruntime

        version = tuple(int(part) for part in re.findall(r"\d+", onnxruntime.__version__)[:2])
        if version < MIN_VERSION:
            raise RunFailed(
                "engine_unsupported",
                f"onnxruntime {onnxruntime.__version__} on this host is too old: it lets a model "
                "read files of the host. Install version "
                f"{'.'.join(map(str, MIN_VERSION))} or later.",
            )
        self._ort = onnxruntime

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, object]) -> OrtSession:
        """Load a model that is one file, or an archive of it and its data files.

        ``parameters``: ``threads`` (1 to the board's), ``graph_optimization`` (disabled, basic,
        extended, all), ``execution_mode`` (sequential, parallel), ``execution_provider``.

        Raises:
            RunFailed: ``user_model``, ``user_input``, ``engine_unsupported``, ``out_of_memory``.
        """
        return OrtSession(self._open(model, threads, parameters, profile_prefix=None))

    def session_of_another_caller(self, session: Session) -> Session:
        """Return the same session, which several threads may run at once; see `SharingEngine`."""
        return session

    def profile(
        self,
        model: Path,
        feeds_of: Callable[[Sequence[TensorSpec]], Mapping[str, NDArray[np.generic]]],
        out: Path,
        *,
        runs: int,
        max_s: float,
        threads: int,
        parameters: Mapping[str, object],
    ) -> Sequence[LayerRun]:
        """Measure the time of each layer; see `ProfilingEngine.profile`."""
        from edgeyard.devices.runner.engines import ort_profile

        prefix = out / ".profile"
        opened = self._open(model, threads, parameters, profile_prefix=prefix)
        session = OrtSession(opened)
        feeds = dict(feeds_of(session.inputs))
        return ort_profile.profile(session, opened.session, feeds, prefix, runs=runs, max_s=max_s)

    def _open(
        self,
        model: Path,
        threads: int,
        parameters: Mapping[str, object],
        *,
        profile_prefix: Optional[Path],
    ) -> _Opened:
        """Open onnxruntime's session, with its profiler on where a prefix is given."""
        ort = self._ort
        check_names(parameters, PARAMETERS, self.name)
        threads = read_threads(parameters, threads)
        optimization = read_choice(parameters, "graph_optimization", tuple(_OPTIMIZATIONS), "all")
        mode = read_choice(parameters, "execution_mode", tuple(_MODES), "sequential")
        available = tuple(ort.get_available_providers())
        provider = read_choice(parameters, "execution_provider", available, "CPUExecutionProvider")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = threads if mode == "parallel" else 1
        options.execution_mode = getattr(ort.ExecutionMode, _MODES[mode])
        options.graph_optimization_level = getattr(
            ort.GraphOptimizationLevel, _OPTIMIZATIONS[optimization]
        )
        options.log_severity_level = _LOG_ERRORS
        if profile_prefix is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile_prefix)
        # otherwise a file that is both formats would be looked at as one and loaded as the other
        options.add_session_config_entry("session.load_model_format", "ONNX")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        providers = list(dict.fromkeys((provider, "CPUExecutionProvider")))
        offset, size, data = 0, None, dict[str, memoryview]()
        if is_archive(model):
            archive = open_archive(model)
            offset, size, data = archive.offset, len(archive.model), dict(archive.data)
            options.add_external_initializers_from_files_in_memory(
                list(data), list(data.values()), [len(content) for content in data.values()]
            )
        else:
            open_model(model).release()  # of a size that is taken
        with sealed(model, offset, size) as copy:
            found = inspect(copy, data)  # external data in its own files only, within limits
            classes = class_numbers(copy)
            inputs, outputs = interface_of(copy)
            started = time.perf_counter()
            session = _translating(
                lambda: ort.InferenceSession(copy, sess_options=options, providers=providers)
            )
            loaded_ms = (time.perf_counter() - started) * 1e3
        if provider not in session.get_providers():
            raise RunFailed(
                "engine_unsupported",
                f"onnxruntime could not start {provider} on this board, and would have used "
                f"{', '.join(session.get_providers())} instead; its log says why",
            )
        return _Opened(
            session,
            facts={
                "load_ms": loaded_ms,
                "version": ort.__version__,
                "execution_provider": session.get_providers()[0],
                "execution_providers": session.get_providers(),
                "threads": threads,
                "graph_optimization": optimization,
                "execution_mode": mode,
                "model_nodes": found.nodes,
                "nodes_by_provider": _nodes_by_provider(session),
            },
            unranked=frozenset(one.name for one in (*inputs, *outputs) if one.shape is None),
            classes=classes,
        )

    def train(
        self,
        model: Path,
        config: TrainingConfig,
        x: NDArray[np.generic],
        y: NDArray[np.generic],
        out: Path,
        progress: Progress,
        *,
        threads: int,
        parameters: Mapping[str, object],
    ) -> TrainingResult:
        """Train the model's head; see `edgeyard.devices.runner.engines.ort_training`."""
        from edgeyard.devices.runner.engines.ort_training import train

        return train(model, config, x, y, out, progress, threads=threads, parameters=parameters)


@dataclass(frozen=True)
class _Opened:
    """onnxruntime's session, with what the report states of it.

    Attributes:
        unranked: Names of inputs and outputs of any number of dimensions, which onnxruntime shows
            like scalars.
        classes: Class numbers that outputs can hold, by name.
    """

    session: onnxruntime.InferenceSession
    facts: Mapping[str, object]
    unranked: FrozenSet[str]
    classes: Mapping[str, Tuple[int, ...]]


def _nodes_by_provider(session: onnxruntime.InferenceSession) -> Mapping[str, Mapping[str, float]]:
    """Return how many nodes of the optimised graph each provider runs, and which share of all."""
    counts: Dict[str, int] = {}
    for part in session.get_provider_graph_assignment_info():
        counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
    whole = sum(counts.values())
    return {
        name: {"nodes": count, "share": count / whole} for name, count in counts.items() if count
    }


def _spec(argument: Any, unranked: FrozenSet[str]) -> TensorSpec:
    match = re.fullmatch(r"tensor\((\w+)\)", argument.type)
    kind = match.group(1) if match else argument.type
    shape = None if argument.name in unranked else tuple(map(dimension_of, argument.shape))
    return TensorSpec(name=argument.name, shape=shape, dtype=_DTYPES.get(kind, kind))


def missing_operator(text: str) -> str:
    """Return the operator, with its version, that onnxruntime's message names as unknown; or ""."""
    if found := _MISSING_OPERATOR.search(text):
        return f"{found[1]!r} of version {found[2]}"
    found = _MISSING_CUSTOM.search(text)
    return f"{found[2]!r} of the domain {found[1]!r}" if found else ""


def _translating(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        # onnxruntime's exceptions share no base but Exception
        raise _translated(error, running=False) from error


def _translated(error: Exception, *, running: bool) -> RunFailed:
    """Return the failure that an exception of onnxruntime means."""
    whole = _PREFIX.sub("", " ".join(str(error).split()))
    text = whole[:500]
    if isinstance(error, MemoryError) or _MEMORY.search(text):
        return RunFailed("out_of_memory", f"onnxruntime had not enough memory: {text}")
    kind = type(error).__name__
    # ValueError: onnxruntime's own Python layer misses an input
    if running and (kind == "InvalidArgument" or isinstance(error, ValueError)):
        return RunFailed("user_input", f"the model did not take its input: {text}")
    if missing := missing_operator(whole):
        return RunFailed("engine_unsupported", f"this onnxruntime has no operator {missing}")
    if domain := _NO_IMPORT.search(whole):
        reason = f"the model has an operator of the domain {domain[1]!r}, which it does not import"
        return RunFailed("user_model", reason)
    if kind == "NotImplemented" or _TOO_NEW.search(text):
        return RunFailed("engine_unsupported", f"this onnxruntime can't run the model: {text}")
    doing = "failed while running" if running else "could not be loaded"
    return RunFailed("user_model", f"the model {doing}: {text}")


if TYPE_CHECKING:
    _engine: Engine = OrtEngine()
    _training: TrainingEngine = OrtEngine()
    _profiling: ProfilingEngine = OrtEngine()
    _sharing: SharingEngine = OrtEngine()
    _session: Callable[..., Session] = OrtSession
