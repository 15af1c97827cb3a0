"""``python -m benchmarks.completion``: makes the committed records again, or shows them.

``record SCENARIO`` runs on a real Nomad and goes on after a stop, ``show SCENARIO`` compares what
is recorded, and ``simulate`` compares the same policies in the simulator, on more boards.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from benchmarks.completion import simulated
from benchmarks.completion.recorder import record
from benchmarks.completion.records import path_of, read_record
from benchmarks.completion.rows import rows_of
from benchmarks.completion.scenario import SCENARIOS
from benchmarks.tables import publish
from edgeyard.errors import EdgeyardError


def main() -> int:
    """Do what the command line says; 1 where it can't be done."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # cluster and server end, too
    options = _parser().parse_args()
    try:
        if options.command == "simulate":
            publish("completion-simulated", simulated.rows())
            return 0
        scenario = SCENARIOS[options.scenario]
        path = options.file or path_of(scenario)
        if options.command == "record":
            folder = options.folder or Path("build/completion") / scenario.name
            record(scenario, options.blocks or scenario.blocks, path, folder.resolve())
        publish("completion", rows_of(scenario, read_record(path)))
    except (EdgeyardError, OSError, ValueError) as error:
        print(f"completion: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.completion")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("record", "run on a real Nomad"), ("show", "compare what is recorded")):
        command = commands.add_parser(name, help=what)
        command.add_argument("scenario", choices=SCENARIOS)
        command.add_argument("--file", type=Path, help="of the records; default: the committed one")
        if name == "record":
            command.add_argument("--blocks", type=int, help="of runs; default: the scenario's")
            command.add_argument("--folder", type=Path, help="of test bed and server; it is kept")
    commands.add_parser("simulate", help="compare on 10, 100 and 1,000 simulated boards")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
