"""Simulated runs as a report: rows for tables, CSV and Parquet, and one HTML page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeyard import __version__
from edgeyard.benchmark_api.cli.output_files import open_output
from edgeyard.benchmark_api.sdk.errors import MissingExtra
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.figures.metrics import JOB_FIGURES, Interval
from edgeyard.simulator.cli.sim_plots import JOULES_A_KWH
from edgeyard.simulator.comparison import (
    MIN_SEEDS,
    RUN_FIGURES,
    MeasuredRun,
    PairedComparison,
    PolicySummary,
    compare_policies,
    measured,
    summarise,
)
from edgeyard.simulator.runs import ENDED, SimulatedRun
from edgeyard.simulator.scenario import Scenario, scenario_to_toml
from edgeyard.simulator.wording import count_of

if TYPE_CHECKING:
    from edgeyard.simulator.cli.sim_plots import Plot, PlottedRun

MAX_SCENARIO_CHARACTERS = 20_000
"""Maximum length of a scenario in the page; longer ones list thousands of jobs."""
MAX_PAIRS_SHOWN = 6
"""Maximum pairs of policies that are shown; of more only those with the first one are unfolded."""

TITLES: Mapping[str, str] = {
    "wait_s": "waiting time, s",
    "turnaround_s": "turnaround, s",
    "slowdown": "slowdown",
    "bounded_slowdown": "bounded slowdown (10 s)",
    "utilisation": "utilisation",
    "makespan_s": "makespan, s",
    "deadline_misses": "deadline misses",
    "fairness": "fairness (Jain)",
    "preemptions": "preemptions",
    "failed_attempts": "failed attempts",
    "overloaded": "overloaded nodes",
    "energy_j": "energy, kWh",
    "credits": "credits",
    "comparable_share": "comparable runs",
}
"""What figures are called for people."""

_TOO_FEW = "too few seeds"

HIGHER_IS_BETTER = frozenset({"utilisation", "fairness", "comparable_share"})

_OF_ALL_JOBS = frozenset({"deadline_misses", "preemptions", "failed_attempts"})
"""Figures that count all jobs, completed or not."""

RULES = (
    "Waiting time is from submission to the start of the last attempt. A job that never started "
    "counts with the time from its submission to its end, or to the end of the run: a lower bound.",
    "Turnaround (completion time) is from submission to the end of completed jobs. A job that had "
    "not ended when the run did counts with the time until then: a lower bound. Jobs that failed, "
    "expired or were cancelled have no completion time and are counted in their own column.",
    "Slowdown is turnaround over run time of completed jobs; the bounded slowdown is "
    "max(1, turnaround / max(run time, 10 s)).",
    "Utilisation is the mean share of the boards (or processors) that were in use, of those that "
    "were online, from the first submission to the last end; the makespan is the time between "
    "these two.",
    "A deadline is missed by a job that did not complete by then; those that lie after the end of "
    "the run count only for completed jobs.",
    "Fairness is Jain's index of the users' mean bounded slowdowns: 1 if all are equal.",
    "Overloaded nodes, energy, credits and the share of comparable runs (of completed benchmarks "
    "without a concurrent run on their host) are shown where the scenario knows them.",
    "Policies are compared on common random numbers: the same scenario and seed, job by job. Jobs "
    "that did not get so far under one of the two policies are counted as unpaired and are in "
    "neither mean.",
    "Intervals, also those of single policies: from 5 seeds on they are a bootstrap of the seeds' "
    "means. With fewer they are a bootstrap of blocks of √n neighbouring jobs, which shows the "
    "chance within these seeds, not between others; figures of whole runs, such as the makespan, "
    "then have none.",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """The runs of one scenario.

    Attributes:
        label: Its name; with the beginning of its hash if several have the name.
        scenario: Its content, where it is known.
    """

    label: str
    runs: Sequence[SimulatedRun]
    measured: Sequence[MeasuredRun]
    summaries: Sequence[PolicySummary]
    comparisons: Sequence[PairedComparison]
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """All that a report shows.

    Attributes:
        replaced: Runs that were left out because a later one has their scenario, policy and seed.
    """

    parts: Sequence[Part]
    replaced: int = 0

    @property
    def runs(self) -> list[SimulatedRun]:
        """All simulated runs of the report, grouped by scenario."""
        return [run for part in self.parts for run in part.runs]


def make_report(
    runs: Sequence[SimulatedRun],
    *,
    baseline: str | None = None,
    scenarios: Mapping[str, Scenario] = MappingProxyType({}),
    advanced: Callable[[float], None] = lambda share: None,
) -> Report:
    """Measure and compare runs.

    Args:
        runs: At least one. Of runs with the same scenario, policy and seed the last counts.
        baseline: Compare each policy with this one; None: all pairs.
        scenarios: Contents of scenarios by their hash, of those that are known.
        advanced: Called with the share of the runs that are measured.

    Raises:
        InvalidInput: No run is of the policy ``baseline``.
    """
    policies = list(dict.fromkeys(run.meta.policy for run in runs))
    if baseline is not None and baseline not in policies:
        raise InvalidInput.at(
            "--baseline", f"no run is of the policy {baseline!r}", ", ".join(policies)
        )
    last = {(run.meta.scenario_hash, run.meta.policy, run.meta.seed): run for run in runs}
    by_scenario: dict[str, list[SimulatedRun]] = {}
    for run in last.values():
        by_scenario.setdefault(run.meta.scenario_hash, []).append(run)
    names = [each[0].meta.scenario for each in by_scenario.values()]
    parts, done = [], 0
    for digest, each in by_scenario.items():
        name = each[0].meta.scenario
        label = name if names.count(name) == 1 else f"{name} ({digest[:8]})"
        figures = []
        for run in each:
            figures.append(measured(run, scenario=label))
            done += 1
            advanced(done / len(last))
        parts.append(
            Part(
                label=label,
                runs=each,
                measured=figures,
                summaries=summarise(figures),
                comparisons=compare_policies(figures, baseline=baseline),
                scenario=scenarios.get(digest),
            )
        )
    return Report(parts=parts, replaced=len(runs) - len(last))


def number(value: float | None) -> str:
    """Return a figure for people; empty if it is not known."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def interval_text(interval: Interval) -> str:
    """Return an interval for people; empty if it is not known."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return ""
    return f"{number(interval.low)} to {number(interval.high)}"


def in_shown_unit(figure: str, interval: Interval) -> Interval:
    """Return a figure in the unit that people read, which its title has: joules in kWh."""
    if figure != "energy_j":
        return interval
    ends = (interval.mean, interval.low, interval.high)
    return Interval(*(each / JOULES_A_KWH for each in ends))


def run_row(label: str, run: SimulatedRun, figures: MeasuredRun) -> dict[str, object]:
    """Return the metrics of a run as one flat row; what is not known is None."""
    metrics = figures.metrics
    row: dict[str, object] = {
        "scenario": label,
        "scenario_hash": run.meta.scenario_hash,
        "world": run.meta.world,
        "policy": run.meta.policy,
        "seed": run.meta.seed,
        "version": run.meta.version,
        "boards": len(run.boards),
        "jobs": metrics.jobs,
        "completed": metrics.statuses.get("completed", 0),
        "failed": metrics.statuses.get("failed", 0),
        "cancelled": metrics.statuses.get("cancelled", 0),
        "expired": metrics.statuses.get("expired", 0),
        "unended": int(figures.jobs.unended.sum()),
    }
    for name in JOB_FIGURES:
        found = metrics.figures[name]
        row |= {
            f"mean_{name}": _known(found.interval.mean),
            f"mean_{name}_low": _known(found.interval.low),
            f"mean_{name}_high": _known(found.interval.high),
            f"p50_{name}": _known(found.p50),
            f"p90_{name}": _known(found.p90),
            f"p99_{name}": _known(found.p99),
            f"max_{name}": _known(found.max),
            f"at_least_{name}": found.at_least,
        }
    row |= {name: _known(getattr(metrics, name)) for name in RUN_FIGURES}
    row |= {"deadlines": metrics.deadlines, "wall_s": run.meta.wall_s}
    return row


def run_rows(report: Report) -> list[dict[str, object]]:
    """Return one row for each run."""
    return [
        run_row(part.label, run, figures)
        for part in report.parts
        for run, figures in zip(part.runs, part.measured, strict=True)
    ]


def summary_row(summary: PolicySummary) -> dict[str, object]:
    """Return a policy's figures over all seeds as one nested row."""
    return {
        "scenario": summary.scenario,
        "policy": summary.policy,
        "seeds": summary.seeds,
        "jobs": summary.jobs,
        "completed": summary.completed,
        "unended": summary.unended,
        "figures": {
            name: {
                "mean": _known(interval.mean),
                "low": _known(interval.low),
                "high": _known(interval.high),
                **(
                    {
                        "at_least": summary.at_least[name],
                        **dict(
                            zip(
                                ("p50", "p90", "p99"),
                                map(_known, summary.percentiles[name]),
                                strict=True,
                            )
                        ),
                    }
                    if name in summary.percentiles
                    else {}
                ),
            }
            for name, interval in summary.figures.items()
        },
    }


