"""What the lab's boards offer, by kinds of boards: there are few, however many boards there are."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from edgeyard.devices.attributes import SIZES_IN_BYTES, attributes_of, members
from edgeyard.devices.benchmark_types import DeclaredType
from edgeyard.devices.constraints import compare, constraint_problem, meets
from edgeyard.devices.model import NOT_READ, AttributeValue, Board, BoardEngine
from edgeyard.devices.sizes import size_text
from edgeyard.errors import FieldError
from edgeyard.scheduler.model.benchmark import Affinity, Constraint, JobDescription
from edgeyard.scheduler.twin.joined import JoinedBoard

_VERSION = "/version_tag"
_UID = "target_uid"
_OF_KIND = ("memory.ram", "memory.storage", "family", "engines")
"""Attributes that the inventory tells for good, as it does the uid; hosts publish the others as
they run."""

_CHANGING = "dynamic."
"""Attributes of this name change from second to second: no value of theirs is ever refused."""

_CORES = "cpu.cores"
MAX_CALLERS_A_CORE = 16
"""More callers at once measure the queue that they make, and nothing of the board."""

_NONE: frozenset[str] = frozenset()
_MAX_LISTED = 5

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
    """What these boards offer. Thread-safe; costs a submission the same however many they are.

    Attributes:
        types: Types of benchmarks that at least one of their engines supports.
    """

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
        self._shares: dict[str, set[str]] = {}  # with whom a board shares cores, in both directions
        for board in boards:
            for other in board.shares_with:
                self._shares.setdefault(board.target_uid, set()).add(other)
                self._shares.setdefault(other, set()).add(board.target_uid)
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
        self.types = frozenset(
            each
            for kinds in self._of_family.values()
            for kind in kinds
            for engine in kind.engines
            for each in engine.supported_types
        )
        self._some_meets = lru_cache(_REMEMBERED)(self._any_meets)

    @property
    def families(self) -> Collection[str]:
        """Families that have at least one board."""
        return self._of_family.keys()

    def uids_of(self, family: str) -> Collection[str]:
        """Return the ids of a family's boards; empty for an unknown family."""
        return self._kinds.get(family, {}).keys()

    def ram_bytes(self, description: JobDescription) -> tuple[int, int] | None:
        """Return the least and the most memory of the boards that may run it; None: there are none.

        Args:
            description: A description that has no `problems`.
        """
        kinds = self._of_family[description.family]
        if description.all_constraints or description.target_uid is not None:
            of_uid = self._kinds[description.family]
            kinds = tuple({of_uid[uid] for uid in self._uids_that_meet(description)})
        sizes = [kind.ram_bytes for kind in kinds if _fits(kind, description)]
        return (min(sizes), max(sizes)) if sizes else None

    def _uids_that_meet(self, description: JobDescription) -> set[str]:
        """Return the boards of the family that meet all constraints, or may once they report."""
        uids = set(self._uids(description))
        for each in description.all_constraints:
            uids &= self._meeting(description.family, each)
        return uids

    def _count_problems(self, description: JobDescription) -> list[FieldError]:
        """Return the problem of a benchmark that asks for more boards than match."""
        if description.count == 1:
            return []
        of_uid = self._kinds[description.family]
        matching = self._uids_that_meet(description)
        boards = sum(_fits(of_uid[uid], description) for uid in matching)
        if description.count <= boards:
            fitting = (uid for uid in matching if _fits(of_uid[uid], description))
            apart = self._apart(fitting)
            if description.count <= apart:
                return []
            reason = f"is {description.count}, and {apart} of {description.family} share no cores"
            return [FieldError("/count", reason, f"at most {apart}")]
        reason = f"is {description.count}, and {boards} of {description.family} match"
        return [FieldError("/count", reason, f"at most {boards}")]

    def _apart(self, uids: Iterable[str]) -> int:
        """Return how many of these boards can run at the same time, as gangs choose boards."""
        left = set(uids)
        found = 0
        for uid in sorted(left, key=lambda each: (len(self._shares.get(each, _NONE) & left), each)):
            if uid in left:
                found += 1
                left -= {uid, *self._shares.get(uid, _NONE)}
        return found

    def problems(self, description: JobDescription) -> list[FieldError]:
        """Return the requirements that none of the boards can ever satisfy."""
        kinds = self._of_family.get(description.family)
        if kinds is None:
            where = "/target" if description.target is not None else "/target_uid"
            known = sorted(self._kinds)
            return [
                FieldError(where, "no such family is known", _choice(description.family, known))
            ]
        who = f"board of {description.family}"
        if description.target_uid is not None:
            uids = self._kinds[description.family]
            if description.target_uid not in uids:
                return [
                    FieldError(
                        "/target_uid", "no such board", _choice(description.target_uid, uids)
                    )
                ]
            kinds = (uids[description.target_uid],)
            who = description.target_uid
        return (
            self._engine_problems(description, kinds, who)
            or [
                *self._type_problems(description, kinds),
                *_declaration_problems(description, kinds),
                *_size_problems(description, kinds, who),
                *_thread_problems(description, kinds, who),
                *self._provider_problems(description, who),
                *self._caller_problems(description, who),
                *self._constraint_problems(description, who),
            ]
            or self._joint_problems(description, kinds, who)
            or self._count_problems(description)
        )

    def warnings(self, description: JobDescription) -> list[str]:
        """Constraints that none of the boards that are online meets; others may."""
        joined = self._joined()
        uids = self._uids(description)
        return [*self._provider_warnings(description), *self._caller_warnings(description)] + [
            f"no board that is online {_requirement(description, number)}: "
            "the benchmark waits for one that does"
            for number, each in enumerate(description.all_constraints)
            if _is_published(each.attribute)
            and not any(
                uid in joined
                and joined[uid].view.online
                and meets(
                    each.attribute,
                    joined[uid].attribute(each.attribute),
                    each.operator,
                    each.value,
                )
                for uid in uids
            )
        ]

    def _providers(self, description: JobDescription) -> list[frozenset[str] | None]:
        """Execution providers of the boards that may run it; None where they are not known."""
        attribute = f"engine.{description.runtime}.execution_providers"
        joined = self._joined()
        values = [
            joined[uid].attributes.get(attribute) if uid in joined else None
            for uid in self._uids(description)
        ]
        return [members(value) if isinstance(value, str) else None for value in values]

    def _caller_problems(self, description: JobDescription, who: str) -> list[FieldError]:
        callers, cores = self._callers(description)
        if cores is None or callers <= MAX_CALLERS_A_CORE * cores:
            return []
        has = f"{who} has" if description.target_uid is not None else f"no {who} has more than"
        reason = f"{callers} callers at once, and {has} {_cores_text(cores)}"
        return [FieldError("/concurrency", reason, f"at most {MAX_CALLERS_A_CORE * cores} callers")]

    def _caller_warnings(self, description: JobDescription) -> list[str]:
        callers, cores = self._callers(description)
        if cores is None or callers <= cores:
            return []
        share = f"{callers} callers share {_cores_text(cores)}"
        return [f"{share}: beyond that many they wait for each other, and their latencies show it"]

    def _callers(self, description: JobDescription) -> tuple[int, int | None]:
        """Return the most callers at once, and the most cores of a board; None: not all known."""
        callers = max(description.concurrency, default=1)
        if callers == 1:
            return 1, None
        joined = self._joined()
        known = [
            joined[uid].attributes.get(_CORES) if uid in joined else None
            for uid in self._uids(description)
        ]
        cores = [each for each in known if isinstance(each, int)]
        return callers, max(cores) if cores and len(cores) == len(known) else None

    def _provider_warnings(self, description: JobDescription) -> list[str]:
        _, wanted = _wanted_provider(description)
        if wanted is None:
            return []
        known = [each for each in self._providers(description) if each is not None]
        lack = sum(wanted not in each for each in known)
        attribute = f"engine.{description.runtime}.execution_providers"
        return [
            f"{lack} of {len(known)} boards do not have {wanted[:100]}: to leave them out, add "
            f"--constraint '{attribute} set_contains {wanted[:100]}'"
        ][: bool(lack)]

    def _provider_problems(self, description: JobDescription, who: str) -> list[FieldError]:
        parameter, wanted = _wanted_provider(description)
        if wanted is None:
            return []
        offered: set[str] = set()
        for each in self._providers(description):
            if each is None or wanted in each:
                return []
            offered |= each
        where = f"/parameters/{parameter}"
        reason = f"no {who} has {wanted[:100]}"
        if description.target_uid is not None:
            reason = f"{who} does not have {wanted[:100]}"
        return [FieldError(where, reason, f"one of {', '.join(sorted(offered))}")]

    def _uids(self, description: JobDescription) -> Collection[str]:
        """Return boards of the family, or the one that is named."""
        return (
            self._kinds[description.family]
            if description.target_uid is None
            else (description.target_uid,)
        )

    def _joint_problems(
        self, description: JobDescription, kinds: Sequence[_Kind], who: str
    ) -> list[FieldError]:
        """Return the first condition that no board meets together with those before it."""
        kinds = [kind for kind in kinds if _supports(kind, description)]
        for name, wanted in (("ram", description.ram), ("storage", description.storage)):
            fitting = [kind for kind in kinds if getattr(kind, f"{name}_bytes") >= wanted]
            if not fitting:
                max_bytes = max(getattr(kind, f"{name}_bytes") for kind in kinds)
                reason = f"{size_text(wanted)} is more than any {who} has that fits otherwise"
                return [
                    FieldError(
                        f"/{name}", reason, f"at most {size_text(max_bytes)} ({max_bytes} bytes)"
                    )
                ]
            kinds = fitting
        if not description.all_constraints:
            return []
        kind_of, wanted_kinds = self._kinds[description.family], set(kinds)
        left = {uid for uid in self._uids(description) if kind_of[uid] in wanted_kinds}
        for number, each in enumerate(description.all_constraints):
            fitting_uids = left & self._meeting(description.family, each)
            pointer = _pointer(description, number)
            if not fitting_uids and pointer == _VERSION:
                return [self._version_problem(description, f"{who} that fits otherwise", left)]
            if not fitting_uids:
                values = self._known_values(description.family, each.attribute, left)
                return [
                    FieldError(
                        pointer,
                        f"{_condition_text(each)} holds for no {who} that fits otherwise",
                        f"what holds for {each.attribute} of {_listed(each.attribute, values)}",
                    )
                ]
            left = fitting_uids
        return []

    def _meeting(self, family: str, each: Constraint) -> frozenset[str]:
        """Return the family's boards that meet the constraint, or may once their host reports."""
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
        value = None if board is None else board.attribute(each.attribute)
        if value == NOT_READ or (value is None and (board is None or not board.view.online)):
            return True  # what it will publish is not known
        return meets(each.attribute, value, each.operator, each.value)

    def _known_values(
        self, family: str, attribute: str, uids: Collection[str]
    ) -> list[AttributeValue]:
        if attribute == _UID:
            return list(uids)
        if attribute in _OF_KIND:
            kinds = {self._kinds[family][uid] for uid in uids}
            return [self._attributes[kind][attribute] for kind in kinds]
        joined = self._joined()
        values = (joined[uid].attribute(attribute) for uid in uids if uid in joined)
        return [value for value in values if value is not None and value != NOT_READ]

    def _engine_problems(
        self, description: JobDescription, kinds: Sequence[_Kind], who: str
    ) -> list[FieldError]:
        offered = _engines_of(kinds)
        if description.runtime in offered:
            return []
        anywhere = _engines_of(self._attributes)
        reason = (
            f"no {who} offers it" if description.runtime in anywhere else "no such engine is known"
        )
        reason = reason.replace(
            f"no {description.target_uid}", f"{description.target_uid} does not"
        )
        return [FieldError("/runtime", reason, _choice(description.runtime, sorted(offered)))]

    def _type_problems(
        self, description: JobDescription, kinds: Sequence[_Kind]
    ) -> list[FieldError]:
        """Return the problem of a type that the engine offers on none of these boards."""
        wanted = description.benchmark_type.value
        types: set[str] = set()
        for kind in kinds:
            for engine in kind.engines:
                if engine.name == description.runtime:
                    types |= _offered_types(engine)
        if wanted in types:
            return []
        elsewhere = sorted(
            {
                f"{engine.name} on {kind.family}"
                for kind in self._attributes
                for engine in kind.engines
                if wanted in _offered_types(engine)
            }
        )
        accepted = ["one of " + ", ".join(sorted(types))] if types else []
        if elsewhere:
            accepted.append(f"for {wanted} " + " or ".join(elsewhere[:_MAX_LISTED]))
        if not elsewhere and description.benchmark_type.is_declared:
            reason = "no engine of a board declares it"
        else:
            reason = f"{description.runtime} on {description.family} does not support it"
        return [
            FieldError(
                "/benchmark_type", reason, "; ".join(accepted) or "another target or runtime"
            )
        ]

    def _constraint_problems(self, description: JobDescription, who: str) -> list[FieldError]:
        """Constraints that none of the boards meets, nor may meet once its host reports it."""
        found = [
            FieldError(f"/spreads/{number}/attribute", f"{each.attribute}: {invalid}")
            for number, each in enumerate(description.spreads)
            if (invalid := constraint_problem(each.attribute, "is_set", ""))
        ]
        found += [
            FieldError(f"/affinities/{number}", f"{_condition_text(each)}: {invalid}")
            for number, each in enumerate(description.affinities)
            if (invalid := constraint_problem(each.attribute, each.operator, each.value))
        ]
        for number, each in enumerate(description.all_constraints):
            if invalid := constraint_problem(each.attribute, each.operator, each.value):
                where = _pointer(description, number)
                found.append(FieldError(where, f"{_condition_text(each)}: {invalid}"))
                continue
            if each.attribute == _UID or each.attribute in _OF_KIND:
                met = self._some_meets(
                    description.family,
                    description.target_uid,
                    each.attribute,
                    each.operator,
                    each.value,
                )
            else:
                met = not self._meeting(description.family, each).isdisjoint(
                    self._uids(description)
                )
            pointer = _pointer(description, number)
            if not met and pointer == _VERSION:
                found.append(
                    self._version_problem(description, f"known {who}", self._uids(description))
                )
            elif not met:
                found.append(self._constraint_problem(pointer, each, description, who))
        return found

    def _version_problem(
        self, description: JobDescription, who: str, uids: Collection[str]
    ) -> FieldError:
        versions = self._known_values(
            description.family, f"engine.{description.runtime}.version", uids
        )
        return FieldError(
            "/version_tag",
            f"no {who} has version {description.version_tag} of {description.runtime}",
            " or ".join(sorted(map(str, set(versions)))) or "no version_tag",
        )

    def _constraint_problem(
        self, pointer: str, each: Constraint, description: JobDescription, who: str
    ) -> FieldError:
        uids = self._uids(description)
        values = self._known_values(description.family, each.attribute, uids)
        if not values and _is_published(each.attribute):
            joined = self._joined()
            names = sorted(
                {name for uid in uids if uid in joined for name in joined[uid].attribute_names}
            )
            nobody = (
                f"no {who} publishes"
                if description.target_uid is None
                else f"{who} does not publish"
            )
            return FieldError(
                pointer, f"{nobody} {each.attribute}", _choice(each.attribute, sorted(names))
            )
        return FieldError(
            pointer,
            f"{_condition_text(each)} holds for no known {who}",
            f"what holds for {each.attribute} of {_listed(each.attribute, values)}",
        )

    def _any_meets(
        self, family: str, uid: str | None, attribute: str, operator: str, value: str
    ) -> bool:
        values = self._values(family, uid, attribute)
        return any(compare(each, operator, value) for each in values)

    def _values(self, family: str, uid: str | None, attribute: str) -> Collection[AttributeValue]:
        """Return an attribute's values of a family, or of one board of it."""
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
        """Return the newest offer, which is made anew only where boards changed."""
        stated, others = self._usable()
        with self._lock:
            if stated is not self._seen[0] or others is not self._seen[1]:
                self._offer, self._seen = Offer((*stated, *others), self._joined), (stated, others)
            return self._offer


