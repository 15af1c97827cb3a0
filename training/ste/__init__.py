"""DECICE's synthetic test environment: digital twin, scheduler controller, controller, training.

The decisions are made by the service's own `decide()`: only where jobs and nodes come from, and
where placements go, is different.
"""
