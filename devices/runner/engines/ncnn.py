"""Engine ``ncnn``: models in ncnn's own form, a ``.param`` file with its ``.bin``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.runner.engine import Engine, Session, SharingEngine, TensorSpec
from edgeyard.devices.runner.engine_parameters import (
    bad_parameter,
    check_names,
    read_choice,
    read_threads,
)
from edgeyard.devices.runner.feeds import check_feeds
from edgeyard.devices.runner.model_archive import PARAM, is_archive, open_archive
from edgeyard.devices.runner.ncnn_param import ParamFacts, read_param
from edgeyard.devices.runner.onnx_file import open_model
from edgeyard.devices.runner.sealed import sealed
from edgeyard.errors import RunFailed

Array = NDArray[np.generic]

PARAMETERS = ("threads", "fp16", "bf16", "int8", "powersave")
POWERSAVE = ("all", "little", "big")
"""Cores that ncnn uses, in the order of its numbers."""

_SWITCHES: Mapping[str, Tuple[str, ...]] = {
    "fp16": ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"),
    "bf16": ("use_bf16_packed", "use_bf16_storage"),
    "int8": ("use_int8_inference", "use_int8_packed", "use_int8_storage", "use_int8_arithmetic"),
}
"""The options of ncnn that each switch sets; older versions do not have all."""

_NO_MEMORY = -100


class NcnnSession:
    """A net of ncnn.

    ncnn has no batches: each row is a run of the net, one after another, and their outputs are
    stacked. The shapes of its outputs are known after the first run.
    """

    def __init__(self, ncnn: Any, net: Any, found: ParamFacts, facts: Mapping[str, object]) -> None:
        self.facts = facts
        self.inputs: Sequence[TensorSpec] = found.inputs
        self.outputs: Sequence[TensorSpec] = [
            TensorSpec(name, None, "float32") for name in found.outputs
        ]
        self._ncnn, self._found = ncnn, found
        self._net, self._mat = net, ncnn.Mat
        self._names = [spec.name for spec in found.inputs]
        self._output_names = found.outputs
        self._kinds: Optional[List[Tuple[str, Tuple[int, ...], np.dtype[Any]]]] = None

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Implement `Session.run`."""
        kinds = [(name, value.shape, value.dtype) for name, value in feeds.items()]
        if kinds != self._kinds:
            self._check(feeds)
            found = self._rows(feeds)
            self._kinds = kinds
            self.outputs = [
                TensorSpec(spec.name, (None, *value.shape[1:]), value.dtype.name)
                for spec, value in zip(self.outputs, found, strict=True)
            ]
            return found
        return self._rows(feeds)

    def another(self) -> "NcnnSession":
        """Return a session of the same net; each run has an extractor of its own anyway."""
        return NcnnSession(self._ncnn, self._net, self._found, self.facts)

    def _rows(self, feeds: Mapping[str, Array]) -> List[Array]:
        rows = len(feeds[self._names[0]])
        if rows == 1:
            return [value[None] for value in self._row(feeds, 0)]
        each = [self._row(feeds, row) for row in range(rows)]
        try:
            return [np.stack(values) for values in zip(*each, strict=True)]
        except ValueError as error:
            raise RunFailed(
                "user_model", f"the net's outputs differ in shape from row to row: {error}"
            ) from error

    def _check(self, feeds: Mapping[str, Array]) -> None:
        check_feeds(self.inputs, feeds)
        rows = {value.shape[0] if value.ndim else 0 for value in feeds.values()}
        for name, value in feeds.items():
            if not 2 <= value.ndim <= 5 or 0 in value.shape:
                raise RunFailed(
                    "user_input",
                    f"input {name!r} takes rows of 1 to 4 dimensions, but got {list(value.shape)}",
                )
        if len(rows) > 1:
            raise RunFailed("user_input", "all inputs have to have equally many rows")

    def _row(self, feeds: Mapping[str, Array], row: int) -> List[Array]:
        extractor = self._net.create_extractor()
        for name in self._names:
            value = feeds[name][row]
            if not value.flags.c_contiguous:
                value = np.ascontiguousarray(value)
            # a copy of ncnn's own: its kernels need memory on their boundaries, and may write there
            if status := extractor.input(name, self._mat(value).clone()):
                raise _failure(status, f"take the input {name!r}")
        found: List[Array] = []
        for name in self._output_names:
            status, out = extractor.extract(name)
            if status:
                raise _failure(status, f"compute {name!r}")
            found.append(np.array(out))
        return found


