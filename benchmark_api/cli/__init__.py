"""The command line: ``app`` is the program; each module adds its commands.

A module is imported when one of its commands is used. Modules that take long to load (HTTP, tables,
numbers, plots, the server) are imported inside the functions that use them, so that
``edgeyard --help`` loads none of them.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from edgeyard.benchmark_api.cli.program import (
    Commands,
    Program,
    check_root_options,
    echo,
    shared_parameters,
)
from edgeyard.benchmark_api.installed import installed
from edgeyard.installing import version_text

COMMANDS = {
    "submit": "submitting",
    "retry": "submitting",
    "infer": "inferring",
    "wait": "watching",
    "watch": "watching",
    "list": "benchmarks",
    "show": "benchmarks",
    "explain": "benchmarks",
    "hcl": "benchmarks",
    "logs": "benchmarks",
    "events": "benchmarks",
    "cancel": "benchmarks",
    "hold": "benchmarks",
    "release": "benchmarks",
    "preempt": "benchmarks",
    "prioritise": "benchmarks",
    "queue": "benchmarks",
    "results": "results",
    "series": "series",
    "alerts": "alerts",
    "check": "checking",
    "checks": "checking",
    "limits": "nouns",
    "report": "accounting",
    "render": "rendering",
    "doctor": "checkup",
    "up": "server",
    "replay": "replaying",
    "export": "exporting",
    "campaigns": "campaigns",
    "strays": "nouns",
    "boards": "nouns",
    "files": "nouns",
    "tokens": "nouns",
    "users": "nouns",
    "groups": "groups",
    "rates": "nouns",
    "schedules": "nouns",
    "shares": "sharing",
    "subscriptions": "subscribing",
    "policies": "policies",
    "scorers": "scorers",
    "server": "server_data",
    "testbed": "testbed",
    "models": "models",
    "learn": "learning_outcomes",
}
"""Module of each command and group of commands, in the order of the help."""

_SIMULATOR, _TRAINING = "edgeyard.simulator.cli", "edgeyard.training.cli"
ADDED = {
    "sim": (f"{_SIMULATOR}.sim", f"{_TRAINING}.sim"),
    "ste": (f"{_TRAINING}.ste",),
    "scenarios": (f"{_TRAINING}.scenarios",),
    "learn": (f"{_TRAINING}.learning",),
}
"""Modules of packages above the product that add to a group of commands, where installed."""


class _Root(Program):
    """The program with the commands of `COMMANDS`, and those of `ADDED` that are installed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        modules = {name: [f"{__name__}.{of}"] for name, of in COMMANDS.items()}
        for name, added in ADDED.items():
            if found := installed(added):
                modules.setdefault(name, []).extend(found)
        self.commands = Commands(modules)


app = typer.Typer(
    name="edgeyard",
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(version_text())
        raise typer.Exit


def _root(*, context: typer.Context, **given: Any) -> None:
    """Benchmarks of models on edge boards.

    Data goes to stdout, messages to stderr. Exit status: 0 done, 1 usage or API error, 2 nothing
    can be placed, 3 a benchmark failed, 4 the time-out has passed, 5 cancelled, 130 Ctrl-C.
    """
    given.pop("version")
    check_root_options(context, given)
    context.obj = given


_VERSION = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print version, commit and schema.",
    ),
]
_ROOT_PARAMETERS = [
    inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
    inspect.Parameter(
        "version", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_VERSION
    ),
    *shared_parameters(),
]
_root.__annotations__ = {one.name: one.annotation for one in _ROOT_PARAMETERS}
_root.__signature__ = inspect.Signature(_ROOT_PARAMETERS)  # type: ignore[attr-defined]
app.callback()(_root)
