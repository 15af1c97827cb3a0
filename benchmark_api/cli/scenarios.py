"""``scenarios``: ScenarioDB, the database of scenarios."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit,
    emit_one,
    field,
    local_time,
    size,
    table,
)
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.benchmark_api.cli.scenario_db import Db, scenario_db
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.schemas import answers as shapes
    from edgeyard.scheduler.sim.scenario import Scenario

Reference = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="Its name (the newest of that name), its hash, or the first 6 digits or more of it.",
    ),
]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="May be repeated.")]

_COLUMNS = (
    Column(title="SCENARIO", of=lambda row: str(row["sha256"])[:12], whole=True),
    Column(title="NAME", of=field("name"), whole=True),
    Column(title="WORLD", of=field("world"), whole=True),
    Column(title="JOBS", of=lambda row: _count(row.get("jobs")), right=True, whole=True),
    Column(title="DURATION", of=lambda row: _duration(row["duration_s"]), right=True, whole=True),
    Column(title="SEED", of=field("seed"), right=True, whole=True, from_width=100),
    Column(title="STORED", of=lambda row: local_time(row["created_at"]), from_width=100),
    Column(title="TAGS", of=field("tags")),
    Column(title="FROM", of=field("source"), shorten=True),
)


class World(StrEnum):
    """Values of ``--world``."""

    BOARDS = "boards"
    NODES = "nodes"


class Form(StrEnum):
    """Values of ``--form`` of ``export``."""

    TOML = "toml"
    JSON = "json"


def _count(jobs: object) -> str:
    return "drawn" if jobs is None else f"{jobs:,}"


def _duration(seconds: object) -> str:
    assert isinstance(seconds, int | float)
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def scenarios_list(
    session: Session,
    db: Db = None,
    name: Annotated[str | None, typer.Option(help="Only those with this name.")] = None,
    world: Annotated[World | None, typer.Option(help="Only those of this world.")] = None,
    tag: Tags = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 50,
) -> None:
    """List stored scenarios, newest first. With several --tag: those that have all of them."""
    with scenario_db(session, db) as scenarios:
        found, more = scenarios.page(name, None if world is None else world.value, tag or (), limit)
    emit(session.output, [_row(each) for each in found], _COLUMNS, "no scenarios")
    if more:
        session.report(f"there are more: --limit {limit} showed the newest")


def scenarios_show(session: Session, scenario: Reference, db: Db = None) -> None:
    """Show what is known of a scenario; `export` prints its content."""
    with scenario_db(session, db) as scenarios:
        row = _row(scenarios.get(scenario))
    rows = [{"field": key.replace("_", " "), "value": value} for key, value in row.items()]
    columns = (Column(title="FIELD", of=field("field")), Column(title="VALUE", of=_value))
    emit_one(session.output, row, table(rows, columns, console().width))


def _value(row: Row) -> str:
    if row["field"] == "size bytes":
        return size(row["value"])
    return field("value")(row)


def scenarios_import(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario as TOML or .json.")],
    db: Db = None,
    tag: Tags = None,
) -> None:
    """Store a scenario."""
    from edgeyard.scheduler.sim.scenario import load_scenario

    store(session, db, load_scenario(file), tag or (), f"import {file.name}")


def store(
    session: Session, db: str | None, scenario: Scenario, tags: list[str] | tuple[()], source: str
) -> None:
    """Store a scenario and report it."""
    with scenario_db(session, db) as scenarios:
        stored = scenarios.add(scenario, tags, source)
    if stored.name != scenario.name:
        session.report(f"the same scenario is stored already, as {stored.name}")
    emit(session.output, [_row(stored)], _COLUMNS, "")


def scenarios_export(
    session: Session,
    scenario: Reference,
    db: Db = None,
    form: Annotated[
        Form | None, typer.Option(help="Default: by the end of the file's name; TOML on stdout.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
) -> None:
    """Write the content of a scenario, as it is simulated and imported."""
    if out is not None:
        check_folder(out)
    with scenario_db(session, db) as scenarios:
        content = scenarios.content(scenario)
    as_json = session.output is Output.JSON if form is None else form is Form.JSON
    if form is None and out is not None:
        as_json = as_json or out.suffix == ".json"
    text = text_of(content, as_json=as_json)
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)
        session.report(f"{content.name} is in {out}")


def text_of(scenario: Scenario, *, as_json: bool) -> str:
    """Return a scenario as text."""
    from edgeyard.benchmark_api.cli.output import json_text
    from edgeyard.scheduler.sim.scenario import scenario_to_json, scenario_to_toml

    if as_json:
        return json_text(scenario_to_json(scenario), indent=1) + "\n"
    return scenario_to_toml(scenario)


def check_folder(out: Path) -> None:
    """Check that the folder of ``--out`` is there, before work is done for it.

    Raises:
        InvalidInput: It is missing.
    """
    if not out.absolute().parent.is_dir():
        raise InvalidInput.at("--out", f"there is no folder {out.absolute().parent}")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial, 0o666 & ~umask)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def scenarios_tag(
    session: Session,
    scenario: Reference,
    add: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TAG", help="May be repeated.")
    ] = None,
    db: Db = None,
) -> None:
    """Add tags to a scenario, and remove others."""
    if not add and not remove:
        raise InvalidInput.at("TAG", "is missing", "tags to add, or --remove TAG")
    with scenario_db(session, db) as scenarios:
        stored = scenarios.tag(scenario, add or (), remove or ())
    emit(session.output, [_row(stored)], _COLUMNS, "")


def scenarios_remove(session: Session, scenario: Reference, db: Db = None) -> None:
    """Remove a scenario of which no simulation is stored."""
    with scenario_db(session, db) as scenarios:
        stored = scenarios.remove(scenario)
    session.report(f"{stored.name} ({stored.sha256[:12]}) is removed")


def _row(stored: shapes.Scenario) -> Row:
    from edgeyard.benchmark_api.schemas.answers import as_json

    return as_json(stored)


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    group = typer.Typer(
        help="ScenarioDB: generate, import, store and export scenarios of simulations. "
        "Without --url or --profile in a local database.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    verb(group, "list")(scenarios_list)
    verb(group, "show")(scenarios_show)
    verb(group, "import")(scenarios_import)
    verb(group, "export")(scenarios_export)
    verb(group, "tag")(scenarios_tag)
    verb(group, "remove")(scenarios_remove)
    app.add_typer(group, name="scenarios")
