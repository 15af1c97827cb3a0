"""Conversion between values and HCL text; the only module that knows HCL's quoting."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable
from functools import lru_cache

from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN
from edgeyard.errors import HclError

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""An HCL identifier."""

ATTRIBUTE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*")
"""The name of a device attribute, e.g. ``engine.ort.supported_types``."""

REFERENCE_PATTERN = re.compile(r"\$\{" + ATTRIBUTE_PATTERN.pattern + r"\}")
"""An interpolation that is a plain reference, e.g. ``${node.unique.id}``."""

_OUR_REFERENCE = re.compile(
    r"\$\{(?:NOMAD_ALLOC_ID|device\.attr\."
    + ATTRIBUTE_PATTERN.pattern
    + r")\}|"
    + NODE_ATTRIBUTE_PATTERN.pattern
)
_NEEDS_ESCAPE = re.compile(r'[^\x20-\x7e]|["\\]|[$%](?=\{)')
# `$${` and `%%{` are HCL's usual escapes, but `$$${` is read in two ways by different parsers,
# and an unclosed `$${` confuses python-hcl2: the code points are plain to all of them.
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_UNESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_ESCAPE_SEQUENCE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.?))", re.DOTALL)
_REMEMBERED = 512
"""Cached texts: most texts occur in all jobs, which are some hundred. The others, as ids and
addresses, never come again, and would fill a larger cache for hours."""

_NOT_IN_QUOTES = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def hcl_string(value: str) -> str:
    """Return a string as an HCL literal, quotes included, that can't be talked into anything.

    Interpolations that are ours (``${NOMAD_ALLOC_ID}``, ``${device.attr...}`` and the attributes of
    nodes) pass when they are the whole value; any other ``${`` and ``%{`` is text.

    Raises:
        HclError: The text holds a lone surrogate, which no HCL can express.
    """
    if _NEEDS_ESCAPE.search(value) is None or _OUR_REFERENCE.fullmatch(value):
        return f'"{value}"'
    return hcl_label(value)


def hcl_label(value: str) -> str:
    """Return a string as the label of a block, quotes included: there ``${`` is always text.

    Raises:
        HclError: As `hcl_string`.
    """
    return f'"{_NEEDS_ESCAPE.sub(_escaped, value)}"'


@lru_cache(maxsize=_REMEMBERED, typed=True)  # typed: True is no 1
def hcl_value(value: Hashable) -> str:
    """Return a string, bool, number or list of strings as an HCL literal."""
    if isinstance(value, str):
        return hcl_string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(hcl_string(item) for item in value) + "]"
    raise HclError(f"a value of type {type(value).__name__} has no form in HCL")


@lru_cache(maxsize=_REMEMBERED)
def hcl_name(value: str) -> str:
    """Return the name of an attribute or block.

    Raises:
        HclError: It is no identifier.
    """
    if NAME_PATTERN.fullmatch(value) is None:
        raise HclError(f"{value!r} can't be the name of an attribute")
    return value


def unescaped(source: str) -> str:
    """Return the value of the literal part of a quoted string, given as it stands in the text.

    Raises:
        HclError: A raw control character, or an escape that HCL does not have.
    """
    control = _NOT_IN_QUOTES.search(source)
    if control is not None:
        raise HclError(f"a string holds the raw control character {control.group()!r}")
    return _ESCAPE_SEQUENCE.sub(_unescaped_one, source) if "\\" in source else source


def plain_text_problem(text: str) -> str | None:
    """Return why a user's text is not allowed in a job, or None if it is.

    Nomad's client interpolates a second time, after all HCL escaping is gone: text with ``${``
    would reach the task as something else, so that it is refused where it is submitted.
    """
    for mark in ("${", "%{"):
        if mark in text:
            return f"may not contain {mark!r}: the cluster would interpret it"
    if "\x00" in text:
        return "may not contain the NUL character"
    for character in text:
        category = unicodedata.category(character)
        if category == "Cs":
            return "contains a lone surrogate, which is not text"
        if category == "Cc":
            return f"may not contain the control character {character!r}"
    if not unicodedata.is_normalized("NFC", text):
        return "must be in Unicode normal form NFC: the cluster would change it"
    return None


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    known = _ESCAPES.get(character)
    if known is not None:
        return known
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise HclError("a lone surrogate has no form in HCL")
    if code < 0x80 or not character.isprintable():
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return character


def _unescaped_one(match: re.Match[str]) -> str:
    digits = match.group(1) or match.group(2)
    if digits is None:
        plain = _UNESCAPES.get(match.group(3))
        if plain is None:
            raise HclError(f"{match.group()!r} is not an escape sequence of HCL")
        return plain
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise HclError(f"{match.group()!r} is not a character")
    return chr(code)
