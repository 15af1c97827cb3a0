"""The same steps for both versions of a check, which are accepted or refused together."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import CheckIn, parse
from edgeyard.benchmark_api.sdk.submission import CHECK_FIELDS, refuse_fields
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.check import CheckedRequest, check
from edgeyard.benchmark_api.submission.dry_run import would_happen
from edgeyard.benchmark_api.submission.idempotency import Accepted, IdempotencyGuard
from edgeyard.benchmark_api.submission.offer import Offer
from edgeyard.benchmark_api.submission.repeat import repeated
from edgeyard.benchmark_api.submission.store import StoreChecks
from edgeyard.devices.metrics import P50, Metric
from edgeyard.errors import InvalidInput, NothingDiffers, QuotaExceeded
from edgeyard.scheduler.decide.slowdown import slowdown_errors
from edgeyard.scheduler.engine.checks import log_check, metric_of_result
from edgeyard.scheduler.engine.intake import packed
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkFile, Status
from edgeyard.scheduler.model.checks import BASELINE, CANDIDATE, CHECK_TAG, SIDES, Check
from edgeyard.scheduler.model.workload import other_work
from edgeyard.scheduler.ports import UnitOfWork

MAX_RUNNING_OF_USER = 100
"""Checks of a user that run at a time."""

_KNOWN_LATE = ("inputs", "batch_size", "training", "metric")
"""Parts of the work that may be known only once it has run."""

_PLACES = ("target", "target_uid")

_OWN_FILES: Sequence[str] = ("/model", "/dataset", "/odt_config")

_NOT_OF_A_VERSION = frozenset(
    {
        *_PLACES,
        *("model", "model_url", "dataset", "dataset_urls"),  # the content of files counts
        *("name", "tags", "series", "git_commit", "link"),
        *("user_priority", "user_budget", "user_time", "queue_timeout", "deadline", "max_retries"),
        *("preemptible", "preemptible_measuring", "job_completion_threshold", "prohibit_overlap"),
        *("nb_inference", "precision", "ram", "storage"),
        *("constraints", "affinities", "spreads", "binding", "if_unavailable"),
    }
)
"""Fields of a job description that change when, where, how often and for whom a version runs."""

_CANDIDATE_FIRST = (CANDIDATE, BASELINE)
"""What is wrong with both versions is reported of the candidate."""

_Version = tuple[CheckedRequest, Sequence[BenchmarkFile]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Both versions of a check, of which nothing is wrong as far as that is known.

    Attributes:
        baseline: What people know the baseline by.
        target_uid: The board of the check; None: the first that runs one.
        by_side: What each is, and the files that it keeps.
        metric: That they are compared by, as the baseline's result states it; p50 without one.
        own: Fields that only the baseline has; see `_about`.
        warnings: About both, each once.
    """

    baseline: str
    target_uid: str | None
    by_side: Mapping[str, _Version]
    metric: Metric
    own: Sequence[str] | None
    warnings: Sequence[str]


def parse_check(tree: Mapping[str, object]) -> CheckIn:
    """Return the fields of a request for a check.

    Raises:
        InvalidInput: Naming each field that is wrong, or cannot be that of a check's runs.
    """
    request = parse(CheckIn, tree)
    with _about(CANDIDATE):
        refuse_fields(request.candidate, CHECK_FIELDS, "cannot be that of the runs of a check")
    return request


def checked_versions(
    request: CheckIn,
    origin: Benchmark | None,
    caller: Caller,
    services: Services,
    offer: Offer,
    now: datetime,
) -> Versions:
    """Check both versions of a check.

    Args:
        request: What `parse_check` returned.
        origin: The benchmark that is the baseline, if it is one; the caller may see it.
        caller: Whose it is.
        services: Of the server.
        offer: Of the boards that may be used.
        now: The time of submission.

    Raises:
        InvalidInput: A version cannot be, or no board can run it; or they cannot be compared.
    """
    own: Sequence[str] | None
    metric = P50
    if origin is not None:
        baseline, target_uid, versions = _of_benchmark(
            origin, request, caller, services, offer, now
        )
        own = _OWN_FILES
        with services.store.read() as uow:
            metric = metric_of_result(uow, baseline)
    else:
        baseline, target_uid, versions = _of_descriptions(request, caller, services, offer, now)
        own = None
    warnings = _refuse_other_work(versions, caller, services, own, self_test=request.self_test)
    if errors := slowdown_errors(metric, request.max_slowdown):
        raise InvalidInput(errors)
    return Versions(
        baseline=baseline,
        target_uid=target_uid,
        by_side=versions,
        metric=metric,
        own=own,
        warnings=warnings,
    )


