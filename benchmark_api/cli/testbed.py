"""``testbed up|status|down``: a real Nomad on this machine, for development and demos."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, Row, emit, emit_json, field
from edgeyard.benchmark_api.cli.program import Output, Session, add_group
from edgeyard.errors import ConfigError, StartFailed
from edgeyard.home import expanded

if TYPE_CHECKING:
    from edgeyard.testbed import Agent, LoopbackNomad

CLIENTS, BOARDS = 3, 4
MAX_CLIENTS, MAX_BOARDS = 20, 200

Folder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of the test bed; default ~/.local/state/edgeyard/testbed."
    ),
]


def up(
    session: Session,
    clients: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_CLIENTS, help=f"Hosts with boards; default {CLIENTS}."),
    ] = None,
    boards: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_BOARDS, help=f"Boards of each host; default {BOARDS}."),
    ] = None,
    nomad: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Nomad's program; default: from PATH or from `make nomad`."
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use mutual TLS: https with client certificates.")
    ] = False,
    folder: Folder = None,
) -> None:
    """Start a Nomad cluster on this machine.

    Starts one server and several clients on loopback, with ACLs, Edgeyard's device plugin and
    emulated boards. They keep running in the background; agents that have ended are started again.
    """
    from edgeyard.benchmark_api.bootstrap import this_machine
    from edgeyard.testbed import saved, standing
    from edgeyard.testbed.binary import find_nomad

    where = _where(folder)
    began = time.monotonic()

    def report(sentence: str) -> None:
        session.report(f"{time.monotonic() - began:5.1f} s  {sentence}")

    with saved.locked(where):
        testbed = saved.load(where)
        if testbed is None:
            program = find_nomad(nomad)
            report(f"{program}, logs in {where}")
            testbed = standing.new(
                where, program, clients or CLIENTS, boards or BOARDS, this_machine(), tls=tls
            )
        else:
            _same(testbed, clients, boards, tls)
        if all(agent.pid for agent in testbed.agents):
            session.report("The test bed is running already.")
        try:
            standing.start(testbed, report)
        except StartFailed:
            session.report("The logs are kept; `edgeyard testbed down` removes everything.")
            raise
    _show(session, testbed)
    if session.output is Output.TABLE:
        session.report(_what_now(testbed))


def status(session: Session, folder: Folder = None) -> None:
    """Show the state of the test bed.

    The exit status is 1 if there is no test bed or if an agent has ended.
    """
    testbed = _found(folder)
    _show(session, testbed)
    stopped = [agent.name for agent in testbed.agents if agent.pid is None]
    if stopped:
        session.report(
            f"{', '.join(stopped)} ended without `down`: `edgeyard testbed up` starts the missing "
            "agents with their data; `edgeyard testbed down` removes everything."
        )
        raise typer.Exit(1)


def down(session: Session, folder: Folder = None) -> None:
    """Stop the test bed and remove its data.

    This also works if a crash or a reboot left only parts of it.
    """
    from edgeyard.testbed import saved, standing

    where = _where(folder)
    if not where.is_dir():
        session.report(f"There is no test bed in {where}.")
        return
    with saved.locked(where):
        testbed = saved.load(where)
        if testbed is None:
            session.report(f"There is no test bed in {where}.")
            return
        running = sum(agent.pid is not None for agent in testbed.agents)
        session.report(f"Stopping {running} of {len(testbed.agents)} agents ...")
        standing.end(testbed)
        saved.leave(where)
    session.report(f"The test bed in {where} is removed.")


def _where(folder: Path | None) -> Path:
    import platformdirs

    chosen = folder or Path(platformdirs.user_state_dir("edgeyard")) / "testbed"
    return expanded(chosen).resolve()


def _found(folder: Path | None) -> LoopbackNomad:
    from edgeyard.testbed import saved

    where = _where(folder)
    testbed = saved.load(where)
    if testbed is None:
        raise ConfigError([f"no test bed in {where}: `edgeyard testbed up` starts one"])
    return testbed


def _same(testbed: LoopbackNomad, clients: int | None, boards: int | None, tls: bool) -> None:
    """Refuse options that differ from those of the running test bed."""
    if tls and testbed.tls is None:
        raise ConfigError(
            [f"the test bed in {testbed.folder} has no TLS: run `edgeyard testbed down` first"]
        )
    has = testbed.expected_boards()
    each = max(has.values(), default=0)
    if clients not in (None, len(has)) or boards not in (None, each):
        raise ConfigError(
            [
                f"the test bed in {testbed.folder} has {len(has)} clients with {each} boards each: "
                "run `edgeyard testbed down` first"
            ]
        )


_COLUMNS = (
    Column(title="AGENT", of=field("name"), whole=True),
    Column(title="STATE", of=field("state"), whole=True),
    Column(title="PID", of=field("pid"), right=True, whole=True),
    Column(title="BOARDS", of=field("boards"), right=True, whole=True),
    Column(title="ADDRESS", of=field("address"), whole=True),
)


def _show(session: Session, testbed: LoopbackNomad) -> None:
    boards = _boards(testbed)
    rows = [_row(agent, boards, agent is testbed.server) for agent in testbed.agents]
    if session.output is not Output.JSON:
        emit(session.output, rows, _COLUMNS, "")
        return
    from edgeyard.testbed import saved

    running = all(row["state"] == "running" for row in rows)
    emit_json(
        {
            "running": running,
            "folder": testbed.folder,
            "address": testbed.address,
            "ui": f"{testbed.address}/ui/",
            "namespace": testbed.namespace,
            "settings": testbed.folder / saved.SETTINGS,
            "token_file": testbed.folder / saved.TOKEN,
            "inventory": testbed.folder / saved.INVENTORY,
            "agents": rows,
        }
    )


def _row(agent: Agent, boards: Mapping[str, int], server: bool) -> Row:
    pid = agent.pid
    return {
        "name": agent.name,
        "state": "running" if pid is not None else "stopped",
        "pid": pid,
        "boards": None if server or pid is None else boards.get(agent.name),
        "address": agent.address,
        "log": agent.folder / "agent.log",
    }


def _boards(testbed: LoopbackNomad) -> Mapping[str, int]:
    """Return the healthy boards by client; empty if the server does not answer."""
    if testbed.server.pid is None:
        return {}
    try:
        return testbed.boards_by_client()
    except (OSError, RuntimeError):
        return {}


def _what_now(testbed: LoopbackNomad) -> str:
    from edgeyard.testbed import saved

    folder = testbed.folder
    token, settings = quote(str(folder / saved.TOKEN)), quote(str(folder / saved.SETTINGS))
    shown = ""
    if testbed.tls is not None:
        tls = testbed.tls
        files = {
            "CACERT": tls.ca_cert,
            "CLIENT_CERT": tls.client_cert,
            "CLIENT_KEY": tls.client_key,
        }
        lines = [f"NOMAD_{name}={quote(str(path))}" for name, path in files.items()]
        shown = "".join(f" \\\n{' ' * 15}{line}" for line in lines)
    elsewhere = "" if folder == _where(None) else f" --folder {quote(str(folder))}"
    return f"""
Nomad's UI   {testbed.address}/ui/jobs?namespace={testbed.namespace}
its token    cat {token}
Edgeyard     edgeyard up --config {settings} --data-dir DIR
nomad        export NOMAD_ADDR={testbed.address} NOMAD_NAMESPACE={testbed.namespace} \\
               NOMAD_TOKEN=$(cat {token}){shown}
end it       edgeyard testbed down{elsewhere}"""


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    add_group(
        app,
        "testbed",
        "A real Nomad on this machine, for development and demos.",
        {"up": up, "status": status, "down": down},
    )
