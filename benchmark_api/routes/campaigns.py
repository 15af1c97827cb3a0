"""Matrices of benchmarks: model x target x runtime, submitted and kept together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Annotated

from fastapi import Query

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import (
    Body,
    Context,
    Ctx,
    Flag,
    Heavy,
    RawBody,
    visible_campaign,
)
from edgeyard.benchmark_api.routes.contract import Answer, Router, documented
from edgeyard.benchmark_api.routes.documented import accepts_document
from edgeyard.benchmark_api.routes.submitting import (
    IdempotencyGuard,
    IdempotencyKey,
    LocalFiles,
    accepted_answer,
    would_happen,
)
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import MAX_NODES
from edgeyard.benchmark_api.schemas.matrix import (
    PARAMETERS,
    left_out_warnings,
    members_of,
    positions_left_out,
    value_of_axis,
    value_text,
    values_of,
)
from edgeyard.benchmark_api.schemas.requests import CampaignCheckIn, CampaignIn, parse
from edgeyard.benchmark_api.submission.check import CheckedRequest, check, memory_warnings
from edgeyard.benchmark_api.submission.files import model_bytes_of, refuse_sizes
from edgeyard.benchmark_api.submission.parse import LocalFile, read_local_files
from edgeyard.benchmark_api.submission.store import StoreChecks
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/v1/campaigns", tags=["campaigns"])

_PAGE = 1000
MAX_CAMPAIGN_BYTES = 16 * 2**20
"""Maximum bytes of all descriptions of a campaign; a small body could describe very large ones."""
MAX_PROBLEMS = 50
"""Mistakes of one matrix that are listed."""
_NOT_SHARED = ("benchmark_id", "cron", "count")


@router.post(
    "",
    status_code=202,
    responses=documented(200, shapes.CampaignDryRun),
    openapi_extra=accepts_document("CampaignIn"),
)
async def submit(
    heavy: Heavy,
    body: Body,
    caller: Submitter,
    context: Ctx,
    dry_run: Flag = False,
    local_file: LocalFiles = None,
    idempotency_key: IdempotencyKey = None,
) -> Answer[shapes.AcceptedCampaign] | Answer[shapes.CampaignDryRun]:
    """Submit every combination of a matrix, in one transaction.

    Combinations that can't work are left out and named, such as a model for one engine with another
    one. If a value works in no combination, nothing is submitted. With ``dry_run`` nothing is
    submitted, and the answer is what would happen to each.
    """
    work = partial(_submit, body, caller, context, dry_run, local_file, idempotency_key)
    return await heavy.run(work)


def _submit(
    body: RawBody,
    caller: Caller,
    context: Context,
    dry_run: bool,
    local_file: LocalFiles,
    idempotency_key: IdempotencyKey,
) -> Answer[shapes.AcceptedCampaign] | Answer[shapes.CampaignDryRun]:
    services = context.services
    local = read_local_files(local_file, dry_run=dry_run)
    idempotency = IdempotencyGuard(
        shapes.AcceptedCampaign, idempotency_key, caller.user_id, body, "/v1/campaigns"
    )
    if not dry_run and (earlier := idempotency.earlier(services)) is not None:
        return earlier
    now = services.clock.now()
    request = parse(CampaignIn, body.document(MAX_NODES))
    members, left_out = _checked(request, caller, context, now, with_files=True, local=local)
    if dry_run:
        items = [
            would_happen(member, caller, services, local=local, members=len(members))
            for member in members
        ]
        return Answer(shapes.CampaignDryRun(items=items, left_out=left_out))
    own_name = request.description.get("name")
    name = request.name or (own_name if isinstance(own_name, str) else "")

    def submit(
        uow: UnitOfWork,
    ) -> Answer[shapes.AcceptedCampaign] | tuple[shapes.AcceptedCampaign, Sequence[Benchmark]]:
        if (earlier := idempotency.earlier_in(uow)) is not None:
            return earlier
        campaign = lifecycle.add_campaign(uow, caller.user_id, name, now)
        checks = StoreChecks(uow, services)
        made = []
        warnings = dict.fromkeys(left_out_warnings(left_out))
        for member in members:
            description, files = checks.files_of(member, caller)
            warnings |= dict.fromkeys(member.warnings)
            warnings |= dict.fromkeys(memory_warnings(member, model_bytes_of(files)))
            made.append(
                lifecycle.submit(
                    uow,
                    description,
                    caller.user_id,
                    files,
                    now,
                    campaign_id=campaign.campaign_id,
                )
            )
        allowed = quotas_of(caller.user, services.settings.quotas)
        quotas.check_queue(uow, caller.user, allowed, services.max_pending_for(caller.user))
        if any(each.description.start_time is not None for each in members):
            quotas.check_bookings(uow, caller.user_id, allowed, now)
        accepted = shapes.AcceptedCampaign(
            campaign_id=campaign.campaign_id,
            benchmarks=[
                shapes.CampaignMember(benchmark_id=each.benchmark_id, status=each.status)
                for each in made
            ],
            links={"self": views.url(services, "v1", "campaigns", campaign.campaign_id)},
            warnings=list(warnings),
            left_out=left_out,
        )
        idempotency.remember(uow, accepted)
        return accepted, made

    services.check_room(caller.user)
    done = services.store.transact(submit)
    if isinstance(done, Answer):
        return done
    accepted, made = done
    for each in made:
        context.metrics.submitted.labels(each.description.benchmark_type.value).inc()
    services.engine.wake()
    return accepted_answer(accepted)


@router.post("/check", openapi_extra=accepts_document("CampaignCheckIn"))
async def check_matrix(
    heavy: Heavy, body: Body, caller: Submitter, context: Ctx
) -> Answer[shapes.CheckedDescription]:
    """Check a matrix before its files are uploaded: all that needs no file."""
    return await heavy.run(partial(_check_matrix, body, caller, context))


def _check_matrix(
    body: RawBody, caller: Caller, context: Context
) -> Answer[shapes.CheckedDescription]:
    request = parse(CampaignCheckIn, body.document(MAX_NODES))
    now = context.services.clock.now()
    members, left_out = _checked(
        request,
        caller,
        context,
        now,
        with_files=False,
        sizes=request.sizes,
        dataset_bytes=request.dataset_bytes,
    )
    warnings = dict.fromkeys(left_out_warnings(left_out))
    warnings |= dict.fromkeys(each for member in members for each in member.warnings)
    return Answer(shapes.CheckedDescription(warnings=list(warnings)))


@router.get("")
def list_campaigns(
    caller: Submitter,
    context: Ctx,
    name: str | None = None,
    user_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = 50,
    cursor: str | None = None,
) -> Answer[shapes.CampaignPage]:
    """Your campaigns, newest first; operators see everybody's."""
    if not caller.may_see(user_id or caller.user_id):
        return Answer(shapes.CampaignPage(items=[], next_cursor=None))
    with context.services.store.read() as uow:
        found, following = uow.campaigns.page(
            user_id=user_id if caller.is_operator else caller.user_id,
            name=name,
            limit=limit,
            cursor=cursor,
        )
        counts = uow.campaigns.counts([each.campaign_id for each in found])
    items = [
        views.same(
            shapes.CampaignSummary,
            each,
            benchmarks=sum(counts[each.campaign_id].values()),
            counts={word.value: count for word, count in counts[each.campaign_id].items()},
        )
        for each in found
    ]
    return Answer(shapes.CampaignPage(items=items, next_cursor=following))


