"""Whether the server lives, whether it is ready, what it counts, and its reference page."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastapi.responses import Response

from edgeyard import __version__
from edgeyard.benchmark_api import metrics, swagger
from edgeyard.benchmark_api.auth import AnyCaller
from edgeyard.benchmark_api.routes.context import Ctx, Flag
from edgeyard.benchmark_api.routes.contract import Answer, Router, documented
from edgeyard.benchmark_api.routes.documented import content
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.answers import JsonObject
from edgeyard.benchmark_api.services import Services
from edgeyard.devices.sizes import size_text
from edgeyard.errors import EdgeyardError, reason_of
from edgeyard.scheduler.clock import TOLERANCE_S
from edgeyard.scheduler.model.canaries import stated_engines
from edgeyard.scheduler.ports import FileStore

router = Router(tags=["service"])

CLAIM_S = 60.0
"""A result that could not be fetched from its host for so long is reported."""

LITTLE_BYTES = 2 * 2**30
"""Less room than this is reported before work stops for it."""

NO_LEADER_S = 60.0
"""Without a leader for so long, there is no server that takes over."""


@router.get("/livez")
async def livez() -> Answer[dict[str, str]]:
    """The process answers; no I/O."""
    return Answer({"status": "ok"})


@router.get("/v1/version")
async def version(context: Ctx) -> Answer[shapes.Version]:
    """Version of the server, its cluster, the URL that hosts reach it by, and whether canaries run;
    no I/O."""
    services = context.services
    return Answer(
        shapes.Version(
            version=__version__,
            cluster=services.settings.cluster_name,
            cluster_kind=services.settings.cluster.kind,
            public_url=services.public_url,
            canary_share=services.settings.canary_share,
            canary_engines=stated_engines(services.settings.canaries),
        )
    )


@router.get("/readyz", responses=documented(503, JsonObject))
def readyz(context: Ctx, verbose: Flag = False) -> Answer[JsonObject]:
    """Whether submissions are taken and placed; ``verbose`` says what is wrong, also before that
    stops them."""
    found = dict(checks(context.services))
    ready = all(ok for ok, _ in found.values())
    state: JsonObject = {"status": "ready" if ready else "not ready"}
    if verbose:
        state["checks"] = {name: finding for name, (_, finding) in found.items()}
    headers = {} if ready else {"Retry-After": "5"}
    return Answer(state, 200 if ready else 503, headers)


def checks(services: Services) -> Iterator[tuple[str, tuple[bool, str | Mapping[str, str]]]]:
    """Yield each thing that readiness needs: whether it is good enough, and what is said of it."""
    try:
        services.store.ping()
        yield "database", (True, "ok")
    except EdgeyardError as error:
        yield "database", (False, str(error))
    try:
        free = services.files.free_bytes()
        enough = free >= services.settings.reserve_bytes
        yield "files", (enough, "ok" if enough else f"only {size_text(free)} are left")
    except (EdgeyardError, OSError) as error:
        yield "files", (False, str(error))
    yield "disk", (True, _disk(services))
    yield "cluster", _cluster(services)
    yield "leader", _leader(services)
    off_s = services.clock.disagreement_s()
    ahead_s = services.leader().clock_ahead_s
    if off_s:
        yield "clock", (True, _clock_trouble(off_s))
    elif abs(ahead_s) > TOLERANCE_S:
        yield "clock", (True, _clock_difference(ahead_s))
    if services.confinement is not None:
        enough, said = services.confinement
        yield "sandbox", (True, {"status": "ok", "detail": said} if enough else said)
    strays = services.cluster.strays()
    if strays:
        held = sum(uid is not None for uid in strays.values())
        yield (
            "strays",
            (
                True,
                f"{len(strays)} live jobs are not known to the database and hold {held} boards: an "
                "older backup was restored, or another Edgeyard uses this namespace; "
                "see edgeyard strays list",
            ),
        )
    failing = len(services.engine.repair_failures())
    if failing:
        what = "1 attempt" if failing == 1 else f"{failing} attempts"
        yield "repair", (True, f"{what} could not be compared with the cluster; tried again")
    late = sum(waited_s > CLAIM_S for waited_s, _ in services.engine.claims().values())
    if late:
        results = "1 result on its host has" if late == 1 else f"{late} results on their hosts have"
        yield (
            "claims",
            (
                True,
                f"{results} waited for more than {CLAIM_S:.0f} s to be fetched; the server's log "
                "names the jobs and the reasons (result.waits)",
            ),
        )


def _disk(services: Services) -> str | Mapping[str, str]:
    """Return the room on the disk of the database and on that of the files."""
    enough, detail = disk_room(services.settings.data_dir, services.files)
    return {"status": "ok", "detail": detail} if enough else detail


def disk_room(folder: Path, files: FileStore) -> tuple[bool, str]:
    """Return whether there is enough room on the disks of a server, and how much, in words.

    Args:
        folder: Its data folder.
        files: Its files.
    """
    try:
        data, of_files = shutil.disk_usage(folder).free, files.free_bytes()
    except (EdgeyardError, OSError) as error:
        return False, f"the room on the server's disk is not known: {reason_of(error)}"
    detail = f"{size_text(data)} free in the data folder of the server"
    if of_files != data:
        detail += f", {size_text(of_files)} for files"
    return min(data, of_files) >= LITTLE_BYTES, detail


def _clock_trouble(off_s: float) -> str:
    way = "forwards" if off_s > 0 else "backwards"
    return (
        f"the machine's clock was set {way} by {abs(off_s):.0f} s: nothing expires, is stopped for "
        "its time or is deleted until it is back or has kept its new time for a minute"
    )


def _clock_difference(ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return (
        f"this server's clock is {abs(ahead_s):.0f} s {way} the time that the servers of this "
        "database share, which is used instead; let all servers' machines follow NTP"
    )


def _cluster(services: Services) -> tuple[bool, str]:
    """Return whether the known state of the boards may be used, and the problem if there is one."""
    age_s, problem = services.engine.twin_age_s(), services.engine.cluster_problem()
    if math.isinf(age_s):
        return False, problem or "it has not answered yet"
    if age_s > services.twin_max_age_s:
        return False, f"the boards' state is {age_s:.0f} s old: {problem or 'no answer since'}"
    return True, f"not answering for {age_s:.0f} s: {problem}" if problem else "ok"


def _leader(services: Services) -> tuple[bool, str | Mapping[str, str]]:
    """Report that no server leads: submissions are accepted, but wait."""
    view = services.leader()
    if view.leads:
        return True, {"status": "ok", "detail": f"this server leads (epoch {view.epoch})"}
    if view.alive:
        led = f"{view.server_id} at {view.url} leads (epoch {view.epoch})"
        return True, {"status": "ok", "detail": f"{led}; this server follows"}
    silent = "no server has led yet"
    if view.epoch:
        silent = f"no server leads: none was seen for {view.silent_s:.0f} s"
    return view.silent_s < NO_LEADER_S, silent


@router.get("/metrics", responses=content(200, "text/plain", "Prometheus' text format."))
def figures(caller: AnyCaller, context: Ctx) -> Response:
    """Metrics for Prometheus, which sends any account's token as its ``authorization``."""
    return Response(context.metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})


@router.get("/docs", include_in_schema=False)
def reference() -> Response:
    """Swagger UI of the API; nothing is loaded from elsewhere."""
    return swagger.page("Edgeyard API")


@router.get("/docs/{name}", include_in_schema=False)
def reference_part(name: str) -> Response:
    """A script or style sheet of Swagger UI."""
    return swagger.part(name)
