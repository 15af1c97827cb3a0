"""What packages above the product add to a server, where installed.

The product imports none of them: it finds them by name, and works the same without them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from fastapi import APIRouter

from edgeyard.benchmark_api.installed import installed
from edgeyard.benchmark_api.routes.contract import Router
from edgeyard.benchmark_api.settings import Settings
from edgeyard.scheduler.ports import Clock, Store

_SERVER_PARTS = ("edgeyard.simulator.server_part",)


class Background(Protocol):
    """Work that a server does beside its engine."""

    def start(self) -> None:
        """Begin the work, on a thread of its own."""
        ...

    def stop(self) -> None:
        """End the work, and wait for its end."""
        ...


class ServerPart(Protocol):
    """A module that adds to a server."""

    ROUTERS: Sequence[Router]
    PAGES: Sequence[APIRouter]

    def background(
        self, settings: Settings, store: Store, clock: Clock, leads: Callable[[], bool]
    ) -> Background | None:
        """Return what the server is to do beside its engine; None: nothing, by its settings.

        Args:
            leads: Whether this server leads, of several on one database.

        Raises:
            ConfigError: A setting is wrong.
        """
        ...


def server_routers() -> list[Router]:
    """Return the routes that installed packages add."""
    return [router for part in _server_parts() for router in part.ROUTERS]


def server_pages() -> list[APIRouter]:
    """Return the routes of pages that installed packages add."""
    return [router for part in _server_parts() for router in part.PAGES]


def server_background(
    settings: Settings, store: Store, clock: Clock, leads: Callable[[], bool]
) -> tuple[Background, ...]:
    """Return the work that installed packages add; see `ServerPart.background`."""
    found = (part.background(settings, store, clock, leads) for part in _server_parts())
    return tuple(each for each in found if each is not None)


def _server_parts() -> list[ServerPart]:
    return [cast(ServerPart, importlib.import_module(each)) for each in installed(_SERVER_PARTS)]
