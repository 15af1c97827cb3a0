"""Solves programmes with SciPy's HiGHS, one after another, until its input ends."""

from __future__ import annotations

import os
import struct
import sys
from typing import BinaryIO

import numpy as np

from edgeyard.scheduler.solvers.exchange import (
    SolverAnswer,
    SolverRequest,
    answer_to_bytes,
    programme_from_bytes,
)


def main() -> None:
    """Answer requests from standard input; what HiGHS itself prints is discarded."""
    import scipy.optimize  # slow once: before the first request
    import scipy.sparse  # noqa: F401

    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    answers.write(b"+")  # started
    while request := _read(sys.stdin.buffer):
        answer = answer_to_bytes(solve(programme_from_bytes(request)))
        answers.write(struct.pack("<Q", len(answer)) + answer)


def solve(request: SolverRequest) -> SolverAnswer:
    """Return what HiGHS finds within the limits of the request."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    programme = request.programme
    shape = (len(programme.upper), len(programme.costs))
    matrix = csr_array((programme.entries, (programme.rows, programme.columns)), shape=shape)
    found = milp(
        programme.costs,
        integrality=np.ones(shape[1]),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, programme.lower, programme.upper),
        options={
            "time_limit": request.time_s,
            "mip_rel_gap": request.gap,
            "node_limit": request.nodes,
        },
    )
    bound = getattr(found, "mip_dual_bound", None)
    return SolverAnswer(
        chosen=None if found.x is None else np.asarray(found.x) > 0.5,
        bound=np.nan if bound is None else float(bound),
        proven=found.status == 0,
    )


def _read(stream: BinaryIO) -> bytes:
    head = stream.read(8)
    return stream.read(struct.unpack("<Q", head)[0]) if len(head) == 8 else b""


if __name__ == "__main__":
    main()
