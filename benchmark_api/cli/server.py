"""``up``: API and scheduler in one process."""

from __future__ import annotations

import ctypes
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_PR_SET_DUMPABLE = 4


class Role(StrEnum):
    """Values of ``--role`` (see the setting ``role``)."""

    ALL = "all"
    API = "api"
    ENGINE = "engine"


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", metavar="DIR", help="Folder for the database, files and the admin token."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default 42777; 0: any free one.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")
    ] = None,
    role: Annotated[
        Role | None,
        typer.Option(
            help="Parts that this server runs: api, engine (the scheduler) or all; default all."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in TOML; see also EDGEYARD_*.")
    ] = None,
) -> None:
    """Run the server.

    One process runs the API, the scheduler and, by default, an embedded cluster on this machine. It
    prints one line with its URL when it is ready, writes an admin token to DIR/admin.token and
    stops cleanly on SIGTERM or Ctrl-C. If several servers share a PostgreSQL database, one of them
    leads and schedules; the others serve the API and take over if it fails.
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
    """Register the command."""
    app.command("up")(up)
