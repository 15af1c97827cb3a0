"""Tests that every plugin must pass, for its author: subclass one, say what to test, run pytest.

::

    from edgeyard.plugins.testing import FilterContract

    class TestQuarantine(FilterContract):
        def plugin(self):
            return Quarantine()

`batch_of`, `board`, `pending` and `past_run` build what a plugin is handed, with defaults for all
that doesn't matter; `all_pairs` asks a scorer about every board.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.benchmark_types import simulated_types
from edgeyard.devices.model import Board, BoardEngine
from edgeyard.scheduler.decide.priority import ages_s, slacks_s
from edgeyard.scheduler.decide.queue import build_queue
from edgeyard.scheduler.framework.batch import Batch, Pairs, Queue, pairs_of
from edgeyard.scheduler.framework.batch_builder import build_batch, kind_of
from edgeyard.scheduler.framework.protocols import (
    Aggregator,
    Evaluator,
    Filter,
    Proposal,
    QueuePolicy,
    Scorer,
    ScorerKind,
    ScoreUnit,
    UserFilter,
)
from edgeyard.scheduler.framework.registry import WeightedScorer
from edgeyard.scheduler.framework.runner import PluginRunner
from edgeyard.scheduler.model.benchmark import BenchmarkType, Constraint
from edgeyard.scheduler.model.decision import PendingBenchmark, Snapshot
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Entitlement, HostLoad, Knowledge, Lease

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GIB = 1 << 30


def board(
    target_uid: str,
    *,
    ram_bytes: int = 4 * GIB,
    storage_bytes: int = 32 * GIB,
    engines: Mapping[str, Iterable[str]] | None = None,
    **more: object,
) -> Board:
    """Return a board of the family in its name, idle and healthy; ``more`` as in `Board`.

    Its engines declare those types that only engines can declare.
    """
    stated = {"ort": ("TYPE1", "TYPE2")} if engines is None else engines
    offered = {name: frozenset(types) for name, types in stated.items()}
    return Board(
        target_uid=target_uid,
        family=target_uid.split("-", 1)[0],
        ram_bytes=ram_bytes,
        storage_bytes=storage_bytes,
        engines=tuple(
            BoardEngine(
                name=name,
                supported_types=types,
                declared_types=simulated_types(types),
            )
            for name, types in offered.items()
        ),
        **more,  # type: ignore[arg-type]  # whatever Board takes
    )


def pending(benchmark_id: str = "b-1", **more: object) -> PendingBenchmark:
    """Return a benchmark that an idle rpi4b with ort can run; ``more`` as in `PendingBenchmark`."""
    values: dict[str, object] = {
        "user_id": "user-1",
        "submit_time": NOW,
        "family": "rpi4b",
        "engine": "ort",
        "benchmark_type": BenchmarkType.TYPE1,
    }
    return PendingBenchmark(benchmark_id=benchmark_id, **{**values, **more})  # type: ignore[arg-type]


def past_run(
    target_uid: str,
    *,
    ago_s: float = 3600.0,
    run_s: float | None = 10.0,
    failure: str | None = None,
    of: PendingBenchmark | None = None,
) -> PastRun:
    """Return a run that ended ``ago_s`` before `NOW`, of what ``of`` would run."""
    job = pending("past") if of is None else of
    return PastRun(
        benchmark_id=job.benchmark_id,
        user_id=job.user_id,
        target_uid=target_uid,
        family=target_uid.split("-", 1)[0],
        kind=kind_of(job),
        run_s=run_s,
        failure=failure,
        ended_at=NOW - timedelta(seconds=ago_s),
    )


def batch_of(
    boards: Sequence[Board],
    jobs: Sequence[PendingBenchmark],
    runs: Iterable[PastRun] = (),
    *,
    seed: int = 0,
) -> Batch:
    """Return a batch at `NOW` of these boards and benchmarks; ``runs`` in any order."""
    knowledge = Knowledge(runs=History(sorted(runs, key=lambda run: run.ended_at)))
    return build_batch(snapshot_of(boards), jobs, NOW, seed, knowledge)


def snapshot_of(
    boards: Sequence[Board],
    *,
    hosts: Mapping[str, str] | None = None,
    unknown: Iterable[str] = (),
    offline: Iterable[str] = (),
    drained: Iterable[str] = (),
    reasons: Mapping[str, str] | None = None,
    age_s: float = 0.0,
    now: datetime = NOW,
) -> Snapshot:
    """Return a snapshot of these boards.

    Args:
        boards: In the order of the snapshot.
        hosts: Host by board; by default each has one of its own.
        unknown: Boards that are not in the inventory.
        offline: Boards that no ready host reports.
        drained: Boards that an operator took out.
        reasons: By board, why it is not usable, instead of the board's own reason.
        age_s: inf for a cluster that never answered.
        now: What the age is counted from.
    """
    uids = tuple(each.target_uid for each in boards)
    engines = sorted({engine.name for each in boards for engine in each.engines})
    pairs = {(e.name, kind) for each in boards for e in each.engines for kind in e.supported_types}
    conflicts = np.array([[other in each.shares_with for other in uids] for each in boards], bool)
    reason_of = reasons or {}

    def holds(names: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        wanted = set(names)
        return np.array([uid in wanted for uid in uids], dtype=np.bool_)

    def lacks(engine: str, kind: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array(
            [
                any(e.name == engine and kind in e.undeclared_types for e in each.engines)
                for each in boards
            ],
            dtype=np.bool_,
        )

    def offers(engine: str, kind: str | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array(
            [
                any(
                    e.name == engine and (kind is None or kind in e.supported_types)
                    for e in each.engines
                )
                for each in boards
            ],
            dtype=np.bool_,
        )

    return Snapshot(
        taken_at=now - timedelta(seconds=age_s) if math.isfinite(age_s) else None,
        age_s=age_s,
        uids=uids,
        families=tuple(each.family for each in boards),
        hosts=tuple((hosts or {}).get(uid, f"host-of-{uid}") for uid in uids),
        ram_bytes=np.array([each.ram_bytes for each in boards], dtype=np.int64),
        storage_bytes=np.array([each.storage_bytes for each in boards], dtype=np.int64),
        expected=~holds(unknown),
        online=~holds(offline),
        healthy=np.array([each.healthy for each in boards], dtype=np.bool_),
        drained=holds(drained),
        busy=np.array([each.busy for each in boards], dtype=np.bool_),
        progress=np.array(
            [math.nan if each.progress is None else each.progress for each in boards], np.float64
        ),
        supports={(engine, kind): offers(engine, kind) for engine, kind in sorted(pairs)},
        undeclared={
            (engine, kind): column
            for engine, kind in sorted(pairs)
            if (column := lacks(engine, kind)).any()
        },
        engines={engine: offers(engine, None) for engine in engines},
        reasons=tuple(
            reason_of.get(each.target_uid, each.health_reason or each.busy_reason)
            for each in boards
        ),
        attributes=tuple(attributes_of(each) for each in boards),
        conflicts=conflicts if conflicts.any() else None,
    )


def sample_pending(count: int, seed: int = 0) -> list[PendingBenchmark]:
    """Benchmarks of many kinds, some that nothing can run."""
    rng = np.random.default_rng(seed)

    def one_of(values: Sequence[object]) -> object:
        return values[int(rng.integers(len(values)))]

    return [
        pending(
            f"b-{number:05}",
            submit_time=NOW - timedelta(seconds=int(rng.integers(0, 100_000))),
            family=one_of(["rpi4b", "rpi5", "x86", "nosuchfamily"]),
            engine=one_of(["ort", "tflite", "nosuchengine"]),
            benchmark_type=one_of(list(BenchmarkType)),
            ram_bytes=one_of([0, GIB, 4 * GIB, 64 * GIB]),
            storage_bytes=one_of([0, 16 * GIB, 999 * GIB]),
            target_uid=one_of([None, None, None, "rpi4b-0001-0001", "rpi5-0009-0009"]),
            constraints=one_of(
                [
                    (),
                    (Constraint(attribute="camera", operator="=", value="true"),),
                    (Constraint(attribute="memory.ram", operator=">", value="2147483648"),),
                ]
            ),
            user_priority=int(rng.integers(1, 11)),
            deadline=one_of([None, NOW + timedelta(hours=1), NOW + timedelta(days=2)]),
            campaign_started=bool(rng.integers(2)),
            model_sha256=one_of([None, "0" * 64, "1" * 64]),
            user_id=one_of(["user-1", "user-1", "user-2"]),
            user_time_s=one_of([None, None, 5.0, 600.0]),
            budget=one_of([None, None, 2.0, 900.0]),
            probe=bool(rng.random() > 0.95),
        )
        for number in range(count)
    ]


def sample_snapshot(count: int, seed: int = 0) -> Snapshot:
    """Boards in every state."""
    rng = np.random.default_rng(seed)
    offers: Sequence[dict[str, list[str]]] = (
        {"ort": ["TYPE1"]},
        {"ort": ["TYPE1", "TYPE2"], "tflite": ["TYPE3"]},
        {},
    )
    boards = [
        board(
            f"{('rpi4b', 'rpi5', 'x86')[number % 3]}-{number // 9 + 1:04}-{number % 9 + 1:04}",
            ram_bytes=(1 + number % 4) * 2 * GIB,
            engines=offers[int(rng.integers(3))],
            healthy=bool(rng.random() > 0.1),
            health_reason="",
            busy=bool(rng.random() > 0.7),
            progress=None if rng.random() > 0.9 else float(rng.integers(0, 101)),
            attributes={"camera": True} if rng.random() > 0.5 else {},
        )
        for number in range(count)
    ]

    def some() -> list[str]:
        return [each.target_uid for each in boards if rng.random() > 0.9]

    hosts = {each.target_uid: f"host-{int(rng.integers(count))}" for each in boards}
    return snapshot_of(boards, hosts=hosts, unknown=some(), offline=some(), drained=some())


def sample_knowledge(
    snapshot: Snapshot, jobs: Sequence[PendingBenchmark], seed: int = 0
) -> Knowledge:
    """Return a past of some boards, loads of some hosts.

    Some boards are leased, now or soon, some in quarantine, and users are bounded.
    """
    rng = np.random.default_rng(seed)
    runs = [
        PastRun(
            benchmark_id=f"past-{number:05}",
            user_id="user-1",
            target_uid=uid,
            family=family,
            kind=kind_of(each),
            run_s=float(rng.lognormal(2.0)),
            failure="board_fault" if rng.random() > 0.8 else None,
            ended_at=NOW - timedelta(seconds=int(rng.integers(60, 100_000))),
        )
        for number, (uid, family) in enumerate(
            zip(snapshot.uids * 3, snapshot.families * 3, strict=True)
        )
        if rng.random() > 0.3
        for each in jobs[number % 7 : number % 7 + 1]
    ]
    return Knowledge(
        runs=History(sorted(runs, key=lambda run: run.ended_at)),
        host_loads={
            host: HostLoad(cpu=float(rng.random()), memory=float(rng.random()))
            for host in sorted(set(snapshot.hosts))[::2]
        },
        leases=tuple(
            Lease(
                lease_id=f"lease-{uid}",
                target_uid=uid,
                since=NOW + timedelta(seconds=float(rng.integers(-600, 600))),
                until=NOW + timedelta(seconds=float(rng.integers(600, 6000))),
                reason="a new fan",
                user_id=("user-1", "user-2", None)[number % 3],
            )
            for number, uid in enumerate(sorted(snapshot.uids)[::4])
        ),
        quarantined={uid: "failed 4 of its last 5 runs" for uid in sorted(snapshot.uids)[1::7]},
        entitlements={
            "user-1": Entitlement(credits_left=2000.0, max_running=5, running=2),
            "user-2": Entitlement(usage_board_s=500.0, share=2.0, max_running=1),
        },
        rates={"rpi4b": 2.0},
    )


def sample_batch(jobs: int, boards: int, seed: int = 0, *, past: bool = True) -> Batch:
    """Benchmarks of many kinds, boards in every state, with or without a past."""
    snapshot, queue = sample_snapshot(boards, seed), sample_pending(jobs, seed)
    knowledge = sample_knowledge(snapshot, queue, seed) if past else None
    return build_batch(snapshot, queue, NOW, seed, knowledge)


def sample_batches() -> list[Batch]:
    """Batches of many shapes, empty ones too; one of a twin that is too old."""
    found = [
        sample_batch(jobs, boards, seed, past=past)
        for past in (False, True)
        for seed, (jobs, boards) in enumerate([(40, 30), (1, 1), (0, 5), (5, 0), (0, 0)])
    ]
    old = found[0]
    snapshot = replace(old.snapshot, taken_at=NOW - timedelta(seconds=90), age_s=90.0)
    return [*found, replace(old, snapshot=snapshot, twin_max_age_s=60.0)]


def sample_queue(count: int, seed: int = 0) -> Queue:
    """Pending benchmarks with ties in every column."""
    rng = np.random.default_rng(seed)
    jobs = sample_pending(count, seed)
    priorities = rng.integers(1, 4, count) * 30
    ages = np.round(ages_s(jobs, NOW), -4)
    return queue_of(jobs, priorities, ages)


def queue_of(
    jobs: Sequence[PendingBenchmark],
    priorities: NDArray[np.int64],
    ages: NDArray[np.float64],
    *,
    knowledge: Knowledge | None = None,
    guard_s: float = 86400.0,
    now: datetime = NOW,
) -> Queue:
    """Return the columns that a queue policy is handed."""
    batch = build_batch(snapshot_of([board("rpi4b-0001-0001")]), jobs, now, 0, knowledge)
    slacks = slacks_s(jobs, now)
    return build_queue(
        jobs,
        now,
        priorities,
        ages,
        slacks,
        batch=batch,
        base_priorities=priorities,
        guard_s=guard_s,
    )


class QueuePolicyContract:
    """Contract tests of queue policies; subclasses return theirs from `plugin`."""

    def plugin(self) -> QueuePolicy:
        """Return the policy to test."""
        raise NotImplementedError

    def test_ranks_are_a_permutation(self) -> None:
        """Ranks are a permutation of 0..jobs-1, also for no job and for one."""
        for count in (0, 1, 50):
            runner = PluginRunner()
            runner.order(self.plugin(), sample_queue(count))
            assert not runner.faults

    def test_the_order_handed_in_does_not_matter(self) -> None:
        """Benchmarks in another order get the same ranks."""
        jobs = sample_pending(50)
        ages = np.round(ages_s(jobs, NOW), -4)
        priorities = np.full(50, 50)
        shuffled = np.random.default_rng(1).permutation(50)
        first = self.plugin().order(queue_of(jobs, priorities, ages))
        others = [jobs[row] for row in shuffled]
        second = self.plugin().order(queue_of(others, priorities, ages[shuffled]))
        assert np.array_equal(first[shuffled], second)

    def test_nobody_is_overtaken_past_the_guard(self) -> None:
        """A benchmark that has waited for ``guard_s`` is ranked before all younger ones.

        So none starves: from then on only those are ahead that came before, and no others come.
        """
        jobs = sample_pending(50)
        ages = np.round(ages_s(jobs, NOW), -2)
        for guard_s in (0.0, 20_000.0, 1e9):
            queue = queue_of(jobs, np.arange(50) % 7 * 10 + 5, ages, guard_s=guard_s)
            ranks = self.plugin().order(queue)
            for job in np.flatnonzero(queue.guarded).tolist():
                assert (ranks[ages < ages[job]] > ranks[job]).all()

    def test_every_place_has_a_reason(self) -> None:
        """The policy states a reason for every rank."""
        queue = sample_queue(10)
        assert all(self.plugin().reason(queue, job).strip() for job in range(10))


class FilterContract:
    """Contract tests of filters; subclasses return theirs from `plugin`."""

    def plugin(self) -> Filter:
        """Return the filter to test."""
        raise NotImplementedError

    def test_answers_have_the_right_form(self) -> None:
        """Shape, type and codes, also for no benchmarks and no boards."""
        for batch in sample_batches():
            runner = PluginRunner()
            runner.admit(self.plugin(), batch)
            assert not runner.faults

    def test_the_same_batch_gets_the_same_answer(self) -> None:
        """The filter has no state, reads no clock and draws no random numbers."""
        for batch in sample_batches():
            assert np.array_equal(self.plugin().admit(batch), self.plugin().admit(batch))

    def test_the_order_of_boards_does_not_matter(self) -> None:
        """A board's verdict depends on the board."""
        snapshot = sample_snapshot(20)
        jobs = sample_pending(20)
        names = {uid: row for row, uid in enumerate(snapshot.uids)}
        turned = _reversed(snapshot)
        knowledge = sample_knowledge(snapshot, jobs)
        first = _full(self.plugin(), build_batch(snapshot, jobs, NOW, 0, knowledge))
        second = _full(self.plugin(), build_batch(turned, jobs, NOW, 0, knowledge))
        assert np.array_equal(first[:, [names[uid] for uid in turned.uids]], second)

    def test_every_no_has_words(self) -> None:
        """Each code of a refused pair has a sentence, also for pairs that never fit."""
        for batch in sample_batches():
            plugin = self.plugin()
            codes = _full(plugin, batch)
            for row, at in np.argwhere(codes > 0).tolist():
                assert plugin.phrase(batch, row, at, int(codes[row, at])).strip()
            for row in range(len(codes)):
                never = [k for k, each in enumerate(plugin.refusals, start=1) if each.never]
                boards = np.flatnonzero(np.isin(codes[row], never))
                if len(boards):
                    assert isinstance(plugin.explain_infeasible(batch, row, boards), str)


