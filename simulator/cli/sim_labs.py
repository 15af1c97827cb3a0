"""``sim run`` and ``sim from-history``: a lab under policies, in virtual time."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import emit_json
from edgeyard.benchmark_api.cli.output_files import make_folder
from edgeyard.benchmark_api.cli.program import AsJson, echo
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.benchmark_api.cli.replaying import Config, DataDir, opened
from edgeyard.errors import ConfigError, InvalidInput
from edgeyard.simulator.cli import sim_reports
from edgeyard.simulator.cli.recorded_history import Export, Since, Until, exported_history
from edgeyard.simulator.cli.scenario_db import LocalDb, StoreRuns
from edgeyard.simulator.cli.scenario_files import check_scenario_file, write_scenario
from edgeyard.simulator.scenario_db import is_named, opened_db, scenario_named

if TYPE_CHECKING:
    from edgeyard.scheduler.framework.policy import Policy
    from edgeyard.scheduler.framework.registry import Registry
    from edgeyard.scheduler.model.knowledge import ActiveModel
    from edgeyard.simulator.runs import SimulatedRun
    from edgeyard.simulator.scenario import Scenario
    from edgeyard.simulator.sweep import SweptPolicy

MAX_SEED = 2**32 - 1

Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="P",
        help="Name or TOML file of a policy, or a queue policy; several are compared with the "
        "first. Default: default.",
    ),
]
Seeds = Annotated[
    list[int] | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=MAX_SEED,
        help="Seed of arrivals and faults; may be repeated, for intervals over seeds. Default: "
        "the scenario's.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder to which each run is written, for edgeyard sim report."
    ),
]


Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="M",
        help="Model of the server of --data-dir that predicts as in the live service, such as "
        "run_time/3; active: all active ones. May be repeated. For policies with scorers that use "
        "models, such as learned.",
    ),
]


def run(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A TOML or JSON file, a scenario of the ScenarioDB, or the name of one that "
            "Edgeyard has: board_loss, burst, cheap_hours, diurnal, faster_boards, new_family, "
            "overload, power_modes, quiet_hosts, steady.",
        ),
    ],
    policy: Policies = None,
    seed: Seeds = None,
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=1024, help="Number of runs that are simulated at the same time."
        ),
    ] = 1,
    model: Models = None,
    out: Out = None,
    store: StoreRuns = None,
    db: LocalDb = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a lab (or nodes) under policies and compare them.

    Every decision in a lab is made by the service's own code; nodes use its queue policies. All
    policies meet the same arrivals, run times and faults, so that they are compared pairwise.
    """
    if (data_dir or config) and not model:
        what = "--data-dir" if data_dir else "--config"
        raise InvalidInput.at(what, "names a server without --model", "--model active")
    found = scenario_named(scenario, db)
    models = models_named(model or [], data_dir, config)
    store_options = StoreOptions(db, f"sim run {scenario}"[:200])
    simulate_and_show(
        found,
        policy or ["default"],
        seed or [],
        jobs=jobs,
        models=models,
        out=out,
        store_options=store_options if (is_named(db) if store is None else store) else None,
        as_json=as_json,
    )


