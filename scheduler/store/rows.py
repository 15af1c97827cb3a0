"""Conversion between values of the model and rows, which only the store uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from edgeyard.scheduler.model import strict_json, wire
from edgeyard.scheduler.model.acts import Act
from edgeyard.scheduler.model.attempt import Attempt, AttemptState, Outcome
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    Binding,
    CronBy,
    Failure,
    FailureCategory,
    FileRole,
    JobDescription,
    Status,
    WaitingReason,
    WaitReason,
)
from edgeyard.scheduler.model.canaries import CANARY_USER
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import Report
from edgeyard.scheduler.model.history import PastRunColumns, RepeatedNumber
from edgeyard.scheduler.model.submissions import CronSchedule
from edgeyard.scheduler.store.tables import outcomes

Row = Mapping[str, object]

_DESCRIPTIONS = 1000
"""Cached descriptions: they never change, but are read with each change of their benchmark."""

_OUTCOME = tuple(field.name for field in fields(Outcome))
_BENCHMARK = tuple(  # what is stored as it is
    field.name
    for field in fields(Benchmark)
    if field.name not in ("status", "description", "files", "waiting", "failure")
)
_FAILURES = ("failure", "task_failure", "stopping")  # of an attempt


def flat_row(value: object) -> dict[str, object]:
    """Return the row of a dataclass whose fields are the table's columns."""
    row = {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]
    return {n: v.value if isinstance(v, Enum) else v for n, v in row.items()}


def benchmark_row(benchmark: Benchmark) -> dict[str, object]:
    """Return the columns of ``benchmarks``."""
    description, waiting = benchmark.description, benchmark.waiting
    return {
        **{name: getattr(benchmark, name) for name in _BENCHMARK},
        "status": benchmark.status.value,
        "name": description.name or None,
        "family": description.family,
        "engine": description.runtime,
        "benchmark_type": description.benchmark_type.value,
        "model": description.model,
        "series": benchmark.series,
        "start_time": description.start_time,
        "waiting_reason": None if waiting is None else waiting.reason.value,
        "waiting_sentence": None if waiting is None else waiting.sentence,
        **_failure_columns("failure", benchmark.failure),
    }


def benchmark_of(row: Row, files: Sequence[BenchmarkFile]) -> Benchmark:
    """Return the benchmark of a row that includes the description's ``body``."""
    r = cast("Mapping[str, Any]", row)
    waiting = None
    if r["waiting_reason"] is not None:
        waiting = WaitReason(
            reason=WaitingReason(r["waiting_reason"]), sentence=r["waiting_sentence"]
        )
    return Benchmark(
        **{name: r[name] for name in _BENCHMARK},
        status=Status(r["status"]),
        description=_description(r["body"]),
        files=tuple(files),
        waiting=waiting,
        failure=_failure_of("failure", row),
    )


@lru_cache(maxsize=_DESCRIPTIONS)
def _description(body: str) -> JobDescription:
    return wire.description_from_json(strict_json.loads(body))


def file_row(benchmark_id: str, file: BenchmarkFile) -> dict[str, object]:
    """Return the columns of ``benchmark_files``."""
    return {"benchmark_id": benchmark_id, **flat_row(file), "kept": True}


def file_of(row: Row) -> BenchmarkFile:
    """Return the benchmark's file of a row."""
    r = cast("dict[str, Any]", dict(row))
    del r["benchmark_id"], r["kept"]
    return BenchmarkFile(**(r | {"role": FileRole(r["role"])}))


def attempt_row(attempt: Attempt) -> dict[str, object]:
    """Return the columns of ``attempts``."""
    row = flat_row(attempt)
    for name in _FAILURES:
        del row[name]
        row |= _failure_columns(name, getattr(attempt, name))
    return {**row, "allowed_uids": strict_json.dumps(attempt.allowed_uids)}


def attempt_of(row: Row) -> Attempt:
    """Return the attempt of a row."""
    r = cast("dict[str, Any]", dict(row))
    for name in _FAILURES:
        r[name] = _failure_of(name, row)
        del r[f"{name}_category"], r[f"{name}_sentence"]
    r["state"] = AttemptState(r["state"])
    r["binding"] = Binding(r["binding"])
    r["allowed_uids"] = tuple(strict_json.loads(r["allowed_uids"]))
    return Attempt(**r)


def outcome_of(row: Row) -> Outcome:
    """Return the outcome of a row that may have other columns, too."""
    r = cast("Mapping[str, Any]", row)
    return Outcome(**{name: r[name] for name in _OUTCOME})


