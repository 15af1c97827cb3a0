"""Scenarios that are fitted to a lab's recorded history."""
