"""The Nomad cluster: one batch job a benchmark, boards as devices of the ``edgedevice`` plugin."""

from edgeyard.scheduler.clusters.nomad.access import NomadAccess
from edgeyard.scheduler.clusters.nomad.cluster import NomadCluster
from edgeyard.scheduler.clusters.nomad.view import NomadView

__all__ = ["NomadAccess", "NomadCluster", "NomadView"]
