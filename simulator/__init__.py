"""Simulation in virtual time: one kernel, two worlds, and what they are compared by.

See ``docs/explanation/simulator.md``.
"""
