"""Generate ``docs/reference/cli.md`` from the program, for ``make docs``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

_SHARED = ("--output", "--json", "--profile", "--url", "--token", "--help")

_INTRODUCTION = """\
# The command line

Made from the program by `make docs`; do not edit.

Data goes to stdout, messages to stderr. If stderr is not a terminal, `wait` and `watch` print one
line for each change of state. `NO_COLOR` is honoured. Shell completion:
`edgeyard --install-completion`.

| exit status | meaning |
| --- | --- |
| 0 | done |
| 1 | usage error, wrong settings, or the API refused the request |
| 2 | a gate failed, or nothing can be placed |
| 3 | the benchmark failed or expired |
| 4 | `--timeout` has passed; the benchmark goes on |
| 5 | the benchmark was cancelled |
| 130 | Ctrl-C: the waiting ends, the benchmark goes on |

Server and token come from flags (and the profile that `--profile` names), then `EDGEYARD_URL`,
`EDGEYARD_TOKEN` (or `EDGEYARD_TOKEN_FILE`) and `EDGEYARD_PROFILE`, then `edgeyard.toml` of the
folder, then `~/.config/edgeyard/config.toml`:

```toml
profile = "lab"                     # the default

[profiles.lab]
url = "https://edgeyard.example.org"
token_file = "lab.token"            # relative to the folder of this file; or token = "ey_..."
```

A token that is next to a URL in a file is only sent to that server.

All commands take the following options, except those that call no server (%s; `replay` and `export`
take `--json`):

| option | meaning |
| --- | --- |
| `-o`, `--output table\\|json\\|csv` | form of the data on stdout |
| `--json` | short for `-o json` |
| `--profile NAME` | use the server and token of this profile |
| `--url URL` | URL of the server |
| `--token TOKEN` | token; `EDGEYARD_TOKEN` or a profile hides it from other users of the machine |

Tables are as wide as the terminal. Into a pipe or a file they are as wide as their content,
whatever `COLUMNS` the shell exports; `EDGEYARD_COLUMNS` sets a width for both.

With `-o csv` a text that begins with `=`, `+`, `-`, `@`, a tab or the end of a line gets an
apostrophe in front, because spreadsheets would run it as a formula, and names and tags may be other
users'. Numbers never get one, and `-o json` has all values as they are.
"""


def page() -> str:
    """Return the whole page."""
    from edgeyard.benchmark_api.cli import app

    root: Any = typer.main.get_command(app)
    alone = ", ".join(f"`{path}`" for path in _without_server(root, ""))
    return "\n".join([_INTRODUCTION % alone, *_commands(root, "edgeyard")]).rstrip() + "\n"


def _without_server(group: Any, path: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _without_server(command, f"{path}{name} ")
        elif not any("--url" in one.opts for one in command.params):
            yield f"{path}{name}"


def _commands(group: Any, path: str) -> Iterator[str]:
    for name in group.commands:
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield from _section(command, f"{path} {name}")


def _section(command: Any, path: str) -> Iterator[str]:
    yield f"## {path}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    arguments = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    yield f"    {' '.join([path, '[OPTIONS]', *arguments])}\n"
    options = [
        one
        for one in command.params
        if one.param_type_name == "option" and not one.hidden and not set(one.opts) & set(_SHARED)
    ]
    if options:
        yield "| option | meaning |"
        yield "| --- | --- |"
        for one in options:
            yield f"| {_names(one)} | {(one.help or '').replace('|', chr(92) + '|')} |"
        yield ""


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    many = parameter.nargs == -1 and "..." not in name
    if not parameter.required and not name.startswith("["):
        name = f"[{name}]"
    return f"{name}..." if many else str(name)


def _names(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.is_flag:
        return names
    kind = parameter.metavar or "VALUE"
    more = " (repeatable)" if parameter.multiple else ""
    return f"{names} {kind}{more}"
