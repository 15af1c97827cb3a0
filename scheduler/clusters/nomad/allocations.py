"""What Nomad says of a job and its allocations → where the job is, and why it failed."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from edgeyard.scheduler.clusters.exits import failure_of
from edgeyard.scheduler.clusters.nomad.nodes import devices_of
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory
from edgeyard.scheduler.model.times import time_text
from edgeyard.scheduler.ports import JobRun, JobState

Json = Mapping[str, object]

MISSED_START_S = 60.0
"""A start that is overdue by this time never happens: Nomad skips missed starts."""

CLOCK_TOLERANCE_S = 2.0
"""Smaller offsets of a host's clock are ignored, because none can be measured."""

_MAX_OFFSET_S = 1e9
"""Larger offsets are rejected as wrong measurements."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIVE = frozenset({"pending", "running", "unknown"})  # client statuses
_SHOWN_CHARACTERS = 300

# Errors of Nomad's driver for Docker, the first that fits. A registry that hides what it has from
# strangers denies access to images that are missing.
_DRIVER_ADVICE: Sequence[tuple[Sequence[str], str]] = (
    (("cannot connect to the docker daemon",), "starts Docker there"),
    (
        ("docker privileged mode is disabled",),
        "sets docker_privileged = false, or allow_privileged of Nomad's Docker plugin there",
    ),
    (
        ("unauthorized", "no basic auth credentials", "authentication required", "access denied"),
        "corrects docker_auth_username, docker_auth_password and docker_image",
    ),
    (("manifest unknown", "no such image"), "corrects docker_image, or loads the image there"),
    (("failed to pull",), "checks docker_image, and that the host reaches its registry"),
)

# Where the task is before it runs, by its last event.
_STEPS: Mapping[str, str] = {
    "Received": "on its way to its host",
    "Task Setup": "being set up on its host",
    "Downloading Artifacts": "downloading its files",
    "Driver": "its image is being fetched",
}


def of_run(job_id: str, allocation: Json, device: str) -> JobState:
    """Return the state of a job that was placed, from its first allocation.

    Nomad places again what it preempted, lost or moved off a host. A job of ours runs once: the
    attempt ends with its first allocation, and tries are counted by Edgeyard.
    """
    vendor, _, kind = device.partition("/")
    boards = devices_of(allocation, vendor, kind)
    task = _task(allocation)
    events = [each for each in _items(task.get("Events")) if isinstance(each, Mapping)]
    uid = boards[0] if boards else None
    started_at = moment(task.get("StartedAt"))
    status = str(allocation.get("ClientStatus"))
    if status in _LIVE:
        run = JobRun.QUEUED if started_at is None else JobRun.RUNNING
        reason = ""
        if status == "unknown":
            reason = f"its host {allocation.get('NodeName')} does not answer"
        elif run is JobRun.QUEUED:
            reason = _STEPS.get(str(events[-1].get("Type")) if events else "", _STEPS["Received"])
        return JobState(
            job_id=job_id, run=run, target_uid=uid, started_at=started_at, reason=reason
        )
    stopped = _was_stopped(allocation, events)
    failure = _how_stopped(allocation) if stopped else _failure(allocation, task, events)
    return JobState(
        job_id=job_id,
        run=JobRun.ENDED,
        target_uid=uid,
        started_at=started_at,
        ended_at=moment(task.get("FinishedAt")) or _at_ns(allocation.get("ModifyTime")),
        reason="" if failure else _lost_sight(events),
        failure=failure,
        stopped=stopped,
        host_lost=allocation.get("ClientStatus") == "lost",
    )


def created_index(thing: Json) -> int:
    """Return the index of Nomad's state at which a job or an allocation was created."""
    value = thing.get("CreateIndex")
    return value if isinstance(value, int) else 0


def by_our_clock(
    state: JobState, offset_s: float | None, placed_at: datetime | None, now: datetime
) -> JobState:
    """Correct the times of a host by the offset of its clock.

    Where nobody measured that, and its times can't be, what it says last happened now, when we
    learn of it; how long the task ran is the host's own measurement all the same.

    Args:
        state: As the host says.
        offset_s: How far its clock is ahead of ours; None: not measured.
        placed_at: When Nomad's server gave the job its board; None where it does not say.
        now: By our clock.
    """
    started_at, ended_at = state.started_at, state.ended_at
    last = ended_at or started_at
    if last is None:
        return state
    if offset_s is None:
        tolerance = timedelta(seconds=CLOCK_TOLERANCE_S)
        first = started_at or last
        possible = placed_at is not None and placed_at - tolerance <= first
        if possible and last <= now + tolerance:
            return state
    elif abs(offset_s) <= CLOCK_TOLERANCE_S:
        return state
    known = offset_s is not None and abs(offset_s) < _MAX_OFFSET_S
    shift = timedelta(seconds=-offset_s) if known else now - last  # type: ignore[operator]
    return replace(
        state,
        started_at=None if started_at is None else _shifted(started_at, shift, now),
        ended_at=None if ended_at is None else _shifted(ended_at, shift, now),
    )


