"""``export``: what happened in a lab as Parquet, as data for learning and for simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api.cli.output_files import make_folder
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.replaying import (
    Config,
    DataDir,
    Since,
    StopRule,
    cycles_within,
    opened,
    utc,
)
from edgeyard.installing import extra_command

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow

    from edgeyard.devices.model import AttributeValue
    from edgeyard.scheduler.framework.registry import Registry
    from edgeyard.scheduler.model.attempt import Outcome
    from edgeyard.scheduler.model.canaries import BoardDrift
    from edgeyard.scheduler.model.decision import CycleInput
    from edgeyard.scheduler.model.knowledge import HostLoad
    from edgeyard.scheduler.ports import Store, UnitOfWork

_PAGE = 500

Row = dict[str, object]

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "benchmarks": {
        "benchmark_id": "text",
        "user_id": "text",
        "status": "text",
        "submit_time": "time",
        "ended_at": "time",
        "target_uid": "text",
        "campaign_id": "text",
        "description": "text",
        "model_sha256": "text",
        "model_bytes": "int64",
        "variant": "text",
        "load": "text",
        "series": "text",
        "series_id": "text",
    },
    "decisions": {
        "cycle": "int64",
        "shadow_of": "int64",
        "decided_at": "time",
        "policy": "text",
        "benchmark_id": "text",
        "rank": "int32",
        "priority": "int32",
        "boards": "int32",
        "target_uid": "text",
        "waiting": "text",
        "score": "number",
        "propensity": "number",
        "scores": "numbers",
    },
    "outcomes": {
        "benchmark_id": "text",
        "attempt": "int32",
        "target_uid": "text",
        "family": "text",
        "engine": "text",
        "benchmark_type": "text",
        "model_sha256": "text",
        "wait_s": "number",
        "run_s": "number",
        "loading_s": "number",
        "energy_j": "number",
        "failure_category": "text",
        "latency_p50_ms": "number",
        "primary_metric": "text",
        "primary_unit": "text",
        "primary_better": "text",
        "primary_value": "number",
        "verdict": "text",
        "engine_version": "text",
        "runner": "text",
        "kernel": "text",
        "firmware": "text",
        "governor": "text",
        "temperature_c": "number",
        "other_load": "number",
        "ended_at": "time",
        "placed_at": "time",
        "user_id": "text",
        "nb_inference": "int64",
        "variant": "text",
        "features": "numbers",
    },
    "boards": {
        "at": "time",
        "target_uid": "text",
        "family": "text",
        "host": "text",
        "ram_bytes": "int64",
        "storage_bytes": "int64",
        "supports": "texts",
        "shares": "texts",
        "rate": "number",
        "cpu_cores": "number",
        "max_run_s": "number",
        "known": "bool",
        "online": "bool",
        "healthy": "bool",
        "drained": "bool",
    },
    "loads": {
        "at": "time",
        "after": "time",
        "host": "text",
        "cpu": "number",
        "memory": "number",
    },
    "users": {
        "user_id": "text",
        "share": "number",
        "max_running": "int64",
        "credits": "number",
    },
    "series": {
        "series_id": "text",
        "lineage": "text",
        "user_id": "text",
        "target_uid": "text",
        "engine": "text",
        "benchmark_type": "text",
        "points": "int64",
        "first_at": "time",
        "last_at": "time",
        "threshold": "number",
        "alert_unconfirmed": "bool",
    },
    "changes": {
        "change_id": "text",
        "series_id": "text",
        "status": "text",
        "is_alert": "bool",
        "begin_id": "text",
        "before_id": "text",
        "metric": "text",
        "worse": "bool",
        "size": "number",
        "low": "number",
        "high": "number",
        "confirmed_size": "number",
        "confirmed_low": "number",
        "confirmed_high": "number",
        "cause": "text",
        "blame": "text",
        "not_tested": "texts",
        "reason": "text",
        "check_ids": "texts",
        "alert_id": "text",
        "found_at": "time",
        "reopened_at": "time",
        "ended_at": "time",
        "by_user_id": "text",
        "note": "text",
    },
}
"""Columns of each table, with their types."""


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Created if it does not exist.")],
    since: Since = None,
    until: StopRule = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write benchmarks, decisions, outcomes, boards, users, series and alerts as Parquet.

    Creates in FOLDER benchmarks.parquet (with the descriptions), decisions.parquet (the decision
    of each recorded cycle on each benchmark, with the scores of its board) and outcomes.parquet
    (the outcome of each attempt), which join by benchmark_id; boards.parquet (each change of a
    board that recorded cycles saw), loads.parquet (each change of a host's load that they saw) and
    users.parquet (limits and credits); series.parquet, and changes.parquet (alerts and all other
    changes of series), which join by series_id. Reads the server's database; the server may keep
    running.
    """
    written = export_tables(folder, tuple(_COLUMNS), since, until, data_dir, config)
    if as_json:
        from edgeyard.benchmark_api.cli.output import emit_json

        emit_json(written)
        return
    for each in written:
        echo(f"{each['rows']:>8} {each['table']} in {each['file']}")


