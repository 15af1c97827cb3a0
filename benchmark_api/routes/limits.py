"""The limits that hold for a user, how much of each is used, and what all users have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

from edgeyard.benchmark_api.auth import Operator, Submitter
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.groups import group_of
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.services import Services
from edgeyard.benchmark_api.settings import Settings, setting_of
from edgeyard.errors import NotFound
from edgeyard.scheduler.model.benchmark import Status
from edgeyard.scheduler.model.quotas import GROUP_QUOTA_NAMES, QUOTA_NAMES, USED, Usage, quotas_of
from edgeyard.scheduler.model.users import Role, User

router = Router(prefix="/v1", tags=["accounts"])


class _Kind(NamedTuple):
    """How a limit counts, and the status of the answer past it; None: what is beyond it waits."""

    unit: str
    status: int | None


_QUOTAS = {
    "max_bytes": _Kind("bytes", 507),
    "max_files": _Kind("files", 507),
    "max_pending": _Kind("benchmarks", 429),
    "max_live": _Kind("benchmarks", 429),
    "max_bookings": _Kind("bookings", 507),
    "max_schedules": _Kind("schedules", 507),
    "max_tokens": _Kind("tokens", 507),
    "max_run_files": _Kind("files", 413),
    "max_run_bytes": _Kind("bytes", 413),
}
_SERVER = {
    "max_pending_total": _Kind("benchmarks", 429),
    "user_max_registrations": _Kind("registrations", 507),
    "max_registrations_total": _Kind("registrations", 507),
    "campaign_limit": _Kind("benchmarks", 422),
    "model_limit_bytes": _Kind("bytes", 413),
    "language_model_limit_bytes": _Kind("bytes", 413),
    "dataset_limit_bytes": _Kind("bytes", 413),
    "result_limit_bytes": _Kind("bytes", 413),
    "body_limit_bytes": _Kind("bytes", 413),
    "scenario_limit_bytes": _Kind("bytes", 413),
    "twin_limit_bytes": _Kind("bytes", 413),
    "reserve_bytes": _Kind("bytes", 507),
    "ballast_bytes": _Kind("bytes", 507),
    "user_requests_per_minute": _Kind("requests a minute", 429),
    "open_requests_per_user": _Kind("requests under way", 429),
    "open_body_bytes_per_user": _Kind("bytes", 429),
    "heavy_requests_per_user": _Kind("requests under way", 429),
    "trusted_requests_per_minute": _Kind("requests a minute", 429),
    "address_requests_per_minute": _Kind("requests a minute", 429),
    "failures_per_minute": _Kind("requests a minute", 429),
    "login_failures": _Kind("failures in 5 minutes", 429),
    "login_address_failures": _Kind("failures in 5 minutes", 429),
    "login_account_failures": _Kind("failures an hour", 429),
    "login_account_successes": _Kind("log-ins in 5 minutes", 429),
    "max_connections": _Kind("connections", None),
    "downloads_per_user": _Kind("downloads under way", None),
}
_WHOSE = {
    "twin_limit_bytes": "all posted states together",
    "max_pending_total": "all users together",
    "max_registrations_total": "all users together",
    "user_requests_per_minute": "each token of a submitter",
    "open_requests_per_user": "each submitter",
    "open_body_bytes_per_user": "each submitter",
    "heavy_requests_per_user": "each user",
    "trusted_requests_per_minute": "each token of an operator, host or running task",
    "address_requests_per_minute": "each address",
    "failures_per_minute": "each address",
    "login_failures": "each account and address",
    "login_address_failures": "each address",
    "login_account_failures": "each account",
    "login_account_successes": "each account",
    "downloads_per_user": "each user",
}


@router.get("/limits")
def limits(caller: Submitter, context: Ctx, user_id: str | None = None) -> Answer[shapes.Limits]:
    """The limits that hold for you, and how much of each is used; anybody's for operators.

    Those of your group come after your own, and count what all its members have.
    """
    services = context.services
    user_id = user_id or caller.user_id
    if not caller.may_see(user_id):
        raise NotFound("user", user_id)
    with services.store.read() as uow:
        user = uow.accounts.user(user_id)
        now = services.clock.now()
        usage = uow.usage.of(user_id, now)
        group = group_of(uow, user, now)
        used = {"max_pending_total": uow.benchmarks.counts_by_status().get(Status.PENDING, 0)}
        registered = uow.registrations.counts()
    used["user_max_registrations"] = registered.get(user_id, 0)
    used["max_registrations_total"] = sum(registered.values())
    items = [
        *_of_user(user, usage, services.settings),
        *([] if group is None else _of_group(group)),
        *_of_server(services, user_id, used),
    ]
    return Answer(shapes.Limits(user_id=user_id, items=items))


@router.get("/limits/users")
def limits_of_users(caller: Operator, context: Ctx) -> Answer[shapes.Uses]:
    """What every user has, and may have."""
    services = context.services
    defaults = services.settings.quotas
    with services.store.read() as uow:
        users = {user.user_id: user for user in uow.accounts.users()}
        used = uow.usage.all(services.clock.now())
    items = []
    for each in used:
        allowed = asdict(quotas_of(users[each.user_id], defaults))
        items.append(shapes.Use(**asdict(each), **{name: allowed[name] for name in USED}))
    return Answer(shapes.Uses(items=items))


def _of_user(user: User, usage: Usage, settings: Settings) -> Iterator[shapes.Limit]:
    allowed = quotas_of(user, settings.quotas)
    for name in QUOTA_NAMES:
        setting = setting_of(name)
        source = _source(settings, setting)
        if getattr(user, name) is not None:
            source = "account"
        elif user.role is Role.OPERATOR:
            source = "role"
        run = name.startswith("max_run_")
        yield shapes.Limit(
            name=name,
            value=getattr(allowed, name),
            used=getattr(usage, USED[name]) if name in USED else None,
            unit=_QUOTAS[name].unit,
            whose=f"{'each run of ' if run else ''}user {user.user_id}",
            source=source,
            setting=setting,
            status=_QUOTAS[name].status,
            meaning=_meaning(setting),
        )


def _of_group(group: shapes.Group) -> Iterator[shapes.Limit]:
    """Yield the limits that a group has."""
    for name in GROUP_QUOTA_NAMES:
        if (value := getattr(group, name)) is not None:
            yield shapes.Limit(
                name=name,
                value=value,
                used=getattr(group, USED[name]),
                unit=_QUOTAS[name].unit,
                whose=f"group {group.group_id}",
                source="group",
                setting="",
                status=_QUOTAS[name].status,
                meaning=f"What the members of the group have together, as {setting_of(name)}",
            )


def _of_server(services: Services, user_id: str, used: Mapping[str, int]) -> Iterator[shapes.Limit]:
    settings = services.settings
    whose = _WHOSE | {"user_max_registrations": f"user {user_id}"}
    for name, kind in _SERVER.items():
        yield shapes.Limit(
            name=name,
            value=getattr(settings, name),
            used=used.get(name),
            unit=kind.unit,
            whose=whose.get(name, "this server"),
            source=_source(settings, name),
            setting=name,
            status=kind.status,
            meaning=_meaning(name),
        )


def _source(settings: Settings, name: str) -> shapes.LimitSource:
    default = Settings.model_fields[name].default
    return "default" if getattr(settings, name) == default else "setting"


def _meaning(name: str) -> str:
    return Settings.model_fields[name].description or ""
