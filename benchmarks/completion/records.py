"""The committed records of each job, and what they show: paired comparisons of arms."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks.bench_quality import ratio_interval
from benchmarks.completion.scenario import PEER, Scenario
from edgeyard.atomic_files import open_atomically

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Job:
    """One job; times are seconds after the beginning of its run.

    Attributes:
        model: Network that it ran.
        family: That it asked for.
        board: That it ran on last; "" if it never ran.
        submitted_s: When the server accepted it.
        started_s: When its task began on the board; NaN if it never did.
        ended_s: When it had ended, with its result.
        status: ``completed``, ``failed``...
        attempts: How often it was started.
    """

    model: str
    family: str
    board: str
    submitted_s: float
    started_s: float
    ended_s: float
    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Run:
    """All submissions of a block under one arm.

    Attributes:
        block: Its number from 1; 0 and below for runs before the blocks, which made history.
        began_at: UTC, ISO 8601.
        load_average: Of the machine at its beginning: of one minute, other programs included.
        training: What a training of outcome models before this run reported, with the gates that
            did not hold; "" if there was none.
        models: Outcome models that were active, such as ``run_time/1``.
    """

    block: int
    arm: str
    began_at: str
    load_average: float
    training: str
    models: tuple[str, ...]
    jobs: tuple[Job, ...]

    def mean(self, of: Callable[[Job], float]) -> float:
        """Return the mean of a figure over all jobs."""
        return float(np.mean([of(job) for job in self.jobs]))


@dataclass(frozen=True, slots=True)
class Record:
    """All runs of a scenario.

    Attributes:
        about: How they were made, with the emulation in words.
    """

    about: Mapping[str, object]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of two arms, over the blocks that have a run of each.

    Attributes:
        ours: Mean over all blocks, seconds.
        ratio: Of the sums, with its 95 % interval: blocks are drawn with replacement.
        block_ratio: Geometric mean of the blocks' ratios, with its 95 % interval by Student's
            distribution of their logarithms: each block counts alike, however busy the machine was.
        difference: Mean of ours less the peer's, seconds, with its 95 % interval by Student's
            distribution.
    """

    blocks: int
    ours: float
    peer: float
    ratio: tuple[float, float, float]
    block_ratio: tuple[float, float, float]
    difference: tuple[float, float, float]


def completion_s(job: Job) -> float:
    """Return the time from submission to result."""
    return job.ended_s - job.submitted_s


def queueing_s(job: Job) -> float:
    """Return the time from submission to the start on a board; all of it if it never started."""
    start_s = job.ended_s if np.isnan(job.started_s) else job.started_s
    return start_s - job.submitted_s


def path_of(scenario: Scenario) -> Path:
    """Return the file of a scenario's records."""
    return DATA / f"completion_{scenario.name}.json"


def read_record(path: Path) -> Record:
    """Read a file; KeyError, TypeError or ValueError if it is damaged."""
    found = json.loads(path.read_text("utf-8"))
    names = [each.name for each in fields(Job)]
    if found["columns"] != names:
        raise ValueError(f"{path} has the columns {found['columns']}, not {names}")
    return Record(
        about=found["about"],
        runs=tuple(
            Run(
                **{
                    **run,
                    "models": tuple(run["models"]),
                    "jobs": tuple(_job(dict(zip(names, row, strict=True))) for row in run["jobs"]),
                }
            )
            for run in found["runs"]
        ),
    )


def write_record(path: Path, record: Record) -> None:
    """Write a file with one line for each job; it is there whole or not at all."""
    names = [each.name for each in fields(Job)]
    lines = [
        f'{{"about": {json.dumps(record.about, indent=1)},',
        f'"columns": {json.dumps(names)},',
    ]
    runs = []
    for run in record.runs:
        facts = {name: value for name, value in asdict(run).items() if name != "jobs"}
        jobs = ",\n".join(json.dumps(_row(job)) for job in run.jobs)
        runs.append(f'{json.dumps(facts)[:-1]}, "jobs": [\n{jobs}]}}')
    lines.append('"runs": [\n' + ",\n".join(runs) + "]}\n")
    with open_atomically(path) as file:
        file.write("\n".join(lines).encode())


def paired_runs(record: Record, ours: str, peer: str = PEER) -> list[tuple[Run, Run]]:
    """Return the runs under two arms of each block that has both."""
    found: dict[int, dict[str, Run]] = {}
    for run in record.runs:
        if run.block > 0:
            found.setdefault(run.block, {})[run.arm] = run
    return [
        (runs[ours], runs[peer]) for _, runs in sorted(found.items()) if {ours, peer} <= runs.keys()
    ]


def compare(record: Record, ours: str, of: Callable[[Job], float], peer: str = PEER) -> Comparison:
    """Compare two arms by a figure of each job.

    Raises:
        ValueError: Fewer than two blocks have a run under both.
    """
    pairs = paired_runs(record, ours, peer)
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} blocks have a run under {ours} and one under {peer}")
    first = np.array([run.mean(of) for run, _ in pairs])
    second = np.array([run.mean(of) for _, run in pairs])
    return Comparison(
        blocks=len(pairs),
        ours=float(first.mean()),
        peer=float(second.mean()),
        ratio=ratio_interval(first.tolist(), second.tolist()),
        block_ratio=_exponentials(_mean_interval(np.log(first / second))),
        difference=_mean_interval(first - second),
    )


def _mean_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    mean, error = float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5
    half = float(student.ppf(0.975, len(values) - 1)) * error
    return mean, mean - half, mean + half


def _exponentials(logarithms: tuple[float, float, float]) -> tuple[float, float, float]:
    mean, low, high = logarithms
    return math.exp(mean), math.exp(low), math.exp(high)


def _row(job: Job) -> Sequence[object]:
    values = asdict(job)
    if np.isnan(job.started_s):
        values["started_s"] = None
    return [round(one, 3) if isinstance(one, float) else one for one in values.values()]


def _job(values: dict[str, object]) -> Job:
    if values["started_s"] is None:
        values["started_s"] = float("nan")
    return Job(**values)  # type: ignore[arg-type]
