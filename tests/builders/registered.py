"""Models that need no training: registered ones, and active ones as decisions know them."""

from __future__ import annotations

import numpy as np

from edgeyard.plugins.testing import NOW
from edgeyard.scheduler.engine.registered_models import register
from edgeyard.scheduler.learning.features import Input, features_version
from edgeyard.scheduler.learning.manifest import parse_manifest
from edgeyard.scheduler.model.knowledge import ActiveModel
from edgeyard.scheduler.model.registered_models import Gate, ModelKind, RegisteredModel
from edgeyard.scheduler.outcomes.files import chance_files, quantile_files
from edgeyard.scheduler.outcomes.models import (
    FAILURE_RATES,
    MEASUREMENT_RATES,
    ChanceModel,
    QuantileModel,
)
from edgeyard.scheduler.store import SqlStore

BY_LOAD = (Input(column="host_cpu", mean=0.5, scale=0.25),)
"""The only input next to the history: loads of 0 to 1 are within 2 standard deviations."""


def failures(
    inputs: tuple[Input, ...], by_input: float, history_weight: float = 1.0, offset: float = 0.0
) -> ChanceModel:
    """Return a model in which one input changes the log-odds of what follows the board."""
    return ChanceModel(
        FAILURE_RATES,
        inputs,
        np.array([[0.0, by_input]]),
        np.array([1.0, history_weight]),
        np.array([0.0, offset]),
    )


def active_failures(*, by_load: float = 0.0, version: int = 1) -> ActiveModel:
    """Return a model of failures.

    Args:
        by_load: By how much the log-odds of a host that is fully loaded are above an idle one's.
        version: Of the model.
    """
    content, manifest = chance_files(ModelKind.FAILURE, failures(BY_LOAD, 0.25 * by_load), "a test")
    return ActiveModel(kind=ModelKind.FAILURE, version=version, manifest=manifest, content=content)


def active_measurements(*, by_load: float) -> ActiveModel:
    """Return a model of measurements.

    Args:
        by_load: By how much the log-odds of a number that is not comparable are higher on a host
            that is fully loaded than on an idle one.
    """
    model = ChanceModel(
        MEASUREMENT_RATES, BY_LOAD, np.array([[0.25 * by_load]]), np.ones(1), np.zeros(1)
    )
    content, manifest = chance_files(ModelKind.MEASUREMENT, model, "a test")
    return ActiveModel(kind=ModelKind.MEASUREMENT, version=1, manifest=manifest, content=content)


def active_run_times(
    *, by_load: float = 0.0, width: float = 1.0, alone_s: float = 10.0, version: int = 1
) -> ActiveModel:
    """Return a model of run times.

    Args:
        by_load: By how much ln seconds on a host that is fully loaded are above an idle one's.
        width: Of its quantiles, relative to the history's; also of what nothing is known of.
        alone_s: Expected of what nothing is known of, at half load.
        version: Of the model.
    """
    normal = np.array([-1.2815515655, 0.0, 1.2815515655])
    model = QuantileModel(
        BY_LOAD,
        weights=np.array([0.25 * by_load]),
        by_scale=width * normal,
        by_error=np.zeros(3),
        alone=np.log(alone_s) + width * normal,
    )
    content, manifest = quantile_files(ModelKind.RUN_TIME, model, "a test")
    return ActiveModel(kind=ModelKind.RUN_TIME, version=version, manifest=manifest, content=content)


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
    model = failures((Input(column="host_cpu"),), by_load, history_weight, -by_load / 2)
    content, manifest = chance_files(ModelKind.FAILURE, model, "a test")
    sentence = "better" if passed else "not better"
    with store.write() as uow:
        return register(
            uow,
            RegisteredModel(
                kind=ModelKind.FAILURE,
                sha256=parse_manifest(manifest).sha256,
                manifest=manifest,
                features=features_version([*FAILURE_RATES, "host_cpu"]),
                card="# a test",
                created_at=NOW,
                state_at=NOW,
                gates=(
                    Gate(name="later", passed=passed, figure=0.1, limit=0.0, sentence=sentence),
                ),
            ),
            content,
        )
