"""``python -m benchmarks.queue_models``: write the shipped learned queue policies.

``benchmarks/data/queue_policies.json`` has what ``edgeyard learn queue`` found: for each policy the
log, the method, and the weights as 32-bit numbers. A test writes the files again and compares them
byte for byte with those that are shipped.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from edgeyard.plugins.queue_policies.learned_queue import SHIPPED
from edgeyard.training.export import export_queue

WEIGHTS = Path(__file__).parent / "data" / "queue_policies.json"


def rebuild(folder: Path) -> list[Path]:
    """Write the ONNX file and the manifest of each policy; return the manifests."""
    policies = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return [
        export_queue(folder, name, np.array(each["weights"]), each["hidden"], each["trained_on"])
        for name, each in policies.items()
    ]


if __name__ == "__main__":
    for manifest in rebuild(SHIPPED):
        print(manifest)
