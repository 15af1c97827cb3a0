"""Importers: scenarios from public logs, from a lab's own history and from Prometheus."""
