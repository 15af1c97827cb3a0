"""JSON that people write: a key that an object has twice is refused, whichever one was meant.

Parsers keep one of the two and drop the other (RFC 8259, section 4, leaves open which). Only the
standard library; Python 3.10.
"""

from __future__ import annotations

import json
from typing import Dict, List, Optional, Tuple, Union

Path = Tuple[Union[str, int], ...]


class _Pairs(List[Tuple[str, object]]):
    """An object as it was written."""


def parse_json(text: Union[str, bytes]) -> object:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is none, or an object in it has a key twice.
        RecursionError: It is nested too deeply.
    """
    if (path := repeated_key(text)) is not None:
        raise ValueError(f"the key {str(path[-1])[:100]!r} is there twice")
    return json.loads(text)


def repeated_key(text: Union[str, bytes]) -> Optional[Path]:
    """Return where a JSON text has a key for the second time; None where all are there once.

    Returns:
        The keys and places in lists that lead to it.

    Raises:
        ValueError: It is no JSON.
        RecursionError: It is nested too deeply.
    """
    try:
        # numbers are not converted, and what was looked at is not kept
        json.loads(text, object_pairs_hook=_checked, parse_int=len, parse_float=len)
    except _Repeated:
        return _path(json.loads(text, object_pairs_hook=_Pairs, parse_int=len, parse_float=len))
    return None


class _Repeated(Exception):
    """An object has a key twice."""


def _checked(pairs: List[Tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _Repeated


def _path(tree: object) -> Optional[Path]:
    """Return the way to the first object with a key twice, and to that key."""
    if isinstance(tree, _Pairs):
        seen: Dict[str, object] = {}
        for key, value in tree:
            if key in seen:
                return (key,)
            seen[key] = value
        parts = list(seen.items())
    elif isinstance(tree, list):
        parts = list(enumerate(tree))  # type: ignore[arg-type]
    else:
        return None
    for key, value in parts:
        if (inner := _path(value)) is not None:
            return (key, *inner)
    return None
