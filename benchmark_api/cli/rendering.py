"""``render``: the Nomad job of a job file, without a server."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import emit_json
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk.submission import UploadedFile
    from edgeyard.scheduler.hcl.build import JobFile, RenderSettings
    from edgeyard.scheduler.model.benchmark import Binding, JobDescription

_CANDIDATE = "render"


def render(
    session: Session,
    job: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Job file, YAML or JSON.")],
    public_url: Annotated[
        str, typer.Option("--public-url", help="URL at which tasks reach the API.")
    ] = "http://127.0.0.1:42777",
    driver: Annotated[str, typer.Option(help="docker or raw_exec.")] = "docker",
    policy: Annotated[
        str, typer.Option(help="Name or TOML file of the policy for the priority.")
    ] = "default",
) -> None:
    """Print the Nomad job (HCL) of a job file, without a server.

    The names of downloads, and the board unless the file names one, are left open because only a
    server knows them. A matrix gives one job for each combination.
    """
    from edgeyard.benchmark_api.sdk.submission import (
        combinations,
        read_job_file,
        rebased,
        with_uploads,
    )
    from edgeyard.scheduler.hcl.build import RenderSettings

    if driver not in ("docker", "raw_exec"):
        raise InvalidInput.at("--driver", f"there is no {driver!r}", "docker or raw_exec")
    settings = RenderSettings(
        public_url=public_url.rstrip("/"), driver=driver, command="edgeyard-runner"
    )
    sums: dict[str, str] = {}

    def pretend(path: Path) -> UploadedFile:
        file = _as_uploaded(path, settings.public_url)
        sums[file.name] = file.sha256
        return file

    description = rebased(read_job_file(job), job.parent)
    ready = with_uploads(description, Path.cwd(), pretend)
    texts = [_hcl(one, settings, policy, sums) for one in combinations(ready)]
    if session.output is Output.JSON:
        emit_json([{"hcl": text} for text in texts])
    else:
        sys.stdout.write("\n".join(texts))


def _as_uploaded(path: Path, public_url: str) -> UploadedFile:
    from edgeyard.benchmark_api.sdk.submission import UploadedFile

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return UploadedFile(
        file_id="",
        name=path.name,
        sha256=digest,
        size_bytes=path.stat().st_size,
        url=f"{public_url}/v1/files/{path.name}",
    )


def _hcl(
    tree: Mapping[str, object], settings: RenderSettings, policy: str, sums: Mapping[str, str]
) -> str:
    from edgeyard.benchmark_api.schemas.description import parse_description, to_description
    from edgeyard.scheduler.hcl.build import JobRequest, build_job
    from edgeyard.scheduler.hcl.check import check_round_trip
    from edgeyard.scheduler.hcl.render import render as render_job
    from edgeyard.scheduler.model.attempt import job_id_of
    from edgeyard.scheduler.model.benchmark import Binding

    body = parse_description(tree)
    description = to_description(body)
    now = datetime.now(UTC)
    pinned = description.target_uid is not None and description.binding in (None, Binding.STRICT)
    request = JobRequest(
        job_id=job_id_of(
            body.benchmark_id or _CANDIDATE, 1, description.family, description.runtime, now
        ),
        description=description,
        priority=_priority(description, policy, now),
        binding=Binding.STRICT if pinned else _open_binding(description),
        files=tuple(_files(description, sums)),
        target_uid=description.target_uid,
        start_at=description.start_time,
        benchmark_id=body.benchmark_id or "",
    )
    job = build_job(request, settings)
    text = render_job(job)
    check_round_trip(job, text)
    return text


def _open_binding(description: JobDescription) -> Binding:
    """Return a binding without a board: only a server could name the one that ``strict`` needs."""
    from edgeyard.scheduler.model.benchmark import Binding

    return Binding.LOOSE if description.binding is Binding.LOOSE else Binding.FILTERED


def _priority(description: JobDescription, policy: str, now: datetime) -> int:
    import numpy as np

    from edgeyard.scheduler.decide.priority import ages_s, priorities, slacks_s
    from edgeyard.scheduler.engine.queue_cache import pending_of
    from edgeyard.scheduler.framework.policy import load_policy
    from edgeyard.scheduler.model.benchmark import Benchmark

    pending = [
        pending_of(
            Benchmark(benchmark_id=_CANDIDATE, user_id="", description=description, submit_time=now)
        )
    ]
    strict = np.array([description.target_uid is not None])
    found = priorities(
        pending, ages_s(pending, now), slacks_s(pending, now), strict, load_policy(policy)
    )
    return int(found.values[0])


def _files(description: JobDescription, sums: Mapping[str, str]) -> Iterator[JobFile]:
    from edgeyard.benchmark_api.schemas.description import name_from_url
    from edgeyard.scheduler.hcl.build import SPEC_FILENAME, JobFile
    from edgeyard.scheduler.model.benchmark import FileRole

    def file(role: FileRole | None, name: str) -> JobFile:
        return JobFile(role=role, filename=name, download=name, sha256=sums.get(name, ""))

    yield file(description.model_role, description.model)
    names = [name_from_url(url, "dataset") for url in description.dataset_urls]
    if description.dataset is not None:
        names[:1] = [description.dataset]
    for name in names:
        yield file(FileRole.DATASET, name)
    if isinstance(description.odt_config, str):
        yield file(FileRole.ODT_CONFIG, name_from_url(description.odt_config, "odt_config"))
    elif description.odt_config is not None:
        from edgeyard.scheduler.engine.dispatch import ODT_CONFIG_FILENAME

        yield file(FileRole.ODT_CONFIG, ODT_CONFIG_FILENAME)
    yield file(None, SPEC_FILENAME)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "render")(render)
