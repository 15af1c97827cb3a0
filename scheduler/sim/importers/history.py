"""A lab's recorded history, as `edgeyard export` writes it, becomes a scenario of the lab.

What is kept, and how: a benchmark with at least one ended attempt becomes a job, submitted when it
was; its run time is that of its last attempt, and its earlier attempts fail as they did. Boards are
those on which attempts ran, in groups by family, with the engines and types that ran there. A
benchmark without an ended attempt, or whose last one took no time, is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.model.benchmark import BenchmarkType, FailureCategory
from edgeyard.scheduler.sim.importers.machines import (
    DRAIN_S,
    MAX_JOBS,
    Imported,
    Selection,
    checked,
    counted,
)
from edgeyard.scheduler.sim.scenario import (
    BoardGroup,
    JobRow,
    LabScenario,
    PastFailure,
    Scenario,
)

_BENCHMARKS = ("benchmark_id", "user_id", "submit_time", "description")
_OUTCOMES = (
    *("benchmark_id", "attempt", "target_uid", "family", "engine", "benchmark_type"),
    *("model_sha256", "run_s", "failure_category", "ended_at"),
)

Row = Mapping[str, Any]


def import_history(
    folder: Path,
    selection: Selection,
    *,
    advanced: Callable[[float], None] = lambda share: None,
) -> Imported:
    """Read a folder of `edgeyard export`.

    Args:
        folder: With ``benchmarks.parquet`` and ``outcomes.parquet``.
        selection: Which benchmarks.
        advanced: Called now and then with the share that was read.

    Raises:
        ConfigError: pyarrow is not installed.
        InvalidInput: A file or a column is missing, or nothing ran.
    """
    benchmarks = _rows(folder / "benchmarks.parquet", _BENCHMARKS)
    advanced(0.3)
    attempts: dict[str, list[Row]] = defaultdict(list)
    for outcome in _rows(folder / "outcomes.parquet", _OUTCOMES):
        if outcome["run_s"] is not None and outcome["target_uid"]:
            attempts[outcome["benchmark_id"]].append(outcome)
    advanced(0.7)
    ran = sorted(
        (each for each in benchmarks if _last_run_s(attempts.get(each["benchmark_id"], ())) > 0),
        key=lambda each: (each["submit_time"], each["benchmark_id"]),
    )
    chosen = ran[selection.skip :][: selection.count]
    if not chosen:
        reason = f"there are only {len(ran)} benchmarks that ran" if ran else "no benchmark ran"
        raise InvalidInput.at("--skip" if ran else str(folder), reason)
    if len(chosen) > MAX_JOBS:
        reason = f"has {len(chosen):,} benchmarks that ran"
        raise InvalidInput.at(str(folder), reason, f"--count {MAX_JOBS} or less")
    began: datetime = chosen[0]["submit_time"]
    jobs = tuple(_job(each, attempts[each["benchmark_id"]], began) for each in chosen)
    advanced(1.0)
    outcomes = [each for some in attempts.values() for each in some]
    scenario = Scenario(
        name=selection.name,
        world="boards",
        duration_s=max(jobs[-1].submit_s, 1.0),
        drain_s=DRAIN_S,
        description=f"History of a lab from {began:%Y-%m-%d %H:%M:%S} UTC on",
        lab=LabScenario(boards=_groups(outcomes), jobs=jobs),
    )
    return Imported(
        scenario=checked(scenario),
        notes=counted(len(benchmarks) - len(ran), "that never ran left out"),
    )


def _rows(path: Path, columns: tuple[str, ...]) -> list[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(["reading Parquet needs pyarrow: install edgeyard[export]"]) from None
    try:
        table = parquet.read_table(path, columns=list(columns))
    except FileNotFoundError as error:
        accepted = "a folder that `edgeyard export` wrote"
        raise InvalidInput.at(str(path), "is missing", accepted) from error
    except pyarrow.ArrowException as error:
        raise InvalidInput.at(str(path), f"is no Parquet file: {error}") from error
    if missing := [name for name in columns if name not in table.column_names]:
        raise InvalidInput.at(str(path), f"has no column {', '.join(missing)}", ", ".join(columns))
    rows: list[Row] = table.to_pylist()
    return rows


def _last_run_s(attempts: Any) -> float:
    return float(max(attempts, key=lambda each: each["attempt"])["run_s"]) if attempts else 0.0


def _job(benchmark: Row, attempts: list[Row], began: datetime) -> JobRow:
    *earlier, last = sorted(attempts, key=lambda each: each["attempt"])
    failures = tuple(
        PastFailure(category=FailureCategory(each["failure_category"]), after_s=each["run_s"])
        for each in earlier
        if each["failure_category"]
    )
    return JobRow(
        job_id=benchmark["benchmark_id"],
        submit_s=(benchmark["submit_time"] - began).total_seconds(),
        run_s=last["run_s"],
        family=last["family"],
        model=last["model_sha256"] or "",
        engine=last["engine"],
        benchmark_type=BenchmarkType(last["benchmark_type"]),
        user=benchmark["user_id"],
        max_retries=max(1, len(failures)),
        failures=failures,
    )


def _groups(outcomes: list[Row]) -> tuple[BoardGroup, ...]:
    boards: dict[str, set[str]] = defaultdict(set)
    engines: dict[str, dict[str, set[BenchmarkType]]] = defaultdict(lambda: defaultdict(set))
    for each in outcomes:
        boards[each["family"]].add(each["target_uid"])
        engines[each["family"]][each["engine"]].add(BenchmarkType(each["benchmark_type"]))
    return tuple(
        BoardGroup(
            family=family,
            count=len(uids),
            engines={engine: tuple(sorted(types)) for engine, types in engines[family].items()},
        )
        for family, uids in sorted(boards.items())
    )
