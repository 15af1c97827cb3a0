"""Benchmarks that Edgeyard itself submits: probes and canaries."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from edgeyard.errors import NotFound
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkFile, FileRole, JobDescription
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.ports import FileStore, UnitOfWork


def stored_model(files: FileStore, path: Path, max_bytes: int) -> BenchmarkFile:
    """Store a model of the server's machine; no transaction should be open meanwhile."""
    writer = files.writer(max_bytes)
    writer.write(path.read_bytes())
    stored = writer.commit()
    return BenchmarkFile(
        role=FileRole.MODEL,
        position=0,
        name=path.name,
        sha256=stored.sha256,
        size_bytes=stored.size_bytes,
    )


def submit_own(
    uow: UnitOfWork,
    description: JobDescription,
    user_id: str,
    model: BenchmarkFile,
    now: datetime,
    new_id: lifecycle.NewId,
) -> Benchmark:
    """Submit a benchmark as one of `OWN_USERS` of `edgeyard.scheduler.engine.charging`."""
    _open_account(uow, user_id, now)
    benchmark_id = new_id(description.family, description.runtime, now)
    return lifecycle.submit(uow, description, user_id, [model], now, benchmark_id=benchmark_id)


def _open_account(uow: UnitOfWork, user_id: str, now: datetime) -> None:
    try:
        uow.accounts.user(user_id)
    except NotFound:
        user = User(user_id=user_id, role=Role.SUBMITTER, created_at=now, max_priority=10)
        uow.accounts.add_user(user)
