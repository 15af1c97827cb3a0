"""Sends canaries to idle boards, as often as the lab's share for them allows.

A canary is a reference model whose numbers on a board show the board's health: they are series of
the lineage ``canary/NAME``, owned by Edgeyard's own user. After a canary held a board for t
seconds, the next one is due there ::

    t (1 / share - 1)   seconds later

even if other benchmarks ran meanwhile, so that canaries take at most that share of a board's time.
Each canary is due at once after the facts of a board change: its host, an engine, its firmware or
system. Canaries that wait are decided after all other benchmarks
(`edgeyard.scheduler.decide.canaries`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.own_runs import stored_model, submit_own
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkType,
    Binding,
    IfUnavailable,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.canaries import (
    CANARY_LINEAGE,
    CANARY_USER,
    PROBE_TAG,
    CanaryBoard,
    CanaryModel,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Clock, FileStore, Store, UnitOfWork
from edgeyard.scheduler.twin.twin import BoardState, BoardView

logger = logging.getLogger(__name__)

_OWN = Path(__file__).parent / "canary_models"
SHIPPED = (
    CanaryModel(name="digits-ort", engine="ort", path=_OWN / "digits.onnx"),
    CanaryModel(name="digits-tflite", engine="tflite", path=_OWN / "digits.tflite"),
    CanaryModel(name="dense-openvino", engine="openvino", path=_OWN / "dense.onnx"),
)
"""The reference models that Edgeyard brings: a convolutional network twice, and a dense one."""

MAX_NEW = 20
"""Maximum number of canaries sent in one turn, so that users can submit between turns."""

_TIME_S = 120.0
_WAIT_S = 600.0  # for a board that is in use when it would start; it is sent again later
_RUNS = 500
_MIN_HELD_S = 5.0  # counts for a canary that never ran: otherwise it would be due at once again
_MODEL_LIMIT = 1 << 30
_NEVER = datetime.min.replace(tzinfo=UTC)

_ATTRIBUTES = ("cpu.model", "os.name", "os.kernel")
_OF_REPORTS = ("firmware", "kernel")


class CanaryKeeper:
    """Sends canaries, and notes how they end. One thread."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        boards: Callable[[], Sequence[BoardView]],
        clock: Clock,
        models: Sequence[CanaryModel],
        share: Callable[[], float],
        new_id: lifecycle.NewId = lifecycle.new_benchmark_id,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            boards: Every board as the twin knows it now.
            models: The reference models, in the order in which a board runs them.
            share: Gives the share of a board's time that canaries may take; 0: there are none.
            new_id: Makes the ids of canaries.
        """
        self._store = store
        self._files = files
        self._boards = boards
        self._clock = clock
        self._models = models
        self._share = share
        self._new_id = new_id
        self._unknown_engines: Sequence[str] = ()

    def run(self) -> bool:
        """Record the canaries that ended, and send those that are due; return whether any was."""
        share = self._share()
        with self._store.read() as uow:
            known = uow.canaries.all()
            drifted = {
                uid
                for uid, each in uow.reservations.quarantines().items()
                if each.active and each.of_drift
            }
            under_way = [each.benchmark_id for each in known.values() if each.benchmark_id]
            alive = {
                each.benchmark_id
                for each in uow.benchmarks.get_many(under_way)
                if each.status not in TERMINAL
            }
        if share <= 0.0 and not under_way:
            return False
        now, views = self._clock.now(), self._boards()
        offered = {each.board.target_uid: self._offered(each) for each in views}
        boards = dict(known)
        for uid, board in known.items():
            if board.benchmark_id is not None and board.benchmark_id not in alive:
                end = partial(_end, board, offered.get(uid, ()), share, now)
                boards[uid] = self._store.transact(end)
        if share <= 0.0:
            return False
        self._report_unknown_engines(views)
        sent = 0
        for view in views:
            uid = view.board.target_uid
            is_free = view.state is BoardState.IDLE or (
                view.state is BoardState.QUARANTINED
                and uid in drifted
                and view.holder is None
                and not view.board.busy
            )
            if is_free and offered[uid] and sent < MAX_NEW:
                sent += self._send_if_due(view, offered[uid], boards.get(uid), now)
        return sent > 0

    def _report_unknown_engines(self, views: Sequence[BoardView]) -> None:
        """Log once which engines no board has, of canaries that an operator states."""
        stated = {each.engine for each in self._models if each not in SHIPPED}
        known = {engine.name for view in views for engine in view.board.engines}
        unknown = sorted(stated - known) if views else ()
        if unknown and unknown != self._unknown_engines:
            logger.warning(
                "no board has the engine of a canary that the setting canaries states",
                extra={"event": "canary.engine_unknown", "engines": unknown},
            )
        self._unknown_engines = unknown

    def _offered(self, view: BoardView) -> Sequence[CanaryModel]:
        """Return the canaries that a board can run."""
        engines = {
            engine.name
            for engine in view.board.engines
            if BenchmarkType.TYPE1.value in engine.supported_types
        }
        return [each for each in self._models if each.engine in engines]

    def _send_if_due(
        self,
        view: BoardView,
        models: Sequence[CanaryModel],
        seen: CanaryBoard | None,
        now: datetime,
    ) -> bool:
        """Store what is new of a board's facts, and send the canary that is due there, if any.

        Args:
            view: A board that is free.
            models: Those that it can run.
            seen: What is stored of the board; None: nothing.
            now: The time.
        """
        uid, facts = view.board.target_uid, _facts(view)
        before = seen or CanaryBoard(target_uid=uid, facts=facts, changed_at=now, next_at=now)
        board = _with_facts(before, facts, now)
        is_due = board.benchmark_id is None and board.next_at <= now
        if board == seen and not is_due:
            return False
        model = _oldest(board, models) if is_due else None
        file = None if model is None else stored_model(self._files, model.path, _MODEL_LIMIT)

        def write(uow: UnitOfWork) -> Benchmark | None:
            if uow.canaries.all().get(uid) != seen:
                return None  # another server was quicker
            _log_change(uow, before, board, now)
            if model is None or file is None:
                uow.canaries.save(board)
                return None
            description = _description(model, uid)
            if view.state is BoardState.QUARANTINED:  # for its drift: see `engine.drift`
                description = replace(description, tags=(*description.tags, PROBE_TAG))
            made = submit_own(uow, description, CANARY_USER, file, now, self._new_id)
            uow.canaries.save(replace(board, benchmark_id=made.benchmark_id))
            return made

        made = self._store.transact(write)
        if made is None:
            return False
        logger.info(
            "canary sent",
            extra={"event": "canary.sent", "target_uid": uid, "benchmark_id": made.benchmark_id},
        )
        return True


def _oldest(board: CanaryBoard, models: Sequence[CanaryModel]) -> CanaryModel:
    """Return the canary that has not run on a board for longest, first one that never has."""
    return min(models, key=lambda each: board.measured.get(each.name, _NEVER))


def _with_facts(board: CanaryBoard, facts: Mapping[str, str], now: datetime) -> CanaryBoard:
    """Return a board with its present facts; where one of them changed, each canary is due.

    A fact that was not known before is no change.
    """
    changed = any(board.facts.get(name, fact) != fact for name, fact in facts.items())
    board = replace(board, facts={**board.facts, **facts})
    return replace(board, changed_at=now, next_at=now) if changed else board


def _log_change(uow: UnitOfWork, before: CanaryBoard, after: CanaryBoard, now: datetime) -> None:
    """Record which facts of a board changed, if any did."""
    changed = sorted(name for name, fact in before.facts.items() if after.facts[name] != fact)
    if not changed:
        return
    data: dict[str, object] = {
        "target_uid": after.target_uid,
        "before": {name: before.facts[name] for name in changed},
        "after": {name: after.facts[name] for name in changed},
    }
    uow.log.append(Event(at=now, kind="board.changed", data=data))


def _end(
    seen: CanaryBoard, models: Sequence[CanaryModel], share: float, now: datetime, uow: UnitOfWork
) -> CanaryBoard:
    """Store how a canary ended, and when the next one is due; return the board as it is stored.

    Args:
        seen: The board as it was read before.
        models: Those that the board can run now.
        share: See the module; 0: there is no next one.
        now: The time.
        uow: Reads and writes.
    """
    board = uow.canaries.all()[seen.target_uid]
    if board.benchmark_id is None or board.benchmark_id != seen.benchmark_id:
        return board
    canary = next(iter(uow.benchmarks.get_many([board.benchmark_id])), None)
    board = replace(board, benchmark_id=None)
    is_measured = canary is not None and canary.status in (Status.COMPLETED, Status.FAILED)
    held_s, since = _MIN_HELD_S, now
    if canary is not None:
        held_s, since = max(held_s, _held_s(uow, canary)), canary.ended_at or now
        if is_measured:
            name = canary.description.series.removeprefix(CANARY_LINEAGE)
            board = replace(board, measured={**board.measured, name: canary.submit_time})
            changed = _with_facts(board, _reported(uow, canary, board.facts), now)
            _log_change(uow, board, changed, now)
            board = changed
    # The next one after a preempted canary waits as well, so that the share holds.
    others = any(board.measured.get(each.name, _NEVER) < board.changed_at for each in models)
    pause_s = held_s * (1.0 / share - 1.0) if share > 0.0 else 0.0
    if is_measured and others:
        pause_s = 0.0
    board = replace(board, next_at=since + timedelta(seconds=pause_s))
    uow.canaries.save(board)
    return board


def _held_s(uow: UnitOfWork, canary: Benchmark) -> float:
    """Return for how long a canary held its board, seconds."""
    return sum(
        (each.ended_at - each.created_at).total_seconds()
        for each in uow.attempts.of(canary.benchmark_id)
        if each.ended_at is not None
    )


def _facts(view: BoardView) -> dict[str, str]:
    """Return what the cluster reports of a board that may change its numbers."""
    found = {"host": view.host}
    found |= {f"engine.{each.name}": each.version for each in view.board.engines if each.version}
    for name in _ATTRIBUTES:
        if value := view.board.attributes.get(name):
            found[name] = str(value)
    return found


def _reported(uow: UnitOfWork, canary: Benchmark, known: Mapping[str, str]) -> dict[str, str]:
    """Return the facts that only the runner reports; the cluster may have stated the kernel."""
    found: dict[str, str] = {}
    for each in uow.files.reports(canary.benchmark_id):
        of_board = each.report.get("board")
        if isinstance(of_board, Mapping):
            found |= {name: str(of_board[name]) for name in _OF_REPORTS if of_board.get(name)}
    if "os.kernel" in known:
        found.pop("kernel", None)
    return found


def _description(model: CanaryModel, target_uid: str) -> JobDescription:
    return JobDescription(
        model=model.path.name,
        runtime=model.engine,
        benchmark_type=BenchmarkType.TYPE1,
        target_uid=target_uid,
        user_priority=1,
        user_time_s=_TIME_S,
        queue_timeout_s=_WAIT_S,
        nb_inference=_RUNS,
        max_retries=0,
        binding=Binding.STRICT,
        if_unavailable=IfUnavailable.NOTIFY,
        tags=("canary",),
        series=f"{CANARY_LINEAGE}{model.name}",
    )
