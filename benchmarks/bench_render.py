"""Jobs as HCL text: how many a second on one core, escaping included; and read back."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.tables import Row, median
from edgeyard.scheduler.hcl.build import JobFile, JobRequest, RenderSettings, build_job
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.job import NomadJob
from edgeyard.scheduler.hcl.parse import warm_up
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.model.benchmark import (
    BenchmarkType,
    Binding,
    Constraint,
    FileRole,
    JobDescription,
)

JOBS, READ_BACK, ROUNDS = 5_000, 200, 5
_SETTINGS = RenderSettings(public_url="http://edgeyard.example:42777")
_DESCRIPTION = JobDescription(
    model="model.onnx",
    runtime="ort",
    benchmark_type=BenchmarkType.TYPE1,
    target="rpi4b",
    constraints=(Constraint(attribute="soc.note", operator="!=", value='say "ü"'),),
)


def run() -> list[Row]:
    """All jobs differ: in their ids, files, memory, boards and text to be escaped."""
    jobs = [build_job(_request(number), _SETTINGS) for number in range(JOBS)]
    rendered = [_per_s(lambda: [render(job) for job in jobs], JOBS) for _ in range(ROUNDS)]
    warm_up()
    few = jobs[:READ_BACK]
    there_and_back = [_per_s(lambda: _there_and_back(few), READ_BACK) for _ in range(ROUNDS)]
    return [
        _row("render", rendered, f"{JOBS:,} jobs"),
        _row("round trip", there_and_back, f"{READ_BACK} jobs: rendered, read back, compared"),
    ]


def _there_and_back(jobs: Sequence[NomadJob]) -> None:
    for job in jobs:
        check_round_trip(job, render(job))


def _row(name: str, rates: list[float], note: str) -> Row:
    spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
    return Row(name, median(rates), "/s", note=f"{note}; one core, {ROUNDS} rounds: {spread}")


def _per_s(work: Callable[[], object], count: int) -> float:
    began = time.process_time()
    work()
    return count / (time.process_time() - began)


def _request(number: int) -> JobRequest:
    own = replace(_DESCRIPTION.constraints[0], value=f'say "ü" {number}')
    return JobRequest(
        job_id=f"benchmark-rpi4b-ort-{number:014}-ab",
        description=replace(_DESCRIPTION, ram=(1 << 30) + number, constraints=(own,)),
        priority=1 + number % 100,
        binding=Binding.STRICT,
        files=tuple(
            JobFile(
                role=role, filename=name, download=f"{number:032x}-{name}", sha256=f"{number:064x}"
            )
            for role, name in ((FileRole.MODEL, "model.onnx"), (None, "spec.json"))
        ),
        target_uid=f"rpi4b-{number // 9000 + 1:04}-{number % 9000 + 1:04}",
    )
