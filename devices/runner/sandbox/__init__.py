"""Confines the process that reads models and datasets: what strangers wrote is run there alone.

`run` starts it, `plan` decides how it is confined, `inside` holds its first steps. The process has
no token, no network, a view of the few files that a run needs, and limits. See
``docs/explanation/sandbox.md``.
"""