@router.get("/{campaign_id}")
def show(campaign_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.Campaign]:
    """A campaign with its benchmarks, oldest first."""
    services = context.services
    found: list[Benchmark] = []
    with services.store.read() as uow:
        campaign = visible_campaign(uow, campaign_id, caller)
        cursor = None
        while True:
            page, cursor = uow.benchmarks.page(
                BenchmarkFilter(campaign_id=campaign_id), limit=_PAGE, cursor=cursor
            )
            found += page
            if cursor is None:
                break
    return Answer(
        views.same(
            shapes.Campaign,
            campaign,
            benchmarks=[views.listed_benchmark(services, each) for each in reversed(found)],
        )
    )


def _members(request: CampaignIn, limit: int) -> Iterator[dict[str, object]]:
    """Yield the job description of each combination.

    Raises:
        InvalidInput: Nothing varies, too many combinations, or a field that can't be shared.
    """
    axes = request.matrix.axes
    if not axes:
        accepted = "lists of models, targets or runtimes, or of values of parameters"
        raise InvalidInput.at("/matrix", "nothing varies", accepted)
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > limit:
        raise InvalidInput.at("/matrix", f"has {count} combinations", f"at most {limit}")
    for name in (*axes, *_NOT_SHARED):
        if name in request.description:
            reason = "varies in the matrix" if name in axes else "can't be shared by a campaign"
            accepted = f"a description without {name}"
            raise InvalidInput.at(f"/description/{name}", reason, accepted)
    shared = request.description.get(PARAMETERS)
    for key in shared if isinstance(shared, Mapping) else ():
        if f"{PARAMETERS}/{key}" in axes:
            place, accepted = f"/description/{PARAMETERS}/{key}", f"one of both for {key}"
            raise InvalidInput.at(place, "varies in the matrix", accepted)
    if not isinstance(shared, Mapping | None) and request.matrix.parameters is not None:
        raise InvalidInput.at(f"/description/{PARAMETERS}", "is not an object", "an object")
    size = count * len(json.dumps(request.description))
    if size > MAX_CAMPAIGN_BYTES:
        raise InvalidInput.at(
            "/description",
            f"is {count} times {size // count} bytes",
            f"at most {MAX_CAMPAIGN_BYTES} bytes in all",
        )
    if axes.keys() >= {"target", "target_uid"}:
        raise InvalidInput.at("/matrix", "varies both target and target_uid", "one of the two")
    named = {"name": request.name} if request.name else {}
    yield from members_of(axes, {**named, **request.description})