def _supports(kind: _Kind, description: JobDescription) -> bool:
    return any(
        engine.name == description.runtime
        and description.benchmark_type.value in _offered_types(engine)
        for engine in kind.engines
    )


def _fits(kind: _Kind, description: JobDescription) -> bool:
    return (
        _supports(kind, description)
        and kind.ram_bytes >= description.ram
        and kind.storage_bytes >= description.storage
    )


def _wanted_provider(description: JobDescription) -> tuple[str, str | None]:
    """Return the parameter that states what an engine is to run on, and its value."""
    parameter = "device" if description.runtime == "openvino" else "execution_provider"
    wanted = description.parameters.get(parameter)
    return parameter, wanted if isinstance(wanted, str) else None


def _is_published(attribute: str) -> bool:
    """Return whether hosts publish the attribute once for a board, not from second to second."""
    return not (attribute == _UID or attribute in _OF_KIND or attribute.startswith(_CHANGING))


def _requirement(description: JobDescription, number: int) -> str:
    """Return one of all constraints as what a board does."""
    if _pointer(description, number) == _VERSION:
        return f"has version {description.version_tag} of {description.runtime}"
    return f"meets {_condition_text(description.all_constraints[number])}"


def _pointer(description: JobDescription, number: int) -> str:
    """Return the place in the description of one of all its constraints."""
    stated = len(description.constraints)
    if number < stated:
        return f"/constraints/{number}"
    return f"/{list(description.field_constraints)[number - stated]}"


