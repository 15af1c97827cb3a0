"""Datasets and models, as the platform's client uploads, lists and deletes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import Caller, Submitter
from edgeyard.benchmark_api.problems import BadRequest, ProblemAnswer, client_problem
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import Answer, Router
from edgeyard.benchmark_api.routes.documented import accepts_fields
from edgeyard.benchmark_api.routes.files import (
    file_event,
    name_file,
    removed_if_refused,
    upload_budget,
)
from edgeyard.benchmark_api.routes.platform import catalogue
from edgeyard.benchmark_api.routes.receiving import ReceivedFile, receive_fields
from edgeyard.benchmark_api.schemas import platform as shapes
from edgeyard.benchmark_api.schemas.fields import MAX_NAME_BYTES, MAX_URL, is_url
from edgeyard.errors import InvalidInput, NotFound
from edgeyard.scheduler.engine.housekeeping import release as remove_content
from edgeyard.scheduler.model.files import UserFile
from edgeyard.scheduler.model.strict_json import JsonObject, time_to_json
from edgeyard.scheduler.ports import UnitOfWork

datasets = Router(prefix="/api/benchmarks/datasets", tags=["platform"])
models = Router(prefix="/api/models", tags=["platform"])

PLATFORM = "user_models"
"""The one source of models: what users upload, or a URL."""

_REFERENCE = re.compile(r".+_([0-9a-f]{64})", re.DOTALL)


@datasets.get("")
def list_datasets(caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Your datasets, by reference: file name, ``_`` and SHA-256."""
    return Answer(
        {each.name: _shown(each) for each in _files(context, caller) if _is_dataset(each)}
    )


@datasets.post("/upload", status_code=207, openapi_extra=accepts_fields("hash", files=("dataset",)))
async def upload_dataset(
    request: Request, caller: Submitter, context: Ctx
) -> Answer[shapes.PlatformObject]:
    """Upload a dataset with its SHA-256."""
    limits = {"dataset": context.services.settings.dataset_limit_bytes}
    budget = await run_in_threadpool(upload_budget, context, caller)
    fields, files = await receive_fields(
        request, context.services.files, limits, "dataset_limit_bytes", budget
    )
    received, stated = files.get("dataset"), fields.get("hash", "").lower()
    if received is None:
        raise InvalidInput.at("/dataset", "is missing", "a file")
    file = await run_in_threadpool(_name_dataset, context, caller, received, stated)
    return Answer({"dataset": file.name} | _shown(file), 207)


def _name_dataset(
    context: Context, caller: Caller, received: ReceivedFile, stated: str
) -> UserFile:
    with removed_if_refused(context, [received]):
        if received.stored.sha256 != stated:
            raise BadRequest("the dataset does not have the SHA-256 that the field hash states")
        named = replace(received, name=f"{received.name}_{stated}")
        if len(named.name.encode()) > MAX_NAME_BYTES:
            max_bytes = MAX_NAME_BYTES - len(stated) - 1
            raise InvalidInput.at(
                "/dataset", "the file's name is too long", f"at most {max_bytes} bytes"
            )
        return name_file(context, caller, named, "/dataset")


@datasets.delete("/{name}")
def delete_dataset(name: str, caller: Submitter, context: Ctx) -> Answer[shapes.PlatformObject]:
    """Delete a dataset; its content goes at once, unless live benchmarks or others have it too."""

    def forget(uow: UnitOfWork) -> dict[str, datetime]:
        gone: dict[str, datetime] = {}
        try:
            while _is_dataset(each := uow.files.user_file(caller.user_id, name)):
                removed = uow.files.remove_user_file(each.file_id)  # it may be there twice
                gone[removed.sha256] = removed.created_at
                at = context.services.clock.now()
                uow.log.append(file_event("file.deleted", caller, at, removed))
        except NotFound:
            pass
        if not gone:
            raise NotFound("dataset", name)
        return gone

    services = context.services
    forgotten = services.store.transact(forget, frees_space=True)
    remove_content(services.store, services.files, forgotten)
    return Answer({"dataset": name, "deleted": True})


