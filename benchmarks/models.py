"""Real networks without a download: the light models that the onnx package carries."""

from pathlib import Path

import onnx


def light(name: str) -> Path:
    """``light_<name>.onnx``: the real graph with constant weights, so the latency is real."""
    return Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
