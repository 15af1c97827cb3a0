"""What a simulation of the whole service consists of: benchmarks, and what goes wrong when.

A `FaultSchedule` is a value: it is written as JSON, and the same value gives the same run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """Kinds of faults, and of actions of users and operators."""

    CRASH = "crash"  # the server dies between two steps
    CRASH_BEFORE_COMMIT = "crash_before_commit"
    CRASH_AFTER_COMMIT = "crash_after_commit"
    CRASH_BEFORE_CALL = "crash_before_call"  # of the cluster
    CRASH_AFTER_CALL = "crash_after_call"
    STALL = "stall"  # the server's process is stopped for a while between two steps
    HANG_BEFORE_WRITE = "hang_before_write"  # the same in the middle of a step
    HANG_AFTER_COMMIT = "hang_after_commit"
    HANG_BEFORE_CALL = "hang_before_call"
    HANG_AFTER_CALL = "hang_after_call"
    OLDER_BACKUP = "older_backup"  # the store is copied, and replaced by the copy later
    CLOCK_SET = "clock_set"  # for a while
    CLOCK_SET_FOR_GOOD = "clock_set_for_good"
    CLUSTER_AWAY = "cluster_away"
    ANSWERS_LOST = "answers_lost"
    LATE_REGISTRATION = "late_registration"
    STALE_ANSWERS = "stale_answers"
    HINTS_LOST = "hints_lost"
    HINTS_DOUBLED = "hints_doubled"
    HINTS_LATE = "hints_late"
    HINTS_REVERSED = "hints_reversed"
    JOB_FORGOTTEN = "job_forgotten"
    CLUSTER_RESET = "cluster_reset"  # it forgets everything
    BOARD_FAILS = "board_fails"
    BOARD_HANGS = "board_hangs"
    HOST_FAILS = "host_fails"
    DISK_FULL = "disk_full"
    STORE_AWAY = "store_away"
    CANCEL = "cancel"
    LEASE = "lease"
    DRAIN = "drain"
    PREEMPT = "preempt"  # by an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        at_s: Virtual time.
        for_s: How long it lasts, where it lasts.
        pick: Which board, host, benchmark, job, commit or server: a place in the list of those
            that there are, counted round. Of servers the leader stands there twice.
        by_s: By how much a clock is set.
    """

    at_s: float
    kind: FaultKind
    for_s: float = 30.0
    pick: int = 0
    by_s: float = 0.0


class TaskEnd(StrEnum):
    """How the task of one attempt ends."""

    WELL = "well"
    BOARD_FAULT = "board_fault"  # it reports a failure that is tried again
    MODEL_FAULT = "model_fault"  # it reports one that is not
    CRASH = "crash"  # it ends without a report
    TOO_LONG = "too_long"  # it does not end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A benchmark.

    Attributes:
        at_s: Virtual time of its submission; the user tries again where the server is away.
        ends: How the tasks of its attempts end, the first first; further ones end well.
        pin: Board that it names, as a place in the list of boards, counted round; None: any.
        start_s: Earliest start after submission; None: at once.
        urgent: It preempts others.
    """

    at_s: float
    run_s: float = 20.0
    user: int = 0
    ends: tuple[TaskEnd, ...] = ()
    max_retries: int = 1
    pin: int | None = None
    start_s: float | None = None
    deadline_s: float | None = None
    queue_timeout_s: float | None = None
    priority: int = 5
    urgent: bool = False
    binding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSchedule:
    """A simulation with faults.

    Attributes:
        seed: Of the order in which the engine's steps are taken.
        servers: So many share the store; one leads.
        hosts: Boards on each host.
        sharing: Boards of a host share cores.
        credits: Of each user; None: unlimited.
    """

    seed: int = 0
    servers: int = 1
    hosts: tuple[int, ...] = (2, 1)
    sharing: bool = False
    credits: float | None = None
    submissions: tuple[Submission, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def quiet_s(self) -> float:
        """Virtual time from which on nothing new goes wrong."""
        ends = [each.at_s + each.for_s for each in self.faults]
        return max([0.0, *ends, *(each.at_s for each in self.submissions)])

    def to_json(self) -> str:
        """Return it in one line, without what is as by default."""
        plain = _without_defaults(asdict(self), asdict(FaultSchedule()))
        plain["submissions"] = [
            _without_defaults(asdict(each), asdict(Submission(at_s=-1.0)))
            for each in self.submissions
        ]
        plain["faults"] = [
            _without_defaults(asdict(each), asdict(Fault(at_s=-1.0, kind=FaultKind.CRASH)))
            | {"kind": each.kind}
            for each in self.faults
        ]
        return json.dumps(plain)


def schedule_from_json(text: str) -> FaultSchedule:
    """Read what `FaultSchedule.to_json` has written.

    Raises:
        ValueError: It is no schedule.
        TypeError: A field is unknown.
    """
    plain = json.loads(text)
    submissions = tuple(
        Submission(**{**each, "ends": tuple(TaskEnd(end) for end in each.get("ends", ()))})
        for each in plain.pop("submissions", ())
    )
    faults = tuple(
        Fault(**{**each, "kind": FaultKind(each["kind"])}) for each in plain.pop("faults", ())
    )
    hosts = tuple(plain.pop("hosts", FaultSchedule().hosts))
    return FaultSchedule(**plain, hosts=hosts, submissions=submissions, faults=faults)


def _without_defaults(plain: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if value != defaults[name]}
