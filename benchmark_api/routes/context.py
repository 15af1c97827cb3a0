"""What every route needs: the services, and small things about requests and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import AnyCaller, Authenticator, Caller, Submitter
from edgeyard.benchmark_api.heavy_work import HeavyWork, Place
from edgeyard.benchmark_api.live_twin import HostReports
from edgeyard.benchmark_api.metrics import Metrics
from edgeyard.benchmark_api.passwords import Passwords
from edgeyard.benchmark_api.rate_limits import RateLimits
from edgeyard.benchmark_api.routes.receiving import Uploads
from edgeyard.benchmark_api.routes.sign_in_links import SignInLinks
from edgeyard.benchmark_api.routes.tail import LogTail
from edgeyard.benchmark_api.schemas.body import MAX_QUICK_NODES, read_document, read_object
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.offer import Offers
from edgeyard.benchmark_api.submission.store import Submissions
from edgeyard.errors import NotFound, TooLarge
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.benchmark import Benchmark
from edgeyard.scheduler.model.series import WatchedSeries
from edgeyard.scheduler.model.submissions import Campaign
from edgeyard.scheduler.ports import UnitOfWork
from edgeyard.scheduler.twin.posted import DigitalTwin

_BODY_LIMIT = "body_limit_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything behind the routes of one app.

    Attributes:
        heavy: Runs what takes long.
        posted: States that operators posted to the digital twin.
        links: Codes that open sessions in browsers.
        reports: Nodes that hosts posted to it.
    """

    services: Services
    metrics: Metrics
    authenticator: Authenticator
    tail: LogTail
    submissions: Submissions
    offers: Offers
    passwords: Passwords
    heavy: HeavyWork
    posted: DigitalTwin
    links: SignInLinks
    reports: HostReports = field(default_factory=HostReports)
    uploads: Uploads = field(default_factory=Uploads)


@dataclass(frozen=True, slots=True)
class RawBody:
    """A small body as it came."""

    data: bytes
    content_type: str

    def tree(self, max_nodes: int = MAX_QUICK_NODES) -> dict[str, object]:
        """Return the JSON object in it; an empty body is an empty object.

        Args:
            max_nodes: Maximum number of values; more of them are for `Heavy` routes.
        """
        return read_object(self.data, self.content_type, max_nodes) if self.data.strip() else {}

    def document(self, max_nodes: int = MAX_QUICK_NODES) -> dict[str, object]:
        """Return the job description in it, written as JSON or YAML; arguments as of `tree`."""
        return read_document(self.data, self.content_type, max_nodes) if self.data.strip() else {}


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _authenticated_body(request: Request, caller: AnyCaller) -> RawBody:
    """Read the body of a request, once its token has been checked."""
    context: Context = request.app.state.context
    return await read_small(request, context.services.settings.body_limit_bytes)


async def read_small(request: Request, limit: int) -> RawBody:
    """Read a small body whole.

    Raises:
        TooLarge: Over the limit, in bytes; what is left of it is not read.
        TooManyOpenBytes: Bodies of the user's other requests are too large; likewise.
    """
    rate_limits: RateLimits = request.app.state.rate_limits
    return await read_bounded(request, limit, partial(rate_limits.hold_body, request.scope))


async def read_bounded(request: Request, limit: int, hold: Callable[[int], None]) -> RawBody:
    """Read a body whole.

    Args:
        request: Whose body is read.
        limit: In bytes.
        hold: Called with the size of each part that has come.

    Raises:
        TooLarge: Over the limit; what is left of it is not read.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit:
        raise TooLarge("the body", limit, _BODY_LIMIT)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise TooLarge("the body", limit, _BODY_LIMIT)
        hold(len(chunk))
    return RawBody(bytes(data), request.headers.get("content-type", ""))


async def _place(request: Request, caller: Submitter) -> AsyncIterator[Place]:
    context: Context = request.app.state.context
    with context.heavy.place(caller.user_id) as place:
        yield place


# Both are coroutines that do no I/O of their own: a plain function would cost a thread's hop.
Ctx = Annotated[Context, Depends(_context)]
Body = Annotated[RawBody, Depends(_authenticated_body)]
Heavy = Annotated[Place, Depends(_place)]
"""A place for work that takes long; first among a route's parameters, so that it is taken before
the body is read."""


def _given(value: object) -> object:
    return True if value == "" else value


Flag = Annotated[bool, Query(), BeforeValidator(_given)]
"""A query parameter that is on by being there: ``?verbose`` as ``?verbose=1``."""


async def _benchmark_id(request: Request, benchmark_id: str, caller: AnyCaller) -> str:
    """Return the whole id of the benchmark that a path names.

    Callers may name their own benchmarks by the beginnings that they chose.
    """
    if lifecycle.is_whole_id(benchmark_id, caller.user_id):
        return benchmark_id
    context: Context = request.app.state.context
    return await run_in_threadpool(whole_id, context.services, benchmark_id, caller)


def whole_id(services: Services, benchmark_id: str, caller: Caller) -> str:
    """Return the whole id of a benchmark of which the caller may have chosen the beginning."""
    with services.store.read() as uow:
        return named(uow, [benchmark_id], caller)[0]


BenchmarkId = Annotated[str, Depends(_benchmark_id)]
"""The id of a benchmark in a path; see `_benchmark_id`."""


def named(uow: UnitOfWork, benchmark_ids: Sequence[str], caller: Caller) -> list[str]:
    """Return the whole ids of benchmarks of which the caller may have chosen the beginnings.

    An id stays as it is where the caller may see that benchmark, or has none of that beginning.
    """
    own = {each: lifecycle.own_benchmark_id(each, caller.user_id) for each in benchmark_ids}
    found = uow.benchmarks.get_many([*own, *own.values()])
    there = {each.benchmark_id for each in found if caller.may_see(each.user_id)}
    return [
        own[each] if each not in there and own[each] in there else each for each in benchmark_ids
    ]


def visible(uow: UnitOfWork, benchmark_id: str, caller: Caller) -> Benchmark:
    """Return a benchmark that the caller may see; otherwise raise as if it did not exist.

    Raises:
        NotFound: There is none, or it is somebody else's: the two look the same.
    """
    benchmark = uow.benchmarks.get(benchmark_id)
    if not caller.may_see(benchmark.user_id):
        raise NotFound("benchmark", benchmark_id)
    return benchmark


def visible_campaign(uow: UnitOfWork, campaign_id: str, caller: Caller) -> Campaign:
    """Return a campaign that the caller may see; otherwise raise as if it did not exist.

    Raises:
        NotFound: There is none, or it is somebody else's: the two look the same.
    """
    campaign = uow.campaigns.get(campaign_id)
    if not caller.may_see(campaign.user_id):
        raise NotFound("campaign", campaign_id)
    return campaign


def visible_series(uow: UnitOfWork, series_id: str, caller: Caller) -> WatchedSeries:
    """Return a watched series that the caller may see; otherwise raise as if it did not exist.

    Raises:
        NotFound: There is none, or it is somebody else's: the two look the same.
    """
    series = uow.series.watched(series_id)
    if not caller.may_see(series.key.user_id):
        raise NotFound("series", series_id)
    return series
