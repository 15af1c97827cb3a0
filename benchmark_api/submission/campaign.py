"""The same steps for all combinations of a matrix, which are accepted or refused together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.metrics import Metrics
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.matrix import (
    PARAMETERS,
    left_out_warnings,
    members_of,
    positions_left_out,
    value_of_axis,
    value_text,
    values_of,
)
from edgeyard.benchmark_api.schemas.requests import CampaignIn
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.check import CheckedRequest, check, memory_warnings
from edgeyard.benchmark_api.submission.files import model_bytes_of, refuse_sizes
from edgeyard.benchmark_api.submission.idempotency import Accepted, IdempotencyGuard
from edgeyard.benchmark_api.submission.offer import Offer
from edgeyard.benchmark_api.submission.parse import LocalFile
from edgeyard.benchmark_api.submission.store import StoreChecks
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.engine import lifecycle, quotas
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.ports import UnitOfWork

MAX_CAMPAIGN_BYTES = 16 * 2**20
"""Maximum bytes of all descriptions of a campaign; a small body could describe very large ones."""

MAX_PROBLEMS = 50
"""Mistakes of one matrix that are listed."""

_NOT_SHARED = ("benchmark_id", "cron", "count")


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


def checked_members(
    request: CampaignIn,
    caller: Caller,
    services: Services,
    offer: Offer,
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
        services: Of the server.
        offer: Of the boards that may be used.
        now: The time of submission.
        with_files: Also check the files, which are uploaded already.
        sizes: Of models that are not uploaded yet, by their names.
        dataset_bytes: Size of the largest dataset that is not uploaded yet.
        local: Files that are not uploaded, by their names; with ``with_files``.

    Raises:
        InvalidInput: A value works in no combination. With all mistakes of all members, each with
            the values that lead to it.
    """
    trees = list(_members(request, services.settings.campaign_limit))
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


def store_campaign(
    name: str,
    members: Sequence[CheckedRequest],
    left_out: Sequence[shapes.LeftOut],
    caller: Caller,
    services: Services,
    metrics: Metrics,
    now: datetime,
    idempotency: IdempotencyGuard[shapes.AcceptedCampaign],
) -> Accepted[shapes.AcceptedCampaign]:
    """Put all members of a campaign into the queue, in one transaction.

    Args:
        name: Of the campaign.
        members: Those that `checked_members` found to work.
        left_out: The combinations that do not.
        caller: Whose it is.
        services: Of the server.
        metrics: Count what was submitted.
        now: The time of submission.
        idempotency: Its idempotency key, if it has one.

    Returns:
        What is reported of it; the earlier answer where the key was used before.
    """

    def submit(uow: UnitOfWork) -> Accepted[shapes.AcceptedCampaign]:
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
        answer = shapes.AcceptedCampaign(
            campaign_id=campaign.campaign_id,
            benchmarks=[
                shapes.CampaignMember(benchmark_id=each.benchmark_id, status=each.status)
                for each in made
            ],
            links={"self": views.url(services, "v1", "campaigns", campaign.campaign_id)},
            warnings=list(warnings),
            left_out=list(left_out),
        )
        idempotency.remember(uow, answer)
        return Accepted(answer)

    services.check_room(caller.user)
    done = services.store.transact(submit)
    if not done.is_replayed:
        for each in members:
            metrics.submitted.labels(each.description.benchmark_type.value).inc()
        services.engine.wake()
    return done