def _checked(
    request: CampaignIn,
    caller: Caller,
    context: Context,
    now: datetime,
    *,
    with_files: bool,
    sizes: Mapping[object, int] | None = None,
    dataset_bytes: int | None = None,
    local: Mapping[str, LocalFile] = MappingProxyType({}),
) -> tuple[list[CheckedRequest], list[shapes.LeftOut]]:
    """Check all combinations of a matrix, and return those that work and those that can't.

    Args:
        request: The matrix and what its members share.
        caller: Whose it is.
        context: Of the app.
        now: The time of submission.
        with_files: Also check the files, which are uploaded already.
        sizes: Of models that are not uploaded yet, by their names.
        dataset_bytes: Size of the largest dataset that is not uploaded yet.
        local: Files that are not uploaded, by their names; with ``with_files``.

    Raises:
        InvalidInput: A value works in no combination. With all mistakes of all members, each with
            the values that lead to it.
    """
    services = context.services
    trees = list(_members(request, services.settings.campaign_limit))
    offer = context.offers.now()
    axes = request.matrix.axes
    members: list[CheckedRequest] = []
    correct: list[int] = []
    with services.store.read() as uow:
        checks = StoreChecks(uow, services, local)
        shown = {
            text: checks.shown(text, caller)
            for values in axes.values()
            for text in map(value_text, values)
        }
        values = list(values_of(axes))
        combinations = [
            {name: shown[value_text(value)] for name, value in each.items()} for each in values
        ]
        problems = _Problems(axes, combinations)
        for position, tree in enumerate(trees):
            with problems.of(position):
                member = check(tree, caller, services, offer, now)
                refuse_sizes(
                    services.settings,
                    member,
                    model_bytes=(sizes or {}).get(tree.get("model")),
                    dataset_bytes=dataset_bytes,
                )
                members.append(member)
                correct.append(position)
        if with_files:
            members = checks.with_own_inputs(members, caller)
            for member, position in zip(members, correct, strict=True):
                with problems.of(position):
                    checks.files_of(member, caller)
    without = positions_left_out(values, problems.reasons.keys())
    if not without:
        problems.refuse()
    kept = [
        member
        for member, position in zip(members, correct, strict=True)
        if position not in problems.reasons
    ]
    return kept, [
        shapes.LeftOut(
            position=position,
            values=combinations[position],
            reasons=list(dict.fromkeys(problems.reasons[position])),
        )
        for position in without
    ]


class _Problems:
    """The mistakes of the members of a matrix, each with the values that lead to it.

    Attributes:
        reasons: By position of the member.
    """

    def __init__(self, axes: Iterable[str], members: Sequence[Mapping[str, str]]) -> None:
        self._axes = tuple(axes)
        self._members = members
        self._found: dict[FieldError, list[Mapping[str, str]]] = {}
        self.reasons: dict[int, list[str]] = {}

    @contextmanager
    def of(self, position: int) -> Iterator[None]:
        """Collect what is wrong with the member at this position."""
        try:
            yield
        except InvalidInput as error:
            for each in error.errors:
                self._found.setdefault(each, []).append(self._members[position])
                self.reasons.setdefault(position, []).append(each.reason)

    def refuse(self) -> None:
        """Refuse the matrix if something is wrong with one of its members.

        Raises:
            InvalidInput: With at most `MAX_PROBLEMS` mistakes, and the number of the others.
        """
        found = [self._shown(each, values) for each, values in self._found.items()]
        if len(found) > MAX_PROBLEMS:
            more = FieldError("/matrix", f"has {len(found) - MAX_PROBLEMS} more problems")
            found = [*found[:MAX_PROBLEMS], more]
        if found:
            raise InvalidInput(found)

    def _shown(self, error: FieldError, failing: Sequence[Mapping[str, str]]) -> FieldError:
        path = error.pointer.removeprefix("/").split("/")
        whole = "/".join(path[:2])
        name = whole if path[0] == PARAMETERS else path[0].removesuffix("_url")
        if name in self._axes:
            values = ", ".join(dict.fromkeys(each[name] for each in failing))
            shown = error.reason if repr(values) in error.reason else f"{values}: {error.reason}"
            return FieldError(f"/matrix/{name}", shown, error.accepted)
        values = next(filter(None, (self._separating(axis, failing) for axis in self._axes)), "")
        reason = f"{values}: {error.reason}" if values else error.reason
        return FieldError(f"/description{error.pointer}", reason, error.accepted)

    def _separating(self, axis: str, failing: Sequence[Mapping[str, str]]) -> str:
        """Return the values of an axis whose members have a mistake and no others do, if any."""
        values = list(dict.fromkeys(each[axis] for each in failing))
        of_values = [each for each in self._members if each[axis] in values]
        others = len(of_values) < len(self._members)
        if not others or len(of_values) != len(failing):
            return ""
        return ", ".join(value_of_axis(axis, each) for each in values)
