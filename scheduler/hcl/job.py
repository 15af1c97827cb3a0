"""A Nomad job as a value, which is rendered, and read back by the parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CONFIG_NAMES: tuple[str, ...] = (
    "image",
    "network_mode",
    "auth",
    "privileged",
    "command",
    "args",
)
"""Allowed keys of a driver's ``config``, in the order in which they are written."""

ConfigValue = str | int | float | bool | tuple[str, ...] | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConstraint:
    """A condition on the board: ``attribute`` is the whole text, ``${device.attr.family}``."""

    attribute: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraint:
    """A condition on the node of the board: ``attribute`` is the whole text, ``${node.class}``."""

    attribute: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAffinity:
    """A wish about the board or its node: ``attribute`` is the whole text, as in a constraint."""

    attribute: str
    operator: str
    value: str
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpread:
    """A wish to spread allocations over the values of an attribute of nodes.

    Attributes:
        attribute: The whole text, ``${node.datacenter}``.
        weight: 1 to 100.
        targets: Values with their percentages.
    """

    attribute: str
    weight: int
    targets: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that is downloaded before the task starts.

    Attributes:
        mode: "file": ``destination`` is the file's path; "any" (the platform's form): a folder.
        checksum: ``sha256:<hex>``; "" where none is stated.
    """

    source: str
    destination: str
    mode: str = "any"
    checksum: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A file that is written from a Nomad variable before the task starts.

    Attributes:
        env: Whether its lines become variables of the task's environment, too.
        change_mode: What Nomad does to the task when the file is written again.
        perms: Of the file, in octal.
    """

    data: str
    destination: str
    env: bool = False
    change_mode: str = "restart"
    perms: str = "0644"


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic:
    """Starts by Nomad: at one time, a cron of 7 fields, or at each time of a crontab; UTC.

    Attributes:
        prohibit_overlap: Nomad starts none while an earlier one of this job has not ended.
        time_zone: Of the crontab; None: Nomad's default, which is UTC.
    """

    cron: str
    prohibit_overlap: bool = True
    enabled: bool = True
    time_zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NomadJob:
    """The job of one benchmark; every field is rendered and read back.

    Attributes:
        config: Of the driver: strings, numbers, bools, lists of strings, and blocks (``auth``,
            which holds the registry's login: not in the repr).
        env: The eleven variables of the platform; values are strings after parsing.
        constraints: Inside the device block.
        node_constraints: At the level of the job: device blocks know nothing of nodes.
        affinities: Inside the device block.
        node_affinities: At the level of the job.
        spreads: At the level of the job.
        retries_off: ``restart`` and ``reschedule`` are rendered as none.
        lost_after_s: How long Nomad waits for a host that it does not hear from before it gives the
            run up; it never makes a second one. None: it gives up at once.
        namespace: Of Nomad; None: the agent's default.
        node_pool: Of Nomad; None: the namespace's default.
    """

    job_id: str
    priority: int
    driver: str
    config: Mapping[str, ConfigValue] = field(repr=False)
    env: Mapping[str, str]
    constraints: tuple[DeviceConstraint, ...]
    artifacts: tuple[Artifact, ...]
    datacenters: tuple[str, ...] = ("dc1",)
    type: str = "batch"
    periodic: Periodic | None = None
    group: str = "bootstrap-group"
    group_count: int = 1
    task: str = "bootstrap-job"
    templates: tuple[Template, ...] = ()
    device: str = "daiedge/edgedevice"
    device_count: int = 1
    cpu_mhz: int | None = None
    memory_mib: int | None = None
    kill_timeout_s: int | None = None
    retries_off: bool = True
    lost_after_s: int | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    namespace: str | None = None
    node_pool: str | None = None
    node_constraints: tuple[NodeConstraint, ...] = ()
    affinities: tuple[JobAffinity, ...] = ()
    node_affinities: tuple[JobAffinity, ...] = ()
    spreads: tuple[JobSpread, ...] = ()
