"""Parts of pages that show what a benchmark asked for and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from edgeyard.benchmark_api.auth import Caller
from edgeyard.benchmark_api.figures.fronts import FrontFigure
from edgeyard.benchmark_api.figures.intervals import IntervalFigure
from edgeyard.benchmark_api.figures.lines import LineFigure
from edgeyard.benchmark_api.figures.loads import load_figures
from edgeyard.benchmark_api.figures.runs import figures_of_run
from edgeyard.benchmark_api.figures.svg import svg_figure
from edgeyard.benchmark_api.pages import job_form
from edgeyard.benchmark_api.pages.page import duration, number, type_text
from edgeyard.benchmark_api.routes import results
from edgeyard.benchmark_api.routes.context import Context
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.benchmark_api.sdk.units import UNITS
from edgeyard.benchmark_api.views import table
from edgeyard.scheduler.model.benchmark import Status


def drawn(figures: Sequence[IntervalFigure | LineFigure | FrontFigure]) -> list[Markup]:
    """Return figures as HTML."""
    return [Markup(svg_figure(each)) for each in figures]  # it escapes all texts


def results_of(
    items: Sequence[shapes.ListedBenchmark], caller: Caller, context: Context
) -> dict[str, shapes.ResultRow]:
    """Return the results of those of them that completed, by benchmark."""
    ids = [each.benchmark_id for each in items if each.status == Status.COMPLETED]
    if not ids:
        return {}
    found = results.rows(caller, context, benchmark_id=ids).content.items
    return {each.benchmark_id: each for each in found}


def result_figures(found: shapes.Results, context: Context) -> list[Markup]:
    """Return the figures of the newest run, as far as it has single latencies."""
    if not found.reports:
        return []
    early = table(found.newest_report, "warmup").get("latencies_ms")
    if table(found.newest_report, "generation"):  # of whole requests, and the others of a token
        early = None
    numbers = (
        [each for each in early if isinstance(each, int | float)] if isinstance(early, list) else []
    )
    runs = figures_of_run(numbers, results.latencies_ms(found, context))
    return drawn([*load_figures(found), *runs])


def stated_fields(description: Mapping[str, object]) -> dict[str, str]:
    """Return the fields of a job that differ from their defaults, by label, as they are typed."""
    fields = job_form.fields()
    where = {
        fields[name].label: str(description[name])
        for name in job_form.MATRIX
        if description.get(name)
    }
    form = job_form.form_of(description)
    if "benchmark_type" in form:
        form["benchmark_type"] = type_text(form["benchmark_type"])
    for name in form:
        if name in fields and fields[name].is_duration:
            form[name] = _stated_duration(float(form[name]))
        elif name in UNITS:
            form[name] = f"{float(form[name]):g} {UNITS[name]}"
    return where | {fields[name].label: text for name, text in form.items() if name in fields}


def _stated_duration(seconds: float) -> str:
    """Return a duration as it was stated: below ten seconds nothing is rounded away."""
    if seconds >= 10:
        return duration(seconds)
    return number(seconds, "s") if seconds >= 1 else number(seconds * 1e3, "ms")
