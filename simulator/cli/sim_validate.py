"""``sim validate``: how far a fitted scenario is from days that it was not fitted to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, Row, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.benchmark_api.cli.replaying import Config, DataDir, utc
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.simulator.cli.recorded_history import Export, Since, Until, exported_history

if TYPE_CHECKING:
    from edgeyard.simulator.fitting.distances import Distance
    from edgeyard.simulator.fitting.validation import ComparedFigure, Sample, Validation

MAX_DAYS, MAX_RUNS = 366, 1000
DEFAULT_DAYS, DEFAULT_RUNS = 2, 20

_TITLES = {"wait_s": "wait, s", "turnaround_s": "turnaround, s", "utilisation": "busy boards, %"}
_COLUMNS = (
    Column(title="FIGURE", of=field("figure"), whole=True),
    Column(title="OF", of=field("of"), whole=True),
    Column(title="MEAN", of=field("mean"), right=True, whole=True),
    Column(title="10 %", of=field("p10"), right=True, whole=True),
    Column(title="50 %", of=field("p50"), right=True, whole=True),
    Column(title="90 %", of=field("p90"), right=True, whole=True),
    Column(title="99 %", of=field("p99"), right=True, whole=True),
    Column(title="DISTANCE", of=field("distance"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("interval"), right=True, whole=True),
    Column(title="BY CHANCE", of=field("by_chance"), right=True, whole=True),
)


def validate(
    since: Since = None,
    until: Until = None,
    days: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=MAX_DAYS, help="Compare so many days at the end of the history."
        ),
    ] = DEFAULT_DAYS,
    runs: Annotated[
        int,
        typer.Option(metavar="N", min=2, max=MAX_RUNS, help="Simulations of each scenario."),
    ] = DEFAULT_RUNS,
    policy: Annotated[
        str,
        typer.Option(metavar="P", help="The policy that decided in these days."),
    ] = "default",
    export: Export = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Compare a fitted scenario with recorded days that it does not know.

    Fits a scenario to the history before the last days, as sim fit does, simulates these days in
    it, and prints the distance to what happened: waits, turnaround times and busy boards. The same
    is done with a default scenario of the same rate on the same boards, before fitting. A distance
    (Kolmogorov-Smirnov) is the greatest difference of two distribution functions: 0 is equal. BY
    CHANCE is how far single simulations are from the others in 19 of 20 cases.
    """
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.scheduler.framework.named import policy_named
    from edgeyard.simulator.fitting import validation
    from edgeyard.simulator.importers.history import read_history

    with (
        progress_bar() as advanced,
        known_plugins(Settings.load(None)) as known,
        exported_history(export, since, until, data_dir, config) as (folder, source),
    ):
        chosen = policy_named(policy, known)
        try:
            plugins = known.resolve(chosen)
        except ConfigError as error:
            raise InvalidInput.at("--policy", "; ".join(error.problems)) from error
        history = read_history(
            folder, source=source, advanced=lambda share: advanced("reading", share)
        )
        found = validation.validate(
            history, chosen, plugins, days=days, runs=runs, until=utc(until), advanced=advanced
        )
    if as_json:
        emit_json(_json(found))
        return
    show(table([row for each in found.figures for row in _rows(each)], _COLUMNS, console().width))
    for comment in (*_summary(found), *found.comments):
        echo(f"edgeyard: {comment}", err=True)


def _rows(figure: ComparedFigure) -> list[Row]:
    """Return the rows of what happened, of the default scenario and of the fitted one."""
    percent = figure.name == "utilisation"
    return [
        {"figure": _TITLES[figure.name], "of": "what happened", **_texts(figure.happened, percent)},
        {
            "figure": "",
            "of": "default scenario",
            **_texts(figure.default, percent),
            **_distance_texts(figure.default_distance),
        },
        {
            "figure": "",
            "of": "fitted scenario",
            **_texts(figure.fitted, percent),
            **_distance_texts(figure.fitted_distance),
        },
    ]


def _texts(sample: Sample, percent: bool) -> dict[str, str]:
    scale = 100.0 if percent else 1.0
    values = dict(
        zip(("mean", "p10", "p50", "p90", "p99"), (sample.mean, *sample.quantiles), strict=True)
    )
    return {name: "-" if math.isnan(v) else f"{v * scale:,.1f}" for name, v in values.items()}


def _distance_texts(found: Distance) -> dict[str, str]:
    if math.isnan(found.value):
        return {"distance": "-", "interval": "-", "by_chance": "-"}
    return {
        "distance": f"{found.value:.3f}",
        "interval": f"{found.low:.3f} to {found.high:.3f}",
        "by_chance": f"{found.by_chance:.3f}",
    }


def _summary(found: Validation) -> list[str]:
    return [
        f"fitted to {found.began:%Y-%m-%d %H:%M} to {found.since:%Y-%m-%d %H:%M} UTC, compared "
        f"until {found.until:%Y-%m-%d %H:%M} UTC under policy {found.policy}",
        f"{found.benchmarks} benchmarks in the compared days; {found.default_benchmarks:.1f} a "
        f"simulation in the default scenario, {found.fitted_benchmarks:.1f} in the fitted one, "
        f"{found.runs} simulations of each",
    ]


def _json(found: Validation) -> dict[str, object]:
    return {
        "began": found.began,
        "since": found.since,
        "until": found.until,
        "policy": found.policy,
        "runs": found.runs,
        "benchmarks": {
            "happened": found.benchmarks,
            "default": found.default_benchmarks,
            "fitted": found.fitted_benchmarks,
        },
        "figures": {
            each.name: {
                "happened": _sample_json(each.happened),
                "default": {
                    **_sample_json(each.default),
                    "distance": _distance_json(each.default_distance),
                },
                "fitted": {
                    **_sample_json(each.fitted),
                    "distance": _distance_json(each.fitted_distance),
                },
            }
            for each in found.figures
        },
        "comments": found.comments,
    }


def _sample_json(sample: Sample) -> dict[str, object]:
    from edgeyard.simulator.fitting.validation import QUANTILES

    return {
        "count": sample.count,
        "mean": _number(sample.mean),
        "quantiles": {
            f"{share:g}": _number(value)
            for share, value in zip(QUANTILES, sample.quantiles, strict=True)
        },
    }


def _distance_json(found: Distance) -> dict[str, object]:
    return {
        "value": _number(found.value),
        "low": _number(found.low),
        "high": _number(found.high),
        "by_chance": _number(found.by_chance),
        "within_chance": found.is_within_chance,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def add_to(group: typer.Typer) -> None:
    """Add the command to the group ``sim``."""
    group.command("validate")(validate)
