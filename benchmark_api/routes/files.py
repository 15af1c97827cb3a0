"""Users' files: models, datasets, configurations."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api import views
from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.routes.context import Body, Context, Ctx, Flag
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts, accepts_files, content
from edgeyard.benchmark_api.routes.receiving import (
    ReceivedFile,
    UploadBudget,
    receive_form,
    see_received,
)
from edgeyard.benchmark_api.routes.sending import stored_file
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.schemas.fields import file_name_problem
from edgeyard.benchmark_api.schemas.requests import FileNameIn, parse
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.engine import quotas
from edgeyard.scheduler.engine.housekeeping import release
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.files import StoredFile, UserFile
from edgeyard.scheduler.model.quotas import quotas_of
from edgeyard.scheduler.ports import UnitOfWork

router = Router(prefix="/v1/files", tags=["files"])


@router.post("", status_code=201, openapi_extra=accepts_files())
async def upload(request: Request, caller: Submitter, context: Ctx) -> Answer[shapes.UserFile]:
    """Upload a file (form field ``file``). The newest of a name is the one that it means."""
    services = context.services
    setting, limit = services.settings.upload_limit()
    budget = await run_in_threadpool(upload_budget, context, caller)
    received = await receive_form(
        request, services.files, limit, setting, max_files=1, budget=budget
    )
    file = await run_in_threadpool(name_file, context, caller, received[0])
    location = {"Location": f"{services.public_url}/v1/files/{file.file_id}"}
    return Answer(views.user_file(services, file), 201, location)


@router.post("/names", status_code=201, openapi_extra=accepts("FileNameIn"))
def name_content(body: Body, caller: Submitter, context: Ctx) -> Answer[shapes.UserFile]:
    """Name content that you uploaded before, so that it need not be sent again; 404 otherwise."""
    request = parse(FileNameIn, body.tree())
    if problem := file_name_problem(request.name):
        raise InvalidInput.at("/name", problem, "a plain file name")
    services = context.services
    with services.store.read() as uow:
        known = uow.files.user_content(caller.user_id, request.sha256)
    if not services.files.contains(request.sha256):
        raise NotFound("content", request.sha256)
    content = StoredFile(sha256=known.sha256, size_bytes=known.size_bytes)
    file = name_file(context, caller, ReceivedFile(request.name, content), "/name")
    location = {"Location": f"{services.public_url}/v1/files/{file.file_id}"}
    return Answer(views.user_file(services, file), 201, location)


def file_event(
    kind: Literal["file.uploaded", "file.deleted"], caller: Caller, at: datetime, file: UserFile
) -> Event:
    """Return the event of an act on a file: its name, its size and the hash of its content."""
    facts = {"name": file.name, "size_bytes": file.size_bytes, "sha256": file.sha256}
    data: dict[str, object] = {
        "before": {} if kind == "file.uploaded" else facts,
        "after": facts if kind == "file.uploaded" else {},
        "file_id": file.file_id,
        "owner_id": file.user_id,
    }
    return Event(at=at, kind=kind, user_id=caller.user_id, data=data)


def name_file(
    context: Context,
    caller: Caller,
    received: ReceivedFile,
    pointer: str = "/file",
    also: Callable[[UnitOfWork], object] | None = None,
) -> UserFile:
    """Give received content a name of its user's.

    Args:
        context: Of the app.
        caller: Whose it is.
        received: The content and its name.
        pointer: Of what is wrong with it.
        also: What else belongs to the same transaction.

    Raises:
        InvalidInput: It is empty.
        QuotaExceeded: They have more than they may, or as many files.
    """
    services = context.services
    size = received.stored.size_bytes
    if size == 0:
        raise InvalidInput.at(pointer, "the file is empty", "a file with content")
    file = UserFile(
        file_id=f"file-{secrets.token_hex(10)}",
        user_id=caller.user_id,
        name=received.name,
        sha256=received.stored.sha256,
        size_bytes=size,
        created_at=services.clock.now(),
    )

    def add(uow: UnitOfWork) -> UserFile:
        added = uow.files.add_user_file(file)
        uow.log.append(file_event("file.uploaded", caller, file.created_at, added))
        if also is not None:
            also(uow)
        seen.check(uow)
        allowed = quotas_of(caller.user, services.settings.quotas)
        quotas.check_stored(uow, caller.user_id, allowed, files=True)
        return added

    with removed_if_refused(context, [received]):
        seen = see_received(services, [received])
        file = services.store.transact(add)
    context.metrics.uploaded.labels("file").inc(size)
    return file


@router.get("")
def list_files(
    caller: Submitter,
    context: Ctx,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: str | None = None,
    total: Flag = False,
) -> Answer[shapes.FilePage]:
    """Your files, newest first; operators see everybody's."""
    services = context.services
    user_id = None if caller.is_operator else caller.user_id
    with services.store.read() as uow:
        found, following = uow.files.user_file_page(
            user_id=user_id, name=name, limit=limit, cursor=cursor
        )
        count = uow.files.count_user_files(user_id=user_id, name=name) if total else None
    items = [views.user_file(services, each) for each in found]
    return Answer(shapes.FilePage(items=items, next_cursor=following, total=count))


