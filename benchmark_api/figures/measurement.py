"""A measured value with its interval and verdict."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What every figure draws.

    Args:
        value: In the unit of the axis.
        low: Lower end of the interval that the table shows, which may be 0; None: not known.
        high: Upper end.
        verdict: "comparable", "suspect" or "invalid"; "stopped": of a trial that was; "": of the
            value alone none is known.
    """

    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = "comparable"

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval; None where an end is not known."""
        return None if self.low is None or self.high is None else (self.low, self.high)