def _condition_text(each: Constraint | Affinity) -> str:
    value = each.value[:100]
    if each.attribute in SIZES_IN_BYTES and value.isdigit():
        value = size_text(int(value))
    return f"{each.attribute} {each.operator} {value}".rstrip()


def _engines_of(kinds: Collection[_Kind]) -> set[str]:
    return {engine.name for kind in kinds for engine in kind.engines}


def _offered_types(engine: BoardEngine) -> frozenset[str]:
    """Return the types that an engine supports and whose meaning is known."""
    return engine.supported_types - engine.undeclared_types


def _declarations(description: JobDescription, kinds: Sequence[_Kind]) -> list[DeclaredType]:
    """Return the different declarations of the benchmark's type by its engine on these boards."""
    found = {
        engine.declared_type(description.benchmark_type.value)
        for kind in kinds
        for engine in kind.engines
        if engine.name == description.runtime
    }
    return sorted((each for each in found if each is not None), key=DeclaredType.as_text)


def _declaration_problems(description: JobDescription, kinds: Sequence[_Kind]) -> list[FieldError]:
    """Return what the first declaration of the type that is not satisfied does not accept."""
    has_dataset = description.dataset is not None or bool(description.dataset_urls)
    for declared in _declarations(description, kinds):
        found = [
            FieldError(f"/parameters/{each.name}", each.reason, each.accepted)
            for each in declared.parameter_problems(description.parameters)
        ]
        if has_dataset and declared.dataset == "none":
            where = "/dataset" if description.dataset is not None else "/dataset_urls"
            found.append(FieldError(where, f"{declared.name} takes none", "no dataset"))
        if not has_dataset and declared.dataset == "required":
            reason = f"{declared.name} needs a dataset"
            found.append(FieldError("/dataset", reason, "an uploaded file's name, or a URL"))
        if found:
            return found
    return []