class UserFilterContract(FilterContract):
    """What every filter that bounds users must do besides."""

    def plugin(self) -> UserFilter:
        """Return the filter to test."""
        raise NotImplementedError

    def test_what_is_given_out_only_ever_takes_away(self) -> None:
        """Whom the ledger stops, it stops for the rest of the cycle, with words."""
        for batch in sample_batches():
            ledger = self.plugin().ledger(batch)
            stopped: set[int] = set()
            for job in range(len(batch.job_users)) if ledger is not None else ():
                assert ledger is not None
                waiting = ledger.refusal(job)
                if waiting is None:
                    ledger.place(job)
                else:
                    assert waiting.sentence.strip()
                    stopped.add(job)
                assert all(ledger.refusal(each) is not None for each in stopped)

    def test_each_cycle_has_a_ledger_of_its_own(self) -> None:
        """Ledgers are independent: what one gave out the next does not know of."""
        for batch in sample_batches():
            first, second = self.plugin().ledger(batch), self.plugin().ledger(batch)
            if first is None or second is None:
                assert first is second
                continue
            before = [second.refusal(job) for job in range(len(batch.job_users))]
            for job in range(len(batch.job_users)):
                first.place(job)
            assert [second.refusal(job) for job in range(len(batch.job_users))] == before


