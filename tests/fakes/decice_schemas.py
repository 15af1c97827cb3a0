"""JSON Schemas of DECICE's synthetic test environment, which the twin's documents have to meet."""

from __future__ import annotations

from collections.abc import Mapping


def _number(meaning: str) -> dict[str, object]:
    return {"type": "number", "minimum": 0, "description": meaning}


NODE_POOL_SCHEMA: Mapping[str, object] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Json Schema for NodePool",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "cpu_cores": {"type": "number"},
        "memory": {"type": "number"},
        "cpu_load": {"type": "number"},
        "memory_load": {"type": "number"},
    },
    "required": ["id", "cpu_cores", "memory", "cpu_load", "memory_load"],
}
"""DECICE's schema of a node, without the comma that makes the published one invalid JSON."""

JOB_SCHEMA: Mapping[str, object] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Json Schema for a job",
    "type": "object",
    "properties": {
        "job_id": {"type": ["string", "integer"], "description": "The ID of the job"},
        "cpus_req": _number("CPU requirement of the job"),
        "mem_req": _number("Memory requirement of the job in MB"),
        "time_run": _number("Total time elapsed during job run"),
        "node_id": {"type": ["string", "null"], "description": "The ID of the node"},
    },
    "required": ["job_id", "cpus_req", "mem_req", "time_run"],
}
"""The parameters of jobs in DECICE's table 3."""
