"""What a machine is: processor, cores, operating system and engines, as attributes of its boards.

Imported on hosts too: only the standard library, Python 3.10.
"""

import base64
import inspect
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Dict, Iterable, List, Mapping

from edgeyard.devices import machine_facts
from edgeyard.devices.model import ENGINE_PATTERN, AttributeValue, Board

ENGINE_FACTS_S = 60.0
"""Loading an engine takes seconds on a small host."""

_NAMES = re.compile(
    r"cpu\.(arch|cores|model)|os\.(name|kernel)|accelerators"
    rf"|engine\.{ENGINE_PATTERN.pattern.strip('^$')}\.(version|execution_providers)"
)


def machine_attributes(board: Board, *, root: Path = Path("/")) -> Dict[str, AttributeValue]:
    """Return the attributes of a board that is this machine or a part of it.

    Args:
        board: Has as many cores as its slice of the machine; all of them if it has no slice.
        root: Where ``/proc``, ``/etc`` and ``/dev`` are found.
    """
    found: Dict[str, AttributeValue] = dict(machine_facts.machine_facts(str(root)))
    if board.local is not None:
        found["cpu.cores"] = len(board.local.cpus)
        if board.local.duty_cycle < 1.0:
            found["cpu.duty_cycle"] = board.local.duty_cycle
    return found


@lru_cache(maxsize=1)
def engine_attributes() -> Mapping[str, AttributeValue]:
    """Return versions and execution providers of this machine's engines; takes a while once.

    They are loaded in a process of their own, which gives their memory back.
    """
    try:
        done = subprocess.run(
            facts_command(sys.executable),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ENGINE_FACTS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = read_facts(done.stdout.decode("utf-8", "replace").splitlines())
    return {name: value for name, value in found.items() if name.startswith("engine.")}


def facts_command(python: str) -> List[str]:
    """Return a command that prints what a machine is; without blanks or quotes but these.

    Args:
        python: Of the machine, with its engines.
    """
    text = base64.b64encode(inspect.getsource(machine_facts).encode()).decode()
    return [python, "-c", "import sys,base64;exec(base64.b64decode(sys.argv[1]))", text]


def read_facts(lines: Iterable[str]) -> Dict[str, AttributeValue]:
    """Read what `facts_command` printed; lines of any other form are left out."""
    found: Dict[str, AttributeValue] = {}
    for line in lines:
        prefix, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        text = machine_facts.plain(value).strip()
        if prefix != machine_facts.PREFIX or not text or not _NAMES.fullmatch(name):
            continue
        if name == "cpu.cores":
            if text.isascii() and text.isdigit() and len(text) < 6:
                found[name] = int(text)
        else:
            found[name] = text
    return found


def of_engines(facts: Mapping[str, AttributeValue], board: Board) -> Dict[str, AttributeValue]:
    """Return facts without those of engines that a board does not offer."""
    offered = {engine.name for engine in board.engines}
    return {
        name: value
        for name, value in facts.items()
        if not name.startswith("engine.") or name.split(".")[1] in offered
    }
