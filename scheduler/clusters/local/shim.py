"""Runs as a script between the server and a process: ties the process's life to the server's.

``python -I -S shim.py PARENT CPUS FILE_BYTES COMMAND [ARG...]``; kept small, since every task
waits for it: only what starts within milliseconds is imported. After ``exec`` nothing of it is
left but the limits.
"""

import _signal  # type: ignore[import-not-found]  # not `signal`: its enums take longer than all else here
import os
import resource
import sys
from ctypes import CDLL

PR_SET_PDEATHSIG = 1
EXIT_ORPHANED = 137
EXIT_NO_COMMAND = 127


def tied(command: list[str], cpus: str = "", file_bytes: int = 0) -> list[str]:
    """Return the command line of a process that is killed when this one dies.

    The kernel counts the death of the *thread* that starts it: one that outlives the process.

    Args:
        command: A program and its arguments.
        cpus: Numbers of those that it may use, comma-separated; "": all.
        file_bytes: The largest file that it may write; 0: of any size.
    """
    script = [sys.executable, "-I", "-S", __file__]
    return [*script, str(os.getpid()), cpus, str(file_bytes), *command]


def main(argv: list[str]) -> None:
    """Take on the limits, then become the command."""
    parent, cpus, file_bytes, command = int(argv[0]), argv[1], int(argv[2]), argv[3]
    CDLL(None).prctl(PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew that we care
        os._exit(EXIT_ORPHANED)
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    # The task starts clean, whatever Python or who started the server (nohup, a shell's &) ignores.
    for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvp(command, argv[3:])
    except OSError as error:
        os.write(2, f"{command}: {error.strerror}\n".encode(errors="replace"))
        os._exit(EXIT_NO_COMMAND)


if __name__ == "__main__":
    main(sys.argv[1:])
