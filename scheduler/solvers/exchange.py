"""Programmes over binary variables as arrays, and the answers of the process that solves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pulp import LpProblem, LpVariable

STARTED = b"+"
"""What the process writes before its first answer."""

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

    @classmethod
    def of(cls, problem: LpProblem, variables: Sequence[LpVariable]) -> Programme:
        """Return PuLP's problem, with its variables in this order."""
        column_of = {variable: column for column, variable in enumerate(variables)}
        constraints = problem.constraints()
        right = np.array([-each.constant for each in constraints], np.float64)
        senses = np.array([each.sense for each in constraints])
        return cls(
            costs=np.array([problem.objective.get(each, 0.0) for each in variables], np.float64),
            rows=np.repeat(np.arange(len(constraints)), [len(each) for each in constraints]),
            columns=np.array([column_of[x] for each in constraints for x in each], np.intp),
            entries=np.array([k for each in constraints for k in each.values()], np.float64),
            lower=np.where(senses < 0, -np.inf, right),
            upper=np.where(senses > 0, np.inf, right),
        )

    def holds(self, chosen: NDArray[np.bool_]) -> bool:
        """Return whether a solution keeps all constraints, within rounding errors."""
        sums = np.bincount(
            self.rows, weights=self.entries * chosen[self.columns], minlength=len(self.upper)
        )
        slack = _TOLERANCE * (1.0 + np.abs(self.upper))
        return bool((sums <= self.upper + slack).all() and (sums >= self.lower - slack).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SolverAnswer:
    """What a solver found.

    Attributes:
        chosen: Shape (variables,): which are 1; None: it found nothing.
        bound: On the objective; NaN for none.
        proven: It is optimal within the gap that was allowed.
    """

    chosen: NDArray[np.bool_] | None
    bound: float
    proven: bool

    def to_bytes(self) -> bytes:
        """Return what `from_bytes` reads."""
        chosen = () if self.chosen is None else self.chosen
        return np.array([self.bound, self.proven, *chosen], np.float64).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, variables: int) -> SolverAnswer:
        """Read an answer.

        Raises:
            ValueError: It is none to a programme with this number of variables.
        """
        bound, proven, *chosen = np.frombuffer(data, np.float64).tolist()
        if len(chosen) not in (0, variables) or not {proven, *chosen} <= {0.0, 1.0}:
            raise ValueError(f"{len(chosen)} values for {variables} variables")
        return cls(
            chosen=np.array(chosen, np.bool_) if chosen else None, bound=bound, proven=proven > 0.0
        )