def comparison_row(each: PairedComparison) -> dict[str, object]:
    """Return a comparison as one flat row."""
    return {
        "scenario": each.scenario,
        "figure": each.figure,
        "first": each.first,
        "second": each.second,
        "difference": _known(each.result.difference.mean),
        "low": _known(each.result.difference.low),
        "high": _known(each.result.difference.high),
        "ratio": _known(each.result.ratio),
        "lower": each.result.lower,
        "higher": each.result.higher,
        "pairs": each.pairs,
        "unpaired": each.unpaired,
        "by": each.by,
        "finding": finding(each)[0],
    }


def report_json(report: Report) -> dict[str, object]:
    """Return all of a report as JSON."""
    return {
        "runs": [
            {**row, "unended_jobs": list(figures.metrics.unended)}
            for row, figures in zip(
                run_rows(report),
                [figures for part in report.parts for figures in part.measured],
                strict=True,
            )
        ],
        "policies": [summary_row(each) for part in report.parts for each in part.summaries],
        "comparisons": [comparison_row(each) for part in report.parts for each in part.comparisons],
        "notes": list(report_notes(report)),
    }


def report_notes(report: Report) -> tuple[str, ...]:
    """Return what was left out of the logs of all runs or completed, in words, each once."""
    found = [note for part in report.parts for run in part.runs for note in run.meta.notes]
    return tuple(dict.fromkeys(found))


