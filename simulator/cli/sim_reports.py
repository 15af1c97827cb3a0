"""``sim report``: what simulations led to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, Row, console, emit_json, field, show, table
from edgeyard.benchmark_api.cli.output_files import make_folder, write_output
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import InvalidInput
from edgeyard.simulator.cli.scenario_db import LocalDb
from edgeyard.simulator.scenario_db import run_file

if TYPE_CHECKING:
    from edgeyard.simulator.cli.sim_documents import Part, Report
    from edgeyard.simulator.comparison import PairedComparison, PolicySummary
    from edgeyard.simulator.runs import SimulatedRun
    from edgeyard.simulator.scenario import Scenario


class Form(StrEnum):
    """Values of ``--format``."""

    PNG = "png"
    SVG = "svg"


class Rows(StrEnum):
    """Values of ``--rows``."""

    RUNS = "runs"
    JOBS = "jobs"


Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write one self-contained HTML page.")
]
CsvFile = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write CSV.")]
Parquet = Annotated[Path | None, typer.Option(metavar="FILE", help="Write Parquet.")]
RowsOf = Annotated[
    Rows, typer.Option("--rows", help="Rows of CSV and Parquet: one for each run or each job.")
]
PlotDir = Annotated[
    Path | None,
    typer.Option("--plot", metavar="DIR", help="Folder for plots; it is created."),
]
FormOf = Annotated[Form, typer.Option("--format", help="File format of the plots.")]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="Compare each policy with this one; default: all pairs."),
]


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…",
            help="Files of runs, folders with such files, or ids from `edgeyard sim list`.",
        ),
    ],
    html: Html = None,
    csv: CsvFile = None,
    parquet: Parquet = None,
    rows: RowsOf = Rows.RUNS,
    plot: PlotDir = None,
    form: FormOf = Form.PNG,
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Title of the page.")
    ] = "Comparison of scheduling policies",
    baseline: Baseline = None,
    db: LocalDb = None,
    as_json: AsJson = False,
) -> None:
    """Compare simulated runs, and write tables, plots and a page.

    Runs come from sim run, sim sweep --out and sim replay --out. Policies are compared
    within a scenario, on the same seeds and jobs.
    """
    with progress_bar() as advanced:
        found = make_from(runs, baseline, advanced, db)
        report_missing_baseline(found, baseline)
        advanced("writing", 0.0)
        written = write(
            found, html=html, csv=csv, parquet=parquet, rows=rows, plot=plot, form=form, title=title
        )
    if as_json:
        from edgeyard.simulator.cli.sim_documents import report_json

        emit_json({**report_json(found), "files": [str(path) for path in written]})
    else:
        show_report(found)
    for path in written:
        echo(f"written: {path}", err=True)


def make_from(
    references: Sequence[str],
    baseline: str | None,
    advanced: Callable[[str, float], None] = lambda stage, share: None,
    db: str | None = None,
) -> Report:
    """Read runs and make a report of them."""
    from edgeyard.simulator.cli.sim_documents import make_report

    files = run_files(references, db)
    runs: list[SimulatedRun] = []
    from edgeyard.simulator.runs import load_run

    for count, path in enumerate(files):
        advanced("reading", count / len(files))
        runs.append(load_run(path))
    made = make_report(
        runs,
        baseline=baseline,
        scenarios=scenarios_near(files),
        advanced=lambda share: advanced("measuring", share),
    )
    if made.replaced:
        echo(
            f"edgeyard: {made.replaced} of the runs are left out: later ones have the same "
            "scenario, policy and seed",
            err=True,
        )
    return made


def report_missing_baseline(made: Report, baseline: str | None) -> None:
    """Report on stderr which scenarios have no comparison because no run is of the baseline."""
    for part in made.parts:
        if baseline is not None and all(each.policy != baseline for each in part.summaries):
            echo(f"edgeyard: {part.label}: no run of {baseline}, so no comparison", err=True)


def scenarios_near(files: Sequence[Path]) -> dict[str, Scenario]:
    """Return the scenarios in the folders of runs, by their hash.

    A sweep writes them there. Other TOML files are no error: they are left out.
    """
    from edgeyard.simulator.scenario import load_scenario, scenario_hash

    found: dict[str, Scenario] = {}
    for folder in dict.fromkeys(path.parent for path in files):
        for path in sorted(folder.glob("*.toml")):
            with contextlib.suppress(InvalidInput):
                scenario = load_scenario(path)
                found[scenario_hash(scenario)] = scenario
    return found


def run_files(references: Sequence[str], db: str | None = None) -> list[Path]:
    """Return the files that paths of files and folders, and ids of stored runs mean, each once.

    Raises:
        InvalidInput: There is no such file, or a folder has no run.
    """
    files: dict[Path, None] = {}
    for each in references:
        path = Path(each)
        if path.is_dir():
            inside = sorted(path.rglob("*.npz"))
            if not inside:
                raise InvalidInput.at(each, "has no file of a run (*.npz)")
            files.update(dict.fromkeys(one.resolve() for one in inside))
        elif path.exists():
            files[path.resolve()] = None
        elif (stored := run_file(each, db)) is not None:
            files[stored.resolve()] = None
        else:
            raise InvalidInput.at(
                each,
                "there is no such file, folder or stored run",
                "a file that sim run --out, sim sweep --out or sim replay --out has written, or an "
                "id that sim list shows",
            )
    return list(files)


def write(
    made: Report,
    *,
    html: Path | None,
    csv: Path | None,
    rows: Rows,
    title: str,
    parquet: Path | None = None,
    plot: Path | None = None,
    form: Form = Form.PNG,
) -> list[Path]:
    """Write the documents that were asked for; return their paths."""
    from edgeyard.simulator.cli import sim_documents as documents

    written: list[Path] = []
    if csv is not None or parquet is not None:
        by_run = rows is Rows.RUNS
        if csv is not None:
            documents.write_csv(
                csv,
                documents.run_rows(made)
                if by_run
                else documents.columns_as_rows(documents.job_columns(made)),
            )
            written.append(csv)
        if parquet is not None:
            documents.write_parquet(
                parquet,
                documents.rows_as_columns(documents.run_rows(made))
                if by_run
                else documents.job_columns(made),
            )
            written.append(parquet)
    if plot is not None:
        written.extend(_write_plots(made, plot, form))
    if html is not None:
        write_output(html, "--html", documents.html(made, title))
        written.append(html)
    return written


def _write_plots(made: Report, folder: Path, form: Form) -> list[Path]:
    from edgeyard.simulator.cli.sim_documents import part_plots
    from edgeyard.simulator.cli.sim_plots import file_name, save

    make_folder(folder, "--plot")
    several = len(made.parts) > 1
    written = []
    for place, part in enumerate(made.parts):
        prefix = f"{place + 1}-{file_name(part.label)}-" if several else ""
        for each in part_plots(part, several=several):
            written.append(save(each, folder, prefix, form.value))
    return written


def show_notes(notes: Iterable[str]) -> None:
    """Print on stderr what the rules of a log left out or completed."""
    for each in notes:
        echo(f"of the log: {each}", err=True)


def show_report(made: Report) -> None:
    """Print the tables of a report, and notes on logs."""
    from edgeyard.simulator.cli import sim_documents as documents

    show_notes(documents.report_notes(made))
    for place, part in enumerate(made.parts):
        if place or len(made.parts) > 1:
            show("" if place else part.label, *([part.label] if place else []))
        show_part(part)


def show_summary(made: Report) -> None:
    """Print one table of all scenarios, and how the policies' bounded slowdowns compare."""
    width = console().width
    rows = [_policy_row(each) for part in made.parts for each in part.summaries]
    scenario = Column(title="SCENARIO", of=field("scenario"), shorten=True)
    show(table(rows, (scenario, *_POLICY_COLUMNS), width))
    compared = [
        {**_comparison_row(each), "scenario": each.scenario}
        for part in made.parts
        for each in part.comparisons
        if each.figure == "bounded_slowdown"
    ]
    if compared:
        show("", table(compared, (scenario, *_COMPARISON_COLUMNS), width))


