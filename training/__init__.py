"""Trainers of policies: they learn in the simulator what the scheduler then uses."""
