"""Operators of constraints; clients need their names, and no regular expressions."""

OPERATORS = (
    "=",
    "!=",
    ">",
    ">=",
    "<",
    "<=",
    "set_contains",
    "set_contains_any",
    "regexp",
    "version",
    "semver",
    "is_set",
    "is_not_set",
)
"""Operators that `edgeyard.devices.constraints.compare` knows, named as Nomad names them."""