def from_history(
    since: Since = None,
    until: Until = None,
    policy: Policies = None,
    export: Export = None,
    model: Models = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml|.json", help="Write the scenario, for edgeyard sim run."),
    ] = None,
    out: Out = None,
    store: StoreRuns = None,
    db: LocalDb = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the recorded days of a lab under another policy.

    Benchmarks arrive when they were submitted, with their deadlines, priorities and budgets, hold a
    board for as long as they did, and fail as they did; when and where they start follows from the
    policy. All boards are there, with the faults and drains that recorded cycles saw, and so is
    what predictions read: earlier runs, sizes of models, cores, and the hosts' loads of then. Reads
    the server's database; the server may keep running.
    """
    from edgeyard.simulator.importers.history import import_history
    from edgeyard.simulator.importers.machines import Selection

    if save is not None:
        check_scenario_file(save, "--save")
    # With a folder of recorded days, the server is that of the models alone.
    history = (None, None) if export is not None and model else (data_dir, config)
    with exported_history(export, since, until, *history) as (folder, source):
        imported = import_history(folder, Selection(name="history"), source=source)
    scenario = imported.scenario
    models = models_named(model or [], data_dir, config)
    for note in imported.notes:
        echo(f"edgeyard: {note}", err=True)
    store_options = (
        StoreOptions(db, "sim from-history") if (is_named(db) if store is None else store) else None
    )
    simulate_and_show(
        scenario,
        policy or ["default"],
        [],
        models=models,
        out=out,
        store_options=store_options,
        as_json=as_json,
    )
    if save is not None:
        write_scenario(save, "--save", scenario)


def models_named(
    names: Sequence[str], data_dir: Path | None, config: Path | None
) -> tuple[ActiveModel, ...]:
    """Return the models of a server's registry; see `named_models` for names and errors."""
    if not names:
        return ()
    from edgeyard.scheduler.engine.active_models import named_models

    with opened(data_dir, config) as (store, _):
        return named_models(store, names)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where runs are stored.

    Attributes:
        db: The ScenarioDB, see `edgeyard.simulator.scenario_db.place_of`.
        source: Where the scenario comes from, in words.
    """

    db: str | None
    source: str


def simulate_and_show(
    scenario: Scenario,
    references: Sequence[str],
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    models: Sequence[ActiveModel] = (),
    out: Path | None,
    store_options: StoreOptions | None = None,
    as_json: bool,
) -> None:
    """Simulate a scenario under each policy with each seed, and show a comparison."""
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.simulator.cli.sim_documents import make_report, report_json

    for what, given in (("--policy", references), ("--seed", seeds)):
        if len(set(given)) < len(given):
            raise InvalidInput.at(what, "the same value is given twice")
    if models and scenario.lab is None:
        raise InvalidInput.at("--model", "predicts for boards, and the scenario has nodes", "none")
    if models and jobs > 1:
        raise InvalidInput.at("--model", "is given for several runs at a time", "--jobs 1")
    if out is not None and out.exists() and not out.is_dir():
        raise InvalidInput.at("--out", f"{out} is not a folder")
    if store_options is not None:
        with opened_db(store_options.db):
            pass  # what is wrong with it is reported before the simulation
    with known_plugins(Settings.load(None)) as known, progress_bar() as advanced:
        policies = [swept_policy(each, known) for each in references]
        if jobs > 1:
            runs = simulate_in_processes(scenario, policies, seeds, jobs, advanced)
        else:
            runs = simulate_all(scenario, references, seeds, known, advanced, models)
        advanced("measuring", 0.0)
        report = make_report(
            runs,
            baseline=runs[0].meta.policy if len(references) > 1 else None,
            advanced=lambda share: advanced("measuring", share),
        )
    written = [] if out is None else _write(runs, out)
    stored: list[str] = []
    if store_options is not None:
        stored = _store(store_options, scenario, policies, runs, written, models)
    if as_json:
        files = [str(path) for path in written]
        emit_json({**report_json(report), "files": files, "stored": stored})
        return
    sim_reports.show_report(report)
    for path in written:
        echo(f"written: {path}", err=True)
    if stored:
        echo(f"stored: {', '.join(stored)}", err=True)


def simulate_all(
    scenario: Scenario,
    references: Sequence[str],
    seeds: Sequence[int],
    known: Registry,
    advanced: Callable[[str, float], None] = lambda stage, share: None,
    models: Sequence[ActiveModel] = (),
) -> list[SimulatedRun]:
    """Return the runs of a scenario: each policy with each seed.

    Raises:
        InvalidInput: A policy is unknown, or a simulation is an error.
    """
    from edgeyard.scheduler.framework.named import policy_named
    from edgeyard.simulator.worlds import simulator_of

    simulate = simulator_of(scenario)
    if models:
        simulate = partial(simulate, models=models)

    chosen: list[Policy] = [policy_named(each, known) for each in references]
    names = [each.name for each in chosen]
    if len(set(names)) < len(names):
        raise InvalidInput.at("--policy", f"two policies have the same name: {', '.join(names)}")
    if models and not any(_uses(policy, models) for policy in chosen):
        what = ", ".join(each.reference for each in models)
        reason = f"has no effect: no scorer of {', '.join(names)} uses {what}"
        accepted = "a policy with run_time_model, failure_model or measurement_model: learned"
        raise InvalidInput.at("--model", reason, accepted)
    runs: list[SimulatedRun] = []
    for policy in chosen:
        try:
            plugins = known.resolve(policy)
        except ConfigError as error:
            raise InvalidInput.at("--policy", "; ".join(error.problems)) from error
        for seed in seeds or [scenario.seed]:
            stage = f"{policy.name}, seed {seed}"
            progress = partial(advanced, stage)
            with _in_scenario(scenario.name):
                run = simulate(scenario, policy, plugins, seed=seed, progress=progress)
            runs.append(run)
    return runs


def _uses(policy: Policy, models: Sequence[ActiveModel]) -> bool:
    """Return whether the policy reads one of the models; what is not built in may do so."""
    from edgeyard.plugins.builtin import registry
    from edgeyard.scheduler.framework.registry import Kind
    from edgeyard.scheduler.model.registered_models import ModelKind

    built_in = registry(entry_points=False)
    kinds = {each.kind for each in models}
    readers = {f"{kind.value}_model" for kind in kinds}
    names = {each.name for each in policy.scorers} | ({policy.fallback} - {None})
    others = names - set(built_in.names(Kind.SCORER))
    rates = policy.evaluator == "regret" and kinds & {ModelKind.RUN_TIME, ModelKind.FAILURE}
    return bool(names & readers or others or rates)


def simulate_in_processes(
    scenario: Scenario,
    policies: Sequence[SweptPolicy],
    seeds: Sequence[int],
    jobs: int,
    advanced: Callable[[str, float], None] = lambda stage, share: None,
) -> list[SimulatedRun]:
    """Return what `simulate_all` does, from several processes; decisions alone.

    Raises:
        EdgeyardError: As there: of the first run that is an error.
    """
    from edgeyard.simulator.cli.sim_processes import Failure, run_on_cores
    from edgeyard.simulator.runs import load_run
    from edgeyard.simulator.sweep import Cell, sweep_cells

    cells = sweep_cells([scenario], policies, list(seeds) or [scenario.seed])
    cells.sort(key=lambda each: [one.name for one in policies].index(each.policy.name))
    failures: dict[str, Failure] = {}
    count = 0

    def done(cell: Cell, failure: Failure | None, _wall_s: float) -> None:
        nonlocal count
        count += 1
        if failure is not None:
            failures[cell.key] = failure
        advanced(f"{count} of {len(cells)} runs", count / len(cells))

    with tempfile.TemporaryDirectory(prefix="edgeyard-runs-") as folder:
        run_on_cores(cells, Path(folder), jobs, done)
        for cell in cells:
            failure = failures.get(cell.key)
            if failure is not None:
                with _in_scenario(scenario.name):
                    raise failure.error or ConfigError([failure.reason])
        return [load_run(Path(folder) / cell.file_name) for cell in cells]


@contextmanager
def _in_scenario(name: str) -> Iterator[None]:
    """Put the scenario before the keys that errors name."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(
            [
                each
                if each.pointer.startswith(("--", name))
                else replace(each, pointer=f"{name}: {each.pointer}")
                for each in error.errors
            ]
        ) from error


