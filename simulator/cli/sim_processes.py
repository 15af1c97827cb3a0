"""Runs of simulations in processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeyard.errors import ConfigError, EdgeyardError

if TYPE_CHECKING:
    from edgeyard.simulator.runs import SimulatedRun
    from edgeyard.simulator.sweep import Cell

_PARENT_CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A cell that could not be run, and why.

    Attributes:
        error: What was raised in a process of this machine.
    """

    cell: Cell
    reason: str
    error: Exception | None = None


Done = Callable[["Cell", "Failure | None", float], None]


def run_on_cores(cells: Sequence[Cell], folder: Path, jobs: int | None, done: Done) -> None:
    """Run cells in processes of this machine; the last one returns after all are done."""
    if not cells:
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    from edgeyard.simulator.sweep import cell_to_text

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = min(jobs or cores or 1, len(cells))
    pool = ProcessPoolExecutor(
        max_workers=workers,
        mp_context=get_context("spawn"),
        initializer=begin_worker,
        initargs=(os.getpid(),),
    )
    waiting = list(reversed(cells))
    running: dict[Future[float], Cell] = {}
    try:
        while waiting or running:
            while waiting and len(running) < 2 * workers:
                cell = waiting.pop()
                task = (cell_to_text(cell), str(folder))
                running[pool.submit(_run_cell, task)] = cell
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                try:
                    done(cell, None, future.result())
                except BrokenProcessPool:
                    raise
                except EdgeyardError as error:
                    done(cell, Failure(cell, str(error), error), 0.0)
                except Exception as error:  # of a policy or a plugin: named, and the others go on
                    done(cell, Failure(cell, f"{type(error).__name__}: {error}", error), 0.0)
    except BrokenProcessPool as error:
        raise ConfigError(
            [
                "a process of the sweep was killed, maybe for lack of memory; run the same command "
                "again, with fewer --jobs: it goes on with the runs that are missing"
            ]
        ) from error
    finally:
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            if running:
                process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it does, however that happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def _run_cell(task: tuple[str, str]) -> float:
    """Run one cell in a worker and write its file; return its wall time in seconds."""
    from edgeyard.simulator.runs import save_run
    from edgeyard.simulator.sweep import as_of_policy, cell_from_text

    text, folder = task
    cell = cell_from_text(text)
    began = time.monotonic()
    save_run(as_of_policy(simulate(cell), cell), Path(folder) / cell.file_name)
    return time.monotonic() - began


def simulate(cell: Cell) -> SimulatedRun:
    """Simulate a cell in this process."""
    from edgeyard.benchmark_api.bootstrap import known_plugins
    from edgeyard.benchmark_api.settings import Settings
    from edgeyard.scheduler.framework.named import policy_named
    from edgeyard.scheduler.framework.policy import parse_policy
    from edgeyard.simulator.worlds import simulator_of

    simulated = simulator_of(cell.scenario)
    with known_plugins(Settings.load(None)) as known:
        policy = (
            parse_policy(cell.policy.text, source=cell.policy.name)
            if cell.policy.text
            else policy_named(cell.policy.name, known)
        )
        return simulated(cell.scenario, policy, known.resolve(policy), seed=cell.seed)
