"""``up``: a whole Edgeyard in one process."""

from __future__ import annotations

import ctypes
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_PR_SET_DUMPABLE = 4


class Role(StrEnum):
    """As the setting ``role``."""

    ALL = "all"
    API = "api"
    ENGINE = "engine"


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Database, files and the admin's token."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default 42777; 0: any free one.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")
    ] = None,
    role: Annotated[
        Role | None,
        typer.Option(help="What this server does: the API, the scheduler, or (default) both."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in TOML; see also EDGEYARD_*.")
    ] = None,
) -> None:
    """Run the server.

    API, scheduler and, by default, an embedded cluster of this machine in one process. Prints one
    line with the URL when it is ready, writes an admin's token to DIR/admin.token, and stops
    cleanly on SIGTERM or Ctrl-C. Of several servers on one PostgreSQL one leads and schedules; the
    others serve the API and replace it when it is gone.
    """
    from edgeyard.benchmark_api.main import serve

    _keep_private()
    if serve(data_dir, port, host, config, None if role is None else role.value):
        raise typer.Exit(1)


def _keep_private() -> None:
    """Keep what this process holds and writes from other users of the machine.

    Files are its user's alone, in a data folder that is open to others too. Neither its memory and
    its environment, where secrets are, can be read by other processes of the same user, as
    embedded tasks are, nor is there a core file of them. Root can read all of it.
    """
    os.umask(0o077)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("up")(up)
