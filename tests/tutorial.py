"""Runs a tutorial as a reader would: its files written, its commands typed, in order.

A fenced block of ``sh`` is typed as it stands. In one of ``console`` what follows ``$ `` is typed;
other lines are what it prints, and one that ends with ``…`` is how a line of that begins. A block
whose first line is the comment ``# FILE`` is a file, and with ``# at the end of FILE`` goes there.
Others are for reading only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (at the end of )?([\w.-]+\.[a-z]+)\n")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MARK = "\x1e"


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is typed, and the lines that the tutorial shows for it."""

    typed: str
    shown: tuple[str, ...] = ()


def steps(page: str) -> Iterator[Step]:
    """Of a page in Markdown."""
    for language, body in _FENCE.findall(page):
        file = _FILE.match(body)
        if language == "sh":
            yield Step(typed=body)
        elif language == "console":
            yield from _console(body)
        elif file is not None:
            sign, text = (">>", body[file.end() :]) if file[1] else (">", body)
            yield Step(typed=f"cat {sign} {file[2]} <<'END-OF-FILE'\n{text}END-OF-FILE\n")


def _console(body: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(at for at, line in enumerate(lines) if not line.endswith("\\")) + 1
        yield Step(typed="\n".join(lines[:end]) + "\n", shown=tuple(filter(None, lines[end:])))


def follow(
    found: Sequence[Step], folder: Path, environment: Mapping[str, str], timeout_s: float
) -> list[str]:
    """Type it all into one shell; what each step printed.

    Raises:
        AssertionError: A command failed, or printed none of a line that the tutorial shows;
            numbers may be others.
    """
    script = "set -e\n" + "".join(
        f"{each.typed}printf '{_MARK}'; printf '{_MARK}' >&2\n" for each in found
    )
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = shell.communicate(timeout=timeout_s)
    finally:
        # What it left in the background must not outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    printed, reported = out.split(_MARK), errors.split(_MARK)
    if shell.returncode:
        failed = found[len(printed) - 1].typed
        raise AssertionError(f"{failed}exited with {shell.returncode}\n{printed[-1]}{reported[-1]}")
    for each, first, second in zip(found, printed, reported, strict=False):
        lines = [_masked(line) for line in f"{first}\n{second}".splitlines()]
        for line in each.shown:
            begin = _masked(line.removesuffix("…"))
            cut = line.endswith("…")
            assert any(text.startswith(begin) if cut else text == begin for text in lines), (
                f"{each.typed}shows {line!r}, but printed:\n{first}"
            )
    return printed[: len(found)]  # after the last mark comes nothing


def _masked(line: str) -> str:
    return " ".join(_NUMBER.sub("0", line).split())
