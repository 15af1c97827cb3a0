"""A scenario of a lab that is fitted to its recorded history, with what is uncertain in it."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import TypeVar

import msgspec
import numpy as np

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.benchmark import JobDescription
from edgeyard.scheduler.model.wire import description_from_json
from edgeyard.simulator.fitting.arrivals import batches, fit_week, hour_of_week
from edgeyard.simulator.fitting.estimates import Estimate, log_interval, rate_interval
from edgeyard.simulator.fitting.faults import fit_faults
from edgeyard.simulator.fitting.run_times import RunTimes, fit_run_times
from edgeyard.simulator.importers.history import KnownBoards, RecordedHistory, Row, loads_of
from edgeyard.simulator.importers.machines import checked
from edgeyard.simulator.lab.jobs import can_run
from edgeyard.simulator.scenario import (
    DAY_S,
    Arrivals,
    BoardGroup,
    JobKind,
    LabScenario,
    LoadRow,
    Scenario,
    User,
    scenario_to_toml,
)
from edgeyard.simulator.wording import count_of

MIN_RUNS = 20
"""Minimum number of runs with a result."""

MIN_WINDOW_S = 3600.0
"""Minimum length of the history."""

MAX_WINDOW_S = 3 * 366 * DAY_S
"""Maximum length of the history; in a longer one a clock must have jumped."""

BATCH_GAP_S = 2.0
"""Benchmarks of a user that follow one another within this time count as one batch."""

MIN_BENCHMARKS_PER_KIND = 5
"""Models with fewer benchmarks of a family and type are merged into one kind."""

OTHER_MODELS = "other-models"
"""Name of the merged kind."""

_MIB = 1 << 20
_MIN_BOARD_DIFFERENCE = 0.02
"""Minimum relative difference to its family with which a board's own run time is stated."""
_MAX_HISTORY_JOBS = 1000
_MIN_DURATION_S = 1e-3
"""Shorter loading times and overheads are left out."""
_T = TypeVar("_T")
_Kind = tuple[str, str, str, str, int]
"""Model, engine, type, family, and boards of a gang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedScenario:
    """A fitted scenario.

    Attributes:
        estimates: What was fitted, with intervals.
        comments: What a reader of the scenario should know, in words.
        began: Beginning of the history.
        ended: Its end.
    """

    scenario: Scenario
    estimates: tuple[Estimate, ...]
    comments: tuple[str, ...]
    began: datetime
    ended: datetime

    def to_toml(self) -> str:
        """Return the scenario as TOML, with the comments and intervals at its top."""
        lines = [f"# {line}" for line in self.comments]
        lines.append("# Fitted values with 95 % intervals, and from how many observations:")
        for each in self.estimates:
            lines.append(
                f"#   {each.name} = {each.value:.4g} ({each.interval_text}; {each.observations})"
            )
        clean = ("".join(c if c.isprintable() else "?" for c in line) for line in lines)
        return "\n".join(clean) + "\n\n" + scenario_to_toml(self.scenario)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Submission:
    """A benchmark, or a whole gang."""

    benchmark_id: str
    user: str
    at_s: float
    description: JobDescription
    kind: _Kind
    deadline_s: float | None
    start_s: float | None
    model_bytes: int | None


def before(history: RecordedHistory, until: datetime) -> RecordedHistory:
    """Return what was known of a history at a time.

    Raises:
        InvalidInput: Nothing was.
    """
    kept = [each for each in history.benchmarks if each["submit_time"] < until]
    boards = [each for each in history.boards if each["at"] < until]
    if not kept or not boards:
        reason = f"has no benchmarks or no recorded cycles before {until:%Y-%m-%d %H:%M:%S} UTC"
        raise InvalidInput.at(history.source, reason, "a longer history")
    ended = {
        benchmark: [each for each in its if each["ended_at"] < until]
        for benchmark, its in history.attempts.items()
    }
    attempts = {benchmark: its for benchmark, its in ended.items() if its}
    loads = [each for each in history.loads if each["at"] < until]
    return replace(history, benchmarks=kept, boards=boards, loads=loads, attempts=attempts)


def fit_scenario(
    history: RecordedHistory,
    *,
    name: str = "fitted",
    advanced: Callable[[float], None] = lambda share: None,
) -> FittedScenario:
    """Fit a scenario of one week, which begins on Monday at 00:00 UTC.

    Args:
        history: Of a lab.
        name: Of the scenario.
        advanced: Called now and then with the share that is done.

    Raises:
        InvalidInput: The history is too short, has too few runs, or spans years; names its source.
    """
    boards, gone = _present(history)
    attempts, skipped = possible_attempts(history)
    began: datetime = history.benchmarks[0]["submit_time"]
    known = KnownBoards(boards, attempts, began)
    duration_s = max(known.duration_s, known.seconds(history.benchmarks[-1]["submit_time"]))
    _check_length(history, attempts, duration_s)
    submissions, kinds, left_out = _submissions(history, attempts, known)
    advanced(0.2)
    arrivals, of_arrivals = _arrivals(submissions, hour_of_week(began), duration_s)
    advanced(0.4)
    times, uids = _run_times(submissions, kinds, attempts, known, history.source)
    advanced(0.6)
    faults = fit_faults(attempts, known)
    advanced(0.8)
    groups, of_groups = _groups(known, attempts, history, faults.task_rates)
    mix, of_kinds = _mix(submissions, kinds, times, uids)
    limit_s = max(
        [known.max_run_s, *(3.0 * each["run_s"] for its in attempts.values() for each in its)]
    )
    scenario = Scenario(
        name=name,
        world="boards",
        duration_s=7 * DAY_S,
        description=f"Fitted to a lab's history from {began:%Y-%m-%d} to {known.last:%Y-%m-%d}",
        tags=("fitted",),
        lab=LabScenario(
            boards=groups,
            arrivals=msgspec.structs.replace(arrivals, mix=mix, users=_users(history, submissions)),
            faults=faults.faults,
            rates=known.rates,
            max_run_s=limit_s,
            history_jobs=min(int(times.count.sum()), _MAX_HISTORY_JOBS),
            loads=_loads(history, known),
        ),
    )
    days = duration_s / DAY_S
    runs = int(times.count.sum())
    comments = [
        f"Fitted by edgeyard sim fit to {days:.1f} days from {began:%Y-%m-%d %H:%M} UTC: "
        f"{count_of(len(history.benchmarks), 'benchmark')}, {count_of(runs, 'run')} with a result.",
        "Few observations are shrunk to what is alike: hours to their hour of the day, boards to "
        "their family, kinds to their family and to all.",
        "run_spread is that of the next run: wider where a kind has few runs.",
    ]
    if days < 7:
        comments.append(
            f"Less than a week was observed ({of_arrivals[0].observations} submissions): hours of "
            "the week that were not have the rate of their hour of the day."
        )
    few = [mix[row].model for row in range(len(mix)) if times.count[row] < MIN_BENCHMARKS_PER_KIND]
    if few:
        comments.append(
            f"Kinds with fewer than {MIN_BENCHMARKS_PER_KIND} runs: {', '.join(few[:20])}."
        )
    for count, what in (
        (history.without_engine, "board(s) without an engine that offers a type were left out"),
        (gone, "board(s) that had left the lab at the end were left out"),
        (skipped, "attempt(s) with impossible times were left out"),
        (left_out, "benchmark(s) that no board of the lab can run were left out"),
    ):
        if count:
            comments.append(f"{count} {what}.")
    advanced(1.0)
    return FittedScenario(
        scenario=checked(scenario),
        estimates=(*of_arrivals, *of_kinds, *of_groups, *faults.estimates),
        comments=tuple(comments),
        began=began,
        ended=known.last,
    )


def _present(history: RecordedHistory) -> tuple[list[Row], int]:
    """Return the states of the boards that are in the lab at the end, and how many have left it."""
    last: dict[str, Row] = {}
    for each in sorted(history.boards, key=lambda row: row["at"]):
        last[each["target_uid"]] = each
    gone = {uid for uid, each in last.items() if not each["known"]}
    found = [each for each in history.boards if each["target_uid"] not in gone]
    if not found:
        raise InvalidInput.at(history.source, "no board is left at the end of the history")
    return found, len(gone)


def possible_attempts(history: RecordedHistory) -> tuple[dict[str, list[Row]], int]:
    """Return attempts with possible times by benchmark, and how many others there are."""
    submitted = {each["benchmark_id"]: each["submit_time"] for each in history.benchmarks}
    found: dict[str, list[Row]] = {}
    skipped = 0
    for benchmark, its in history.attempts.items():
        if benchmark not in submitted:
            continue
        good = [each for each in its if _is_possible(each, submitted[benchmark])]
        skipped += len(its) - len(good)
        if good:
            found[benchmark] = good
    return found, skipped


def _is_possible(attempt: Row, submitted: datetime) -> bool:
    run_s, placed, ended = attempt["run_s"], attempt["placed_at"], attempt["ended_at"]
    if not (math.isfinite(run_s) and run_s >= 0.0) or ended < submitted:
        return False
    if attempt["failure_category"] is None and run_s == 0.0:
        return False
    held_s = (ended - (submitted if placed is None else placed)).total_seconds()
    return bool(held_s >= 0.0 and run_s <= held_s + 1.0)


def _check_length(
    history: RecordedHistory, attempts: Mapping[str, Sequence[Row]], duration_s: float
) -> None:
    runs = sum(each["failure_category"] is None for its in attempts.values() for each in its)
    if runs < MIN_RUNS:
        reason = f"{count_of(runs, 'run')} with a result, which is too few to fit a scenario"
        raise InvalidInput.at(
            history.source, reason, f"a history of at least {MIN_RUNS} (an earlier --since)"
        )
    if duration_s < MIN_WINDOW_S:
        reason = f"the history is {duration_s / 60:.0f} minutes long, too short to fit arrivals"
        raise InvalidInput.at(history.source, reason, "at least an hour (an earlier --since)")
    if duration_s > MAX_WINDOW_S:
        reason = f"the history spans {duration_s / DAY_S:,.0f} days: did a clock jump?"
        raise InvalidInput.at(history.source, reason, "a part without the jump: --since, --until")


def _submissions(
    history: RecordedHistory, attempts: Mapping[str, Sequence[Row]], known: KnownBoards
) -> tuple[list[_Submission], list[_Kind], int]:
    """Return what arrived, the kinds of it, and how many benchmarks no board can run."""
    described = [
        description_from_json(json.loads(each["description"])) for each in history.benchmarks
    ]
    contents = [
        next(
            (a["model_sha256"] for a in attempts.get(b["benchmark_id"], ()) if a["model_sha256"]),
            "",
        )
        for b in history.benchmarks
    ]
    names: dict[str, set[str]] = defaultdict(set)
    for description, content in zip(described, contents, strict=True):
        names[description.model].update({content} - {""})
    found: list[_Submission] = []
    gangs: set[str] = set()
    left_out = 0
    for benchmark, description, content in zip(
        history.benchmarks, described, contents, strict=True
    ):
        count = description.count if benchmark["campaign_id"] else 1
        if count > 1:
            if benchmark["campaign_id"] in gangs:
                continue
            gangs.add(benchmark["campaign_id"])
        name = description.model
        if len(names[name]) > 1:  # files of one name and different content
            name = f"{name}@{(content or 'unknown')[:8]}"
        engine, kind = description.runtime, description.benchmark_type.value
        submitted: datetime = benchmark["submit_time"]
        deadline, start = description.deadline, description.start_time
        each = _Submission(
            deadline_s=None if deadline is None else max(_since(submitted, deadline), 0.0),
            start_s=None if start is None or start <= submitted else _since(submitted, start),
            benchmark_id=benchmark["benchmark_id"],
            user=benchmark["user_id"],
            at_s=known.seconds(benchmark["submit_time"]),
            description=description,
            model_bytes=benchmark["model_bytes"],
            kind=(name, engine, kind, description.family, count),
        )
        able = sum(
            group.count
            for group in known.groups
            if group.family == description.family and can_run(group, _kind_of([each], 1.0, 0.0))
        )
        if able >= count:
            found.append(each)
        else:
            left_out += 1
    if not found:
        raise InvalidInput.at(
            history.source, "no board of the history can run any of its benchmarks"
        )
    sizes = Counter(each.kind for each in found)
    rare = Counter(kind[1:] for kind, size in sizes.items() if size < MIN_BENCHMARKS_PER_KIND)
    merged = [
        replace(each, kind=(OTHER_MODELS, *each.kind[1:]))
        if sizes[each.kind] < MIN_BENCHMARKS_PER_KIND and rare[each.kind[1:]] > 1
        else each
        for each in found
    ]
    return merged, sorted({each.kind for each in merged}), left_out


def _since(submitted: datetime, at: datetime) -> float:
    return (at - submitted).total_seconds()


def _arrivals(
    submissions: Sequence[_Submission], first_hour: float, duration_s: float
) -> tuple[Arrivals, list[Estimate]]:
    times_s = np.array([each.at_s for each in submissions])
    _, users = np.unique([each.user for each in submissions], return_inverse=True)
    _, first, sizes = np.unique(
        batches(times_s, users, BATCH_GAP_S), return_index=True, return_counts=True
    )
    week = fit_week(times_s[first], first_hour, duration_s)
    batch_size = float(sizes.mean())
    rate = week.per_hour * batch_size
    hours = duration_s / 3600.0
    dispersion = float((sizes**2).mean() / sizes.mean())
    low, high = rate_interval(len(submissions), hours, dispersion=dispersion)
    per_batch = 1.96 * float(sizes.std()) / math.sqrt(len(sizes))
    estimates = [
        Estimate(
            name="rate_per_hour",
            value=rate,
            low=low,
            high=high,
            observations=len(submissions),
        ),
        Estimate(
            name="batch_size",
            value=batch_size,
            low=max(batch_size - per_batch, 1.0),
            high=batch_size + per_batch,
            observations=len(sizes),
        ),
    ]
    arrivals = Arrivals(
        process="weekly",
        rate_per_hour=round(rate, 6),
        week=tuple(round(factor, 4) for factor in week.factors.tolist()),
        batch_size=round(batch_size, 4),
        mix=(),
    )
    return arrivals, estimates


def _run_times(
    submissions: Sequence[_Submission],
    kinds: Sequence[_Kind],
    attempts: Mapping[str, Sequence[Row]],
    known: KnownBoards,
    source: str,
) -> tuple[RunTimes, list[str]]:
    uids = sorted(uid for group in known.groups for uid in group.uids)
    row_of_uid = {uid: row for row, uid in enumerate(uids)}
    row_of_kind = {kind: row for row, kind in enumerate(kinds)}
    found = [
        (row_of_kind[each.kind], row_of_uid[run["target_uid"]], math.log(run["run_s"]))
        for each in submissions
        for run in attempts.get(each.benchmark_id, ())
        if run["failure_category"] is None and run["target_uid"] in row_of_uid
    ]
    if not found:
        raise InvalidInput.at(source, "no run with a result is of a board that is in the lab")
    kind, board, log_s = (np.array(column) for column in zip(*found, strict=True))
    families = np.unique([each[3] for each in kinds], return_inverse=True)[1]
    return fit_run_times(kind, board, log_s, families, len(uids)), uids


def _mix(
    submissions: Sequence[_Submission],
    kinds: Sequence[_Kind],
    times: RunTimes,
    uids: Sequence[str],
) -> tuple[tuple[JobKind, ...], list[Estimate]]:
    of_kind: dict[_Kind, list[_Submission]] = defaultdict(list)
    for each in submissions:
        of_kind[each.kind].append(each)
    mix: list[JobKind] = []
    estimates: list[Estimate] = []
    for row, kind in enumerate(kinds):
        mean, spread = float(times.mean[row]), float(times.spread[row])
        family = kind[3]
        own = {
            uid: _rounded(math.exp(mean + more))
            for uid, more in zip(uids, times.boards[row].tolist(), strict=True)
            if uid.split("-")[0] == family and abs(more) > _MIN_BOARD_DIFFERENCE
        }
        made = _kind_of(of_kind[kind], _rounded(math.exp(mean)), round(spread, 4))
        mix.append(msgspec.structs.replace(made, board_run_s=own))
        name = f"run_s of {kind[0]} ({kind[1]}, {kind[2]}, {family})"
        estimates.append(_estimated_time(name, times, row))
    return tuple(mix), estimates


def _estimated_time(name: str, times: RunTimes, row: int) -> Estimate:
    mean = float(times.mean[row])
    low, high = log_interval(mean, float(times.error[row]))
    return Estimate(
        name=name, value=math.exp(mean), low=low, high=high, observations=int(times.count[row])
    )


def _groups(
    known: KnownBoards,
    attempts: Mapping[str, Sequence[Row]],
    history: RecordedHistory,
    task_rates: Mapping[str, float],
) -> tuple[tuple[BoardGroup, ...], list[Estimate]]:
    """Return the boards with what their runs take besides the run, and their rates of faults."""
    submitted = {each["benchmark_id"]: each["submit_time"] for each in history.benchmarks}
    families = sorted({group.family for group in known.groups})
    rows = {family: row for row, family in enumerate(families)}
    found: dict[str, list[tuple[int, float]]] = {"loading_s": [], "overhead_s": []}
    for benchmark, its in attempts.items():
        for each in its:
            row, placed = rows.get(each["family"]), each["placed_at"]
            if row is None or placed is None or each["failure_category"] is not None:
                continue
            around_s = _since(placed, each["ended_at"]) - each["run_s"]
            loading_s = 0.0
            if each["wait_s"] is not None and math.isfinite(each["wait_s"]):
                loading_s = each["wait_s"] - _since(submitted[benchmark], placed)
                loading_s = min(max(loading_s, 0.0), max(around_s, 0.0))
                found["loading_s"].append((row, loading_s))
            found["overhead_s"].append((row, max(around_s - loading_s, 0.0)))
    stated: dict[str, dict[str, float]] = {family: {} for family in families}
    estimates = []
    for name, pairs in found.items():
        if not any(seconds > _MIN_DURATION_S for _, seconds in pairs):
            continue
        family = np.array([row for row, _ in pairs])
        log_s = np.log([max(seconds, _MIN_DURATION_S) for _, seconds in pairs])
        nothing = np.zeros(len(families), dtype=np.int64)
        fitted = fit_run_times(family, np.zeros_like(family), log_s, nothing, 1)
        for row, each_family in enumerate(families):
            mean = float(fitted.mean[row])
            if math.exp(mean) < 2.0 * _MIN_DURATION_S:
                continue
            stated[each_family][name] = _rounded(math.exp(mean))
            spread = name.removesuffix("_s") + "_spread"
            stated[each_family][spread] = round(float(fitted.spread[row]), 4)
            estimates.append(_estimated_time(f"{name} of {each_family}", fitted, row))
    groups = tuple(
        msgspec.structs.replace(
            group,
            **stated[group.family],
            task_rates={uid: round(task_rates[uid], 6) for uid in group.uids if uid in task_rates},
        )
        for group in known.groups
    )
    return groups, estimates


def _loads(history: RecordedHistory, known: KnownBoards) -> tuple[LoadRow, ...]:
    """Return the mean load of each host over the time in which it reported one."""
    of_host: dict[str, list[LoadRow]] = defaultdict(list)
    for row in loads_of(history.loads, known):
        of_host[row.host].append(row)
    found: list[LoadRow] = []
    for host, rows in sorted(of_host.items()):
        ends_s = [*(row.at_s for row in rows[1:]), max(known.duration_s, rows[-1].at_s)]
        lasted_s, cpu_s, memory_s = 0.0, 0.0, 0.0
        for row, end_s in zip(rows, ends_s, strict=True):
            if row.cpu is not None and row.memory is not None:
                seconds = max(end_s - row.at_s, 1e-3)
                lasted_s += seconds
                cpu_s += seconds * row.cpu
                memory_s += seconds * row.memory
        if lasted_s:
            cpu, memory = round(cpu_s / lasted_s, 4), round(memory_s / lasted_s, 4)
            found.append(LoadRow(host=host, cpu=cpu, memory=memory))
    return tuple(found)


def _users(history: RecordedHistory, submissions: Sequence[_Submission]) -> tuple[User, ...]:
    """Return who submits how much; shares and limits as recorded, credits unlimited."""
    accounts = {each["user_id"]: each for each in history.users}
    weights = Counter(each.user for each in submissions)
    return tuple(
        User(
            name=name,
            weight=float(weights[name]),
            share=accounts[name]["share"] if name in accounts else 1.0,
            max_running=accounts[name]["max_running"] if name in accounts else None,
        )
        for name in sorted(weights)
    )


def _rounded(seconds: float) -> float:
    return float(f"{min(max(seconds, 1e-3), 3e7):.5g}")


def _kind_of(found: Sequence[_Submission], run_s: float, spread: float) -> JobKind:
    """Return a kind with what most of its benchmarks state, and medians of times."""
    stated = [each.description for each in found]
    first = found[0]

    def usual(field: Callable[[JobDescription], _T]) -> _T:
        return Counter(field(each) for each in stated).most_common(1)[0][0]

    def typical(field: Callable[[JobDescription], float | None]) -> float | None:
        known = [value for each in stated if (value := field(each)) is not None]
        return median(known) if 2 * len(known) > len(stated) else None

    deadlines = [each.deadline_s for each in found if each.deadline_s is not None]
    starts = [each.start_s for each in found if each.start_s is not None]
    model, engine, _, family, count = first.kind
    return JobKind(
        model=model,
        share=float(len(found)),
        run_s=run_s,
        run_spread=spread,
        families=(family,),
        pinned_share=0.0
        if count > 1
        else sum(each.target_uid is not None for each in stated) / len(stated),
        engine=engine,
        benchmark_type=first.description.benchmark_type,
        ram_mib=usual(lambda each: each.ram // _MIB),
        storage_mib=usual(lambda each: each.storage // _MIB),
        user_priority=usual(lambda each: each.user_priority),
        deadline_s=median(deadlines) if deadlines else None,
        deadline_share=len(deadlines) / len(found) if deadlines else 1.0,
        start_s=median(starts) if 2 * len(starts) > len(found) else None,
        user_budget=typical(lambda each: each.user_budget),
        user_time_s=typical(lambda each: each.user_time_s),
        queue_timeout_s=typical(lambda each: each.queue_timeout_s),
        max_retries=usual(lambda each: each.max_retries),
        nb_inference=usual(lambda each: each.nb_inference),
        preemptible=usual(lambda each: each.preemptible),
        preemptible_measuring=usual(lambda each: each.preemptible_measuring),
        job_completion_threshold=usual(lambda each: each.job_completion_threshold),
        binding=usual(lambda each: each.binding),
        count=count,
        model_bytes=Counter(each.model_bytes for each in found).most_common(1)[0][0],
    )
