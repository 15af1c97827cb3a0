"""Jinja templates: Nomad jobs."""
