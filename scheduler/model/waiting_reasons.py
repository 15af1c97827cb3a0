"""Why benchmarks wait: every reason that Edgeyard gives, with its code and its sentence.

To add one: its code in `WaitingReason`, and either a function here that is called where the reason
is found, or a row of `BOARD_REFUSALS` where a filter refuses boards for it. The same state gives
the same words: nothing that merely passes with time (an age, a countdown) is stated to the second,
so that a stored reason changes only when something else did.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from edgeyard.scheduler.model.benchmark import IfUnavailable, WaitingReason, WaitReason
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.times import minute_text, time_text

_COARSE = tuple(step * 10**power for power in range(1, 7) for step in (1, 2, 5))
_COARSE_AGES_S = (10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRefusal:
    """What a reason means where a filter refuses a board for it and may accept the board later.

    Attributes:
        state: Describes such a board in a few words: "3 busy, 2 offline".
        unavailable: Whether a benchmark that is pinned to such a board may get another one after
            its grace time.
        unstated: Whether the job does not state the condition. The cluster could choose such a
            board by itself, so that the job gets a list of the boards that are allowed.
    """

    state: str
    unavailable: bool = False
    unstated: bool = False


BOARD_REFUSALS: Mapping[WaitingReason, BoardRefusal] = {
    WaitingReason.BOARD_BUSY: BoardRefusal(state="busy"),
    WaitingReason.BOARD_OFFLINE: BoardRefusal(state="offline", unavailable=True),
    WaitingReason.BOARD_UNHEALTHY: BoardRefusal(state="unhealthy", unavailable=True, unstated=True),
    WaitingReason.BOARD_DRAINED: BoardRefusal(state="drained", unavailable=True, unstated=True),
    WaitingReason.RESERVED: BoardRefusal(state="reserved", unavailable=True, unstated=True),
    WaitingReason.UNKNOWN_BOARD: BoardRefusal(
        state="not in the inventory", unavailable=True, unstated=True
    ),
    WaitingReason.CLUSTER_UNREACHABLE: BoardRefusal(state="without recent news"),
    WaitingReason.CLUSTER_CONSTRAINT: BoardRefusal(state="not meeting a constraint now"),
    WaitingReason.FILTER_FAILED: BoardRefusal(
        state="not judged, because a filter failed", unstated=True
    ),
    WaitingReason.DEADLINE_UNREACHABLE: BoardRefusal(state="predicted to be too slow"),
    WaitingReason.BUDGET: BoardRefusal(state="predicted to cost too much", unstated=True),
    WaitingReason.QUOTA: BoardRefusal(state="over your account's limit", unstated=True),
}
"""The reasons for which filters refuse boards that they may accept later."""


_AS_REPORTED = frozenset(
    {
        *(WaitingReason.PRIORITY, WaitingReason.BOARD_BUSY, WaitingReason.FASTER_BOARD),
        *(WaitingReason.QUIET_HOST, WaitingReason.BOARD_OFFLINE, WaitingReason.BOARD_UNHEALTHY),
        *(WaitingReason.UNKNOWN_BOARD, WaitingReason.CLUSTER_CONSTRAINT),
    }
)
"""Reasons that are what the cluster has reported, and true only as long as it reports."""


def stopped(what: str, by: str | None, reason: str | None) -> str:
    """Return who stopped something, and why: "cancelled by ann: the wrong model".

    Args:
        what: Was done.
        by: Who did it; None: Edgeyard, or it is not known.
        reason: In their words; None or "": they did not state it.
    """
    return what + (f" by {by}" if by else "") + (f": {reason}" if reason else "")


def held(by: str | None, reason: str | None) -> WaitReason:
    """Return the reason of a benchmark that its owner or an operator holds; as `stopped`."""
    return WaitReason(
        reason=WaitingReason.HELD,
        sentence=f"{stopped('held', by, reason)}; its owner or an operator releases it: "
        "edgeyard release ID",
    )


def fetching(names: Sequence[str]) -> WaitReason:
    """Return the reason of a benchmark whose files are being downloaded."""
    return WaitReason(
        reason=WaitingReason.FETCHING, sentence=f"{', '.join(names)} is being downloaded"
    )


def own_policy() -> WaitReason:
    """Return the reason that a policy sees for a benchmark which another policy decides."""
    return WaitReason(
        reason=WaitingReason.OWN_POLICY,
        sentence="a policy of its own decides it, before all others",
    )


def starts_later(at: datetime) -> WaitReason:
    """Return the reason of a benchmark whose start time has not come."""
    return WaitReason(
        reason=WaitingReason.START_TIME, sentence=f"it starts at {time_text(at)} at the earliest"
    )


def lost_too_often(losses: int, at: datetime) -> WaitReason:
    """Return the reason of a benchmark that backs off after losses with the server or its host."""
    return WaitReason(
        reason=WaitingReason.START_TIME,
        sentence=f"the server or its host died {losses} times in a row while it ran; "
        f"it is tried again at {time_text(at)}",
    )


def pinned_board_failed(target_uid: str | None, at: datetime) -> WaitReason:
    """Return the reason of a benchmark that backs off on the one board that may run it."""
    return WaitReason(
        reason=WaitingReason.START_TIME,
        sentence=f"its last attempt on {target_uid} failed; it is tried there again at "
        f"{time_text(at)}",
    )


def only_free_board_failed(target_uid: str, at: datetime) -> WaitReason:
    """Return the reason of a benchmark for which only a board is free that has just failed it."""
    return WaitReason(
        reason=WaitingReason.START_TIME,
        sentence=f"its last attempt on {target_uid} failed, and no other board is free: "
        f"it is tried there again at {time_text(at)}",
    )


def gang_incomplete(size: int, found: int) -> WaitReason:
    """Return the reason of a benchmark whose gang is not whole in the queue."""
    return WaitReason(
        reason=WaitingReason.HELD,
        sentence=f"it starts together with {size - 1} others, of which {size - found} "
        f"{'is' if size - found == 1 else 'are'} not in the queue",
    )


def gang_not_ready(size: int, benchmark_id: str, why: WaitReason | None) -> WaitReason:
    """Return the reason of a benchmark that starts together with one that may not start yet.

    Args:
        size: How many benchmarks its gang has.
        benchmark_id: The one that may not start.
        why: Why that one waits; None: its start time has not come.
    """
    return WaitReason(
        reason=WaitingReason.START_TIME if why is None else why.reason,
        sentence=f"it starts together with {size - 1} others, and {benchmark_id} waits"
        + (" for its start time" if why is None else f": {why.sentence}"),
    )


def gang_boards(size: int, found: int, *, held: bool) -> WaitReason:
    """Return the reason of a benchmark whose gang lacks boards.

    Args:
        size: Boards that the gang needs.
        found: Boards that are free for it.
        held: Whether these are held for it, because it has waited for ``guard_s``.
    """
    free = f"{found} {'is' if found == 1 else 'are'} {'held for it' if held else 'free'}"
    return WaitReason(
        reason=WaitingReason.BOARD_BUSY,
        sentence=f"it needs {size} boards at the same time, of which {free}",
    )


def only_board_of_gang(target_uid: str) -> WaitReason:
    """Return the reason of a benchmark for which only a board is free that its gang has used."""
    return WaitReason(
        reason=WaitingReason.BOARD_BUSY,
        sentence=f"only {target_uid} is free, on which another benchmark of its gang runs or ran",
    )


def quota(max_running: int, group_id: str | None = None) -> WaitReason:
    """Return the reason of a benchmark whose user has as many on boards as the account allows.

    Args:
        max_running: How many are allowed.
        group_id: The group whose members share this limit; None: it is the user's own.
    """
    number = {0: "no benchmark", 1: "1 benchmark"}.get(max_running, f"{max_running} benchmarks")
    whose = "your account" if group_id is None else f"your group {group_id}"
    more = "" if group_id is None else ", or for an operator to allow the group more"
    return WaitReason(
        reason=WaitingReason.QUOTA,
        sentence=f"{whose} may have {number} on boards at once: waits for one to end{more}",
    )


def budget(max_credits: float, group_id: str | None = None) -> WaitReason:
    """Return the reason of a benchmark that may cost more credits than its user has left.

    Args:
        max_credits: What it may cost.
        group_id: The group whose members share the credits; None: they are the user's own.
    """
    whose = "your account" if group_id is None else f"your group {group_id}"
    others = "yours" if group_id is None else "the group"
    return WaitReason(
        reason=WaitingReason.BUDGET,
        sentence=f"it may cost {max_credits:g} credits, and {whose} has fewer left: waits for "
        f"others of {others} to end, or for more credits; a shorter maximum run time reserves less",
    )


def no_known_board() -> WaitReason:
    """Return the reason where the lab has no board at all."""
    return WaitReason(reason=WaitingReason.NO_SUCH_FAMILY, sentence="no board is known")


def infeasible_sentence(target_uid: str, phrase: str, others: int) -> str:
    """Return the words for a benchmark that no known board could ever run."""
    plural = "" if others == 1 else "s"
    tail = f"; {others} other{plural} fit no better" if others else ""
    return f"no known board can run it: {target_uid} {phrase}{tail}"


def infeasible(reason: WaitingReason, sentence: str) -> WaitReason:
    """Return the reason of a benchmark that no known board could ever run.

    Args:
        reason: What the nearest board lacks.
        sentence: From the filter that refused it, or `infeasible_sentence`.
    """
    return WaitReason(reason=reason, sentence=sentence)


def failed_filter(fault: str) -> WaitReason:
    """Return the reason of a benchmark that a failed filter would have to judge."""
    return WaitReason(
        reason=WaitingReason.FILTER_FAILED,
        sentence=f"filter {fault}; nothing that it would judge is placed until an operator repairs "
        "it or takes it out of the policy",
    )


def refused_board(reason: WaitingReason, target_uid: str, phrase: str) -> WaitReason:
    """Return the reason of a benchmark that one board alone could run, and not now."""
    if reason is WaitingReason.BOARD_BUSY:
        return WaitReason(reason=reason, sentence=f"its board {target_uid} {phrase}")
    return WaitReason(reason=reason, sentence=f"waits for {target_uid}, which {phrase}")


def refused_boards(
    reason: WaitingReason,
    target_uid: str,
    phrase: str,
    boards: int,
    others: Mapping[WaitingReason, int],
) -> WaitReason:
    """Return the reason of a benchmark that several boards could run, and none now.

    Args:
        reason: Why the nearest board refuses it.
        target_uid: The nearest board.
        phrase: What is wrong with that one, to follow its name.
        boards: How many boards could run it.
        others: How many of the others refuse it for which reason.
    """
    counts: dict[str, int] = {}
    for other, count in others.items():
        word = BOARD_REFUSALS[other].state if other in BOARD_REFUSALS else "refused"
        counts[word] = counts.get(word, 0) + count
    states = ", ".join(f"{_about(count)} {word}" for word, count in sorted(counts.items()))
    return WaitReason(
        reason=reason,
        sentence=f"waits for one of {boards} boards: {target_uid} {phrase}; others: {states}",
    )


def others_first(target_uid: str, boards: int, ahead: int, *, busy: bool) -> WaitReason:
    """Return the reason of a benchmark that others come before in the queue.

    Args:
        target_uid: A board that could run it.
        boards: How many could.
        ahead: How many benchmarks come first, from `coarse`.
        busy: All of these boards are busy.
    """
    which = f"its board {target_uid}" if boards == 1 else f"its {boards} boards"
    if not ahead:
        # No earlier benchmark wants the same boards: cores that they share keep it from them.
        sentence = f"a benchmark ahead in the queue uses the cores of {which}"
    else:
        verb, noun = ("comes", "benchmark") if ahead == 1 else ("come", "benchmarks")
        first = f"{_about(ahead)} {noun} {verb} first"
        state = f"{which} {'is' if boards == 1 else 'are'} busy"
        sentence = f"{first}; {state}" if busy else f"{first} for {which}"
    return WaitReason(reason=WaitingReason.PRIORITY, sentence=sentence)


def preemption_under_way(target_uid: str) -> WaitReason:
    """Return the reason of a benchmark for which a less urgent one is being stopped."""
    return WaitReason(
        reason=WaitingReason.BOARD_BUSY,
        sentence=f"waits for {target_uid}: the less urgent benchmark there is being preempted",
    )


def own_reservation(target_uid: str, start: datetime) -> WaitReason:
    """Return the reason of a benchmark that has a reservation which begins later."""
    minute = start.astimezone(UTC) + timedelta(seconds=59)
    return WaitReason(
        reason=WaitingReason.RESERVED,
        by_reservation=True,
        sentence=f"it has waited long enough to have a reservation: {target_uid} from "
        f"{minute_text(minute)} on at the latest, after what runs or is reserved there",
    )


def reserved_board(target_uid: str, start: datetime, lease: Lease | None) -> WaitReason:
    """Return the reason of a benchmark that might run into the reservation of a free board.

    Args:
        target_uid: The board.
        start: When the reservation begins.
        lease: The lease that begins then; None: it is a benchmark's reservation.
    """
    why = f" ({lease.reason})" if lease is not None and lease.reason else ""
    return WaitReason(
        reason=WaitingReason.RESERVED,
        by_reservation=lease is None,
        sentence=f"{target_uid} is reserved from {time_text(start)} on{why}, "
        "and this run might not be over by then",
    )


def kept_for_others(target_uid: str) -> WaitReason:
    """Return the reason of a canary whose board is reserved for another benchmark."""
    return WaitReason(
        reason=WaitingReason.RESERVED, sentence=f"{target_uid} is reserved for another benchmark"
    )


def held_for_board(
    target_uid: str, free_at: datetime, sooner_s: float, free_uid: str
) -> WaitReason:
    """Return the reason of a benchmark that a mapping heuristic holds back for a busy board.

    Args:
        target_uid: The board that it waits for.
        free_at: When that is expected to come free for it.
        sooner_s: By how many seconds it is expected to end sooner there than on the free board;
            0 or less: it is the quicker board, but it would end no sooner there.
        free_uid: A board that is free now.
    """
    minute = _minute(free_at)
    if sooner_s > 0:
        compared = f"ends {_about_s(sooner_s)} sooner there than on {free_uid}, which is free"
    else:
        compared = f"runs in less time there than on {free_uid}, which is free"
    return WaitReason(
        reason=WaitingReason.FASTER_BOARD,
        sentence=f"waits for {target_uid}, expected free at {minute_text(minute)}: {compared}",
    )


def held_by_plan(
    reason: WaitingReason, target_uid: str, start: datetime, gain_s: float, free_uid: str
) -> WaitReason:
    """Return the reason of a benchmark that the plan by expected cost holds back.

    Args:
        reason: ``faster_board``, ``quiet_host`` or ``cheap_hour``.
        target_uid: The board that it is planned for.
        start: When it is expected to start there.
        gain_s: By how many seconds its expected cost is less than on the free board now.
        free_uid: The best board that is free now.
    """
    at = minute_text(_minute(start))
    match reason:
        case WaitingReason.QUIET_HOST:
            until = f"waits until {at} for {target_uid}, when its host is expected to be quiet"
        case WaitingReason.CHEAP_HOUR:
            until = f"waits until {at} for {target_uid}, when credits cost less"
        case _:
            until = f"waits for {target_uid}, expected free at {at}"
    now = "now" if free_uid == target_uid else f"on {free_uid}, which is free"
    sentence = f"{until}: costs {_about_s(gain_s)} less than {now}"
    return WaitReason(reason=reason, sentence=sentence)


def cluster_unreachable(age_s: float, answered_at: datetime | None, max_age_s: float) -> WaitReason:
    """Return the reason where what is known of the boards is too old to decide on.

    Args:
        age_s: Age of the last answer.
        answered_at: When that came; None: there was none.
        max_age_s: Oldest answer that is decided on.
    """
    if answered_at is None:
        state = "the cluster has not answered yet"
    else:
        coarse_s = max((step for step in _COARSE_AGES_S if step <= age_s), default=0)
        state = (
            f"the last answer of the cluster is more than {_duration(coarse_s)} old "
            f"(of {time_text(answered_at)})"
        )
    return WaitReason(
        reason=WaitingReason.CLUSTER_UNREACHABLE,
        sentence=f"{state}; nothing is placed on knowledge older than {max_age_s:g} s",
    )


def while_silent(waiting: WaitReason, problem: str) -> WaitReason:
    """Return the reason of a benchmark while the cluster does not answer.

    Args:
        waiting: As it was decided by the last answer.
        problem: Why the cluster does not answer; "": it does.
    """
    if not problem or waiting.reason not in _AS_REPORTED:
        return waiting
    return WaitReason(
        reason=WaitingReason.CLUSTER_UNREACHABLE,
        sentence=f"the cluster does not answer: {problem}; as it last answered: {waiting.sentence}",
    )


def not_started(reason: str) -> WaitReason:
    """Return the reason of a benchmark whose job the cluster has and does not start.

    Args:
        reason: In the cluster's words.
    """
    return WaitReason(reason=WaitingReason.CLUSTER_CONSTRAINT, sentence=reason)


def with_pin_outlook(
    waiting: WaitReason, if_unavailable: IfUnavailable, grace_s: float, *, notified: bool
) -> WaitReason:
    """Return the reason of a benchmark whose pinned board is unavailable, and what comes of it.

    Args:
        waiting: Why it waits.
        if_unavailable: What its owner wants after the grace time.
        grace_s: The grace time, seconds.
        notified: The grace time is over and the event is recorded.
    """
    pinned = "it stays pinned to this board, as its description demands"
    if if_unavailable is IfUnavailable.RESCHEDULE:
        outlook = (
            f"after {grace_s:g} s another board that fits may run it, as its description allows"
        )
    elif notified:
        outlook = f"{pinned}; the server has reported that the board is unavailable"
    else:
        outlook = f"{pinned}; after {grace_s:g} s the server reports that the board is unavailable"
    return replace(waiting, sentence=f"{waiting.sentence}; {outlook}")


def coarse(count: int) -> int:
    """Return a count that does not change with every benchmark that ends: exact below 10."""
    return _COARSE[bisect_right(_COARSE, count) - 1] if count >= _COARSE[0] else count


def _about(count: int) -> str:
    return str(count) if count < _COARSE[0] else f"at least {coarse(count):,}"


def _about_s(seconds: float) -> str:
    """Return a duration that does not change with every second that passes."""
    coarse_s = max((step for step in _COARSE_AGES_S if step <= seconds), default=0)
    return f"at least {_duration(coarse_s)}" if coarse_s else f"up to {_COARSE_AGES_S[0]} s"


def _minute(at: datetime) -> datetime:
    """Return the nearest full minute: what is expected shifts by seconds from cycle to cycle."""
    return (at.astimezone(UTC) + timedelta(seconds=30)).replace(second=0, microsecond=0)


def _duration(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
