"""The benchmarks of a simulated lab: drawn from seeded streams, or stated one by one.

Everything about a benchmark but its boards is fixed here, before anything is decided: all policies
meet the same arrivals.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.kernel.streams import stream
from edgeyard.scheduler.model.benchmark import FailureCategory
from edgeyard.scheduler.model.decision import PendingBenchmark
from edgeyard.simulator.lab.boards import MIB, Boards, LabBoard
from edgeyard.simulator.mixes import poisson_arrivals
from edgeyard.simulator.scenario import (
    WEEK_HOURS,
    Arrivals,
    BoardGroup,
    JobKind,
    JobRow,
    LabScenario,
    PastFailure,
    Scenario,
)
from edgeyard.simulator.wording import count_of

Floats = NDArray[np.float64]
_HOUR_S = 3600.0
MIN_RUN_S = 1e-3
"""Minimum run time."""
_MAX_ARRIVALS = 5_000_000


@dataclass(slots=True, eq=False)
class LabJob:
    """A benchmark.

    Attributes:
        row: Its row in the run's columns; jobs are in order of their submission.
        description: What it states.
        noise: Its run times are multiplied by it.
        deadline_s: Time of its deadline; None: none.
        start_s: Earliest start; None: at once.
        cancel_s: When its owner cancels it; None: never.
        bad_model: It fails on every board.
        failures: How its first attempts end.
        gang_id: Those of one gang start in one cycle or not at all; None: it starts by itself.
        gang_size: How many its gang has; 1 without a gang.
    """

    row: int
    job_id: str
    user: str
    submit_s: float
    family: str
    target_uid: str | None
    description: JobKind | JobRow
    noise: float = 1.0
    deadline_s: float | None = None
    start_s: float | None = None
    cancel_s: float | None = None
    bad_model: bool = False
    failures: tuple[PastFailure, ...] = field(default=())
    gang_id: str | None = None
    gang_size: int = 1

    def run_s(self, board: LabBoard) -> float:
        """Return for how long it runs on a board, seconds."""
        description = self.description
        if board.uid in description.board_run_s:
            return description.board_run_s[board.uid] * self.noise
        own = description.family_run_s.get(board.group.family)
        median_s = description.run_s / board.group.speed if own is None else own
        return median_s * self.noise * board.run_factor

    @property
    def around_s(self) -> float:
        """Seconds for which it holds its board besides its run, where that is stated."""
        return self.description.around_s if isinstance(self.description, JobRow) else 0.0

    def pending(self, time: Callable[[float], datetime]) -> PendingBenchmark:
        """Return what a decision depends on."""
        description = self.description
        return PendingBenchmark(
            benchmark_id=self.job_id,
            user_id=self.user,
            submit_time=time(self.submit_s),
            family=self.family,
            engine=description.engine,
            benchmark_type=description.benchmark_type,
            ram_bytes=description.ram_mib * MIB,
            storage_bytes=description.storage_mib * MIB,
            target_uid=self.target_uid,
            user_priority=description.user_priority,
            deadline=None if self.deadline_s is None else time(self.deadline_s),
            start_time=None if self.start_s is None else time(self.start_s),
            user_time_s=description.user_time_s,
            budget=description.user_budget,
            binding=description.binding,
            model_sha256=model_sha256(description.model),
            job_completion_threshold=description.job_completion_threshold,
            nb_inference=description.nb_inference,
            variant=description.variant if isinstance(description, JobRow) else "",
            model_bytes=description.model_bytes,
            campaign_id=self.gang_id,
            gang_id=self.gang_id,
            gang_size=self.gang_size,
        )


class DrawnAttempt(NamedTuple):
    """An attempt of a benchmark on a board, as it goes if nothing disturbs it.

    Attributes:
        loading_s: From its placement to the beginning of its run; 0 for a recorded attempt that
            failed, of which all counts as its run.
        run_s: Of its run, seconds.
        overhead_s: From the end of its run until its board is free; 0 as before.
        failure: How it fails; None: it does not.
    """

    loading_s: float
    run_s: float
    overhead_s: float
    failure: FailureCategory | None

    @property
    def held_s(self) -> float:
        """Seconds for which it holds its board."""
        return self.run_s + (self.loading_s + self.overhead_s)


def draw_attempt(
    job: LabJob, board: LabBoard, number: int, limit_s: float, seed: int
) -> DrawnAttempt:
    """Draw an attempt of a benchmark on a board.

    Args:
        number: Of the attempt, from 1.
        limit_s: Time limit of the run.
    """
    if number <= len(job.failures):
        past = job.failures[number - 1]
        return DrawnAttempt(0.0, max(past.after_s, MIN_RUN_S), 0.0, past.category)
    run_s = job.run_s(board)
    failure: FailureCategory | None = None
    faults = board.faults
    if job.bad_model or faults.task_rate:
        faulty, share = stream(seed, "task faults", job.row, number).random(2).tolist()
        if job.bad_model:
            failure = FailureCategory.USER_MODEL
            if faults.model_causes:  # the same on every board
                failure = _drawn_cause(faults.model_causes, stream(seed, "causes", job.row))
        elif faulty < faults.task_rate:
            failure = FailureCategory.BOARD_FAULT
            if faults.task_causes:
                failure = _drawn_cause(faults.task_causes, stream(seed, "causes", job.row, number))
        if failure is not None:
            run_s *= share
    if run_s > limit_s:
        run_s, failure = limit_s, FailureCategory.TIMEOUT
    loading_s, overhead_s = around_s(job, board, number, seed)
    return DrawnAttempt(loading_s, max(run_s, MIN_RUN_S), overhead_s + job.around_s, failure)


def _drawn_cause(
    weights: Mapping[FailureCategory, float], random: np.random.Generator
) -> FailureCategory:
    causes = sorted(weights)
    shares = np.array([weights[each] for each in causes])
    return causes[int(random.choice(len(causes), p=shares / shares.sum()))]


def around_s(job: LabJob, board: LabBoard, number: int, seed: int) -> tuple[float, float]:
    """Return for how long an attempt holds its board before its run and after it, seconds."""
    group = board.group
    if not group.loading_s and not group.overhead_s:
        return 0.0, 0.0
    loading, overhead = stream(seed, "loading", job.row, number).normal(size=2).tolist()
    loading_s = group.loading_s * math.exp(group.loading_spread * loading)
    return loading_s, group.overhead_s * math.exp(group.overhead_spread * overhead)


def model_sha256(model: str) -> str:
    """Return a made-up SHA-256 of the content of a model of this name."""
    return hashlib.sha256(model.encode()).hexdigest()


def draw_jobs(scenario: Scenario, lab: LabScenario, boards: Boards, seed: int) -> list[LabJob]:
    """Return all benchmarks of a scenario in order of submission.

    Raises:
        InvalidInput: No board could ever run one of them, or there are too many.
    """
    drawn: list[LabJob] = []
    if lab.arrivals is not None:
        drawn = _drawn(scenario, lab, lab.arrivals, boards, seed)
    sizes = Counter(job.gang for job in lab.jobs if job.gang)
    stated = [
        _listed_job(job, row, boards, sizes[job.gang] or 1) for row, job in enumerate(lab.jobs)
    ]
    jobs = sorted([*drawn, *stated], key=lambda job: (job.submit_s, job.job_id))
    if not jobs:
        raise InvalidInput.at(
            scenario.name, "no benchmark arrives", "a higher rate or a longer duration_s"
        )
    for row, job in enumerate(jobs):
        job.row = row
    return jobs


def draw_history(lab: LabScenario, boards: Boards, seed: int) -> list[tuple[LabJob, LabBoard]]:
    """Return benchmarks that ran before the beginning, each with its board."""
    if not lab.history_jobs or lab.arrivals is None:
        return []
    times = np.full(lab.history_jobs, 0.0)
    present = [each for each in boards.rows if each.present]
    jobs = _jobs_at_times(lab, lab.arrivals, seed, times, "history", present)
    random = stream(seed, "history boards")
    picks = random.random(len(jobs))
    found = []
    for job, pick in zip(jobs, picks.tolist(), strict=True):
        its = [
            each for each in present if each.group.family == job.family and _runs(each.group, job)
        ]
        if its:
            found.append((job, its[int(pick * len(its))]))
    return found


def _runs(group: BoardGroup, job: LabJob) -> bool:
    return can_run(group, job.description)


def can_run(group: BoardGroup, description: JobKind | JobRow) -> bool:
    """Return whether boards of a group can run a kind of benchmark."""
    return (
        description.benchmark_type in group.engines.get(description.engine, ())
        and description.ram_mib <= group.ram_mib
        and description.storage_mib <= group.storage_mib
    )


def _listed_job(job: JobRow, row: int, boards: Boards, gang_size: int) -> LabJob:
    key = f"lab.jobs[{row}]"
    if job.target_uid and job.target_uid not in boards.row_of_uid:
        raise InvalidInput.at(
            f"{key}.target_uid", f"there is no board {job.target_uid!r}", "a board of lab.boards"
        )
    groups = {id(each.group): each.group for each in boards.rows if each.group.family == job.family}
    if not any(can_run(group, job) for group in groups.values()):
        raise InvalidInput.at(
            key, f"no board of {job.family} can ever run it", _offers(groups.values())
        )
    able = sum(each.group.family == job.family and can_run(each.group, job) for each in boards.rows)
    if able < gang_size:
        boards_text = f"{count_of(able, 'board')} of {job.family} can run it"
        reason = f"{job.gang!r} has {gang_size} jobs, but {boards_text}"
        raise InvalidInput.at(
            f"{key}.gang", reason, f"up to {able} jobs" if able > 1 else "no gang"
        )
    return LabJob(
        row=0,
        job_id=job.job_id,
        user=job.user,
        submit_s=job.submit_s,
        family=job.family,
        target_uid=job.target_uid or None,
        description=job,
        deadline_s=job.deadline_s,
        start_s=job.start_s,
        cancel_s=job.cancel_s,
        failures=job.failures,
        gang_id=f"gang-{job.gang}" if job.gang else None,
        gang_size=gang_size,
    )


def _offers(groups: Iterable[BoardGroup]) -> str:
    found: set[str] = set()
    for group in groups:
        for engine, types in group.engines.items():
            found.add(f"{engine} with {', '.join(types)} and up to {group.ram_mib} MiB of RAM")
    return "; ".join(sorted(found))


def _drawn(
    scenario: Scenario, lab: LabScenario, arrivals: Arrivals, boards: Boards, seed: int
) -> list[LabJob]:
    until_s = min(arrivals.until_s or scenario.duration_s, scenario.duration_s)
    times = _times(lab, arrivals, until_s, seed)
    if len(times) > _MAX_ARRIVALS:
        raise InvalidInput.at(
            f"{scenario.name}: lab.arrivals.rate_per_hour",
            f"generates {len(times):,} benchmarks",
            f"at most {_MAX_ARRIVALS:,} benchmarks in the whole time: a lower rate or a shorter "
            "time",
        )
    return _jobs_at_times(lab, arrivals, seed, times, "arrivals", boards.rows)


def _times(lab: LabScenario, arrivals: Arrivals, until_s: float, seed: int) -> Floats:
    loads = sorted((each.at_s, each.factor) for each in lab.changes if each.what == "load")
    starts = np.array([0.0, *(at_s for at_s, _ in loads)])
    factors = np.array([1.0, *(factor for _, factor in loads)])
    random = stream(seed, "arrivals", arrivals.process)

    def factor_at(times: Floats) -> Floats:
        found: Floats = factors[np.searchsorted(starts, times, side="right") - 1]
        if arrivals.process == "diurnal":
            hours = times / _HOUR_S - arrivals.peak_hour
            found = found * (1.0 + arrivals.amplitude * np.cos(2.0 * np.pi * hours / 24.0))
        elif arrivals.process == "weekly":
            hours = np.floor(times / _HOUR_S + arrivals.first_hour).astype(np.int64)
            found = found * np.array(arrivals.week)[hours % WEEK_HOURS]
        return found

    rate = arrivals.rate_per_hour / _HOUR_S
    if arrivals.process == "bernoulli":
        steps = np.arange(0.0, until_s, arrivals.step_s)
        found: Floats = steps[random.random(len(steps)) < rate * arrivals.step_s * factor_at(steps)]
        return found
    highest = float(factors.max()) * (1.0 + arrivals.amplitude)
    if arrivals.process == "weekly":
        highest = float(factors.max()) * max(arrivals.week)
    expected = rate * highest * until_s
    if expected > 2 * _MAX_ARRIVALS:
        raise InvalidInput.at(
            "lab.arrivals.rate_per_hour",
            f"generates about {expected:,.0f} benchmarks",
            f"a rate for up to {_MAX_ARRIVALS:,} benchmarks",
        )
    if arrivals.process == "weekly":
        rate /= arrivals.batch_size
    times = poisson_arrivals(random, rate * highest, until_s)
    kept = times[random.random(len(times)) * highest < factor_at(times)]
    if arrivals.process == "bursts":
        bursts = poisson_arrivals(stream(seed, "bursts"), 1.0 / arrivals.burst_every_s, until_s)
        sizes = stream(seed, "burst sizes").poisson(arrivals.burst_size, len(bursts))
        kept = np.sort(np.concatenate((kept, np.repeat(bursts, sizes))))
    if _has_batches(arrivals):
        sizes = stream(seed, "batch sizes").geometric(1.0 / arrivals.batch_size, len(kept))
        kept = np.repeat(kept, sizes)
    return np.asarray(kept, dtype=np.float64)


def _has_batches(arrivals: Arrivals) -> bool:
    return arrivals.process == "weekly" and arrivals.batch_size > 1.0


def _jobs_at_times(
    lab: LabScenario,
    arrivals: Arrivals,
    seed: int,
    times: Floats,
    purpose: str,
    among: Sequence[LabBoard],
) -> list[LabJob]:
    count = len(times)

    def uniform(what: str) -> list[float]:
        found: list[float] = stream(seed, purpose, what).random(count).tolist()
        return found

    shares = np.array([kind.share for kind in arrivals.mix])
    kinds = stream(seed, purpose, "kinds").choice(len(shares), count, p=shares / shares.sum())
    weights = np.array([user.weight for user in arrivals.users])
    users = stream(seed, purpose, "users").choice(len(weights), count, p=weights / weights.sum())
    if _has_batches(arrivals) and purpose == "arrivals":
        _, begins, batch = np.unique(times, return_index=True, return_inverse=True)
        kinds, users = kinds[begins][batch], users[begins][batch]
    noises = stream(seed, purpose, "noise").normal(size=count).tolist()
    family_draws, deadline_draws = uniform("families"), uniform("deadlines")
    pin_draws, board_draws, model_draws = uniform("pins"), uniform("boards"), uniform("models")
    choices = [_Families(lab, kind, row, among) for row, kind in enumerate(arrivals.mix)]
    made = []
    for row, (at_s, which, who) in enumerate(
        zip(times.tolist(), kinds.tolist(), users.tolist(), strict=True)
    ):
        kind = arrivals.mix[which]
        family = choices[which].at(at_s, family_draws[row])
        target_uid = None
        if kind.pinned_share and pin_draws[row] < kind.pinned_share:
            target_uid = choices[which].board_of(family, board_draws[row])
        deadline_s = None
        if kind.deadline_s is not None and deadline_draws[row] < kind.deadline_share:
            deadline_s = at_s + kind.deadline_s
        first = LabJob(
            row=row,
            job_id=f"{purpose[0]}{row + 1:07d}",
            user=arrivals.users[who].name,
            submit_s=at_s,
            family=family,
            target_uid=target_uid,
            description=kind,
            noise=float(np.exp(kind.run_spread * noises[row])),
            deadline_s=deadline_s,
            start_s=None if kind.start_s is None else at_s + kind.start_s,
            bad_model=model_draws[row] < lab.faults.model_rate,
        )
        made += [first] if kind.count == 1 else _gang(first, kind, seed, purpose)
    return made


def _gang(first: LabJob, kind: JobKind, seed: int, purpose: str) -> list[LabJob]:
    """Return a benchmark and the others of its gang, which differ in their run times."""
    noises = stream(seed, purpose, "gangs", first.row).normal(size=kind.count - 1).tolist()
    gang = replace(first, gang_id=f"gang-{first.job_id}", gang_size=kind.count)
    others = [
        replace(
            gang,
            job_id=f"{first.job_id}-{number}",
            noise=float(np.exp(kind.run_spread * noise)),
        )
        for number, noise in enumerate(noises, 2)
    ]
    return [gang, *others]


class _Families:
    """The families that benchmarks of one kind request, by the time of their submission."""

    def __init__(
        self, lab: LabScenario, kind: JobKind, row: int, among: Sequence[LabBoard]
    ) -> None:
        able = [each for each in among if can_run(each.group, kind)]
        if kind.families:
            able = [each for each in able if each.group.family in kind.families]
        if not able or max(Counter(each.group.family for each in able).values()) < kind.count:
            groups = {id(each.group): each.group for each in among}
            raise InvalidInput.at(
                f"lab.arrivals.mix[{row}]",
                f"no board can ever run {kind.model!r} ({kind.engine}, {kind.benchmark_type})"
                if kind.count == 1
                else f"no family has {kind.count} boards that can run {kind.model!r}",
                _offers(groups.values()),
            )
        boards_of = Counter(each.group.family for each in able)
        able = [each for each in able if boards_of[each.group.family] >= kind.count]
        self._boards: dict[str, list[str]] = {}
        for each in able:
            self._boards.setdefault(each.group.family, []).append(each.uid)
        self._count = kind.count
        self._listed_job = [family for family in kind.families if family in self._boards]
        times = sorted({0.0, *(each.at_s for each in lab.changes)})
        self._times = np.array(times)
        self._known = [self._families_at(lab, at_s, able) for at_s in times]

    def _families_at(self, lab: LabScenario, at_s: float, able: Sequence[LabBoard]) -> list[str]:
        """Return the families that can run the kind and are in the lab from this time on."""
        counts: dict[str, int] = {}
        for each in able:
            if each.present:
                counts[each.group.family] = counts.get(each.group.family, 0) + 1
        for change in sorted(lab.changes, key=lambda each: each.at_s):
            if change.at_s > at_s:
                break
            if change.what == "boards_join" and change.group is not None:
                family = change.group.family
                if family in self._boards:
                    counts[family] = counts.get(family, 0) + change.group.count
            elif change.what == "boards_leave" and change.family in counts:
                left = counts[change.family] if change.count is None else change.count
                counts[change.family] -= left
        return sorted(family for family, count in counts.items() if count >= self._count)

    def at(self, at_s: float, draw: float) -> str:
        families = list(self._listed_job)
        if not families:
            place = int(np.searchsorted(self._times, at_s, side="right")) - 1
            families = self._known[place] or sorted(self._boards)
        return families[int(draw * len(families))]

    def board_of(self, family: str, draw: float) -> str | None:
        uids = self._boards.get(family)
        return uids[int(draw * len(uids))] if uids else None
