"""Matrices of benchmarks: model x target x runtime, submitted and kept together."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from fastapi import Query

from edgeyard.benchmark_api.auth import Submitter
from edgeyard.benchmark_api.routes import views
from edgeyard.benchmark_api.routes.checking import CheckedRequest, StoreChecks, check
from edgeyard.benchmark_api.routes.context import Body, Ctx, url
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts_document
from edgeyard.benchmark_api.routes.submitting import (
    IdempotencyGuard,
    IdempotencyKey,
    accepted_answer,
)
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.fields import is_url
from edgeyard.benchmark_api.schemas.requests import CampaignIn, Matrix, parse
from edgeyard.errors import FieldError, InvalidInput, NotFound
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.model.submissions import Campaign
from edgeyard.scheduler.ports import BenchmarkFilter, UnitOfWork

router = Router(prefix="/v1/campaigns", tags=["campaigns"])

_PAGE = 1000
MAX_CAMPAIGN_BYTES = 16 * 2**20
"""Of all its members' descriptions: a body of 200 KB could ask for 1,000 of 200 KB each."""
_NOT_SHARED = ("benchmark_id", "cron")


@router.post(
    "",
    status_code=202,
    openapi_extra=accepts_document("CampaignIn"),
)
def submit(
    body: Body, caller: Submitter, context: Ctx, idempotency_key: IdempotencyKey = None
) -> Answer[shapes.AcceptedCampaign]:
    """Submit every combination of a matrix: all of them, or none if one is wrong."""
    services = context.services
    idempotency = IdempotencyGuard(
        shapes.AcceptedCampaign, idempotency_key, caller.user_id, body, "/v1/campaigns"
    )
    if (earlier := idempotency.earlier(services)) is not None:
        return earlier
    now = services.clock.now()
    asked = parse(CampaignIn, body.document())
    trees = list(_members(asked, services.settings.campaign_limit))
    own_name = asked.description.get("name")
    offer = context.offers.now()
    members: list[CheckedRequest] = []
    wrong: dict[FieldError, None] = {}  # as an ordered set: members share their mistakes
    for tree in trees:
        try:
            members.append(check(tree, caller, services, offer, now))
        except InvalidInput as error:
            wrong |= {each: None for each in _problems_of_member(error, tree, asked.matrix)}
    if wrong:
        raise InvalidInput(list(wrong)[:50])
    campaign = Campaign(
        campaign_id=f"campaign-{secrets.token_hex(8)}",
        user_id=caller.user_id,
        name=asked.name or (own_name if isinstance(own_name, str) else ""),
        created_at=now,
    )

    def submit(
        uow: UnitOfWork,
    ) -> Answer[shapes.AcceptedCampaign] | tuple[shapes.AcceptedCampaign, Sequence[Benchmark]]:
        if (earlier := idempotency.earlier_in(uow)) is not None:
            return earlier
        uow.campaigns.add(campaign)
        checks = StoreChecks(uow, services)
        made = []
        for member in members:
            description, files = checks.files_of(member, caller)
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
        warnings = dict.fromkeys(each for member in members for each in member.warnings)
        accepted = shapes.AcceptedCampaign(
            campaign_id=campaign.campaign_id,
            benchmarks=[
                shapes.CampaignMember(benchmark_id=each.benchmark_id, status=each.status)
                for each in made
            ],
            links={"self": url(services, "v1", "campaigns", campaign.campaign_id)},
            warnings=list(warnings),
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
        shapes.CampaignSummary(
            campaign_id=each.campaign_id,
            user_id=each.user_id,
            name=each.name,
            created_at=each.created_at,
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
        campaign = uow.campaigns.get(campaign_id)
        if not caller.may_see(campaign.user_id):
            raise NotFound("campaign", campaign_id)
        cursor = None
        while True:
            page, cursor = uow.benchmarks.page(
                BenchmarkFilter(campaign_id=campaign_id), limit=_PAGE, cursor=cursor
            )
            found += page
            if cursor is None:
                break
    return Answer(
        shapes.Campaign(
            campaign_id=campaign.campaign_id,
            user_id=campaign.user_id,
            name=campaign.name,
            created_at=campaign.created_at,
            benchmarks=[views.listed_benchmark(services, each) for each in reversed(found)],
        )
    )


def _members(asked: CampaignIn, limit: int) -> Iterator[dict[str, object]]:
    """The job description of each combination.

    Raises:
        InvalidInput: Nothing varies, too many combinations, or a field that can't be shared.
    """
    axes = {name: values for name, values in asked.matrix if values is not None}
    if not axes:
        raise InvalidInput.at("/matrix", "nothing varies", "lists of models, targets or runtimes")
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > limit:
        raise InvalidInput.at("/matrix", f"has {count} combinations", f"at most {limit}")
    for name in (*axes, *_NOT_SHARED):
        if name in asked.description:
            reason = "varies in the matrix" if name in axes else "can't be shared by a campaign"
            raise InvalidInput.at(f"/description/{name}", reason, "no such field here")
    size = count * len(json.dumps(asked.description))
    if size > MAX_CAMPAIGN_BYTES:
        raise InvalidInput.at(
            "/description",
            f"is {count} times {size // count} bytes",
            f"at most {MAX_CAMPAIGN_BYTES} bytes in all",
        )
    if axes.keys() >= {"target", "target_uid"}:
        raise InvalidInput.at("/matrix", "varies both target and target_uid", "one of the two")
    named = {"name": asked.name} if asked.name else {}
    for values in itertools.product(*axes.values()):
        yield {**named, **asked.description, **dict(zip(axes, values, strict=True))}


def _problems_of_member(
    error: InvalidInput, tree: Mapping[str, object], matrix: Matrix
) -> Iterator[FieldError]:
    """Mistakes of one member, with the value of the matrix that made them."""
    for each in error.errors:
        name = each.pointer.removeprefix("/").split("/")[0]
        if getattr(matrix, name, None) is not None:
            value = str(tree[name])
            shown = "" if is_url(value) else f"{value}: "
            yield FieldError(f"/matrix/{name}", f"{shown}{each.reason}", each.accepted)
        elif name == "model_url" and matrix.model is not None:
            yield FieldError("/matrix/model", each.reason, each.accepted)
        else:
            yield FieldError(f"/description{each.pointer}", each.reason, each.accepted)