def store_check(
    request: CheckIn,
    versions: Versions,
    caller: Caller,
    services: Services,
    now: datetime,
    idempotency: IdempotencyGuard[shapes.StoredCheck],
) -> Accepted[shapes.StoredCheck]:
    """Start a check.

    Args:
        request: What `parse_check` returned.
        versions: Those that it compares.
        caller: Whose it is.
        services: Of the server.
        now: The time of submission.
        idempotency: Its idempotency key, if it has one.

    Returns:
        What is reported of it; the earlier answer where the key was used before.
    """
    fields = ", ".join(sorted(request.candidate))
    candidate = request.candidate.get("model") or fields or versions.baseline

    def store(uow: UnitOfWork) -> Accepted[shapes.StoredCheck]:
        if (earlier := idempotency.earlier_in(uow)) is not None:
            return earlier
        files = StoreChecks(uow, services)
        kept = {}
        for side in _CANDIDATE_FIRST:
            version, own_files = versions.by_side[side]
            with _about(side, versions.own):
                kept[side] = packed(*files.files_of(version, caller, own_files))
        made = Check(
            check_id=f"check-{secrets.token_hex(8)}",
            user_id=caller.user_id,
            baseline=versions.baseline,
            candidate=str(candidate),
            max_slowdown=request.max_slowdown,
            budget_s=request.budget_s,
            max_pairs=request.max_pairs,
            versions=kept,
            created_at=now,
            target_uid=versions.target_uid,
            metric=versions.metric,
        )
        uow.checks.add(made)
        count = uow.checks.count_running(caller.user_id)
        if count > MAX_RUNNING_OF_USER:
            advice = "wait until some have ended, or cancel what you no longer need"
            whose = f"user {caller.user_id}"
            raise QuotaExceeded("max_checks", MAX_RUNNING_OF_USER, count, whose, advice)
        log_check(uow, made, "check.started", now)
        answer = views.check(services, made, warnings=versions.warnings)
        idempotency.remember(uow, answer)
        return Accepted(answer)

    services.check_room(caller.user)
    return services.store.transact(store)


def _of_benchmark(
    origin: Benchmark,
    request: CheckIn,
    caller: Caller,
    services: Services,
    offer: Offer,
    now: datetime,
) -> tuple[str, str | None, Mapping[str, _Version]]:
    """Return the name of a benchmark that is the baseline, its board, and both versions.

    Raises:
        InvalidInput: It has no result, nothing differs from it, or a version can't be.
    """
    wanted = origin.benchmark_id
    if origin.status is not Status.COMPLETED:
        reason = f"{wanted} is {origin.status.value} and has no result"
        raise InvalidInput.at("/baseline", reason, "a completed benchmark")
    if not request.candidate and not request.self_test:
        reason = "nothing differs from the baseline"
        raise InvalidInput.at("/candidate", reason, "the fields to check")
    places = {each: request.candidate[each] for each in _PLACES if each in request.candidate}
    target_uid = None if places else origin.target_uid
    found: dict[str, _Version] = {}
    for side, changes in ((BASELINE, places), (CANDIDATE, request.candidate)):
        with _about(side, _OWN_FILES):
            tree = _of_a_check(changes, target_uid)
            found[side] = repeated(origin, tree, caller, services, offer, now, retry=False)
    return wanted, target_uid, found