def _size_problems(
    description: JobDescription, kinds: Sequence[_Kind], who: str
) -> list[FieldError]:
    return [
        FieldError(
            f"/{name}",
            f"{size_text(wanted)} is more than any known {who} has",
            f"at most {size_text(max_bytes)} ({max_bytes} bytes)",
        )
        for name, wanted, max_bytes in (
            ("ram", description.ram, max(kind.ram_bytes for kind in kinds)),
            ("storage", description.storage, max(kind.storage_bytes for kind in kinds)),
        )
        if wanted > max_bytes
    ]


def _thread_problems(
    description: JobDescription, kinds: Sequence[_Kind], who: str
) -> list[FieldError]:
    """More threads than any of the boards allows, where all of them state how many."""
    wanted, known = description.parameters.get("threads"), [kind.threads for kind in kinds]
    max_threads = max((each for each in known if each is not None), default=None)
    if (
        type(wanted) is not int
        or max_threads is None
        or None in known
        or 1 <= wanted <= max_threads
    ):
        return []
    reason = (
        f"{wanted} is more than any {who} allows"
        if wanted > max_threads
        else f"{wanted} is too few"
    )
    accepted = "1" if max_threads == 1 else f"1 to {max_threads}"
    return [FieldError("/parameters/threads", reason, accepted)]


def _cores_text(cores: int) -> str:
    return "1 core" if cores == 1 else f"{cores} cores"


def _listed(attribute: str, values: Collection[AttributeValue]) -> str:
    """Return an attribute's values, each once; memory is in bytes, as constraints compare it."""
    numbers = sorted({value for value in values if isinstance(value, int)})
    if numbers and attribute not in SIZES_IN_BYTES:
        return " or ".join(map(str, numbers))
    if numbers:
        return " or ".join(f"{value} (bytes: {size_text(value)})" for value in numbers)
    return " or ".join(sorted({repr(value) for value in values}))


def _choice(word: str, known: Collection[str]) -> str:
    listed = "one of " + ", ".join(known) if known else "none; no board is known"
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"{listed}; did you mean {close[0]}?" if close else listed
