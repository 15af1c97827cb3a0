"""Models that were trained from a lab's own history, in versions, each with its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ModelKind(StrEnum):
    """What a registered model predicts."""

    RUN_TIME = "run_time"  # quantiles of the run time
    FAILURE = "failure"  # the chances that the next run fails, by cause
    LOADING = "loading"  # quantiles of the time from the placement to the start of the task
    MEASUREMENT = "measurement"  # the chance that the number of a result is not comparable


class ModelState(StrEnum):
    """The state of a version."""

    CANDIDATE = "candidate"  # trained and judged, not in use
    SHADOW = "shadow"  # predicts for recorded decisions, without effect
    ACTIVE = "active"  # scorers predict with it
    RETIRED = "retired"  # no longer in use; a roll-back can make it active again


MODEL_MOVES: Mapping[ModelState, frozenset[ModelState]] = {
    ModelState.CANDIDATE: frozenset({ModelState.SHADOW}),
    ModelState.SHADOW: frozenset({ModelState.ACTIVE, ModelState.RETIRED}),
    ModelState.ACTIVE: frozenset({ModelState.RETIRED}),
    ModelState.RETIRED: frozenset({ModelState.ACTIVE}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition of a promotion, with its figure.

    Attributes:
        name: For example ``later``: better than the history on held-out time.
        passed: Whether it holds.
        figure: What was measured; None where nothing could be.
        low: Lower end of its 95 % interval; None: it has none.
        high: Upper end.
        limit: What the figure, or the end of its interval, is compared with.
        sentence: All of this in words.
    """

    name: str
    passed: bool
    figure: float | None
    limit: float
    sentence: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel:
    """One version of a model.

    Attributes:
        version: 1 for the first of its kind; assigned by the store.
        sha256: Of its ONNX file.
        manifest: TOML, as `edgeyard.scheduler.learning.manifest` reads it.
        features: Version of the columns that it reads.
        data: What it was trained on: counts, first and last number of the outcomes, their digest.
        metrics: Figures by name; those of losses with their intervals.
        gates: Conditions that were measured when it was trained.
        card: Markdown for people: data, form, figures, limits.
        state_at: Since when it has its state.
        by_user_id: Who gave it its state; "": Edgeyard itself.
        reason: Why it has its state.
        activated_at: When it became active last; None: it never was.
        replaced: Version that it replaced when it became active; None: none was active.
    """

    kind: ModelKind
    sha256: str
    manifest: str
    features: str
    card: str
    created_at: datetime
    state_at: datetime
    version: int = 0
    state: ModelState = ModelState.CANDIDATE
    data: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, object] = field(default_factory=dict)
    gates: tuple[Gate, ...] = ()
    by_user_id: str = ""
    reason: str = ""
    activated_at: datetime | None = None
    replaced: int | None = None

    @property
    def reference(self) -> str:
        """Return name and version, such as ``run_time/3``."""
        return f"{self.kind.value}/{self.version}"

    @property
    def failed_gates(self) -> tuple[Gate, ...]:
        """The gates that do not hold."""
        return tuple(each for each in self.gates if not each.passed)
