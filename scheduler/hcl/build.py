"""Builds a `NomadJob` from a decision and the fields of a job description."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import quote

from edgeyard.devices.attributes import PROGRESS
from edgeyard.devices.model import ENGINE_PATTERN, FAMILY_PATTERN
from edgeyard.devices.operators import NODE_ATTRIBUTE_PATTERN, OPERATORS, is_of_node
from edgeyard.errors import FieldError, InvalidInput
from edgeyard.scheduler.hcl.cron import cron_of
from edgeyard.scheduler.hcl.job import (
    Artifact,
    ConfigValue,
    DeviceConstraint,
    JobAffinity,
    JobSpread,
    NodeConstraint,
    NomadJob,
    Periodic,
    Template,
)
from edgeyard.scheduler.hcl.text import ATTRIBUTE_PATTERN, plain_text_problem
from edgeyard.scheduler.model.attempt import Attempt
from edgeyard.scheduler.model.benchmark import (
    Affinity,
    Benchmark,
    BenchmarkType,
    Binding,
    Constraint,
    FileRole,
    JobDescription,
)

UPLOAD_TOKEN = "EDGEYARD_UPLOAD_TOKEN"
"""Name of the attempt's secret in the file that the task finds in its folder of secrets."""

SPEC_FILENAME = "spec.json"

IDLE_PROGRESS_BELOW = 1
"""``dynamic.progress < 1``: an idle board publishes 0, one that measures at least 1."""

