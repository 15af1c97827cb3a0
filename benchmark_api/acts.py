"""What the log of acts records of a request: its door, its address, its type."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import unquote

from starlette.types import Scope

from edgeyard.errors import EdgeyardError
from edgeyard.scheduler.model.acts import Acting, Door, acting, acting_as
from edgeyard.scheduler.ports import Store

logger = logging.getLogger(__name__)

REASON_HEADER = "X-Edgeyard-Reason"
"""Why somebody does this, percent-encoded UTF-8; a reason in the body precedes it."""

CLI_AGENT = "edgeyard-cli/"
SDK_AGENT = "edgeyard/"

MAX_TEXT = 500
"""Characters of a reason or a User-Agent that are kept."""

MAX_ADDRESSES = 1000
"""Addresses a minute whose failed sign-ins are counted each; others' are summed."""

OTHER_ADDRESSES = "others"

_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_FOREIGN = "request.changed"

ROUTE_ACTS: Mapping[tuple[str, str], str | None] = {
    ("POST", "/v1/benchmarks"): "benchmark.submitted",
    ("POST", "/v1/benchmarks/check"): None,  # changes nothing
    ("POST", "/v1/benchmarks/{benchmark_id}/retry"): "benchmark.submitted",
    ("POST", "/v1/benchmarks/{benchmark_id}/clone"): "benchmark.submitted",
    ("POST", "/v1/benchmarks/{benchmark_id}/clone/check"): None,  # changes nothing
    ("POST", "/v1/benchmarks/{benchmark_id}/cancel"): "benchmark.cancelled",
    ("POST", "/v1/benchmarks/{benchmark_id}/hold"): "benchmark.held",
    ("POST", "/v1/benchmarks/{benchmark_id}/release"): "benchmark.released",
    ("POST", "/v1/benchmarks/{benchmark_id}/preempt"): "benchmark.preempted",
    ("POST", "/v1/benchmarks/{benchmark_id}/priority"): "benchmark.prioritised",
    ("DELETE", "/v1/benchmarks/{benchmark_id}/files"): "benchmark.deleted",
    ("PUT", "/v1/benchmarks/{benchmark_id}/policy"): "policy.override",
    ("DELETE", "/v1/benchmarks/{benchmark_id}/policy"): "policy.override",
    ("POST", "/v1/campaigns"): "campaign.submitted",
    ("POST", "/v1/campaigns/check"): None,  # changes nothing
    ("POST", "/v1/files"): "file.uploaded",
    ("POST", "/v1/files/names"): "file.uploaded",
    ("DELETE", "/v1/files/{file_id}"): "file.deleted",
    ("POST", "/v1/uploads"): "file.uploaded",
    ("PATCH", "/v1/uploads/{upload_id}"): "file.uploaded",
    ("DELETE", "/v1/uploads/{upload_id}"): "file.deleted",
    ("POST", "/v1/runs/{job}/progress"): None,  # a task's
    ("POST", "/v1/runs/{job}/exchange"): None,  # a task's
    ("PUT", "/upload/{job}/{filename}"): None,  # a task's
    ("POST", "/upload/{job}/"): None,  # a task's
    ("POST", "/v1/boards/{target_uid}/drain"): "board.drained",
    ("POST", "/v1/boards/{target_uid}/resume"): "board.resumed",
    ("POST", "/v1/strays/{job_id:path}/stop"): "cluster.stray_stopped",
    ("POST", "/v1/inventory/boards"): "board.added",
    ("DELETE", "/v1/inventory/boards/{target_uid}"): "board.removed",
    ("POST", "/v1/boards/{target_uid}/lease"): "board.leased",
    ("POST", "/v1/leases/{lease_id}/release"): "board.released",
    ("POST", "/v1/boards/{target_uid}/quarantine"): "board.quarantined",
    ("POST", "/v1/boards/{target_uid}/unquarantine"): "board.unquarantined",
    ("POST", "/v1/boards/{target_uid}/probe"): "board.probed",
    ("POST", "/v1/users/{user_id}/credits"): "user.credits",
    ("PUT", "/v1/rates/{family}"): "rate.set",
    ("PUT", "/v1/policies/{role}"): "policy.changed",
    ("DELETE", "/v1/policies/{role}"): "policy.changed",
    ("POST", "/v1/models/training/begin"): "training.begun",
    ("POST", "/v1/models/training/stop"): "training.stopped",
    ("POST", "/v1/models/{kind}/{version}/promote"): "model.changed",
    ("POST", "/v1/models/{kind}/rollback"): "model.changed",
    ("POST", "/v1/scenarios"): "scenario.changed",
    ("DELETE", "/v1/scenarios/{scenario}"): "scenario.changed",
    ("POST", "/v1/scenarios/{scenario}/tags"): "scenario.changed",
    ("PUT", "/v1/simulations/{run_id}"): "simulation.changed",
    ("DELETE", "/v1/simulations/{run_id}"): "simulation.changed",
    ("POST", "/v1/results/comparison"): None,  # changes nothing
    ("POST", "/v1/twin"): None,  # kept in memory, and repeated every few seconds
    ("POST", "/v1/twin/refresh"): None,  # changes nothing
    ("DELETE", "/v1/schedules/{schedule_id}"): "schedule.ended",
    ("POST", "/v1/users"): "user.added",
    ("PATCH", "/v1/users/{user_id}"): "user.changed",
    ("POST", "/v1/groups"): "group.added",
    ("PATCH", "/v1/groups/{group_id}"): "group.changed",
    ("DELETE", "/v1/groups/{group_id}"): "group.removed",
    ("PUT", "/v1/users/{user_id}/password"): "password.set",
    ("DELETE", "/v1/users/{user_id}/password"): "password.removed",
    ("PUT", "/v1/users/{user_id}/webhook"): "webhook.set",
    ("POST", "/v1/tokens"): "token.added",
    ("DELETE", "/v1/tokens/{token_id}"): "token.revoked",
    ("POST", "/v1/checks"): "check.started",
    ("POST", "/v1/checks/{check_id}/cancel"): "check.cancelled",
    ("POST", "/v1/alerts/{change_id}/resolve"): "alert.resolved",
    ("POST", "/v1/alerts/{change_id}/dismiss"): "alert.dismissed",
    ("DELETE", "/v1/series/{series_id}/threshold"): "series.changed",
    ("PUT", "/v1/series/{series_id}/settings"): "series.changed",
    ("POST", "/v1/shares"): "share.added",
    ("DELETE", "/v1/shares/{share_id}"): "share.removed",
    ("POST", "/v1/subscriptions"): "subscription.added",
    ("DELETE", "/v1/subscriptions/{subscription_id}"): "subscription.removed",
    ("POST", "/api/users/login"): "session.opened",
    ("POST", "/api/users/token/refresh"): None,  # a session goes on, as every few minutes
    ("POST", "/api/benchmarks/datasets/upload"): "file.uploaded",
    ("DELETE", "/api/benchmarks/datasets/{name}"): "file.deleted",
    ("POST", "/api/models/download"): "file.uploaded",
    ("POST", "/api/models/convert"): "file.uploaded",
    ("POST", "/api/benchmarks/run"): "benchmark.submitted",
    ("POST", "/api/benchmarks/train"): "benchmark.submitted",
    ("POST", "/api/benchmarks/fl/run"): None,  # not built
    ("DELETE", "/api/benchmarks/{benchmark_id}"): "benchmark.deleted",
    ("POST", "/api/targets/hardware-types"): "family.registered",
    ("DELETE", "/api/targets/hardware-types/{name}"): "family.unregistered",
    ("POST", "/api/targets/engines"): "engine.registered",
    ("DELETE", "/api/targets/engines/{name}"): "engine.unregistered",
    ("POST", "/api/targets/hardware-instances"): "board.registered",
    ("DELETE", "/api/targets/hardware-instances/{inventory_id}"): "board.unregistered",
    ("POST", "/api/targets/engine-parameters"): "engine.registered",
    ("PATCH", "/api/targets/engine-parameters/{key}"): "engine.registered",
    ("DELETE", "/api/targets/engine-parameters/{key}"): "engine.unregistered",
    ("POST", "/api/targets/engines/{engine}/parameters"): "engine.registered",
    ("POST", "/api/targets/engines/{engine}/parameters/{key}"): "engine.registered",
    ("DELETE", "/api/targets/engines/{engine}/parameters/{key}"): "engine.unregistered",
    ("POST", "/ui/sign-in"): "session.opened",
    ("POST", "/ui/sign-in/link"): "session.opened",
    ("POST", "/ui/sign-out"): "session.ended",
    ("POST", "/ui/benchmarks/{benchmark_id}/cancel"): "benchmark.cancelled",
    ("POST", "/ui/benchmarks/{benchmark_id}/hold"): "benchmark.held",
    ("POST", "/ui/benchmarks/{benchmark_id}/release"): "benchmark.released",
    ("POST", "/ui/benchmarks/{benchmark_id}/priority"): "benchmark.prioritised",
    ("POST", "/ui/benchmarks/{benchmark_id}/retry"): "benchmark.submitted",
    ("POST", "/ui/submit"): "benchmark.submitted",
    ("POST", "/ui/submit/check"): "file.uploaded",
    ("POST", "/ui/checks/{check_id}/cancel"): "check.cancelled",
    ("POST", "/ui/alerts/{change_id}/resolve"): "alert.resolved",
    ("POST", "/ui/alerts/{change_id}/dismiss"): "alert.dismissed",
    ("POST", "/ui/shares"): "share.added",
    ("POST", "/ui/shares/{share_id}/revoke"): "share.removed",
    ("POST", "/ui/subscriptions"): "subscription.added",
    ("POST", "/ui/subscriptions/{subscription_id}/remove"): "subscription.removed",
    ("POST", "/ui/boards/{target_uid}/drain"): "board.drained",
    ("POST", "/ui/boards/{target_uid}/resume"): "board.resumed",
    ("POST", "/ui/boards/{target_uid}/quarantine"): "board.quarantined",
    ("POST", "/ui/boards/{target_uid}/unquarantine"): "board.unquarantined",
    ("POST", "/ui/boards/{target_uid}/probe"): "board.probed",
    ("POST", "/ui/boards/{target_uid}/lease"): "board.leased",
    ("POST", "/ui/leases/{lease_id}/release"): "board.released",
    ("POST", "/ui/policies/{role}"): "policy.changed",
    ("POST", "/ui/policies/{role}/end"): "policy.changed",
    ("POST", "/ui/models/{kind}/{version}/promote"): "model.changed",
    ("POST", "/ui/models/{kind}/rollback"): "model.changed",
}
"""Type of the act behind each route that is not a GET; None: none is recorded, and why not.

A route that is not here, of an installed package, is recorded as ``request.changed``.
"""


