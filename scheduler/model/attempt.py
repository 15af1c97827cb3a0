"""One dispatch of a benchmark, and what it led to."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from edgeyard.scheduler.model.benchmark import ABSENCE, Binding, Failure


class AttemptState(StrEnum):
    """State of an attempt between its decision and its end."""

    PREPARED = "prepared"  # committed, the cluster has not been called
    DISPATCHING = "dispatching"  # the call is in progress
    UNKNOWN = "unknown"  # the effect of the call is unknown until the job's id is looked up
    QUEUED = "queued"  # registered, not running yet
    RUNNING = "running"  # its task runs
    UPLOADING = "uploading"  # its task has ended, and its result is expected
    ENDED = "ended"


LIVE_ATTEMPTS = frozenset(AttemptState) - {AttemptState.ENDED}

ATTEMPT_MOVES: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.PREPARED: frozenset({AttemptState.DISPATCHING, AttemptState.ENDED}),
    AttemptState.DISPATCHING: frozenset(
        {
            AttemptState.UNKNOWN,
            AttemptState.QUEUED,
            AttemptState.RUNNING,
            AttemptState.UPLOADING,
            AttemptState.ENDED,
        }
    ),
    AttemptState.UNKNOWN: frozenset(
        {
            AttemptState.DISPATCHING,
            AttemptState.QUEUED,
            AttemptState.RUNNING,
            AttemptState.UPLOADING,
            AttemptState.ENDED,
        }
    ),
    AttemptState.QUEUED: frozenset(
        {AttemptState.RUNNING, AttemptState.UPLOADING, AttemptState.ENDED}
    ),
    AttemptState.RUNNING: frozenset({AttemptState.UPLOADING, AttemptState.ENDED}),
    AttemptState.UPLOADING: frozenset({AttemptState.ENDED}),
    AttemptState.ENDED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One dispatch of a benchmark: one job of the cluster.

    Attributes:
        number: 1 for the first.
        job_id: Derived from benchmark and number by `job_id_of`.
        target_uid: Board on which it runs: as the cluster reports, otherwise as decided or, with a
            looser binding, as its report states. None at its end if it was never known.
        allowed_uids: Allow-list of a filtered job; empty if it needed none.
        hcl: The job as dispatched, secrets masked; "" until rendered.
        upload_token_sha256: Hash of the token that may upload for it; None before dispatch.
        task_ended_at: When its task ended, as the cluster reported.
        task_failure: Why its task failed, as the cluster reported; None if it succeeded.
        result_at: When its report arrived.
        counts: Whether it counts as a retry; it does not if it was preempted, lost in a restart
            of the server, or stopped by an operator in the cluster.
        stopping: Why it is stopped: by Edgeyard, or by an operator in the cluster; None: it is not.
        ended_at: When it became ENDED.
        failure: Why it failed; None if it had a result or was stopped.
        time_limit_s: Time limit of its run; None: the description's, or the server's.
        placed_uid: Board that the cluster allocated; None until it is known.
        reported_uid: Board that its report names; None without one.
        evaluation_id: Id of Nomad's evaluation that its registration began; None without one.
        adopted: Its job was in the cluster before the database knew of it, because an older backup
            was restored, so its task may have started long ago.
    """

    benchmark_id: str
    number: int
    job_id: str
    state: AttemptState
    binding: Binding
    priority: int
    created_at: datetime
    family: str
    target_uid: str | None = None
    allowed_uids: tuple[str, ...] = ()
    hcl: str = ""
    upload_token_sha256: str | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    task_ended_at: datetime | None = None
    task_failure: Failure | None = None
    result_at: datetime | None = None
    counts: bool = True
    stopping: Failure | None = None
    ended_at: datetime | None = None
    failure: Failure | None = None
    phase: str | None = None
    progress: float | None = None
    version: int = 0
    time_limit_s: float | None = None
    placed_uid: str | None = None
    reported_uid: str | None = None
    evaluation_id: str | None = None
    adopted: bool = False

    def on_board(self, *, placed: str | None = None, reported: str | None = None) -> Attempt:
        """Return the attempt with the board that the cluster or the report names."""
        placed = placed or self.placed_uid
        reported = reported or self.reported_uid
        assumed = None if self.binding is Binding.STRICT else reported
        return replace(
            self,
            placed_uid=placed,
            reported_uid=reported,
            target_uid=placed or assumed or self.target_uid,
        )

    @property
    def board_is_known(self) -> bool:
        """Whether the board is known, and not only assumed for a job with a looser binding."""
        return bool(self.binding is Binding.STRICT or self.placed_uid or self.reported_uid)

    def run_s(self, now: datetime) -> float | None:
        """Return for how many seconds its task ran, until now if it has not ended.

        A task sends its report last, so its run ended when that arrived at the latest: a cluster
        learns of the end much later if the host was away meanwhile.

        Returns:
            None if its task never started.
        """
        if self.started_at is None:
            return None
        ended_at = min(each for each in (self.task_ended_at, self.result_at, now) if each)
        return max(0.0, (ended_at - self.started_at).total_seconds())

    @property
    def takes_late_result(self) -> bool:
        """Whether it was given up without news of its task, which may still run and report."""
        return (
            self.state is AttemptState.ENDED
            and self.result_at is None
            and self.stopping is None
            and self.failure is not None
            and self.failure.category in ABSENCE
        )

    @property
    def boards_differ(self) -> bool:
        """Whether the cluster and the report name different boards."""
        return None not in (self.placed_uid, self.reported_uid) and (
            self.placed_uid != self.reported_uid
        )


