"""What a report states of its energy, in words."""

from __future__ import annotations

from collections.abc import Mapping

from edgeyard.benchmark_api.sdk.fields import Record, number, record, text
from edgeyard.devices.metrics import known_ends

_SCOPES = {
    "board": "the whole board",
    "processor": "the processor alone, not the board",
    "part": "a part that the lab has named",
    "meter": "an external meter",
}


_MIN_PARTS = 6
"""Parts of a run that have an interval; see `edgeyard.devices.runner.interval.MIN_SAMPLES`."""


def energy_sentence(report: Mapping[str, object]) -> str:
    """Return what measured the energy of a run and how often, or why it is not known.

    Args:
        report: Of an attempt; one of a board without sensors gives "".
    """
    energy = record(report, "energy")
    void, sensor = text(energy, "void"), text(energy, "sensor")
    if not sensor:
        return f"Energy is not known: {void}." if void else ""
    place = "/".join(filter(None, (sensor, text(energy, "rail"))))
    scope = _SCOPES.get(text(energy, "scope") or "", "")
    rate = energy.get("samples_per_s")
    often = f", read {_times(rate)} a second" if isinstance(rate, int | float) else ""
    found = f"Energy by {place} ({scope}): {text(energy, 'method')}{often}."
    if _is_known(energy, "per_inference", "idle") and not _is_above_idle(energy):
        found += " Its power does not differ from that of the idle board."
    own = record(energy, "per_inference")
    parts = number(own, "parts")
    if parts is not None and parts < _MIN_PARTS and own.get("ci95") is None:
        advice = "state more inferences, a longer load_duration or a longer user_time"
        found += f" Its {parts:g} parts are too few for an interval: {advice}."
    if not void:
        return found
    known = _is_known(energy, "idle") or any(
        number(energy, name) is not None for name in ("joules", "power_w")
    )
    return f"{found} {'Some' if known else 'All'} of it is void: {void}."


def _times(rate: float) -> str:
    return "once" if rate == 1 else f"{rate:g} times"


def _is_above_idle(energy: Record) -> bool:
    """Return whether there is a number above that of the idle board that is not 0 for all we know.

    A number without an interval is of few parts, as is then the energy itself.
    """
    above = record(energy, "per_inference_above_idle")
    value = number(above, "value")
    low, _ = known_ends(value, above.get("ci95"))
    return value is not None and (low is None or low > 0)


def _is_known(energy: Mapping[str, object], *names: str) -> bool:
    return all(number(record(energy, name), "value") is not None for name in names)
