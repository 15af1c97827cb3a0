"""Runs of a sweep as batch jobs of a Nomad cluster.

A job's id is a function of its work, so that a sweep that was killed finds its jobs again: those
that run are waited for, and of those that ran the result is read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.benchmark_api.cli.output_files import write_output
from edgeyard.benchmark_api.cli.program import echo
from edgeyard.errors import ClusterUnreachable, InvalidInput, JobRefused, NotFound, Unavailable
from edgeyard.simulator.cli.sim_processes import Done, Failure

if TYPE_CHECKING:
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.simulator.sweep import Cell
    from edgeyard.training.batches import BatchCluster, BatchStatus, BatchTask

MAX_SUBMISSIONS = 3
"""Maximum number of submissions of a cell whose jobs are lost with their agent or node."""
MAX_OUTAGE_S = 600.0
"""A sweep waits so long for a Nomad that does not answer any more: time to restart it."""
CHECK_S = 1.0
"""Interval between checks of the jobs."""
_RESULT = "run.npz"
_OUTAGE = "outage"


@dataclass(frozen=True, slots=True, kw_only=True)
class NomadOptions:
    """How cells run on a cluster.

    Attributes:
        at_once: Jobs at a time.
        python: Interpreter with Edgeyard on the nodes.
    """

    driver: str
    image: str
    python: str
    memory_mib: int
    cpu_mhz: int
    at_once: int


def run_on_nomad(
    cells: Sequence[Cell], folder: Path, config: Path | None, options: NomadOptions, done: Done
) -> None:
    """Run cells as batch jobs; a job that an earlier call has created is waited for.

    Args:
        cells: The runs that are missing.
        folder: Gets the file of each run.
        config: Settings file; None: the usual places.
        options: Of the jobs.
        done: Called at the end of each cell.

    Raises:
        InvalidInput: Nomad does not answer at the beginning, or the folder can't be written.
        Unavailable: Nomad has not answered for `MAX_OUTAGE_S`.
    """
    if not cells:
        return
    from edgeyard.benchmark_api.settings import Settings

    settings = Settings.load(config)
    batches = open_batches(settings)
    try:
        _NomadJobs(batches, str(settings.cluster.address), folder, options, done).run(cells)
    finally:
        batches.close()


def open_batches(settings: Settings) -> BatchCluster:
    """Return the cluster of the settings, which has to be a Nomad."""
    from edgeyard.benchmark_api.bootstrap import nomad_access
    from edgeyard.training.nomad_batches import NomadBatches

    return NomadBatches(nomad_access(settings))


def job_id_of(cell: Cell) -> str:
    """Return the id of a cell's job: equal work has an equal id."""
    return f"edgeyard-sweep-{cell.key}"