@router.get("/{file_id}")
def show(file_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.UserFile]:
    """What is known of a file."""
    with context.services.store.read() as uow:
        return Answer(views.user_file(context.services, _visible(uow, file_id, caller)))


@router.get("/{file_id}/inputs")
def inputs(file_id: str, caller: Submitter, context: Ctx) -> Answer[shapes.ModelInputs]:
    """What a model takes, read from its file."""
    with context.services.store.read() as uow:
        file = _visible(uow, file_id, caller)
    found = context.services.content.interface(file.sha256)
    items = [
        shapes.ModelInput(
            name=each.name,
            dtype=each.dtype,
            shape=None if each.shape is None else list(each.shape),
        )
        for each in found
    ]
    return Answer(shapes.ModelInputs(items=items))


@router.get(
    "/{file_id}/content",
    responses=content(200, "application/octet-stream", "The file, or the requested range of it."),
)
def download(file_id: str, request: Request, caller: Submitter, context: Ctx) -> Response:
    """The file itself."""
    with context.services.store.read() as uow:
        file = _visible(uow, file_id, caller)
    return stored_file(request, context.services, file.sha256, file.name)


@router.delete("/{file_id}", status_code=204)
def remove(file_id: str, caller: Submitter, context: Ctx) -> Response:
    """Delete a file; its content goes at once, unless live benchmarks or others have it too."""

    def forget(uow: UnitOfWork) -> UserFile:
        _visible(uow, file_id, caller)
        removed = uow.files.remove_user_file(file_id)
        at = context.services.clock.now()
        uow.log.append(file_event("file.deleted", caller, at, removed))
        return removed

    services = context.services
    gone = services.store.transact(forget, frees_space=True)
    release(services.store, services.files, {gone.sha256: gone.created_at})
    return Response(status_code=204)


def upload_budget(context: Context, caller: Caller) -> UploadBudget | None:
    """Return what the caller may send now.

    Raises:
        QuotaExceeded: They have more than they may already, or as many files.
    """
    settings = context.services.settings
    allowed = quotas_of(caller.user, settings.quotas)
    with context.services.store.read() as uow:
        quotas.check_stored(uow, caller.user_id, allowed)
    return context.uploads.budget("max_bytes", allowed.max_bytes, f"user {caller.user_id}")


@contextmanager
def removed_if_refused(context: Context, received: Iterable[ReceivedFile]) -> Iterator[None]:
    """Remove the files of a refused request at once: no user's quota counts them."""
    now = context.services.clock.now()
    try:
        yield
    except Exception:
        named_at = {each.stored.sha256: now for each in received}
        release(context.services.store, context.services.files, named_at)
        raise


def _visible(uow: UnitOfWork, file_id: str, caller: Caller) -> UserFile:
    file = uow.files.user_file_by_id(file_id)
    if not caller.may_see(file.user_id):
        raise NotFound("file", file_id)
    return file
