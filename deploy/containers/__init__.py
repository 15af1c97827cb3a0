"""Edgeyard's container images, built without a registry."""
