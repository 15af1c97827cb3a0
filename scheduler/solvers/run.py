"""Hand a programme to CBC or HiGHS, with limits, and state how good the answer is."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pulp

SOLVERS = ("cbc", "highs")

_BOUND = re.compile(r"^(?:Lower|Upper) bound:\s+(\S+)", re.MULTILINE)
_MIN_TIME_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a solver may take.

    One thread and a bound on nodes: within its time a solver gives the same answer each time.

    Attributes:
        solver: ``cbc`` (a process of PuLP's own) or ``highs`` (in this process; the extra
            ``highs``).
        time_s: After it the best that was found is used.
        gap: Relative, at which an answer is good enough.
        nodes: Of the search tree.
    """

    solver: str = "cbc"
    time_s: float = 1.0
    gap: float = 0.005
    nodes: int = 10_000

    def less(self, seconds: float) -> Limits:
        """With less time."""
        return replace(self, time_s=max(_MIN_TIME_S, self.time_s - seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverResult:
    """How it ended.

    Attributes:
        found: There are values.
        optimal: They are within the gap that was asked for.
        value: Of the objective.
        gap: ``|value - bound| / |value|``; NaN where the solver reported no bound.
    """

    found: bool
    optimal: bool
    value: float
    gap: float
    seconds: float


def ready(solver: str) -> str:
    """Return what keeps the solver from being used; "" where nothing does.

    Loads what solving takes, which is slow once: called when a scorer is made, not in a cycle.
    """
    import pulp
    import scipy.sparse.csgraph  # noqa: F401

    if solver not in SOLVERS:
        return f"{solver!r} is none of {', '.join(SOLVERS)}"
    if solver == "highs" and not pulp.HiGHS(msg=False).available():
        return "highs is not installed; install edgeyard[highs]"
    return ""


def run(problem: pulp.LpProblem, limits: Limits) -> SolverResult:
    """Solve; the values are in the problem's variables.

    PuLP's status says Optimal even when a time limit stopped the solver; ``sol_status`` shows that.

    Raises:
        RuntimeError: The solver is missing, or failed.
    """
    import pulp

    try:
        bound = _highs(problem, limits) if limits.solver == "highs" else _cbc(problem, limits)
    except (pulp.PulpSolverError, OSError) as error:
        raise RuntimeError(f"solver {limits.solver} failed: {error}") from error
    found = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    value = float(problem.objective.value() or 0.0) if found else np.nan
    optimal = problem.sol_status == pulp.LpSolutionOptimal
    if bound is None:
        gap = 0.0 if optimal else np.nan
    else:
        gap = abs(value - bound) / max(abs(value), 1e-12)
    return SolverResult(
        found=found,
        optimal=found and (optimal or gap <= limits.gap),
        value=value,
        gap=gap if found else np.nan,
        seconds=float(problem.solutionTime or 0.0),
    )


def _cbc(problem: pulp.LpProblem, limits: Limits) -> float | None:
    """Return the bound in the solver's log; None: it proved its answer."""
    import pulp
    from pulp.apis.coin_api import pulp_cbc_path  # the CBC that PuLP brings

    with tempfile.TemporaryDirectory(prefix="edgeyard-cbc-") as folder:
        log = Path(folder) / "cbc.log"
        solver = pulp.COIN_CMD(
            path=pulp_cbc_path,
            msg=False,
            timeLimit=limits.time_s,
            gapRel=limits.gap,
            threads=1,
            maxNodes=limits.nodes,
            logPath=str(log),
        )
        solver.tmpDir = folder
        problem.solve(solver)
        found = _BOUND.findall(log.read_text(errors="replace"))
    return float(found[-1]) if found else None


def _highs(problem: pulp.LpProblem, limits: Limits) -> float | None:
    import pulp

    solver = pulp.HiGHS(
        msg=False,
        timeLimit=limits.time_s,
        gapRel=limits.gap,
        threads=1,
        mip_max_nodes=limits.nodes,
    )
    problem.solve(solver)
    # PuLP hands HiGHS a maximisation as a minimisation of the negative.
    bound = problem.sense * float(problem.solverModel.getInfo().mip_dual_bound)
    return bound if np.isfinite(bound) else None
