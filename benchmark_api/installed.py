"""Which packages above the product are installed; they are found by name, never imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable


def installed(modules: Iterable[str]) -> list[str]:
    """Return those modules whose package (``edgeyard.<package>``) is installed."""
    return [
        each
        for each in modules
        if importlib.util.find_spec(".".join(each.split(".")[:2])) is not None
    ]