def finding(each: PairedComparison) -> tuple[str, str]:
    """Return what a comparison shows, in words, and its tone: ``good``, ``bad`` or empty.

    A policy that completes fewer jobs is not praised for how these fared.
    """
    interval = each.result.difference
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        same = interval.mean == 0
        return ("equal" if same else f"{_TOO_FEW} (below {MIN_SEEDS})"), ""
    if interval.low == interval.high == 0:
        return "equal", ""
    if interval.low <= 0 <= interval.high:
        return "not distinguishable", ""
    higher = interval.low > 0
    better = higher == (each.figure in HIGHER_IS_BETTER)
    words = "higher" if higher else "lower"
    if (
        each.figure not in _OF_ALL_JOBS
        and each.more_completed
        and better == (each.more_completed < 0)
    ):
        return f"{words}, but completed {'fewer' if better else 'more'} jobs", ""
    return words, ("good" if better else "bad")


def _known(value: float) -> float | None:
    """Return a number for JSON, which has no NaN."""
    return value if math.isfinite(value) else None


def job_columns(report: Report) -> dict[str, Any]:
    """Return all jobs of all runs in columns, with their figures."""
    columns: dict[str, list[Any]] = {}
    for part in report.parts:
        for run, figures in zip(part.runs, part.measured, strict=True):
            jobs, count = figures.jobs, len(run.jobs)
            boards = np.array([*run.boards, ""], dtype=object)
            wait, turnaround = jobs.figure("wait_s"), jobs.figure("turnaround_s")
            for name, values in {
                "scenario": np.full(count, part.label, dtype=object),
                "policy": np.full(count, run.meta.policy, dtype=object),
                "seed": np.full(count, run.meta.seed),
                "job": jobs.job,
                "user": jobs.user,
                "status": jobs.status,
                "board": boards[np.where(run.jobs.board < 0, len(run.boards), run.jobs.board)],
                "procs": run.jobs.procs,
                "submit_s": jobs.submit_s,
                "start_s": jobs.start_s,
                "end_s": jobs.end_s,
                "deadline_s": jobs.deadline_s,
                "attempts": jobs.attempts,
                "preemptions": jobs.preemptions,
                "wait_s": wait.values,
                "wait_at_least": wait.at_least,
                "turnaround_s": turnaround.values,
                "turnaround_at_least": turnaround.at_least,
                "slowdown": jobs.figure("slowdown").values,
                "bounded_slowdown": jobs.figure("bounded_slowdown").values,
            }.items():
                columns.setdefault(name, []).append(values)
    return {name: np.concatenate(each) for name, each in columns.items()}


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as CSV; cells are empty where nothing is known."""
    with open_output(path, "--csv") as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([{name: _cell(value) for name, value in row.items()} for row in rows])
        text.detach()


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet takes for text, whatever a name begins with."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns as Parquet.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "export", "Parquet") from error
    table = pa.table(
        {
            name: pa.array(
                values.astype(object) if values.dtype.kind in "OU" else values, from_pandas=True
            )
            for name, values in columns.items()
        }
    )
    with open_output(path, "--parquet") as file:
        parquet.write_table(table, file, compression="zstd")


def rows_as_columns(rows: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """Return rows in columns; numbers that are not known are NaN."""
    columns: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if any(isinstance(each, str) for each in values):
            columns[name] = np.array(values, dtype=object)
        elif all(isinstance(each, int) for each in values):
            columns[name] = np.array(values, dtype=np.int64)
        else:
            columns[name] = np.array(
                [np.nan if each is None else each for each in values], dtype=np.float64
            )
    return columns


def columns_as_rows(columns: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return columns as rows; NaN is None."""
    names = list(columns)
    values = [columns[name].tolist() for name in names]
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(names, row, strict=True)
        }
        for row in zip(*values, strict=True)
    ]


