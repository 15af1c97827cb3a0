"""Commands that get Ctrl-C while they wait."""

import os
import signal
import subprocess
import sys


def interrupted(*words: str) -> str:
    """Standard error of a command that was interrupted once it had shown a running benchmark."""
    waiting = subprocess.Popen(
        [sys.executable, "-m", "edgeyard", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore it, and tests may run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert waiting.stderr is not None
    assert "RUNNING" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    _, talk = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    return talk
