"""What all verbs share: their options, their session, and how they end."""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from edgeyard.benchmark_api.printing import printable
from edgeyard.errors import ConfigError, EdgeyardError, InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Client

_ERROR = 1
_INTERRUPTED = 130


class Output(StrEnum):
    """Form of the data on stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Session:
    """One run of a verb: whom to talk to and in which form to answer."""

    def __init__(
        self, url: str | None, token: str | None, profile: str | None, output: Output
    ) -> None:
        self.output = output
        self.profile = profile
        self._where = (url, token, profile)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """Made when it is first asked for: help needs none, and httpx takes its time to load."""
        if self._client is None:
            from edgeyard.benchmark_api.sdk import Client

            url, token, profile = self._where
            self._client = Client(url, token, profile)
        return self._client

    def say(self, sentence: str) -> None:
        """Talk to the user, on stderr."""
        typer.echo(printable(sentence), err=True)

    def close(self) -> None:
        """Release the connections."""
        if self._client is not None:
            self._client.close()


_SHARED: dict[str, tuple[object, object]] = {
    "output": (
        Annotated[
            Output,
            typer.Option("-o", "--output", help="Form of the data on stdout."),
        ],
        Output.TABLE,
    ),
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Short for -o json.")],
        False,
    ),
    "profile": (
        Annotated[
            str | None,
            typer.Option(metavar="NAME", help="Server and token of a profile."),
        ],
        None,
    ),
    "url": (
        Annotated[
            str | None,
            typer.Option(metavar="URL", help="Of the server."),
        ],
        None,
    ),
    "token": (
        Annotated[
            str | None,
            typer.Option(
                metavar="TOKEN",
                help="Better kept in EDGEYARD_TOKEN or a profile: others see arguments.",
            ),
        ],
        None,
    ),
}


def verb(app: typer.Typer, name: str, **settings: Any) -> Callable[[Callable[..., None]], None]:
    """Make a function, whose first parameter is the `Session`, a verb with the shared options."""

    def register(function: Callable[..., None]) -> None:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = [
            parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY)
            for parameter in own
        ] + [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for key, (kind, default) in _SHARED.items()
        ]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            output = Output.JSON if given.pop("as_json") else given.pop("output")
            given.pop("output", None)
            where = (given.pop("url"), given.pop("token"), given.pop("profile"))
            session = Session(*where, output)
            try:
                function(session, **given)
            finally:
                session.close()

        del run.__wrapped__  # typer would read the bare function's signature
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, **settings)(run)

    return register


class Program(TyperGroup):
    """The root: every way to end gets its exit status and one clear message on stderr."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit unless told otherwise."""
        status = self._run(args, prog_name or "edgeyard", complete_var, windows_expand_args, extra)
        if standalone_mode:
            sys.exit(status)
        return status

    def _run(
        self,
        args: Sequence[str] | None,
        prog_name: str,
        complete_var: str | None,
        windows_expand_args: bool,
        extra: dict[str, Any],
    ) -> int:
        _write_what_can_be_written()
        try:
            status = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
            sys.stdout.flush()
            return int(status or 0)
        except typer.TyperException as error:
            return _usage(error)
        except typer.Abort:
            return _ERROR
        except EdgeyardError as error:
            return _complain(message_of(error))
        except KeyboardInterrupt:
            return _INTERRUPTED
        except BrokenPipeError:
            return _reader_left()
        except OSError as error:
            if error.errno == errno.EPIPE:
                return _reader_left()
            return _complain(f"{error.filename or 'a file'}: {error.strerror or error}")


def message_of(error: EdgeyardError) -> str:
    """An error for who works at the command line."""
    if isinstance(error, InvalidInput | ConfigError):
        lines = getattr(error, "errors", ()) or getattr(error, "problems", ())
        return "\n".join(str(line) for line in lines)
    status = getattr(error, "status", None)
    if status == 401:
        return (
            f"{error}\nSet EDGEYARD_TOKEN, or token in a profile; a server that was started with "
            "`edgeyard up --data-dir DIR` has written one to DIR/admin.token"
        )
    return str(error)


def _usage(error: typer.TyperException) -> int:
    """Usage errors end with 1 here, not with typer's 2: that one is for gates."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "edgeyard"
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return _ERROR
    return _complain(f"{error.format_message()}\nTry: {path} --help")


def _complain(message: str) -> int:
    typer.echo(printable(f"edgeyard: {message}"), err=True)
    return _ERROR


def _reader_left() -> int:
    """``edgeyard list | head``: nobody reads on, which is no error worth a word."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _ERROR


def _write_what_can_be_written() -> None:
    """A terminal that knows no bars or dots gets a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