def _store(
    store_options: StoreOptions,
    scenario: Scenario,
    policies: Sequence[SweptPolicy],
    runs: Sequence[SimulatedRun],
    written: Sequence[Path],
    models: Sequence[ActiveModel],
) -> list[str]:
    """Store runs with their scenario; return their ids. The same run has the same id again."""
    from edgeyard.simulator.cli.sim_stored import store_runs
    from edgeyard.simulator.sweep import digest_of, run_key

    digest, by_name = digest_of(scenario), {each.name: each for each in policies}
    further = [hashlib.sha256(each.content).hexdigest() for each in models]
    ids = [run_key(digest, by_name[run.meta.policy], run.meta.seed, *further) for run in runs]
    files: Sequence[Path | None] = list(written) or [None] * len(runs)
    found = [
        (run_id, scenario, run, file) for run_id, run, file in zip(ids, runs, files, strict=True)
    ]
    store_runs(store_options.db, found, store_options.source)
    return ids


def swept_policy(reference: str, known: Registry) -> SweptPolicy:
    """Return a policy by its name or file.

    Raises:
        InvalidInput: There is none, or it is wrong.
    """
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.scheduler.framework.named import is_text, policy_named
    from edgeyard.scheduler.framework.policy import read_policy
    from edgeyard.simulator.sweep import SweptPolicy, digest_of_files

    policy = policy_named(reference, known)
    try:
        text = read_policy(reference) if is_text(reference) else ""
        known.resolve(policy)
    except ConfigError as error:
        raise InvalidInput.at("--policy", "; ".join(error.problems)) from error
    files = digest_of_files(policy, Settings.load(None).models_dir)
    return SweptPolicy(name=policy.name, text=text, files=files)


def _write(runs: Sequence[SimulatedRun], folder: Path) -> list[Path]:
    from edgeyard.simulator.cli.sim_plots import file_name
    from edgeyard.simulator.runs import save_run

    make_folder(folder, "--out")
    written = []
    for run in runs:
        meta = run.meta
        names = (meta.scenario, meta.policy, f"seed{meta.seed}")
        path = folder / f"{'-'.join(file_name(name) for name in names)}.npz"
        save_run(run, path)
        written.append(path)
    return written


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``sim``."""
    group.command("run")(run)
    group.command("from-history")(from_history)
