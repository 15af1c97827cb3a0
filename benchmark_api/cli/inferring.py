"""``infer``: a model on own inputs on a board, its outputs in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    THROUGHPUT_COLUMNS,
    Column,
    Row,
    console,
    digits_field,
    emit_csv,
    emit_json,
    field,
    marked,
    note,
    number_field,
    plain,
    reasons_of,
    show,
    table,
    timed_together,
)
from edgeyard.benchmark_api.cli.output_files import check_output
from edgeyard.benchmark_api.cli.program import Output, Session, act, verb
from edgeyard.benchmark_api.cli.watching import (
    CancelOnTimeout,
    Timeout,
    cancel_all,
    wait_limit_s,
)
from edgeyard.benchmark_api.schemas import notation
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput, reason_of
from edgeyard.home import expanded

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgeyard.benchmark_api.sdk import Benchmark, Inference
    from edgeyard.benchmark_api.sdk.benchmark import Benchmarks


@act
def infer(
    session: Session,
    model: Annotated[str, typer.Option("--model", "-m", help="File, URL or name.")],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--inputs",
            "-i",
            metavar="FILE",
            help="An .npz with an array for each input, or NAME=FILE.npy for each; "
            "SET/NAME, or SET=FILE.npz, gives several sets.",
        ),
    ],
    target: Annotated[str | None, typer.Option(help="Family, e.g. rpi4b.")] = None,
    target_uid: Annotated[str | None, typer.Option(help="Id of one board.")] = None,
    runtime: Annotated[str, typer.Option("--runtime", "-r", help="Engine.")] = "ort",
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the outputs are written (.npz).")
    ] = Path("outputs.npz"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out.")] = False,
    compare_local: Annotated[
        bool,
        typer.Option("--compare-local", help="Run the same here and compare the outputs."),
    ] = False,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows of a run; default: the model's own, else all.")
    ] = None,
    nb_inference: Annotated[
        int | None, typer.Option(help="Minimum number of timed runs of each set.")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", metavar="NAME=VALUE", help="Parameter of the engine, e.g. threads=2."
        ),
    ] = None,
    user_time: Annotated[str | None, typer.Option(help="Maximum run time of one attempt.")] = None,
    user_priority: Annotated[
        int | None, typer.Option("--priority", help="Priority from 1 to 10, the highest.")
    ] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Tag to find it by.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the benchmark.")] = None,
    timeout: Timeout = None,
    cancel_on_timeout: CancelOnTimeout = False,
) -> None:
    """Run a model on your own inputs on a board and bring its outputs back.

    The outputs are written as an .npz, each under its name (SET/NAME for several sets), and the
    latency of each set is shown. Inputs that do not fit the model are refused before a board is
    used. With --compare-local the same model is run on this machine, and the errors of the board's
    outputs are shown.

    The exit status is 0 if the outputs were written, 3 if the run failed or expired, 4 if the time
    was up, 5 if it was cancelled. Ctrl-C ends only the waiting.
    """
    check_output(out, "--out", example="outputs.npz")
    if out.exists() and not force:
        raise InvalidInput.at("--out", f"{out} exists", "another file, or --force")
    timeout_s = wait_limit_s(timeout, cancel_on_timeout)
    target = asking.single(target, "--target")
    runtime = asking.single(runtime, "--runtime") or ""
    fields: dict[str, Any] = {
        "target_uid": target_uid,
        "nb_inference": nb_inference,
        "parameters": notation.parameters(parameters or ()),
        "user_time": user_time,
        "user_priority": user_priority,
        "tags": tags,
        "name": name,
    }
    run = _Run(session, cancel_on_timeout)
    found = run.outputs_of(
        lambda: session.client.infer(
            model,
            _inputs(inputs),
            target,
            runtime=runtime,
            batch_size=batch_size,
            compare_local=compare_local,
            timeout=timeout_s,
            on_submit=run.submitted,
            **{name: value for name, value in fields.items() if value is not None},
        )
    )
    if left_out := _nothing_to_write(found):
        raise InvalidInput.at(
            "--model",
            f"has no output that is an array of numbers ({left_out}), so that nothing is written; "
            f"what was measured: edgeyard results {found.benchmark_id}",
            "a model with an output of numbers",
        )
    try:
        found.save(out)
    except (InvalidInput, OSError) as error:
        session.report(f"the outputs are kept; fetch them with: {run.fetch_command()}")
        if isinstance(error, OSError):
            raise InvalidInput.at("--out", f"{out}: {reason_of(error)}") from error
        raise
    rows = rows_of(found)
    if session.output is Output.JSON:
        emit_json({**run.as_json("completed"), "out": str(out), "sets": rows})
    elif session.output is Output.CSV:
        emit_csv([line for row in rows for line in _csv_lines(found.benchmark_id, row)])
    else:
        width = console().width
        lines = [line for row in rows for line in _lines(row)]
        show(set_table(rows), *set_notes(rows), "", table(lines, _OUTPUTS, width))
    session.report(f"wrote {out}; all of the result: edgeyard results {found.benchmark_id}")


def _nothing_to_write(found: Inference) -> str:
    """Return the outputs that were left out, if all were; "" if there is one to write."""
    if any(each.outputs for each in found.sets):
        return ""
    left_out = {
        name: kind
        for each in found.sets
        for name, kind in as_json(each.measured)["left_out"].items()
    }
    return ", ".join(f"{name}: {kind}" for name, kind in left_out.items())


class _Run:
    """One benchmark from its submission to its outputs, and what is said if they do not come."""

    def __init__(self, session: Session, cancel_on_timeout: bool) -> None:
        self._session, self._cancel_on_timeout = session, cancel_on_timeout
        self._benchmark_id: str | None = None

    def submitted(self, benchmark: Benchmark) -> None:
        """Remember the benchmark, and report the warnings of its submission."""
        self._benchmark_id = benchmark.benchmark_id
        for warning in benchmark.warnings:
            self._session.report(f"warning: {warning}")

    def outputs_of(self, infer: Callable[[], Inference]) -> Inference:
        """Return the outputs, or exit with the status of what happened instead.

        Raises:
            typer.Exit: The benchmark has no outputs, or not yet.
        """
        from edgeyard.benchmark_api.cli.exits import Exit, exit_of
        from edgeyard.benchmark_api.sdk import BenchmarkEnded, WaitTimeout

        report = self._session.report
        try:
            return infer()
        except BenchmarkEnded as error:
            states: Benchmarks = list(error.benchmarks)  # type: ignore[arg-type]
            self._answer(states[0].status if states else "failed", str(error))
            raise typer.Exit(exit_of(states) or Exit.FAILED) from None
        except WaitTimeout as error:
            states = list(error.benchmarks)  # type: ignore[arg-type]
            self._answer(states[0].status if states else "pending", str(error))
            if self._cancel_on_timeout:
                cancel_all(self._session, error.benchmark_ids)
            else:
                report(f"the benchmark goes on; fetch its outputs with: {self.fetch_command()}")
            raise typer.Exit(Exit.TIMED_OUT) from None
        except OSError as error:
            if self._benchmark_id is None:
                raise
            report(f"the outputs are kept; fetch them with: {self.fetch_command()}")
            raise InvalidInput.at("--out", f"can't be written: {error.strerror}") from error
        except KeyboardInterrupt:
            if self._benchmark_id is None:
                report("\ninterrupted; nothing was submitted")
            else:
                report(
                    f"\nstopped waiting; the benchmark goes on; fetch its outputs with: "
                    f"{self.fetch_command()}\nor end it with: {self._command('cancel')}"
                )
            raise typer.Exit(Exit.INTERRUPTED) from None

    def fetch_command(self) -> str:
        """Return the command that waits for the outputs and writes them to a file."""
        return f"{self._command('wait')} && {self._command('results')} --download ."

    def as_json(self, status: str) -> dict[str, Any]:
        """Return what identifies the benchmark."""
        return {"benchmark_id": self._benchmark_id, "status": status}

    def _command(self, verb_name: str) -> str:
        profile = f" --profile {self._session.profile}" if self._session.profile else ""
        return f"edgeyard {verb_name}{profile} {self._benchmark_id}"

    def _answer(self, status: str, problem: str) -> None:
        if self._session.output is Output.JSON:
            emit_json({**self.as_json(status), "out": None, "sets": []})
        self._session.report(f"edgeyard: {problem}")


def _inputs(given: Sequence[str]) -> Any:
    """Return an archive's path, or the arrays of files that are named one by one."""
    if len(given) == 1 and not _is_named(given[0]):
        path = expanded(given[0])
        return _read_file(path) if path.suffix == ".npy" else path
    arrays: dict[str, Any] = {}
    for each in given:
        if not _is_named(each):
            raise InvalidInput.at(
                "--inputs", f"{each!r} has no name", "one .npz, or NAME=FILE.npy for each input"
            )
        name, _, file = each.rpartition("=")
        if not name or not file:
            lacks = "file" if name else "name"
            raise InvalidInput.at("--inputs", f"{each!r} has no {lacks}", "NAME=FILE.npy")
        if name in arrays:
            raise InvalidInput.at("--inputs", f"{name!r} is given twice", "each input once")
        arrays[name] = _read_file(expanded(file))
    return arrays


