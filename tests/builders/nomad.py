"""Answers of Nomad's API, as it gives them, for tests without one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ADDRESS = "http://nomad.test:4646"
UID = "rpi4b-0001-0001"
JOB = "benchmark-1"
STARTED, FINISHED = "2026-11-21T09:33:50.763364576Z", "2026-11-21T09:33:52.874562986Z"

Json = dict[str, object]

NOMAD_2: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data/nomad_2_1.json").read_text("utf-8")
)
"""Answers in the form that the docs of Nomad 2.1 state (HTTP API: agent, nodes, allocations, batch
job queue); nothing of them came from a real one."""


def event(kind: str, message: str = "", **details: str) -> Json:
    return {"Type": kind, "DisplayMessage": message, "Details": details, "FailsTask": False}


def terminated(exit_code: int, signal: int = 0, *, oom: bool = False, message: str = "") -> Json:
    return event(
        "Terminated",
        exit_code=str(exit_code),
        signal=str(signal),
        oom_killed=str(oom).lower(),
        **({"exit_message": message} if message else {}),
    )


BEGUN = (event("Received"), event("Task Setup"), event("Started"))


def allocation(
    status: str = "complete",
    *events: Json,
    desired: str = "run",
    job_id: str = JOB,
    index: int = 20,
    started: bool = True,
    uid: str = UID,
    **changes: object,
) -> Json:
    """An allocation of our only task, on the host ``pi-host``."""
    ended = status not in ("pending", "running", "unknown")
    return {
        "ID": "4a1e6a2c-0000-0000-0000-000000000001",
        "JobID": job_id,
        "NodeID": "node-1",
        "NodeName": "pi-host",
        "ClientStatus": status,
        "DesiredStatus": desired,
        "ClientDescription": "",
        "DesiredDescription": "",
        "PreemptedByAllocation": "",
        "CreateIndex": index,
        "ModifyTime": 1795253395957222583,
        "TaskStates": {
            "bootstrap-job": {
                "State": "dead" if ended else "running",
                "Failed": status == "failed",
                "StartedAt": STARTED if started else None,
                "FinishedAt": FINISHED if ended else None,
                "Events": [*(BEGUN if started else BEGUN[:1]), *events],
            }
        },
        "AllocatedResources": {
            "Tasks": {
                "bootstrap-job": {
                    "Devices": [
                        {
                            "Vendor": "daiedge",
                            "Type": "edgedevice",
                            "Name": uid,
                            "DeviceIDs": [uid],
                        }
                    ]
                }
            }
        },
        **changes,
    }


def job(job_id: str = JOB, status: str = "running", **changes: object) -> Json:
    """A job of a list."""
    return {
        "ID": job_id,
        "ParentID": "",
        "Status": status,
        "Stop": False,
        "Periodic": False,
        "CreateIndex": 10,
        "SubmitTime": 1795253395954773763,
        **changes,
    }


def device(
    uid: str = UID, further: Mapping[str, object] | None = None, *, healthy: bool = True
) -> Json:
    """A device group of our plugin: one board."""
    content: Mapping[str, object] = {
        "target_uid": uid,
        "family": uid.split("-")[0],
        "engines": "ort",
        "engine.ort.supported_types": "TYPE1,TYPE2",
        "memory.ram": 4 * 2**30,
        "memory.storage": 16 * 2**30,
        "dynamic.progress": 0,
        "dynamic.status": "idle",
        **(further or {}),
    }
    return {
        "Vendor": "daiedge",
        "Type": "edgedevice",
        "Name": uid,
        "Attributes": {name: _attribute(value) for name, value in content.items()},
        "Instances": [
            {
                "ID": uid,
                "Healthy": healthy,
                "HealthDescription": "" if healthy else "/dev/ttyUSB0 is gone",
            }
        ],
    }


def _attribute(value: object) -> Json:
    empty: Json = dict.fromkeys(("Bool", "Float", "Int", "String", "Unit"))
    kind = {bool: "Bool", int: "Int", float: "Float", str: "String"}.get(type(value))
    if kind is None:
        assert isinstance(value, dict)  # with a unit
        return {**empty, **value}
    return {**empty, kind: value}


def node(*devices: Json, **changes: object) -> Json:
    return {
        "ID": "node-1",
        "Name": "pi-host",
        "Status": "ready",
        "Drain": False,
        "SchedulingEligibility": "eligible",
        "NodeResources": {"Devices": list(devices)},
        **changes,
    }


def blocked(
    job_id: str = JOB,
    *,
    available: Mapping[str, int] | None = None,
    filtered: Mapping[str, int] | None = None,
    exhausted: Mapping[str, int] | None = None,
    quota: Sequence[str] | None = None,
) -> Json:
    """The evaluation of a job that waits."""
    return {
        "JobID": job_id,
        "Status": "blocked",
        "FailedTGAllocs": {
            "bootstrap-group": {
                "NodesAvailable": {"dc1": 3} if available is None else available,
                "ConstraintFiltered": filtered,
                "DimensionExhausted": exhausted,
                "QuotaExhausted": quota,
            }
        },
    }
