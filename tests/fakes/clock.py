"""Time that moves when the test says so."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass
class FixedClock:
    """Stands still between two calls of `forward`."""

    at: datetime

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.at.timestamp()

    def forward(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
