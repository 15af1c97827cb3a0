"""What a benchmark measured: primary metrics may be compared where all of it is equal."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edgeyard.devices.benchmark_types import STANDARD_TYPES
from edgeyard.devices.metrics import P50, RUNS_PER_S, generation_primary, primary_metric
from edgeyard.devices.runner.generation_request import (
    PARAMETERS,
    GenerationRequest,
    read_request,
)
from edgeyard.errors import RunFailed
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    FileRole,
    JobDescription,
    model_of,
)

PARTS = {
    "model_sha256": "model's content",
    "dataset_sha256": "dataset",
    "benchmark_type": "type",
    "engine": "engine",
    "engine_version": "engine's version",
    "parameters": "parameters",
    "inputs": "inputs",
    "batch_size": "batch size",
    "training": "training",
    "load": "load",
    "metric": "metric",
}
"""What has to be equal for a ratio: the parts of a workload, with their names for people."""

VERSION_PARTS = frozenset({"model_sha256", "engine", "engine_version", "parameters"})
"""Parts in which two versions of a model or of its settings may differ."""


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
    model = model_of(files)
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
        "model_sha256": None if model is None else model.sha256,
        "dataset_sha256": [each.sha256 for each in files if each.role is FileRole.DATASET],
        "benchmark_type": description.benchmark_type.value,
        "engine": description.runtime,
        "engine_version": version if isinstance(version, str) else None,
        "parameters": dict(description.parameters),
        "inputs": inputs,
        "batch_size": batch_size if is_number else None,
        "training": dict(config) or None,
        "load": load_text(description),
        "metric": _metric(description, report),
    }


_OF_SERIES = ("dataset_sha256", "parameters", "inputs", "batch_size", "training", "load", "metric")


def work_of_series(benchmark: Benchmark, report: Mapping[str, object]) -> str:
    """Return a short text that is equal where points of one lineage may be one series.

    Versions of model and engine are not part of it: a series goes on with new ones.
    """
    whole = workload(benchmark, report)
    body = json.dumps({name: whole[name] for name in _OF_SERIES}, sort_keys=True, default=str)
    return hashlib.blake2b(body.encode(), digest_size=8).hexdigest()


def stated_work(description: JobDescription) -> str:
    """Return what a description states of the work of its series, in words; "" of nothing."""
    inputs = [{"name": name, **stated} for name, stated in sorted(description.input.items())]
    known = {
        "parameters": dict(description.parameters),
        "load": load_text(description),
        "inputs": inputs,
    }
    return " · ".join(filter(None, (part_text(known, name) for name in known)))


def workload_digest(benchmark: Benchmark, report: Mapping[str, object]) -> str:
    """Return a short text that is equal where the workload is."""
    body = json.dumps(workload(benchmark, report), sort_keys=True, default=str)
    return hashlib.blake2b(body.encode(), digest_size=8).hexdigest()


def other_work(
    first: Mapping[str, object],
    second: Mapping[str, object],
    known_late: Collection[str] = (),
) -> list[str]:
    """Return in which parts, beyond `VERSION_PARTS`, two workloads differ, in words.

    Of a language model's parameters those that describe its requests are no settings of a version.

    Args:
        first: The baseline's.
        second: The candidate's.
        known_late: Parts that only a run shows; they are compared if both are known.
    """
    unknown = {name for name in known_late if not (first.get(name) and second.get(name))}
    before, after = request_of(first), request_of(second)
    differ = before is not None and after is not None and before != after
    words = f"requests ({request_text(first)} against {request_text(second)})"
    others = [words] if differ else []
    return others + [
        f"{PARTS[name]} ({part_text(first, name) or 'none'} against "
        f"{part_text(second, name) or 'none'})"
        for name in PARTS
        if name not in VERSION_PARTS | unknown and first.get(name) != second.get(name)
    ]


def request_of(workload: Mapping[str, object]) -> GenerationRequest | None:
    """Return what a language model is asked, however it was stated; None of other types."""
    if workload.get("benchmark_type") != "GENAI":
        return None
    with contextlib.suppress(RunFailed):
        found = read_request(_table(workload, "parameters"))
        return replace(found, preset="", requests=1)
    return None


def settings_of(workload: Mapping[str, object]) -> Mapping[str, object]:
    """Return the parameters; of a language model's those that are no part of its requests."""
    parameters = _table(workload, "parameters")
    if request_of(workload) is None:
        return parameters
    return {name: value for name, value in parameters.items() if name not in PARAMETERS}


def request_text(workload: Mapping[str, object]) -> str:
    """Return what a language model is asked, in words; "" of other types."""
    request = request_of(workload)
    if request is None:
        return ""
    return lengths_text(request.prompt_length, request.output_length)


def lengths_text(prompt_length: int | None, output_length: int) -> str:
    """Return the lengths of a request in words, tokens; None: the prompt is a text."""
    tokens = "1 token" if prompt_length == 1 else f"{prompt_length} tokens"
    prompt = "a text prompt" if prompt_length is None else f"a prompt of {tokens}"
    return f"{prompt} and {output_length} generated"


def request_name(workload: Mapping[str, object]) -> str:
    """Return what a language model is asked, as llama-bench names it; "" of other types."""
    request = request_of(workload)
    if request is None:
        return ""
    prompt, output = request.prompt_length, request.output_length
    read = "text" if prompt is None else f"pp{prompt}" if prompt > 1 else ""
    return "+".join(filter(None, (read, f"tg{output}" if output > 1 or not read else "")))


def part_text(workload: Mapping[str, object], name: str) -> str:
    """Show one part of a workload in a few words; empty where it is not known."""
    value = workload.get(name)
    if name in ("model_sha256", "dataset_sha256"):
        hashes = value if isinstance(value, list) else [value]
        return ", ".join(one[:8] for one in hashes if isinstance(one, str))
    if name == "inputs" and isinstance(value, list):
        return ", ".join(_input(one) for one in value if isinstance(one, Mapping))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={one}" for key, one in value.items() if one not in ({}, None))
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return f"version {value}" if name == "engine_version" else str(value)


def _input(one: Mapping[str, object]) -> str:
    shape = one.get("shape")
    sizes = ""
    if isinstance(shape, list):
        sizes = "×".join("?" if each is None else str(each) for each in shape)
    words = [one.get("name"), sizes, one.get("dtype")]
    return " ".join(each for each in words if isinstance(each, str) and each)


def _metric(description: JobDescription, report: Mapping[str, object]) -> str | None:
    """Return the primary metric, in words; None until a run shows what its engine declares."""
    kind = description.benchmark_type.value
    found = primary_metric({"benchmark_type": kind, **report})
    if found is not None:
        return found.metric.sentence
    if description.concurrency:
        return RUNS_PER_S.sentence
    if description.load_rules is not None:
        return description.load_rules.primary_metric.sentence
    if description.benchmark_type is BenchmarkType.GENAI:
        with contextlib.suppress(RunFailed):
            return generation_primary(read_request(description.parameters).output_length).sentence
    return P50.sentence if kind in STANDARD_TYPES else None


def load_text(description: JobDescription) -> str | None:
    """Return how the model is called, in words; None: by one caller for a number of runs."""
    if description.soak_s is not None:
        return f"soak of {description.soak_s:g} s"
    if description.concurrency:
        return f"concurrency {','.join(map(str, description.concurrency))}"
    return None if description.load_rules is None else str(description.load_rules)


def _table(of: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}
