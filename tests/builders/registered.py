"""Registered models that need no training."""

from __future__ import annotations

import numpy as np

from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.engine.registered_models import register
from edgeyard.scheduler.learning.features import Input, features_version
from edgeyard.scheduler.learning.manifest import parse_manifest
from edgeyard.scheduler.model.registered_models import Gate, ModelKind, RegisteredModel
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.training.outcome_files import failure_files
from edgeyard.scheduler.training.outcome_models import FailureModel


def add_candidate(
    store: SqlStore, *, passed: bool = True, by_load: float = 0.0, history_weight: float = 1.0
) -> RegisteredModel:
    """Register a model of failures.

    Args:
        store: Of the server.
        passed: Whether its only gate holds.
        by_load: By how much the log-odds of a loaded host are above those of an idle one.
        history_weight: Of the history's log-odds.
    """
    inputs = (Input(column="host_cpu"),)
    model = FailureModel(inputs, np.array([by_load]), history_weight, -by_load / 2)
    content, manifest = failure_files(model, "a test")
    sentence = "better" if passed else "not better"
    with store.write() as uow:
        return register(
            uow,
            RegisteredModel(
                kind=ModelKind.FAILURE,
                sha256=parse_manifest(manifest).sha256,
                manifest=manifest,
                features=features_version(["failure_rate", "host_cpu"]),
                card="# a test",
                created_at=NOW,
                state_at=NOW,
                gates=(
                    Gate(name="later", passed=passed, figure=0.1, limit=0.0, sentence=sentence),
                ),
            ),
            content,
        )