@models.get("/list")
def list_models(
    caller: Submitter, context: Ctx, platform: str | None = None
) -> Answer[shapes.PlatformObject]:
    """Your models; a reference is what ``startBenchmark`` takes for a model."""
    _check_platform(platform)
    found = [each for each in _files(context, caller) if _is_model(each)]
    newest = {each.name: each for each in reversed(found)}
    return Answer({PLATFORM: [{"model": each.name} | _shown(each) for each in newest.values()]})


@models.post(
    "/download",
    status_code=201,
    openapi_extra=accepts_fields(files=("model",), required=False),
)
async def import_model(
    request: Request,
    caller: Submitter,
    context: Ctx,
    platform: str | None = None,
    resource_identifier: str | None = None,
) -> Answer[shapes.Model]:
    """Upload a model, or name one by its reference or URL."""
    _check_platform(platform)
    files: Mapping[str, ReceivedFile] = {}
    if request.headers.get("content-type"):
        limits = {"model": context.services.settings.model_limit_bytes}
        budget = await run_in_threadpool(upload_budget, context, caller)
        _, files = await receive_fields(
            request, context.services.files, limits, "model_limit_bytes", budget
        )
    if received := files.get("model"):
        file = await run_in_threadpool(name_file, context, caller, received, "/model")
        return Answer(_model_answer(file), 201)
    return await run_in_threadpool(_named, context, caller, resource_identifier or "")


@models.post("/convert")
def convert(
    caller: Submitter,
    context: Ctx,
    resource_identifier: str,
    convert_to: str,
    platform: str | None = None,
    format: str | None = None,
) -> Answer[shapes.Model] | ProblemAnswer:
    """Give a model that has the format already; no engine of Edgeyard converts models."""
    _check_platform(platform)
    file = _model(context, caller, resource_identifier)
    if not convert_to.strip(" ."):
        raise InvalidInput.at("/convert_to", "is missing", "a format, e.g. onnx")
    has = file.name.rpartition(".")[2].lower()
    if has == convert_to.lower().lstrip("."):
        return Answer(_model_answer(file))
    return client_problem(
        501,
        "not_implemented",
        f"none of the lab's engines converts {has} to {convert_to[:50]}: convert it before you "
        "upload it",
    )


def _named(context: Context, caller: Caller, identifier: str) -> Answer[shapes.Model]:
    if is_url(identifier):
        if len(identifier) > MAX_URL:
            raise InvalidInput.at("/resource_identifier", "is too long", f"{MAX_URL} characters")
        context.services.rules.check(identifier, "/resource_identifier")
        return Answer(shapes.Model(model=identifier), 201)  # fetched by each benchmark that uses it
    file = _model(context, caller, identifier)
    return Answer(_model_answer(file), 201)


def _model(context: Context, caller: Caller, name: str) -> UserFile:
    with context.services.store.read() as uow:
        try:
            return uow.files.user_file(caller.user_id, name)
        except NotFound:
            raise NotFound("model", name) from None


def _files(context: Context, caller: Caller) -> list[UserFile]:
    with context.services.store.read() as uow:
        return list(uow.files.user_files(caller.user_id))


def _is_dataset(file: UserFile) -> bool:
    match = _REFERENCE.fullmatch(file.name)
    return match is not None and match[1] == file.sha256


def _is_model(file: UserFile) -> bool:
    return file.name.lower().endswith(tuple(catalogue.MODEL_SUFFIXES))


def _shown(file: UserFile) -> JsonObject:
    return {
        "size_bytes": file.size_bytes,
        "sha256": file.sha256,
        "created_at": time_to_json(file.created_at),
    }


def _model_answer(file: UserFile) -> shapes.Model:
    return shapes.Model(
        model=file.name,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        created_at=file.created_at,
    )


def _check_platform(platform: str | None) -> None:
    if platform not in (None, PLATFORM):
        raise InvalidInput.at("/platform", "is not a source of models here", PLATFORM)
