"""A folder as `edgeyard export` writes it, of made-up days."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGAN = datetime(2026, 5, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def benchmark(
    name: str, submit_s: float, status: str = "completed", **asked: Any
) -> dict[str, Any]:
    """A benchmark; ``ended_s``, ``campaign_id``, ``user_id``, what its description states."""
    ended_s = asked.pop("ended_s", None)
    campaign_id = asked.pop("campaign_id", None)
    user_id = asked.pop("user_id", "ada")
    known: dict[str, Any] = {
        name: asked.pop(name)
        for name in ("model_sha256", "model_bytes", "variant")
        if name in asked
    }
    description = {
        "model": "m.onnx",
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "target": "rpi5",
        **asked,
    }
    return {
        "benchmark_id": name,
        "user_id": user_id,
        "campaign_id": campaign_id,
        "status": status,
        "submit_time": at(submit_s),
        "ended_at": None if ended_s is None else at(ended_s),
        "description": json.dumps(description),
        "model_sha256": None,
        "model_bytes": None,
        "variant": "",
        **known,
    }


def outcome(
    name: str, from_s: float, to_s: float, uid: str = "rpi5-0001-0001", **more: Any
) -> dict[str, Any]:
    """An attempt that held a board."""
    return {
        "benchmark_id": name,
        "attempt": 1,
        "target_uid": uid,
        "family": uid.split("-")[0],
        "model_sha256": "0" * 64,
        "run_s": to_s - from_s,
        "failure_category": None,
        "placed_at": at(from_s),
        "ended_at": at(to_s),
        "user_id": "ada",
        "engine": "ort",
        "benchmark_type": "TYPE1",
        "nb_inference": 20,
        "variant": "",
        **more,
    }


def board(uid: str, at_s: float = 0.0, **more: Any) -> dict[str, Any]:
    """What a cycle saw of a board."""
    return {
        "at": at(at_s),
        "target_uid": uid,
        "family": uid.split("-")[0],
        "host": "h1",
        "ram_bytes": 4 << 30,
        "storage_bytes": 32 << 30,
        "supports": ["ort:TYPE1", "ort:TYPE2"],
        "shares": [],
        "rate": 1.0,
        "cpu_cores": None,
        "max_run_s": 3600.0,
        "known": True,
        "online": True,
        "healthy": True,
        "drained": False,
        **more,
    }


def user(name: str, **more: Any) -> dict[str, Any]:
    return {"user_id": name, "share": 1.0, "max_running": None, "credits": None, **more}


def load(
    host: str,
    at_s: float,
    cpu: float | None,
    memory: float | None,
    after_s: float | None = None,
) -> dict[str, Any]:
    """A host's load, as a cycle saw it first; ``after_s``: time of the cycle before."""
    after = None if after_s is None else at(after_s)
    return {"at": at(at_s), "after": after, "host": host, "cpu": cpu, "memory": memory}


def write_export(
    folder: Path,
    benchmarks: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Mapping[str, Any]],
    boards: Sequence[Mapping[str, Any]] = (),
    users: Sequence[Mapping[str, Any]] = (),
    loads: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write the tables; without boards there is one, which always works."""
    import pyarrow
    from pyarrow import parquet

    from edgeyard.benchmark_api.cli.exporting import schemas

    folder.mkdir(exist_ok=True)
    tables = {
        "benchmarks": benchmarks,
        "outcomes": outcomes,
        "boards": boards or [board("rpi5-0001-0001")],
        "loads": loads,
        "users": users,
    }
    for name, rows in tables.items():
        table = pyarrow.Table.from_pylist(list(rows), schema=schemas()[name])
        parquet.write_table(table, folder / f"{name}.parquet")
    return folder