class ScorerContract:
    """Contract tests of scorers; subclasses return theirs from `plugin`."""

    def plugin(self) -> Scorer:
        """Return the scorer to test."""
        raise NotImplementedError

    def test_scores_are_within_bounds(self) -> None:
        """Scores have shape (pairs,) and are floats in the unit or NaN, also without pairs."""
        for batch in sample_batches():
            runner = PluginRunner()
            runner.score(WeightedScorer(scorer=self.plugin()), 1.0, batch, all_pairs(batch))
            assert not runner.faults

    def test_the_same_batch_gets_the_same_scores(self) -> None:
        """The scorer has no state and no clock, and is random by the batch's seed alone."""
        for batch in sample_batches():
            pairs = all_pairs(batch)
            first = self.plugin().score(batch, pairs)
            assert np.array_equal(first, self.plugin().score(batch, pairs), equal_nan=True)

    def test_it_changes_nothing_that_it_is_handed(self) -> None:
        """The scorer does not change the batch's arrays, which the next scorer gets too."""
        batch = sample_batches()[0]
        pairs = all_pairs(batch)
        for array in (pairs.rows, pairs.boards, pairs.starts, batch.ram_bytes, batch.snapshot.busy):
            array.setflags(write=False)
        self.plugin().score(batch, pairs)

    def test_the_order_of_boards_and_benchmarks_does_not_matter(self) -> None:
        """A board's score depends on the board, a benchmark's on the benchmark."""
        snapshot, jobs = sample_snapshot(20), sample_pending(20)
        knowledge = sample_knowledge(snapshot, jobs)
        first = build_batch(snapshot, jobs, NOW, 0, knowledge)
        second = build_batch(_reversed(snapshot), jobs[::-1], NOW, 0, knowledge)
        one = self.plugin().score(first, all_pairs(first)).reshape(first.shape)
        two = self.plugin().score(second, all_pairs(second)).reshape(second.shape)
        by_job = one[first.class_of_job], two[second.class_of_job][::-1, ::-1]
        assert np.allclose(*by_job, rtol=1e-5, atol=1e-6, equal_nan=True)

    def test_it_has_an_objective_a_kind_and_a_unit(self) -> None:
        """The scorer states its objective, its kind and the unit of its scores."""
        assert self.plugin().objective.strip()
        assert self.plugin().kind in ScorerKind
        assert self.plugin().unit in ScoreUnit


