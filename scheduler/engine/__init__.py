"""Intake, cycle, dispatch, reconciliation, timers."""