def _of_descriptions(
    request: CheckIn, caller: Caller, services: Services, offer: Offer, now: datetime
) -> tuple[str, str | None, Mapping[str, _Version]]:
    """Return the name of a baseline that is a description, no board, and both versions.

    Raises:
        InvalidInput: A version can't be.
    """
    trees = {BASELINE: request.baseline.description or {}, CANDIDATE: request.candidate}
    found: dict[str, _Version] = {}
    for side in _CANDIDATE_FIRST:
        with _about(side, None):
            refuse_fields(trees[side], CHECK_FIELDS, "cannot be that of the runs of a check")
            tree = _of_a_check(trees[side], None)
            found[side] = check(tree, caller, services, offer, now), ()
    for name in _PLACES:
        here, there = (getattr(found[side][0].description, name) for side in SIDES)
        if here and there and here != there:
            reason = f"is {there}, and that of the baseline {here}: both versions run on one board"
            raise InvalidInput.at(f"/candidate/{name}", reason, "the same for both")
    return found[BASELINE][0].description.model, None, found


def _of_a_check(fields: Mapping[str, object], target_uid: str | None) -> dict[str, object]:
    """Return fields of a run of a check, which no history counts and no tag of its origin finds."""
    tags = fields.get("tags") or []
    if isinstance(tags, list):  # anything else is refused with the other fields
        tags = [*tags, CHECK_TAG]
    tree: dict[str, object] = {"name": "", **fields, "tags": tags}
    if target_uid is not None:
        tree["target_uid"] = target_uid
    return tree


def _refuse_other_work(
    versions: Mapping[str, _Version],
    caller: Caller,
    services: Services,
    own: Sequence[str] | None,
    *,
    self_test: bool,
) -> list[str]:
    """Refuse two versions that cannot be compared or cannot run, before a board is used.

    Returns:
        The warnings about both, each once.

    Raises:
        NothingDiffers: They are the same, and it is no self-test.
        InvalidInput: They do different work, as far as that is known, or no board can run one.
    """
    found: dict[str, shapes.DryRun] = {}
    for side in _CANDIDATE_FIRST:
        request, kept = versions[side]
        with _about(side, own):
            found[side] = once = would_happen(request, caller, services, kept)
            if once.would == "never":
                why = once.waiting_reason.sentence if once.waiting_reason else "no board fits"
                raise InvalidInput.at("/target", f"no board can run it: {why}", "another board")
    before, after = found[BASELINE], found[CANDIDATE]
    first, second = (msgspec.to_builtins(each.workload) for each in (before, after))
    if differing := other_work(first, second, known_late=_KNOWN_LATE):
        reason = f"does other work than the candidate: {', '.join(differing)}"
        raise InvalidInput.at("/baseline", reason, "a candidate with the same inputs and type")
    if not self_test and _version(before) == _version(after):
        reason = "is that of the baseline, and nothing else that a version may change differs"
        accepted = "another model, engine, version of it or parameters, or self_test"
        raise NothingDiffers.at("/candidate/model", reason, accepted)
    return list(dict.fromkeys((*before.warnings, *after.warnings)))


def _version(of: shapes.DryRun) -> tuple[object, Mapping[str, object]]:
    """Return the content of the model, or its URL where that was not read, and the settings."""
    stated = of.description
    settings = {name: stated[name] for name in stated.keys() - _NOT_OF_A_VERSION}
    return of.workload.model_sha256 or stated.get("model_url"), settings


@contextmanager
def _about(side: str, own: Sequence[str] | None = ()) -> Iterator[None]:
    """Point to the version that a refusal is about.

    Args:
        side: The version.
        own: Fields that only the baseline has, a benchmark: all others are those of the candidate,
            too. None: the baseline is a description with fields of its own.
    """
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(
            [replace(one, pointer=_pointer(side, one.pointer, own)) for one in error.errors]
        ) from error


def _pointer(side: str, pointer: str, own: Sequence[str] | None) -> str:
    if side == BASELINE and own is None:
        return f"/baseline/description{pointer}"
    if side == BASELINE and pointer in (own or ()):
        return "/baseline"
    return f"/candidate{pointer}"
