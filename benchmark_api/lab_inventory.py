"""The expected boards while the server runs: those of the file, and what operators change by API.

The file is read again when it changes; where it is broken, the boards that were known before stay.
Boards that are added and removed by API are kept in the database, which servers share.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from edgeyard.benchmark_api.settings import Settings
from edgeyard.devices.inventory import Inventory, with_shared_cores
from edgeyard.devices.inventory_file import boards_of
from edgeyard.devices.model import Board
from edgeyard.errors import (
    ConfigError,
    Conflict,
    EdgeyardError,
    FieldError,
    InvalidInput,
    NotFound,
)
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.registration import Registration, RegistrationKind
from edgeyard.scheduler.ports import Clock, Store, UnitOfWork

logger = logging.getLogger(__name__)

CHECK_S = 2.0
"""Interval between checks of the file and the database for changes."""

_ADDED, _REMOVED = RegistrationKind.LAB_BOARD, RegistrationKind.REMOVED_LAB_BOARD


def board_of(entry: object) -> Board:
    """Return the board that an entry of the boards file describes.

    Raises:
        InvalidInput: It is wrong; every field that is, is named.
    """
    uid = entry.get("target_uid") if isinstance(entry, dict) else None
    if not isinstance(uid, str):
        raise InvalidInput.at("/target_uid", "is required", "<family>-NNNN-NNNN")
    family = uid.partition("-")[0]
    problems: list[str] = []
    boards = boards_of({family: [entry]}, problems)
    if problems:
        prefix = f"$.{family}[0]"
        raise InvalidInput(
            [_field_error(each.removeprefix(prefix).removeprefix("$")) for each in problems]
        )
    return boards[0]


def _field_error(problem: str) -> FieldError:
    path, _, reason = problem.partition(": ")
    return FieldError(
        path.replace(".", "/").replace("[", "/").replace("]", ""),
        reason or problem,
        "an entry of the boards file (docs/reference/inventory.schema.json)",
    )


class LabInventory:
    """Joins the boards of a provider with those of the database."""

    def __init__(self, store: Store, clock: Clock, base: Callable[[Settings], Inventory]) -> None:
        """Nothing is read yet.

        Args:
            store: Keeps what was added and removed by API.
            clock: Dates these changes.
            base: Reads the boards file, or what the settings name instead.
        """
        self._store, self._clock, self._base = store, clock, base

    def load(self, settings: Settings) -> Inventory:
        """Return the expected boards.

        Raises:
            ConfigError: The file is broken.
        """
        base = self._base(settings)
        added, removed = self._changes()
        hidden = {each.name for each in removed}
        known = {board.target_uid for board in base.boards}
        more = [board_of(dict(each.body)) for each in added if each.name not in known]
        boards = [board for board in base.boards if board.target_uid not in hidden]
        return Inventory(with_shared_cores([*boards, *more]))

    def state(self, settings: Settings) -> tuple[object, ...]:
        """Return a value that differs when file or database have changed."""
        added, removed = self._changes()
        changes = [(each.kind, each.name, each.created_at) for each in (*added, *removed)]
        return _file_state(settings.inventory), tuple(changes)

    def add(self, entry: object, user_id: str, present: Inventory) -> Board:
        """Add a board, or take back the removal of one that the file has.

        Raises:
            InvalidInput: The entry is wrong.
            Conflict: The board is there already.
        """
        board = board_of(entry)
        uid = board.target_uid
        assert isinstance(entry, dict)
        if present.board(uid) is not None:
            raise Conflict(f"{uid} is in the inventory already")
        if board.local is not None:
            raise InvalidInput.at(
                "/local",
                "makes a board of the server's own machine, which only a start of the server can "
                "do",
                "an entry in the boards file and a restart, or an entry without local",
            )

        def change(uow: UnitOfWork) -> None:
            for kind in (_ADDED, _REMOVED):
                if any(each.name == uid for each in uow.registrations.of_kind(kind)):
                    uow.registrations.remove(kind, uid)
            uow.registrations.add(self._registration(_ADDED, uid, user_id, entry))
            uow.log.append(self._event("board.added", uid, user_id, None, board))

        self._store.transact(change)
        return board

    def remove(self, target_uid: str, user_id: str, present: Inventory) -> None:
        """Remove a board; what runs on it runs to its end, and nothing new is placed there.

        Raises:
            NotFound: The inventory has no such board.
        """
        known = present.board(target_uid)
        if known is None:
            raise NotFound("board of the inventory", target_uid)

        def change(uow: UnitOfWork) -> None:
            if any(each.name == target_uid for each in uow.registrations.of_kind(_ADDED)):
                uow.registrations.remove(_ADDED, target_uid)
            if not any(each.name == target_uid for each in uow.registrations.of_kind(_REMOVED)):
                uow.registrations.add(self._registration(_REMOVED, target_uid, user_id, {}))
            uow.log.append(self._event("board.removed", target_uid, user_id, known, None))

        self._store.transact(change)

    def _changes(self) -> tuple[Sequence[Registration], Sequence[Registration]]:
        with self._store.read() as uow:
            return uow.registrations.of_kind(_ADDED), uow.registrations.of_kind(_REMOVED)

    def _registration(
        self, kind: RegistrationKind, uid: str, user_id: str, body: dict[str, object]
    ) -> Registration:
        return Registration(
            kind=kind, name=uid, user_id=user_id, body=body, created_at=self._clock.now()
        )

    def _event(
        self, kind: str, uid: str, user_id: str, before: Board | None, after: Board | None
    ) -> Event:
        data = {"target_uid": uid, "before": board_facts(before), "after": board_facts(after)}
        return Event(at=self._clock.now(), kind=kind, user_id=user_id, data=data)


def board_facts(board: Board | None) -> dict[str, object]:
    """Return what the inventory states of a board, for the log of acts; nothing for None."""
    if board is None:
        return {}
    return {
        "family": board.family,
        "ram_bytes": board.ram_bytes,
        "storage_bytes": board.storage_bytes,
        "engines": [
            f"{engine.name} {engine.version} ({', '.join(sorted(engine.supported_types))})"
            for engine in board.engines
        ],
    }


def _file_state(path: Path | None) -> tuple[int, ...]:
    if path is None:
        return ()
    try:
        found = path.stat()
    except OSError:
        return (-1,)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class InventoryWatch:
    """Has the inventory reloaded when it has changed, on a thread of its own."""

    def __init__(
        self, state: Callable[[], tuple[object, ...]], reload: Callable[[], object]
    ) -> None:
        """Start with `start`.

        Args:
            state: Returns a value that differs when the inventory has changed.
            reload: Called after each change; reports its errors itself.
        """
        self._state, self._reload = state, reload
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgeyard-inventory", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        known: tuple[object, ...] | None = None
        while not self._stop.is_set():
            try:
                state = self._state()
                if known is None or state != known:
                    self._reload()
                known = state
            except (EdgeyardError, OSError, ConfigError) as error:
                logger.warning(
                    "the inventory could not be compared",
                    extra={"event": "inventory.unread", "reason": str(error)},
                )
            self._stop.wait(CHECK_S)
