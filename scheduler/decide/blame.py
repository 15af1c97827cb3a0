"""What explains a change of the level of a series, by facts, in one sentence with its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from edgeyard.devices.metrics import Metric
from edgeyard.scheduler.decide.change_points import MIN_SEGMENT, is_measured, level_shift


class Cause(StrEnum):
    """What may explain that the level of a series changed."""

    MODEL = "model"  # the content of its file
    ENGINE = "engine"  # its version
    FIRMWARE = "firmware"
    KERNEL = "kernel"
    RUNNER = "runner"  # its version
    GOVERNOR = "governor"
    BOARD = "board"  # itself, such as its cooling, its power supply or its storage
    UNKNOWN = "unknown"


ENVIRONMENT = (Cause.ENGINE, Cause.FIRMWARE, Cause.KERNEL, Cause.RUNNER, Cause.GOVERNOR)
"""Facts of a board, which operators change."""

_SHARE = 0.4
"""Part of the size of a change by which another series has to change, to have changed with it:
models do not depend equally on a board or on an engine."""

_WARMER_C = 5.0
"""A smaller difference of temperatures explains nothing."""


_TOO_FEW = f"fewer than {MIN_SEGMENT} results after the change in all, or too few before it"

NOT_COMPARED = "Both versions of the model were"
"""Beginning of the sentence that the old and the new version were not compared, and why."""


def lacks_results(not_tested: Iterable[str]) -> bool:
    """Return whether a cause was named without series that had too few results yet."""
    return any(_TOO_FEW in each for each in not_tested)


class Trial(StrEnum):
    """What the check of the old version of the model against the new one found."""

    NOT_RUN = "not run"
    DIFFERENT = "different"  # the new version accounts for the change
    EQUAL = "equal"  # both versions are equally fast now
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """By how much a level changed.

    Attributes:
        slowdown: Relative, positive for slower: the number grew where lower numbers are better, or
            fell where higher ones are.
        low: Lower end of its 95 % interval.
        high: Upper end; with ``low`` at -1 or infinity at an end: too few results for one.
        results: How many there are after it. One or two may be outliers: shifts show something
            together if they have `MIN_SEGMENT`.
    """

    slowdown: float
    low: float
    high: float
    results: int = MIN_SEGMENT

    @classmethod
    def between(
        cls, before: Sequence[float | None], after: Sequence[float | None], metric: Metric
    ) -> Shift | None:
        """Return the shift between results; None where there are too few of them."""
        found = level_shift(before, after)
        if found is None:
            return None
        size, *ends = (metric.slowdown(1 + each) for each in found)
        results = sum(map(is_measured, after))
        return cls(slowdown=size, low=min(ends), high=max(ends), results=results)

    @classmethod
    def unknown(cls) -> Shift:
        """Return the shift of a series without a result after the change."""
        return cls(slowdown=0.0, low=-math.inf, high=math.inf, results=0)

    @property
    def is_known(self) -> bool:
        """Whether there were enough results for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        sign, word = (1, "slower") if self.slowdown >= 0 else (-1, "faster")
        size, *ends = (100 * sign * each for each in (self.slowdown, self.low, self.high))
        low, high = sorted(ends)
        if not self.is_known:
            return f"{size:.1f} % {word} (too few results for an interval)"
        return f"{size:.1f} % {word} (95 %: {low:.1f} to {high:.1f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another series on the same board, with results before and after the change.

    Attributes:
        name: Its lineage.
        canary: Whether the lab runs its model to watch the board.
        shift: Of its level at that time.
    """

    name: str
    canary: bool
    shift: Shift


@dataclass(frozen=True, slots=True, kw_only=True)
class Sister:
    """The same lineage on another board, with results before and after a change of facts.

    Attributes:
        target_uid: The board; one on which facts changed at different times is there for each.
        shift: Of its level when these facts changed there, or at the time of the change here if
            none did.
        changes: Facts that changed there in the same way.
    """

    target_uid: str
    shift: Shift
    changes: frozenset[Cause] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredVersion:
    """A version between the old and the new one, as a check against the old one measured it.

    Attributes:
        sha256: The content of its model.
        benchmark_id: The first benchmark of it.
        differs: Whether it differs from the old version as the new one does; None: that was not
            decided.
        shift: Relative to the old version; None: too little was measured.
        reason: Why the check ended so.
    """

    sha256: str
    benchmark_id: str
    differs: bool | None
    shift: Shift | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about a change of the level of a series.

    Attributes:
        target_uid: Its board.
        is_canary: Whether it is itself the series of a canary.
        shift: By how much it changed.
        before: Facts of the last result of the old level; those that are not known are left out.
        after: Facts of the first result of the new level.
        trial: Outcome of the check of both versions of the model.
        trial_note: Why there was none, e.g. "the files of the old version were deleted".
        versions: Those between the old and the new version that a bisection measured, in the order
            of time.
        neighbours: Other series on the board.
        sisters: The same lineage on other boards.
        warmer_c: By how much the board was warmer after the change, degrees Celsius; None: not
            known.
    """

    target_uid: str
    shift: Shift
    before: Mapping[Cause, str]
    after: Mapping[Cause, str]
    trial: Trial = Trial.NOT_RUN
    trial_note: str = ""
    versions: Sequence[MeasuredVersion] = ()
    neighbours: Sequence[Neighbour] = ()
    sisters: Sequence[Sister] = ()
    warmer_c: float | None = None
    is_canary: bool = False

    @property
    def changes(self) -> tuple[Cause, ...]:
        """Facts that changed, as far as both are known; the model is not one if a check found both
        versions equal."""
        return tuple(
            each
            for each in (Cause.MODEL, *ENVIRONMENT)
            if self.before.get(each, "") != self.after.get(each, "")
            and self.before.get(each)
            and self.after.get(each)
            and not (each is Cause.MODEL and self.trial is Trial.EQUAL)
        )

    @property
    def known_sisters(self) -> Sequence[Sister]:
        """Return the other boards whose results show whether they changed."""
        return _proof([each for each in self.sisters if each.shift.is_known])

    @property
    def environment(self) -> tuple[Cause, ...]:
        """Facts of the board that changed."""
        return tuple(each for each in self.changes if each in ENVIRONMENT)

    def follows(self, shift: Shift) -> bool:
        """Return whether another level changed with this one, and in the same direction.

        A change that its own interval does not show is none.
        """
        is_shown = shift.is_known and not shift.low <= 0 <= shift.high
        return is_shown and shift.slowdown * self.shift.slowdown >= _SHARE * self.shift.slowdown**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What explains a change.

    Attributes:
        cause: The first that the facts support.
        sentence: Why, with the figures.
        not_tested: What could have shown another cause and was not tested, as sentences.
    """

    cause: Cause
    sentence: str
    not_tested: tuple[str, ...] = ()


def blame(evidence: Evidence) -> Blame:
    """Name the cause of a change of a series' level; the same facts name the same cause.

    The first of these rules that applies decides:

    1. A check measured both versions of the model on the board, and they differ: the model.
    2. The canaries on this board changed too (without canaries: the other series on it): the board,
       except where the next rule explains that as well.
    3. The same lineage changed on most other boards with the same change of engine, firmware,
       kernel, runner or governor, whenever they got it, and not on most boards without it: that
       change.
    4. Only the model's content changed: the model.
    5. Only one fact of the board changed, and no other board with this change contradicts: that
       fact. If no fact changed, no canary ran here and the lineage did not change on other boards:
       the board.
    """
    rules: Sequence[Callable[[Evidence], _Found]] = (
        _by_experiment,
        _by_board,
        _by_sisters,
        _by_model,
        _by_exclusion,
    )
    for rule in rules:
        if (found := rule(evidence)) is not None:
            cause, sentence = found
            return Blame(
                cause=cause, sentence=sentence, not_tested=tuple(_not_tested(evidence, cause))
            )
    return Blame(
        cause=Cause.UNKNOWN,
        sentence=_unexplained(evidence),
        not_tested=tuple(_not_tested(evidence, Cause.UNKNOWN)),
    )


def next_version(versions: Sequence[str], differs: Mapping[str, bool]) -> str | None:
    """Return which version a bisection measures next against the old one.

    A check of the old version against the last of these, the new one, found a difference already.
    So at most log2 of their number, rounded up, further checks find the first version that differs.

    Args:
        versions: Those after the old one in the order of time, at least one.
        differs: What the checks so far found: whether a version differs from the old one as the
            last one does. Versions that are no longer among ``versions`` have no effect.

    Returns:
        One of them; None: the first of those that were found to differ is known to be the first, or
        the last of all if none was.
    """
    last = len(versions) - 1
    high = next((at for at in range(last) if differs.get(versions[at]) is True), last)
    low = max((at + 1 for at in range(high) if differs.get(versions[at]) is False), default=0)
    return None if high == low else versions[(low + high) // 2]


_Found = tuple[Cause, str] | None


def _by_experiment(evidence: Evidence) -> _Found:
    if evidence.trial is not Trial.DIFFERENT:
        return None
    return Cause.MODEL, (
        f"The model explains it: its content changed{_from_to(evidence, Cause.MODEL)}, and "
        f"measured alternately on {evidence.target_uid}, the new version is "
        f"{evidence.shift}{_bisected(evidence)}{_also(evidence)}."
    )


def _bisected(evidence: Evidence) -> str:
    """Name the first version that differs, with the last one before it that does not."""
    first = next((each for each in evidence.versions if each.differs), None)
    until = len(evidence.versions) if first is None else evidence.versions.index(first)
    equal = [each for each in evidence.versions[:until] if each.differs is False]
    if first is not None:
        found = f"; the first version that differs is {_figures(first)}"
    elif equal:
        found = "; it is the first version that differs"
    else:
        return ""
    return found + (f", and the last one that does not is {_figures(equal[-1])}" if equal else "")


def _figures(version: MeasuredVersion) -> str:
    what = f"{version.sha256[:12]} ({version.benchmark_id})"
    return f"{what}, {version.shift}" if version.shift is not None else what


def _by_board(evidence: Evidence) -> _Found:
    watching = _watching(evidence)
    moved = [each for each in watching if evidence.follows(each.shift)]
    if 2 * len(moved) <= len(watching) or not _proof(moved):
        return None
    if (shared := _by_sisters(evidence)) is not None:
        return shared
    what = "canaries" if moved[0].canary else "other series"
    names = ", ".join(f"{each.name} {each.shift}" for each in moved)
    changed = [_changed(evidence, each) for each in evidence.environment]
    if evidence.warmer_c is not None and abs(evidence.warmer_c) >= _WARMER_C:
        word = "warmer" if evidence.warmer_c > 0 else "colder"
        changed.append(f"it was {abs(evidence.warmer_c):.0f} °C {word}")
    meanwhile = f"; at the same time {', '.join(changed)}" if changed else ""
    return Cause.BOARD, (
        f"The board explains it: while this series became {evidence.shift}, {len(moved)} of "
        f"{len(watching)} {what} on {evidence.target_uid} changed too, {names}{meanwhile}."
    )


def _by_sisters(evidence: Evidence) -> _Found:
    """Name a fact that changed on other boards too, where the lineage changed as here."""
    for cause in evidence.environment:
        same, other = _witnesses(evidence, cause)
        moved = [each for each in same if evidence.follows(each.shift)]
        elsewhere = [each for each in other if evidence.follows(each.shift)]
        if 2 * len(moved) <= len(same) or (other and 2 * len(elsewhere) > len(other)):
            continue
        if not _proof(moved):
            continue
        without = f", and on {len(elsewhere)} of {len(other)} boards without it" if other else ""
        figures = ", ".join(f"{each.target_uid} {each.shift}" for each in moved[:3])
        return cause, (
            f"The {cause} explains it: {_changed(evidence, cause)}; the model became "
            f"{evidence.shift} here, and changed on {len(moved)} of {len(same)} other boards with "
            f"the same change ({figures}){without}."
        )
    return None


def _by_model(evidence: Evidence) -> _Found:
    if Cause.MODEL not in evidence.changes:
        return None
    versions = f"The model explains it: its content changed{_from_to(evidence, Cause.MODEL)}"
    if not evidence.environment:
        return Cause.MODEL, (
            f"{versions}, nothing else that is recorded did, and it became {evidence.shift}."
        )
    same = [
        each
        for each in evidence.known_sisters
        if Cause.MODEL in each.changes and not each.changes.intersection(evidence.environment)
    ]
    moved = [each for each in same if evidence.follows(each.shift)]
    if 2 * len(moved) <= len(same) or not _proof(moved):
        return None
    others = ", ".join(evidence.environment)
    return Cause.MODEL, (
        f"{versions}; it became {evidence.shift} here, and changed on {len(moved)} of {len(same)} "
        f"other boards with this version and without the change of {others}."
    )


def _by_exclusion(evidence: Evidence) -> _Found:
    if Cause.MODEL in evidence.changes:
        return None
    left = [each for each in evidence.environment if not _is_contradicted(evidence, each)]
    if len(left) == 1:
        changed = _changed(evidence, left[0])
        return left[0], (
            f"The {left[0]} explains it: {changed}, the model became {evidence.shift}, and nothing "
            f"else that is recorded changed that other boards do not contradict."
        )
    moved = [each for each in evidence.known_sisters if evidence.follows(each.shift)]
    alone = evidence.known_sisters and 2 * len(moved) < len(evidence.known_sisters)
    if not left and not evidence.neighbours and alone:
        return Cause.BOARD, (
            f"The board explains it: the model became {evidence.shift} here, and changed on "
            f"{len(moved)} of {len(evidence.known_sisters)} other boards; its content is the same."
        )
    return None


def _unexplained(evidence: Evidence) -> str:
    what = f"Nothing explains that the model is {evidence.shift} on {evidence.target_uid}"
    if len(evidence.changes) > 1:
        return f"{what} alone: {', '.join(evidence.changes)} changed at the same time."
    watching = _watching(evidence)
    moved = sum(evidence.follows(each.shift) for each in watching)
    also = sum(evidence.follows(each.shift) for each in evidence.known_sisters)
    seen = [
        f"{moved} of {len(watching)} other series on the board changed too" if watching else "",
        f"{also} of {len(evidence.known_sisters)} other boards changed too"
        if evidence.known_sisters
        else "",
    ]
    known = "; ".join(filter(None, seen))
    return f"{what}: no fact that is recorded changed{f'; {known}' if known else ''}."


def _not_tested(evidence: Evidence, cause: Cause) -> list[str]:
    found = []
    model = evidence.before.get(Cause.MODEL) != evidence.after.get(Cause.MODEL)
    if model and evidence.trial in (Trial.NOT_RUN, Trial.UNDECIDED):
        why = f": {evidence.trial_note}" if evidence.trial_note else ""
        how = "not measured against each other"
        if evidence.trial is Trial.UNDECIDED:
            how = "measured against each other without a decision"
        found.append(f"{NOT_COMPARED} {how}{why}.")
    found.extend(
        f"Whether version {each.sha256[:12]} ({each.benchmark_id}) differs was not decided: "
        f"{each.reason}."
        for each in evidence.versions
        if each.differs is None
    )
    if cause is not Cause.MODEL or evidence.trial is not Trial.DIFFERENT:
        found.extend(_too_few(evidence))
        if not any(each.canary for each in evidence.neighbours):
            which = "No other canary" if evidence.is_canary else "No canary"
            found.append(f"{which} ran on {evidence.target_uid} before and after the change.")
        for each in evidence.environment:
            usable = _usable(evidence, evidence.sisters)
            if not any(each in sister.changes for sister in usable):
                found.append(f"No other board with the same change of {each} ran the model.")
        if not evidence.environment and not evidence.sisters:
            found.append("No other board ran the model before and after the change.")
    missing = [
        each
        for each in ENVIRONMENT
        if not evidence.before.get(each) or not evidence.after.get(each)
    ]
    if missing:
        found.append(f"Not known before and after the change: {', '.join(missing)}.")
    return found


def _too_few(evidence: Evidence) -> Iterator[str]:
    """Yield which series show nothing because of too few results, of those that could."""
    here = [each for each in evidence.neighbours if each.canary] or list(evidence.neighbours)
    known = [each for each in here if each.shift.is_known]
    moved = [each for each in known if evidence.follows(each.shift)]
    if here and (not _proof(known) or (2 * len(moved) > len(known) and not _proof(moved))):
        yield f"{', '.join(each.name for each in here)} had {_TOO_FEW}."
    boards = dict.fromkeys(each.target_uid for each in evidence.sisters)
    if boards and not evidence.known_sisters:
        yield f"On other boards ({', '.join(boards)}) the model had {_TOO_FEW}."
        return
    for cause in evidence.environment:
        usable = _usable(evidence, evidence.sisters)
        same = [each for each in usable if cause in each.changes]
        if same and not _witnesses(evidence, cause)[0]:
            yield f"On other boards with the same change of {cause} the model had {_TOO_FEW}."


_T = TypeVar("_T", Neighbour, Sister)


def _proof(group: Sequence[_T]) -> Sequence[_T]:
    """Return series that have enough results together to show whether they changed, or none."""
    return group if sum(each.shift.results for each in group) >= MIN_SEGMENT else ()


def _watching(evidence: Evidence) -> Sequence[Neighbour]:
    """Return the canaries of the board; its other series where these show nothing."""
    known = [each for each in evidence.neighbours if each.shift.is_known]
    canaries = _proof([each for each in known if each.canary])
    return canaries or _proof([each for each in known if not each.canary])


def _witnesses(evidence: Evidence, cause: Cause) -> tuple[Sequence[Sister], Sequence[Sister]]:
    """Return the other boards with the same change, and those without it.

    While the model is not excluded, boards with the same new version show nothing about the rest.
    """
    usable = _usable(evidence, evidence.known_sisters)
    same = [each for each in usable if cause in each.changes]
    with_it = {each.target_uid for each in evidence.known_sisters if cause in each.changes}
    other = [each for each in usable if each.target_uid not in with_it]
    return _proof(same), _proof(other)


def _usable(evidence: Evidence, sisters: Sequence[Sister]) -> list[Sister]:
    """Return the boards that show something about other facts than the model."""
    return [
        each
        for each in sisters
        if Cause.MODEL not in evidence.changes or Cause.MODEL not in each.changes
    ]


def _is_contradicted(evidence: Evidence, cause: Cause) -> bool:
    same, _ = _witnesses(evidence, cause)
    return bool(same) and 2 * sum(evidence.follows(each.shift) for each in same) <= len(same)


def _also(evidence: Evidence) -> str:
    watching = _watching(evidence)
    moved = sum(evidence.follows(each.shift) for each in watching)
    return f"; {moved} of {len(watching)} other series on the board changed too" if moved else ""


def _changed(evidence: Evidence, cause: Cause) -> str:
    return f"its {cause} changed{_from_to(evidence, cause)}"


def _from_to(evidence: Evidence, cause: Cause) -> str:
    before, after = evidence.before.get(cause), evidence.after.get(cause)
    if not before or not after or before == after:
        return ""
    if cause is Cause.MODEL:
        before, after = before[:12], after[:12]
    return f" from {before} to {after}"
