"""What a benchmark measured: primary metrics may be compared where all of it is equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from edgeyard.devices.benchmark_types import STANDARD_TYPES
from edgeyard.devices.metrics import P50, primary_metric
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkFile, FileRole, JobDescription


def workload(benchmark: Benchmark, report: Mapping[str, object]) -> dict[str, object]:
    """Describe what was measured, as JSON.

    Args:
        benchmark: Its description and files.
        report: Its newest report; empty where there is none, and what it would state is null.
    """
    return workload_of(benchmark.description, benchmark.files, report)


def workload_of(
    description: JobDescription, files: Sequence[BenchmarkFile], report: Mapping[str, object]
) -> dict[str, object]:
    """Describe what a description measures, as JSON.

    Args:
        description: The job description.
        report: A report, or what is known of one before it runs; the rest is null.
    """
    hashes: dict[FileRole, list[str | None]] = {role: [] for role in FileRole}
    for file in files:
        hashes[file.role].append(file.sha256)
    feeds = _table(report, "feeds")
    inputs: list[dict[str, object]] = [
        {"name": name, "shape": shape.get("shape"), "dtype": shape.get("dtype")}
        for name, shape in sorted(feeds.items())
        if isinstance(shape, Mapping)
    ]
    stated = report.get("inputs")
    if not inputs and isinstance(stated, list):
        inputs = [
            {name: one.get(name) for name in ("name", "shape", "dtype")}
            for one in stated
            if isinstance(one, Mapping)
        ]
    config = _table(_table(report, "training"), "config")
    version = _table(report, "engine_facts").get("version")
    batch_size = _table(report, "accuracy").get("batch_size")
    is_number = isinstance(batch_size, int | float) and not isinstance(batch_size, bool)
    return {
        "model_sha256": next(iter(hashes[FileRole.MODEL]), None),
        "dataset_sha256": hashes[FileRole.DATASET],
        "benchmark_type": description.benchmark_type.value,
        "engine": description.runtime,
        "engine_version": version if isinstance(version, str) else None,
        "parameters": dict(description.parameters),
        "inputs": inputs,
        "batch_size": batch_size if is_number else None,
        "training": dict(config) or None,
        "metric": _metric(description, report),
    }


def workload_digest(benchmark: Benchmark, report: Mapping[str, object]) -> str:
    """Return a short text that is equal where the workload is."""
    body = json.dumps(workload(benchmark, report), sort_keys=True, default=str)
    return hashlib.blake2b(body.encode(), digest_size=8).hexdigest()


def _metric(description: JobDescription, report: Mapping[str, object]) -> str | None:
    """Return the primary metric, in words; None until a run shows what its engine declares."""
    kind = description.benchmark_type.value
    found = primary_metric({"benchmark_type": kind, **report})
    if found is not None:
        return found.metric.sentence
    return P50.sentence if kind in STANDARD_TYPES else None


def _table(of: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}
