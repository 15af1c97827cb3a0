"""The model's values as JSON, the same in the store and over HTTP, and back.

Enums are strings, times RFC 3339 in UTC with ``Z``, sizes whole numbers. Functions named
``…_to_json`` give dicts of plain JSON values; nothing here knows a web framework or a database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.accounts import Charge, Quarantine
from edgeyard.scheduler.model.attempt import Attempt, Outcome
from edgeyard.scheduler.model.benchmark import (
    Benchmark,
    BenchmarkFile,
    BenchmarkType,
    Binding,
    Constraint,
    Failure,
    IfUnavailable,
    JobDescription,
    WaitReason,
)
from edgeyard.scheduler.model.boards import BoardOverride
from edgeyard.scheduler.model.decision import Explanation, Placement, Verdict
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import ResultFile, UserFile
from edgeyard.scheduler.model.forecast import Coverage, Forecast
from edgeyard.scheduler.model.knowledge import Lease
from edgeyard.scheduler.model.quotas import QUOTA_NAMES
from edgeyard.scheduler.model.submissions import Campaign, CronSchedule
from edgeyard.scheduler.model.users import ApiToken, User

JsonObject = dict[str, object]

MAX_DEPTH = 64
"""Nesting that is taken; Python's own encoder and most readers give up not far beyond."""

MAX_INTEGER = 2**63 - 1
"""Both databases' largest; most JSON readers lose digits far earlier."""

# --- strict JSON --------------------------------------------------------------------------------


