"""Recurring starts that are left to Nomad: its parent jobs, and the runs that it starts of them.

A parent is ``benchmark-cron-<16 hex digits>-<version>``, which no attempt's job is. Nomad starts
its runs as ``<parent>/periodic-<seconds since 1970>``; each is the job of an attempt of its own.
The one run of a job with a single start time has such a name, too, but belongs to the attempt of
that job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

PARENT_PREFIX = "benchmark-cron-"

_RECURRING = re.compile(
    r"(benchmark-(cron-[0-9a-f]{16})-[1-9][0-9]{0,8})(?:/periodic-([0-9]{1,11}))?", re.ASCII
)


class ScheduleJobState(StrEnum):
    """State of a parent job."""

    REGISTERING = "registering"  # its registration may or may not have taken effect
    REGISTERED = "registered"
    ENDED = "ended"  # Nomad starts nothing of it any more, and all its runs have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleJob:
    """A parent job: a schedule, in one of its versions, as Nomad has it.

    Attributes:
        token_sha256: Hash of the token that its runs exchange for their tasks.
        fingerprint: Digest of all that the job was made of; another one asks for another version.
        hcl: The job as registered, secrets masked.
    """

    job_id: str
    schedule_id: str
    version: int
    token_sha256: str
    fingerprint: str
    hcl: str
    created_at: datetime
    state: ScheduleJobState = ScheduleJobState.REGISTERING


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleGrant:
    """An unguessable name under ``/download/`` for all runs of a parent job.

    Attributes:
        name: Random, with the suffix of the file name.
        job_id: Of the parent.
        content: Inline content (``spec.json``); None for stored files.
    """

    name: str
    job_id: str
    filename: str
    sha256: str
    size_bytes: int
    content: bytes | None = None


def parent_id_of(schedule_id: str, version: int) -> str:
    """Return the id of a schedule's parent job."""
    return f"benchmark-{schedule_id}-{version}"


def is_parent(job_id: str) -> bool:
    """Return whether a job of Nomad's is a parent."""
    match = _RECURRING.fullmatch(job_id)
    return match is not None and match.group(3) is None


def parent_of(job_id: str) -> str | None:
    """Return the parent of a run, or the parent itself; None for other jobs."""
    match = _RECURRING.fullmatch(job_id)
    return None if match is None else match.group(1)


def schedule_of(job_id: str) -> str | None:
    """Return the id of the schedule of a parent or of a run; None for other jobs."""
    match = _RECURRING.fullmatch(job_id)
    return None if match is None else match.group(2)


def launched_at(job_id: str) -> datetime | None:
    """Return when Nomad started a run, by its clock; None for other jobs."""
    match = _RECURRING.fullmatch(job_id)
    if match is None or match.group(3) is None:
        return None
    return datetime.fromtimestamp(int(match.group(3)), UTC)


def job_of_attempt(job_id: str) -> str:
    """Return the id under which an attempt knows a job of Nomad's.

    The run of a job with a single start time is known as that job.
    """
    return job_id if launched_at(job_id) is not None else job_id.partition("/")[0]
