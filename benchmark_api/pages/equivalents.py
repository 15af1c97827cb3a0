"""What a form asks for as a command line, as lines of Python and as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from edgeyard.benchmark_api.pages.job_form import JobRequest
from edgeyard.benchmark_api.schemas.notation import PARSERS, lines_of

_FLAGS = {
    "benchmark_id": "--id",
    "benchmark_type": "--type",
    "user_priority": "--priority",
    "constraints": "--constraint",
    "affinities": "--affinity",
    "spreads": "--spread",
    "parameters": "--parameter",
    "dataset_urls": "--dataset",
    "tags": "--tag",
}
"""Flags that are not called as their fields."""
_WITHOUT_A_FLAG = ("model_url", "extra")
_ON_AND_OFF = ("preemptible", "preemptible_measuring")
"""Fields that have a flag for false, too."""
_FIRST = ("model", "runtime", "benchmark_type", "target", "target_uid")


def json_of(request: JobRequest) -> str:
    """Return the body of the request."""
    return json.dumps(request.body, indent=2, ensure_ascii=False)


def command_of(request: JobRequest) -> str:
    """Return a line of a shell that submits the same; with a job file where flags can't say it."""
    job = _ordered(request.whole)
    words = ["edgeyard submit"]
    for name, value in job.items():
        flags = None if name in _WITHOUT_A_FLAG else _flags(name, value)
        if flags is None or (name == "dataset_urls" and "dataset" in job):
            text = json.dumps(request.whole, indent=2, ensure_ascii=False)
            return f"edgeyard submit /dev/stdin <<'JOB'\n{text}\nJOB"
        words += [shlex.join(flag) for flag in flags]
    return " \\\n  ".join(words)


def python_of(request: JobRequest) -> str:
    """Return the lines of Python that submit the same."""
    job = _ordered(request.whole)
    arguments = "".join(f"    {name}={value!r},\n" for name, value in job.items())
    several = "benchmarks" if request.matrix or "count" in job else "benchmark"
    return f"from edgeyard import Client\n\n{several} = Client().submit(\n{arguments})\n"


def _ordered(job: Mapping[str, object]) -> dict[str, object]:
    """Return a job with `_FIRST` at its beginning, and with its URL as its model."""
    job = dict(job)
    if "model" not in job and "model_url" in job:
        job["model"] = job.pop("model_url")
    first = {name: job[name] for name in _FIRST if name in job}
    return {**first, **job}


def _flags(name: str, value: object) -> list[list[str]] | None:
    """Return the flags that state a field; None: there are none."""
    flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    if isinstance(value, bool):
        if value:
            return [[flag]]
        return [[f"--no-{flag.removeprefix('--')}"]] if name in _ON_AND_OFF else []
    texts = _texts(name, value)
    if texts is None:
        return None
    return [[f"{flag}={text}"] if text.startswith("-") else [flag, text] for text in texts]


def _texts(name: str, value: object) -> list[str] | None:
    if name in PARSERS:
        return lines_of(name, value) if isinstance(value, list | dict) else None
    if isinstance(value, dict):
        return [json.dumps(value, ensure_ascii=False)]
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]
