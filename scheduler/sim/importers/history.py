"""A lab's recorded history, as `edgeyard export` writes it, becomes a scenario of the lab.

What is kept, and how:

- Each benchmark becomes a job with its description: submission, family or board, deadline, start
  time, priority, retries, budget, time limits. It runs for as long as its last attempt held its
  board; earlier attempts that failed by themselves fail as they did. Attempts that were preempted
  or lost are left to the simulation: they follow from the policy, and from outages.
- A benchmark that never ended a run (it waited, or was cancelled) takes the median of the runs of
  its model and family, or else of its family, or else of all. One that was cancelled is cancelled
  at the same time.
- Benchmarks of a gang (``count``) start together, as far as the history has them.
- All boards that recorded cycles know are there, with their hosts and engines. What the cycles saw
  of them returns: faults, hosts that were offline, drains.
- Users have the shares and limits that they had, and the credits that the first cycle saw.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.scheduler.model.benchmark import BenchmarkType, FailureCategory
from edgeyard.scheduler.model.wire import description_from_json
from edgeyard.scheduler.sim.importers.machines import (
    DRAIN_S,
    MAX_JOBS,
    ImportedScenario,
    Selection,
    checked,
    counted,
)
from edgeyard.scheduler.sim.lab.jobs import can_run
from edgeyard.scheduler.sim.scenario import (
    MAX_SECONDS,
    BoardGroup,
    Change,
    JobRow,
    LabScenario,
    Outage,
    PastFailure,
    Scenario,
    User,
)

TABLES = ("benchmarks", "outcomes", "boards", "users")
"""Tables of `edgeyard export` that are read."""

_BENCHMARKS = (
    *("benchmark_id", "user_id", "campaign_id", "status", "submit_time", "ended_at"),
    "description",
)
_OUTCOMES = (
    *("benchmark_id", "attempt", "target_uid", "family", "model_sha256", "run_s"),
    *("failure_category", "placed_at", "ended_at"),
)
_BOARDS = (
    *("at", "target_uid", "family", "host", "ram_bytes", "storage_bytes", "supports", "shares"),
    *("rate", "known", "online", "healthy", "drained"),
)
_USERS = ("user_id", "share", "max_running", "credits")
_OF_OTHERS = frozenset(
    {
        *(FailureCategory.PREEMPTED, FailureCategory.PREEMPTED_TOO_OFTEN),
        FailureCategory.CLUSTER,
    }
)
"""Failures that follow from the policy, or from an outage."""
_NOTHING = "no benchmark was submitted in that time"
_MIB = 1 << 20
_MIN_RUN_S = 1e-3

Row = Mapping[str, Any]


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
    advanced(0.4)
    reported = _rows(folder / "boards.parquet", _BOARDS)
    seen = [each for each in reported if _engines(each)]
    users = _rows(folder / "users.parquet", _USERS)
    advanced(0.6)
    chosen = benchmarks[selection.skip :][: selection.count]
    if not chosen:
        reason = f"there are only {len(benchmarks)} benchmarks" if benchmarks else _NOTHING
        raise InvalidInput.at("--skip" if benchmarks else source, reason)
    if len(chosen) > MAX_JOBS:
        reason = f"has {len(chosen):,} benchmarks"
        raise InvalidInput.at(source, reason, f"--count {MAX_JOBS} or less")
    if not seen:
        raise InvalidInput.at(
            source,
            "no cycle is recorded, so the lab's boards are not known",
            "a time in which the server decided, and for which it still has its cycles",
        )
    began: datetime = chosen[0]["submit_time"]
    known = _KnownBoards(seen, attempts, began)
    jobs, notes = _jobs(chosen, attempts, known, began, source)
    without = {each["target_uid"] for each in reported} - {each["target_uid"] for each in seen}
    if without:
        notes += (f"boards without an engine that offers a type left out: {len(without)}",)
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
            users=_users(users),
            rates=known.rates,
        ),
    )
    return ImportedScenario(scenario=checked(scenario), notes=notes)


def _rows(path: Path, columns: tuple[str, ...]) -> list[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(["reading Parquet needs pyarrow: install edgeyard[export]"]) from None
    try:
        table = parquet.read_table(path, columns=list(columns))
    except FileNotFoundError as error:
        accepted = "a folder that `edgeyard export` of this version wrote"
        raise InvalidInput.at(str(path), "is missing", accepted) from error
    except pyarrow.ArrowException as error:
        raise InvalidInput.at(str(path), f"is no Parquet file: {error}") from error
    if missing := [name for name in columns if name not in table.column_names]:
        raise InvalidInput.at(str(path), f"has no column {', '.join(missing)}", ", ".join(columns))
    rows: list[Row] = table.to_pylist()
    return rows


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _since(began: datetime, at: datetime | None) -> float | None:
    return None if at is None else min(max(_seconds(began, at), 0.0), MAX_SECONDS)


def _held_s(attempt: Row) -> float:
    """Return for how long an attempt held its board: from its decision until its end."""
    run_s = float(attempt["run_s"])
    placed = attempt["placed_at"]
    return max(run_s if placed is None else _seconds(placed, attempt["ended_at"]), run_s, 0.0)


def _jobs(
    benchmarks: Sequence[Row],
    attempts: Mapping[str, list[Row]],
    known: _KnownBoards,
    began: datetime,
    source: str,
) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
    """Return the jobs, and notes on what was left out or guessed."""
    described = [description_from_json(json.loads(each["description"])) for each in benchmarks]
    ran: list[tuple[str, str, float]] = []
    for benchmark, description in zip(benchmarks, described, strict=True):
        its = sorted(attempts.get(benchmark["benchmark_id"], ()), key=lambda each: each["attempt"])
        if its and its[-1]["failure_category"] is None and _held_s(its[-1]) > 0.0:
            ran.append((description.model, description.family, _held_s(its[-1])))
    typical = _Typical(ran)
    guessed = left_out = later = constrained = wishing = 0
    made: list[JobRow] = []
    for benchmark, description in zip(benchmarks, described, strict=True):
        its = sorted(attempts.get(benchmark["benchmark_id"], ()), key=lambda each: each["attempt"])
        completed = benchmark["status"] == "completed"
        run_s = _held_s(its[-1]) if its else 0.0
        if not completed or run_s <= 0.0:
            expected_s = typical.run_s(description.model, description.family)
            if not its and expected_s is None:
                raise InvalidInput.at(
                    source, "no benchmark ran, so that no run time is known", "another time"
                )
            guessed += not its
            run_s = max(run_s, expected_s or 0.0, _MIN_RUN_S)
        failed = [
            PastFailure(
                category=FailureCategory(each["failure_category"]),
                after_s=max(_held_s(each), _MIN_RUN_S),
            )
            for each in its
            if each["failure_category"]
            and FailureCategory(each["failure_category"]) not in _OF_OTHERS
        ]
        user_time_s, budget = description.user_time_s, description.user_budget
        if completed and user_time_s is not None:
            user_time_s = max(user_time_s, run_s)  # what held the board is more than the run
        rate = known.rates.get(description.family, 1.0)
        if completed and budget is not None:
            budget = max(budget, run_s * rate)
        ended = benchmark["ended_at"]
        job = JobRow(
            job_id=benchmark["benchmark_id"],
            submit_s=_seconds(began, benchmark["submit_time"]),
            run_s=run_s,
            family=description.family,
            target_uid=description.target_uid or "",
            model=next(
                (each["model_sha256"] for each in its if each["model_sha256"]), description.model
            ),
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
            gang=(benchmark["campaign_id"] or "") if description.count > 1 else "",
        )
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
        *counted(guessed, "that never ended a run got the run time of similar ones"),
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


class _KnownBoards:
    """The boards that cycles saw, and what happened to them.

    Attributes:
        groups: Boards that are alike.
        duration_s: From the first submission to the last thing that is known.
        rates: Credits per board-second by family, where they are not 1.
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
        self._last = max([*ends, *(each["ended_at"] for each in self._attempts)])
        self.duration_s = _seconds(began, self._last)
        last = {uid: rows[-1] for uid, rows in self._states.items()}
        self.rates: Mapping[str, float] = {
            each["family"]: float(each["rate"]) for each in last.values() if each["rate"] != 1.0
        }
        alike: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        for uid in sorted(last):
            each = last[uid]
            sharing = 1 + len([other for other in each["shares"] if other in last])
            key = (
                each["family"], each["ram_bytes"] // _MIB, each["storage_bytes"] // _MIB,
                tuple(sorted(each["supports"])), sharing,
            )  # fmt: skip
            alike[key].append(each)
        self.groups = tuple(_group(rows) for _, rows in sorted(alike.items(), key=_first_uid))
        self._group_of = {uid: group for group in self.groups for uid in group.uids}

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
            and from_s - _NEAR_S <= _seconds(self._began, each["ended_at"]) <= to_s + _NEAR_S
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
            found.append((since, self._last))
        times = [(_seconds(self._began, a), _seconds(self._began, b)) for a, b in found]
        return [(max(from_s, 0.0), to_s) for from_s, to_s in times if to_s > max(from_s, 0.0)]


_NEAR_S = 120.0
"""A lost run is reported within so many seconds before or after its host was seen offline."""


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


def _users(rows: Iterable[Row]) -> tuple[User, ...]:
    return tuple(
        User(
            name=each["user_id"],
            share=each["share"],
            max_running=each["max_running"],
            credits=each["credits"],
        )
        for each in rows
    )
