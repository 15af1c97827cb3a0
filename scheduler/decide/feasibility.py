"""Which boards each class may use, and the reason for every no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.scheduler.framework.batch import Batch
from edgeyard.scheduler.framework.protocols import Filter, Refusal
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import WaitingReason

FITS = 0
"""Code of a pair that no filter refused."""


class Reason(NamedTuple):
    """What a code of the table means.

    A tuple, because each cycle makes one for each refusal of each filter.

    Attributes:
        plugin: The filter that refused; None where it failed instead of answering.
        code: The filter's own code.
        place: Its place among the filters, from 0: the later, the nearer the board came.
    """

    plugin: Filter | None
    code: int
    place: int
    refusal: Refusal
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Feasibility:
    """The filters' answers.

    Attributes:
        codes: Shape (classes, boards), uint8: 0 fits, else ``reasons[code - 1]``. Where several
            filters refuse, the first that says never counts, else the first that says not now.
        reasons: What the codes mean.
        fits: Shape (classes, boards).
        possible: Shape (classes, boards): fits, or may fit later.
    """

    codes: NDArray[np.uint8]
    reasons: tuple[Reason, ...]
    fits: NDArray[np.bool_]
    possible: NDArray[np.bool_]

    def reason(self, code: int) -> Reason:
        """Return the reason of a code above 0."""
        return self.reasons[code - 1]


def feasibility(batch: Batch, filters: tuple[Filter, ...], runner: PluginRunner) -> Feasibility:
    """Ask all filters.

    A filter that fails refuses every board for now, as its verdict is unknown.
    """
    reasons: list[Reason] = []
    answers: list[tuple[NDArray[np.uint8], int, tuple[Refusal, ...]]] = []
    for place, plugin in enumerate(filters):
        before = len(reasons)
        answer = runner.admit(plugin, batch)
        if answer is None:
            refusals: tuple[Refusal, ...] = (Refusal(WaitingReason.FILTER_FAILED, never=False),)
            answer = np.ones((1, batch.shape[1]), dtype=np.uint8)
            reasons.append(Reason(None, 1, place, refusals[0], str(runner.faults[-1])))
        else:
            refusals = plugin.refusals
            reasons += [
                Reason(plugin, code, place, refusal)
                for code, refusal in enumerate(refusals, start=1)
            ]
        if np.count_nonzero(answer):  # most filters refuse no board; ``any`` takes longer
            answers.append((answer, before, refusals))
    codes = np.zeros(batch.shape, dtype=np.uint8)
    # The last writer wins: first what is not now, then what is never, each from last to first.
    written: list[int] = []
    for never in (False, True):
        for answer, before, refusals in reversed(answers):
            written += _write(
                codes, answer, before, [refusal.never is never for refusal in refusals]
            )
    fits = codes == FITS
    possible = fits.copy()
    for code in written:
        if not reasons[code - 1].refusal.never:
            possible |= codes == code
    return Feasibility(codes=codes, reasons=tuple(reasons), fits=fits, possible=possible)


def _write(
    codes: NDArray[np.uint8], answer: NDArray[np.uint8], before: int, wanted: list[bool]
) -> list[int]:
    """Put a filter's answers, of the refusals that are wanted, over what is in the table.

    Returns:
        The codes that were written: most filters refuse no board.
    """
    written = []
    for place, each in enumerate(wanted):
        # With one refusal an answer is 0 or 1 already: a look at it is no work.
        refused = answer if len(wanted) == 1 else (answer == place + 1).view(np.uint8)
        if not each or not refused.any():
            continue
        code = before + place + 1
        if answer.shape[0] == 1 and codes.shape[0] > 1:
            codes[:, np.flatnonzero(refused[0])] = code
        else:
            codes *= refused ^ 1  # arithmetic: a copy under a mask goes cell by cell
            codes += refused * np.uint8(code)
        written.append(code)
    return written