def begun(scope: Scope, address: str, at: datetime) -> Acting | None:
    """Return who acts by a request, as far as is known before its route; None: it only reads."""
    if scope["method"] not in _CHANGING:
        return None
    headers = dict(scope["headers"])
    stated = headers.get(REASON_HEADER.lower().encode(), b"").decode("latin-1")
    return Acting(
        door=door_of(scope),
        address=address,
        agent=_agent(scope),
        at=at,
        reason=cleaned(unquote(stated, errors="replace").strip()),
    )


def state_reason(text: str) -> None:
    """Note why the caller does what this request does; "" changes nothing."""
    who = acting()
    if who is not None and text:
        who.reason = cleaned(text)


def know_route(who: Acting, scope: Scope) -> None:
    """Note which route serves the request."""
    path = getattr(scope.get("route"), "path", "")
    who.kind = ROUTE_ACTS.get((scope["method"], path), _FOREIGN)
    who.board = scope.get("path_params", {}).get("target_uid")


def door_of(scope: Scope) -> Door:
    """Return the door of a request: by its path, then by what the client calls itself."""
    agent = _agent(scope)
    if scope["path"].startswith("/api/"):
        return Door.PLATFORM
    if scope["path"].startswith("/ui/"):
        return Door.PAGE
    if agent.startswith(CLI_AGENT):
        return Door.CLI
    if agent.startswith(SDK_AGENT):
        return Door.SDK
    return Door.PAGE if agent.startswith("Mozilla/") else Door.HTTP


def _agent(scope: Scope) -> str:
    return cleaned(dict(scope["headers"]).get(b"user-agent", b"").decode("utf-8", "replace"))


def cleaned(text: str) -> str:
    """Return a foreign text without what moves a terminal's cursor, cut to `MAX_TEXT`."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:MAX_TEXT])


class FailedSignIns:
    """Counts failed sign-ins in the log of acts, per address and minute. Thread-safe.

    Args:
        now: The time.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._of_minute: tuple[datetime, set[str]] | None = None

    def count(self, address: str, door: Door) -> None:
        """Count one; a database that does not take it keeps no answer back."""
        minute = self._now().replace(second=0, microsecond=0)
        known = self._of_minute
        if known is None or known[0] != minute:
            known = self._of_minute = (minute, set())
        if address not in known[1] and len(known[1]) >= MAX_ADDRESSES:
            address = OTHER_ADDRESSES
        known[1].add(address)
        try:
            with acting_as(None):
                self._store.transact(
                    lambda uow: uow.log.count_failed_sign_in(address, minute, door.value)
                )
        except EdgeyardError as error:
            logger.warning(
                "a failed sign-in was not counted",
                extra={"event": "sign_in.failed", "cause": str(error)},
            )
