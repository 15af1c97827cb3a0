"""Checks that the server drives: start, show, list and cancel them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import Query

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, named, visible
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts_document
from edgeyard.benchmark_api.routes.submitting import IdempotencyKey, accepted_answer
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.requests import CheckIn, parse
from edgeyard.benchmark_api.sdk.submission import CHECK_FIELDS, refuse_fields
from edgeyard.benchmark_api.submission.check import CheckedRequest, check
from edgeyard.benchmark_api.submission.dry_run import would_happen
from edgeyard.benchmark_api.submission.idempotency import Accepted, IdempotencyGuard
from edgeyard.benchmark_api.submission.repeat import repeated
from edgeyard.benchmark_api.submission.store import StoreChecks
from edgeyard.errors import InvalidInput, NotFound, QuotaExceeded
from edgeyard.scheduler.engine.checks import cancel_check, log_check
from edgeyard.scheduler.engine.intake import packed
from edgeyard.scheduler.model.acts import stated_reason
from edgeyard.scheduler.model.benchmark import BenchmarkFile, Status
from edgeyard.scheduler.model.checks import (
    BASELINE,
    CANDIDATE,
    CHECK_TAG,
    SIDES,
    Check,
    CheckStatus,
)
from edgeyard.scheduler.model.workload import other_work
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/checks", tags=["checks"])

MAX_RUNNING_OF_USER = 100
"""Checks of a user that run at a time."""

_PAGE = 100
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


@router.post("", status_code=202, openapi_extra=accepts_document("CheckIn"))
def start(
    body: Body, caller: Submitter, context: Ctx, idempotency_key: IdempotencyKey = None
) -> Answer[shapes.StoredCheck]:
    """Start a check: both versions are measured alternately on one board until it is decided.

    The server drives it to its end, also if no client asks for its state. Two versions that do
    different work, or that no board can run, are refused before a board is used, as far as that is
    known.
    """
    services = context.services
    idempotency = IdempotencyGuard(
        shapes.StoredCheck, idempotency_key, caller.user_id, body.data, "/v1/checks"
    )
    if (earlier := idempotency.earlier(services)) is not None:
        return accepted_answer(earlier)
    request = parse(CheckIn, body.document())
    now = services.clock.now()
    with _about(CANDIDATE):
        refuse_fields(request.candidate, CHECK_FIELDS, "cannot be that of the runs of a check")
    own: Sequence[str] | None
    if request.baseline.benchmark_id is not None:
        baseline, target_uid, versions = _of_benchmark(request, caller, context, now)
        own = _OWN_FILES
    else:
        baseline, target_uid, versions = _of_descriptions(request, caller, context, now)
        own = None
    warnings = _refuse_other_work(versions, caller, context, own, self_test=request.self_test)
    fields = ", ".join(sorted(request.candidate))
    candidate = request.candidate.get("model") or fields or baseline

    def store(uow: UnitOfWork) -> Accepted[shapes.StoredCheck]:
        if (earlier := idempotency.earlier_in(uow)) is not None:
            return earlier
        files = StoreChecks(uow, services)
        kept = {}
        for side in _CANDIDATE_FIRST:
            with _about(side, own):
                kept[side] = packed(*files.files_of(versions[side][0], caller, versions[side][1]))
        made = Check(
            check_id=f"check-{secrets.token_hex(8)}",
            user_id=caller.user_id,
            baseline=baseline,
            candidate=str(candidate),
            max_slowdown=request.max_slowdown,
            budget_s=request.budget_s,
            max_pairs=request.max_pairs,
            versions=kept,
            created_at=now,
            target_uid=target_uid,
        )
        uow.checks.add(made)
        count = uow.checks.count_running(caller.user_id)
        if count > MAX_RUNNING_OF_USER:
            advice = "wait until some have ended, or cancel what you no longer need"
            whose = f"user {caller.user_id}"
            raise QuotaExceeded("max_checks", MAX_RUNNING_OF_USER, count, whose, advice)
        log_check(uow, made, "check.started", now)
        answer = views.check(services, made, warnings)
        idempotency.remember(uow, answer)
        return Accepted(answer)

    services.check_room(caller.user)
    return accepted_answer(services.store.transact(store))


@router.get("")
def list_checks(
    caller: Submitter,
    context: Ctx,
    status: CheckStatus | None = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 50,
    cursor: str | None = None,
) -> Answer[shapes.StoredChecks]:
    """Your checks, newest first; operators see everybody's."""
    services = context.services
    user_id = None if caller.is_operator else caller.user_id
    with services.store.read() as uow:
        found, following = uow.checks.page(
            user_id=user_id, status=status, limit=limit, cursor=cursor
        )
    items = [views.check(services, each) for each in found]
    return Answer(shapes.StoredChecks(items=items, next_cursor=following))


