"""Time that moves when the test says so."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass
class FixedClock:
    """A machine's clocks: they stand still between two calls of `forward`.

    As the server's `Clock` it takes the time of day for right; to have steps guarded against, hand
    its two clocks to a `SteadyClock`.
    """

    at: datetime
    _monotonic_s: float = field(default=1000.0, init=False)

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def certain(self) -> datetime:
        return self.at

    def disagreement_s(self) -> float:
        return 0.0

    def pending_step_s(self) -> float:
        return 0.0

    def record(self, step_s: float = 0.0) -> str:
        return ""

    def take_step(self, step_s: float) -> None:
        raise AssertionError("its steps are never pending")

    def forward(self, seconds: float) -> None:
        """Time passes."""
        self.at += timedelta(seconds=seconds)
        self._monotonic_s += seconds

    def step(self, seconds: float) -> None:
        """Somebody sets the time of day; no time passes."""
        self.at += timedelta(seconds=seconds)
