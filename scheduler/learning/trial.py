"""The limited child that loads an unknown model first: ``-m edgeyard.scheduler.learning.trial``.

Arguments: file, inputs, outputs, rows of a chunk. It bounds its own memory and CPU time, loads the
model, runs one whole chunk and the first rows of it alone, and prints one line of JSON: names of
input and output, or ``refused`` with the reason.
"""

from __future__ import annotations

import json
import os
import resource
import sys

import numpy as np

MEMORY_BYTES = 768 * 1024 * 1024
"""Maximum memory in addition to what onnxruntime itself has mapped."""

CPU_S = 30
_SUBSET_ROWS = 16
_TOLERANCE = 1e-4


def main() -> None:
    """Try a model, and write the outcome as JSON to standard output (see the module)."""
    path, inputs, outputs, rows = sys.argv[1], *(int(each) for each in sys.argv[2:5])
    try:
        found = _try(path, inputs, outputs, rows)
    except MemoryError:
        found = {"refused": f"it needs more than {MEMORY_BYTES >> 20} MiB for {rows} pairs"}
    except _ModelRefusal as error:
        found = {"refused": str(error)}
    except Exception as error:  # onnxruntime's exceptions share no base but Exception
        found = {"refused": " ".join(str(error).split())[:400]}
    sys.stdout.write(json.dumps(found) + "\n")


class _ModelRefusal(Exception):
    """Why the model may not be used."""


def _try(path: str, inputs: int, outputs: int, rows: int) -> dict[str, object]:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it writes files, and reports to its maker
    import onnxruntime

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _lower(resource.RLIMIT_CPU, CPU_S)
    _lower(resource.RLIMIT_AS, _mapped_bytes() + MEMORY_BYTES)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        path, sess_options=options, providers=["CPUExecutionProvider"]
    )
    takes, gives = session.get_inputs(), session.get_outputs()
    if len(takes) != 1 or len(gives) != 1:
        raise _ModelRefusal(
            f"it has {len(takes)} inputs and {len(gives)} outputs; a scorer has one each"
        )
    shape = list(takes[0].shape)
    if takes[0].type != "tensor(float)" or len(shape) != 2 or isinstance(shape[0], int):
        raise _ModelRefusal(
            f"its input is {takes[0].type} of shape {shape}; a scorer takes float32 of any number "
            f"of rows by {inputs} columns"
        )
    if shape[1] != inputs:
        raise _ModelRefusal(f"it takes {shape[1]} columns; its manifest names {inputs}")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, inputs)).astype(np.float32)
    y = session.run(None, {takes[0].name: x})[0]
    few = session.run(None, {takes[0].name: x[:_SUBSET_ROWS].copy()})[0]
    if y.dtype != np.float32 or y.shape != (rows, outputs):
        raise _ModelRefusal(
            f"it gave {y.dtype} of shape {y.shape} for {rows} pairs; "
            f"its manifest states float32 of shape {(rows, outputs)}"
        )
    if not np.isfinite(y).all():
        raise _ModelRefusal("its output for ordinary inputs contains NaN or infinity")
    if not np.allclose(y[:_SUBSET_ROWS], few, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise _ModelRefusal("its output for a pair depends on the other pairs of the same call")
    return {
        "input": takes[0].name,
        "output": gives[0].name,
    }


def _lower(which: int, value: int) -> None:
    """Lower a limit; one that the parent set lower stays, since it can't be raised again."""
    _, hard = resource.getrlimit(which)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (allowed, allowed))


def _mapped_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
