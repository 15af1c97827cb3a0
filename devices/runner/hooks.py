"""What an operator has done around a run: set a governor, let the board cool down, switch power.

Hooks come from the boards file, never from a user. Each is a program with its arguments, without a
shell, run on the host, or on the board where that is reached by ssh.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import tempfile
from typing import Iterator, List, Optional, Sequence

from edgeyard.devices.model import Hook, SshAddress
from edgeyard.devices.runner.transports.local import die_with_parent
from edgeyard.devices.ssh import ssh_command
from edgeyard.errors import RunFailed

logger = logging.getLogger("edgeyard.runner")

_OUTPUT_TAIL_BYTES = 300

_ON_BOARD = """
import os, select, signal, subprocess, sys
hook = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
while hook.poll() is None:
    if select.select([0], [], [], 0.05)[0] and not os.read(0, 64):
        os.killpg(hook.pid, signal.SIGKILL)
status = hook.wait()
sys.exit(status if status >= 0 else 128 - status)
"""
"""On the board a hook ends when its session does: sshd itself would let it go on."""


@contextlib.contextmanager
def hooks_around(hooks: Sequence[Hook], address: Optional[SshAddress]) -> Iterator[None]:
    """Run the hooks before the block, the block, and in any case the hooks after it.

    Raises:
        RunFailed: ``board_fault``: a hook before the block failed, and the block was not run.
            Failures of hooks after the block are only logged, because the measurement is done.
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
    """Run one; why it failed, in words, or None.

    Where it takes too long, or we are stopped, all that it started ends with it; what it leaves
    running when it ends by itself (a power meter, say) is its own matter.
    """
    words: List[str] = list(hook.run)
    stdin = subprocess.DEVNULL
    if hook.on == "board" and address is not None:
        there = [address.python, "-c", _ON_BOARD, *hook.run]
        words = ssh_command(address, "exec " + " ".join(shlex.quote(word) for word in there))
        stdin = subprocess.PIPE
    named = f"the board's hook {hook.run[0]!r} ({hook.when} the run, on the {hook.on})"
    logger.info("Running %s.", named, extra={"event": "hook"})
    me = os.getpid()
    # a file: a pipe would have to be read till the last of its holders is gone
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(me),
            )
        except (OSError, ValueError) as error:
            return f"{named} can't be started: {error}"
        try:
            status = process.wait(hook.timeout_s)
        except subprocess.TimeoutExpired:
            return f"{named} took longer than {hook.timeout_s:g} s"
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if status == 0:
            return None
        output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT_TAIL_BYTES))
        said = " ".join(output.read().decode("utf-8", "replace").split())
    return f"{named} ended with status {status}" + (f": {said}" if said else "")
