"""Where the expected boards come from: a file today, a registry that many labs share one day.

A provider is asked once, when the server starts. Contract: ``tests/contract/test_providers.py``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgeyard.devices.inventory import Inventory


class InventoryProvider(Protocol):
    """Provides the expected boards."""

    @property
    def source(self) -> str:
        """Where it takes them from, for people; no secret is in it."""
        ...

    def load(self) -> Inventory:
        """Return the expected boards; the same ones until they are changed there.

        Raises:
            ConfigError: They can't be had, or are wrong; every mistake with its place.
        """
        ...


@dataclass(frozen=True)
class FileProvider:
    """The boards of a JSON file (schema: ``docs/reference/inventory.schema.json``)."""

    path: Path

    @property
    def source(self) -> str:
        """Implement `InventoryProvider.source`."""
        return f"file {self.path}"

    def load(self) -> Inventory:
        """Implement `InventoryProvider.load`; reads the file anew."""
        return Inventory.from_file(self.path)


@dataclass(frozen=True)
class CallableProvider:
    """The boards that a program hands over, made when they are asked for.

    Attributes:
        make: Called at each `load`; may raise ConfigError.
        named: What `source` says.
    """

    make: Callable[[], Inventory]
    named: str

    @property
    def source(self) -> str:
        """Implement `InventoryProvider.source`."""
        return self.named

    def load(self) -> Inventory:
        """Implement `InventoryProvider.load`."""
        return self.make()