_FILENAME_BYTES = 255
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """The operator's settings of every job, which no field of a user can change.

    Attributes:
        public_url: Where tasks reach the API, without a slash at the end.
        driver: ``docker``, or ``raw_exec`` for the embedded cluster.
        image: Of docker.
        auth_username: Login of the image's registry; "": no ``auth`` block.
        command: Of raw_exec, with ``args``.
        progress_constraint: Whether boards publish ``dynamic.progress``; where they don't, the
            constraint would never hold, and is left out.
        cpu_mhz: None: Nomad's default of 100.
        memory_mib: None: Nomad's default of 300.
        kill_timeout_s: From the polite signal to the one that ends the task.
        lost_after_s: As in `NomadJob`.
    """

    public_url: str
    driver: str = "docker"
    image: str = "daiedge-vlab-bootstrap"
    network_mode: str = "host"
    auth_username: str = ""
    auth_password: str = field(default="", repr=False)
    privileged: bool = False
    command: str = ""
    args: tuple[str, ...] = ()
    datacenters: tuple[str, ...] = ("dc1",)
    namespace: str | None = None
    node_pool: str | None = None
    device: str = "daiedge/edgedevice"
    progress_constraint: bool = True
    cpu_mhz: int | None = None
    memory_mib: int | None = None
    kill_timeout_s: int | None = 5
    lost_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file of the task, at ``local/<filename>``.

    Attributes:
        role: None for ``spec.json``.
        download: Name under ``{public_url}/download/``.
        sha256: Hex; "": not checked (`render` without a server knows no contents).
    """

    role: FileRole | None
    filename: str
    download: str
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """An attempt for which a job is built.

    Attributes:
        priority: 1-100, as decided.
        target_uid: The decided board; used when bound strictly.
        allowed_uids: Allow-list of a filtered job; empty: none needed.
        start_at: A start that is left to the cluster; None: at once.
        recurs: Recurring starts that are left to the cluster; None: there is one start.
        secrets: Names of secrets that the cluster keeps apart from the job.
        benchmark_id: Shown in the job's ``meta``, with ``user_id``; "": not shown.
    """

    job_id: str
    description: JobDescription
    priority: int
    binding: Binding
    files: tuple[JobFile, ...]
    target_uid: str | None = None
    allowed_uids: tuple[str, ...] = ()
    start_at: datetime | None = None
    recurs: Periodic | None = None
    secrets: tuple[str, ...] = (UPLOAD_TOKEN,)
    benchmark_id: str = ""
    user_id: str = ""

    @classmethod
    def of(
        cls,
        benchmark: Benchmark,
        attempt: Attempt,
        files: Sequence[JobFile],
        *,
        start_at: datetime | None = None,
    ) -> JobRequest:
        """Build the request from an attempt and its benchmark."""
        description = benchmark.description
        if benchmark.unpinned:
            description = replace(description, target=description.family, target_uid=None)
        return cls(
            job_id=attempt.job_id,
            description=description,
            priority=attempt.priority,
            binding=attempt.binding,
            files=tuple(files),
            target_uid=attempt.target_uid,
            allowed_uids=attempt.allowed_uids,
            start_at=start_at,
            benchmark_id=benchmark.benchmark_id,
            user_id=benchmark.user_id,
        )


def build_job(request: JobRequest, settings: RenderSettings) -> NomadJob:
    """Build the job of one attempt.

    Raises:
        InvalidInput: Text of the user's that no job can carry (the API refuses it earlier).
        ValueError: A priority outside 1-100, a strict binding without a board, or a driver that
            is not known.
    """
    _refuse_what_cannot_be_carried(request)
    if not 1 <= request.priority <= 100:  # Nomad makes 50 of 0 and refuses 101
        raise ValueError(f"priority {request.priority} is not within 1-100")
    return NomadJob(
        job_id=request.job_id,
        namespace=settings.namespace,
        node_pool=settings.node_pool,
        priority=request.priority,
        datacenters=settings.datacenters,
        periodic=_periodic(request),
        driver=settings.driver,
        config=_config(settings),
        env=environment(request, settings.public_url),
        constraints=tuple(_constraints(request, settings)),
        node_constraints=tuple(_node_constraints(request.description)),
        affinities=tuple(_affinities(request, of_nodes=False)),
        node_affinities=tuple(_affinities(request, of_nodes=True)),
        spreads=tuple(_spreads(request)),
        artifacts=tuple(_artifact(file, settings.public_url) for file in request.files),
        templates=(_secret_template(request),),
        device=settings.device,
        cpu_mhz=settings.cpu_mhz,
        memory_mib=settings.memory_mib,
        kill_timeout_s=settings.kill_timeout_s,
        lost_after_s=settings.lost_after_s,
        meta={
            name: _meta(text)
            for name, text in (("benchmark_id", request.benchmark_id), ("user", request.user_id))
            if text
        },
    )


def _periodic(request: JobRequest) -> Periodic | None:
    if request.start_at is None:
        return request.recurs
    return Periodic(cron=cron_of(request.start_at))


def environment(request: JobRequest, public_url: str) -> Mapping[str, str]:
    """Return the eleven variables; unused ones are empty."""
    description = request.description
    inferences = description.benchmark_type is BenchmarkType.TYPE1
    upload = request.benchmark_id or request.job_id.removeprefix("benchmark-")
    return {
        "NOMAD_ALLOC_ID": "${NOMAD_ALLOC_ID}",
        "NOMAD_NODE_ID": "${node.unique.id}",
        "TARGET": description.family,
        "RUNTIME": description.runtime,
        "VERSION_TAG": description.version_tag,
        "NB_INFERENCE": str(description.nb_inference) if inferences else "",
        "BENCHMARK_TYPE": description.benchmark_type.value,
        "MODEL_FILENAME": _filename(request, "model"),
        "DATASET_FILENAME": _filename(request, "dataset"),
        "ODT_CONFIG_FILENAME": _filename(request, "odt_config"),
        "RESULTS_PUB_URL": f"{public_url}/upload/{upload}/",
    }


def _meta(text: str) -> str:
    """Return a text for ``meta``, percent-encoded where Nomad would change or interpret it."""
    return text if plain_text_problem(text) is None else quote(text, errors="replace")


def secret_template(job_id: str, names: Sequence[str]) -> Template:
    """Return the file of secrets, filled in by the task's own right to the variable of its job.

    The secrets are no part of the task's environment, which everything that the task starts
    inherits. The runner removes the file once it has read it. Nomad's client writes it again when
    the agent restarts: that must not restart the task.
    """
    lines = "\n".join(f"{name}={{{{ .{name} }}}}" for name in names)
    return Template(
        data=f'{{{{ with nomadVar "nomad/jobs/{job_id}" }}}}{lines}{{{{ end }}}}',
        destination="secrets/token.env",
        change_mode="noop",
        perms="0600",
    )


def _constraints(request: JobRequest, settings: RenderSettings) -> Iterator[DeviceConstraint]:
    """Return the constraints of the device block, in the platform's order."""
    wanted = request.description
    yield _constraint("family", "=", wanted.family)
    yield _constraint("engines", "set_contains", wanted.runtime)
    types = f"engine.{wanted.runtime}.supported_types"
    yield _constraint(types, "set_contains", wanted.benchmark_type.value)
    # A job that is bound to the board that was found idle needs none: an allocation makes a board
    # busy whatever it shows, and what it shows comes late: a board that was just freed would make
    # the next job wait for some 10 s. Who may preempt, or is filtered, says how far a task that is
    # there may be. A loose job leaves that to Nomad, too, unless its user stated a threshold.
    threshold = wanted.job_completion_threshold or 0  # 0 does not preempt, and neither does none
    if settings.progress_constraint and (threshold or request.binding is Binding.FILTERED):
        # `< 0` would not match an idle board
        yield _constraint(PROGRESS, "<", str(max(threshold, IDLE_PROGRESS_BELOW)))
    if wanted.ram:
        yield _constraint("memory.ram", ">=", str(wanted.ram))
    if wanted.storage:
        yield _constraint("memory.storage", ">=", str(wanted.storage))
    for own in wanted.all_constraints:
        if not is_of_node(own.attribute):
            yield _constraint(own.attribute, own.operator, own.value)
    # A board that the user named is kept to, however loosely the rest is bound.
    pinned = request.target_uid if request.binding is Binding.STRICT else wanted.target_uid
    if pinned is not None:
        yield _constraint("target_uid", "=", pinned)
    elif request.binding is Binding.STRICT:
        raise ValueError("a strict binding needs a board")
    elif request.allowed_uids:
        yield _constraint("target_uid", "set_contains_any", ",".join(request.allowed_uids))