def show_part(part: Part) -> None:
    """Print the tables of one scenario."""
    from edgeyard.simulator.cli import sim_documents as documents

    width = console().width
    show(table([_policy_row(each) for each in part.summaries], _POLICY_COLUMNS, width))
    if part.comparisons:
        main = documents.main_comparisons(part)
        shown = [_comparison_row(each) for each in main if each.figure in _COMPARED]
        show("", table(shown, _COMPARISON_COLUMNS, width))
        if len(main) < len(part.comparisons):
            pairs = {(each.first, each.second) for each in part.comparisons}
            echo(
                f"edgeyard: only comparisons with {part.summaries[0].policy} are shown; --json and "
                f"--html have all {len(pairs)} pairs",
                err=True,
            )
    sentences = documents.findings(part)
    for run, figures in zip(part.runs, part.measured, strict=True):
        if sentence := documents.unended_sentence(run, figures):
            sentences.append(sentence)
    if sentences:
        show("", *sentences)


_COMPARED = (
    "wait_s",
    "turnaround_s",
    "bounded_slowdown",
    "utilisation",
    "deadline_misses",
    "energy_j",
    "credits",
    "comparable_share",
)

_POLICY_COLUMNS = (
    Column(title="POLICY", of=field("policy"), shorten=True),
    Column(title="SEEDS", of=field("seeds"), right=True, whole=True, from_width=80, yields=8),
    Column(title="JOBS", of=field("jobs"), right=True, whole=True, yields=3),
    Column(title="COMPLETED", of=field("completed"), right=True, whole=True),
    Column(title="NOT ENDED", of=field("unended"), right=True, whole=True, always=False),
    Column(title="WAIT, s", of=field("wait_s"), right=True, whole=True),
    Column(title="95 %", of=field("wait_s_interval"), right=True, whole=True, from_width=130),
    Column(
        title="TURNAROUND, s",
        of=field("turnaround_s"),
        right=True,
        whole=True,
        yields=1,
    ),
    Column(
        title="95 %", of=field("turnaround_s_interval"), right=True, whole=True, from_width=130,
        yields=9,
    ),
    Column(title="BOUNDED SLOWDOWN", of=field("bounded_slowdown"), right=True, whole=True),
    Column(
        title="95 %", of=field("bounded_slowdown_interval"), right=True, whole=True, from_width=110,
        yields=7,
    ),
    Column(
        title="UTILISATION", of=field("utilisation"), right=True, whole=True, from_width=100,
        yields=5,
    ),
    Column(
        title="MAKESPAN, s", of=field("makespan_s"), right=True, whole=True, from_width=150,
        yields=4,
    ),
    Column(
        title="MISSED", of=field("deadline_misses"), right=True, whole=True, always=False, yields=2
    ),
    Column(title="ENERGY, kWh", of=field("energy_j"), right=True, whole=True, always=False),
    Column(
        title="95 %",
        of=field("energy_j_interval"),
        right=True,
        whole=True,
        from_width=130,
        always=False,
    ),
    Column(title="CREDITS", of=field("credits"), right=True, whole=True, always=False),
    Column(
        title="COMPARABLE", of=field("comparable_share"), right=True, whole=True, always=False
    ),
    Column(
        title="FAIRNESS", of=field("fairness"), right=True, whole=True, from_width=120, yields=3
    ),
)  # fmt: skip
_COMPARISON_COLUMNS = (
    Column(title="FIRST", of=field("first"), shorten=True),
    Column(title="SECOND", of=field("second"), shorten=True),
    Column(title="FIGURE", of=field("figure"), whole=True),
    Column(title="DIFFERENCE", of=field("difference"), right=True, whole=True),
    Column(title="95 % INTERVAL", of=field("interval"), right=True, whole=True, yields=1),
    Column(title="PAIRS", of=field("pairs"), right=True, whole=True, from_width=110, yields=4),
    Column(title="UNPAIRED", of=field("unpaired"), right=True, whole=True, always=False, yields=3),
    Column(title="FIRST IS", of=field("finding"), whole=True, from_width=90, yields=2),
)


