"""The plugin's settings: their schema, as Nomad reads HCL by it, and their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping

import msgpack

from edgeyard.devices.edgedevice.proto import hclspec_pb2
from edgeyard.errors import ConfigError

_DEFAULTS = {
    "state_dir": "/run/edgeyard",
    "probe_interval": "10s",
    "probe_timeout": "8s",
    "docker_socket": "/var/run/docker.sock",
}
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m|h)")


@dataclass(frozen=True)
class PluginConfig:
    """What the operator set.

    Attributes:
        boards_file: The platform's ``target.json``.
        state_dir: Folder for the progress files; emptied by a reboot, best in ``/run``.
        probe_interval_s: Each board is looked at so often, 1 s to 1 h.
        probe_timeout_s: How long one look may take at most, 0.1 s to 1 min.
        docker_socket: Of the container engine that starts the images of the boards file.
    """

    boards_file: Path
    state_dir: Path
    probe_interval_s: float
    probe_timeout_s: float
    docker_socket: Path = Path("/var/run/docker.sock")


def schema() -> hclspec_pb2.Spec:
    """Return the schema by which Nomad checks and completes the ``config`` block."""
    attributes: Dict[str, hclspec_pb2.Spec] = {
        "boards_file": hclspec_pb2.Spec(
            attr=hclspec_pb2.Attr(name="boards_file", type="string", required=True)
        )
    }
    for name, value in _DEFAULTS.items():
        attributes[name] = hclspec_pb2.Spec(
            default=hclspec_pb2.Default(
                primary=hclspec_pb2.Spec(attr=hclspec_pb2.Attr(name=name, type="string")),
                default=hclspec_pb2.Spec(literal=hclspec_pb2.Literal(value=f'"{value}"')),
            )
        )
    return hclspec_pb2.Spec(object=hclspec_pb2.Object(attributes=attributes))


def read_config(packed: bytes) -> PluginConfig:
    """Return the settings as Nomad hands them over.

    Raises:
        ConfigError: They are wrong; every mistake is named.
    """
    try:
        given = msgpack.unpackb(packed)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ConfigError([f"the settings are not MessagePack: {error}"]) from error
    if not isinstance(given, dict):
        raise ConfigError(["the settings are not a block of settings"])
    problems: List[str] = []
    config = PluginConfig(
        boards_file=_path(given, "boards_file", problems),
        state_dir=_path(given, "state_dir", problems),
        probe_interval_s=_seconds(given, "probe_interval", 1.0, 3600.0, problems),
        probe_timeout_s=_seconds(given, "probe_timeout", 0.1, 60.0, problems),
        docker_socket=_path(given, "docker_socket", problems),
    )
    known = {"boards_file", *_DEFAULTS}
    problems.extend(f"{key}: is not a setting of this plugin" for key in given if key not in known)
    if problems:
        raise ConfigError(problems)
    return config


def _path(given: Mapping[object, object], name: str, problems: List[str]) -> Path:
    value = given.get(name, _DEFAULTS.get(name))
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        problems.append(f"{name}: {value!r} is not an absolute path")
        return Path("/")
    return Path(value)


def _seconds(
    given: Mapping[object, object], name: str, minimum: float, maximum: float, problems: List[str]
) -> float:
    value = given.get(name, _DEFAULTS[name])
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    seconds = float(match[1]) * _UNITS_S[match[2]] if match else 0.0
    if not minimum <= seconds <= maximum:
        problems.append(
            f"{name}: {value!r} is not a time from {minimum:g}s to {maximum:g}s, as in '10s'"
        )
    return seconds
