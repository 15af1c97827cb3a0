"""The report of a run: ``report.json``, as ``docs/reference/result.schema.json`` describes it."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence

import edgeyard
from edgeyard.atomic_files import open_atomically
from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.spec import RunSpec
from edgeyard.errors import RunFailed

SCHEMA = "edgeyard/result/v1"
CATEGORIES = (
    "user_model",
    "user_input",
    "engine_unsupported",
    "out_of_memory",
    "board_fault",
    "thermal",
    "network",
    "cluster",
    "upload",
    "timeout",
    "unknown",
)
"""Failure categories that a run can have; an engine that names another one is not believed."""

REPORT = "report.json"
LOG = "runner.log"
_HASH_CHUNK = 1024 * 1024

Report = Dict[str, object]


def build_report(
    spec: RunSpec,
    board: BoardFacts,
    measured: Mapping[str, object],
    *,
    started_at: datetime,
    ended_at: datetime,
    failure: Optional[RunFailed] = None,
    peak_rss_bytes: Optional[int] = None,
    confinement: Optional[Mapping[str, object]] = None,
) -> Report:
    """Return the whole report.

    Args:
        measured: What the child found; whatever it says wins over what is empty here.
        failure: Why there is no result; None: there is one.
        peak_rss_bytes: As the kernel reported at the child's end; used where the child did not.
        confinement: How the run was confined; None: nothing was run.
    """
    model = spec.path(spec.model)
    size = spec.model.size_bytes
    if size is None and model.is_file():
        size = model.stat().st_size
    report: Report = {
        "schema": SCHEMA,
        "status": "ok" if failure is None else "failed",
        "failure": None
        if failure is None
        else {"category": failure.category, "sentence": failure.sentence},
        "benchmark_id": spec.benchmark_id,
        "attempt": spec.attempt,
        "job_id": spec.job_id,
        "alloc_id": spec.alloc_id,
        "node_id": spec.node_id,
        "version_tag": spec.version_tag,
        "benchmark_type": spec.benchmark_type,
        "engine": spec.engine,
        "date": _rfc3339(ended_at),
        "started_at": _rfc3339(started_at),
        "ended_at": _rfc3339(ended_at),
        "target": spec.target or board.family,
        "target_id": board.target_uid or None,
        "inference_engine": spec.engine,
        "nb_inference": 0,
        "ram_peak": peak_rss_bytes or None,
        "ram_baseline": None,
        "ram_model": None,
        "flash_usage": size,
        "load_cpu": None,
        "temperature": None,
        "power_consumption": None,
        "energy": None,
        "primary_metric": None,
        "inference_latency": None,
        "runs_per_s": None,
        "rows_per_s": None,
        "verdict": None,
        "model": {
            "filename": spec.model.filename,
            "sha256": spec.model.sha256,
            "size_bytes": size,
        },
        "board": {
            "target_uid": board.target_uid or None,
            "family": board.family or None,
            "emulated": board.emulated,
            "cpus": list(board.cpus),
            "threads": board.threads,
            "duty_cycle": board.duty_cycle,
            "ram_bytes": board.ram_bytes,
        },
        "runner": {"version": edgeyard.__version__, "python": platform.python_version()},
        "confinement": confinement,
        "files": [],
    }
    facts = measured.get("board_facts")
    if isinstance(facts, dict) and isinstance(report["board"], dict):
        report["board"].update(facts)
    report.update(
        (key, value)
        for key, value in measured.items()
        if key not in ("board_facts", "files", "confinement") and value is not None
    )
    return report


def file_entries(folder: Path, names: Sequence[str]) -> List[Dict[str, object]]:
    """Name, hash and size of the files that go with a report; what is not there is left out."""
    entries: List[Dict[str, object]] = []
    for name in names:
        path = folder / name
        if path.is_file():
            entries.append(
                {"name": name, "sha256": sha256_of(path), "size_bytes": path.stat().st_size}
            )
    return entries


def write_report(folder: Path, report: Report) -> Path:
    """Write ``report.json`` so that it is there whole or not at all."""
    path = folder / REPORT
    with open_atomically(path, sync=True) as file:
        file.write(json.dumps(_finite(report), allow_nan=False, indent=1).encode())
    return path


def read_report(folder: Path, spec: RunSpec) -> Optional[Report]:
    """Return the report that an earlier process of this attempt wrote; None if there is none."""
    try:
        report = json.loads((folder / REPORT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    same = isinstance(report, dict) and (
        report.get("schema"),
        report.get("benchmark_id"),
        report.get("attempt"),
        report.get("job_id"),
    ) == (SCHEMA, spec.benchmark_id, spec.attempt, spec.job_id)
    return report if same else None


def sha256_of(path: Path) -> str:
    """Hash of a file's content, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASH_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def now() -> datetime:
    """Return the time on the board's clock, UTC."""
    return datetime.now(timezone.utc)


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _finite(value: object) -> object:
    """JSON knows neither NaN nor infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
