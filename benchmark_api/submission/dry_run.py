"""In place of the last step: what would happen to a submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.submission.check import CheckedRequest, memory_warnings
from edgeyard.benchmark_api.submission.files import model_bytes_of
from edgeyard.benchmark_api.submission.parse import LocalFile
from edgeyard.benchmark_api.submission.store import StoreChecks, refuse_taken_id
from edgeyard.errors import HclError, InvalidInput
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.engine.charging import reservation
from edgeyard.scheduler.model.benchmark import BenchmarkFile
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.model.tariff import parse_tariff
from edgeyard.scheduler.model.wire import description_to_json
from edgeyard.scheduler.model.workload import workload_of


def would_happen(
    request: CheckedRequest,
    caller: Caller,
    services: Services,
    kept: Sequence[BenchmarkFile] = (),
    local: Mapping[str, LocalFile] = MappingProxyType({}),
    members: int = 1,
) -> shapes.DryRun:
    """Return a dry run's answer; files are looked up, nothing is stored.

    Args:
        request: What was checked.
        caller: Whose it would be.
        services: Of the server.
        kept: Files of roles that need not be looked up.
        local: Files that are not uploaded, by their names.
        members: Members of the matrix of which it is one.

    Raises:
        Conflict: As `refuse_taken_id`.
        InvalidInput: As `StoreChecks.files_of`.
        QuotaExceeded: What is not uploaded, or waits in the queue (the user's or all), would be too
            much.
    """
    allowed = quotas_of(caller.user, services.settings.quotas)
    with services.store.read() as uow:
        refuse_taken_id(uow, request, caller)
        rates = uow.credits.rates()
        if request.description.cron is None:
            count = members * request.description.count
            quotas.check_room_of_all(uow, services.max_pending_for(caller.user), count)
            quotas.check_room(uow, caller.user_id, allowed, count)
            start, now = request.description.start_time, services.clock.now()
            if start is not None and start > now:
                quotas.check_bookings(uow, caller.user_id, allowed, now, count)
        description, files = StoreChecks(uow, services, local).files_of(request, caller, kept)
        unseen = [file for file in files if file.sha256 is None and file.url is None]
        if unseen:
            quotas.check_planned(
                uow,
                caller.user_id,
                allowed,
                more_bytes=sum(file.size_bytes or 0 for file in unseen),
                more_files=len(unseen),
            )
    try:
        preview = services.engine.preview(description, files, caller.user_id)
    except (HclError, InvalidInput) as error:
        raise InvalidInput.at("", f"the job can't be rendered: {error}") from error
    explanation = preview.explanation
    states = {view.board.target_uid: view for view in services.engine.boards()}
    factor = parse_tariff(services.settings.tariff).at(services.clock.now())
    boards = []
    for verdict in explanation.verdicts:
        view = states.get(verdict.target_uid)
        family = view.board.family if view else verdict.target_uid.split("-", 1)[0]
        rate = factor * rates.get(family, 1.0)
        _, credits = reservation(description, rate, services.settings.default_user_time_s)
        boards.append(
            shapes.BoardVerdict(
                target_uid=verdict.target_uid,
                family=family,
                state=view.state.value if view else "unknown",
                fits=verdict.reason is None,
                never=verdict.never,
                reason=verdict.reason.value if verdict.reason else None,
                sentence=verdict.sentence,
                cost_s=verdict.cost_s,
                cost_error_s=verdict.cost_error_s,
                energy_j=verdict.energy_j,
                energy_low_j=verdict.energy_low_j,
                energy_high_j=verdict.energy_high_j,
                max_credits=credits,
            )
        )
    would: Literal["run", "wait", "never"] = (
        "run" if explanation.placement else "never" if explanation.never else "wait"
    )
    if would == "run" and any(_unfetched(file) for file in files):
        would = "wait"
    return shapes.DryRun(
        would=would,
        boards=boards,
        waiting_reason=views.waiting_reason(services, explanation.waiting),
        priority=explanation.priority,
        priority_parts=dict(explanation.priority_parts),
        hcl=preview.hcl,
        forecast=views.forecast(services, preview.forecast),
        planned=views.planned_start(services, explanation.planned),
        description=description_to_json(description),
        workload=msgspec.convert(
            workload_of(description, files, services.content.known(description, files)),
            shapes.Workload,
        ),
        not_uploaded=[
            shapes.LocalFile(name=file.name, size_bytes=file.size_bytes or 0) for file in unseen
        ],
        warnings=[*request.warnings, *memory_warnings(request, model_bytes_of(files))],
    )


def _unfetched(file: BenchmarkFile) -> bool:
    return file.sha256 is None and file.url is not None
