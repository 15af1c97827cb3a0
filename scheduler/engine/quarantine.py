"""Puts boards with a bad record into quarantine, probes them, and lifts the quarantine.

A probe is a benchmark that is known to be good: a small network that Edgeyard brings, sent by
Edgeyard's own user to that board alone. If it leads to a result, the quarantine is lifted and what
the board did before no longer counts. Otherwise it is probed again later, each time after twice as
long. What an operator put into quarantine is not probed, and only an operator lifts that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from edgeyard.errors import Conflict, NotFound
from edgeyard.scheduler.decide.quarantine import BoardRecord, board_records
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.charging import PROBER
from edgeyard.scheduler.engine.metrics import Observe
from edgeyard.scheduler.engine.own_runs import stored_model, submit_own
from edgeyard.scheduler.model.accounts import Quarantine
from edgeyard.scheduler.model.acts import difference
from edgeyard.scheduler.model.benchmark import (
    TERMINAL,
    Benchmark,
    BenchmarkType,
    Binding,
    IfUnavailable,
    JobDescription,
    Status,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.ports import Clock, FileStore, Store, UnitOfWork
from edgeyard.scheduler.prediction.history import PastRuns
from edgeyard.scheduler.twin.twin import BoardView

logger = logging.getLogger(__name__)

PROBE_MODEL = Path(__file__).parent / "probe.onnx"
PROBE_ENGINE = "ort"

FIRST_PROBE = timedelta(minutes=1)
MAX_PAUSE = timedelta(hours=6)

_PROBE_TIME_S = 120.0
_PROBE_WAIT_S = 3600.0  # for a board that is back, but busy or reserved
_PROBE_LIMIT = 1 << 20

_RUNS = 5000
"""Newest runs that are judged: a board's last five count, models' a little more."""


class QuarantineController:
    """Judges the boards' records. One thread."""

    def __init__(
        self,
        store: Store,
        files: FileStore,
        boards: Callable[[], Sequence[BoardView]],
        clock: Clock,
        observe: Observe,
        past: PastRuns,
        new_id: lifecycle.NewId = lifecycle.new_benchmark_id,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            boards: Every board as the twin knows it now.
            past: Ended attempts, which it shares with the cycle.
            new_id: Makes the ids of probes.
        """
        self._store = store
        self._files = files
        self._boards = boards
        self._clock = clock
        self._observe = observe
        self._past = past
        self._new_id = new_id
        self._judged: object = None

    def run(self) -> bool:
        """Judge all boards once; return whether something changed."""
        now = self._clock.now()
        with self._store.read() as uow:
            known = uow.reservations.quarantines()
            runs = self._past.read(uow, now)
            under_way = {
                each.probe_id: each
                for each in known.values()
                if each.active and each.probe_id is not None and each.next_probe_at is None
            }
            probes = uow.benchmarks.get_many(list(under_way))
        changed = False
        if runs is not self._judged:
            cleared = {uid: each.lifted_at for uid, each in known.items() if each.lifted_at}
            for record in board_records(runs[-_RUNS:], cleared).values():
                earlier = known.get(record.target_uid)
                if record.should_be_quarantined and (earlier is None or not earlier.active):
                    changed |= self._quarantine(record, earlier, now)
            self._judged = runs
        for probe in probes:
            if probe.status in TERMINAL:
                changed |= self._judge_probe(under_way[probe.benchmark_id], probe.status, now)
        for each in known.values():
            if each.active and each.next_probe_at is not None and each.next_probe_at <= now:
                changed |= self._probe(each, now)
        return changed

    def _quarantine(self, record: BoardRecord, earlier: Quarantine | None, now: datetime) -> bool:
        made = Quarantine(
            target_uid=record.target_uid,
            since=now,
            reason=record.sentence,
            failure_rate=record.failure_rate,
            next_probe_at=now + FIRST_PROBE,
        )

        def change(uow: UnitOfWork) -> bool:
            if uow.reservations.quarantines().get(record.target_uid) != earlier:
                return False  # an operator was quicker
            quarantine_board(uow, made, now)
            return True

        if not self._store.transact(change):
            return False
        self._observe("quarantines_total", 1, {"cause": "record"})
        logger.warning(
            "board put into quarantine",
            extra={
                "event": "board.quarantined",
                "target_uid": record.target_uid,
                "failure_rate": round(record.failure_rate, 3),
            },
        )
        return True

    def _judge_probe(self, seen: Quarantine, status: Status, now: datetime) -> bool:
        """Lift the quarantine, or plan the next probe, by how a probe ended."""

        def change(uow: UnitOfWork) -> bool:
            if uow.reservations.quarantines().get(seen.target_uid) != seen:
                return False
            if status is Status.COMPLETED:
                lift_quarantine(uow, seen, now, by=None)
                return True
            pause = min(MAX_PAUSE, FIRST_PROBE * 2.0**seen.probes)
            uow.reservations.set_quarantine(replace(seen, next_probe_at=now + pause))
            data: dict[str, object] = {
                "target_uid": seen.target_uid,
                "probe_id": seen.probe_id,
                "status": status.value,
            }
            uow.log.append(Event(at=now, kind="board.probe_failed", data=data))
            return True

        return self._store.transact(change)

    def _probe(self, seen: Quarantine, now: datetime) -> bool:
        """Send a probe, if the board could run one now."""
        view = next((v for v in self._boards() if v.board.target_uid == seen.target_uid), None)
        if view is None or not view.online or not view.board.healthy or view.drained:
            return False
        if not any(
            engine.name == PROBE_ENGINE and BenchmarkType.TYPE1.value in engine.supported_types
            for engine in view.board.engines
        ):
            return False  # nothing to probe it with: an operator lifts it
        model = stored_model(self._files, PROBE_MODEL, _PROBE_LIMIT)

        def send(uow: UnitOfWork) -> Benchmark | None:
            if uow.reservations.quarantines().get(seen.target_uid) != seen:
                return None
            made = submit_own(uow, _description(view), PROBER, model, now, self._new_id)
            uow.reservations.set_quarantine(
                replace(
                    seen, probe_id=made.benchmark_id, probes=seen.probes + 1, next_probe_at=None
                )
            )
            return made

        made = self._store.transact(send)
        if made is None:
            return False
        logger.info(
            "probe sent",
            extra={
                "event": "board.probed",
                "target_uid": seen.target_uid,
                "benchmark_id": made.benchmark_id,
            },
        )
        return True


def quarantine_board(uow: UnitOfWork, quarantine: Quarantine, now: datetime) -> None:
    """Put a board into quarantine; what runs on it goes on to its end."""
    before = uow.reservations.quarantines().get(quarantine.target_uid)
    uow.reservations.set_quarantine(quarantine)
    data: dict[str, object] = {
        "target_uid": quarantine.target_uid,
        "reason": quarantine.reason,
        **difference(before, quarantine),
    }
    if quarantine.failure_rate is not None:
        data["failure_rate"] = round(quarantine.failure_rate, 3)
    uow.log.append(
        Event(at=now, kind="board.quarantined", user_id=quarantine.by_user_id, data=data)
    )


def lift_quarantine(
    uow: UnitOfWork, quarantine: Quarantine, now: datetime, by: str | None
) -> Quarantine:
    """End a quarantine; what the board did before no longer counts.

    Args:
        by: The operator; None: its probe went well, or its drift has ended.
    """
    ended = replace(quarantine, lifted_at=now, lifted_by=by, next_probe_at=None)
    uow.reservations.set_quarantine(ended)
    if by is not None and quarantine.probe_id is not None:
        with suppress(Conflict, NotFound):  # it may have ended
            lifecycle.cancel(uow, quarantine.probe_id, now, by)
    data: dict[str, object] = {
        "target_uid": quarantine.target_uid,
        **difference(quarantine, ended),
    }
    if by is None and quarantine.probe_id is not None:
        data["probe_id"] = quarantine.probe_id
    uow.log.append(Event(at=now, kind="board.unquarantined", user_id=by, data=data))
    return ended


def _description(view: BoardView) -> JobDescription:
    return JobDescription(
        model=PROBE_MODEL.name,
        runtime=PROBE_ENGINE,
        benchmark_type=BenchmarkType.TYPE1,
        target_uid=view.board.target_uid,
        user_priority=10,
        user_time_s=_PROBE_TIME_S,
        queue_timeout_s=_PROBE_WAIT_S,
        nb_inference=20,
        max_retries=0,
        preemptible=False,
        binding=Binding.STRICT,
        if_unavailable=IfUnavailable.NOTIFY,
        tags=("probe",),
    )
