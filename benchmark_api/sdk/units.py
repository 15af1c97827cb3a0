"""Units of the fields of a job description whose names do not state them."""

from __future__ import annotations

DURATIONS = frozenset(
    {"load_bound", "load_duration", "queue_timeout", "soak", "soak_window", "user_time"}
)
"""Fields that are stored as seconds."""

UNITS = {"load_percentile": "%", "load_rate": "queries/s"}


def with_unit(name: str, value: object) -> str | None:
    """Return the value of a field with its unit; None of fields without one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name in DURATIONS:
        return f"{value * 1e3:g} ms" if value < 1 else f"{value:g} s"
    return f"{value:g} {UNITS[name]}" if name in UNITS else None
