"""What all commands share: their options, their session and their exit status."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from edgeyard.benchmark_api.printing import printable
from edgeyard.errors import ConfigError, EdgeyardError, FieldError, InvalidInput, reason_of
from edgeyard.installing import extra_command

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Client

_ERROR = 1
_INTERRUPTED = 130


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
"""Option of commands that call no server; the others have ``-o``."""

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the log of acts.")]
"""Option of commands that change the server's data; those that call a server have it by `act`."""


class Output(StrEnum):
    """Form of the data on stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def echo(sentence: str = "", *, err: bool = False) -> None:
    """Print a line on stdout or stderr without the control characters that its texts may hold.

    Names, reasons and messages come from other people and machines: an escape sequence in one could
    move the cursor or change the title of the reader's terminal.
    """
    typer.echo(printable(sentence), err=err)


class Session:
    """One run of a command: the server to call and the form of the output."""

    def __init__(
        self,
        url: str | None,
        token: str | None,
        profile: str | None,
        output: Output,
        reason: str = "",
    ) -> None:
        """Make no client yet.

        Args:
            reason: Why the command changes what it does, for the log of acts.
        """
        self.output = output
        self.profile = profile
        self._where = (url, token, profile)
        self._reason = reason
        self._client: Client | None = None
        self._opened = contextlib.ExitStack()

    @property
    def client(self) -> Client:
        """Make the client on first use: help needs none, and httpx takes long to load."""
        if self._client is None:
            from edgeyard import __version__
            from edgeyard.benchmark_api.sdk import Client

            url, token, profile = self._where
            self._client = Client(url, token, profile, on_notice=self.report)
            self._client.api.introduce(f"edgeyard-cli/{__version__}")
            self._opened.callback(self._client.close)
            self._opened.enter_context(self._client.because(self._reason))
        return self._client

    @property
    def names_server(self) -> bool:
        """Whether the command line names a server, by its URL or by a profile."""
        url, _, profile = self._where
        return url is not None or profile is not None

    def report(self, sentence: str) -> None:
        """Print a message on stderr."""
        echo(sentence, err=True)

    def close(self) -> None:
        """Release the connections."""
        self._opened.close()


_SHARED: Mapping[str, object] = {
    "output": Annotated[
        Output | None,
        typer.Option("-o", "--output", help="Form of the data on stdout.  [default: table]"),
    ],
    "as_json": Annotated[bool, typer.Option("--json", help="Short for -o json.")],
    "profile": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Use the server and token of this profile."),
    ],
    "url": Annotated[str | None, typer.Option(metavar="URL", help="URL of the server.")],
    "token": Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Token; EDGEYARD_TOKEN or a profile hides it from other users.",
        ),
    ],
}


def act(function: Callable[..., None]) -> Callable[..., None]:
    """Let a verb that changes something on the server take ``--reason``, for the log of acts."""
    function.is_act = True  # type: ignore[attr-defined]  # read by `verb`
    return function


def shared_parameters() -> list[inspect.Parameter]:
    """Return the options that every verb takes, after its name or before it."""
    return [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for key, kind in _SHARED.items()
    ]


_REASON_PARAMETER = inspect.Parameter(
    "reason", inspect.Parameter.KEYWORD_ONLY, default="", annotation=Reason
)


def add_group(
    app: typer.Typer, name: str, text: str, verbs: Mapping[str, Callable[..., None]] | None = None
) -> typer.Typer:
    """Add a group of commands, whose help is ``text``; called without one it shows its help.

    A group of this name that another module has added to ``app`` is returned as it is.

    Args:
        verbs: Its first commands by name, as for `verb`.
    """
    before = [each.typer_instance for each in app.registered_groups if each.name == name]
    if before and before[0] is not None:
        return before[0]
    group = typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group, name=name)
    for each, function in (verbs or {}).items():
        verb(group, each)(function)
    return group


def verb(app: typer.Typer, name: str, **settings: Any) -> Callable[[Callable[..., None]], None]:
    """Make a function, whose first parameter is the `Session`, a verb with the shared options."""

    def register(function: Callable[..., None]) -> None:
        own = _own_parameters(function)
        is_act = getattr(function, "is_act", False)
        flags = {one.name: _flag(one.name, one.annotation) for one in own}
        if is_act:
            flags[_REASON_PARAMETER.name] = _flag(_REASON_PARAMETER.name, Reason)
        for one in own:
            _name_values(one.name, one.annotation)
        context_parameter = inspect.Parameter(
            "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        parameters = [
            context_parameter,
            *own,
            *([_REASON_PARAMETER] if is_act else ()),
            *shared_parameters(),
        ]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            before = given.pop("context").find_root().obj or {}
            after = {key: given.pop(key) for key in _SHARED}
            output = _output(after) or _output(before) or Output.TABLE
            url, token, profile = (
                after[key] or before.get(key) for key in ("url", "token", "profile")
            )
            reason = given.pop(_REASON_PARAMETER.name) if is_act else ""
            session = Session(url, token, profile, output, reason)
            try:
                function(session, **given)
            except EdgeyardError as error:
                errors: Iterable[FieldError] = getattr(error, "errors", ())
                named = [_typed(each, flags, given) for each in errors]
                if not named:
                    raise
                raise InvalidInput(named) from error
            except OSError as error:
                of_file = _of_file(error, flags, given)
                if of_file is None:
                    raise
                raise InvalidInput([of_file]) from error
            finally:
                session.close()

        del run.__wrapped__  # typer would read the bare function's signature
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, cls=_Verb, **settings)(run)

    return register


def _own_parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
    """Return the parameters of a verb but its session, each by keyword, with its annotation.

    The members of ``**flags: Unpack[Flags]`` come first; None stands for one that is not given.
    """
    hints = get_type_hints(function, include_extras=True)
    _, *own = inspect.signature(function).parameters.values()
    unpacked: Mapping[str, object] = {}
    if own and own[-1].kind is inspect.Parameter.VAR_KEYWORD:
        (flags,) = get_args(hints[own.pop().name])
        unpacked = get_type_hints(flags, include_extras=True)
    return [
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in unpacked.items()
        ),
        *(one.replace(annotation=hints[one.name], kind=one.KEYWORD_ONLY) for one in own),
    ]


def check_root_options(context: typer.Context, given: Mapping[str, Any]) -> None:
    """Refuse options of the client before a command that does not take them.

    Raises:
        InvalidInput: The command calls no server, or has options of its own.
    """
    flags = [
        "--json" if name == "as_json" else f"--{name}" for name, value in given.items() if value
    ]
    name = context.invoked_subcommand
    if not flags or name is None:
        return
    command: Any = getattr(context.command, "commands", {}).get(name)
    leaves = getattr(command, "commands", {"": command}).values()
    if command is not None and not any(isinstance(each, _Verb) for each in leaves):
        raise InvalidInput.at(flags[0], f"has no effect before `{name}`", f"edgeyard {name} --help")


def _output(given: Mapping[str, Any]) -> Output | None:
    return Output.JSON if given.get("as_json") else given.get("output")


_VALUES: Mapping[str, str] = {
    "benchmark_type": "TYPE",
    "binding": "BINDING",
    "cron": "CRON",
    "cron_by": "WHO",
    "dataset": "FILE",
    "deadline": "TIME",
    "expires": "TIME",
    "limit": "COUNT",
    "if_unavailable": "ACTION",
    "max_lease": "TIME",
    "max_retries": "COUNT",
    "model": "FILE",
    "nb_inference": "COUNT",
    "odt_config": "FILE",
    "precision": "SHARE",
    "concurrency": "CALLERS",
    "load": "KIND",
    "load_bound": "TIME",
    "load_duration": "TIME",
    "load_percentile": "PERCENT",
    "load_rate": "RATE",
    "load_seed": "SEED",
    "soak": "TIME",
    "soak_window": "TIME",
    "queue_timeout": "TIME",
    "ram": "SIZE",
    "runtime": "ENGINE",
    "start_time": "TIME",
    "storage": "SIZE",
    "target": "FAMILY",
    "target_uid": "BOARD",
    "user_budget": "CREDITS",
    "user_priority": "PRIORITY",
    "user_time": "TIME",
    "version_tag": "TAG",
}
"""What the values of options are, by parameter, where the option's own name does not state it."""


