"""What the embedded cluster takes of a job, and what it refuses.

A job arrives as HCL text alone, as at Nomad's door. What is understood becomes a `LocalJob`; all
else is refused by name, so that nothing that a job says is silently left undone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import NoReturn
from urllib.parse import urlsplit

from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN
from edgeyard.errors import HclError, JobRefused
from edgeyard.scheduler.clusters.fitting import Condition
from edgeyard.scheduler.hcl.cron import moment_of
from edgeyard.scheduler.hcl.job import (
    Artifact,
    DeviceConstraint,
    JobAffinity,
    NodeConstraint,
    NomadJob,
    Template,
)
from edgeyard.scheduler.hcl.text import ATTRIBUTE_PATTERN

DEVICES = ("daiedge/edgedevice", "edgedevice")
DEFAULT_KILL_TIMEOUT_S = 5

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # becomes a folder's name
_DEVICE_ATTRIBUTE = re.compile(r"\$\{device\.attr\.(" + ATTRIBUTE_PATTERN.pattern + r")\}")
_CHECKSUM = re.compile(r"sha256:([0-9a-f]{64})")
_SECRET_LINE = re.compile(r"([A-Z][A-Z0-9_]*)=\{\{ \.\1 \}\}")
# Nomad's default mode unpacks what ends like this; a file's name must not decide that here.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".tzst")


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file to fetch before the task starts; ``path`` is relative to the task's folder."""

    source: str
    path: PurePosixPath
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFile:
    """Write a file of ``NAME=value`` lines from the secrets that came with the job."""

    path: PurePosixPath
    names: tuple[str, ...]
    env: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """A job as the embedded cluster understands it.

    Attributes:
        wishes: Conditions with their weights: among the boards that can be had, the one that meets
            most is chosen.
        starts_at: Not before; None: at once.
    """

    job_id: str
    group: str
    task: str
    priority: int
    datacenters: tuple[str, ...]
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    meta: Mapping[str, str]
    conditions: tuple[Condition, ...]
    wishes: tuple[tuple[Condition, int], ...]
    downloads: tuple[Download, ...]
    secret_files: tuple[SecretFile, ...]
    starts_at: datetime | None
    kill_timeout_s: int


def admit(job: NomadJob) -> LocalJob:
    """Return what the cluster has to run for a job.

    Raises:
        JobRefused: It asks for what the embedded cluster does not do; it says what.
    """
    if _JOB_ID.fullmatch(job.job_id) is None:
        _refuse(job, "its id may hold letters, digits, '.', '_' and '-' only")
    if job.type != "batch":
        _refuse(job, f"the embedded cluster runs jobs of type batch, not {job.type!r}")
    if job.node_pool is not None:
        _refuse(job, "the embedded cluster has no node pools")
    if job.group_count != 1 or job.device_count != 1:
        _refuse(job, "the embedded cluster runs one instance of a job, on one board")
    if job.device not in DEVICES:
        _refuse(job, f"the embedded cluster has devices {DEVICES[0]!r}, not {job.device!r}")
    command, args = _command(job)
    return LocalJob(
        job_id=job.job_id,
        group=job.group,
        task=job.task,
        priority=job.priority,
        datacenters=job.datacenters,
        command=command,
        args=args,
        env=job.env,
        meta=job.meta,
        conditions=(
            *(_condition(job, each) for each in job.constraints),
            *(_node_condition(job, each) for each in job.node_constraints),
        ),
        wishes=(
            *((_condition(job, each), each.weight) for each in job.affinities),
            *((_node_condition(job, each), each.weight) for each in job.node_affinities),
        ),
        downloads=_downloads(job),
        secret_files=tuple(_secret_file(job, each) for each in job.templates),
        starts_at=_starts_at(job),
        kill_timeout_s=(
            DEFAULT_KILL_TIMEOUT_S if job.kill_timeout_s is None else job.kill_timeout_s
        ),
    )


