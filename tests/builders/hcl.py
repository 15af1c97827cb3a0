"""Jobs, and what Nomad makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from edgeyard.scheduler.hcl.build import JobFile, JobRequest, RenderSettings
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Constraint,
    FileRole,
    JobDescription,
)

GIB = 2**30
SHA = "ab" * 32
MODEL = JobFile(
    role=FileRole.MODEL, filename="small_model.onnx", download="small_model.onnx", sha256=SHA
)
DATASET = JobFile(role=FileRole.DATASET, filename="faces.npz", download="d-faces.npz", sha256=SHA)
ODT_CONFIG = JobFile(role=FileRole.ODT_CONFIG, filename="odt.json", download="o-odt.json")
SPEC = JobFile(role=None, filename="spec.json", download="s-spec.json", sha256=SHA)

PLATFORM_DESCRIPTION = JobDescription(
    model="small_model.onnx",
    runtime="ort",
    benchmark_type=BenchmarkType.TYPE1,
    target="rpi4b",
    ram=4 * GIB,
    storage=16 * GIB,
    nb_inference=20,
    job_completion_threshold=90,
)
PLATFORM_SETTINGS = RenderSettings(
    public_url="http://10.200.0.1:42777",
    auth_username="registry-user",
    auth_password="CANARY-registry-password",
)
PLATFORM_START = datetime(2025, 8, 13, 7, 17, 30, tzinfo=UTC)

RAW_EXEC = RenderSettings(
    public_url="http://127.0.0.1:1",
    driver="raw_exec",
    command="/usr/bin/python3",
    args=("-m", "runner"),
)


def a_request(
    *,
    job_id: str = "benchmark-rpi4b-ort-20250813091714",
    description: JobDescription = PLATFORM_DESCRIPTION,
    priority: int = 80,
    binding: Binding = Binding.FILTERED,
    files: tuple[JobFile, ...] = (MODEL, SPEC),
    target_uid: str | None = None,
    allowed_uids: tuple[str, ...] = (),
    start_at: datetime | None = None,
) -> JobRequest:
    return JobRequest(
        job_id=job_id,
        description=description,
        priority=priority,
        binding=binding,
        files=files,
        target_uid=target_uid,
        allowed_uids=allowed_uids,
        start_at=start_at,
    )


def with_constraint(attribute: str, operator: str, value: str) -> JobDescription:
    own = Constraint(attribute=attribute, operator=operator, value=value)
    return replace(PLATFORM_DESCRIPTION, constraints=(own,))


def nomad_json(job: NomadJob) -> dict[str, Any]:
    """The JSON that ``nomad job run -output`` gives for the job; nulls and defaults left out."""
    task: dict[str, Any] = {
        "Name": job.task,
        "Driver": job.driver,
        "Config": {
            key: [dict(value)] if isinstance(value, Mapping) else value
            for key, value in job.config.items()
        },
        "Env": dict(job.env),
        "Resources": {
            "Devices": [
                {
                    "Name": job.device,
                    "Count": job.device_count,
                    "Constraints": [
                        {
                            "LTarget": constraint.attribute,
                            "Operand": constraint.operator,
                            "RTarget": constraint.value,
                        }
                        for constraint in job.constraints
                    ],
                }
            ]
        },
        "Artifacts": [
            {"GetterSource": artifact.source, "RelativeDest": artifact.destination}
            | ({"GetterMode": artifact.mode} if artifact.mode != "any" else {})
            | ({"GetterOptions": {"checksum": artifact.checksum}} if artifact.checksum else {})
            for artifact in job.artifacts
        ],
    }
    if job.kill_timeout_s is not None:
        task["KillTimeout"] = job.kill_timeout_s * 10**9
    if job.templates:
        task["Templates"] = [
            {
                "EmbeddedTmpl": template.data,
                "DestPath": template.destination,
                "Envvars": template.env,
            }
            | ({"ChangeMode": template.change_mode} if template.change_mode != "restart" else {})
            | ({"Perms": template.perms} if template.perms != "0644" else {})
            for template in job.templates
        ]
    group: dict[str, Any] = {"Name": job.group, "Count": job.group_count, "Tasks": [task]}
    if job.retries_off:
        group["RestartPolicy"] = {"Attempts": 0, "Mode": "fail"}
        group["ReschedulePolicy"] = {"Attempts": 0, "Unlimited": False}
    if job.lost_after_s is not None:
        group["Disconnect"] = {"LostAfter": job.lost_after_s * 10**9, "Replace": False}
    document: dict[str, Any] = {
        "ID": job.job_id,
        "Name": job.job_id,
        "Type": job.type,
        "Priority": job.priority,
        "Datacenters": list(job.datacenters),
        "TaskGroups": [group],
    }
    if job.periodic is not None:
        document["Periodic"] = {
            "Enabled": job.periodic.enabled,
            "Specs": [job.periodic.cron],
            "SpecType": "cron",
            "ProhibitOverlap": job.periodic.prohibit_overlap,
        }
        if job.periodic.time_zone is not None:
            document["Periodic"]["TimeZone"] = job.periodic.time_zone
    return {"Job": document}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of a JSON value by its path."""
    if isinstance(value, dict):
        items = [(f"{path}.{key}" if path else key, item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    else:
        return {path: value}
    leaves: dict[str, Any] = {}
    for inner, item in items:
        leaves |= flat(item, inner)
    return leaves
