"""Registered models as rows, and their files by their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from sqlalchemy import func, select, update

from edgeyard.errors import ConfigError, Conflict, NotFound
from edgeyard.scheduler.model import strict_json
from edgeyard.scheduler.model.registered_models import (
    MODEL_MOVES,
    Gate,
    ModelKind,
    ModelState,
    RegisteredModel,
)
from edgeyard.scheduler.ports import Models
from edgeyard.scheduler.store.rows import flat_row
from edgeyard.scheduler.store.tables import model_files, models
from edgeyard.scheduler.store.transaction import Row, Transaction

_EXCLUSIVE_STATES = (ModelState.ACTIVE, ModelState.SHADOW)


class SqlModels(Models):
    """`Models` in SQL."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def add(self, model: RegisteredModel, content: bytes) -> RegisteredModel:
        self._tx.lock_table(models)
        last = self._tx.value(
            select(func.max(models.c.version)).where(models.c.kind == model.kind.value)
        )
        stored = replace(model, version=1 + cast(int, last or 0))
        self._tx.replace(model_files, {"sha256": model.sha256, "data": content})
        self._tx.insert(models, _row(stored))
        return stored

    def get(self, kind: ModelKind, version: int) -> RegisteredModel:
        row = self._tx.row(
            select(models).where(models.c.kind == kind.value, models.c.version == version)
        )
        if row is None:
            raise NotFound("model", f"{kind.value}/{version}")
        return _model(row)

    def all(self, kind: ModelKind | None = None) -> Sequence[RegisteredModel]:
        query = select(models).order_by(models.c.kind, models.c.version.desc())
        if kind is not None:
            query = query.where(models.c.kind == kind.value)
        return [_model(row) for row in self._tx.rows(query)]

    def in_state(self, state: ModelState) -> Sequence[RegisteredModel]:
        query = select(models).where(models.c.state == state.value).order_by(models.c.kind)
        return [_model(row) for row in self._tx.rows(query)]

    def content(self, model: RegisteredModel) -> bytes:
        data = self._tx.value(
            select(model_files.c.data).where(model_files.c.sha256 == model.sha256)
        )
        if data is None:
            raise ConfigError([f"model {model.reference}: its file {model.sha256} is missing"])
        content = bytes(cast(bytes, data))
        found = hashlib.sha256(content).hexdigest()
        if found != model.sha256:
            raise ConfigError(
                [
                    f"model {model.reference}: its file has SHA-256 {found}, and {model.sha256} "
                    "was registered: the file was changed; train the model again"
                ]
            )
        return content

    def save(self, model: RegisteredModel) -> None:
        self._tx.lock_table(models)
        before = self.get(model.kind, model.version)
        if model.state is not before.state:
            if model.state not in MODEL_MOVES[before.state]:
                raise Conflict(
                    f"model {model.reference} is {before.state.value} and can't become "
                    f"{model.state.value}"
                )
            for other in self.in_state(model.state):
                if other.kind is model.kind and model.state in _EXCLUSIVE_STATES:
                    raise Conflict(f"model {other.reference} is already {model.state.value}")
        self._tx.run(
            update(models)
            .where(models.c.kind == model.kind.value, models.c.version == model.version)
            .values(_row(model))
        )


def _row(model: RegisteredModel) -> dict[str, object]:
    return {
        **flat_row(model),
        "data": strict_json.dumps(model.data),
        "metrics": strict_json.dumps(model.metrics),
        "gates": strict_json.dumps([asdict(each) for each in model.gates]),
    }


def _model(row: Row) -> RegisteredModel:
    given = cast("dict[str, Any]", dict(row))
    return RegisteredModel(
        **given
        | {
            "kind": ModelKind(given["kind"]),
            "state": ModelState(given["state"]),
            "data": strict_json.loads(given["data"]),
            "metrics": strict_json.loads(given["metrics"]),
            "gates": tuple(Gate(**each) for each in strict_json.loads(given["gates"])),
        }
    )