def part_plots(part: Part, *, several: bool) -> list[Plot]:
    """Return the plots of a scenario's runs."""
    from edgeyard.simulator.cli.sim_plots import plots, time_against_energy

    scenario = part.label if several else ""
    drawn = [_plotted(run, each) for run, each in zip(part.runs, part.measured, strict=True)]
    points = {
        each.policy: (each.figures["turnaround_s"], each.figures["energy_j"])
        for each in part.summaries
        if math.isfinite(each.figures["energy_j"].mean)
    }
    energy = [time_against_energy(points, scenario)] if points else []
    return [*plots(drawn, scenario), *energy]


def _plotted(run: SimulatedRun, figures: MeasuredRun) -> PlottedRun:
    from edgeyard.simulator.cli.sim_plots import PlottedRun

    return PlottedRun(
        label=run.meta.policy,
        seed=run.meta.seed,
        jobs=figures.jobs,
        time_s=run.series.time_s,
        pending=run.series.pending.astype(np.float64),
        busy_share=run.series.busy_share,
        boards=run.boards if len(run.occupancy) else (),
        bar_board=run.occupancy.board,
        bar_from_s=run.occupancy.from_s,
        bar_to_s=run.occupancy.to_s,
        bar_ok=run.occupancy.how == ENDED,
    )


def main_comparisons(part: Part) -> list[PairedComparison]:
    """Return all comparisons of a scenario; of more than `MAX_PAIRS_SHOWN` pairs those with its
    first policy."""
    pairs = {(each.first, each.second) for each in part.comparisons}
    first = part.summaries[0].policy
    main = [each for each in part.comparisons if first in (each.first, each.second)]
    return main if main and len(pairs) > MAX_PAIRS_SHOWN else list(part.comparisons)


@dataclass(slots=True)
class _Cell:
    text: str
    small: str = ""


