"""Whole decision cycles on one core: from the boards' state to a recorded, explained decision."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psutil

from benchmarks.tables import Row, median
from edgeyard.devices.model import Board, BoardEngine, Host
from edgeyard.plugins.builtin import registry
from edgeyard.scheduler.decide.changes import what_would_change
from edgeyard.scheduler.decide.cycle import decide
from edgeyard.scheduler.decide.record import Recorder, result_of
from edgeyard.scheduler.framework.batch_builder import kind_of
from edgeyard.scheduler.framework.policy import (
    Planner,
    Policy,
    ScorerChoice,
    load_policy,
)
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.model.benchmark import BenchmarkType
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, PendingBenchmark
from edgeyard.scheduler.model.history import History, PastRun
from edgeyard.scheduler.model.knowledge import Knowledge
from edgeyard.scheduler.twin.twin import Twin

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FAMILIES = 20
BOARDS_PER_HOST = 10
RUNS_PER_BOARD = 5
BUSY = 0.1
GIB = 1 << 30
ANY = "any"
PEER_CASE = "1000x1000"
MAPPED_CASE = "100000x1000"

_SCORERS = ("least_loaded", "fastest")
_REPEATS = 7


@dataclass(frozen=True)
class Case:
    """A cycle to measure.

    Attributes:
        classes: Different benchmarks; each of the jobs where it is the number of jobs.
        any_family: Benchmarks run on boards of all families: the policy has no such filter.
    """

    jobs: int
    boards: int
    classes: int
    any_family: bool = False


CASES = {
    "1000x1000": Case(1_000, 1_000, 200),
    "10000x10000": Case(10_000, 10_000, 500),
    "10000x10000 all different": Case(10_000, 10_000, 10_000),
    "10000x10000 any family": Case(10_000, 10_000, 500, any_family=True),
    MAPPED_CASE: Case(100_000, 1_000, 200),
    **{f"{jobs}x10000": Case(jobs, 10_000, 500) for jobs in (1_250, 2_500, 5_000, 20_000, 40_000)},
}


def run() -> list[Row]:
    """Each case in a process of its own, on one core: its peak memory is its own."""
    rows = []
    for name, case in CASES.items():
        found = _child("cycle", name)
        peer_ms = _child("loop", name)["median_s"] * 1000 if name == PEER_CASE else None
        parts = ", ".join(f"{part} {took * 1000:.3g} ms" for part, took in found["parts"].items())
        rows.append(
            Row(
                name,
                found["median_s"] * 1000,
                "ms",
                peer_ms,
                None if peer_ms is None else found["median_s"] * 1000 / peer_ms,
                note=f"{case.classes} classes, {found['pairs']:,} pairs, {found['placed']:,} "
                f"placed; peak {found['peak_mib']:.0f} MiB; record {found['record_kib']:,.0f} KiB; "
                f"first {found['first_s'] * 1000:.0f} ms, worst {found['worst_s'] * 1000:.0f} ms "
                f"of {_REPEATS}; {parts}",
            )
        )
    return [*rows, _learned(), *_changes(), *_mappings()]


def _learned() -> Row:
    """Whole cycles of the policy `learned`: predictions, integer programmes, evaluator."""
    found = _child("learned", "10000x10000")
    late = found["late"]
    assert not late, f"answers came late: {late}"
    parts = ", ".join(f"{name} {took * 1000:.3g} ms" for name, took in found["parts"].items())
    return Row(
        "learned 10000x10000",
        found["median_s"] * 1000,
        "ms",
        note=f"decide() with its solvers; first {found['first_s'] * 1000:.0f} ms, worst "
        f"{found['worst_s'] * 1000:.0f} ms of {_REPEATS}; wall time "
        f"{found['wall_s'] * 1000:.0f} ms, worst {found['worst_wall_s'] * 1000:.0f} ms; "
        "no answer late; "
        f"{found['pairs']:,} pairs, {found['with_deadline']:,} with a deadline, "
        f"programme {found['programme']}; {parts}",
    )


def _changes() -> list[Row]:
    """What would let one start sooner, of a lab where every board is busy."""
    rows = []
    for name in ("1000x1000", "10000x10000"):
        found = _child("changes", name)
        rows.append(
            Row(
                f"what would change, {name}",
                found["median_s"] * 1000,
                "ms",
                note=f"all boards busy, nobody placed; median of {_REPEATS} benchmarks, worst "
                f"{found['worst_s'] * 1000:.0f} ms; {found['changes']} changes offered; with the "
                f"cycle only in its record {found['read_s'] * 1000:.0f} ms more",
            )
        )
    return rows


def _mappings() -> list[Row]:
    """Cycles under the mapping heuristics, of a lab where most boards are busy."""
    found = _child("mappings", MAPPED_CASE)
    peer_ms = found.pop("none")["median_s"] * 1000
    return [
        Row(
            f"{name} {MAPPED_CASE}",
            each["median_s"] * 1000,
            "ms",
            peer_ms,
            each["median_s"] * 1000 / peer_ms,
            note=f"decide() alone; {each['placed']:,} placed, {each['held']:,} held back for a "
            "better board; the peer is the same policy without a mapping",
        )
        for name, each in found.items()
    ]


def _child(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_decide", *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(case: Case) -> dict[str, Any]:
    """Cycles one after another; a run has ended since the last one each time."""
    policy, plugins = _policy(case)
    boards = _boards(case)
    twin = Twin(boards)
    twin.refresh(_hosts(boards), NOW)
    pending = _pending(case)
    past = list(_past(case, pending))
    history = History(past[: -_REPEATS - 1])
    recorder = Recorder()
    times: list[float] = []
    parts: dict[str, list[float]] = {}
    for number in range(_REPEATS + 1):
        history = history.extended(past[len(history) : len(history) + 1])
        knowledge = Knowledge(runs=history)
        changed = _changed(boards, number)
        hosts = _hosts(changed)
        began = time.process_time()
        twin.refresh(hosts, NOW)
        given = CycleInput(
            snapshot=twin.snapshot(NOW, drained={}, holders={}),
            pending=pending,
            now=NOW,
            knowledge=knowledge,
            seed=number,
        )
        looked = time.process_time()
        result = decide(given, policy, plugins)
        decided = time.process_time()
        reasons = len(list(result.waiting.items()))
        explained = time.process_time()
        record = recorder.record(given, result)
        ended = time.process_time()
        times.append(ended - began)
        for part, took in (
            ("snapshot", looked - began),
            ("decide", decided - looked),
            ("reasons", explained - decided),
            ("record", ended - explained),
        ):
            parts.setdefault(part, []).append(took)
        assert reasons + len(result.placements) == case.jobs
        assert not result.faults, result.faults
    return {
        "median_s": median(times[1:]),
        "first_s": times[0],
        "worst_s": max(times[1:]),
        "parts": {part: median(took[1:]) for part, took in parts.items()},
        "pairs": len(result.decided.scores.pairs),
        "placed": len(result.placements),
        "record_kib": sum(len(data) for _, data in record.parts) / 1024,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_learned(case: Case) -> dict[str, Any]:
    """Cycles of the policy `learned`, a tenth of the classes with deadlines.

    Solvers run in processes of their own, whose time counts.
    """
    policy = load_policy("learned")
    plugins = registry(entry_points=False).resolve(policy)
    boards = _boards(case)
    twin = Twin(boards)
    pending = [
        replace(each, deadline=NOW + timedelta(seconds=60 + job % case.classes))
        if job % case.classes % 10 == 0
        else each
        for job, each in enumerate(_pending(case))
    ]
    past = list(_past(case, pending))
    history = History(past[: -_REPEATS - 1])
    times: list[float] = []
    walls: list[float] = []
    late: list[str] = []
    for number in range(_REPEATS + 1):
        history = history.extended(past[len(history) : len(history) + 1])
        twin.refresh(_hosts(_changed(boards, number)), NOW)
        given = CycleInput(
            snapshot=twin.snapshot(NOW, drained={}, holders={}),
            pending=pending,
            now=NOW,
            knowledge=Knowledge(runs=history),
            seed=number,
        )
        began, wall = _processor_s(), time.perf_counter()
        result = decide(given, policy, plugins, monotonic_s=time.perf_counter)
        walls.append(time.perf_counter() - wall)
        times.append(_processor_s() - began)
        late += [str(each) for each in (*result.faults, *result.overruns)]
    scores = result.decided.scores
    programme = next(each for each in scores.proposals if each.scorer == "ilp_deadlines")
    slowest = sorted(result.seconds.items(), key=lambda each: -each[1])[:4]
    return {
        "median_s": median(times[1:]),
        "first_s": times[0],
        "worst_s": max(times[1:]),
        "wall_s": median(walls[1:]),
        "worst_wall_s": max(walls[1:]),
        "parts": dict(slowest),
        "late": late,
        "pairs": len(scores.pairs),
        "with_deadline": sum(each.deadline is not None for each in pending),
        "programme": programme.fallback
        or f"planned {programme.facts['planned']:.0f}, gap {programme.facts.get('gap', 0.0):.3f}",
    }


def _processor_s() -> float:
    """Return the processor time of this process and of those that it started, ended or not."""
    this = psutil.Process()
    used = [this.cpu_times(), *(each.cpu_times() for each in this.children())]
    return sum(each.user + each.system for each in used) + sum(used[0][2:4])


def measure_changes(case: Case) -> dict[str, Any]:
    """One cycle, in which all wait; then benchmarks from all over the queue are asked about."""
    policy, plugins = _policy(case)
    boards = [replace(board, busy=True) for board in _boards(case)]
    twin = Twin(boards)
    twin.refresh(_hosts(boards), NOW)
    pending = _pending(case)
    given = CycleInput(
        snapshot=twin.snapshot(NOW, drained={}, holders={}),
        pending=pending,
        now=NOW,
        holders=[
            BoardHolder(
                benchmark_id=f"on-{board.target_uid}",
                target_uid=board.target_uid,
                priority=50,
                started_at=NOW - timedelta(seconds=row % 60),
                kind=kind_of(pending[row % len(pending)]),
            )
            for row, board in enumerate(boards)
        ],
        knowledge=Knowledge(runs=History(_past(case, pending))),
    )
    result = decide(given, policy, plugins)
    record = Recorder().record(given, result)
    times: list[float] = []
    changes = 0
    for number in (1, *range(1, _REPEATS + 1)):  # once to warm up
        benchmark_id = result.order[case.jobs * number // (_REPEATS + 1)]
        began = time.process_time()
        found = what_would_change(result.decided, benchmark_id)
        times.append(time.process_time() - began)
        changes += len(found.changes) if len(times) > 1 else 0
    began = time.process_time()
    result_of(record, plugins)
    return {
        "median_s": median(times[1:]),
        "worst_s": max(times[1:]),
        "changes": changes,
        "read_s": time.process_time() - began,
    }


def measure_mappings(case: Case) -> dict[str, Any]:
    """Cycles in which 7 boards of 10 are busy, without a mapping and with each heuristic."""
    policy, plugins = _policy(case)
    boards = [replace(board, busy=row % 10 < 7) for row, board in enumerate(_boards(case))]
    twin = Twin(boards)
    twin.refresh(_hosts(boards), NOW)
    pending = _pending(case)
    given = CycleInput(
        snapshot=twin.snapshot(NOW, drained={}, holders={}),
        pending=pending,
        now=NOW,
        holders=[
            BoardHolder(
                benchmark_id=f"on-{board.target_uid}",
                target_uid=board.target_uid,
                priority=50,
                started_at=NOW - timedelta(seconds=row % 60),
                kind=kind_of(pending[row % len(pending)]),
            )
            for row, board in enumerate(boards)
            if board.busy
        ],
        knowledge=Knowledge(runs=History(_past(case, pending))),
    )
    found = {}
    for mapping in (None, *Planner):
        # Nobody has waited past the guard: all are mapped.
        mapped = replace(policy, planner=mapping, guard_s=1e9)
        times = []
        for _ in range(_REPEATS):
            began = time.process_time()
            result = decide(given, mapped, plugins)
            times.append(time.process_time() - began)
        found["none" if mapping is None else mapping.value] = {
            "median_s": median(times),
            "placed": len(result.placements),
            "held": len(result.decided.assignment.held),
        }
    return found


def _policy(case: Case) -> tuple[Policy, Plugins]:
    default = load_policy("default")
    policy = replace(
        default,
        filters=tuple(
            name for name in default.filters if not (case.any_family and name == "family")
        ),
        scorers=tuple(ScorerChoice(name=name, weight=1.0) for name in _SCORERS),
        evaluator="compared",
        aggregator="hedge",
    )
    return policy, registry(entry_points=False).resolve(policy)


def _family(number: int) -> str:
    return f"family{chr(ord('a') + number)}"


def _uid(row: int) -> str:
    return f"{_family(row % FAMILIES)}-{row // 9000 + 1:04}-{row % 9000 + 1:04}"


def _boards(case: Case) -> list[Board]:
    """Return boards of 20 families, of which one in ten is busy."""
    rng = np.random.default_rng(0)
    engines = (
        BoardEngine("ort", "1.31", frozenset({"TYPE1", "TYPE2", "TYPE3"})),
        BoardEngine("tflite", "2.3", frozenset({"TYPE1"})),
    )
    return [
        Board(
            target_uid=_uid(row),
            family=_family(row % FAMILIES),
            ram_bytes=(2 << (row // FAMILIES % 3)) * GIB,
            storage_bytes=32 * GIB,
            engines=engines,
            busy=bool(rng.random() < BUSY),
        )
        for row in range(case.boards)
    ]


def _changed(boards: list[Board], number: int) -> list[Board]:
    """One board in a hundred reports something new."""
    return [
        replace(board, progress=float(number % 100)) if row % 100 == 0 else board
        for row, board in enumerate(boards)
    ]


def _hosts(boards: list[Board]) -> list[Host]:
    """Ten boards per host."""
    return [
        Host(f"host-{start}", f"host-{start}", True, tuple(boards[start : start + BOARDS_PER_HOST]))
        for start in range(0, len(boards), BOARDS_PER_HOST)
    ]


def _pending(case: Case) -> list[PendingBenchmark]:

    kinds = list(BenchmarkType)
    rng = np.random.default_rng(1)
    different = case.classes == case.jobs
    return [
        PendingBenchmark(
            benchmark_id=f"b-{job:06}",
            user_id=f"user-{job % 50}",
            submit_time=NOW - timedelta(seconds=int(rng.integers(1, 100_000))),
            family=ANY if case.any_family else _family(job % FAMILIES),
            engine="ort",
            benchmark_type=kinds[number // FAMILIES % 3],
            ram_bytes=GIB + number if different else (1 + number % 2) * GIB,
            storage_bytes=GIB,
            model_sha256=f"{number:064x}",
            model_bytes=1_000_000 + 1000 * number,
            nb_inference=20 + number // FAMILIES % 5 * 20,
            user_priority=1 + job % 10,
        )
        for job in range(case.jobs)
        for number in (job % case.classes,)
    ]


def _past(case: Case, pending: list[PendingBenchmark]) -> Iterator[PastRun]:
    """Runs of each board, of benchmarks of its family."""

    rng = np.random.default_rng(2)
    by_family = [
        [each for each in pending[: case.classes] if each.family in (ANY, _family(number))]
        for number in range(FAMILIES)
    ]
    for turn in range(RUNS_PER_BOARD):
        for row in range(case.boards):
            family = row % FAMILIES
            each = by_family[family][int(rng.integers(len(by_family[family])))]
            yield PastRun(
                benchmark_id=f"past-{turn}-{row}",
                user_id=each.user_id,
                target_uid=_uid(row),
                family=_family(family),
                kind=kind_of(each),
                run_s=float(5.0 * (1 + family) * rng.lognormal(0.0, 0.3)),
                failure="board_fault" if rng.random() < 0.02 else None,
                ended_at=NOW - timedelta(days=2 * (RUNS_PER_BOARD - turn), seconds=-row),
            )


def measure_loop(case: Case) -> dict[str, Any]:
    """The peer: benchmark by benchmark, board by board, over objects, as most schedulers do.

    It filters by the same facts, scores by the mean of past runs (no evaluation) and
    explains nothing, so that it does less than a cycle.
    """
    boards, pending = _boards(case), _pending(case)
    runs: dict[tuple[object, str], list[float]] = {}
    for run in _past(case, pending):
        runs.setdefault((run.kind, run.target_uid), []).append(run.run_s or 0.0)
    kinds = {each.benchmark_id: kind_of(each) for each in pending}
    times = []
    for _ in range(_REPEATS + 1):
        began = time.process_time()
        free = {board.target_uid: board for board in boards if not board.busy}
        placed: dict[str, str] = {}
        for each in sorted(pending, key=lambda each: (-each.user_priority, each.submit_time)):
            best, best_s = None, float("inf")
            for board in free.values():
                if board.family != each.family or not board.healthy:
                    continue
                if board.ram_bytes < each.ram_bytes or board.storage_bytes < each.storage_bytes:
                    continue
                if not any(
                    engine.name == each.engine and each.benchmark_type in engine.supported_types
                    for engine in board.engines
                ):
                    continue
                past = runs.get((kinds[each.benchmark_id], board.target_uid), [60.0])
                expected_s = sum(past) / len(past)
                if expected_s < best_s:
                    best, best_s = board, expected_s
            if best is not None:
                placed[each.benchmark_id] = best.target_uid
                del free[best.target_uid]
        times.append(time.process_time() - began)
    return {"median_s": median(times[1:]), "placed": len(placed)}


def _main() -> None:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    of = {
        "cycle": measure,
        "changes": measure_changes,
        "learned": measure_learned,
        "loop": measure_loop,
        "mappings": measure_mappings,
    }[sys.argv[1]]
    print(json.dumps(of(CASES[sys.argv[2]])))


if __name__ == "__main__":
    _main()
