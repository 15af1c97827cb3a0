"""What the lab's boards offer, by kinds of boards: there are few, however many boards there are."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from edgeyard.devices.attributes import attributes_of, members
from edgeyard.devices.constraints import compare, constraint_problem
from edgeyard.devices.model import AttributeValue, Board, BoardEngine
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError
from edgeyard.scheduler.model.benchmark import Constraint, JobDescription
from edgeyard.scheduler.twin.joined import JoinedBoard

_UID = "target_uid"
_OF_KIND = ("memory.ram", "memory.storage", "family", "engines")
"""Attributes that the inventory tells for good, as it does the uid; hosts publish the others as
they run."""

_CHANGING = "dynamic."
"""Attributes of this name change from second to second: no value of theirs is ever refused."""

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
    threads: int | None


class Offer:
    """What these boards offer. Thread-safe; costs a submission the same however many they are."""

    def __init__(
        self, boards: Sequence[Board], joined: Callable[[], Mapping[str, JoinedBoard]] = dict
    ) -> None:
        """Look at the boards once.

        Args:
            boards: Those that may be used.
            joined: Gives what hosts publish of them, by uid; the same object while none changes.
        """
        self._joined = joined
        self._published: Mapping[str, JoinedBoard] = {}
        self._lock = threading.Lock()
        self._may_meet: dict[tuple[str, Constraint], frozenset[str]] = {}
        self._attributes: dict[_Kind, dict[str, AttributeValue]] = {}
        self._kinds: dict[str, dict[str, _Kind]] = {}  # by family, by uid
        for board in boards:
            kind = _Kind(
                board.family,
                board.engines,
                board.ram_bytes,
                board.storage_bytes,
                None if board.local is None else board.local.threads,
            )
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

    def uids_of(self, family: str) -> Collection[str]:
        """The boards of a family; none if it is unknown."""
        return self._kinds.get(family, {}).keys()

    def max_ram_bytes(self, asked: JobDescription) -> int | None:
        """The most memory that a board has which may run it; None where there is none."""
        kinds = self._kinds.get(asked.family, {})
        uids = kinds if asked.target_uid is None else {asked.target_uid} & kinds.keys()
        return max((kinds[uid].ram_bytes for uid in uids), default=None)

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
        return (
            self._engine_problems(asked, kinds, who)
            or [
                *_type_problems(asked, kinds),
                *_size_problems(asked, kinds, who),
                *_thread_problems(asked, kinds, who),
                *self._provider_problems(asked, who),
                *self._constraint_problems(asked, who),
            ]
            or self._joint_problems(asked, kinds, who)
        )

    def warnings(self, asked: JobDescription) -> list[str]:
        """Constraints that none of the boards that are online meets; others may."""
        joined = self._joined()
        uids = self._uids(asked)
        return self._provider_warnings(asked) + [
            f"no board that is online meets {_condition_text(each)}: "
            "the benchmark waits for one that does"
            for each in asked.constraints
            if _is_published(each.attribute)
            and not any(
                uid in joined
                and joined[uid].view.online
                and compare(joined[uid].attributes.get(each.attribute), each.operator, each.value)
                for uid in uids
            )
        ]

    def _providers(self, asked: JobDescription) -> list[frozenset[str] | None]:
        """Execution providers of the boards that may run it; None where they are not known."""
        attribute = f"engine.{asked.runtime}.execution_providers"
        joined = self._joined()
        values = [
            joined[uid].attributes.get(attribute) if uid in joined else None
            for uid in self._uids(asked)
        ]
        return [members(value) if isinstance(value, str) else None for value in values]

    def _provider_warnings(self, asked: JobDescription) -> list[str]:
        wanted = asked.parameters.get("execution_provider")
        if not isinstance(wanted, str):
            return []
        known = [each for each in self._providers(asked) if each is not None]
        lack = sum(wanted not in each for each in known)
        attribute = f"engine.{asked.runtime}.execution_providers"
        return [
            f"{lack} of {len(known)} boards do not have {wanted[:100]}: to leave them out, add "
            f"--constraint '{attribute} set_contains {wanted[:100]}'"
        ][: bool(lack)]

    def _provider_problems(self, asked: JobDescription, who: str) -> list[FieldError]:
        wanted = asked.parameters.get("execution_provider")
        if not isinstance(wanted, str):
            return []
        offered: set[str] = set()
        for each in self._providers(asked):
            if each is None or wanted in each:
                return []
            offered |= each
        where = "/parameters/execution_provider"
        reason = f"no {who} has {wanted[:100]}"
        if asked.target_uid is not None:
            reason = f"{who} does not have {wanted[:100]}"
        return [FieldError(where, reason, _choice(wanted, sorted(offered)))]

    def _uids(self, asked: JobDescription) -> Collection[str]:
        """Boards of the family, or the one that is named."""
        return self._kinds[asked.family] if asked.target_uid is None else (asked.target_uid,)

    def _joint_problems(
        self, asked: JobDescription, kinds: Sequence[_Kind], who: str
    ) -> list[FieldError]:
        """Return the first condition that no board meets together with those before it."""
        kinds = [kind for kind in kinds if _supports(kind, asked)]
        for name, wanted in (("ram", asked.ram), ("storage", asked.storage)):
            fitting = [kind for kind in kinds if getattr(kind, f"{name}_bytes") >= wanted]
            if not fitting:
                most = max(getattr(kind, f"{name}_bytes") for kind in kinds)
                reason = f"{size_text(wanted)} is more than any {who} has that fits otherwise"
                return [FieldError(f"/{name}", reason, f"at most {size_text(most)} ({most} bytes)")]
            kinds = fitting
        if not asked.constraints:
            return []
        kind_of, wanted_kinds = self._kinds[asked.family], set(kinds)
        left = {uid for uid in self._uids(asked) if kind_of[uid] in wanted_kinds}
        for number, each in enumerate(asked.constraints):
            fitting_uids = left & self._meeting(asked.family, each)
            if not fitting_uids:
                values = self._known_values(asked.family, each.attribute, left)
                return [
                    FieldError(
                        f"/constraints/{number}",
                        f"{_condition_text(each)} holds for no {who} that fits otherwise",
                        f"what holds for {each.attribute} of {_listed(values)}",
                    )
                ]
            left = fitting_uids
        return []

    def _meeting(self, family: str, each: Constraint) -> frozenset[str]:
        """Boards of the family that meet the constraint now, or may once their host reports it."""
        joined = self._joined()
        with self._lock:
            if joined is not self._published or len(self._may_meet) > _REMEMBERED:
                self._published, self._may_meet = joined, {}
            known = self._may_meet.get((family, each))
        if known is not None:
            return known
        found = frozenset(
            uid
            for uid, kind in self._kinds[family].items()
            if self._board_may_meet(uid, kind, each, joined)
        )
        with self._lock:
            if joined is self._published:
                self._may_meet[family, each] = found
        return found

    def _board_may_meet(
        self, uid: str, kind: _Kind, each: Constraint, joined: Mapping[str, JoinedBoard]
    ) -> bool:
        if each.attribute.startswith(_CHANGING):
            return True
        if each.attribute == _UID:
            return compare(uid, each.operator, each.value)
        if each.attribute in _OF_KIND:
            return compare(self._attributes[kind][each.attribute], each.operator, each.value)
        board = joined.get(uid)
        value = None if board is None else board.attributes.get(each.attribute)
        if value is None and (board is None or not board.view.online):
            return True  # what it will publish is not known
        return compare(value, each.operator, each.value)

    def _known_values(
        self, family: str, attribute: str, uids: Collection[str]
    ) -> list[AttributeValue]:
        if attribute == _UID:
            return list(uids)
        if attribute in _OF_KIND:
            kinds = {self._kinds[family][uid] for uid in uids}
            return [self._attributes[kind][attribute] for kind in kinds]
        joined = self._joined()
        values = (joined[uid].attributes.get(attribute) for uid in uids if uid in joined)
        return [value for value in values if value is not None]

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
        """Constraints that none of the boards meets, nor may meet once its host reports it."""
        found = []
        for number, each in enumerate(asked.constraints):
            if invalid := constraint_problem(each.attribute, each.operator, each.value):
                found.append(
                    FieldError(f"/constraints/{number}", f"{_condition_text(each)}: {invalid}")
                )
                continue
            if each.attribute == _UID or each.attribute in _OF_KIND:
                met = self._some_meets(
                    asked.family, asked.target_uid, each.attribute, each.operator, each.value
                )
            else:
                met = not self._meeting(asked.family, each).isdisjoint(self._uids(asked))
            if not met:
                found.append(self._constraint_problem(f"/constraints/{number}", each, asked, who))
        return found

    def _constraint_problem(
        self, pointer: str, each: Constraint, asked: JobDescription, who: str
    ) -> FieldError:
        uids = self._uids(asked)
        values = self._known_values(asked.family, each.attribute, uids)
        if not values and _is_published(each.attribute):
            joined = self._joined()
            names = sorted(
                {name for uid in uids if uid in joined for name in joined[uid].attributes}
            )
            nobody = (
                f"no {who} publishes" if asked.target_uid is None else f"{who} does not publish"
            )
            return FieldError(
                pointer, f"{nobody} {each.attribute}", _choice(each.attribute, sorted(names))
            )
        return FieldError(
            pointer,
            f"{_condition_text(each)} holds for no known {who}",
            f"what holds for {each.attribute} of {_listed(values)}",
        )

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

    def __init__(
        self,
        usable: Callable[[], tuple[Boards, Boards]],
        joined: Callable[[], Mapping[str, JoinedBoard]] = dict,
    ) -> None:
        """Nothing is looked at before `now`.

        Args:
            usable: Boards of the inventory and others; the same tuples while none changed.
            joined: As for `Offer`.
        """
        self._usable = usable
        self._joined = joined
        self._lock = threading.Lock()
        self._seen: tuple[Boards, Boards] = (), ()
        self._offer = Offer(())

    def now(self) -> Offer:
        """Made anew only where boards changed."""
        stated, others = self._usable()
        with self._lock:
            if stated is not self._seen[0] or others is not self._seen[1]:
                self._offer, self._seen = Offer((*stated, *others), self._joined), (stated, others)
            return self._offer


def _supports(kind: _Kind, asked: JobDescription) -> bool:
    return any(
        engine.name == asked.runtime and asked.benchmark_type.value in engine.supported_types
        for engine in kind.engines
    )


def _is_published(attribute: str) -> bool:
    """Whether hosts publish the attribute once for a board, and not from second to second."""
    return not (attribute == _UID or attribute in _OF_KIND or attribute.startswith(_CHANGING))


def _condition_text(each: Constraint) -> str:
    return f"{each.attribute} {each.operator} {each.value[:100]}".rstrip()


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
            "one of " + ", ".join(sorted(types)) if types else "another target or runtime",
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


def _thread_problems(asked: JobDescription, kinds: Sequence[_Kind], who: str) -> list[FieldError]:
    """More threads than any of the boards allows, where all of them state how many."""
    wanted, known = asked.parameters.get("threads"), [kind.threads for kind in kinds]
    most = max((each for each in known if each is not None), default=None)
    if type(wanted) is not int or most is None or None in known or 1 <= wanted <= most:
        return []
    reason = f"{wanted} is more than any {who} allows" if wanted > most else f"{wanted} is too few"
    return [FieldError("/parameters/threads", reason, f"1 to {most}")]


def _listed(values: Collection[AttributeValue]) -> str:
    """Attributes' values, each once; memory is in bytes, as constraints compare it."""
    numbers = sorted({value for value in values if isinstance(value, int)})
    if numbers:
        return " or ".join(f"{value} (bytes: {size_text(value)})" for value in numbers)
    return " or ".join(sorted({repr(value) for value in values}))


def _choice(word: str, known: Collection[str]) -> str:
    listed = "one of " + ", ".join(known) if known else "none; no board is known"
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"{listed}; did you mean {close[0]}?" if close else listed
