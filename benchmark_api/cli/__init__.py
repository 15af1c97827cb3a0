"""The command line: ``app`` is the program; each module adds its commands.

Modules that take long to load (HTTP, tables, numbers, plots, the server) are imported where they
are used, so that ``edgeyard --help`` loads none of them.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from edgeyard import __version__
from edgeyard.benchmark_api.cli import (
    benchmarks,
    campaigns,
    checking,
    checkup,
    exporting,
    inferring,
    learning,
    models,
    nouns,
    policies,
    pruning,
    rendering,
    replaying,
    results,
    scenarios,
    scorers,
    server,
    simulating,
    ste,
    submitting,
    testbed,
    watching,
)
from edgeyard.benchmark_api.cli.program import Program, check_root_options, echo, shared_parameters

app = typer.Typer(
    name="edgeyard",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"edgeyard {__version__}")
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
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
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


_MODULES = (
    *(submitting, inferring, watching, benchmarks, results, campaigns, checking, nouns),
    *(policies, scorers, rendering, checkup, server, pruning, replaying, exporting, testbed),
    simulating,
    ste,
    scenarios,
    learning,
    models,
)
for _module in _MODULES:
    _module.add_to(app)
