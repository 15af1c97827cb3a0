"""Matrices of benchmarks: model x target x runtime, submitted and kept together."""

from __future__ import annotations

from functools import partial
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
from edgeyard.benchmark_api.routes.submitting import IdempotencyKey, LocalFiles, accepted_answer
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.body import MAX_NODES
from edgeyard.benchmark_api.schemas.matrix import left_out_warnings
from edgeyard.benchmark_api.schemas.requests import CampaignCheckIn, CampaignIn, parse
from edgeyard.benchmark_api.submission.campaign import checked_members, store_campaign
from edgeyard.benchmark_api.submission.dry_run import would_happen
from edgeyard.benchmark_api.submission.idempotency import IdempotencyGuard
from edgeyard.benchmark_api.submission.parse import read_local_files
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.ports import BenchmarkFilter

router = Router(prefix="/v1/campaigns", tags=["campaigns"])

_PAGE = 1000


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
        shapes.AcceptedCampaign, idempotency_key, caller.user_id, body.data, "/v1/campaigns"
    )
    if not dry_run and (earlier := idempotency.earlier(services)) is not None:
        return accepted_answer(earlier)
    now = services.clock.now()
    request = parse(CampaignIn, body.document(MAX_NODES))
    offer = context.offers.now()
    members, left_out = checked_members(
        request, caller, services, offer, now, with_files=True, local=local
    )
    if dry_run:
        items = [
            would_happen(member, caller, services, local=local, members=len(members))
            for member in members
        ]
        return Answer(shapes.CampaignDryRun(items=items, left_out=left_out))
    own_name = request.description.get("name")
    name = request.name or (own_name if isinstance(own_name, str) else "")
    return accepted_answer(
        store_campaign(name, members, left_out, caller, services, context.metrics, now, idempotency)
    )


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
    services = context.services
    members, left_out = checked_members(
        request,
        caller,
        services,
        context.offers.now(),
        services.clock.now(),
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
