"""Registered models: what every store keeps to, on both databases."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from edgeyard.errors import ConfigError, Conflict, NotFound
from edgeyard.scheduler.model.registered_models import (
    Gate,
    ModelKind,
    ModelState,
    RegisteredModel,
)
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.tables import model_files
from tests.builders import records as make

CONTENT = b"an ONNX file"


def a_model(content: bytes = CONTENT, **changes: object) -> RegisteredModel:
    given: dict[str, object] = {
        "kind": ModelKind.RUN_TIME,
        "sha256": hashlib.sha256(content).hexdigest(),
        "manifest": 'name = "run_time"',
        "features": "0123456789ab",
        "card": "# größer",
        "created_at": make.at(1),
        "state_at": make.at(1),
        "data": {"rows": 100, "left_out": {"on no known board": 2}},
        "metrics": {"later": {"loss": {"mean": 0.5, "low": 0.4, "high": 0.6}}, "active": None},
        "gates": (
            Gate(name="later", passed=False, figure=None, limit=0.0, sentence="too few boards"),
        ),
    }
    return RegisteredModel(**(given | changes))  # type: ignore[arg-type]


def test_versions_are_numbered_by_kind_and_come_back_whole(store: SqlStore) -> None:
    with store.write() as uow:
        first = uow.models.add(a_model(), CONTENT)
        second = uow.models.add(a_model(), CONTENT)
        other = uow.models.add(a_model(kind=ModelKind.FAILURE), CONTENT)
    assert [each.reference for each in (first, second, other)] == [
        "run_time/1", "run_time/2", "failure/1"
    ]  # fmt: skip
    with store.read() as uow:
        assert uow.models.get(ModelKind.RUN_TIME, 2) == replace(a_model(), version=2)
        assert list(uow.models.all()) == [other, second, first]
        assert list(uow.models.all(ModelKind.FAILURE)) == [other]
        assert uow.models.content(second) == CONTENT
        with pytest.raises(NotFound):
            uow.models.get(ModelKind.FAILURE, 2)


def test_one_version_of_a_kind_is_active(store: SqlStore) -> None:
    with store.write() as uow:
        for _ in range(2):
            uow.models.add(a_model(), CONTENT)
    with store.write() as uow:
        for state in (ModelState.SHADOW, ModelState.ACTIVE):
            uow.models.save(replace(uow.models.get(ModelKind.RUN_TIME, 1), state=state))
        uow.models.save(replace(uow.models.get(ModelKind.RUN_TIME, 2), state=ModelState.SHADOW))
    with store.read() as uow:
        assert [each.version for each in uow.models.in_state(ModelState.ACTIVE)] == [1]
        assert [each.version for each in uow.models.in_state(ModelState.SHADOW)] == [2]
    with store.write() as uow, pytest.raises(Conflict, match="run_time/1 is already active"):
        uow.models.save(replace(uow.models.get(ModelKind.RUN_TIME, 2), state=ModelState.ACTIVE))


@pytest.mark.parametrize("goal", [ModelState.ACTIVE, ModelState.CANDIDATE])
def test_other_moves_than_those_of_the_table_are_refused(store: SqlStore, goal: ModelState) -> None:
    with store.write() as uow:
        model = uow.models.add(a_model(), CONTENT)
        if goal is ModelState.CANDIDATE:
            uow.models.save(replace(model, state=ModelState.SHADOW))
    with store.write() as uow, pytest.raises(Conflict, match=f"can't become {goal.value}"):
        uow.models.save(replace(model, state=goal))


def test_a_file_that_was_replaced_is_refused_and_named(store: SqlStore) -> None:
    with store.write() as uow:
        model = uow.models.add(a_model(), CONTENT)
        uow.tx.run(model_files.update().values(data=b"another file"))
    with (
        store.read() as uow,
        pytest.raises(ConfigError, match=r"run_time/1: its file has SHA-256 .* was changed"),
    ):
        uow.models.content(model)
    with store.write() as uow:
        uow.tx.run(model_files.delete())
    with store.read() as uow, pytest.raises(ConfigError, match="is missing"):
        uow.models.content(model)
