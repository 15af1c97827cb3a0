"""The process that reads what strangers wrote: it confines itself, then it does the run."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Dict, Mapping

from edgeyard.devices.runner.engine import BoardFacts
from edgeyard.devices.runner.sandbox.inside import EXIT_NOT_CONFINED, confine
from edgeyard.devices.runner.spec import FileRef, LoadRules, RunSpec
from edgeyard.devices.runner.task import run_task
from edgeyard.devices.runner.transports.local import Channel

_EXIT_UNHANDLED = 70


def main(order: Mapping[str, Any]) -> None:
    """Confine this process as ordered, and do the run; never returns."""
    status = EXIT_NOT_CONFINED
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        confine(order)
        board = BoardFacts(**{**order["board"], "cpus": tuple(order["board"]["cpus"])})
        status = _EXIT_UNHANDLED
        channel = Channel(order["channel"])
        status = run_task(_spec(order["spec"]), board, channel, confined=order["filtered"])
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        # no interpreter exit: an engine's destructors may hang
        os._exit(status)


def _spec(document: Dict[str, Any]) -> RunSpec:
    return RunSpec(
        **{
            **document,
            "task_dir": Path(document["task_dir"]),
            "out_dir": Path(document["out_dir"]),
            "model": FileRef(**document["model"]),
            "datasets": tuple(FileRef(**each) for each in document["datasets"]),
            "load": None if document["load"] is None else LoadRules(**document["load"]),
        }
    )