def _name_values(name: str, annotation: object) -> None:
    """Name the values of an option after what they are: ``--limit COUNT``, not ``<int>``."""
    (info,) = getattr(annotation, "__metadata__", (None,))
    if not isinstance(info, typer.models.OptionInfo) or info.metavar is not None:
        return
    (kind,) = get_args(annotation)[:1]
    kinds = {kind, *get_args(kind)}
    is_list = any(get_origin(each) is list for each in kinds)
    if Path in kinds:
        info.metavar = "FILE"
    elif is_list or kinds & {int, float, str}:
        own = _flag(name, annotation).lstrip("-").upper().replace("-", "_")
        info.metavar = _VALUES.get(name, own)


def _flag(name: str, annotation: object) -> str:
    """Return what a user types for a parameter: its first long option, or its metavar."""
    (info,) = getattr(annotation, "__metadata__", (None,))
    if isinstance(info, typer.models.ArgumentInfo):
        return str(info.metavar or name.upper())
    declared = (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
    long = [str(each).split("/")[0] for each in declared if str(each).startswith("--")]
    return long[0] if long else f"--{name.replace('_', '-')}"


_PARAMETERS_OF: Mapping[str, tuple[str, ...]] = {
    "dataset": ("dataset", "inputs"),
    "dataset_urls": ("dataset", "inputs"),
    "model_url": ("model",),
    "input": ("inputs",),
    "url": ("webhook_url",),
    "submitted_from": ("since",),
    "submitted_before": ("until",),
}
"""Parameters of verbs that set a field of a request whose name they do not have, in this order."""
_OF_POLICIES = ("name", "text")
"""Fields that ``--policy`` sets where a policy is sent. A job file has a name of its own."""
_LIKE_FIELD = re.compile(r"(?<![\w'\"./-])[a-z]+(?:_[a-z]+)+(?![\w'\"/=-])")
_NEGATIVE = re.compile(r"-[0-9.]+")


def _typed(error: FieldError, flags: Mapping[str, str], given: Mapping[str, object]) -> FieldError:
    """Return an error that names the flag that set a refused field, or that would set it.

    What came from a job file is named as it stands there.

    Args:
        error: Its pointer is a JSON pointer (RFC 6901) into the request, or a flag already.
        flags: What a user types, by parameter of the verb.
        given: The values of these parameters.
    """
    if not error.pointer.startswith("/") or Path(error.pointer.split(", line ")[0]).exists():
        return error
    path = re.sub("^/matrix/parameters(?=/|$)", "/sweep", error.pointer)
    path = re.sub("^/(description|matrix|query)(?=/)", "", path).lstrip("/")
    field, _, rest = path.partition("/")
    key, _, part = rest.partition("/")
    from_file = given.get("job") is not None
    typed = re.sub(r"/(\d+)(?=/|$)", r"[\1]", path).replace("/", ".")
    policy = ("policy",) if field in _OF_POLICIES and not from_file else ()
    for name in (key, *policy, *_parameters_for(field)):
        value = given.get(name)
        is_set = value not in (None, [], (), "", False)
        if name not in flags or (from_file and not is_set):
            continue
        named = part.replace("/", ".") if key.isdigit() else key  # by place: what of the value
        typed = f"{flags[name]} {named}" if named and name != key else flags[name]
        break
    else:
        for name, value in given.items():
            pairs = value if isinstance(value, list | tuple) else ()
            if any(str(each).startswith(f"{field}=") for each in pairs):
                typed = f"{flags[name]} {field}"

    def flag(match: re.Match[str]) -> str:
        names = [name for name in _parameters_for(match[0]) if name in flags]
        is_attribute = field == "constraints"  # fields and attributes of boards share names
        return flags[names[0]] if names and not from_file and not is_attribute else match[0]

    return FieldError(
        typed, _LIKE_FIELD.sub(flag, error.reason), _LIKE_FIELD.sub(flag, error.accepted)
    )


def _parameters_for(field: str) -> list[str]:
    """Return the parameters of verbs that may set a field, the likeliest first."""
    stem = re.sub("_(s|at|id)$", "", field)
    plural = (field.removesuffix("s"), f"{field}s")
    return [*_PARAMETERS_OF.get(field, ()), field, stem, *plural]


def _of_file(
    error: OSError, flags: Mapping[str, str], given: Mapping[str, object]
) -> FieldError | None:
    """Return an error that names the flag whose file could not be used; None if there is none."""
    for name, value in given.items():
        path = str(value) if isinstance(value, str | os.PathLike) else ""
        if path and error.filename is not None and path in (str(error.filename), error.filename):
            return FieldError(flags[name], f"cannot use {path}: {error.strerror}")
    return None


class _Verb(TyperCommand):
    """A command whose help names arguments without their Python types."""

    def get_help(self, ctx: Any) -> str:
        """Return the help page."""
        return re.sub(r" *<(list\[\w+\]|path|str|int|float)( range)?>", "", super().get_help(ctx))


class Commands(MutableMapping[str, Any]):
    """Commands by name, each of which is made when it is used for the first time.

    To import all modules and to make all commands takes longer than most commands do.
    """

    def __init__(self, modules: Mapping[str, Sequence[str]]) -> None:
        """Make no command yet.

        Args:
            modules: Full names of the modules whose ``add_to`` add the command, or the commands of
                the group, by its name.
        """
        self._modules = modules
        self._found: dict[str, Any] = dict.fromkeys(modules)

    def __getitem__(self, name: str) -> Any:
        """Return a command, and keep all that its module adds."""
        if self._found[name] is None:
            app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
            for module in self._modules[name]:
                importlib.import_module(module).add_to(app)
            self._found |= typer.main.get_group(app).commands
        return self._found[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found


class Program(TyperGroup):
    """The root command: it turns every error into an exit status and a message on stderr."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; exit in standalone mode, otherwise return the exit status."""
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
        _replace_unencodable()
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
            return _print_error(message_of(error))
        except ModuleNotFoundError as error:
            return _print_error(_missing_extra(error))
        except KeyboardInterrupt:
            return _INTERRUPTED
        except BrokenPipeError:
            return _reader_exited()
        except RecursionError:
            return _print_error("what was given or answered is nested too deeply")
        except UnicodeEncodeError as error:  # bytes of the command line that are no text
            if error.reason != "surrogates not allowed":
                raise
            return _print_error(f"{error.object[:100]!a} is not UTF-8 (accepted: UTF-8)")
        except OSError as error:
            if error.errno == errno.EPIPE:
                return _reader_exited()
            return _print_error(f"{error.filename or 'a file'}: {reason_of(error)}")


def message_of(error: EdgeyardError) -> str:
    """Return the message of an error for the command line."""
    if isinstance(error, InvalidInput | ConfigError):
        lines = getattr(error, "errors", ()) or getattr(error, "problems", ())
        return "\n".join(str(line) for line in lines)
    status = getattr(error, "status", None)
    if status == 401:
        return (
            f"{error}\nSet EDGEYARD_TOKEN, or token in a profile; a server that was started with "
            "`edgeyard up --data-dir DIR` has written one to DIR/admin.token"
        )
    if status == 404 and (found := _ABSENT.match(str(error))):
        return f"{error}; {_LISTS[found[1]]} shows those that exist"
    return str(error)


_LISTS = {
    "benchmark": "`edgeyard list`",
    "board": "`edgeyard boards list`",
    "campaign": "`edgeyard campaigns list`",
    "check": "`edgeyard checks list`",
    "file": "`edgeyard files list`",
    "schedule": "`edgeyard schedules list`",
    "token": "`edgeyard tokens list`",
    "group": "`edgeyard groups list`",
    "user": "`edgeyard users list`",
}
"""Commands that list the things of a kind."""
_ABSENT = re.compile(f"no ({'|'.join(_LISTS)}) '")


def _usage(error: typer.TyperException) -> int:
    """Exit with 1 on usage errors, not with typer's 2, which means "nothing can be placed"."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "edgeyard"
    if type(error).__name__ == "NoArgsIsHelpError":
        echo(error.format_message(), err=True)
        return _ERROR
    if wrong := _wrong_value(error):
        return _print_error(f"{wrong}\nTry: {path} --help")
    option = str(getattr(error, "option_name", ""))
    hint = "; write -- before a negative number" if _NEGATIVE.fullmatch(option) else ""
    return _print_error(f"{error.format_message()}{hint}\nTry: {path} --help")


def _wrong_value(error: typer.TyperException) -> str:
    """Return which flag or argument has a wrong value, and why; "" for other errors."""
    from pydantic import ValidationError

    cause, parameter = error.__cause__, getattr(error, "param", None)
    if parameter is None or not isinstance(cause, ValidationError):
        return ""
    from edgeyard.benchmark_api.schemas.fields import value_problem

    details = cause.errors(include_url=False)[0]
    problem = value_problem(details)
    flags = [name for name in parameter.opts if name.startswith("--")]
    place = flags[0] if flags else parameter.metavar or parameter.name.upper()
    if problem is None:  # of typer's own, which names the value
        return f"{place}: {details['msg'].removeprefix('Value error, ').rstrip('.')}"
    reason, accepted = problem
    return str(FieldError(place, f"{str(details['input'])[:100]!r} {reason}", accepted))


def _print_error(message: str) -> int:
    echo(f"edgeyard: {message}", err=True)
    return _ERROR


_EXTRA_OF = {
    "PIL": "images",
    "ai_edge_litert": "tflite",
    "boto3": "s3",
    "cma": "training",
    "google": "edgedevice",
    "grpc": "edgedevice",
    "gymnasium": "training",
    "jax": "training",
    "matplotlib": "plot",
    "msgpack": "edgedevice",
    "ncnn": "ncnn",
    "numba": "compiled",
    "onnx": "onnx",
    "onnxruntime": "ort",
    "onnxruntime_genai": "ort-genai",
    "openvino": "openvino",
    "optax": "training",
    "pandas": "data",
    "psycopg": "postgres",
    "pyarrow": "export",
}
"""Extras by the package that they bring; all others come with ``server``."""


def _missing_extra(error: ModuleNotFoundError) -> str:
    """Return which extra of Edgeyard brings a package that is not installed.

    Raises:
        ModuleNotFoundError: The module is one of Edgeyard's own.
    """
    package = (error.name or "").partition(".")[0]
    if package in ("", "edgeyard"):
        raise error
    extra = _EXTRA_OF.get(package, "server")
    return f"this command needs {package}, which is not installed: {extra_command(extra)}"


def _reader_exited() -> int:
    """End quietly when the reader of a pipe has exited, as in ``edgeyard list | head``."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _ERROR


def _replace_unencodable() -> None:
    """Replace characters that the terminal cannot show by question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