def _is_named(text: str) -> bool:
    return "=" in text and not Path(text).exists()


def _read_file(path: Path) -> Any:
    """Return the array of an ``.npy`` or the arrays of an ``.npz``, by the content of the file."""
    import numpy as np

    from edgeyard.benchmark_api.sdk.inference import read_inputs

    accepted = "an array saved as .npy, or a set of arrays as .npz"
    try:
        with path.open("rb") as file:
            head = file.read(6)
            file.seek(0)
            if head == b"\x93NUMPY":
                return np.load(file, allow_pickle=False)
        if not head.startswith(b"PK"):
            raise InvalidInput.at("--inputs", f"{path} is neither an .npy nor an .npz", accepted)
        return read_inputs(path)
    except OSError as error:
        raise InvalidInput.at("--inputs", f"can't read {path}: {reason_of(error)}") from None
    except (ValueError, EOFError) as error:
        raise InvalidInput.at("--inputs", f"{path}: {error}", accepted) from None


def rows_of(found: Inference) -> list[dict[str, Any]]:
    """Return a row for each set: what was measured, and the comparison of its outputs."""
    return [
        {
            **as_json(each.measured),
            "comparison": {
                name: {key: getattr(one, key) for key in one.__slots__}
                for name, one in each.comparison.items()
            },
        }
        for each in found.sets
    ]