def _shifted(reported: datetime, shift: timedelta, now: datetime) -> datetime:
    """Return a host's time by our clock; ``now`` if it is not a valid time."""
    try:
        return reported + shift
    except OverflowError:
        return now


def placed_at_of(allocation: Json) -> datetime | None:
    """Return when Nomad placed the job, by the clock of Nomad's server."""
    return _at_ns(allocation.get("CreateTime"))


def of_no_run(job_id: str, job: Json) -> JobState:
    """Return the state of a job that was never placed, without a `reason`."""
    if job.get("Stop"):
        return JobState(job_id=job_id, run=JobRun.ENDED, stopped=True)
    if job.get("Status") == "dead":
        sentence = "Nomad ended its job without running it"
        failure = Failure(category=FailureCategory.CLUSTER, sentence=sentence)
        return JobState(job_id=job_id, run=JobRun.ENDED, failure=failure)
    return JobState(job_id=job_id, run=JobRun.QUEUED)


def of_start_to_come(job_id: str, starts_at: datetime, now: datetime) -> JobState:
    """Return the state of a periodic job that has not started."""
    if now > starts_at + timedelta(seconds=MISSED_START_S):
        sentence = f"Nomad did not make its start at {time_text(starts_at)}"
        failure = Failure(category=FailureCategory.CLUSTER, sentence=sentence)
        return JobState(job_id=job_id, run=JobRun.ENDED, failure=failure)
    return JobState(job_id=job_id, run=JobRun.QUEUED, reason=f"starts at {time_text(starts_at)}")


def first_of(allocations: Sequence[Json]) -> Json | None:
    """Return the first allocation, which counts; None if there is none."""
    return min(allocations, key=lambda each: _number(each.get("CreateIndex")), default=None)


def moment(value: object) -> datetime | None:
    """Parse a time of Nomad with nanoseconds; None if there is none."""
    if not isinstance(value, str) or value.startswith("0001-"):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def placement_problem(evaluation: Json) -> str:
    """Return why Nomad could not place a job, from its blocked evaluation."""
    found: list[str] = []
    for metric in _values(evaluation.get("FailedTGAllocs")):
        available = sum(map(_number, _values(metric.get("NodesAvailable"))))
        if not available:
            found.append("no host of its datacenters is ready")
        for what, count in sorted(_pairs(metric.get("ConstraintFiltered"))):
            words = "no board of the kind it needs" if what == "missing devices" else f"not {what}"
            found.append(f"{_hosts(count)}: {words}")
        for what, count in sorted(_pairs(metric.get("DimensionExhausted"))):
            words = (
                "every board that it needs is taken"
                if what.startswith("devices")
                else f"no {what} left"
            )
            found.append(f"{_hosts(count)}: {words}")
        found += [f"quota: {each}" for each in _items(metric.get("QuotaExhausted"))]
    return "; ".join(found) or "it waits for room in Nomad"


def _was_stopped(allocation: Json, events: Sequence[Json]) -> bool:
    """Return whether the stop ended it: a later stop does not change what had ended."""
    if allocation.get("DesiredStatus") != "stop" or _was_preempted(allocation):
        return False
    if allocation.get("ClientStatus") == "lost":
        return _was_moved(allocation)  # its host was shut down before it could report the stop
    kinds = {str(each.get("Type")) for each in events}
    return "Killing" in kinds or not kinds & set(_FAILURES)


def _was_moved(allocation: Json) -> bool:
    """Return whether an operator drained its host or stopped it: Nomad marks the two alike."""
    transition = allocation.get("DesiredTransition")
    return allocation.get("DesiredDescription") == "alloc is being migrated" or (
        isinstance(transition, Mapping) and transition.get("Migrate") is True
    )


def _how_stopped(allocation: Json) -> Failure | None:
    """Return how an operator stopped it; None if its job was stopped, also by Edgeyard."""
    if not _was_moved(allocation):
        return None
    host = allocation.get("NodeName") or "its host"
    return Failure(
        category=FailureCategory.CLUSTER,
        sentence=f"the host {host} was drained, or the allocation was stopped in Nomad",
    )


def _was_preempted(allocation: Json) -> bool:
    return bool(allocation.get("PreemptedByAllocation")) or (
        allocation.get("DesiredStatus") == "evict"
    )


