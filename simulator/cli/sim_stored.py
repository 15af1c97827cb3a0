"""``sim list`` and ``sim show``: simulations in ScenarioDB; and how runs get there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit_one,
    field,
    local_time,
    plain,
    table,
    three_digits,
)
from edgeyard.benchmark_api.cli.output_files import make_folder
from edgeyard.benchmark_api.cli.program import Session, verb
from edgeyard.simulator.cli.scenario_db import Db, Limit, emit_newest, names_server
from edgeyard.simulator.scenario_db import opened_db, runs_folder

if TYPE_CHECKING:
    from edgeyard.scheduler.model.scenarios import StoredScenario, StoredSimulation
    from edgeyard.scheduler.ports import UnitOfWork
    from edgeyard.simulator.runs import SimulatedRun
    from edgeyard.simulator.scenario import Scenario

_COLUMNS = (
    Column(title="RUN", of=field("run_id"), whole=True),
    Column(title="SCENARIO", of=field("scenario_name"), shorten=True),
    Column(title="POLICY", of=field("policy"), shorten=True),
    Column(title="SEED", of=field("seed"), right=True, whole=True, yields=1),
    Column(title="STATE", of=field("state"), whole=True, from_width=100),
    Column(title="WAIT, s", of=lambda row: _metric(row, "mean_wait_s"), right=True, whole=True),
    Column(
        title="BOUNDED SLOWDOWN",
        of=lambda row: _metric(row, "mean_bounded_slowdown"),
        right=True,
        whole=True,
    ),
    Column(title="STORED", of=lambda row: local_time(row["created_at"]), from_width=110),
    Column(title="KIND", of=field("kind"), whole=True, from_width=120),
)


def _metric(row: Row, name: str) -> str:
    metrics = row.get("metrics")
    return three_digits(metrics.get(name)) if isinstance(metrics, dict) else ""


def simulations_list(
    session: Session,
    db: Db = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="SCENARIO", help="Only simulations of the scenario of this name or hash."
        ),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Only simulations of this policy.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="Only simulations of this kind, e.g. sim or ste.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List stored simulations, newest first."""
    found: Iterable[object]
    if names_server(session, db):
        found = session.client.simulations(
            scenario=scenario, policy=policy, kind=kind, page_size=min(limit + 1, 1000)
        )
    else:
        with opened_db(db) as store, store.read() as uow:
            sha256 = None if scenario is None else uow.scenarios.get(scenario).sha256
            found, _ = uow.simulations.runs(
                scenario=sha256, policy=policy, kind=kind, limit=limit + 1
            )
    rows = [_plain_row(each) for each in islice(found, limit + 1)]
    emit_newest(session, rows, _COLUMNS, limit, "simulations")


def simulations_show(
    session: Session,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of the simulation, from `edgeyard sim list`.")
    ],
    db: Db = None,
) -> None:
    """Show a stored simulation with its metrics."""
    if names_server(session, db):
        row = _plain_row(session.client.simulation(run))
    else:
        with opened_db(db) as store, store.read() as uow:
            row = _plain_row(uow.simulations.run(run))
    metrics = row.get("metrics")
    flat = {
        **{key.replace("_", " "): value for key, value in row.items() if key != "metrics"},
        **(metrics if isinstance(metrics, dict) else {}),
    }
    rows = [{"field": key, "value": value} for key, value in flat.items() if value is not None]
    columns = (
        Column(title="FIELD", of=field("field")),
        Column(title="VALUE", of=lambda row: plain(row["value"])),
    )
    emit_one(session.output, row, table(rows, columns, console().width))


def _plain_row(stored: object) -> dict[str, object]:
    """Return a stored simulation, or the server's answer, as plain values."""
    import msgspec

    plain_values: dict[str, object] = msgspec.to_builtins(stored)
    return plain_values


def store_runs(
    db: str | None,
    runs: Sequence[tuple[str, Scenario, SimulatedRun, Path | None]],
    source: str,
    kind: str = "sim",
) -> None:
    """Store runs with their scenarios and metrics; a run that is stored already is replaced.

    Args:
        db: See `opened_db`.
        runs: Id, scenario, run, and file of the run; None: it is written to a folder next to the
            database.
        source: Where the scenarios come from, in words.
        kind: Which program simulated: ``sim`` or ``ste``.

    Raises:
        InvalidInput: The database can't be opened, or a file can't be written.
    """
    from edgeyard.scheduler.model.scenarios import StoredSimulation
    from edgeyard.simulator.cli.sim_documents import run_row
    from edgeyard.simulator.comparison import measured
    from edgeyard.simulator.runs import save_run
    from edgeyard.simulator.stored import stored_scenario

    now = datetime.now(UTC)
    common = ("scenario", "scenario_hash", "world", "policy", "seed", "version", "wall_s")
    with opened_db(db) as store:
        for run_id, scenario, run, written in runs:
            path = written
            if path is None:
                path = make_folder(runs_folder(db), "--db") / f"{run_id}.npz"
                save_run(run, path)
            described, body = stored_scenario(scenario, created_at=now, source=source)
            row = run_row(scenario.name, run, measured(run))
            simulation = StoredSimulation(
                run_id=run_id,
                scenario=described.sha256,
                scenario_name=scenario.name,
                policy=run.meta.policy,
                seed=run.meta.seed,
                version=run.meta.version,
                metrics={name: value for name, value in row.items() if name not in common},
                columns_file=str(path.absolute()),
                wall_s=run.meta.wall_s,
                created_at=now,
                kind=kind,
            )

            store.transact(partial(_save, described, body, simulation))


def _save(
    scenario: StoredScenario, body: str, simulation: StoredSimulation, uow: UnitOfWork
) -> None:
    uow.scenarios.add(scenario, body)
    uow.simulations.save_run(simulation)


def add_to(group: typer.Typer) -> None:
    """Add the commands to the group ``sim``."""
    verb(group, "list")(simulations_list)
    verb(group, "show")(simulations_show)
