"""The Nomad cluster: one batch job a benchmark, boards as devices of the ``edgedevice`` plugin."""

from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.cluster import NomadCluster

__all__ = ["NomadAccess", "NomadCluster"]
