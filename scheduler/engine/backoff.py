"""When to try again what failed, for each of many things by itself."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _RepeatedFailure:
    """Something that failed.

    Attributes:
        count: How often in a row.
        due_s: Monotonic time from which on it is tried again.
    """

    count: int
    due_s: float
    reason: str


class Backoff:
    """Remembers what failed by key: each failure in a row doubles the wait. One thread writes."""

    def __init__(self, first_s: float, max_s: float) -> None:
        """Begin without any failure.

        Args:
            first_s: Wait after the first failure.
            max_s: No wait is longer.
        """
        self._first_s = first_s
        self._max_s = max_s
        self._failing: dict[str, _RepeatedFailure] = {}

    def failed(self, key: str, reason: str, now_s: float) -> tuple[int, float]:
        """Note a failure; returns how many there were in a row, and the wait until the next try."""
        before = self._failing.get(key)
        count = 1 if before is None else before.count + 1
        wait_s = min(self._max_s, self._first_s * 2.0 ** min(count - 1, 32))
        self._failing = self._failing | {key: _RepeatedFailure(count, now_s + wait_s, reason)}
        return count, wait_s

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key that succeeded."""
        if key in self._failing:
            self._failing = {each: at for each, at in self._failing.items() if each != key}

    def waits(self, key: str, now_s: float) -> bool:
        """Return whether it failed and is not due yet."""
        failing = self._failing.get(key)
        return failing is not None and now_s < failing.due_s

    def retain(self, keys: Container[str]) -> None:
        """Forget all others."""
        if any(key not in keys for key in self._failing):
            self._failing = {key: each for key, each in self._failing.items() if key in keys}

    def reasons(self) -> Mapping[str, str]:
        """Return why each failed last, by key. Any thread."""
        return {key: each.reason for key, each in self._failing.items()}

    def __contains__(self, key: str) -> bool:
        return key in self._failing