class NcnnEngine:
    """ncnn on the CPU, one net a model."""

    name = "ncnn"

    def __init__(self) -> None:
        import ncnn

        self._ncnn = ncnn

    def load(self, model: Path, *, threads: int, parameters: Mapping[str, object]) -> Session:
        """Load an archive of a ``.param`` file and its ``.bin``.

        ``parameters``: ``threads`` (1 to the board's), ``fp16``, ``bf16`` and ``int8`` (true or
        false; otherwise as ncnn decides), ``powersave`` (all, little, big cores).

        Raises:
            RunFailed: ``user_model``, ``user_input``, ``engine_unsupported``, ``out_of_memory``.
        """
        check_names(parameters, PARAMETERS, self.name)
        threads = read_threads(parameters, threads)
        switches = _switches(parameters)
        powersave = read_choice(parameters, "powersave", POWERSAVE, POWERSAVE[0])
        if not is_archive(model):
            read_param(open_model(model))
            raise RunFailed(
                "user_model",
                "the weights of the ncnn model are missing: submit its .param and its .bin "
                "together, in one folder or zip",
            )
        archive = open_archive(model, (PARAM,))
        at, size = archive.weights()
        found = read_param(archive.model)
        self._check_operators(found)
        self._restrict_cores(powersave)
        net = self._ncnn.Net()
        net.opt.num_threads = threads
        for name, on in switches.items():
            for option in _SWITCHES[name]:
                if hasattr(net.opt, option):
                    setattr(net.opt, option, on)
        with (
            sealed(model, archive.offset, len(archive.model)) as param,
            sealed(model, at, size) as weights,
        ):
            started = time.perf_counter()
            if status := net.load_param(str(param)):
                raise _failure(status, "read the .param file")
            if status := net.load_model(str(weights)):
                raise _failure(status, "read its weights from the .bin file")
            loaded_ms = (time.perf_counter() - started) * 1e3
        facts: Dict[str, object] = {
            "load_ms": loaded_ms,
            "version": self._ncnn.__version__,
            "execution_provider": "CPU",
            "threads": threads,
            "powersave": powersave,
            **{name: bool(getattr(net.opt, options[1])) for name, options in _SWITCHES.items()},
            "model_nodes": found.layers,
        }
        return NcnnSession(self._ncnn, net, found, facts)

    def session_of_another_caller(self, session: Session) -> Session:
        """Return a session of the same net; see `SharingEngine`."""
        assert isinstance(session, NcnnSession)
        return session.another()

    def _check_operators(self, found: ParamFacts) -> None:
        missing = [each for each in found.operators if self._ncnn.layer_to_index(each) < 0]
        if missing:
            raise RunFailed(
                "engine_unsupported",
                f"this ncnn ({self._ncnn.__version__}) has no layer "
                f"{', '.join(repr(each) for each in missing[:5])}",
            )

    def _restrict_cores(self, powersave: str) -> None:
        """Let ncnn compute on some of the cores that this process may use, and on no others."""
        if powersave == POWERSAVE[0]:
            return
        if powersave == "little" and not self._ncnn.get_little_cpu_count():
            raise bad_parameter(
                "powersave", "this board has no little cores; all its cores are big"
            )
        before = os.sched_getaffinity(0)
        self._ncnn.set_cpu_powersave(POWERSAVE.index(powersave))
        if not os.sched_getaffinity(0) <= before:
            os.sched_setaffinity(0, before)
            raise bad_parameter(
                "powersave", f"the board's CPUs are not all of the machine's {powersave} cores"
            )


def _switches(parameters: Mapping[str, object]) -> Dict[str, bool]:
    found = {}
    for name in _SWITCHES:
        if name in parameters:
            on = parameters[name]
            if not isinstance(on, bool):
                raise bad_parameter(name, "is not true or false")
            found[name] = on
    if found.get("fp16") and found.get("bf16"):
        raise bad_parameter("bf16", "can't be on together with fp16")
    if found.get("bf16"):
        found.setdefault("fp16", False)  # ncnn would prefer it, which is on by default
    return found


def _failure(status: int, doing: str) -> RunFailed:
    if status == _NO_MEMORY:
        return RunFailed("out_of_memory", f"ncnn had not enough memory to {doing}")
    return RunFailed("user_model", f"ncnn can't {doing} (status {status}); the log has its message")


if TYPE_CHECKING:
    _engine: Engine = NcnnEngine()
    _sharing: SharingEngine = NcnnEngine()
    _session: Callable[..., Session] = NcnnSession
