"""What the lab's boards offer, by kinds of boards: there are few, however many boards there are."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from edgeyard.devices.attributes import attributes_of, compare
from edgeyard.devices.model import AttributeValue, Board, BoardEngine
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError
from edgeyard.scheduler.model.benchmark import JobDescription

_UID = "target_uid"
_OF_KIND = ("memory.ram", "memory.storage", "family", "engines")
"""Attributes that the inventory tells for good, as it does the uid; hosts publish the others as
they run."""

_REMEMBERED = 1024
"""Conditions whose answer is kept: submissions repeat them, and one on uids asks every board."""

Boards = tuple[Board, ...]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a submission sees of a board, its uid aside."""

    family: str
    engines: tuple[BoardEngine, ...]
    ram_bytes: int
    storage_bytes: int


class Offer:
    """What these boards offer. Thread-safe; costs a submission the same however many they are."""

    def __init__(self, boards: Sequence[Board]) -> None:
        self._attributes: dict[_Kind, dict[str, AttributeValue]] = {}
        self._kinds: dict[str, dict[str, _Kind]] = {}  # by family, by uid
        for board in boards:
            kind = _Kind(board.family, board.engines, board.ram_bytes, board.storage_bytes)
            self._kinds.setdefault(board.family, {})[board.target_uid] = kind
            if kind not in self._attributes:
                self._attributes[kind] = attributes_of(board)
        self._of_family = {
            family: tuple(dict.fromkeys(kinds.values())) for family, kinds in self._kinds.items()
        }
        self._some_meets = lru_cache(_REMEMBERED)(self._any_meets)

    @property
    def families(self) -> Collection[str]:
        """Those that have a board."""
        return self._of_family.keys()

    def problems(self, asked: JobDescription) -> list[FieldError]:
        """What none of the boards could ever satisfy."""
        kinds = self._of_family.get(asked.family)
        if kinds is None:
            where = "/target" if asked.target is not None else "/target_uid"
            known = sorted(self._kinds)
            return [FieldError(where, "no such family is known", _choice(asked.family, known))]
        who = f"board of {asked.family}"
        if asked.target_uid is not None:
            uids = self._kinds[asked.family]
            if asked.target_uid not in uids:
                return [FieldError("/target_uid", "no such board", _choice(asked.target_uid, uids))]
            kinds = (uids[asked.target_uid],)
            who = asked.target_uid
        return self._engine_problems(asked, kinds, who) or [
            *_type_problems(asked, kinds),
            *_size_problems(asked, kinds, who),
            *self._constraint_problems(asked, who),
        ]

    def _engine_problems(
        self, asked: JobDescription, kinds: Sequence[_Kind], who: str
    ) -> list[FieldError]:
        offered = _engines_of(kinds)
        if asked.runtime in offered:
            return []
        anywhere = _engines_of(self._attributes)
        reason = f"no {who} offers it" if asked.runtime in anywhere else "no such engine is known"
        reason = reason.replace(f"no {asked.target_uid}", f"{asked.target_uid} does not")
        return [FieldError("/runtime", reason, _choice(asked.runtime, sorted(offered)))]

    def _constraint_problems(self, asked: JobDescription, who: str) -> list[FieldError]:
        """Constraints on what is known for good that none of the boards meets."""
        family, uid = asked.family, asked.target_uid
        return [
            FieldError(
                f"/constraints/{number}",
                f"{each.attribute} {each.operator} {each.value[:100]}".rstrip()
                + f" holds for no known {who}",
                f"what holds for {each.attribute} of "
                + _listed(self._values(family, uid, each.attribute)),
            )
            for number, each in enumerate(asked.constraints)
            if (each.attribute == _UID or each.attribute in _OF_KIND)
            and not self._some_meets(family, uid, each.attribute, each.operator, each.value)
        ]

    def _any_meets(
        self, family: str, uid: str | None, attribute: str, operator: str, value: str
    ) -> bool:
        values = self._values(family, uid, attribute)
        return any(compare(each, operator, value) for each in values)

    def _values(self, family: str, uid: str | None, attribute: str) -> Collection[AttributeValue]:
        """The attribute's, of a family or of one board of it."""
        uids = self._kinds[family]
        if attribute == _UID:
            return uids.keys() if uid is None else (uid,)
        kinds = self._of_family[family] if uid is None else (uids[uid],)
        return [self._attributes[kind][attribute] for kind in kinds]


class Offers:
    """The newest `Offer`. Thread-safe."""

    def __init__(self, usable: Callable[[], tuple[Boards, Boards]]) -> None:
        """Nothing is looked at before `now`.

        Args:
            usable: Boards of the inventory and others; the same tuples while none changed.
        """
        self._usable = usable
        self._lock = threading.Lock()
        self._seen: tuple[Boards, Boards] = (), ()
        self._offer = Offer(())

    def now(self) -> Offer:
        """Made anew only where boards changed."""
        stated, others = self._usable()
        with self._lock:
            if stated is not self._seen[0] or others is not self._seen[1]:
                self._offer, self._seen = Offer((*stated, *others)), (stated, others)
            return self._offer


def _engines_of(kinds: Collection[_Kind]) -> set[str]:
    return {engine.name for kind in kinds for engine in kind.engines}


def _type_problems(asked: JobDescription, kinds: Sequence[_Kind]) -> list[FieldError]:
    types = {
        each
        for kind in kinds
        for engine in kind.engines
        if engine.name == asked.runtime
        for each in engine.supported_types
    }
    if asked.benchmark_type.value in types:
        return []
    return [
        FieldError(
            "/benchmark_type",
            f"{asked.runtime} on {asked.family} does not support it",
            "one of " + ", ".join(sorted(types)) if types else "nothing",
        )
    ]


def _size_problems(asked: JobDescription, kinds: Sequence[_Kind], who: str) -> list[FieldError]:
    return [
        FieldError(
            f"/{name}",
            f"{size_text(wanted)} is more than any known {who} has",
            f"at most {size_text(most)} ({most} bytes)",
        )
        for name, wanted, most in (
            ("ram", asked.ram, max(kind.ram_bytes for kind in kinds)),
            ("storage", asked.storage, max(kind.storage_bytes for kind in kinds)),
        )
        if wanted > most
    ]


def _listed(values: Collection[AttributeValue]) -> str:
    """Attributes' values, each once; memory is in bytes, as constraints compare it."""
    numbers = sorted({value for value in values if isinstance(value, int)})
    if numbers:
        return " or ".join(f"{value} (bytes: {size_text(value)})" for value in numbers)
    return " or ".join(sorted({repr(value) for value in values}))


def _choice(word: str, known: Collection[str]) -> str:
    listed = "one of " + ", ".join(known) if known else "nothing"
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"{listed}; did you mean {close[0]}?" if close else listed