@dataclass(slots=True)
class _PagePart:
    label: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    policy_titles: list[str] = field(default_factory=list)
    policies: list[dict[str, object]] = field(default_factory=list)
    comparisons: list[dict[str, str]] = field(default_factory=list)
    further_comparisons: list[dict[str, str]] = field(default_factory=list)
    plots: list[dict[str, object]] = field(default_factory=list)
    run_titles: list[str] = field(default_factory=list)
    runs: list[list[str]] = field(default_factory=list)
    unended: list[str] = field(default_factory=list)
    scenario: str = ""


def html(report: Report, title: str, *, now: datetime | None = None) -> str:
    """Return a report as one page that loads nothing and needs no script.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    import jinja2
    from markupsafe import Markup

    from edgeyard.simulator.cli.sim_plots import svg

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("edgeyard.templates", "reports"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
    )
    several = len(report.parts) > 1
    parts = []
    for place, part in enumerate(report.parts):
        page = _page_part(part)
        page.plots = [
            {
                "title": plot.title,
                "caption": plot.caption,
                "svg": Markup(svg(plot, f"p{place}-{at}")),
            }
            for at, plot in enumerate(part_plots(part, several=several))
        ]
        parts.append(page)
    made = now or datetime.now(UTC)
    return environment.get_template("simulation.html.j2").render(
        report={
            "title": title,
            "runs": report.runs,
            "versions": sorted({run.meta.version for run in report.runs}),
            "version": __version__,
            "made_at": f"{made:%Y-%m-%d %H:%M} UTC",
            "parts": parts,
            "rules": RULES,
        }
    )


def _page_comparison(one: PairedComparison) -> dict[str, str]:
    words, tone = finding(one)
    difference = in_shown_unit(one.figure, one.result.difference)
    return {
        "policies": f"{one.first} − {one.second}",
        "figure": TITLES[one.figure],
        "difference": signed(difference.mean),
        "interval": interval_text(difference),
        "ratio": number(one.result.ratio),
        "shares": f"{one.result.lower:.0%} / {one.result.higher:.0%}",
        "pairs": count_of(one.pairs, "job" if one.figure in JOB_FIGURES else "run"),
        "unpaired": f"{one.unpaired:,}",
        "finding": words,
        "tone": tone,
    }


def _page_part(part: Part) -> _PagePart:
    first = part.runs[0]
    seeds = sorted({run.meta.seed for run in part.runs})
    page = _PagePart(part.label)
    families = sorted({each for each in first.families if each})
    size = "boards" if first.meta.world == "boards" else "nodes"
    amount = f"{len(first.boards):,}{' of ' + ', '.join(families) if families else ''}"
    if "processors" in first.meta.figures:
        size, amount = "processors", f"{first.meta.figures['processors']:,.0f}"
    low, high = (f(len(run.jobs) for run in part.runs) for f in (min, max))
    counts = f"{low:,}" if low == high else f"{low:,} to {high:,}, by seed"
    page.facts = [
        ("scenario", f"{first.meta.scenario}, hash {first.meta.scenario_hash[:16]}"),
        ("world", first.meta.world),
        (size, amount),
        ("jobs in a run", counts),
        ("seeds", _ranges(seeds)),
        ("policies", ", ".join(each.policy for each in part.summaries)),
    ]
    always = ("utilisation", "makespan_s", "fairness")
    shown = [
        name
        for name in RUN_FIGURES
        if name in always or any(each.figures[name].mean > 0 for each in part.summaries)
    ]
    page.policy_titles = [
        "policy",
        "jobs",
        "completed",
        "not ended",
        *(TITLES[name] for name in (*JOB_FIGURES, *shown)),
    ]
    best = best_policy(part.summaries)
    for each in part.summaries:
        cells = [
            _Cell(each.policy, count_of(each.seeds, "seed")),
            _Cell(f"{each.jobs:,}"),
            _Cell(f"{each.completed:,}"),
            _Cell(f"{each.unended:,}"),
        ]
        for name in (*JOB_FIGURES, *shown):
            interval = in_shown_unit(name, each.figures[name])
            bound = "≥ " if each.at_least.get(name) else ""
            cells.append(_Cell(f"{bound}{number(interval.mean)}", interval_text(interval)))
        page.policies.append({"cells": cells, "best": each.policy == best})
    main = main_comparisons(part)
    page.comparisons = [_page_comparison(one) for one in main]
    page.further_comparisons = [
        _page_comparison(one) for one in part.comparisons if one not in main
    ]
    page.findings = findings(part)
    if part.scenario is not None:
        if part.scenario.description:
            page.facts.insert(0, ("description", part.scenario.description))
        text = scenario_to_toml(part.scenario)
        cut = len(text) > MAX_SCENARIO_CHARACTERS
        page.scenario = text[:MAX_SCENARIO_CHARACTERS] + ("\n# ... cut here\n" if cut else "")
    page.run_titles = [
        *("policy", "seed", "jobs", "completed", "failed", "expired", "cancelled", "not ended"),
        *("wall time, s", "made by"),
    ]
    for run, figures in zip(part.runs, part.measured, strict=True):
        statuses = figures.metrics.statuses
        page.runs.append(
            [
                run.meta.policy,
                str(run.meta.seed),
                f"{figures.metrics.jobs:,}",
                *(f"{statuses.get(each, 0):,}" for each in ("completed", "failed")),
                *(f"{statuses.get(each, 0):,}" for each in ("expired", "cancelled")),
                f"{int(figures.jobs.unended.sum()):,}",
                number(run.meta.wall_s),
                f"Edgeyard {run.meta.version}",
            ]
        )
        if sentence := unended_sentence(run, figures):
            page.unended.append(sentence)
    return page


def best_policy(summaries: Sequence[PolicySummary]) -> str | None:
    """Return the policy with the lowest mean bounded slowdown among those that ended most jobs.

    None if there is nothing to compare.
    """
    known = [each for each in summaries if math.isfinite(each.figures["bounded_slowdown"].mean)]
    if len(known) < 2:
        return None
    share = max(each.completed / each.jobs for each in known)
    full = [each for each in known if each.completed / each.jobs >= share]
    return min(full, key=lambda each: each.figures["bounded_slowdown"].mean).policy


def findings(part: Part) -> list[str]:
    """Return in sentences what the comparison of policies shows."""
    best = best_policy(part.summaries)
    if best is None:
        return []
    figures = {each.policy: each.figures["bounded_slowdown"].mean for each in part.summaries}
    sentences = [
        f"{best} has the lowest mean bounded slowdown, {number(figures[best])}, of the policies "
        "that completed the most jobs."
    ]
    unclear = [
        each.second if each.first == best else each.first
        for each in part.comparisons
        if each.figure == "bounded_slowdown"
        and best in (each.first, each.second)
        and finding(each)[0] in ("not distinguishable", "equal")
    ]
    if unclear:
        sentences.append(
            f"By this figure it is not distinguishable from {', '.join(unclear)} on these jobs."
        )
    if any(finding(each)[0].startswith(_TOO_FEW) for each in part.comparisons):
        sentences.append(f"Differences without an interval: {_TOO_FEW} (below {MIN_SEEDS}).")
    return sentences


def unended_sentence(run: SimulatedRun, figures: MeasuredRun) -> str:
    """Return a sentence that names the jobs that had not ended; empty if all had."""
    count = int(figures.jobs.unended.sum())
    if not count:
        return ""
    named = figures.metrics.unended
    rest = f" and {count - len(named):,} more" if count > len(named) else ""
    return (
        f"{run.meta.policy}, seed {run.meta.seed}: {count_of(count, 'job')} had not ended "
        f"when the run did: {', '.join(named)}{rest}."
    )


def signed(value: float) -> str:
    """Return a difference for people."""
    text = number(value)
    return f"+{text}" if text and value > 0 else text


def _ranges(values: Sequence[int]) -> str:
    """Return ascending numbers with their ranges: ``1-5, 7``."""
    parts: list[list[int]] = []
    for each in values:
        if parts and each == parts[-1][1] + 1:
            parts[-1][1] = each
        else:
            parts.append([each, each])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