@router.get("/{check_id}")
def show(check_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.StoredCheck]:
    """One check, with what its pairs mean so far."""
    with context.services.store.read() as uow:
        found = _visible(uow, check_id, caller)
    return Answer(views.check(context.services, found))


@router.post("/{check_id}/cancel", status_code=202)
def cancel(check_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.StoredCheck]:
    """End a check, and the run that is under way; one that has ended stays as it is."""
    services = context.services

    def end(uow: UnitOfWork) -> Check:
        _visible(uow, check_id, caller)
        now = services.clock.now()
        return cancel_check(uow, check_id, now, caller.user_id, stated_reason())

    ended = services.store.transact(end, frees_space=True)
    services.engine.wake()
    return Answer(views.check(services, ended), 202)


def _visible(uow: UnitOfWork, check_id: str, caller: Caller) -> Check:
    """Return a check that the caller may see.

    Raises:
        NotFound: There is none, or it is somebody else's: the two look the same.
    """
    found = uow.checks.get(check_id)
    if not caller.may_see(found.user_id):
        raise NotFound("check", check_id)
    return found


def _of_benchmark(
    request: CheckIn, caller: Caller, context: Context, now: datetime
) -> tuple[str, str | None, Mapping[str, _Version]]:
    """Return the name of a benchmark that is the baseline, its board, and both versions.

    Raises:
        InvalidInput: It has no result, nothing differs from it, or a version can't be.
    """
    services, offer = context.services, context.offers.now()
    with services.store.read() as uow:
        (wanted,) = named(uow, [request.baseline.benchmark_id or ""], caller)
        origin = visible(uow, wanted, caller)
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
    request: CheckIn, caller: Caller, context: Context, now: datetime
) -> tuple[str, str | None, Mapping[str, _Version]]:
    """Return the name of a baseline that is a description, no board, and both versions.

    Raises:
        InvalidInput: A version can't be.
    """
    trees = {BASELINE: request.baseline.description or {}, CANDIDATE: request.candidate}
    found: dict[str, _Version] = {}
    offer = context.offers.now()
    for side in _CANDIDATE_FIRST:
        with _about(side, None):
            refuse_fields(trees[side], CHECK_FIELDS, "cannot be that of the runs of a check")
            tree = _of_a_check(trees[side], None)
            found[side] = check(tree, caller, context.services, offer, now), ()
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
    context: Context,
    own: Sequence[str] | None,
    *,
    self_test: bool,
) -> list[str]:
    """Refuse two versions that cannot be compared or cannot run, before a board is used.

    Returns:
        The warnings about both, each once.

    Raises:
        InvalidInput: They do different work, or are the same and it is no self-test, as far as that
            is known, or no board can run one.
    """
    found: dict[str, shapes.DryRun] = {}
    for side in _CANDIDATE_FIRST:
        request, kept = versions[side]
        with _about(side, own):
            found[side] = once = would_happen(request, caller, context.services, kept)
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
        raise InvalidInput.at("/candidate/model", reason, accepted)
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
