"""Programmes over binary variables, as arrays, as bytes for a worker, and as MPS for CBC."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ANSWER = struct.Struct("<4sBBd")
"""Magic, whether there is a solution, whether it is proven optimal, the bound."""

_MAGIC = b"EYS1"
_REQUEST = struct.Struct("<4sQQQddQ")
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Programme:
    """Minimise ``costs @ x`` with binary x, subject to ``lower <= A x <= upper``.

    Attributes:
        costs: Shape (variables,).
        rows: Row of each entry of A.
        columns: Column of each entry.
        entries: Each entry's value.
        lower: Shape (rows,); -inf for none.
        upper: Shape (rows,).
    """

    costs: NDArray[np.float64]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    entries: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def holds(self, chosen: NDArray[np.bool_]) -> bool:
        """Return whether a solution keeps all constraints, within rounding errors."""
        sums = np.bincount(
            self.rows, weights=self.entries * chosen[self.columns], minlength=len(self.upper)
        )
        slack = _TOLERANCE * (1.0 + np.abs(self.upper))
        return bool((sums <= self.upper + slack).all() and (sums >= self.lower - slack).all())

    def as_mps(self) -> str:
        """Return the programme in the fixed MPS format, variables ``C0``, ``C1``, …"""
        kinds = np.where(np.isneginf(self.lower), "L", "E").tolist()
        order = np.lexsort((self.rows, self.columns))
        lines = ["NAME          EDGEYARD", "ROWS", " N  OBJ"]
        lines += [f" {kind}  R{row}" for row, kind in enumerate(kinds)]
        lines.append("COLUMNS")
        cells = [
            f"    C{column:<8}R{row:<8}{value:.12g}"
            for column, row, value in zip(
                self.columns[order].tolist(),
                self.rows[order].tolist(),
                self.entries[order].tolist(),
                strict=True,
            )
        ]
        starts = np.searchsorted(self.columns[order], np.arange(len(self.costs) + 1)).tolist()
        for column, cost in enumerate(self.costs.tolist()):
            lines.append(f"    C{column:<8}{'OBJ':<9}{cost:.12g}")
            lines += cells[starts[column] : starts[column + 1]]
        lines.append("RHS")
        lines += [f"    {'RHS':<9}R{row:<8}{value:.12g}" for row, value in enumerate(self.upper)]
        lines.append("BOUNDS")
        lines += [f" BV BND       C{column}" for column in range(len(self.costs))]
        return "\n".join([*lines, "ENDATA", ""])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolverAnswer:
    """What a worker found.

    Attributes:
        chosen: Shape (variables,): which are 1; None: it found nothing.
        bound: On the objective; NaN for none.
        proven: It is optimal within the gap that was allowed.
    """

    chosen: NDArray[np.bool_] | None
    bound: float
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRequest:
    """A programme and the limits by the solver's own options."""

    programme: Programme
    time_s: float
    gap: float
    nodes: int


def programme_to_bytes(programme: Programme, *, time_s: float, gap: float, nodes: int) -> bytes:
    """Return the request that `programme_from_bytes` reads."""
    head = _REQUEST.pack(
        _MAGIC,
        len(programme.costs),
        len(programme.upper),
        len(programme.entries),
        time_s,
        gap,
        nodes,
    )
    indices = (programme.rows, programme.columns)
    numbers = (programme.costs, programme.entries, programme.lower, programme.upper)
    return b"".join(
        (
            head,
            *(each.astype("<i8").tobytes() for each in indices),
            *(each.astype("<f8").tobytes() for each in numbers),
        )
    )


def programme_from_bytes(data: bytes) -> SolverRequest:
    """Return what `programme_to_bytes` wrote."""
    _, variables, rows, entries, time_s, gap, nodes = _REQUEST.unpack_from(data)
    at = _REQUEST.size
    arrays = []
    for kind, count in (
        ("<i8", entries),
        ("<i8", entries),
        ("<f8", variables),
        ("<f8", entries),
        ("<f8", rows),
        ("<f8", rows),
    ):
        arrays.append(np.frombuffer(data, dtype=kind, count=count, offset=at))
        at += 8 * count
    return SolverRequest(
        programme=Programme(
            rows=arrays[0],
            columns=arrays[1],
            costs=arrays[2],
            entries=arrays[3],
            lower=arrays[4],
            upper=arrays[5],
        ),
        time_s=time_s,
        gap=gap,
        nodes=nodes,
    )


def answer_to_bytes(answer: SolverAnswer) -> bytes:
    """Return the bytes that `answer_from_bytes` reads."""
    head = ANSWER.pack(_MAGIC, answer.chosen is not None, answer.proven, answer.bound)
    return head + (b"" if answer.chosen is None else answer.chosen.astype(np.uint8).tobytes())


def answer_from_bytes(data: bytes, variables: int) -> SolverAnswer:
    """Return what a worker found.

    Raises:
        ValueError: It is no answer to a programme with this number of variables.
    """
    if len(data) < ANSWER.size or data[:4] != _MAGIC:
        raise ValueError("not an answer of a solver")
    _, found, proven, bound = ANSWER.unpack_from(data)
    values = np.frombuffer(data, dtype=np.uint8, offset=ANSWER.size)
    if len(values) != (variables if found else 0) or values.max(initial=0) > 1:
        raise ValueError(f"{len(values)} values for {variables} variables")
    return SolverAnswer(
        chosen=values.astype(np.bool_) if found else None, bound=bound, proven=bool(proven)
    )
