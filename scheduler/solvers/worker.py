"""Solves programmes with SciPy's HiGHS, one after another, until its input ends."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from edgeyard.scheduler.solvers.exchange import STARTED, Programme, SolverAnswer


def main() -> None:
    """Answer requests from standard input; what HiGHS itself prints is discarded."""
    import scipy.optimize  # slow once: before the first request
    import scipy.sparse  # noqa: F401

    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    answers.write(STARTED)
    with suppress(EOFError):
        while True:
            answer = solve(*pickle.load(sys.stdin.buffer)).to_bytes()
            answers.write(struct.pack("<Q", len(answer)) + answer)


def solve(programme: Programme, options: Mapping[str, float]) -> SolverAnswer:
    """Return what HiGHS finds within its options."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    shape = (len(programme.upper), len(programme.costs))
    matrix = csr_array((programme.entries, (programme.rows, programme.columns)), shape=shape)
    found = milp(
        programme.costs,
        integrality=np.ones(shape[1]),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, programme.lower, programme.upper),
        options=options,
    )
    bound = getattr(found, "mip_dual_bound", None)
    return SolverAnswer(
        chosen=None if found.x is None else np.asarray(found.x) > 0.5,
        bound=np.nan if bound is None else float(bound),
        proven=found.status == 0,
    )


if __name__ == "__main__":
    main()
