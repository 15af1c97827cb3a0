"""``testbed up|status|down``: a real Nomad on this machine, for development and demos."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import Column, Row, emit, emit_json, field
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.errors import ConfigError, StartFailed

if TYPE_CHECKING:
    from edgeyard.testbed import Agent, LoopbackNomad

CLIENTS, BOARDS = 3, 4
MAX_CLIENTS, MAX_BOARDS = 20, 200

Folder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where it lies; default ~/.local/state/edgeyard/testbed."),
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
        typer.Option(metavar="PATH", help="Default: on PATH, or what `make nomad` built."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Mutual TLS: it speaks https, and asks for certificates.")
    ] = False,
    folder: Folder = None,
) -> None:
    """Start a Nomad cluster on this machine.

    One server and several clients on loopback, with Edgeyard's device plugin and emulated boards,
    ACLs on. They run on in the background; where some ended, those are started again.
    """
    from edgeyard.benchmark_api.bootstrap import this_machine
    from edgeyard.testbed import saved, standing
    from edgeyard.testbed.binary import find_nomad

    where = _where(folder)
    began = time.monotonic()

    def tell(sentence: str) -> None:
        session.say(f"{time.monotonic() - began:5.1f} s  {sentence}")

    with saved.locked(where):
        testbed = saved.load(where)
        if testbed is None:
            program = find_nomad(nomad)
            tell(f"{program}, logs in {where}")
            testbed = standing.new(
                where, program, clients or CLIENTS, boards or BOARDS, this_machine(), tls=tls
            )
        else:
            _same(testbed, clients, boards, tls)
        if all(agent.pid for agent in testbed.agents):
            session.say("The test bed runs already.")
        try:
            standing.start(testbed, tell)
        except StartFailed:
            session.say("Logs stay where they are; `edgeyard testbed down` removes it all.")
            raise
    _show(session, testbed)
    if session.output is Output.TABLE:
        session.say(_what_now(testbed))


def status(session: Session, folder: Folder = None) -> None:
    """Show what runs of the test bed.

    Ends with 1 where there is none, or not all of it runs.
    """
    testbed = _found(folder)
    _show(session, testbed)
    stopped = [agent.name for agent in testbed.agents if agent.pid is None]
    if stopped:
        session.say(
            f"{', '.join(stopped)} ended without `down`: `edgeyard testbed up` starts what is "
            "missing, with its data; `edgeyard testbed down` removes it all."
        )
        raise typer.Exit(1)


def down(session: Session, folder: Folder = None) -> None:
    """End the test bed and remove its data.

    Also where a crash or a reboot left only parts of it.
    """
    from edgeyard.testbed import saved, standing

    where = _where(folder)
    if not where.is_dir():
        session.say(f"There is no test bed in {where}.")
        return
    with saved.locked(where):
        testbed = saved.load(where)
        if testbed is None:
            session.say(f"There is no test bed in {where}.")
            return
        running = sum(agent.pid is not None for agent in testbed.agents)
        session.say(f"Ending {running} agents of {len(testbed.agents)} ...")
        standing.end(testbed)
        saved.leave(where)
    session.say(f"The test bed in {where} is gone.")


def _where(folder: Path | None) -> Path:
    import platformdirs

    chosen = folder or Path(platformdirs.user_state_dir("edgeyard")) / "testbed"
    return chosen.expanduser().resolve()


def _found(folder: Path | None) -> LoopbackNomad:
    from edgeyard.testbed import saved

    where = _where(folder)
    testbed = saved.load(where)
    if testbed is None:
        raise ConfigError([f"no test bed in {where}: `edgeyard testbed up` starts one"])
    return testbed


def _same(testbed: LoopbackNomad, clients: int | None, boards: int | None, tls: bool) -> None:
    """Refuse to make another one of what is there."""
    if tls and testbed.tls is None:
        raise ConfigError(
            [f"the test bed in {testbed.folder} is without TLS: `edgeyard testbed down` first"]
        )
    has = testbed.expected_boards()
    each = max(has.values(), default=0)
    if clients not in (None, len(has)) or boards not in (None, each):
        raise ConfigError(
            [
                f"the test bed in {testbed.folder} has {len(has)} clients with {each} boards each: "
                "`edgeyard testbed down` first"
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
    """Healthy boards by client; empty where the server does not tell."""
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
    """Register the noun with its verbs."""
    group = typer.Typer(
        help="A real Nomad on this machine, for development and demos.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for name, function in (("up", up), ("status", status), ("down", down)):
        verb(group, name)(function)
    app.add_typer(group, name="testbed")