class _NomadJobs:
    """The jobs of one sweep."""

    def __init__(
        self,
        batches: BatchCluster,
        address: str,
        folder: Path,
        options: NomadOptions,
        done: Done,
    ) -> None:
        self._batches, self._address, self._folder = batches, address, folder
        self._options, self._done = options, done
        self._waiting: list[Cell] = []
        self._running: dict[str, tuple[Cell, float]] = {}
        self._submissions: Counter[str] = Counter()
        self._shown: set[str] = set()
        self._unread_since: dict[str, float] = {}
        self._answered_s: float | None = None

    def run(self, cells: Sequence[Cell]) -> None:
        """Return when all cells are done."""
        self._waiting = list(reversed(cells))
        while self._waiting or self._running:
            try:
                self._submit()
                self._collect()
            except ClusterUnreachable as error:
                self._check_outage(error)
            else:
                self._answered_s = time.monotonic()
                if _OUTAGE in self._shown:
                    self._shown.remove(_OUTAGE)
                    echo(f"edgeyard: Nomad at {self._address} is available again", err=True)
            if self._waiting or self._running:
                time.sleep(CHECK_S)

    def _submit(self) -> None:
        while self._waiting and len(self._running) < self._options.at_once:
            cell = self._waiting[-1]
            try:
                self._batches.submit(_task_of(cell, self._options))
            except JobRefused as error:
                self._done(self._waiting.pop(), Failure(cell, str(error)), 0.0)
                continue
            self._answered_s = time.monotonic()
            self._running[job_id_of(cell)] = (self._waiting.pop(), time.monotonic())
            self._submissions[job_id_of(cell)] += 1

    def _collect(self) -> None:
        from edgeyard.training.batches import BatchState

        found = self._batches.status(list(self._running))
        for job_id, (cell, _) in list(self._running.items()):
            status = found.get(job_id)
            if status is None:
                self._lose(job_id, cell, f"Nomad has no job {job_id} any more")
            elif status.state is BatchState.LOST:
                self._batches.remove(job_id)
                self._lose(job_id, cell, f"Nomad has given up the node of its job {job_id}")
            elif status.ended:
                try:
                    failure = self._result_of(cell, status)
                except ClusterUnreachable as error:  # its node alone may be down
                    self._read_later(job_id, error)
                    continue
                self._batches.remove(job_id)
                self._end(job_id, failure)
            elif status.reason and status.reason not in self._shown:
                echo(f"edgeyard: {cell.label} waits: {status.reason}", err=True)
                self._shown.add(status.reason)

    def _end(self, job_id: str, failure: Failure | None) -> None:
        cell, began_s = self._running.pop(job_id)
        self._done(cell, failure, time.monotonic() - began_s)

    def _read_later(self, job_id: str, error: ClusterUnreachable) -> None:
        """Leave the result of an ended job for the next look, or for the next sweep."""
        since_s = self._unread_since.setdefault(job_id, time.monotonic())
        if time.monotonic() - since_s >= MAX_OUTAGE_S:
            reason = f"its result can't be read: {error}; the same command reads it again"
            self._end(job_id, Failure(self._running[job_id][0], reason))

    def _lose(self, job_id: str, cell: Cell, why: str) -> None:
        """Submit a cell again whose job Nomad has lost, `MAX_SUBMISSIONS` times in all."""
        if cell.finished(self._folder) is not None:  # the answer to the removal did not arrive
            self._end(job_id, None)
        elif self._submissions[job_id] < MAX_SUBMISSIONS:
            echo(f"edgeyard: {cell.label}: {why}; it is submitted again", err=True)
            del self._running[job_id]
            self._waiting.append(cell)
        else:
            reason = (
                f"Nomad lost its job {job_id} {MAX_SUBMISSIONS} times; see whether nodes fail, "
                "Nomad was restarted without its data, or somebody purges jobs, and run the same "
                "command again"
            )
            self._end(job_id, Failure(cell, reason))

    def _result_of(self, cell: Cell, status: BatchStatus) -> Failure | None:
        """Write the run of a job that has ended; return why there is none."""
        from edgeyard.simulator.runs import load_run
        from edgeyard.training.batches import BatchState

        if status.state is BatchState.FAILED:
            text = self._batches.log_end(status.run_id)
            return Failure(cell, f"{status.reason}: {text}" if text else status.reason)
        path = self._folder / cell.file_name
        try:
            result = self._batches.result(status.run_id, _RESULT)
        except NotFound as error:
            return Failure(cell, f"its result can't be read: {error}")
        write_output(path, "--out", result)  # a full disk ends the sweep, and Nomad keeps the rest
        try:
            load_run(path)
        except InvalidInput as error:
            path.unlink()
            return Failure(cell, f"its result can't be read: {error}")
        return None

    def _check_outage(self, error: ClusterUnreachable) -> None:
        """Show that Nomad is not available, or give up.

        Raises:
            InvalidInput: It has never been.
            Unavailable: It has not been for `MAX_OUTAGE_S`.
        """
        if self._answered_s is None:
            reason = f"Nomad at {self._address} is not available: {error}"
            raise InvalidInput.at("--on", reason, "see clusters.NAME.address") from error
        silent_s = time.monotonic() - self._answered_s
        if silent_s >= MAX_OUTAGE_S:
            raise Unavailable(
                f"Nomad at {self._address} has not been available for {silent_s:.0f} s: {error}; "
                f"its jobs may go on ({len(self._running)} were submitted); the same command takes "
                "them over when Nomad is available again"
            ) from error
        if _OUTAGE not in self._shown:
            what = f"Nomad at {self._address} is not available: {error}"
            echo(f"edgeyard: {what}; the sweep waits for up to {MAX_OUTAGE_S:.0f} s", err=True)
            self._shown.add(_OUTAGE)


def _task_of(cell: Cell, options: NomadOptions) -> BatchTask:
    from edgeyard.simulator.sweep import cell_to_text
    from edgeyard.training.batches import BatchTask

    target = f"${{NOMAD_ALLOC_DIR}}/{_RESULT}"
    command = [options.python, "-m", "edgeyard", "sim", "cell", "${NOMAD_TASK_DIR}/input", target]
    return BatchTask(
        job_id=job_id_of(cell),
        command=command,
        input=cell_to_text(cell),
        driver=options.driver,
        image=options.image,
        cpu_mhz=options.cpu_mhz,
        memory_mib=options.memory_mib,
    )