class EvaluatorContract:
    """Contract tests of evaluators; subclasses return theirs from `plugin`."""

    def plugin(self) -> Evaluator:
        """Return the evaluator to test."""
        raise NotImplementedError

    def test_rewards_are_between_0_and_1_and_of_who_answered(self) -> None:
        """Rewards are in [0, 1] and only for scorers that answered, also without pairs."""
        rng = np.random.default_rng(0)
        for batch in sample_batches():
            pairs = all_pairs(batch)
            for count in range(4):
                answers = [rng.random(len(pairs), dtype=np.float32) for _ in range(count)]
                for answer in answers:
                    answer[rng.random(len(pairs)) > 0.6] = np.nan
                proposals = [
                    proposal(f"s{k}", answer, kind=list(ScorerKind)[k])
                    for k, answer in enumerate(answers)
                ]
                runner = PluginRunner()
                runner.evaluate(self.plugin(), batch, pairs, proposals)
                assert not runner.faults


class AggregatorContract:
    """Contract tests of aggregators; subclasses return theirs from `plugin`."""

    def plugin(self) -> Aggregator:
        """Return the aggregator to test."""
        raise NotImplementedError

    def test_scores_are_shares_and_missing_only_where_all_abstain(self) -> None:
        """0 to 1, whatever units the scorers have."""
        rng = np.random.default_rng(0)
        for batch in sample_batches():
            pairs = all_pairs(batch)
            answers = [rng.random(len(pairs), dtype=np.float32) for _ in ScoreUnit]
            for answer in answers:
                answer[rng.random(len(pairs)) > 0.6] = np.nan
            proposals = [
                proposal(f"s{k}", answer, weight=1.0 + k, unit=unit)
                for k, (answer, unit) in enumerate(zip(answers, ScoreUnit, strict=True))
            ]
            runner = PluginRunner()
            combination = runner.combine(self.plugin(), batch, pairs, proposals)
            assert combination is not None, runner.faults
            silent = np.isnan(np.array(answers)).all(axis=0)
            assert not (np.isnan(combination.scores) & ~silent).any()

    def test_learning_gives_weights_to_all_and_to_no_one_else(self) -> None:
        """No weight is below 0 whatever the rewards; a scorer without weight gets none."""
        prior = {"a": 2.0, "b": 1.0, "c": 0.0}
        weights: Mapping[str, float] = {}
        for rewards in ({}, {"a": 1.0}, {"a": 0.0, "b": 1.0, "gone": 1.0}, {"c": 1.0}):
            weights = self.plugin().learn(prior, weights, rewards)
            assert weights.keys() == prior.keys()
            assert all(math.isfinite(each) and each >= 0.0 for each in weights.values())
            assert weights["c"] == 0.0

    def test_weights_of_one_and_nothing_are_the_one_scorer(self) -> None:
        """Weights (1, 0, 0) give the first one's preferences."""
        rng = np.random.default_rng(0)
        batch = sample_batches()[0]
        pairs = all_pairs(batch)
        proposals = [
            proposal(f"s{k}", rng.random(len(pairs), dtype=np.float32), weight=float(not k))
            for k in range(3)
        ]
        combination = self.plugin().combine(batch, pairs, proposals)
        assert np.allclose(combination.scores, proposals[0].scores)


