"""The local ScenarioDB, which needs no server: where it is, and the scenarios that names mean.

This module imports neither the server nor its engine, so that short commands start quickly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.errors import ConfigError, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from edgeyard.scheduler.ports import Store
    from edgeyard.simulator.scenario import Scenario

VARIABLE = "EDGEYARD_SCENARIO_DB"
"""Environment variable that names the local ScenarioDB."""

_MAX_NAMES = 1000
_FILE_SUFFIXES = (".toml", ".json")


def is_named(db: str | None) -> bool:
    """Return whether a user named a ScenarioDB: by a flag or by the environment."""
    return db is not None or bool(os.environ.get(VARIABLE))


def place_of(db: str | None) -> str:
    """Return the URL or the absolute path of the local ScenarioDB.

    Args:
        db: A file, or a URL; None: EDGEYARD_SCENARIO_DB, or a file in the user's data folder.
    """
    import platformdirs

    named = db or os.environ.get(VARIABLE) or ""
    if "://" in named:
        return named
    path = Path(named) if named else platformdirs.user_data_path("edgeyard") / "scenarios.db"
    return str(path.absolute())


def runs_folder(db: str | None) -> Path:
    """Return the folder for the columns of stored runs that were written to no other file."""
    import platformdirs

    place = place_of(db)
    if "://" in place:
        return platformdirs.user_data_path("edgeyard") / "simulations"
    path = Path(place)
    return path.with_name(f"{path.stem}.simulations")


@contextmanager
def opened_db(db: str | None = None) -> Iterator[Store]:
    """Open the local ScenarioDB, which is made on first use, at this version's schema.

    Args:
        db: See `place_of`.

    Raises:
        InvalidInput: It can't be opened.
    """
    from edgeyard.scheduler.store import SqlStore

    place = place_of(db)
    try:
        if "://" not in place:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
        store = SqlStore(place if "://" in place else f"sqlite:///{place}")
    except ConfigError as error:
        raise InvalidInput.at("--db", "; ".join(error.problems)) from error
    except (OSError, Unavailable) as error:
        reason = f"can't be opened: {error}"
        raise InvalidInput.at("--db", reason, "a file in a folder that you may write") from error
    try:
        yield store
    finally:
        store.close()


def scenario_named(reference: str | Path, db: str | None = None) -> Scenario:
    """Return a scenario of Edgeyard, of a file, or of the local ScenarioDB.

    Args:
        reference: A name of Edgeyard's own, a path, or a name, hash or beginning of a hash there.
        db: See `place_of`; a database that does not exist is not made.

    Raises:
        InvalidInput: There is none, or it is wrong.
        Conflict: Several scenarios begin with these digits.
    """
    from edgeyard.simulator.scenario import built_in_scenarios, load_scenario
    from edgeyard.simulator.stored import scenario_of

    name, own = str(reference), built_in_scenarios()
    path = Path(reference)
    if name in own or path.exists() or path.suffix in _FILE_SUFFIXES:
        return load_scenario(reference)
    place = place_of(db)
    stored_names: list[str] = []
    if "://" in place or Path(place).exists():
        with opened_db(db) as store, store.read() as uow:
            try:
                stored = uow.scenarios.get(name)
                return scenario_of(uow.scenarios.body(stored.sha256), tags=stored.tags)
            except NotFound:
                stored_names = [each.name for each in uow.scenarios.page(limit=_MAX_NAMES)[0]]
    near = get_close_matches(name, [*own, *stored_names], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidInput.at(
        name,
        f"there is no such file, and no such scenario in the ScenarioDB{hint}",
        f"a TOML or JSON file, one of {', '.join(own)}, or what edgeyard scenarios list shows",
    )


def run_file(run_id: str, db: str | None = None) -> Path | None:
    """Return the file with the columns of a stored simulation; None: there is no such simulation.

    Args:
        db: See `place_of`.

    Raises:
        InvalidInput: Its columns were not kept, or are not on this machine.
    """
    place = place_of(db)
    if "://" not in place and not Path(place).exists():
        return None
    with opened_db(db) as store, store.read() as uow:
        try:
            file = uow.simulations.run(run_id).columns_file
        except NotFound:
            return None
    if file is None:
        raise InvalidInput.at(run_id, "only the metrics of this simulation are stored")
    if not Path(file).exists():
        reason = f"its file {file} was removed, or is on another machine"
        raise InvalidInput.at(run_id, reason, "the file itself, where it is now")
    return Path(file)