def repeated_number_of(row: Row) -> RepeatedNumber:
    """Return a comparable number of a row of ``outcomes``."""
    r = cast("Mapping[str, Any]", row)
    return RepeatedNumber(
        benchmark_id=r["benchmark_id"],
        target_uid=r["target_uid"],
        workload=r["workload"],
        value=r["primary_value"],
        error=r["primary_error"],
    )


NOT_OF_CANARIES = outcomes.c.user_id.is_distinct_from(CANARY_USER)
"""Outcomes from which decisions learn."""

PAST_RUN_COLUMNS = (
    outcomes.c.target_uid,
    outcomes.c.family,
    outcomes.c.engine,
    outcomes.c.benchmark_type,
    outcomes.c.model_sha256,
    outcomes.c.nb_inference,
    outcomes.c.variant,
    outcomes.c.user_id,
    outcomes.c.failure_category,
    outcomes.c.run_s,
    outcomes.c.ended_at,
    outcomes.c.benchmark_id,
    outcomes.c.seq,
    outcomes.c.replaces,
    outcomes.c.loading_s,
    outcomes.c.verdict,
    outcomes.c.energy_j,
    outcomes.c.wait_s,
)


def past_runs_of(columns: Sequence[Sequence[Any]]) -> PastRunColumns:
    """Runs of the values of `PAST_RUN_COLUMNS`; of none where there are no columns."""
    boards, families, *kinds = (columns or [()] * len(PAST_RUN_COLUMNS))[:7]
    (
        users,
        failures,
        run_s,
        ended_us,
        benchmark_ids,
        seqs,
        replaces,
        loading_s,
        verdicts,
        energy_j,
        wait_s,
    ) = (columns or [()] * len(PAST_RUN_COLUMNS))[7:]
    return PastRunColumns(
        boards=boards,
        families=families,
        kinds=tuple(zip(*kinds, strict=True)),
        users=users,
        failures=failures,
        run_s=run_s,
        ended_us=ended_us,
        benchmark_ids=benchmark_ids,
        seqs=seqs,
        replaces=replaces,
        loading_s=loading_s,
        verdicts=verdicts,
        energy_j=energy_j,
        wait_s=wait_s,
    )


def event_row(event: Event) -> dict[str, object]:
    """Return the columns of ``events`` without the number."""
    return {
        "at": event.at,
        "kind": event.kind,
        "benchmark_id": event.benchmark_id,
        "user_id": event.user_id,
        "data": strict_json.dumps(event.data, "/data"),
    }


def event_of(row: Row) -> Event:
    """Return the event of a row."""
    r = cast("dict[str, Any]", dict(row))
    return Event(**(r | {"data": strict_json.loads(r["data"])}))


_OBJECTS_OF_ACTS = ("before", "after", "data")


def act_row(act: Act) -> dict[str, object]:
    """Return the columns of ``acts`` but its number."""
    row: dict[str, object] = {
        each.name: getattr(act, each.name) for each in fields(act) if each.name != "seq"
    }
    return row | {name: strict_json.dumps(row[name], f"/{name}") for name in _OBJECTS_OF_ACTS}


def act_of_row(row: Row) -> Act:
    """Return the act of a row."""
    r = cast("dict[str, Any]", dict(row))
    return Act(**(r | {name: strict_json.loads(r[name]) for name in _OBJECTS_OF_ACTS}))


def schedule_row(schedule: CronSchedule) -> dict[str, object]:
    """Return the columns of ``schedules``."""
    return {
        **flat_row(schedule),
        "description": strict_json.dumps(schedule.description, "/description"),
    }


def schedule_of(row: Row) -> CronSchedule:
    """Return the schedule of a row."""
    r = cast("dict[str, Any]", dict(row))
    parsed = {"description": strict_json.loads(r["description"]), "cron_by": CronBy(r["cron_by"])}
    return CronSchedule(**(r | parsed))


def report_of(row: Row) -> Report:
    """Return the report of a row."""
    return Report(
        benchmark_id=cast(str, row["benchmark_id"]),
        attempt=cast(int, row["attempt"]),
        report=cast("Mapping[str, object]", strict_json.loads(cast(str, row["report"]))),
        received_at=cast(datetime, row["received_at"]),
    )


def _failure_columns(name: str, failure: Failure | None) -> dict[str, object]:
    return {
        f"{name}_category": None if failure is None else failure.category.value,
        f"{name}_sentence": None if failure is None else failure.sentence,
    }


def _failure_of(name: str, row: Row) -> Failure | None:
    r = cast("Mapping[str, Any]", row)
    category = r[f"{name}_category"]
    if category is None:
        return None
    return Failure(category=FailureCategory(category), sentence=r[f"{name}_sentence"])