def _node_constraints(wanted: JobDescription) -> Iterator[NodeConstraint]:
    """Return the constraints of the user's on the nodes that boards are attached to."""
    for own in wanted.constraints:
        if is_of_node(own.attribute):
            yield NodeConstraint(attribute=own.attribute, operator=own.operator, value=own.value)


def _affinities(request: JobRequest, *, of_nodes: bool) -> Iterator[JobAffinity]:
    """Return the user's affinities, where the cluster chooses the board."""
    if request.binding is Binding.STRICT:
        return
    for own in request.description.affinities:
        if is_of_node(own.attribute) is of_nodes:
            yield JobAffinity(
                attribute=own.attribute if of_nodes else f"${{device.attr.{own.attribute}}}",
                operator=own.operator,
                value=own.value,
                weight=own.weight,
            )


def _spreads(request: JobRequest) -> Iterator[JobSpread]:
    """Return the user's spreads over nodes, where the cluster chooses the board.

    Nomad does not spread over attributes of devices.
    """
    if request.binding is Binding.STRICT:
        return
    for own in request.description.spreads:
        if is_of_node(own.attribute):
            yield JobSpread(attribute=own.attribute, weight=own.weight, targets=own.targets)


def _constraint(attribute: str, operator: str, value: str) -> DeviceConstraint:
    return DeviceConstraint(
        attribute=f"${{device.attr.{attribute}}}", operator=operator, value=value
    )


def _config(settings: RenderSettings) -> Mapping[str, ConfigValue]:
    if settings.driver == "raw_exec":
        return {"command": settings.command, "args": settings.args}
    if settings.driver != "docker":
        raise ValueError(f"driver {settings.driver!r} is not known")
    config: dict[str, ConfigValue] = {
        "image": settings.image,
        "network_mode": settings.network_mode,
    }
    if settings.auth_username:
        config["auth"] = {
            "username": settings.auth_username,
            "password": settings.auth_password,
        }
    config["privileged"] = settings.privileged
    return config


def _artifact(file: JobFile, public_url: str) -> Artifact:
    return Artifact(
        source=f"{public_url}/download/{file.download}",
        destination=f"local/{file.filename}",
        mode="file",
        checksum=f"sha256:{file.sha256}" if file.sha256 else "",
    )


def _secret_template(request: JobRequest) -> Template:
    for name in request.secrets:
        if _SECRET_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} can't be the name of a secret")
    return secret_template(request.job_id, request.secrets)


def _filename(request: JobRequest, field: str) -> str:
    """Return the first file that a field of the description names; `spec.json` has all of them."""
    files = (file for file in request.files if file.role is not None and file.role.field == field)
    return next((file.filename for file in files), "")


def _refuse_what_cannot_be_carried(request: JobRequest) -> None:
    description = request.description
    errors = []
    if FAMILY_PATTERN.fullmatch(description.family) is None:
        errors.append(FieldError("/target", "is not a valid name of a family"))
    if ENGINE_PATTERN.fullmatch(description.runtime) is None:
        errors.append(FieldError("/runtime", "is not a valid name of an engine"))
    texts = {"/version_tag": description.version_tag, "/target_uid": description.target_uid or ""}
    conditions: list[tuple[str, Constraint | Affinity]] = [
        *((f"/constraints/{n}", each) for n, each in enumerate(description.constraints)),
        *((f"/affinities/{n}", each) for n, each in enumerate(description.affinities)),
    ]
    attributes = {pointer: own.attribute for pointer, own in conditions}
    for number, spread in enumerate(description.spreads):
        attributes[f"/spreads/{number}"] = spread.attribute
        for place, (value, _) in enumerate(spread.targets):
            texts[f"/spreads/{number}/targets/{place}"] = value
    for pointer, attribute in attributes.items():
        names = NODE_ATTRIBUTE_PATTERN if is_of_node(attribute) else ATTRIBUTE_PATTERN
        if names.fullmatch(attribute) is None:
            errors.append(FieldError(f"{pointer}/attribute", "is not a valid name of an attribute"))
    for pointer, own in conditions:
        texts[f"{pointer}/value"] = own.value
        if own.operator not in OPERATORS:
            accepted = ", ".join(OPERATORS)
            errors.append(FieldError(f"{pointer}/operator", "is not known", accepted))
    for pointer, text in texts.items():
        problem = plain_text_problem(text)
        if problem is not None:
            errors.append(FieldError(pointer, problem))
    for file in request.files:
        problem = filename_problem(file.filename)
        if problem is not None:
            pointer = f"/{file.role.field}" if file.role else ""
            errors.append(FieldError(pointer, f"the file name {file.filename!r} {problem}"))
    if errors:
        raise InvalidInput(errors)


def filename_problem(name: str) -> str | None:
    """Return why a name cannot be a file of a task, or None if it can."""
    problem = plain_text_problem(name)
    if problem is not None:
        return problem
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        return "is not a plain file name"
    if len(name.encode()) > _FILENAME_BYTES:
        return f"is longer than {_FILENAME_BYTES} bytes"
    return None
