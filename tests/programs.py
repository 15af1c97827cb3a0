"""Where programs of others are that come together."""

from __future__ import annotations

from pathlib import Path

from deploy import programs


def programs_of_prometheus() -> Path | None:
    """Return the folder of Prometheus and promtool; None where they are missing."""
    found, tool = programs.find("prometheus"), programs.find("promtool")
    return None if found is None or tool is None else Path(found).parent
