"""Nomad jobs: as a value, as HCL text, and back."""
