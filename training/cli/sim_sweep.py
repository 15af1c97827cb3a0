"""``sim sweep``: many scenarios, loads, policies and seeds, on all cores or on a Nomad cluster."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import emit_json, show
from edgeyard.benchmark_api.cli.output_files import make_folder, write_output
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.printing import printable
from edgeyard.errors import InvalidInput
from edgeyard.simulator.cli.scenario_db import LocalDb, StoreRuns
from edgeyard.simulator.cli.sim_labs import MAX_SEED, swept_policy
from edgeyard.simulator.cli.sim_processes import Done, Failure, run_on_cores, simulate
from edgeyard.simulator.cli.sim_reports import (
    Baseline,
    CsvFile,
    Html,
    Rows,
    report_missing_baseline,
    show_summary,
    write,
)
from edgeyard.simulator.scenario_db import is_named, scenario_named
from edgeyard.training.cli.sim_batches import NomadOptions, run_on_nomad

if TYPE_CHECKING:
    from edgeyard.simulator.cli.sim_documents import Report
    from edgeyard.simulator.runs import SimulatedRun
    from edgeyard.simulator.scenario import Scenario
    from edgeyard.simulator.sweep import Cell

MAX_CELLS = 100_000
NOMAD_JOBS = 20
"""Jobs at a time on Nomad, unless ``--jobs`` states another number."""


class Driver(StrEnum):
    """Values of ``--driver``."""

    RAW_EXEC = "raw_exec"
    DOCKER = "docker"


class Place(StrEnum):
    """Values of ``--on``."""

    LOCAL = "local"
    NOMAD = "nomad"


Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --on nomad: settings file with the nomad_* settings."),
]
JobDriver = Annotated[Driver, typer.Option(help="With --on nomad: driver of the jobs.")]
Image = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGE", help="With --driver docker: image in which Edgeyard is installed."
    ),
]
Interpreter = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="With --on nomad: Python with Edgeyard on Nomad's nodes; default: the path of "
        "the one that runs this command.",
    ),
]
Memory = Annotated[
    int,
    typer.Option(metavar="MIB", min=64, max=2**20, help="With --on nomad: memory of each job."),
]
Cpu = Annotated[
    int,
    typer.Option(metavar="MHZ", min=10, max=2**20, help="With --on nomad: CPU share of each job."),
]


def sweep(
    scenarios: Annotated[
        list[str],
        typer.Argument(
            metavar="SCENARIO…",
            help="TOML or JSON files, names of built-in ones, or scenarios of the ScenarioDB.",
        ),
    ],
    policy: Annotated[
        list[str],
        typer.Option(metavar="NAME|FILE", help="Policy or queue policy; may be repeated."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder of the runs; a sweep that was interrupted goes on there."
        ),
    ],
    seeds: Annotated[
        str, typer.Option(metavar="N-M,…", help="Seeds, such as 1-20 or 1,5,7-9.")
    ] = "1",
    load: Annotated[
        str,
        typer.Option(
            metavar="X,…",
            help="Factors by which the rate of arrivals is multiplied, e.g. 0.5,1,1.5.",
        ),
    ] = "1",
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=1024,
            help="Runs at the same time. Default: one for each core on this machine, 20 on Nomad.",
        ),
    ] = None,
    on: Annotated[
        Place,
        typer.Option(
            "--on",
            help="Where the runs are simulated. local: on this machine; nomad: as batch jobs of a "
            "Nomad cluster.",
        ),
    ] = Place.LOCAL,
    config: Config = None,
    driver: JobDriver = Driver.RAW_EXEC,
    image: Image = None,
    python: Interpreter = None,
    memory: Memory = 512,
    cpu: Cpu = 1000,
    store: StoreRuns = None,
    db: LocalDb = None,
    html: Html = None,
    csv: CsvFile = None,
    baseline: Baseline = None,
    as_json: AsJson = False,
) -> None:
    """Simulate each scenario at each load under each policy with each seed, and compare.

    Runs that the folder has already are not repeated, so that the same command goes on after an
    interruption. A run that fails is reported at the end; the others are still made.
    """
    from edgeyard.simulator.cli.sim_documents import report_json

    if (driver is Driver.DOCKER) != (image is not None):
        raise InvalidInput.at("--image", "belongs to --driver docker, which needs it")
    docker = driver is Driver.DOCKER
    options = NomadOptions(
        driver=driver.value,
        image=image or "",
        python=python or ("python3" if docker else sys.executable),
        memory_mib=memory,
        cpu_mhz=cpu,
        at_once=jobs or NOMAD_JOBS,
    )
    cells = _cells(scenarios, policy, parse_seeds(seeds), parse_loads(load), db)
    _write_scenarios(cells, out)

    def run(missing: Sequence[Cell], done: Done) -> None:
        if on is Place.NOMAD:
            run_on_nomad(missing, out, config, options, done)
        else:
            run_on_cores(missing, out, jobs, done)

    runs, failures = _runs(cells, out, run)
    if runs and (is_named(db) if store is None else store):
        _store(cells, runs, out, db, f"sim sweep {' '.join(scenarios)}")
    if runs:
        made = _report(cells, runs, baseline)
        written = write(
            made, html=html, csv=csv, rows=Rows.RUNS, title=f"Sweep of {', '.join(scenarios)}"
        )
        if as_json:
            failed = [{"run": each.cell.label, "reason": each.reason} for each in failures]
            emit_json({**report_json(made), "failures": failed})
        else:
            show_summary(made)
            show("", f"Runs: {out}; plots and all comparisons: edgeyard sim report {out} --html")
        for path in written:
            echo(f"written: {path}", err=True)
    if failures:
        raise typer.Exit(1)


def _cells(
    scenarios: Sequence[str],
    policies: Sequence[str],
    seeds: Sequence[int],
    loads: Sequence[float],
    db: str | None,
) -> Sequence[Cell]:
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.simulator.sweep import sweep_cells

    whole = [scenario_named(each, db) for each in scenarios]
    with known_plugins(Settings.load(None)) as known:
        chosen = [swept_policy(each, known) for each in policies]
    cells = sweep_cells(whole, chosen, seeds, loads)
    if len(cells) > MAX_CELLS:
        raise InvalidInput.at("--seeds", f"the sweep has {len(cells):,} runs", f"{MAX_CELLS:,}")
    return cells


def _write_scenarios(cells: Sequence[Cell], out: Path) -> None:
    from edgeyard.simulator.scenario import scenario_to_toml

    make_folder(out, "--out")
    for cell in {cell.digest: cell for cell in cells}.values():
        text = scenario_to_toml(cell.scenario)
        write_output(out / f"{cell.scenario.name}.toml", "--out", text)


def _runs(
    cells: Sequence[Cell], out: Path, run: Callable[[Sequence[Cell], Done], None]
) -> tuple[dict[str, SimulatedRun], list[Failure]]:
    """Return the runs of cells by their keys, and which failed; what the folder has isn't repeated.

    Args:
        run: Makes the runs of cells in the folder.
    """
    runs = {cell.key: found for cell in cells if (found := cell.finished(out)) is not None}
    missing = [cell for cell in cells if cell.key not in runs]
    if runs:
        echo(f"{len(runs)} of {len(cells)} runs are there already", err=True)
    failures: list[Failure] = []
    with _progress(len(cells), len(runs)) as finished:

        def done(cell: Cell, failure: Failure | None, wall_s: float) -> None:
            if failure is not None:
                failures.append(failure)
            finished(cell, failure, wall_s)

        try:
            run(missing, done)
        except KeyboardInterrupt:
            echo("interrupted; the same command goes on with the runs that are missing", err=True)
            raise typer.Exit(130) from None
    for cell in missing:
        if (found := cell.finished(out)) is not None:
            runs[cell.key] = found
        elif all(each.cell is not cell for each in failures):
            failures.append(Failure(cell, "its run is missing or broken"))
    for failure in failures:
        echo(f"edgeyard: {failure.cell.label}: {failure.reason}", err=True)
    return runs, failures


def _report(
    cells: Sequence[Cell], runs: Mapping[str, SimulatedRun], baseline: str | None
) -> Report:
    from edgeyard.simulator.cli.sim_documents import make_report

    made = make_report(
        [runs[cell.key] for cell in cells if cell.key in runs],
        baseline=baseline,
        scenarios={cell.digest: cell.scenario for cell in cells},
    )
    report_missing_baseline(made, baseline)
    return made


def _store(
    cells: Sequence[Cell], runs: Mapping[str, SimulatedRun], out: Path, db: str | None, source: str
) -> None:
    from edgeyard.simulator.cli.sim_stored import store_runs

    stored: list[tuple[str, Scenario, SimulatedRun, Path | None]] = [
        (cell.key, cell.scenario, runs[cell.key], out / cell.file_name)
        for cell in cells
        if cell.key in runs
    ]
    store_runs(db, stored, source[:200])


def parse_seeds(text: str) -> list[int]:
    """Return the numbers of ``1-20`` or ``1,5,7-9``, each once.

    Raises:
        InvalidInput: It has another form, or means too many.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isdecimal() and (high.isdecimal() or not dash)):
            raise InvalidInput.at(
                "--seeds", f"{part!r} is not a seed", "numbers and ranges, such as 1-20,30"
            )
        first, last = int(low), int(high or low)
        if first > last or last > MAX_SEED:
            raise InvalidInput.at(
                "--seeds",
                f"{part!r} is not a range",
                f"from the lower to the higher, up to {MAX_SEED}",
            )
        if last - first >= MAX_CELLS:
            raise InvalidInput.at("--seeds", f"{part!r} means too many", f"{MAX_CELLS:,} at most")
        found.update(dict.fromkeys(range(first, last + 1)))
    return list(found)


