"""The round trip: a rendered job must read back as the same value."""

from __future__ import annotations

from dataclasses import fields

from edgeyard.errors import HclMismatch
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.parse import parse_job

_SHOWN_CHARACTERS = 200
_SECRET_FIELDS = frozenset({"config"})  # holds the registry's login


def check_round_trip(job: NomadJob, text: str) -> None:
    """Compare a rendered job with its value; a job that differs must not be dispatched.

    Raises:
        HclMismatch: With the fields that differ.
        HclError: The text is no job of ours at all.
    """
    differing = differences(job, parse_job(text))
    if differing:
        raise HclMismatch(differing)


def differences(meant: NomadJob, read: NomadJob) -> list[str]:
    """Return the differing fields of two jobs, without secrets."""
    found = []
    for field in fields(NomadJob):
        ours, theirs = getattr(meant, field.name), getattr(read, field.name)
        if ours == theirs:
            continue
        if field.name in _SECRET_FIELDS:
            found.append(f"{field.name} differs")
        else:
            found.append(f"{field.name}: meant {_short(ours)}, read {_short(theirs)}")
    return found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