def _failure(allocation: Json, task: Json, events: Sequence[Json]) -> Failure | None:
    host = allocation.get("NodeName") or "its host"
    if _was_preempted(allocation):
        sentence = "a more urgent job took its board"
        return Failure(category=FailureCategory.PREEMPTED, sentence=sentence)
    if allocation.get("ClientStatus") == "lost":
        sentence = f"the host {host} was lost"  # what its task did by then is for others to say
        return Failure(category=FailureCategory.BOARD_FAULT, sentence=sentence)
    for event in reversed(events):
        describe = _FAILURES.get(str(event.get("Type")))
        if describe is not None:
            return describe(event)
    if allocation.get("ClientStatus") == "complete" and not task.get("Failed"):
        return None
    said = _text(allocation.get("ClientDescription")) or "Nomad does not say why"
    return Failure(category=FailureCategory.CLUSTER, sentence=f"it failed on {host}: {said}")


def _terminated(event: Json) -> Failure | None:
    details = _details(event)
    status, number = (_number(details.get(name)) for name in ("exit_code", "signal"))
    killed = signal.SIGKILL in (number, status - 128)
    # one of its processes may have been killed that it could do without, or has reported
    if killed and details.get("oom_killed") == "true":
        sentence = (
            "the task was killed: it needed more memory than its job may use; "
            "the lab's operator sets memory_mib of the cluster"
        )
        return Failure(category=FailureCategory.OUT_OF_MEMORY, sentence=sentence)
    return failure_of(status, signal_number=number)


def _lost_sight(events: Sequence[Json]) -> str:
    """Return why Nomad does not know how the task ended; "" where it does.

    The task may go on: when Docker is killed, its containers live.
    """
    for event in reversed(events):
        if event.get("Type") == "Terminated":
            details = _details(event)
            said = _text(details.get("exit_message"))
            known = any(_number(details.get(name)) for name in ("exit_code", "signal"))
            return f"Nomad lost sight of the task: {said}" if said and not known else ""
    return ""


def _not_downloaded(event: Json) -> Failure:
    said = str(_details(event).get("download_error") or event.get("DisplayMessage") or "")
    # Not the message itself: the URL in it is a key to the file.
    name = _file_name(said)
    if "Checksums did not match" in said:
        return Failure(
            category=FailureCategory.USER_INPUT,
            sentence=f"{name} is not the file that was submitted: its SHA-256 is another",
        )
    reason = said.rpartition("failed to download artifact: ")[2]
    reason = reason.rpartition('": ')[2] if '": ' in reason else reason
    return Failure(
        category=FailureCategory.CLUSTER,
        sentence=f"{name} could not be downloaded by its host: {_short(reason)}",
    )


def _driver_failed(event: Json) -> Failure:
    whole = str(_details(event).get("driver_error") or event.get("DisplayMessage") or "")
    sentence = f"the host could not start the task: {_text(whole)}"
    lower = whole.lower()
    for words, advice in _DRIVER_ADVICE:
        if any(word in lower for word in words):
            sentence += f"; the lab's operator {advice}"
            break
    return Failure(category=FailureCategory.CLUSTER, sentence=sentence)


def _not_set_up(event: Json) -> Failure:
    said = _text(event.get("DisplayMessage"))
    return Failure(
        category=FailureCategory.CLUSTER, sentence=f"the host could not set the task up: {said}"
    )


_FAILURES = {
    "Terminated": _terminated,
    "Failed Artifact Download": _not_downloaded,
    "Driver Failure": _driver_failed,
    "Setup Failure": _not_set_up,
    "Failed Validation": _not_set_up,
}


def _task(allocation: Json) -> Json:
    """Return the state of the only task."""
    for state in _values(allocation.get("TaskStates")):
        return state
    return {}


def _details(event: Json) -> Json:
    details = event.get("Details")
    return details if isinstance(details, Mapping) else {}


def _file_name(said: str) -> str:
    """Return the name in a message's URL; ours begin with 32 random characters and a dash."""
    begin = said.find('"')
    url = said[begin + 1 : said.find('"', begin + 1)] if begin >= 0 else ""
    name = url.rpartition("/")[2]
    return name[33:] if len(name) > 33 and name[32] == "-" else "a file"


def _hosts(count: object) -> str:
    number = _number(count)
    return "1 host" if number == 1 else f"{number} hosts"


def _text(value: object) -> str:
    return _short(value) if isinstance(value, str) else ""


def _short(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARACTERS]


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return 0
    try:
        return int(value)
    except ValueError:
        return 0


def _at_ns(value: object) -> datetime | None:
    number = _number(value)
    # Nanoseconds of 64 bits, which end in the year 2262.
    return _EPOCH + timedelta(microseconds=number // 1000) if 0 < number < 2**63 else None


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _values(value: object) -> Sequence[Json]:
    if not isinstance(value, Mapping):
        return ()
    return [each for each in value.values() if isinstance(each, Mapping | int)]  # type: ignore[misc]


def _pairs(value: object) -> Sequence[tuple[str, object]]:
    return [(str(name), each) for name, each in value.items()] if isinstance(value, Mapping) else ()
