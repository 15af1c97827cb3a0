"""A learned policy for boards, judged in labs that it never saw; a row of ``bench-learn``.

``python -m benchmarks.learned_boards [WORKERS [POLICY...]]`` simulates the judged scenarios under
the policies, by default all, and writes what came out into ``benchmarks/data/board_policy.json``,
which has the weights too, as ``edgeyard learn boards`` found them. The peers are all policies that
Edgeyard ships, ``default`` with each planner, and ``default`` with each queue policy. All policies
meet the same arrivals, run times and faults. ``python -m benchmarks.learned_boards table`` prints
the tables of ``docs/models.md``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import Row
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.cycle import CycleResult, decide
from edgeyard.scheduler.framework.baselines import BASELINES
from edgeyard.scheduler.framework.named import is_text, policy_named
from edgeyard.scheduler.framework.policy import (
    MAPPINGS,
    Planner,
    Policy,
    built_in_policies,
    load_policy,
)
from edgeyard.scheduler.framework.registry import Kind, Plugins
from edgeyard.scheduler.model.decision import CycleInput
from edgeyard.simulator.comparison import measured
from edgeyard.simulator.lab.boards import Boards
from edgeyard.simulator.lab.world import simulate_lab
from edgeyard.simulator.scenario import (
    Arrivals,
    BoardGroup,
    Change,
    Faults,
    JobKind,
    JobRow,
    LabScenario,
    PastRunRow,
    Scenario,
)
from edgeyard.training.board_trainer import (
    INPUTS,
    LEARNED_QUEUE,
    BoardTraining,
    board_policy,
    network_of,
    queue_name,
    queue_weights,
    start_weights,
)
from edgeyard.training.export import export_boards, export_queue

DATA = Path(__file__).parent / "data" / "board_policy.json"
NAME = "board_costs"
UNTRAINED = "untrained"
"""The policy from which its training started."""
PLANNED = "planned"
"""The policy ``default`` with ``planner = "expected_cost"``: nothing is learned."""
_ILP = tuple(each.value for each in MAPPINGS if each.value not in BASELINES)
"""``default`` with each of these planners."""
SEEDS = range(1, 6)
JOBS = 80
_ANSWER_S = 60.0
_DRAWS = 10_000
_CYCLES = 60

_KINDS = (
    JobKind(model="tiny", share=5, run_s=40.0, run_spread=0.3),
    JobKind(model="small", share=3, run_s=150.0, run_spread=0.3),
    JobKind(model="large", share=1, run_s=900.0, run_spread=0.4),
)
_DEADLINES = tuple(
    JobKind(
        model=each.model, share=each.share, run_s=each.run_s, run_spread=each.run_spread,
        deadline_s=3.0 * each.run_s, deadline_share=0.8,
    )
    for each in _KINDS
)  # fmt: skip
_SPEEDS = (0.4, 1.0, 1.6, 3.2)
_BOARDS_PER_SPEED = 3


def _peers() -> tuple[str, ...]:
    """Return all peers: what ``edgeyard policies list`` and the queue policies have, and planners.

    Left out are names of the same decisions: baselines that backfill, which in a lab is ``fcfs``,
    and the queue policy that ``default`` has.
    """
    own = load_policy("default").queue_policy
    queues = registry(entry_points=False).names(Kind.QUEUE_POLICY)
    return (
        UNTRAINED,
        PLANNED,
        *built_in_policies(),
        *(name for name, each in BASELINES.items() if each.backfill == "none"),
        *_ILP,
        *(each for each in queues if not is_text(each) and each != own),
    )


PEERS = _peers()


def judged() -> dict[str, Scenario]:
    """Return the judged scenarios by their names: 12 boards of four speeds, and what happens."""
    return {
        "load 0.5": _scenario(0.5),
        "load 0.8": _scenario(0.8),
        "load 1.1": _scenario(1.1),
        "deadlines": _scenario(0.8, _DEADLINES),
        "failures": _scenario(0.6, task_rate=0.25),
        "new family": _scenario(0.8, joins=True),
        "drained": _scenario(0.6, drained="jetson-0004-0001"),
    }


def _scenario(
    load: float,
    kinds: tuple[JobKind, ...] = _KINDS,
    *,
    task_rate: float = 0.0,
    joins: bool = False,
    drained: str = "",
) -> Scenario:
    """Return a lab.

    Args:
        load: Share of the boards that its benchmarks need, if each takes the time that it should.
        kinds: Of benchmarks.
        task_rate: Of the faults of the two middle speeds; of the others it is a tenth.
        joins: A family that nobody knows joins half-way.
        drained: A board that is drained from a quarter of the time to three quarters.
    """
    groups = tuple(
        BoardGroup(
            family="jetson",
            count=_BOARDS_PER_SPEED,
            per_host=_BOARDS_PER_SPEED,
            speed=speed,
            faults=Faults(task_rate=task_rate if speed in _SPEEDS[1:3] else task_rate / 10.0),
        )
        for speed in _SPEEDS
    )
    work_s = sum(each.share * each.run_s for each in kinds) / sum(each.share for each in kinds)
    rate = load * _BOARDS_PER_SPEED * sum(_SPEEDS) / work_s
    duration_s = JOBS / rate
    changes: list[Change] = []
    if joins:
        group = BoardGroup(family="emufast", count=4, speed=2.5)
        changes.append(Change(at_s=duration_s / 2, what="boards_join", group=group))
    if drained:
        changes.append(Change(at_s=duration_s / 4, what="drain", target_uid=drained))
        changes.append(Change(at_s=duration_s * 3 / 4, what="resume", target_uid=drained))
    return Scenario(
        name="judged",
        world="boards",
        duration_s=duration_s,
        lab=LabScenario(
            boards=groups,
            arrivals=Arrivals(rate_per_hour=rate * 3600.0, mix=kinds),
            changes=tuple(changes),
            max_run_s=4 * 3600.0,
            history_jobs=5 * _BOARDS_PER_SPEED * len(_SPEEDS),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """What one policy reached in one lab.

    Attributes:
        completion_s: Mean time from submission to result.
        p95_completion_s: 95 % of the benchmarks with a result had it sooner.
        p95_wait_s: 95 % of the benchmarks waited less.
        misses: Deadlines that were missed.
        completed: Benchmarks with a result.
    """

    scenario: str
    seed: int
    policy: str
    completion_s: float
    p95_completion_s: float
    p95_wait_s: float
    misses: int
    completed: int


def plugins_of(name: str, folder: Path) -> tuple[Policy, Plugins]:
    """Return a policy of `PEERS`, or the learned one, whose models are written to the folder."""
    if name not in (NAME, UNTRAINED):
        known = registry(entry_points=False)
        if name in (PLANNED, *_ILP):
            planner = Planner.EXPECTED_COST if name == PLANNED else Planner(name)
            policy = replace(load_policy("default"), name=name, planner=planner)
        else:
            policy = policy_named(name, known)
    else:
        kept = json.loads(DATA.read_text(encoding="utf-8"))["model"]
        hidden, words = kept["hidden"], kept["trained_on"]
        settings = BoardTraining(
            seed=kept["seed"], hidden=hidden, queue_policy=kept["queue_policy"]
        )
        weights = np.array(kept["weights"]) if name == NAME else start_weights(settings)
        queue = queue_name(NAME, settings)
        export_boards(folder, NAME, network_of(weights, hidden), INPUTS, words)
        if settings.queue_policy == LEARNED_QUEUE:
            export_queue(folder, queue, queue_weights(weights, hidden), hidden, words)
        known = registry(entry_points=False, models=folder)
        policy = board_policy(NAME, queue, _ANSWER_S)
    return policy, known.resolve(policy)


def judged_run(task: tuple[int, str, str]) -> JudgedRun:
    """Simulate one scenario with one seed under one policy."""
    seed, scenario, name = task
    with TemporaryDirectory() as folder:
        policy, plugins = plugins_of(name, Path(folder))
        found = measured(simulate_lab(judged()[scenario], policy, plugins, seed=seed))
    waits_s, completions_s = (found.jobs.figure(each).values for each in ("wait_s", "turnaround_s"))
    return JudgedRun(
        scenario=scenario,
        seed=seed,
        policy=name,
        completion_s=found.metrics.figures["turnaround_s"].interval.mean,
        p95_completion_s=float(np.nanquantile(completions_s, 0.95)),
        p95_wait_s=float(np.nanquantile(waits_s, 0.95)),
        misses=found.metrics.deadline_misses,
        completed=found.metrics.statuses.get("completed", 0),
    )


def judge(workers: int, policies: Sequence[str]) -> None:
    """Simulate all scenarios under some policies, and write the runs next to those of the others.

    `DATA` is written after each seed; earlier runs of these policies are replaced.
    """
    kept = json.loads(DATA.read_text(encoding="utf-8"))
    kept["runs"] = [each for each in kept["runs"] if each["policy"] not in policies]
    with ProcessPoolExecutor(workers) as pool:
        for seed in SEEDS:
            tasks = [(seed, *each) for each in product(judged(), policies)]
            for run in pool.map(judged_run, tasks):
                kept["runs"].append(asdict(run))
                print(f"{run.scenario}, seed {seed}, {run.policy}", file=sys.stderr)
            kept["judged_on"] = datetime.now(tz=UTC).date().isoformat()
            DATA.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def tables(runs: Sequence[JudgedRun]) -> str:
    """Return the tables of the docs as Markdown: by peer, and by scenario.

    The least mean completion time comes first; policies whose runs are the same share a row.
    """
    lines = [
        f"| `{NAME}` against | mean completion | p95 completion | p95 waiting | missed deadlines "
        "| with a result |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for words, peer in _rows(runs, PEERS):
        ours, others = _paired(runs, peer)
        ratios = [
            _ratio(ours, others, each)
            for each in ("completion_s", "p95_completion_s", "p95_wait_s")
        ]
        misses = (
            np.array([each.misses for each in ours]),
            np.array([each.misses for each in others]),
        )
        completed = sum(each.completed for each in ours), sum(each.completed for each in others)
        lines.append(
            f"| {words} | {' | '.join(ratios)} | {misses[0].sum()} : {misses[1].sum()} "
            f"({_interval(misses[0] - misses[1])} a lab) | {completed[0]} : {completed[1]} |"
        )
    names = [*judged()]
    lines += ["", f"| policy | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for words, policy in _rows(runs, (NAME, *PEERS)):
        found = [each for each in runs if each.policy == policy]
        means = [np.mean([r.completion_s for r in found if r.scenario == name]) for name in names]
        lines.append(f"| {words} | {' | '.join(f'{each:,.0f}' for each in means)} |")
    return "\n".join(lines)


def _rows(runs: Sequence[JudgedRun], policies: Sequence[str]) -> list[tuple[str, str]]:
    """Return what each row of a table is called, and one of its policies."""
    same: dict[tuple[JudgedRun, ...], list[str]] = {}
    for policy in policies:
        own = sorted(
            (replace(each, policy="") for each in runs if each.policy == policy),
            key=lambda run: (run.scenario, run.seed),
        )
        same.setdefault(tuple(own), []).append(policy)
    means = {own: float(np.mean([each.completion_s for each in own])) for own in same}
    return [
        (", ".join(f"`{each}`" for each in same[own]), same[own][0])
        for own in sorted(means, key=means.__getitem__)
    ]


def _paired(runs: Sequence[JudgedRun], peer: str) -> tuple[list[JudgedRun], list[JudgedRun]]:
    found = {(each.scenario, each.seed, each.policy): each for each in runs}
    keys = [(scenario, seed) for scenario, seed, policy in found if policy == NAME]
    return [found[(*key, NAME)] for key in keys], [found[(*key, peer)] for key in keys]


def _ratio(ours: Sequence[JudgedRun], others: Sequence[JudgedRun], figure: str) -> str:
    """Return the ratio of the sums, drawn by pairs of labs, with its 95 % interval."""
    first = np.array([getattr(each, figure) for each in ours])
    second = np.array([getattr(each, figure) for each in others])
    drawn = np.random.default_rng(0).integers(0, len(first), (_DRAWS, len(first)))
    low, high = np.quantile(first[drawn].sum(axis=1) / second[drawn].sum(axis=1), [0.025, 0.975])
    return f"{first.sum() / second.sum():.3f} ({low:.3f} to {high:.3f})"


def _interval(values: NDArray[np.int64]) -> str:
    drawn = np.random.default_rng(0).integers(0, len(values), (_DRAWS, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return f"{low:+.2f} to {high:+.2f}"


def kept_runs() -> list[JudgedRun]:
    """Return the committed runs."""
    return [JudgedRun(**each) for each in json.loads(DATA.read_text(encoding="utf-8"))["runs"]]


def rows() -> list[Row]:
    """Return ``decision``: a cycle of the learned policy with 100 queued x 100 boards."""
    given = queued()
    with TemporaryDirectory() as folder:
        found = {
            name: _times_ms(given, *plugins_of(name, Path(folder))) for name in (NAME, "default")
        }
    ours, peer = (float(np.quantile(found[name], 0.95)) for name in (NAME, "default"))
    note = (
        f"p95 of {_CYCLES} calls of decide(), {len(given.pending)} queued x "
        f"{len(given.snapshot.uids)} boards, half of them busy; 20 kinds; median "
        f"{np.median(found[NAME]):.1f} ms; peer: the policy default on the same input"
    )
    return [Row("decision", ours, "ms", peer, ours / peer, note)]


def queued() -> CycleInput:
    """Return the input of a cycle with 100 queued x 100 boards, half of which are busy."""
    groups = tuple(BoardGroup(family="jetson", count=25, speed=speed) for speed in _SPEEDS)
    jobs = [
        JobRow(
            job_id=f"job-{row:03}",
            submit_s=0.0 if row < 50 else 20.0,
            run_s=_run_s(row % 20),
            family="jetson",
            model=f"model{row % 20}",
        )
        for row in range(150)
    ]
    boards = Boards(LabScenario(boards=groups), 0).rows
    past = [
        PastRunRow(
            target_uid=board.uid,
            ended_s=3600.0 * (row + 1),
            run_s=_run_s(row * 7 % 20) / board.group.speed,
            model=f"model{row * 7 % 20}",
        )
        for board in boards
        for row in range(5)
    ]
    lab = LabScenario(boards=groups, jobs=tuple(jobs), past=tuple(past), cycle_s=10.0)
    scenario = Scenario(name="queued", world="boards", duration_s=3600.0, lab=lab)
    found: list[CycleInput] = []

    def watch(now_s: float, given: CycleInput, result: CycleResult) -> None:
        if len(given.pending) == 100 and not found:
            found.append(given)

    with TemporaryDirectory() as folder:
        policy, plugins = plugins_of("default", Path(folder))
        simulate_lab(scenario, policy, plugins, watch=watch)
    return found[0]


def _run_s(kind: int) -> float:
    return 60.0 * 1.15**kind


def _times_ms(given: CycleInput, policy: Policy, plugins: Plugins) -> list[float]:
    times = []
    for number in range(_CYCLES + 3):
        began = time.perf_counter()
        decide(given, policy, plugins)
        if number >= 3:
            times.append((time.perf_counter() - began) * 1000.0)
    return times


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        print(tables(kept_runs()))
    else:
        judge(int(sys.argv[1]) if sys.argv[1:] else 1, sys.argv[2:] or (NAME, *PEERS))