def _command(job: NomadJob) -> tuple[str, tuple[str, ...]]:
    if job.driver != "raw_exec":
        _refuse(job, f"the embedded cluster has the driver raw_exec, not {job.driver!r}")
    unknown = sorted(set(job.config) - {"command", "args"})
    if unknown:
        _refuse(job, f"raw_exec takes no {', '.join(unknown)}")
    command, args = job.config.get("command"), job.config.get("args", ())
    if not isinstance(command, str) or not command or not isinstance(args, tuple):
        _refuse(job, "raw_exec needs a command")
    if any("\0" in text for text in (command, *args, *job.env.values(), *job.meta.values())):
        _refuse(job, "a process can't be given a NUL character")
    return command, args


def _condition(job: NomadJob, constraint: DeviceConstraint | JobAffinity) -> Condition:
    match = _DEVICE_ATTRIBUTE.fullmatch(constraint.attribute)
    if match is None:
        _refuse(job, f"{constraint.attribute!r} is not an attribute of a device")
    return Condition(attribute=match.group(1), operator=constraint.operator, value=constraint.value)


def _node_condition(job: NomadJob, constraint: NodeConstraint | JobAffinity) -> Condition:
    if NODE_ATTRIBUTE_PATTERN.fullmatch(constraint.attribute) is None:
        _refuse(job, f"{constraint.attribute!r} is not an attribute of a node")
    return Condition(
        attribute=constraint.attribute, operator=constraint.operator, value=constraint.value
    )


def _downloads(job: NomadJob) -> tuple[Download, ...]:
    downloads = tuple(_download(job, artifact) for artifact in job.artifacts)
    paths = [download.path for download in downloads]
    if len(set(paths)) != len(paths):
        _refuse(job, "two artifacts have the same destination")
    return downloads


def _download(job: NomadJob, artifact: Artifact) -> Download:
    url = urlsplit(artifact.source)
    if url.scheme not in ("http", "https") or not url.hostname or "${" in artifact.source:
        _refuse(job, "an artifact's source must be a plain http(s) URL")
    destination = artifact.destination
    if artifact.mode == "any":
        name = PurePosixPath(url.path).name
        if name.endswith(_ARCHIVES):
            _refuse(job, f"{name} would be unpacked: use mode file")
        destination = f"{destination.rstrip('/')}/{name}"
    elif artifact.mode != "file":
        _refuse(job, f"artifact mode {artifact.mode!r} is unknown; use mode file")
    checksum = _CHECKSUM.fullmatch(artifact.checksum)
    if artifact.checksum and checksum is None:
        _refuse(job, "a checksum must be sha256 in lower-case hex")
    return Download(
        source=artifact.source,
        path=_inside(job, destination, "local"),
        sha256=checksum.group(1) if checksum else None,
    )


def _secret_file(job: NomadJob, template: Template) -> SecretFile:
    """Return the file of a template, which may only ask for the secrets of this very job."""
    begin, end = f'{{{{ with nomadVar "nomad/jobs/{job.job_id}" }}}}', "{{ end }}"
    data = template.data.strip()
    lines = data.removeprefix(begin).removesuffix(end).strip().split("\n")
    matches = [_SECRET_LINE.fullmatch(line) for line in lines]
    names = tuple(match.group(1) for match in matches if match is not None)
    if not (data.startswith(begin) and data.endswith(end)) or len(names) != len(lines):
        _refuse(job, "the embedded cluster takes a template of the job's own secrets alone")
    return SecretFile(
        path=_inside(job, template.destination, "secrets"), names=names, env=template.env
    )


def _starts_at(job: NomadJob) -> datetime | None:
    if job.periodic is None:
        return None
    if not job.periodic.enabled:
        _refuse(job, "its periodic start is not enabled: it would never run")
    try:
        return moment_of(job.periodic.cron)
    except HclError as error:
        raise JobRefused(job.job_id, str(error)) from error


def _inside(job: NomadJob, destination: str, folder: str) -> PurePosixPath:
    """Return a path that can't lead out of the task's folder, nor into another part of it."""
    path = PurePosixPath(destination)
    parts = path.parts
    hostile = "\0" in destination or "\\" in destination or "${" in destination
    if hostile or len(parts) < 2 or parts[0] != folder or ".." in parts:
        _refuse(job, f"destination {destination!r} is not a file inside {folder}/")
    return path


def _refuse(job: NomadJob, reason: str) -> NoReturn:
    raise JobRefused(job.job_id, reason)