def export_tables(
    folder: Path,
    names: Sequence[str],
    since: datetime | None,
    until: datetime | None,
    data_dir: Path | None,
    config: Path | None,
) -> list[dict[str, object]]:
    """Write tables of the server's database as Parquet; without pyarrow exit with 2."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        fix = extra_command("export")
        echo(f"edgeyard: writing Parquet needs pyarrow: {fix}", err=True)
        raise typer.Exit(2) from None
    from edgeyard.benchmark_api.bootstrap import known_plugins

    with opened(data_dir, config) as (store, settings), known_plugins(settings) as known:
        make_folder(folder, "FOLDER")
        columns = schemas()
        tables: dict[str, Callable[[], Iterable[Row]]] = {
            "benchmarks": lambda: _benchmarks(store, utc(since), utc(until)),
            "decisions": lambda: _decisions(store, known, utc(since), utc(until)),
            "outcomes": lambda: _outcomes(store, utc(since), utc(until)),
            "boards": lambda: _boards(store, utc(since), utc(until)),
            "loads": lambda: _loads(store, utc(since), utc(until)),
            "users": lambda: _users(store, utc(since), utc(until)),
            "series": lambda: _series(store, utc(since), utc(until)),
            "changes": lambda: _changes(store, utc(since), utc(until)),
        }
        return [
            {
                "table": name,
                "file": str(folder / f"{name}.parquet"),
                "rows": _write(folder / f"{name}.parquet", columns[name], tables[name]()),
            }
            for name in names
        ]


def schemas() -> dict[str, pyarrow.Schema]:
    """Return the columns of each table."""
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "time": pa.timestamp("us", tz="UTC"),
        "number": pa.float64(),
        "numbers": pa.map_(pa.string(), pa.float64()),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
    }
    return {
        table: pa.schema([(name, types[kind]) for name, kind in columns.items()])
        for table, columns in _COLUMNS.items()
    }


def _write(path: Path, schema: pyarrow.Schema, rows: Iterable[Row]) -> int:
    """Write to a temporary file that then replaces the target; return the number of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    count, page = 0, []
    with (
        open_atomically(path) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for row in rows:
            page.append(row)
            count += 1
            if len(page) == 10_000:
                writer.write_table(pa.Table.from_pylist(page, schema=schema))
                page = []
        writer.write_table(pa.Table.from_pylist(page, schema=schema))
    return count


def _benchmarks(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    from edgeyard.scheduler.model import strict_json, wire
    from edgeyard.scheduler.model.benchmark import Status, model_of
    from edgeyard.scheduler.model.series import SeriesKey
    from edgeyard.scheduler.model.workload import load_text
    from edgeyard.scheduler.ports import BenchmarkFilter
    from edgeyard.scheduler.prediction.history import variant_of

    cursor = None
    while True:
        with store.read() as uow:
            page, cursor = uow.benchmarks.page(BenchmarkFilter(), limit=_PAGE, cursor=cursor)
        for each in page:
            if (since is None or each.submit_time >= since) and (
                until is None or each.submit_time < until
            ):
                model = model_of(each.files)
                key = SeriesKey.of(each) if each.status is Status.COMPLETED else None
                yield {
                    "benchmark_id": each.benchmark_id,
                    "user_id": each.user_id,
                    "status": each.status.value,
                    "submit_time": each.submit_time,
                    "ended_at": each.ended_at,
                    "target_uid": each.target_uid,
                    "campaign_id": each.campaign_id,
                    "description": strict_json.dumps(wire.description_to_json(each.description)),
                    "model_sha256": None if model is None else model.sha256,
                    "model_bytes": None if model is None else model.size_bytes,
                    "variant": variant_of(each),
                    "load": load_text(each.description),
                    "series": each.series,
                    "series_id": None if key is None else key.series_id,
                }
        if cursor is None:
            return


def _decisions(
    store: Store, known: Registry, since: datetime | None, until: datetime | None
) -> Iterator[Row]:
    import numpy as np

    from edgeyard.scheduler.decide.propensity import propensity
    from edgeyard.scheduler.decide.record import policy_of, result_of

    for head in cycles_within(store, since, until, "Reading cycles", shadows=True):
        with store.read() as uow:
            record = uow.cycles.get(head.seq)
        result = result_of(record, known.resolve(policy_of(record)))
        decided = result.decided
        boards = np.count_nonzero(decided.feasibility.fits, axis=1)
        row_of_uid = {uid: row for row, uid in enumerate(decided.snapshot.uids)}
        placed = {each.benchmark_id: each.target_uid for each in result.placements}
        for rank, benchmark_id in enumerate(result.order):
            job = decided.row_of_id[benchmark_id]
            row = int(decided.batch.class_of_job[job])
            uid = placed.get(benchmark_id)
            pair = None if uid is None else decided.scores.pairs.at(row, row_of_uid[uid])
            yield {
                "cycle": head.seq,
                "shadow_of": head.shadow_of,
                "decided_at": record.decided_at,
                "policy": record.policy,
                "benchmark_id": benchmark_id,
                "rank": rank,
                "priority": result.priority(benchmark_id),
                "boards": int(boards[row]),
                "target_uid": uid,
                "waiting": None if uid else result.waiting[benchmark_id].reason.value,
                "score": None if pair is None else float(decided.scores.combined[pair]),
                "propensity": propensity(decided, job),
                "scores": []
                if pair is None
                else [
                    (each.scorer, None if np.isnan(each.scores[pair]) else float(each.scores[pair]))
                    for each in decided.scores.proposals
                ],
            }


_ALL_CYCLES = 1 << 31
"""A number of recorded cycles that no store reaches."""


def _outcomes(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    features = _features(store, since)
    with store.read() as uow:
        found = uow.attempts.outcomes(since=since)
        drifts = uow.canaries.drifts()
    for each in found:
        if until is None or each.ended_at < until:
            with store.read() as uow:
                its = uow.attempts.of(each.benchmark_id)
                reports = uow.files.reports(each.benchmark_id)
                verdict = _verdict(uow, each, drifts)
            placed = next((one.created_at for one in its if one.number == each.attempt), None)
            report = next((one.report for one in reports if one.attempt == each.attempt), {})
            stated = {name: getattr(each, name, None) for name in _COLUMNS["outcomes"]}
            yield {
                **stated,
                **_facts(report),
                "verdict": verdict,
                "placed_at": placed,
                "features": features.get(each.seq),
            }


def _verdict(uow: UnitOfWork, outcome: Outcome, drifts: Sequence[BoardDrift]) -> str | None:
    """Return the verdict as results show it: a comparable number of a board that drifted is not."""
    if outcome.verdict != "comparable" or not drifts:
        return outcome.verdict
    of = uow.benchmarks.get_many([outcome.benchmark_id])
    has_drifted = any(drift.covers(each) for drift in drifts for each in of)
    return "suspect" if has_drifted else outcome.verdict


def _facts(report: Mapping[str, object]) -> Row:
    """Return what may explain the number of an attempt."""
    from edgeyard.benchmark_api.sdk.fields import number, record, text

    board, conditions = record(report, "board"), record(report, "conditions")
    return {
        "engine_version": text(record(report, "engine_facts"), "version"),
        "runner": text(record(report, "runner"), "version"),
        **{name: text(board, name) for name in ("kernel", "firmware", "governor")},
        "temperature_c": number(record(conditions, "temperature_c"), "after"),
        "other_load": number(conditions, "other_load"),
    }


def _features(store: Store, since: datetime | None) -> Mapping[int, list[tuple[str, float]]]:
    """Return what a model was given at the decision of each attempt, by number of the outcome."""
    import numpy as np

    from edgeyard.scheduler.outcomes.rows import read_outcome_rows

    rows = read_outcome_rows(store, since=since, max_cycles=_ALL_CYCLES)
    return {
        seq: [
            (name, float(column[row]))
            for name, column in rows.values.items()
            if np.isfinite(column[row])
        ]
        for row, seq in enumerate(rows.seqs.tolist())
    }


def _boards(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    """Yield the state of each board in the first recorded cycle, and then each change."""
    from edgeyard.scheduler.decide.record import cycle_input_of

    last: dict[str, Row] = {}
    for head in cycles_within(store, since, until, "Reading boards"):
        with store.read() as uow:
            given = cycle_input_of(uow.cycles.get(head.seq))
        found = _states(given)
        for uid, before in last.items():
            if uid not in found and before["known"]:
                found[uid] = {**before, "known": False}
        for uid, row in found.items():
            if last.get(uid) != row:
                last[uid] = row
                yield {"at": given.now, **row}


def _states(given: CycleInput) -> dict[str, Row]:
    """Return what a cycle saw of each board, by name."""
    import numpy as np

    snapshot = given.snapshot
    supports: dict[int, list[str]] = {}
    for (engine, kind), column in snapshot.offers.items():
        for row in np.flatnonzero(column).tolist():
            supports.setdefault(row, []).append(f"{engine}:{kind}")
    found: dict[str, Row] = {}
    for row in np.flatnonzero(snapshot.expected).tolist():
        shares: list[str] = []
        if snapshot.conflicts is not None:
            near = np.flatnonzero(snapshot.conflicts[row]).tolist()
            shares = sorted(snapshot.uids[other] for other in near if other != row)
        found[snapshot.uids[row]] = {
            "target_uid": snapshot.uids[row],
            "family": snapshot.families[row],
            "host": snapshot.hosts[row],
            "ram_bytes": int(snapshot.ram_bytes[row]),
            "storage_bytes": int(snapshot.storage_bytes[row]),
            "supports": sorted(supports.get(row, ())),
            "shares": shares,
            "rate": given.knowledge.rates.get(snapshot.families[row], 1.0),
            "cpu_cores": _cores(snapshot.attributes[row]) if snapshot.attributes else None,
            "max_run_s": given.knowledge.max_run_s,
            "known": True,
            "online": bool(snapshot.online[row]),
            "healthy": bool(snapshot.healthy[row]),
            "drained": bool(snapshot.drained[row]),
        }
    return found


def _cores(attributes: Mapping[str, AttributeValue]) -> float | None:
    """Return the cores of a board; None where its host publishes no number of them."""
    found = attributes.get("cpu.cores")
    return float(found) if isinstance(found, (int, float)) and 0 < found < 1e6 else None


def _loads(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    """Yield the load of each host in the first recorded cycle, and then each change."""
    from edgeyard.scheduler.decide.record import cycle_input_of

    last: Mapping[str, HostLoad] = {}
    after: datetime | None = None
    for head in cycles_within(store, since, until, "Reading loads"):
        with store.read() as uow:
            given = cycle_input_of(uow.cycles.get(head.seq))
        loads = given.knowledge.host_loads
        for host in sorted({*last, *loads}):
            load = loads.get(host)
            if load != last.get(host):
                yield {
                    "at": given.now,
                    "after": after,
                    "host": host,
                    "cpu": None if load is None else load.cpu,
                    "memory": None if load is None else load.memory,
                }
        last, after = loads, given.now


def _users(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    """Yield what the first recorded cycle that knows a user knows of the account."""
    from edgeyard.scheduler.decide.record import cycle_input_of

    seen: set[str] = set()
    for head in cycles_within(store, since, until, "Reading users"):
        with store.read() as uow:
            known = cycle_input_of(uow.cycles.get(head.seq)).knowledge.entitlements
        for user_id in sorted(known.keys() - seen):
            seen.add(user_id)
            yield {
                "user_id": user_id,
                "share": known[user_id].share,
                "max_running": known[user_id].max_running,
                "credits": known[user_id].credits_left,
            }


def _series(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    """Yield the series that have results of this time, with the state of the watch over them."""
    from edgeyard.scheduler.ports import BenchmarkFilter

    cursor = None
    while True:
        with store.read() as uow:
            page, cursor = uow.benchmarks.series(BenchmarkFilter(), limit=_PAGE, cursor=cursor)
            watched = {
                each.key.series_id: each
                for each in uow.series.watched_many([each.key.series_id for each in page])
            }
        for each in page:
            if (since is None or each.last_at >= since) and (
                until is None or each.first_at < until
            ):
                known = watched.get(each.key.series_id)
                yield {
                    "series_id": each.key.series_id,
                    "lineage": each.key.lineage,
                    "user_id": each.key.user_id,
                    "target_uid": each.key.target_uid,
                    "engine": each.key.engine,
                    "benchmark_type": each.key.benchmark_type,
                    "points": each.points,
                    "first_at": each.first_at,
                    "last_at": each.last_at,
                    "threshold": 0.0 if known is None else known.threshold_now(each.last_at),
                    "alert_unconfirmed": known is not None and known.alert_unconfirmed,
                }
        if cursor is None:
            return


def _changes(store: Store, since: datetime | None, until: datetime | None) -> Iterator[Row]:
    """Yield the changes of series that were found within this time, newest first."""
    from edgeyard.scheduler.model.series_changes import ChangeStatus

    names = [name for name in _COLUMNS["changes"] if name != "series_id"]
    cursor = None
    while True:
        with store.read() as uow:
            page, cursor = uow.series.changes_page(
                user_id=None,
                status=list(ChangeStatus),
                lineage=None,
                target_uid=None,
                limit=_PAGE,
                cursor=cursor,
            )
        for each in page:
            if (since is None or each.found_at >= since) and (
                until is None or each.found_at < until
            ):
                stated = {name: getattr(each, name) for name in names}
                yield {**stated, "series_id": each.key.series_id, "status": each.status.value}
        if cursor is None:
            return


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("export")(export)