def parse_loads(text: str) -> list[float]:
    """Return the factors of ``0.5,1,1.5``, each once.

    Raises:
        InvalidInput: One is no number above 0.
    """
    found: dict[float, None] = {}
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not 0 < value <= 1000:
            raise InvalidInput.at(
                "--load", f"{part.strip()!r} is not a load", "numbers above 0, up to 1000"
            )
        found[value] = None
    return list(found)


@contextlib.contextmanager
def _progress(total: int, there: int) -> Iterator[Done]:
    """Yield a function that shows that a cell is done: a bar, or a line where stderr is a file."""
    count = there

    def line(cell: Cell, failure: Failure | None, wall_s: float) -> None:
        nonlocal count
        count += 1
        became = "failed" if failure is not None else f"{wall_s:.1f} s"
        echo(f"{count}/{total} {printable(cell.label)}: {became}", err=True)

    if not sys.stderr.isatty():
        yield line
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bars:
        task = bars.add_task("simulating", total=total, completed=there)
        yield lambda cell, failure, wall_s: bars.advance(task)


def run_cell(
    source: Annotated[Path, typer.Argument(metavar="INPUT")],
    target: Annotated[Path, typer.Argument(metavar="RUN.npz")],
) -> None:
    """Run one cell of a sweep on another machine."""
    from edgeyard.simulator.runs import save_run
    from edgeyard.simulator.sweep import as_of_policy, cell_from_text

    cell = cell_from_text(source.read_text(encoding="ascii"), source=str(source))
    save_run(as_of_policy(simulate(cell), cell), target)


def add_to(group: typer.Typer) -> None:
    """Add the command to the group ``sim``."""
    group.command("sweep")(sweep)
    group.command("cell", hidden=True)(run_cell)
