"""Adapters of the Cluster port."""
