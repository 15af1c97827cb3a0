"""What an operator has done around a run: set a governor, let the board cool down, switch power.

Hooks come from the boards file, never from a user. Each is a program with its arguments, without a
shell, run on the host, or on the board where that is reached by ssh.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import subprocess
from typing import Iterator, List, Optional, Sequence

from edgeyard.devices.model import Hook, SshAddress
from edgeyard.devices.ssh import ssh_command
from edgeyard.errors import RunFailed

logger = logging.getLogger("edgeyard.runner")

_SAID_CHARACTERS = 300


@contextlib.contextmanager
def hooks_around(hooks: Sequence[Hook], address: Optional[SshAddress]) -> Iterator[None]:
    """Run the hooks of before, the block, and, whatever became of it, the hooks of after.

    Raises:
        RunFailed: ``board_fault``: a hook of before failed, and the block was not run. What goes
            wrong with a hook of after is only logged: the measurement is done.
    """
    try:
        for hook in hooks:
            if hook.when == "before":
                failure = run_hook(hook, address)
                if failure is not None:
                    raise RunFailed("board_fault", failure)
        yield
    finally:
        for hook in hooks:
            if hook.when == "after":
                failure = run_hook(hook, address)
                if failure is not None:
                    logger.warning("%s", failure, extra={"event": "hook_failed"})


def run_hook(hook: Hook, address: Optional[SshAddress]) -> Optional[str]:
    """Run one; why it failed, in words, or None."""
    words: List[str] = list(hook.run)
    if hook.on == "board" and address is not None:
        words = ssh_command(address, " ".join(shlex.quote(word) for word in hook.run))
    named = f"the board's hook {hook.run[0]!r} ({hook.when} the run, on the {hook.on})"
    logger.info("Running %s.", named, extra={"event": "hook"})
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=hook.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{named} took longer than {hook.timeout_s:g} s"
    except OSError as error:
        return f"{named} can't be started: {error}"
    if done.returncode == 0:
        return None
    said = " ".join(done.stdout.decode("utf-8", "replace").split())[-_SAID_CHARACTERS:]
    return f"{named} ended with status {done.returncode}" + (f": {said}" if said else "")
