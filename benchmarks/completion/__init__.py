"""The same submissions under two policies on a real Nomad: ``python -m benchmarks.completion``."""
