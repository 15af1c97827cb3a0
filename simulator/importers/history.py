"""A lab's recorded history, as `edgeyard export` writes it, becomes a scenario of the lab.

What is kept, and how:

- Each benchmark becomes a job with its description: submission, family or board, deadline, start
  time, priority, retries, budget, time limits. It runs for as long as its last attempt, and holds
  its board for as long as that did; earlier attempts that failed by themselves fail as they did.
  Attempts that were preempted or lost are left to the simulation: they follow from the policy, and
  from outages.
- A benchmark that never ended a run (it waited, or was cancelled) takes the median of the runs of
  its model and family, or else of its family, or else of all. One that was cancelled is cancelled
  at the same time.
- Benchmarks of a gang (``count``) start together, as far as the history has them.
- All boards that recorded cycles know are there, with their hosts and engines. What the cycles saw
  of them returns: faults, hosts that were offline, drains.
- Users have the shares and limits that they had, and the credits that the first cycle saw.
- What predictions read is there as cycles saw it: sizes of models, cores, loads of hosts, the limit
  of run times, and the runs that ended before. Loads are those of then, whatever runs now.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.installing import extra_command
from edgeyard.scheduler.model.benchmark import BenchmarkType, FailureCategory, JobDescription
from edgeyard.scheduler.model.tariff import seconds_of_day
from edgeyard.scheduler.model.wire import description_from_json
from edgeyard.simulator.importers.machines import (
    DRAIN_S,
    MAX_JOBS,
    ImportedScenario,
    Selection,
    checked,
    counted,
)
from edgeyard.simulator.lab.jobs import can_run
from edgeyard.simulator.scenario import (
    MAX_SECONDS,
    BoardGroup,
    Change,
    JobRow,
    LabScenario,
    LoadRow,
    Outage,
    PastFailure,
    PastRunRow,
    Scenario,
    User,
)

TABLES = ("benchmarks", "outcomes", "boards", "loads", "users")
"""Tables of `edgeyard export` that are read."""

_BENCHMARKS = (
    *("benchmark_id", "user_id", "campaign_id", "status", "submit_time", "ended_at"),
    *("description", "model_sha256", "model_bytes", "variant"),
)
_OUTCOMES = (
    *("benchmark_id", "attempt", "target_uid", "family", "model_sha256", "run_s"),
    *("failure_category", "wait_s", "placed_at", "ended_at"),
    *("user_id", "engine", "benchmark_type", "nb_inference", "variant"),
)
_BOARDS = (
    *("at", "target_uid", "family", "host", "ram_bytes", "storage_bytes", "supports", "shares"),
    *("rate", "cpu_cores", "max_run_s", "known", "online", "healthy", "drained"),
)
_LOADS = ("at", "after", "host", "cpu", "memory")
_USERS = ("user_id", "share", "max_running", "credits")
EXTERNAL_CAUSES = frozenset(
    {
        *(FailureCategory.PREEMPTED, FailureCategory.PREEMPTED_TOO_OFTEN),
        FailureCategory.CLUSTER,
    }
)
"""Causes of failures outside the run: decisions of the policy, and outages."""
_NO_BENCHMARK = "no benchmark was submitted in the chosen time"
_MIB = 1 << 20
_MIN_RUN_S = 1e-3

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedHistory:
    """What is recorded of a lab: rows of the tables of `edgeyard export`.

    Attributes:
        source: What a user typed to name it, for errors.
        benchmarks: In order of their submission.
        attempts: Attempts that ran on a known board, by benchmark, in their order.
        boards: Each change of a board that cycles saw.
        loads: Each change of a host's load that they saw.
        users: Accounts.
        without_engine: Boards that are left out, because no engine of theirs offers a type.
    """

    source: str
    benchmarks: Sequence[Row]
    attempts: Mapping[str, list[Row]]
    boards: Sequence[Row]
    loads: Sequence[Row]
    users: Sequence[Row]
    without_engine: int


def read_history(
    folder: Path,
    *,
    source: str = "",
    advanced: Callable[[float], None] = lambda share: None,
) -> RecordedHistory:
    """Read a folder of `edgeyard export`; see `import_history` for arguments and errors."""
    source = source or str(folder)
    benchmarks = sorted(
        _rows(folder / "benchmarks.parquet", _BENCHMARKS),
        key=lambda each: (each["submit_time"], each["benchmark_id"]),
    )
    advanced(0.2)
    attempts: dict[str, list[Row]] = defaultdict(list)
    for outcome in _rows(folder / "outcomes.parquet", _OUTCOMES):
        if outcome["run_s"] is not None and outcome["target_uid"]:
            attempts[outcome["benchmark_id"]].append(outcome)
    for each in attempts.values():
        each.sort(key=lambda row: int(row["attempt"]))
    advanced(0.4)
    reported = _rows(folder / "boards.parquet", _BOARDS)
    boards = [each for each in reported if _engines(each)]
    without = {each["target_uid"] for each in reported} - {each["target_uid"] for each in boards}
    loads = _rows(folder / "loads.parquet", _LOADS)
    users = _rows(folder / "users.parquet", _USERS)
    advanced(0.6)
    if not benchmarks:
        raise InvalidInput.at(source, _NO_BENCHMARK)
    if not boards:
        raise InvalidInput.at(
            source,
            "no scheduling cycle is recorded in the chosen time, so the lab's boards are unknown",
            "a time for which the server still has recorded cycles",
        )
    return RecordedHistory(
        source=source,
        benchmarks=benchmarks,
        attempts=attempts,
        boards=boards,
        loads=loads,
        users=users,
        without_engine=len(without),
    )


def import_history(
    folder: Path,
    selection: Selection,
    *,
    source: str = "",
    advanced: Callable[[float], None] = lambda share: None,
) -> ImportedScenario:
    """Read a folder of `edgeyard export`.

    Args:
        folder: With the tables `TABLES` as Parquet.
        selection: Which benchmarks.
        source: What a user typed to name the history, for errors; "": the folder.
        advanced: Called now and then with the share that was read.

    Raises:
        ConfigError: pyarrow is not installed.
        InvalidInput: A file or a column is missing, or no benchmark was submitted or ran.
    """
    history = read_history(folder, source=source, advanced=advanced)
    source, attempts = history.source, history.attempts
    chosen = history.benchmarks[selection.skip :][: selection.count]
    if not chosen:
        raise InvalidInput.at("--skip", f"there are only {len(history.benchmarks)} benchmarks")
    if len(chosen) > MAX_JOBS:
        reason = f"has {len(chosen):,} benchmarks"
        raise InvalidInput.at(source, reason, f"--count {MAX_JOBS} or less")
    began: datetime = chosen[0]["submit_time"]
    known = KnownBoards(history.boards, attempts, began)
    jobs, notes = _jobs(chosen, attempts, known, began, source)
    without = history.without_engine
    if without:
        notes += (f"boards without an engine that offers a type left out: {without}",)
    advanced(1.0)
    scenario = Scenario(
        name=selection.name,
        world="boards",
        duration_s=max(jobs[-1].submit_s, 1.0),
        drain_s=DRAIN_S,
        description=f"History of a lab from {began:%Y-%m-%d %H:%M:%S} UTC on",
        lab=LabScenario(
            boards=known.groups,
            jobs=jobs,
            outages=known.outages(),
            changes=known.drains(),
            users=users_of(history.users),
            rates=known.rates,
            max_run_s=known.max_run_s,
            past=_past(attempts, {each["benchmark_id"] for each in chosen}, began),
            loads=tuple(loads_of(history.loads, known)),
            day_s=seconds_of_day(began),
        ),
    )
    return ImportedScenario(scenario=checked(scenario), notes=notes)


def _rows(path: Path, columns: tuple[str, ...]) -> list[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        fix = extra_command("export")
        raise ConfigError([f"reading Parquet needs pyarrow: {fix}"]) from None
    try:
        table = parquet.read_table(path, columns=list(columns))
    except FileNotFoundError as error:
        accepted = "a folder that `edgeyard export` of this version wrote"
        raise InvalidInput.at(str(path), "is missing", accepted) from error
    except pyarrow.ArrowException as error:
        raise InvalidInput.at(str(path), f"is not a Parquet file: {error}") from error
    if missing := [name for name in columns if name not in table.column_names]:
        raise InvalidInput.at(str(path), f"has no column {', '.join(missing)}", ", ".join(columns))
    rows: list[Row] = table.to_pylist()
    return rows


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _since(began: datetime, at: datetime | None) -> float | None:
    return None if at is None else min(max(_seconds(began, at), 0.0), MAX_SECONDS)


def held_s(attempt: Row) -> float:
    """Return for how long an attempt held its board: from its decision until its end."""
    run_s = float(attempt["run_s"])
    placed = attempt["placed_at"]
    return max(run_s if placed is None else _seconds(placed, attempt["ended_at"]), run_s, 0.0)


def _jobs(
    benchmarks: Sequence[Row],
    attempts: Mapping[str, list[Row]],
    known: KnownBoards,
    began: datetime,
    source: str,
) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
    """Return the jobs, and notes on what was left out or guessed."""
    described = [description_from_json(json.loads(each["description"])) for each in benchmarks]
    ran: list[tuple[str, str, float]] = []
    for benchmark, description in zip(benchmarks, described, strict=True):
        its = attempts.get(benchmark["benchmark_id"], ())
        if its and its[-1]["failure_category"] is None and held_s(its[-1]) > 0.0:
            ran.append((description.model, description.family, held_s(its[-1])))
    typical = _Typical(ran)
    guessed = left_out = later = constrained = wishing = 0
    made: list[JobRow] = []
    for benchmark, description in zip(benchmarks, described, strict=True):
        its = attempts.get(benchmark["benchmark_id"], ())
        expected_s = None
        if not its or benchmark["status"] != "completed":
            expected_s = typical.run_s(description.model, description.family)
        if not its and expected_s is None:
            raise InvalidInput.at(
                source, "no benchmark ran, so that no run time is known", "another time"
            )
        guessed += not its
        job = _job(benchmark, description, its, expected_s or 0.0, known, began)
        if job.cancel_s is None and job.start_s is not None and job.start_s > known.duration_s:
            later += 1
        elif known.count_for(job):
            made.append(job)
            constrained += bool(description.constraints)
            wishing += bool(description.affinities or description.spreads)
        else:
            left_out += 1
    sizes = Counter(each.gang for each in made if each.gang)
    too_large = {
        each.gang for each in made if each.gang and known.count_for(each) < sizes[each.gang]
    }
    made = [each for each in made if each.gang not in too_large]
    if not made:
        raise InvalidInput.at(source, "no board of the history can run any of its benchmarks")
    alone = {gang for gang, size in sizes.items() if size == 1}
    notes = (
        *counted(guessed, "that never completed a run got the run time of similar jobs"),
        *counted(later, "that start after the history left out"),
        *counted(left_out, "that no board of the history can run left out"),
        *counted(
            sum(sizes[gang] for gang in too_large),
            "of gangs that need more boards than the history has left out",
        ),
        *counted(constrained, "lost constraints on attributes, which labs do not simulate"),
        *counted(wishing, "lost affinities or spreads, which labs do not simulate"),
        *counted(len(alone), "without the others of the gang"),
    )
    rows = tuple(
        msgspec.structs.replace(each, gang="") if each.gang in alone else each for each in made
    )
    return rows, notes


def _job(
    benchmark: Row,
    description: JobDescription,
    attempts: Sequence[Row],
    expected_s: float,
    known: KnownBoards,
    began: datetime,
) -> JobRow:
    """Return a benchmark as a job of a lab.

    Args:
        attempts: Its own, first to last.
        expected_s: Run time of similar benchmarks, where it has not completed.
        known: Boards, and what running on them costs.
        began: Beginning of the scenario.
    """
    completed = benchmark["status"] == "completed"
    run_s, around_s = 0.0, 0.0
    if attempts:
        run_s = max(float(attempts[-1]["run_s"]), _MIN_RUN_S)
        around_s = max(held_s(attempts[-1]) - run_s, 0.0)
    if not completed or not attempts:
        run_s = max(run_s, expected_s, _MIN_RUN_S)
        around_s = 0.0
    failed = [
        PastFailure(
            category=FailureCategory(each["failure_category"]),
            after_s=max(held_s(each), _MIN_RUN_S),
        )
        for each in attempts
        if each["failure_category"]
        and FailureCategory(each["failure_category"]) not in EXTERNAL_CAUSES
    ]
    user_time_s, budget = description.user_time_s, description.user_budget
    limit_s = known.max_run_s if user_time_s is None else user_time_s
    if run_s > limit_s and (completed or user_time_s is None):
        user_time_s = run_s  # it was not cut then
    rate = known.rates.get(description.family, 1.0)
    if completed and budget is not None:
        budget = max(budget, run_s * rate)
    ended = benchmark["ended_at"]
    return JobRow(
        job_id=benchmark["benchmark_id"],
        submit_s=_seconds(began, benchmark["submit_time"]),
        run_s=run_s,
        family=description.family,
        target_uid=description.target_uid or "",
        model=benchmark["model_sha256"] or description.model,
        model_bytes=benchmark["model_bytes"],
        variant=benchmark["variant"] or "",
        engine=description.runtime,
        benchmark_type=description.benchmark_type,
        user=benchmark["user_id"],
        ram_mib=description.ram // _MIB,
        storage_mib=description.storage // _MIB,
        user_priority=description.user_priority,
        user_budget=budget,
        deadline_s=_since(began, description.deadline),
        start_s=_since(began, description.start_time),
        cancel_s=_since(began, ended) if benchmark["status"] == "cancelled" else None,
        user_time_s=user_time_s,
        queue_timeout_s=description.queue_timeout_s,
        max_retries=description.max_retries,
        nb_inference=description.nb_inference,
        preemptible=description.preemptible,
        preemptible_measuring=description.preemptible_measuring,
        job_completion_threshold=description.job_completion_threshold,
        binding=description.binding,
        failures=tuple(failed),
        around_s=around_s,
        gang=(benchmark["campaign_id"] or "") if description.count > 1 else "",
    )


class _Typical:
    """Median run times of benchmarks that ended with a result."""

    def __init__(self, ran: Sequence[tuple[str, str, float]]) -> None:
        self._times: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for model, family, run_s in ran:
            for key in ((model, family), (family,), ()):
                self._times[key].append(run_s)

    def run_s(self, model: str, family: str) -> float | None:
        for key in ((model, family), (family,), ()):
            if key in self._times:
                return median(self._times[key])
        return None


class KnownBoards:
    """The boards that cycles saw, and what happened to them.

    Attributes:
        groups: Boards that are alike.
        first_s: When boards were first seen, seconds from the first submission; not below 0.
        last: When the last thing that is known happened.
        duration_s: From the first submission until then.
        rates: Credits per board-second by family, where they are not 1.
        max_run_s: Time limit of runs that state none, as it was at last.
    """

    def __init__(
        self, seen: Sequence[Row], attempts: Mapping[str, list[Row]], began: datetime
    ) -> None:
        self._began = began
        self._states: dict[str, list[Row]] = defaultdict(list)
        for each in sorted(seen, key=lambda row: row["at"]):
            self._states[each["target_uid"]].append(each)
        self._attempts = [each for some in attempts.values() for each in some]
        self._first = min(rows[0]["at"] for rows in self._states.values())
        ends = [rows[-1]["at"] for rows in self._states.values()]
        self.last: datetime = max([*ends, *(each["ended_at"] for each in self._attempts)])
        self.duration_s = _seconds(began, self.last)
        self.first_s = max(_seconds(began, self._first), 0.0)
        last = {uid: rows[-1] for uid, rows in self._states.items()}
        self.rates: Mapping[str, float] = {
            each["family"]: float(each["rate"]) for each in last.values() if each["rate"] != 1.0
        }
        newest = max(last.values(), key=lambda row: row["at"])
        self.max_run_s = float(newest["max_run_s"])
        alike: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        for uid in sorted(last):
            each = last[uid]
            sharing = 1 + len([other for other in each["shares"] if other in last])
            key = (
                each["family"], each["ram_bytes"] // _MIB, each["storage_bytes"] // _MIB,
                tuple(sorted(each["supports"])), sharing, each["cpu_cores"],
            )  # fmt: skip
            alike[key].append(each)
        self.groups = tuple(_group(rows) for _, rows in sorted(alike.items(), key=_first_uid))
        self._group_of = {uid: group for group in self.groups for uid in group.uids}

    def seconds(self, at: datetime) -> float:
        """Return the seconds from the beginning to a time."""
        return _seconds(self._began, at)

    def host_of(self) -> Mapping[str, str]:
        """Return the host of each board."""
        return {uid: _host(rows[-1]) for uid, rows in self._states.items()}

    def count_for(self, job: JobRow) -> int:
        """Return how many of its boards could ever run a job."""
        if job.target_uid:
            group = self._group_of.get(job.target_uid)
            return int(group is not None and group.family == job.family and can_run(group, job))
        return sum(
            each.count for each in self.groups if each.family == job.family and can_run(each, job)
        )

    def outages(self) -> tuple[Outage, ...]:
        """Return when boards and hosts did not work, as far as cycles saw it."""
        found: list[Outage] = []
        offline: dict[tuple[str, float, float], list[str]] = defaultdict(list)
        boards_of_host: dict[str, set[str]] = defaultdict(set)
        for uid, rows in self._states.items():
            boards_of_host[_host(rows[-1])].add(uid)
            for from_s, to_s in self._times(uid, lambda row: not row["known"], absent=True):
                found.append(Outage(what="board", name=uid, from_s=from_s, to_s=to_s))
            for from_s, to_s in self._times(uid, lambda row: row["known"] and not row["healthy"]):
                found.append(Outage(what="board", name=uid, from_s=from_s, to_s=to_s))
            for from_s, to_s in self._times(
                uid, lambda row: row["known"] and row["healthy"] and not row["online"]
            ):
                offline[_host(rows[-1]), from_s, to_s].append(uid)
        for (host, from_s, to_s), uids in offline.items():
            if set(uids) != boards_of_host[host]:
                found += [
                    Outage(what="board", name=each, from_s=from_s, to_s=to_s) for each in uids
                ]
                continue
            lost = self._lost_runs(uids, from_s, to_s)
            what: Literal["host", "network"] = "host" if lost else "network"
            found.append(Outage(what=what, name=host, from_s=from_s, to_s=to_s))
        return tuple(sorted(found, key=lambda each: (each.from_s, each.what, each.name)))

    def drains(self) -> tuple[Change, ...]:
        """Return when boards were drained and resumed."""
        found: list[Change] = []
        for uid in self._states:
            for from_s, to_s in self._times(uid, lambda row: row["drained"]):
                found.append(Change(at_s=from_s, what="drain", target_uid=uid))
                found.append(Change(at_s=to_s, what="resume", target_uid=uid))
        return tuple(sorted(found, key=lambda each: (each.at_s, each.what, each.target_uid)))

    def _lost_runs(self, uids: Iterable[str], from_s: float, to_s: float) -> bool:
        """Return whether runs on these boards were lost in about that time."""
        boards = set(uids)
        return any(
            each["target_uid"] in boards
            and each["failure_category"] == FailureCategory.CLUSTER.value
            and from_s - MAX_REPORT_LAG_S
            <= _seconds(self._began, each["ended_at"])
            <= to_s + MAX_REPORT_LAG_S
            for each in self._attempts
        )

    def _times(
        self, uid: str, holds: Callable[[Row], object], *, absent: bool = False
    ) -> list[tuple[float, float]]:
        """Return when something held of a board, in seconds from the beginning.

        What still held at the end of the history ends there. Where ``absent`` is set, it held
        before the board was first seen.
        """
        found: list[tuple[datetime, datetime]] = []
        rows = self._states[uid]
        since: datetime | None = None
        if absent and rows[0]["at"] > self._first:
            since = self._first
        for row in rows:
            if holds(row):
                since = since or row["at"]
            elif since is not None:
                found.append((since, row["at"]))
                since = None
        if since is not None:
            found.append((since, self.last))
        times = [(_seconds(self._began, a), _seconds(self._began, b)) for a, b in found]
        return [(max(from_s, 0.0), to_s) for from_s, to_s in times if to_s > max(from_s, 0.0)]


MAX_PAST_RUNS = 20_000
"""Maximum number of earlier runs; the newest are used."""

MAX_PAST_AGE = timedelta(days=365)
"""Maximum age of an earlier run; predictions ignore older ones."""

MAX_REPORT_LAG_S = 120.0
"""Maximum time between the end of a lost run and an observed outage of its host."""


def _first_uid(group: tuple[object, list[Row]]) -> str:
    uid: str = group[1][0]["target_uid"]
    return uid


def _host(board: Row) -> str:
    """Return the host of a board; one that no host reports has one of its own."""
    return board["host"] or f"of-{board['target_uid']}"


def _group(rows: Sequence[Row]) -> BoardGroup:
    """Return boards that are alike; those that share cores stand next to each other."""
    first = rows[0]
    order: dict[str, Row] = {}
    by_uid = {each["target_uid"]: each for each in rows}
    for each in rows:
        for uid in (each["target_uid"], *sorted(each["shares"])):
            if uid in by_uid:
                order.setdefault(uid, by_uid[uid])
    return BoardGroup(
        family=first["family"],
        count=len(order),
        uids=tuple(order),
        hosts=tuple(_host(each) for each in order.values()),
        engines={engine: tuple(kinds) for engine, kinds in _engines(first).items()},
        ram_mib=max(first["ram_bytes"] // _MIB, 1),
        storage_mib=max(first["storage_bytes"] // _MIB, 1),
        sharing=1 + sum(uid in by_uid for uid in first["shares"]),
        cpu_cores=first["cpu_cores"],
    )


def _engines(board: Row) -> Mapping[str, list[BenchmarkType]]:
    """Return the types that a board's engines offer; hosts may report other texts than types."""
    found: dict[str, list[BenchmarkType]] = defaultdict(list)
    for pair in sorted(board["supports"]):
        engine, _, kind = pair.partition(":")
        with suppress(ValueError):
            offered = BenchmarkType(kind)
            found[engine].append(offered)
    return found


