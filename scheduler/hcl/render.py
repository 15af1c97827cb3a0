"""A `NomadJob` as HCL text, by the template ``templates/jobs/benchmark.nomad.hcl.j2``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from edgeyard.errors import HclError
from edgeyard.scheduler.hcl.job import CONFIG_NAMES, ConfigValue, DeviceConstraint, NomadJob
from edgeyard.scheduler.hcl.text import hcl_label, hcl_name, hcl_value

MASK = "******"
"""Replaces secrets in HCL that is shown to people."""


def render(job: NomadJob, *, masked: bool = False) -> str:
    """Return the job as HCL.

    Args:
        masked: Registry login shown as ``******``: the form to store and to show.

    Raises:
        HclError: A value that HCL can't express, or a ``config`` that is not known.
    """
    if masked:
        job = replace(job, config={key: _masked(value) for key, value in job.config.items()})
    config = [(name, job.config[name]) for name in CONFIG_NAMES if name in job.config]
    if len(config) != len(job.config):
        raise HclError(f"config knows only {', '.join(CONFIG_NAMES)}")
    notes = [(constraint, _note(constraint)) for constraint in job.constraints]
    return str(_template().benchmark_job(job, config, notes))


def has_login(job: NomadJob) -> bool:
    """Return whether the job contains a value that its masked form hides."""
    return any(isinstance(value, Mapping) for value in job.config.values())


class _Note:
    """Return the comment of a constraint for people.

    Attributes:
        comments: As they stand in the text.
    """

    def __init__(self, comments: Sequence[str], decided_by: str) -> None:
        self.comments = "\n".join(f"          # {line}" for line in comments)
        self.decided_by = decided_by


_USER = "user input variable"
_SCHEDULER = "Scheduler decision"
_EITHER = "User input variable or scheduler decision"

_NOTES: Mapping[tuple[str, str], _Note] = {
    ("${device.attr.family}", "="): _Note(("Pick the board-family",), _USER),
    ("${device.attr.engines}", "set_contains"): _Note(("Pick the runtime engine",), _USER),
    ("${device.attr.dynamic.progress}", "<"): _Note(
        (
            "Ensure the device is not busy (benchmark already running)",
            "Will only preempt the running job if the benchmark is not close to finishing",
            "Only if the job has a higher priority",
        ),
        _SCHEDULER,
    ),
    ("${device.attr.memory.ram}", ">="): _Note(
        ("Ensure the device has enough memory, bytes",), _EITHER
    ),
    ("${device.attr.memory.storage}", ">="): _Note(
        ("Ensure the device has enough storage, bytes",), _EITHER
    ),
    ("${device.attr.target_uid}", "="): _Note(
        ("Pick the exact board to run the benchmark on",), _SCHEDULER
    ),
    ("${device.attr.target_uid}", "set_contains_any"): _Note(
        ("Only boards that are expected and in service",), _SCHEDULER
    ),
}
_TYPES_NOTE = _Note(("Pick the benchmark type",), _USER)
_OTHER_NOTE = _Note(("Further condition on the board",), _USER)


def _note(constraint: DeviceConstraint) -> _Note:
    known = _NOTES.get((constraint.attribute, constraint.operator))
    if known is not None:
        return known
    if constraint.attribute.endswith(".supported_types}"):
        return _TYPES_NOTE
    return _OTHER_NOTE


def _masked(value: ConfigValue) -> ConfigValue:
    return dict.fromkeys(value, MASK) if isinstance(value, Mapping) else value


@cache
def _template() -> Any:
    """Return the template's macros."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # HCL, not HTML: each value is escaped by the `hcl` filter
    )
    environment.filters["hcl"] = hcl_value
    environment.filters["name"] = hcl_name
    environment.filters["label"] = hcl_label
    folder = resources.files("edgeyard.templates.jobs")
    return environment.from_string(
        folder.joinpath("benchmark.nomad.hcl.j2").read_text(encoding="utf-8")
    ).module
