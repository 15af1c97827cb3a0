"""Runs of the test environment on disk: one folder a run, so that it can be shown and resumed."""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from edgeyard.atomic_files import open_atomically
from edgeyard.errors import Conflict, InvalidInput, NotFound, reason_of
from edgeyard.training.ste.controller import Episode
from edgeyard.training.ste.lab import EpisodeFigures

RUN_FILE = "run.json"
LOCK_FILE = "lock"
"""Locked while the run is executed."""

CHECKPOINT_FILE = "checkpoint.npz"


class RunFolder:
    """The runs of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, run_id: str) -> Path:
        """Return the folder of a run.

        Raises:
            NotFound: It is no name of a run.
        """
        if not run_id or run_id != Path(run_id).name or run_id.startswith("."):
            raise NotFound("run", run_id)
        return self._folder / run_id

    def save(self, run: Mapping[str, Any]) -> None:
        """Write what is known of a run."""
        folder = self.path(str(run["run_id"]))
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run, indent=2, allow_nan=False)
        with open_atomically(folder / RUN_FILE, sync=True) as file:
            file.write(text.encode())

    @contextmanager
    def executing(self, run_id: str) -> Iterator[None]:
        """Hold a run while its episodes are done; the end of the process lets it go, too.

        Raises:
            Conflict: It is executed already, by this or another process.
        """
        folder = self.path(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK_FILE).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"run {run_id} is being executed: wait, or cancel it") from None
            yield

    def _is_executed(self, run_id: str) -> bool:
        try:
            with (self.path(run_id) / LOCK_FILE).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a run; one whose process ended in the middle of it counts as cancelled.

        Raises:
            NotFound: There is none of this id.
            InvalidInput: Its file can't be read.
        """
        path = self.path(run_id) / RUN_FILE
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise NotFound("run", run_id) from None
        except (OSError, ValueError) as error:
            raise InvalidInput.at(str(path), f"can't be read: {reason_of(error)}") from error
        if found.get("state") == "running" and not self._is_executed(run_id):
            found["state"] = "cancelled"
            found["problem"] = "its process ended before the run did; the run can be resumed"
        return found

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs, newest first."""
        found = [self.run(path.parent.name) for path in self._folder.glob(f"*/{RUN_FILE}")]
        return sorted(found, key=lambda run: (str(run["created_at"]), run["run_id"]), reverse=True)


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """Return an episode as plain JSON, without its columns; null where a figure is not known."""
    found: dict[str, Any] = _plain(
        {
            each.name: getattr(episode, each.name)
            for each in fields(episode)
            if each.name != "simulation"
        }
    )
    return found


def _plain(value: object) -> Any:
    if isinstance(value, EpisodeFigures):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
