"""Random numbers: one stream for each purpose, all of them functions of one seed.

Runs with the same seed draw the same numbers for the same purpose, whatever the policy does
meanwhile: comparisons are made on common random numbers.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the stream of a purpose, such as ``stream(1, "arrivals")``.

    Args:
        seed: Of the whole simulation, 0 or more.
        purpose: Names and numbers; different ones give independent streams.
    """
    parts = [
        each if isinstance(each, int) else zlib.crc32(each.encode("utf-8")) for each in purpose
    ]
    return np.random.default_rng(np.random.SeedSequence([seed, *parts]))
