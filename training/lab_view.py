"""The contract with a cluster that is only watched, without Edgeyard's database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.ports import JobState, NodeSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """A job of Edgeyard, as its cluster shows it to a watcher without Edgeyard's database.

    Attributes:
        family: "": the job states none.
        engine: Likewise.
        priority: 1-100.
        submitted_at: When the cluster accepted it.
    """

    state: JobState
    benchmark_id: str
    user_id: str
    family: str
    engine: str
    benchmark_type: BenchmarkType
    nb_inference: int
    priority: int
    submitted_at: datetime


class ClusterView(NodeSource, Protocol):
    """Shows a cluster to a watcher, and changes nothing there."""

    def jobs(self) -> Sequence[ObservedJob]:
        """Return live jobs of Edgeyard and the newest ended ones, in the order of their start.

        Raises:
            ClusterUnreachable: No job is known.
        """
        ...

    def close(self) -> None:
        """Release the connections."""
        ...