def _lines(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each output of a set."""
    lines = [
        {"set": row["name"], "output": name, **_type(shape), **row["comparison"].get(name, {})}
        for name, shape in row["outputs"].items()
    ]
    return lines + [
        {"set": row["name"], "output": name, "dtype": f"left out: {kind}"}
        for name, kind in row["left_out"].items()
    ]


_MEASURED = (
    "p50_ms",
    "p50_low_ms",
    "p50_high_ms",
    "p90_ms",
    "p99_ms",
    "mean_ms",
    "first_inference_ms",
    "runs_per_s",
    "rows_per_s",
    "nb_inference",
    "inner_loops",
    "verdict",
)


def _csv_lines(benchmark_id: str, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each output of a set, with what was measured of the set."""
    measured = {name: row[name] for name in ("batches", "batch_size", "rows", *_MEASURED)}
    lines = _lines(row) or [{"set": row["name"]}]
    return [
        {
            "benchmark_id": benchmark_id,
            "set": line["set"],
            "inputs": _feeds(row),
            **measured,
            "reasons": row["reasons"],
            **{key: value for key, value in line.items() if key != "set"},
            "shape": _shape(line.get("shape")),
        }
        for line in lines
    ]


def set_table(rows: Sequence[Row]) -> RenderableType:
    """Return a table of what was measured with each set of inputs."""
    return table(rows, _SETS, console().width)


def set_notes(rows: Sequence[Row]) -> list[RenderableType]:
    """Return how sets were timed and why their numbers can't be trusted, where that matters."""
    timed: list[RenderableType] = [
        note(f"set {plain(row['name'])} was timed", text)
        for row in rows
        if (text := timed_together(row))
    ]
    return timed + [
        note(f"set {plain(row['name'])} is {plain(row['verdict'])}", reasons)
        for row in rows
        if (reasons := reasons_of(row))
    ]


def _type(output: Mapping[str, Any]) -> dict[str, Any]:
    """Return shape and type of an output; of a quantised one both its types."""
    raw, dtype = output.get("raw_dtype"), output["dtype"]
    return {"shape": output["shape"], "dtype": f"{dtype} (of {raw})" if raw else dtype}


def _shape(value: object) -> str:
    return "×".join(map(str, value)) or "scalar" if isinstance(value, list) else ""


def _feeds(row: Row) -> str:
    feeds = row.get("feeds")
    if not isinstance(feeds, Mapping):
        return ""
    return ", ".join(f"{name} {_shape(one.get('shape'))}" for name, one in feeds.items())


def _psnr(row: Row) -> str:
    if row.get("equal"):
        return "equal"
    value = row.get("psnr_db")
    return f"{value:.1f} dB" if isinstance(value, int | float) else ""


_SETS = (
    Column(title="SET", of=field("name")),
    Column(title="INPUTS", of=_feeds),
    Column(title="BATCHES", of=field("batches"), right=True),
    Column(title="P50 ms", of=marked("p50_ms"), right=True, whole=True),
    Column(title="P90 ms", of=marked("p90_ms"), right=True, whole=True),
    Column(
        title="FIRST ms",
        of=digits_field("first_inference_ms"),
        right=True,
        whole=True,
    ),
    *THROUGHPUT_COLUMNS,
    Column(title="VERDICT", of=lambda row: plain(row.get("verdict"))),
)

_OUTPUTS = (
    Column(title="SET", of=field("set")),
    Column(title="OUTPUT", of=field("output")),
    Column(title="SHAPE", of=lambda row: _shape(row.get("shape")), whole=True),
    Column(title="DTYPE", of=field("dtype"), whole=True),
    Column(title="MAX ERROR", of=number_field("max_error", ".3g"), right=True, always=False),
    Column(title="MEAN ERROR", of=number_field("mean_error", ".3g"), right=True, always=False),
    Column(title="PSNR", of=_psnr, right=True, always=False),
    Column(title="COSINE", of=number_field("cosine", ".8g"), right=True, always=False),
    Column(title="TOP-1 SAME", of=number_field("top1_agreement", ".2%"), right=True, always=False),
)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "infer")(infer)