def all_pairs(batch: Batch) -> Pairs:
    """Return every board for every class."""
    return pairs_of(np.ones(batch.shape, dtype=np.bool_))


def proposal(
    scorer: str,
    scores: NDArray[np.float32],
    *,
    weight: float = 1.0,
    kind: ScorerKind = ScorerKind.HEURISTIC,
    unit: ScoreUnit = ScoreUnit.PREFERENCE,
    errors: NDArray[np.float32] | None = None,
) -> Proposal:
    """Return a scorer's answer."""
    return Proposal(
        scorer=scorer,
        objective="any",
        kind=kind,
        unit=unit,
        weight=weight,
        scores=scores,
        errors=errors,
    )


def _full(plugin: Filter, batch: Batch) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.array(np.broadcast_to(plugin.admit(batch), batch.shape))


def _reversed(snapshot: Snapshot) -> Snapshot:
    """Return the same boards, last to first."""
    return Snapshot(
        taken_at=snapshot.taken_at,
        age_s=snapshot.age_s,
        uids=snapshot.uids[::-1],
        families=snapshot.families[::-1],
        hosts=snapshot.hosts[::-1],
        ram_bytes=snapshot.ram_bytes[::-1],
        storage_bytes=snapshot.storage_bytes[::-1],
        expected=snapshot.expected[::-1],
        online=snapshot.online[::-1],
        healthy=snapshot.healthy[::-1],
        drained=snapshot.drained[::-1],
        busy=snapshot.busy[::-1],
        progress=snapshot.progress[::-1],
        supports={key: column[::-1] for key, column in snapshot.supports.items()},
        undeclared={key: column[::-1] for key, column in snapshot.undeclared.items()},
        engines={key: column[::-1] for key, column in snapshot.engines.items()},
        reasons=snapshot.reasons[::-1],
        attributes=snapshot.attributes[::-1],
        conflicts=None if snapshot.conflicts is None else snapshot.conflicts[::-1, ::-1],
    )
