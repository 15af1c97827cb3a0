"""The gate ``replay``: recorded days are simulated under a candidate and without it.

The runs of the newest days, of which a time is known, are simulated with the lab's own decision
code. Benchmarks, times of submission, boards, loads of hosts and past runs are as recorded, and the
same benchmark takes equally long on the same board in both simulations. What differs is which model
predicts.

**Run times on other boards.** How long a run would have taken on another board is not recorded. It
is the recorded time, multiplied by the ratio of two expectations of a judge: a model of the same
form, fitted to the replayed runs alone, from which the judged model did not learn. A chance p of
failures makes the time ``1 / (1 - p)`` times as long: the expected time until there is a result.

**What decides.** The policy of the newest recorded cycle, with `SCORERS` as its only scorers, one
job a board as it decides, and without preemption and exploration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgeyard.errors import ConfigError, InvalidInput, NotFound
from edgeyard.scheduler.decide.record import cycle_input_of, policy_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import Backfill, Policy, ScorerChoice
from edgeyard.scheduler.framework.registry import Registry
from edgeyard.scheduler.model.benchmark import BenchmarkType, Binding, FailureCategory
from edgeyard.scheduler.model.decision import CycleInput, PendingBenchmark, Snapshot
from edgeyard.scheduler.model.history import PastRun
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import Gate, ModelKind
from edgeyard.scheduler.model.tariff import seconds_of_day
from edgeyard.scheduler.outcomes.intervals import Interval, group_means
from edgeyard.scheduler.outcomes.models import fit_failures, fit_run_times, user_weights
from edgeyard.scheduler.outcomes.rows import OutcomeRows, encoded_pairs
from edgeyard.scheduler.ports import Store
from edgeyard.scheduler.prediction.estimates import combined_chance
from edgeyard.simulator.lab.jobs import can_run
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.runs import COMPLETED
from edgeyard.simulator.scenario import (
    DAY_S,
    MAX_SECONDS,
    BoardGroup,
    JobRow,
    LabScenario,
    LoadRow,
    PastRunRow,
    Scenario,
    check_scenario,
)

Floats = NDArray[np.float64]

REPLAY_GATE = "replay"

REPLAY_DAYS = 3.0
"""The newest days with decisions that the judged model did not learn from."""

MAX_REPLAYED_RUNS = 500
MIN_REPLAYED_RUNS = 30
"""Minimum number of replayed runs, as for the other gates."""

BLOCKS = 10
"""Differences are averaged in blocks of neighbours, which the bootstrap draws: runs that follow
one another are not independent."""

SCORERS = ("run_time_model", "failure_model", "measurement_model")

REPLAYED_KINDS = frozenset({ModelKind.RUN_TIME, ModelKind.FAILURE, ModelKind.MEASUREMENT})
"""Kinds that boards are chosen by; times of loading are part of forecasts alone."""

_MIN_RUNS_PER_CLASS = 10
"""Minimum number of failures, and of results, from which chances of failures are estimated."""

_MAX_RISK = 0.9
_MAX_PAST = 5_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedDays:
    """The newest recorded days, to be replayed.

    Attributes:
        scenario: Of the lab.
        policy: What decides.
    """

    scenario: Scenario
    policy: Policy

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return 0 if self.scenario.lab is None else len(self.scenario.lab.jobs)


def recorded_days(store: Store, rows: OutcomeRows) -> RecordedDays | None:
    """Return the newest days of these rows; None: too few runs can be replayed.

    Args:
        store: Has the recorded cycles; it is only read.
        rows: Decisions that the judged model did not learn from.

    Raises:
        InvalidInput: No scenario can be made of them.
    """
    if not len(rows):
        return None
    newest = np.flatnonzero(rows.decided_s >= rows.decided_s.max() - REPLAY_DAYS * DAY_S)
    rows = rows.only(newest[np.argsort(rows.decided_s[newest], kind="stable")[-MAX_REPLAYED_RUNS:]])
    timed = rows.only(np.isfinite(rows.run_s))
    if len(timed) < MIN_REPLAYED_RUNS:
        return None
    days = _Days(rows)
    for seq in dict.fromkeys(timed.cycles.tolist()):  # by time, also where a clock was set back
        try:
            with store.read() as uow:
                record = uow.cycles.get(seq)
        except NotFound:  # deleted meanwhile for its age
            continue
        days.add(cycle_input_of(record), policy_of(record), timed.only(timed.cycles == seq))
    return days.made()


def replay_gate(
    days: RecordedDays | None,
    registry: Registry,
    candidate: Sequence[ActiveModel],
    other: Sequence[ActiveModel],
) -> Gate:
    """Simulate the days under two sets of models, and compare the mean completion times.

    Args:
        days: From `recorded_days`; None: there are too few runs.
        registry: Of the plugins.
        candidate: Models with the candidate.
        other: Models without it.
    """
    names = " and ".join(each.reference for each in other) or "past runs alone"
    if days is None:
        why = f"fewer than {MIN_REPLAYED_RUNS} runs of recorded days that are new to both"
        return unmeasured(f"{why} can be replayed")
    try:
        plugins = registry.resolve(days.policy)
        ends, users = [], np.empty(0, np.str_)
        for models in (candidate, other):
            run = simulate_lab(days.scenario, days.policy, plugins, models=models)
            completed = run.jobs.status == COMPLETED
            ends.append(np.where(completed, run.jobs.end_s, np.nan))
            users = np.array(run.jobs.user, np.str_)
    except (ConfigError, InvalidInput) as error:
        return unmeasured(f"the days can't be replayed: {error}")
    found = paired_difference(ends[0], ends[1], users)
    if found is None:
        return unmeasured("too few of the runs end in both simulations")
    return Gate(
        name=REPLAY_GATE,
        passed=found.low <= 0.0,
        figure=found.mean,
        low=found.low,
        high=found.high,
        limit=0.0,
        sentence=f"{_CLAIM}: mean completion {found} s against {names}, in {days.runs} runs",
    )


_CLAIM = "not worse where recorded days are replayed"


def unmeasured(why: str) -> Gate:
    """Return a gate that does not hold, because nothing could be measured."""
    return Gate(name=REPLAY_GATE, passed=False, figure=None, limit=0.0, sentence=f"{_CLAIM}: {why}")


def paired_difference(ends_s: Floats, others_s: Floats, users: NDArray[np.str_]) -> Interval | None:
    """Return the mean difference of the ends of the same runs; None: too few ended in both.

    As in the other gates, a user counts for at most as many runs as the median user.

    Args:
        ends_s: In the order of submission, shape (runs,); NaN for one without a result.
        others_s: Of the same runs, otherwise.
        users: Of the same runs.
    """
    difference = ends_s - others_s
    both = np.isfinite(difference)
    difference = difference[both]
    if len(difference) < MIN_REPLAYED_RUNS:
        return None
    blocks = np.arange(len(difference)) * BLOCKS // len(difference)
    return group_means(difference, blocks.astype(np.str_), weights=user_weights(users[both]))


class _Days:
    """Collects the parts of a scenario, cycle by cycle, oldest first."""

    def __init__(self, rows: OutcomeRows) -> None:
        self._judge = _Judge(rows)
        self._began: datetime | None = None
        self._last_s = 0.0
        self._jobs: dict[str, JobRow] = {}
        self._groups: dict[str, BoardGroup] = {}
        self._loads: list[LoadRow] = []
        self._past: tuple[PastRunRow, ...] = ()
        self._policy: Policy | None = None
        self._max_run_s = 1.0

    def add(self, given: CycleInput, policy: Policy, rows: OutcomeRows) -> None:
        """Add a cycle and the runs that it began."""
        if self._began is None:
            self._began = given.now
            past = [each for each in given.knowledge.runs[-_MAX_PAST:] if _is_possible(each)]
            self._past = tuple(
                _past_row(each, given.now) for each in sorted(past, key=lambda it: it.ended_at)
            )
        now_s = (given.now - self._began).total_seconds()
        self._policy, self._max_run_s = policy, given.knowledge.max_run_s
        snapshot = given.snapshot
        for place in np.flatnonzero(snapshot.online & snapshot.healthy).tolist():
            group = _group(snapshot, place)
            if group.engines:
                self._groups[snapshot.uids[place]] = group
        self._add_loads(given, (self._last_s + now_s) / 2.0)
        self._last_s = now_s
        times = self._judge.times_of(given, rows)
        pending = {each.benchmark_id: each for each in given.pending}
        for benchmark_id, by_board in times.items():
            submit_s = (pending[benchmark_id].submit_time - self._began).total_seconds()
            job = _job(pending[benchmark_id], max(submit_s, 0.0), by_board)
            self._jobs.setdefault(benchmark_id, job)

    def _add_loads(self, given: CycleInput, at_s: float) -> None:
        known = {each.host: (each.cpu, each.memory) for each in self._loads}
        for uid, host in zip(given.snapshot.uids, given.snapshot.hosts, strict=True):
            load = given.knowledge.host_loads.get(host)
            found = (None, None) if load is None else (load.cpu, load.memory)
            if uid in self._groups and known.get(host, (None, None)) != found:
                known[host] = found
                self._loads.append(LoadRow(host=host, at_s=at_s, cpu=found[0], memory=found[1]))

    def made(self) -> RecordedDays | None:
        """Return the days; None: too few runs can be replayed."""
        jobs = sorted(
            (each for each in self._jobs.values() if self._can_run(each)),
            key=lambda each: (each.submit_s, each.job_id),
        )
        if len(jobs) < MIN_REPLAYED_RUNS or self._policy is None:
            return None
        hosts = {group.hosts[0] for group in self._groups.values()}  # a board may have moved
        scenario = Scenario(
            name="recorded-days",
            world="boards",
            duration_s=max(jobs[-1].submit_s, 1.0),
            lab=LabScenario(
                boards=tuple(self._groups[uid] for uid in sorted(self._groups)),
                jobs=tuple(jobs),
                past=self._past,
                loads=tuple(each for each in self._loads if each.host in hosts),
                max_run_s=self._max_run_s,
                day_s=0.0 if self._began is None else seconds_of_day(self._began),
            ),
        )
        check_scenario(scenario, source="recorded days")
        policy = replace(
            self._policy,
            scorers=tuple(ScorerChoice(name=name, weight=1.0) for name in SCORERS),
            aggregator="expected_cost",
            evaluator=None,
            fallback=None,
            binding=Binding.STRICT,
            max_preemptions=0,
            explore_share=0.0,
            planner=None,
            backfill=Backfill.NONE,
        )
        return RecordedDays(scenario=scenario, policy=policy)

    def _can_run(self, job: JobRow) -> bool:
        """Return whether one of its boards can run it as these were seen at last."""
        uids = [job.target_uid] if job.target_uid else list(job.board_run_s)
        return any(uid in self._groups and can_run(self._groups[uid], job) for uid in uids)


class _Judge:
    """How long runs would have taken on other boards; see the module."""

    def __init__(self, rows: OutcomeRows) -> None:
        self._times = fit_run_times(rows.only(np.isfinite(rows.run_s)))
        countable = rows.only(rows.countable)
        failures = int(countable.failed.sum())
        enough = min(failures, len(countable) - failures) >= _MIN_RUNS_PER_CLASS
        self._risks = fit_failures(countable) if enough else None

    def times_of(self, given: CycleInput, rows: OutcomeRows) -> Mapping[str, Mapping[str, float]]:
        """Return the seconds of each run on each board that can run it, by benchmark."""
        snapshot = given.snapshot
        wanted = set(rows.benchmarks.tolist())
        pending = [each for each in given.pending if each.benchmark_id in wanted]
        batch = build_batch(snapshot, pending, given.now, given.seed, given.knowledge)
        place_of = {each.benchmark_id: job for job, each in enumerate(pending)}
        found: dict[str, Mapping[str, float]] = {}
        usable = snapshot.online & snapshot.healthy
        for benchmark_id, uid, run_s in zip(
            rows.benchmarks.tolist(), rows.boards.tolist(), rows.run_s.tolist(), strict=True
        ):
            each = pending[place_of[benchmark_id]]
            offers = snapshot.supports.get((each.engine, each.benchmark_type.value))
            if offers is None:
                continue
            family = np.array(snapshot.families) == each.family
            boards = np.flatnonzero(usable & offers & family)
            uids = [snapshot.uids[board] for board in boards.tolist()]
            if uid not in uids:
                continue
            row = int(batch.class_of_job[place_of[benchmark_id]])
            pairs = encoded_pairs(batch, np.full(len(boards), row, dtype=np.intp), boards)
            log_s = self._times.predict(pairs)[:, 1]
            if self._risks is not None:
                risk = combined_chance(*self._risks.predict(pairs).T)
                log_s = log_s - np.log1p(-np.minimum(risk, _MAX_RISK))
            ratios = np.exp(np.clip(log_s - log_s[uids.index(uid)], -5.0, 5.0))
            bound_s = float(batch.time_limits_s[row])
            found[benchmark_id] = {
                name: max(min(run_s * ratio, bound_s), 1e-3)
                for name, ratio in zip(uids, ratios.tolist(), strict=True)
            }
        return found


def _job(pending: PendingBenchmark, submit_s: float, by_board: Mapping[str, float]) -> JobRow:
    return JobRow(
        job_id=pending.benchmark_id,
        submit_s=submit_s,
        run_s=float(np.median(list(by_board.values()))),
        board_run_s=by_board,
        family=pending.family,
        target_uid=pending.target_uid or "",
        model=pending.model_sha256 or "",
        model_bytes=pending.model_bytes,
        variant=pending.variant,
        engine=pending.engine,
        benchmark_type=pending.benchmark_type,
        user=pending.user_id,
        ram_mib=pending.ram_bytes // _MIB,
        storage_mib=pending.storage_bytes // _MIB,
        user_priority=pending.user_priority,
        user_time_s=pending.user_time_s,
        nb_inference=pending.nb_inference,
    )


def _is_possible(run: PastRun) -> bool:
    """Return whether it can have lasted for so long: clocks of hosts are set."""
    return run.run_s is None or 0.0 <= run.run_s <= MAX_SECONDS


def _past_row(run: PastRun, now: datetime) -> PastRunRow:
    return PastRunRow(
        target_uid=run.target_uid,
        ended_s=max((now - run.ended_at).total_seconds(), 0.0),
        run_s=run.run_s,
        failure=None if run.failure is None else FailureCategory(run.failure),
        model=run.kind.model_sha256 or "",
        engine=run.kind.engine,
        benchmark_type=run.kind.benchmark_type,
        user=run.user_id,
        nb_inference=run.kind.nb_inference,
        variant=run.kind.variant,
    )


def _group(snapshot: Snapshot, place: int) -> BoardGroup:
    """Return a board by itself, as a cycle saw it."""
    engines: dict[str, list[BenchmarkType]] = {}
    for (engine, kind), offered in snapshot.offers.items():
        if offered[place]:
            engines.setdefault(engine, []).append(BenchmarkType(kind))
    cores = snapshot.attributes[place].get("cpu.cores") if snapshot.attributes else None
    counted = isinstance(cores, (int, float)) and 0 < cores < 1e6
    return BoardGroup(
        family=snapshot.families[place],
        count=1,
        uids=(snapshot.uids[place],),
        hosts=(snapshot.hosts[place],),
        engines={name: tuple(sorted(kinds)) for name, kinds in engines.items()},
        ram_mib=max(int(snapshot.ram_bytes[place]) // _MIB, 1),
        storage_mib=max(int(snapshot.storage_bytes[place]) // _MIB, 1),
        cpu_cores=float(cores) if counted else None,  # type: ignore[arg-type]
    )