def _past(
    attempts: Mapping[str, list[Row]], chosen: Collection[str], began: datetime
) -> tuple[PastRunRow, ...]:
    """Return the newest runs of other benchmarks that ended before the beginning."""
    found = [
        each
        for benchmark_id, its in attempts.items()
        if benchmark_id not in chosen
        for each in its
        if began - MAX_PAST_AGE <= each["ended_at"] <= began and 0.0 <= each["run_s"] <= MAX_SECONDS
    ]
    found.sort(key=lambda each: each["ended_at"])
    return tuple(
        PastRunRow(
            target_uid=each["target_uid"],
            ended_s=_seconds(each["ended_at"], began),
            run_s=float(each["run_s"]),
            failure=each["failure_category"] and FailureCategory(each["failure_category"]),
            model=each["model_sha256"] or "",
            engine=each["engine"],
            benchmark_type=BenchmarkType(each["benchmark_type"]),
            user=each["user_id"],
            nb_inference=each["nb_inference"],
            variant=each["variant"] or "",
        )
        for each in found[-MAX_PAST_RUNS:]
    )


def loads_of(rows: Iterable[Row], known: KnownBoards) -> Iterator[LoadRow]:
    """Yield the loads of the hosts of the known boards; earlier loads hold at the begin.

    A load that a cycle saw first began between it and the cycle before: half-way.
    """
    hosts = set(known.host_of().values())
    for each in sorted(rows, key=lambda row: row["at"]):
        if each["host"] in hosts:
            shares = [
                min(max(float(share), 0.0), 1.0)
                for share in (each["cpu"], each["memory"])
                if share is not None and math.isfinite(share)
            ]
            cpu, memory = shares if len(shares) == 2 else (None, None)
            at_s = known.seconds(each["at"])
            if each["after"] is not None:
                at_s = (at_s + known.seconds(each["after"])) / 2.0
            at_s = max(at_s, 0.0)
            yield LoadRow(host=each["host"], at_s=at_s, cpu=cpu, memory=memory)


def users_of(rows: Iterable[Row]) -> tuple[User, ...]:
    """Return accounts with their shares, limits and credits."""
    return tuple(
        User(
            name=each["user_id"],
            share=each["share"],
            max_running=each["max_running"],
            credits=each["credits"],
        )
        for each in rows
    )
