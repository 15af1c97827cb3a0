"""Operators of constraints, and the names of nodes' attributes; clients need them, and no RE2."""

import re

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

NODE_ATTRIBUTE_PATTERN = re.compile(
    r"\$\{(?:node\.(?:class|pool|datacenter|unique\.id|unique\.name)"
    r"|(?:attr|meta)(?:\.[A-Za-z_][A-Za-z0-9_-]*)+)\}"
)
"""Attribute of the Nomad node that a board is attached to, as Nomad spells it: ``${node.class}``,
``${attr.cpu.arch}``, ``${meta.rack}``. Boards' own attributes are spelled without ``${``."""


def is_of_node(attribute: str) -> bool:
    """Return whether a constraint's attribute is one of the board's node."""
    return attribute.startswith("${")
