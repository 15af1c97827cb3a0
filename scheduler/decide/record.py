"""A cycle as bytes: all that it depended on, and all that it found out.

A record is made of parts, each compressed on its own, so that what did not change from one cycle to
the next (the policy, active models, often the boards) is the same bytes and is stored once. Past
runs are no part: they never change, so that the store keeps them once and a cycle names the first
and the last.
What scorers measured on the way (the time of a solver) and who answered late are parts of their
own: they belong to the explanation, but not to the decision, which may be the same on a slower
machine.
From it come the cycle's explanations, word for word, and its input, to be decided again.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, TypeVar, get_type_hints

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from edgeyard.scheduler.decide.assign import Assignment
from edgeyard.scheduler.decide.canaries import without_canaries
from edgeyard.scheduler.decide.cycle import CycleResult
from edgeyard.scheduler.decide.decisions import Decisions
from edgeyard.scheduler.decide.feasibility import FITS, Feasibility, Reason
from edgeyard.scheduler.decide.planning import make_planner
from edgeyard.scheduler.decide.preempt import PreemptionPlan
from edgeyard.scheduler.decide.priority import Priorities, ages_s, slacks_s
from edgeyard.scheduler.decide.queue import build_queue
from edgeyard.scheduler.decide.scores import Scores
from edgeyard.scheduler.framework.batch import NO_ROW, pairs_of
from edgeyard.scheduler.framework.batch_builder import build_batch
from edgeyard.scheduler.framework.policy import Policy
from edgeyard.scheduler.framework.protocols import Proposal, Refusal
from edgeyard.scheduler.framework.registry import Plugins
from edgeyard.scheduler.framework.runner import Fault, PluginRunner
from edgeyard.scheduler.model.benchmark import Binding, WaitingReason
from edgeyard.scheduler.model.cycle_record import (
    FACTS,
    MODELS,
    OUTCOME,
    OVERRUNS,
    CycleRecord,
)
from edgeyard.scheduler.model.decision import BoardHolder, CycleInput, PendingBenchmark, Snapshot
from edgeyard.scheduler.model.history import History
from edgeyard.scheduler.model.knowledge import ActiveModel, HostLoad, Knowledge
from edgeyard.scheduler.prediction.timeline import Reservation, Timeline

_T = TypeVar("_T")

_LEVEL = 1  # columns shrink well at any level


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Reason:
    plugin: str | None
    code: int
    place: int
    reason: str
    never: bool
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Outcome:
    priorities: NDArray[np.int64]
    priority_parts: tuple[tuple[str, NDArray[np.int64]], ...]
    bindings: Sequence[Binding]
    order: NDArray[np.intp]
    ready: NDArray[np.bool_]
    codes: NDArray[np.uint8]
    reasons: tuple[_Reason, ...]
    combined: NDArray[np.float32]
    proposals: tuple[Proposal, ...]
    rewards: Mapping[str, float]
    fallback: bool
    absent: Mapping[str, str]
    reservations: Mapping[int, Reservation]
    assignment: Assignment
    preempted: PreemptionPlan
    faults: tuple[Fault, ...]


class Recorder:
    """Makes records of cycles, and caches packed parts that do not change between cycles."""

    def __init__(self) -> None:
        self._packed: dict[str, tuple[object, bytes]] = {}
        self._rows: dict[int, tuple[PendingBenchmark, bytes]] = {}

    def record(self, given: CycleInput, result: CycleResult) -> CycleRecord:
        """Make the record of a cycle that was decided.

        Args:
            given: What it depended on.
            result: From `edgeyard.scheduler.decide.cycle.decide`.
        """
        policy, decided = result.decided.policy, result.decided
        loads = given.knowledge.host_loads
        models = given.knowledge.models
        knowledge = replace(given.knowledge, host_loads={}, models=())
        parts = [
            ("policy", self._pack("policy", policy, lambda: _pack(_settled(policy)))),
            ("snapshot", self._pack("snapshot", given.snapshot, lambda: _pack(given.snapshot))),
            ("pending", self._pending(given.pending)),
            ("holders", _pack(_rows(given.holders))),
            ("loads", self._pack("loads", loads, lambda: _pack(loads))),
            ("knowledge", _pack((knowledge, given.seed))),
            (OUTCOME, _pack(_outcome(decided))),
            (FACTS, _pack({each.scorer: each.facts for each in decided.scores.proposals})),
        ]
        if decided.runner.overruns:
            parts.append((OVERRUNS, _pack(tuple(decided.runner.overruns))))
        if models:
            parts.append((MODELS, self._pack(MODELS, models, lambda: _pack(models))))
        self._packed = {name: self._packed[name] for name, _ in parts if name in self._packed}
        return CycleRecord(
            decided_at=given.now,
            policy=f"{policy.name}/{policy.version}",
            parts=tuple(parts),
            runs=given.knowledge.runs,
        )

    def _pending(self, pending: Sequence[PendingBenchmark]) -> bytes:
        """Return packed rows; most benchmarks wait for many cycles."""
        known = self._rows
        ids = list(map(id, pending))
        new = [each for each, key in zip(pending, ids, strict=True) if key not in known]
        for each, row in zip(new, _rows(new), strict=True):
            known[id(each)] = each, _ENCODER.encode(row)  # kept, so that its id stays its own
        self._rows = {key: known[key] for key in ids}
        return _pack_rows(len(ids), b"".join([known[key][1] for key in ids]))

    def _pack(self, name: str, key: object, pack: Callable[[], bytes]) -> bytes:
        known = self._packed.get(name)
        if known is not None and (known[0] is key or (isinstance(key, tuple) and known[0] == key)):
            return known[1]
        packed = pack()
        self._packed[name] = (key, packed)
        return packed


def policy_of(record: CycleRecord) -> Policy:
    """Return the policy of a recorded cycle."""
    policy: Policy = _unpack(dict(record.parts)["policy"], Policy)
    return policy


def cycle_input_of(record: CycleRecord) -> CycleInput:
    """Return the input of a recorded cycle."""
    parts = dict(record.parts)
    knowledge, seed = _unpack(parts["knowledge"], tuple[Knowledge, int])
    return CycleInput(
        snapshot=_unpack(parts["snapshot"], Snapshot),
        pending=_of_rows(parts["pending"], PendingBenchmark),
        now=record.decided_at,
        holders=_of_rows(parts["holders"], BoardHolder),
        knowledge=replace(
            knowledge,
            runs=record.runs,
            host_loads=_unpack(parts["loads"], dict[str, HostLoad]),
            models=_unpack(parts[MODELS], tuple[ActiveModel, ...]) if MODELS in parts else (),
        ),
        seed=seed,
    )


def boards_of(record: CycleRecord) -> Mapping[str, str]:
    """Return the board that each benchmark got in a recorded cycle, by benchmark."""
    parts = dict(record.parts)
    board_of_job = _unpack(parts[OUTCOME], _Outcome).assignment.board_of_job
    pending: Sequence[PendingBenchmark] = _of_rows(parts["pending"], PendingBenchmark)
    uids = _unpack(parts["snapshot"], Snapshot).uids
    placed = np.flatnonzero(board_of_job != NO_ROW).tolist()
    return {pending[job].benchmark_id: uids[board_of_job[job]] for job in placed}


def result_of(record: CycleRecord, plugins: Plugins) -> CycleResult:
    """Return the result of a recorded cycle. No filter and no scorer is asked again.

    Args:
        record: The cycle.
        plugins: Of its policy: they word the reasons, and sum up the costs. Only where somebody
            asks for the plan of a benchmark that waits, they are asked what busy boards cost.
    """
    given, policy, parts = cycle_input_of(record), policy_of(record), dict(record.parts)
    given = without_canaries(given)
    found = _unpack(parts[OUTCOME], _Outcome)
    facts = _unpack(parts[FACTS], dict[str, dict[str, float]])
    runner = PluginRunner(lock=plugins.lock)
    runner.faults += found.faults
    if OVERRUNS in parts:
        runner.overruns += _unpack(parts[OVERRUNS], tuple[Fault, ...])
    batch = build_batch(
        given.snapshot,
        given.pending,
        given.now,
        given.seed,
        given.knowledge,
        policy.twin_max_age_s,
        policy.prediction_wait_s,
    )
    batch = replace(batch, queue=found.order[found.ready[found.order]])
    fits = found.codes == FITS
    pairs = pairs_of(fits)
    proposals = tuple(replace(each, facts=facts[each.scorer]) for each in found.proposals)
    combination = runner.combine(plugins.aggregator, batch, pairs, proposals) if proposals else None
    lasting = np.array([False, *(each.never for each in found.reasons)], dtype=bool)
    by_name = {plugin.name: plugin for plugin in plugins.filters}
    ages, slacks = ages_s(given.pending, given.now), slacks_s(given.pending, given.now)
    points = Priorities(values=found.priorities, parts=dict(found.priority_parts))
    queue = build_queue(
        given.pending,
        given.now,
        points.values,
        ages,
        slacks,
        batch=batch,
        base_priorities=points.base,
        guard_s=policy.guard_s,
        mode=policy.priority_mode,
    )
    scores = Scores(
        pairs=pairs,
        combined=found.combined,
        proposals=proposals,
        costs=None if combination is None else combination.costs,
        rewards=found.rewards,
        fallback=found.fallback,
        absent=found.absent,
    )
    timeline = Timeline(batch, policy, found.reservations)
    planner = make_planner(
        batch, given.pending, given.holders, policy, queue, timeline, scores, plugins
    )
    assigned = found.assignment
    of_the_account = (WaitingReason.QUOTA, WaitingReason.BUDGET)
    refused = [job for job, why in assigned.withheld.items() if why.reason in of_the_account]
    board_of_job = assigned.board_of_job.copy()
    for job, board in assigned.clearing.items():
        board_of_job[job] = board
    planner.resume(board_of_job, assigned.planned, {*refused, *assigned.holds})
    return CycleResult(
        Decisions(
            now=given.now,
            policy=policy,
            plugins=plugins,
            runner=runner,
            snapshot=given.snapshot,
            pending=given.pending,
            batch=batch,
            queue=queue,
            priorities=points,
            bindings=found.bindings,
            order=found.order,
            ready=found.ready,
            feasibility=Feasibility(
                codes=found.codes,
                reasons=tuple(
                    Reason(
                        by_name.get(each.plugin or ""),
                        each.code,
                        each.place,
                        Refusal(WaitingReason(each.reason), each.never),
                        each.fault,
                    )
                    for each in found.reasons
                ),
                fits=fits,
                possible=~lasting[found.codes],
            ),
            scores=scores,
            timeline=timeline,
            assignment=found.assignment,
            planner=planner,
            preempted=found.preempted,
            holders=given.holders,
        )
    )


def faults_of(record: CycleRecord) -> tuple[Fault, ...]:
    """Return the plugins that failed in a recorded cycle."""
    faults: tuple[Fault, ...] = _unpack(dict(record.parts)[OUTCOME], _Outcome).faults
    return faults


def _outcome(decided: Decisions) -> _Outcome:
    return _Outcome(
        priorities=decided.priorities.values,
        priority_parts=tuple(decided.priorities.parts.items()),
        bindings=decided.bindings,
        order=decided.order,
        ready=decided.ready,
        codes=decided.feasibility.codes,
        reasons=tuple(
            _Reason(
                plugin=None if each.plugin is None else each.plugin.name,
                code=each.code,
                place=each.place,
                reason=each.refusal.reason.value,
                never=each.refusal.never,
                fault=each.fault,
            )
            for each in decided.feasibility.reasons
        ),
        combined=decided.scores.combined,
        proposals=tuple(replace(each, facts={}) for each in decided.scores.proposals),
        rewards=decided.scores.rewards,
        fallback=decided.scores.fallback,
        absent=decided.scores.absent,
        reservations=decided.timeline.reservations,
        assignment=replace(decided.assignment, withheld=dict(decided.assignment.withheld)),
        preempted=decided.preempted,
        faults=tuple(decided.runner.faults),
    )


def _rows(items: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return dataclasses as tuples of their fields, without the fields' names 10,000 times."""
    listed = list(items)
    if not listed:
        return []
    names = [field.name for field in fields(listed[0])]
    columns = [list(map(attrgetter(name), listed)) for name in names]
    return list(
        zip(
            *(
                [sorted(each) for each in column] if isinstance(column[0], frozenset) else column
                for column in columns
            ),
            strict=True,
        )
    )


