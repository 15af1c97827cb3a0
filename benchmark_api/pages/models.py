"""Models that were trained from the lab's history: states, gates, promotion and roll-back."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserOperator, Caller
from edgeyard.benchmark_api.pages.forms import SignedInForm
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.routes import models
from edgeyard.benchmark_api.routes.context import Context, Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import Conflict
from edgeyard.scheduler.model.registered_models import ModelKind

router = PageRouter()

PREDICTED = {
    ModelKind.RUN_TIME: "how long a run takes",
    ModelKind.FAILURE: "whether a run fails, and why",
    ModelKind.LOADING: "how long a run takes to start",
    ModelKind.MEASUREMENT: "whether a number can be compared",
}


@router.get("/ui/models")
def listed(request: Request, caller: BrowserOperator, context: Ctx) -> Response:
    """All versions by kind, with the gates that do not hold."""
    found = models.models(caller, context).content
    return page(
        request,
        "models",
        caller,
        kinds=[
            (kind.value, text, [each for each in found.items if each.kind == kind.value])
            for kind, text in PREDICTED.items()
        ],
        training=_training(caller, context),
    )


@router.get("/ui/models/{kind}/{version}")
def one(
    request: Request, kind: ModelKind, version: int, caller: BrowserOperator, context: Ctx
) -> Response:
    """The report of a version: its gates, figures and card."""
    found = models.model(kind, version, caller, context).content
    return page(
        request,
        "model",
        caller,
        model=found,
        predicted=PREDICTED[kind],
        figures=_figures(found.metrics),
    )


@router.post("/ui/models/{kind}/{version}/promote")
def promote(
    kind: ModelKind, version: int, form: SignedInForm, caller: BrowserOperator, context: Ctx
) -> Response:
    """Make a candidate the shadow, or the shadow active."""
    models.promote_model(kind, version, caller, context, bool(form.text("force")))
    return see_other("/ui/models", "model-promoted")


@router.post("/ui/models/{kind}/rollback")
def roll_back(
    kind: ModelKind, form: SignedInForm, caller: BrowserOperator, context: Ctx
) -> Response:
    """Retire the active version."""
    models.roll_back_model(kind, caller, context, form.text("reason") or None)
    return see_other("/ui/models", "model-rolled-back")


def _training(caller: Caller, context: Context) -> shapes.Training | None:
    try:
        return models.training(caller, context).content
    except Conflict:
        return None  # another server leads, and trains


def _figures(metrics: Mapping[str, object], before: str = "") -> list[tuple[str, object]]:
    """Return numbers and texts of an object by name, those of objects in it too."""
    found: list[tuple[str, object]] = []
    for name, value in metrics.items():
        whole = f"{before} {name}".strip()
        if isinstance(value, Mapping) and {"mean", "low", "high"} <= set(value):
            interval = (value[each] for each in ("mean", "low", "high"))
            found.append((whole, "{:.4g} ({:.4g} to {:.4g})".format(*interval)))
        elif isinstance(value, Mapping):
            found += _figures(value, whole)
        elif isinstance(value, float):
            found.append((whole, f"{value:.4g}"))
        elif value is not None:
            found.append((whole, str(value)))
    return found
