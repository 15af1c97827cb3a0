"""The boards file as a JSON Schema (2020-12): what editors complete and other tools check.

It says what `edgeyard.devices.inventory` accepts, as far as a schema can: that a board's name
begins with its family, and stands there once, only the reader knows. A test holds the two together.
"""

from typing import Any, Dict

from edgeyard.devices.model import (
    ENGINE_PATTERN,
    FAMILY_PATTERN,
    SANDBOX_MODES,
    TARGET_UID_PATTERN,
)

SANDBOX_PATTERN = r"^(/(?!\.{1,2}(/|$))[^/\u0000-\u001f\u007f]+)+$"
"""An absolute path without ``.`` and ``..``, other than the root folder itself."""

_SIZE = {
    "description": "Bytes, or text such as '4 GiB'.",
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}],
}
_PATH = {"type": "string", "pattern": "^(/[^\\u0000-\\u0020\\u007f\"'%$]{1,1023})?$"}
_PLATFORM = {
    "image": "Image of the engine's container.",
    "devices": "Device files of the host; a board whose files are gone is unhealthy.",
    "volumes": "Volumes of the container.",
    "env": "Environment of the container; skipped and never kept.",
    "auth": "Login at the image's registry; skipped and never kept.",
}


def _object(properties: Dict[str, Any], required: "list[str]", description: str) -> Dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def inventory_schema() -> Dict[str, Any]:
    """The whole file: families, their boards, and what each may be used for."""
    types = {"type": "array", "items": {"type": "string", "pattern": "^TYPE[0-9]{1,2}$"}}
    engine = _object(
        {
            "version": {"type": ["string", "number"]},
            "supported_types": {**types, "description": "Benchmark types, e.g. TYPE1."},
            **{name: {"description": told} for name, told in _PLATFORM.items()},
        },
        ["supported_types"],
        "A runtime that the board offers.",
    )
    local = _object(
        {
            "cpus": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "integer", "minimum": 0, "maximum": 4095},
                "description": "CPU numbers that its task is pinned to.",
            },
            "threads": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 1},
        },
        ["cpus"],
        "The board is a slice of this machine.",
    )
    ssh = _object(
        {
            "host": {"type": "string", "minLength": 1, "maxLength": 253},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535, "default": 22},
            "user": {"type": "string", "maxLength": 32},
            "identity_file": {**_PATH, "description": "Private key, a file of the host."},
            "known_hosts_file": {**_PATH, "description": "Host keys that are trusted."},
            "python": {
                "type": "string",
                "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
                "|/[^\\u0000-\\u0020\\u007f\"'%$]{1,1023})$",
                "default": "python3",
                "description": "Python of the board, with NumPy and the engines.",
            },
        },
        ["host"],
        "The board is reached from its host by ssh.",
    )
    hook = _object(
        {
            "when": {"enum": ["before", "after"]},
            "run": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "string"},
                "prefixItems": [{"type": "string", "minLength": 1}],
                "description": "Program and arguments; no shell takes them apart.",
            },
            "on": {"enum": ["host", "board"], "default": "host"},
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 3600,
                "default": 60,
            },
        },
        ["when", "run"],
        "What is done before or after each run on the board.",
    )
    patterns = {"type": "array", "items": {"type": "string", "pattern": SANDBOX_PATTERN}}
    sandbox = _object(
        {
            "mode": {
                "enum": list(SANDBOX_MODES),
                "default": "auto",
                "description": "required: nothing runs where files and network can't be "
                "confined; auto: as far as the machine allows; off.",
            },
            "devices": {**patterns, "description": "Device files that runs may use, with *."},
            "paths": {**patterns, "description": "Files and folders that runs may read."},
        },
        [],
        "How runs on the board are confined.",
    )
    board = _object(
        {
            "target_uid": {
                "type": "string",
                "pattern": TARGET_UID_PATTERN.pattern,
                "description": "Its identity; begins with its family and is there once.",
            },
            "memory": _object({"ram": _SIZE, "storage": _SIZE}, ["ram", "storage"], "Its sizes."),
            "engines": {
                "type": "object",
                "propertyNames": {"pattern": ENGINE_PATTERN.pattern},
                "additionalProperties": engine,
            },
            "local": local,
            "ssh": ssh,
            "hooks": {"type": "array", "items": hook},
            "sandbox": sandbox,
        },
        ["target_uid", "memory", "engines"],
        "One board.",
    )
    board["not"] = {"required": ["local", "ssh"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "edgeyard/inventory/v1",
        "title": "Expected boards",
        "description": "By family; boards that are not named here are unknown.",
        "type": "object",
        "propertyNames": {"pattern": FAMILY_PATTERN.pattern},
        "additionalProperties": {"type": "array", "items": board},
    }
