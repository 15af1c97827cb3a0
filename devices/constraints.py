"""Conditions on attributes of boards, decided as Nomad decides its device constraints.

Regular expressions are RE2's, whose syntax is that of Go, in which Nomad reads them. RE2 never
backtracks: the time of a search grows linearly with the text.
"""

import re
from functools import lru_cache

import re2

from edgeyard.devices import versions
from edgeyard.devices.attributes import members
from edgeyard.devices.model import NOT_READ, AttributeValue
from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN, OPERATORS, is_of_node

MAX_PATTERN_CHARS = 500

MAX_TEXT_CHARS = 1000
"""Regular expressions match no longer text. The device plugin publishes none."""

_MAX_PATTERN_BYTES = 64 * 1024
"""Maximum memory of a compiled expression, which then searches any text in a few milliseconds."""

_MAX_NUMBER_CHARS = 64
"""Longer texts are not meant as numbers, and ``int`` takes long to read them."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))"
)
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_UNITS = (
    *(f"{prefix}iB{rate}" for prefix in "KMGTPE" for rate in ("/s", "")),
    *(f"{prefix}B{rate}" for prefix in "kKMGTPE" for rate in ("/s", "")),
    *("MHz", "GHz", "mW", "kW", "MW", "GW", "W"),
)
_BOOLS = {
    **dict.fromkeys(("t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("f", "F", "FALSE", "false", "False"), False),
}


def meets(name: str, value: AttributeValue | None, operator: str, text: str) -> bool:
    """Return whether a board meets a constraint, as Nomad decides it.

    Args:
        name: The attribute's: that of the board, or that of its node (``${node.class}``).
        value: The attribute's; None when there is none.
        operator: One of `OPERATORS`; any other holds for nothing.
        text: The value in the constraint.
    """
    return (compare_of_node if is_of_node(name) else compare)(value, operator, text)


def compare_of_node(value: AttributeValue | None, operator: str, text: str) -> bool:
    """Return whether an attribute of a node meets a condition, as Nomad's constraints decide it.

    All of them are texts: ``=`` compares them as such, and an order is that of whole numbers where
    both are, that of numbers where both are, and that of the texts otherwise. Follows
    ``checkConstraint`` and ``checkOrder`` in ``scheduler/feasible`` of Nomad.

    Args:
        value: Of the attribute; None when the node has none, and `NOT_READ`, for which no
            condition holds, while that is not known.
        operator: One of `OPERATORS`; any other holds for nothing.
        text: The value in the constraint.
    """
    if value == NOT_READ:
        return False
    if operator == "is_set":
        return value is not None
    if operator == "is_not_set":
        return value is None
    if operator == "!=":
        return value != text
    if not isinstance(value, str):
        return False
    if operator == "=":
        return value == text
    if operator == "regexp":
        return _search(text, value)
    if operator in ("version", "semver"):
        return versions.meets(value, text, strict=operator == "semver")
    if operator in ("set_contains", "set_contains_any"):
        has, needs = members(value), members(text)
        return needs <= has if operator == "set_contains" else bool(needs & has)
    order = _order_of_texts(value, text)
    return {
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }.get(operator, False)


def _order_of_texts(one: str, other: str) -> int:
    """Return a negative number, 0 or a positive one; NaN equals everything."""
    left, right = _number(one), _number(other)
    if left is None or right is None:
        a, b = _utf8(one), _utf8(other)
        return (a > b) - (a < b)
    return (left > right) - (left < right)


def compare(attribute: AttributeValue | None, operator: str, text: str) -> bool:
    """Return whether an attribute meets a condition, as Nomad's device constraints decide it.

    The attribute keeps its type. The text is read as a number (possibly with a unit), otherwise as
    a bool, otherwise as text. Values of different kinds are not comparable, and then no operator
    holds, not even ``!=``: a plain number never equals one with a unit, and a name that looks like
    a number never matches. Follows ``plugins/shared/structs/attribute.go`` and
    ``scheduler/feasible`` of Nomad.

    Args:
        attribute: Its value; None when the board has no such attribute.
        operator: One of `OPERATORS`; any other holds for nothing.
        text: The value in the constraint.
    """
    if operator == "is_set":
        return attribute is not None
    if operator == "is_not_set":
        return attribute is None
    if attribute is None:
        # The constraint's own value is always present, and nil differs from it.
        return operator == "!="
    wanted = _parse(text)
    if operator == "regexp":
        return isinstance(attribute, str) and isinstance(wanted, str) and _search(wanted, attribute)
    if operator in ("version", "semver"):
        if isinstance(attribute, (bool, float)) or not isinstance(wanted, str):
            return False
        return versions.meets(str(attribute), text, strict=operator == "semver")
    if operator in ("set_contains", "set_contains_any"):
        if not (isinstance(attribute, str) and isinstance(wanted, str)):
            return False
        has, needs = members(attribute), members(wanted)
        return needs <= has if operator == "set_contains" else bool(needs & has)
    order = _order(attribute, wanted)
    if order is None:
        return False
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }.get(operator, False)


def constraint_problem(attribute: str, operator: str, text: str) -> str | None:
    """Return what is wrong with a user's constraint, as a phrase; None when it is valid.

    An invalid constraint holds for no board, so it is refused at submission.
    """
    if is_of_node(attribute):
        if not NODE_ATTRIBUTE_PATTERN.fullmatch(attribute):
            return f"{attribute} is not an attribute of a node"
    elif not _ATTRIBUTE_NAME.fullmatch(attribute):
        return "an attribute's name consists of letters, digits, '.', '_' and '-'"
    if operator not in OPERATORS:
        return f"operator {operator!r} is not one of {', '.join(OPERATORS)}"
    if operator in ("version", "semver"):
        try:
            versions.parse_conditions(text, strict=operator == "semver")
        except ValueError as error:
            return f"invalid condition of versions: {error}"
        if not is_of_node(attribute) and not isinstance(_parse(text), str):
            # Nomad reads the values of device constraints as numbers where it can.
            return f"invalid condition of versions: {text!r} is a number: write '= {text}'"
    if operator == "regexp":
        try:
            _compile(text)
        except ValueError as error:
            return f"invalid regular expression: {error}"
    return None


class _WithUnit:
    """A number with a unit. No attribute of the vocabulary has a unit, so it equals nothing."""


@lru_cache(maxsize=4096)
def _parse(text: str) -> str | int | float | bool | _WithUnit:
    """Read a constraint's text as Nomad's ``ParseAttribute`` does."""
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    number = _number(text[: -len(unit)].strip() if unit else text)
    if number is not None:
        return _WithUnit() if unit else number
    return _BOOLS.get(text, text)


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    if len(text) <= _MAX_NUMBER_CHARS and _FLOAT.fullmatch(text):
        return float(text)
    return None


def _order(attribute: AttributeValue, wanted: object) -> int | None:
    """Return a negative number, 0 or a positive one; None when the two are not comparable."""
    if isinstance(attribute, bool):
        return int(attribute != wanted) if isinstance(wanted, bool) else None
    if isinstance(attribute, str):
        if not isinstance(wanted, str):
            return None
        # Go compares bytes.
        left, right = (_utf8(each) for each in (attribute, wanted))
        return (left > right) - (left < right)
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)):
        return None
    if attribute != attribute or wanted != wanted:  # NaN
        return None
    return (attribute > wanted) - (attribute < wanted)


def _compile(pattern: str) -> "re2._Regexp":
    """Compile a regular expression.

    Raises:
        ValueError: RE2 or Go does not accept it, or it is too large.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"it has more than {MAX_PATTERN_CHARS} characters")
    if r"\C" in pattern.replace(r"\\", ""):
        raise ValueError(r"invalid escape sequence: \C")  # RE2 accepts it, Go does not
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise ValueError("it is not valid Unicode") from error
    except re2.error as error:
        raise ValueError(error.args[0].decode("utf-8", "replace")) from error


@lru_cache(maxsize=65536)
def _search(pattern: str, text: str) -> bool:
    if len(text) > MAX_TEXT_CHARS:
        return False
    try:
        return _compile(pattern).search(_utf8(text)) is not None
    except ValueError:
        return False


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
