"""What a machine is: processor, cores and operating system, as attributes of its boards.

Imported on hosts too: only the standard library, Python 3.10.
"""

import os
import platform
from pathlib import Path
from typing import Dict, Optional

from edgeyard.devices.model import AttributeValue, Board

_MODEL_KEYS = ("model name", "Model", "Hardware", "cpu model")
_MAX_CHARS = 128


def machine_attributes(board: Board, *, root: Path = Path("/")) -> Dict[str, AttributeValue]:
    """Return the attributes of a board that is this machine or a part of it.

    Args:
        board: Has as many cores as its slice of the machine; all of them if it has no slice.
        root: Where ``/proc`` and ``/etc`` are found.
    """
    cores = len(board.local.cpus) if board.local is not None else len(os.sched_getaffinity(0))
    found: Dict[str, AttributeValue] = {
        "cpu.arch": platform.machine(),
        "cpu.cores": cores,
        "os.kernel": platform.release(),
    }
    texts = {
        "cpu.model": _value(root / "proc/cpuinfo", _MODEL_KEYS, ":"),
        "os.name": _value(root / "etc/os-release", ("PRETTY_NAME",), "="),
    }
    found.update({name: text for name, text in texts.items() if text})
    return found


def _value(path: Path, keys: "tuple[str, ...]", sign: str) -> Optional[str]:
    """Return the first value of one of the keys in a file of lines; None if there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    pairs = [(key.strip(), value) for key, _, value in (line.partition(sign) for line in lines)]
    for key in keys:
        for name, value in pairs:
            text = "".join(c for c in value.strip().strip('"') if c.isprintable())
            if name == key and text:
                return text[:_MAX_CHARS]
    return None