def job_id_of(
    benchmark_id: str, number: int, family: str, runtime: str, submit_time: datetime
) -> str:
    """Return the job id of an attempt, which is always the same.

    ``benchmark-<target>-<runtime>-<YYYYMMDDHHMMSS UTC>-<10 characters>``; since neither family
    nor engine holds a dash and the rest is of fixed width, no job's name is a prefix of another's.
    """
    suffix = job_suffix_of(benchmark_id, number)
    return f"benchmark-{family}-{runtime}-{submit_time:%Y%m%d%H%M%S}-{suffix}"


def job_suffix_of(benchmark_id: str, number: int) -> str:
    """Return the last part of an attempt's job id, which alone identifies the attempt.

    The time in the job id is another one once the times of the benchmark have moved with a clock.
    """
    digest = hashlib.sha256(f"{benchmark_id}/{number}".encode()).digest()
    return base64.b32encode(digest)[:10].decode().lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measured facts of an ended attempt, for history and learning.

    Attributes:
        wait_s: Time from submission to the start of its task; None if that never started.
        run_s: Run time of its task; None if that never started.
        loading_s: Time from the placement to the start of its task: the cluster's work and the
            downloads; None if it never started.
        failure_category: None if it had a result.
        nb_inference: Requested number of inferences.
        variant: As in `edgeyard.scheduler.model.history.RunKind`.
        seq: Number in the order of commits, assigned by the store; 0: not stored yet.
        latency_p50_ms: None if nothing was measured.
        primary_metric: Name of the primary metric, as in `edgeyard.devices.metrics.Metric`, with
            `primary_unit`, `primary_better` (``lower`` or ``higher``) and `primary_value`; all None
            if nothing was measured.
        workload: Digest of what was measured, and `primary_error`, the standard error of the value
            relative to it, as far as one run can know it; both None unless the value is comparable.
        energy_j: Energy of the run, joules, above 0; None: not known.
        replaces: Number of the outcome that was recorded before a late result arrived; 0: none.
    """

    benchmark_id: str
    attempt: int
    target_uid: str | None
    family: str
    engine: str
    benchmark_type: str
    model_sha256: str | None
    wait_s: float | None
    run_s: float | None
    failure_category: str | None
    latency_p50_ms: float | None
    verdict: str | None
    ended_at: datetime
    user_id: str = ""
    nb_inference: int = 20
    variant: str = ""
    primary_metric: str | None = None
    primary_unit: str | None = None
    primary_better: str | None = None
    primary_value: float | None = None
    workload: str | None = None
    primary_error: float | None = None
    loading_s: float | None = None
    energy_j: float | None = None
    seq: int = field(default=0, compare=False)
    replaces: int = field(default=0, compare=False)