def check_json(value: object, pointer: str = "", depth: int = 0) -> None:
    """Refuse what JSON text, a database column or the next reader can't hold.

    Raises:
        InvalidInput: NaN, an infinity, a whole number beyond 64 bits, a lone surrogate, NUL, a
            key that is no text, a value of a foreign type, or nesting beyond `MAX_DEPTH`.
    """
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, pointer)
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InvalidInput.at(pointer, "the number is too large", "at most 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput.at(pointer, "the number is not finite", "a finite number")
    elif depth >= MAX_DEPTH:
        raise InvalidInput.at(pointer, "nested too deeply", f"at most {MAX_DEPTH} levels")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput.at(pointer, "a key is not text", "text keys")
            _check_text(key, pointer)
            check_json(item, f"{pointer}/{_escaped(key)}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_json(item, f"{pointer}/{index}", depth + 1)
    else:
        raise InvalidInput.at(pointer, f"a {type(value).__name__} is no JSON value")


def dumps(value: object, pointer: str = "") -> str:
    """Compact JSON text of a checked value.

    Raises:
        InvalidInput: As `check_json`.
    """
    check_json(value, pointer)
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )


def loads(text: str) -> Any:
    """Value of JSON text that `dumps` made."""
    return json.loads(text)


def _check_text(text: str, pointer: str) -> None:
    if "\0" in text:
        raise InvalidInput.at(pointer, "the text holds a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidInput.at(pointer, "the text holds a lone surrogate") from None


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def time_to_json(time: datetime | None) -> str | None:
    """RFC 3339 in UTC; None stays None.

    Raises:
        ValueError: The time has no zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def time_from_json(text: str) -> datetime:
    """The time that RFC 3339 text states, in UTC.

    Raises:
        ValueError: It is none, or has no zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time.astimezone(UTC)


# --- the job description ------------------------------------------------------------------------

_SEED_NAMES = {"user_time": "user_time_s", "queue_timeout": "queue_timeout_s"}
"""Fields that have another name than the one that users write."""


def _constraints(value: Sequence[Mapping[str, str]]) -> tuple[Constraint, ...]:
    return tuple(Constraint(**item) for item in value)


_READERS: Mapping[str, Callable[[Any], object]] = {
    "benchmark_type": BenchmarkType,
    "binding": Binding,
    "if_unavailable": IfUnavailable,
    "dataset_urls": tuple,
    "tags": tuple,
    "constraints": _constraints,
    "deadline": time_from_json,
    "start_time": time_from_json,
}
_FIELDS = frozenset(field.name for field in fields(JobDescription))


def description_to_json(description: JobDescription) -> JsonObject:
    """Every field under the name that a user writes; submitting it again gives an equal one."""
    d = description
    return {
        "model": d.model,
        "model_url": d.model_url,
        "runtime": d.runtime,
        "benchmark_type": d.benchmark_type.value,
        "dataset": d.dataset,
        "dataset_urls": list(d.dataset_urls),
        "odt_config": (dict(d.odt_config) if isinstance(d.odt_config, Mapping) else d.odt_config),
        "target": d.target,
        "target_uid": d.target_uid,
        "ram": d.ram,
        "storage": d.storage,
        "user_priority": d.user_priority,
        "user_budget": d.user_budget,
        "user_time": d.user_time_s,
        "deadline": time_to_json(d.deadline),
        "max_retries": d.max_retries,
        "nb_inference": d.nb_inference,
        "precision": d.precision,
        "preemptible": d.preemptible,
        "preemptible_measuring": d.preemptible_measuring,
        "job_completion_threshold": d.job_completion_threshold,
        "start_time": time_to_json(d.start_time),
        "cron": d.cron,
        "version_tag": d.version_tag,
        "constraints": [
            {"attribute": c.attribute, "operator": c.operator, "value": c.value}
            for c in d.constraints
        ],
        "binding": None if d.binding is None else d.binding.value,
        "if_unavailable": d.if_unavailable.value,
        "tags": list(d.tags),
        "parameters": dict(d.parameters),
        "input": {name: dict(values) for name, values in d.input.items()},
        "queue_timeout": d.queue_timeout_s,
        "extra": dict(d.extra),
    }


def description_from_json(data: Mapping[str, object]) -> JobDescription:
    """The reverse of `description_to_json`; fields that are absent get their defaults.

    For what `description_to_json` wrote; what users send is checked in ``benchmark_api``.
    """
    given: dict[str, Any] = dict(data)
    for name, field in _SEED_NAMES.items():
        if name in given:
            given[field] = given.pop(name)
    for field, reader in _READERS.items():
        if given.get(field) is not None:
            given[field] = reader(given[field])
    for name in given.keys() - _FIELDS:
        del given[name]
    return JobDescription(**given)


# --- benchmarks and attempts --------------------------------------------------------------------


def failure_to_json(failure: Failure | None) -> JsonObject | None:
    """``{category, sentence}``."""
    if failure is None:
        return None
    return {"category": failure.category.value, "sentence": failure.sentence}


def waiting_to_json(waiting: WaitReason | None) -> JsonObject | None:
    """``{code, sentence}``, as a benchmark's ``waiting_reason``."""
    if waiting is None:
        return None
    return {"code": waiting.reason.value, "sentence": waiting.sentence}


def file_to_json(file: BenchmarkFile) -> JsonObject:
    """A file that a benchmark needs; ``url`` is where it comes from, null for our own."""
    return {
        "role": file.role.value,
        "position": file.position,
        "name": file.name,
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "url": file.url,
    }


def benchmark_to_json(benchmark: Benchmark) -> JsonObject:
    """The benchmark itself; attempts and links are the caller's to add."""
    return {
        "benchmark_id": benchmark.benchmark_id,
        "user_id": benchmark.user_id,
        "campaign_id": benchmark.campaign_id,
        "status": benchmark.status.value,
        "phase": benchmark.phase,
        "progress": benchmark.progress,
        "waiting_reason": waiting_to_json(benchmark.waiting),
        "failure": failure_to_json(benchmark.failure),
        "priority": benchmark.priority,
        "target_uid": benchmark.target_uid,
        "held": benchmark.held,
        "unpinned": benchmark.unpinned,
        "description": description_to_json(benchmark.description),
        "files": [file_to_json(file) for file in benchmark.files],
        "submit_time": time_to_json(benchmark.submit_time),
        "started_at": time_to_json(benchmark.started_at),
        "ended_at": time_to_json(benchmark.ended_at),
        "deadline": time_to_json(benchmark.description.deadline),
        "retry_of": benchmark.retry_of,
        "user_priority": benchmark.user_priority or benchmark.description.user_priority,
    }


def attempt_to_json(attempt: Attempt) -> JsonObject:
    """One attempt without its HCL and its token's hash."""
    return {
        "number": attempt.number,
        "job_id": attempt.job_id,
        "state": attempt.state.value,
        "target_uid": attempt.target_uid,
        "allowed_uids": list(attempt.allowed_uids),
        "binding": attempt.binding.value,
        "priority": attempt.priority,
        "created_at": time_to_json(attempt.created_at),
        "queued_at": time_to_json(attempt.queued_at),
        "started_at": time_to_json(attempt.started_at),
        "task_ended_at": time_to_json(attempt.task_ended_at),
        "result_at": time_to_json(attempt.result_at),
        "ended_at": time_to_json(attempt.ended_at),
        "phase": attempt.phase,
        "progress": attempt.progress,
        "time_limit_s": attempt.time_limit_s,
        "counts": attempt.counts,
        "failure": failure_to_json(attempt.failure),
        "stopping": failure_to_json(attempt.stopping),
    }


def outcome_to_json(outcome: Outcome) -> JsonObject:
    """All fields of an outcome."""
    out: JsonObject = {field.name: getattr(outcome, field.name) for field in fields(Outcome)}
    out["ended_at"] = time_to_json(outcome.ended_at)
    return out


# --- forecasts ---------------------------------------------------------------------------------


def forecast_to_json(forecast: Forecast, now: datetime, coverage: Coverage) -> JsonObject:
    """A forecast with its age, and how those before it turned out."""
    return {
        "made_at": time_to_json(forecast.made_at),
        "age_s": round(max((now - forecast.made_at).total_seconds(), 0.0), 3),
        "place": forecast.place,
        "start": time_to_json(forecast.start),
        "start_low": time_to_json(forecast.start_low),
        "start_high": time_to_json(forecast.start_high),
        "finish": time_to_json(forecast.finish),
        "finish_low": time_to_json(forecast.finish_low),
        "finish_high": time_to_json(forecast.finish_high),
        "deadline_chance": forecast.deadline_chance,
        "grounded": forecast.grounded,
        "coverage": {"held": coverage.held, "ended": coverage.ended},
    }


# --- decisions ----------------------------------------------------------------------------------


def verdict_to_json(verdict: Verdict) -> JsonObject:
    """One board's verdict."""
    return {
        "target_uid": verdict.target_uid,
        "reason": None if verdict.reason is None else verdict.reason.value,
        "sentence": verdict.sentence,
        "never": verdict.never,
        "score": verdict.score,
        "scores": dict(verdict.scores),
        "weighted": dict(verdict.weighted),
    }


def placement_to_json(placement: Placement) -> JsonObject:
    """Where a benchmark was placed."""
    return {
        "benchmark_id": placement.benchmark_id,
        "target_uid": placement.target_uid,
        "family": placement.family,
        "binding": placement.binding.value,
        "priority": placement.priority,
        "allowed_uids": list(placement.allowed_uids),
    }


def explanation_to_json(explanation: Explanation) -> JsonObject:
    """Why a benchmark was placed, or waits, with every board's verdict."""
    placement, waiting = explanation.placement, explanation.waiting
    return {
        "benchmark_id": explanation.benchmark_id,
        "decided_at": time_to_json(explanation.decided_at),
        "policy": explanation.policy,
        "rank": explanation.rank,
        "rank_reason": explanation.rank_reason,
        "never_ahead": explanation.never_ahead,
        "priority": explanation.priority,
        "priority_parts": dict(explanation.priority_parts),
        "verdicts": [verdict_to_json(verdict) for verdict in explanation.verdicts],
        "placement": None if placement is None else placement_to_json(placement),
        "waiting": (
            None
            if waiting is None
            else {"reason": waiting.reason.value, "sentence": waiting.sentence}
        ),
        "never": explanation.never,
        "scorers": [asdict(each) for each in explanation.scorers],
    }


# --- records ------------------------------------------------------------------------------------


def event_to_json(event: Event) -> JsonObject:
    """One line of the log."""
    return {
        "seq": event.seq,
        "at": time_to_json(event.at),
        "kind": event.kind,
        "benchmark_id": event.benchmark_id,
        "user_id": event.user_id,
        "data": dict(event.data),
    }


def user_file_to_json(file: UserFile) -> JsonObject:
    """A user's file; its URL is the caller's to add."""
    return {
        "file_id": file.file_id,
        "user_id": file.user_id,
        "name": file.name,
        "sha256": file.sha256,
        "size": file.size_bytes,
        "created_at": time_to_json(file.created_at),
    }


def result_file_to_json(file: ResultFile) -> JsonObject:
    """An uploaded file of an attempt; its URL is the caller's to add."""
    return {
        "attempt": file.attempt,
        "name": file.name,
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "received_at": time_to_json(file.received_at),
    }


def campaign_to_json(campaign: Campaign) -> JsonObject:
    """A campaign without its members."""
    return {
        "campaign_id": campaign.campaign_id,
        "user_id": campaign.user_id,
        "name": campaign.name,
        "created_at": time_to_json(campaign.created_at),
    }


def schedule_to_json(schedule: CronSchedule) -> JsonObject:
    """A schedule with its job description."""
    return {
        "schedule_id": schedule.schedule_id,
        "user_id": schedule.user_id,
        "cron": schedule.cron,
        "description": dict(schedule.description),
        "created_at": time_to_json(schedule.created_at),
        "next_fire": time_to_json(schedule.next_fire),
        "active": schedule.active,
        "last_benchmark_id": schedule.last_benchmark_id,
        "skipped": schedule.skipped,
    }


def charge_to_json(charge: Charge) -> JsonObject:
    """What an attempt cost."""
    return {
        "benchmark_id": charge.benchmark_id,
        "attempt": charge.attempt,
        "family": charge.family,
        "rate": charge.rate,
        "time_limit_s": charge.time_limit_s,
        "reserved": charge.reserved,
        "reserved_at": time_to_json(charge.reserved_at),
        "charged": charge.charged,
        "board_s": charge.board_s,
        "refunded": charge.refunded,
        "settled_at": time_to_json(charge.settled_at),
    }


def lease_to_json(lease: Lease) -> JsonObject:
    """A lease, whose it is included."""
    return {
        "lease_id": lease.lease_id,
        "target_uid": lease.target_uid,
        "since": time_to_json(lease.since),
        "until": time_to_json(lease.until),
        "reason": lease.reason,
        "user_id": lease.user_id,
        "by_user_id": lease.by_user_id,
    }


def quarantine_to_json(quarantine: Quarantine) -> JsonObject:
    """Why a board is set aside."""
    return {
        "since": time_to_json(quarantine.since),
        "reason": quarantine.reason,
        "by_user_id": quarantine.by_user_id,
        "failure_rate": quarantine.failure_rate,
        "probes": quarantine.probes,
        "probe_id": quarantine.probe_id,
        "next_probe_at": time_to_json(quarantine.next_probe_at),
    }


def override_to_json(override: BoardOverride) -> JsonObject:
    """What an operator said of a board."""
    return {
        "target_uid": override.target_uid,
        "drained": override.drained,
        "reason": override.reason,
        "by_user_id": override.by_user_id,
        "at": time_to_json(override.at),
    }


def user_to_json(user: User) -> JsonObject:
    """An account."""
    return {
        "user_id": user.user_id,
        "role": user.role.value,
        "created_at": time_to_json(user.created_at),
        "max_priority": user.max_priority,
        "max_budget": user.max_budget,
        "max_running": user.max_running,
        "share": user.share,
        "max_lease_s": user.max_lease_s,
        "boards": list(user.boards),
        **{name: getattr(user, name) for name in QUOTA_NAMES},
        "disabled": user.disabled,
    }


def token_to_json(token: ApiToken) -> JsonObject:
    """A token without its hash."""
    return {
        "token_id": token.token_id,
        "user_id": token.user_id,
        "role": token.role.value,
        "label": token.label,
        "refreshes": token.refreshes,
        "session_id": token.session_id,
        "created_at": time_to_json(token.created_at),
        "expires_at": time_to_json(token.expires_at),
        "revoked_at": time_to_json(token.revoked_at),
    }
