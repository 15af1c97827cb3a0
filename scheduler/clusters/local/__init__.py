"""The embedded cluster: boards that are slices of this machine, tasks that are child processes."""

from edgeyard.scheduler.clusters.local.cluster import LocalCluster

__all__ = ["LocalCluster"]