def _settled(policy: Policy) -> Policy:
    return replace(policy, preempting_types=_sorted(policy.preempting_types))


def _sorted(sets: Mapping[Any, frozenset[str]]) -> Any:
    """Sort sets, which have no order of their own: equal values must be equal bytes."""
    return {key: tuple(sorted(each)) for key, each in sets.items()}


def _of_rows(packed: bytes, kind: Callable[..., _T]) -> list[_T]:
    names, row = _row_type(kind)
    return [kind(**dict(zip(names, each, strict=True))) for each in _unpack(packed, list[row])]  # type: ignore[valid-type]


@cache
def _row_type(kind: Any) -> tuple[tuple[str, ...], Any]:
    hints = get_type_hints(kind)
    names = tuple(field.name for field in fields(kind))
    return names, tuple[tuple(hints[name] for name in names)]  # type: ignore[misc]


def _pack(value: object) -> bytes:
    return zstandard.compress(_ENCODER.encode(value), _LEVEL)


def _pack_rows(count: int, rows: bytes) -> bytes:
    head = b"\xdd" + count.to_bytes(4, "big")  # MessagePack's array of 32-bit length
    return zstandard.compress(head + rows, _LEVEL)


def _unpack(packed: bytes, kind: Any) -> Any:
    return _decoder(kind).decode(zstandard.decompress(packed))


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_array)


def _npy(value: object) -> bytes:
    if isinstance(value, History):
        return b""  # the record names it
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"{type(value).__name__} in a record")
    if value.flags.c_contiguous and value.dtype.isbuiltin:
        return _npy_head(value.dtype, value.shape) + value.tobytes()
    held = io.BytesIO()
    np.save(held, value, allow_pickle=False)
    return held.getvalue()


@lru_cache  # a cycle's arrays have few different shapes
def _npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    held = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        held, {"descr": dtype.str, "fortran_order": False, "shape": shape}
    )
    return held.getvalue()


def _array(kind: object, packed: bytes) -> NDArray[Any] | History:
    if kind is History:
        return History()
    array: NDArray[Any] = np.load(io.BytesIO(packed), allow_pickle=False)
    return array


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_npy)