def _policy_row(summary: PolicySummary) -> Row:
    from edgeyard.simulator.cli.sim_documents import in_shown_unit, interval_text, number

    row: dict[str, object] = {
        "scenario": summary.scenario,
        "policy": summary.policy,
        "seeds": summary.seeds,
        "jobs": f"{summary.jobs:,}",
        "completed": f"{summary.completed:,}",
        "unended": f"{summary.unended:,}" if summary.unended else "",
    }
    for name, figure in summary.figures.items():
        interval = in_shown_unit(name, figure)
        bound = "≥ " if summary.at_least.get(name) else ""
        row[name] = f"{bound}{number(interval.mean)}"
        row[f"{name}_interval"] = interval_text(interval)
    if not summary.deadlines:
        row["deadline_misses"] = ""
    return row


def _comparison_row(each: PairedComparison) -> Row:
    from edgeyard.simulator.cli.sim_documents import (
        TITLES,
        finding,
        in_shown_unit,
        interval_text,
        signed,
    )

    difference = in_shown_unit(each.figure, each.result.difference)
    return {
        "first": each.first,
        "second": each.second,
        "figure": TITLES[each.figure].removesuffix(" (10 s)"),
        "difference": signed(difference.mean),
        "interval": interval_text(difference),
        "pairs": f"{each.pairs:,}",
        "unpaired": f"{each.unpaired:,}" if each.unpaired else "",
        "finding": finding(each)[0],
    }


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``sim``."""
    group.command("report")(report)
