"""Sizes as people write them: bytes, or a number with a unit.

Imported on boards too: only the standard library, Python 3.10.
"""

import re

_FACTORS = {
    "": 1,
    "B": 1,
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", start=1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("kMGTP", start=1)},
    "KB": 1000,
}
_SIZE = re.compile(r"\s*([0-9]{1,16})(?:\.([0-9]{1,6}))?\s*([A-Za-z]{0,3})\s*")
_MAX_BYTES = (1 << 63) - 1  # what databases and NumPy columns hold

ACCEPTED = "bytes as a whole number, or such as '4 GiB'"


def parse_size(value: object) -> int:
    """Return a size in bytes.

    Args:
        value: A whole number of bytes, or text such as ``"4 GiB"``, ``"1.5 GB"``, ``"512"``.

    Raises:
        ValueError: It is no size from 0 to 2**63-1.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match is None or match[3] not in _FACTORS:
            raise ValueError(f"{value!r} is not a size: {ACCEPTED}")
        factor = _FACTORS[match[3]]
        digits = match[2] or ""
        # Whole numbers throughout: floats would lose bytes.
        size = int(match[1] + digits) * factor // 10 ** len(digits)
    if not 0 <= size <= _MAX_BYTES:
        raise ValueError(f"{value!r} is out of range: {ACCEPTED}")
    return size


def size_text(size_bytes: float) -> str:
    """Return a size for people, with three digits: ``4 GiB``, ``1.46 MiB``, ``512 B``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
