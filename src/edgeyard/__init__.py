"""Edgeyard: benchmarks of models on edge boards, scheduled onto a Nomad cluster.

``from edgeyard import Client`` is the whole public API for programs; it is loaded on first
use, so that hosts that only run the runner need no HTTP or web packages.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"
__all__ = ["Client", "__version__"]

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Client


def __dir__() -> list[str]:
    return [*__all__, *globals()]


def __getattr__(name: str) -> object:
    if name == "Client":
        from edgeyard.benchmark_api.sdk import Client

        return Client
    raise AttributeError(f"module 'edgeyard' has no attribute {name!r}")
