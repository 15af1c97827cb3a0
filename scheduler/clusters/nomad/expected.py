"""A decision's job as Nomad must read it, and what differs where it reads something else.

Nomad's own parser is the authority on what a job's text means. Its answer is compared whole: what
it says that we did not mean counts as much as what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgeyard.scheduler.hcl.job import (
    Artifact,
    ConfigValue,
    DeviceConstraint,
    JobAffinity,
    JobSpread,
    NodeConstraint,
    NomadJob,
    Template,
)

_NS_PER_S = 1_000_000_000
_SHOWN_CHARACTERS = 200
_SECRET = "Config"  # of the driver: holds the registry's login

_TASK_DEFAULTS: Mapping[str, object] = {
    "KillSignal": "",
    "Kind": "",
    "Leader": False,
    "ShutdownDelay": 0,
    "User": "",
}
_TEMPLATE_DEFAULTS: Mapping[str, object] = {
    "ErrMissingKey": False,
    "Splay": 5 * _NS_PER_S,
}


def api_job(job: NomadJob) -> dict[str, object]:
    """Return the answer of ``/v1/jobs/parse`` to the job's text, without its nulls."""
    return _stated(
        {
            "ID": job.job_id,
            "Name": job.job_id,
            "Namespace": job.namespace,
            "NodePool": job.node_pool,
            "Priority": job.priority,
            "Datacenters": list(job.datacenters),
            "Type": job.type,
            "Dispatched": False,
            "Periodic": None
            if job.periodic is None
            else {
                "Enabled": job.periodic.enabled,
                "ProhibitOverlap": job.periodic.prohibit_overlap,
                "Specs": [job.periodic.cron],
                "SpecType": "cron",
                "TimeZone": job.periodic.time_zone,
            },
            "Meta": dict(job.meta) or None,
            "Constraints": [_constraint(each) for each in job.node_constraints] or None,
            "Affinities": [_affinity(each) for each in job.node_affinities] or None,
            "Spreads": [_spread(each) for each in job.spreads] or None,
            "TaskGroups": [_group(job)],
        }
    )


def mismatches(meant: NomadJob, read: Mapping[str, object]) -> list[str]:
    """Return where Nomad's reading differs from the decision, without secrets."""
    ours, theirs = api_job(meant), _stated(read)
    return [] if _same(ours, theirs) else list(_differences(ours, theirs, ""))


def _group(job: NomadJob) -> dict[str, object]:
    return {
        "Name": job.group,
        "Count": job.group_count,
        "RestartPolicy": {"Attempts": 0, "Mode": "fail"} if job.retries_off else None,
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False} if job.retries_off else None,
        "Disconnect": None
        if job.lost_after_s is None
        else {"LostAfter": job.lost_after_s * _NS_PER_S, "Replace": False},
        "Tasks": [_task(job)],
    }


def _task(job: NomadJob) -> dict[str, object]:
    return {
        **_TASK_DEFAULTS,
        "Name": job.task,
        "Driver": job.driver,
        "Config": {name: _config(value) for name, value in job.config.items()},
        "Env": dict(job.env),
        "KillTimeout": None if job.kill_timeout_s is None else job.kill_timeout_s * _NS_PER_S,
        "Artifacts": [_artifact(each) for each in job.artifacts] or None,
        "Templates": [_template(each) for each in job.templates] or None,
        "Resources": {
            "CPU": job.cpu_mhz,
            "MemoryMB": job.memory_mib,
            "Devices": [
                {
                    "Name": job.device,
                    "Count": job.device_count,
                    "Constraints": [_constraint(each) for each in job.constraints] or None,
                    "Affinities": [_affinity(each) for each in job.affinities] or None,
                }
            ],
        },
    }


def _affinity(affinity: JobAffinity) -> dict[str, object]:
    return {**_constraint(affinity), "Weight": affinity.weight}


def _spread(spread: JobSpread) -> dict[str, object]:
    return {
        "Attribute": spread.attribute,
        "Weight": spread.weight,
        "SpreadTarget": [{"Value": value, "Percent": percent} for value, percent in spread.targets]
        or None,
    }


def _constraint(constraint: DeviceConstraint | NodeConstraint | JobAffinity) -> dict[str, object]:
    return {
        "LTarget": constraint.attribute,
        "Operand": constraint.operator,
        "RTarget": constraint.value,
    }


def _config(value: ConfigValue) -> object:
    if isinstance(value, Mapping):
        return [dict(value)]  # a block
    return list(value) if isinstance(value, tuple) else value


def _artifact(artifact: Artifact) -> dict[str, object]:
    return {
        "GetterSource": artifact.source,
        "RelativeDest": artifact.destination,
        # The default mode comes back as nothing at all.
        "GetterMode": None if artifact.mode == "any" else artifact.mode,
        "GetterOptions": {"checksum": artifact.checksum} if artifact.checksum else None,
        "Chown": False,
    }


def _template(template: Template) -> dict[str, object]:
    return {
        **_TEMPLATE_DEFAULTS,
        "EmbeddedTmpl": template.data,
        "DestPath": template.destination,
        "Envvars": template.env,
        "ChangeMode": template.change_mode,
        "Perms": template.perms,
    }


def _stated(value: Mapping[str, object]) -> dict[str, object]:
    """Remove nulls at any depth."""
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return _stated(value)
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _differences(meant: object, read: object, where: str) -> Iterator[str]:
    if isinstance(meant, Mapping) and isinstance(read, Mapping):
        for name in (*meant, *(name for name in read if name not in meant)):
            place = f"{where}.{name}" if where else str(name)
            if name not in read:
                yield f"{place}: meant {_shown(name, meant[name])}, read nothing"
            elif name not in meant:
                yield f"{place}: read {_shown(name, read[name])}, meant nothing"
            elif name == _SECRET:
                if not _same(meant[name], read[name]):
                    yield f"{place} differs"
            else:
                yield from _differences(meant[name], read[name], place)
    elif isinstance(meant, list) and isinstance(read, list) and len(meant) == len(read):
        for number, (ours, theirs) in enumerate(zip(meant, read, strict=True)):
            yield from _differences(ours, theirs, f"{where}[{number}]")
    elif not _same(meant, read):
        yield f"{where}: meant {_shown('', meant)}, read {_shown('', read)}"


def _same(meant: object, read: object) -> bool:
    """Return whether values are equal in value and type: ``1`` is neither ``true`` nor ``1.5``."""
    if type(meant) is not type(read):
        return False
    if isinstance(meant, dict) and isinstance(read, dict):
        return meant.keys() == read.keys() and all(_same(meant[key], read[key]) for key in meant)
    if isinstance(meant, list) and isinstance(read, list):
        return len(meant) == len(read) and all(map(_same, meant, read))
    return meant == read


def _shown(name: object, value: object) -> str:
    text = "a value" if name == _SECRET else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
