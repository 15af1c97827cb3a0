"""``infer``: a model on own inputs on a board, its outputs in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit_csv,
    emit_json,
    field,
    marked,
    plain,
    show,
    table,
    three_digits,
)
from edgeyard.benchmark_api.cli.program import Output, Session, verb
from edgeyard.benchmark_api.cli.watching import Timeout
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import Inference


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
            "SET/NAME gives several sets.",
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
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Label to find it by.")] = None,
    timeout: Timeout = None,
) -> None:
    """Run a model on your own inputs on a board and bring its outputs back.

    The outputs are written as an .npz, each under its name (SET/NAME for several sets), and the
    latency of each set is shown. Inputs that do not fit the model are refused before a board is
    used. With --compare-local the same model is run on this machine, and the errors of the board's
    outputs are shown.
    """
    if out.exists() and not force:
        raise InvalidInput.at("--out", f"{out} exists", "another file, or --force")
    if not out.absolute().parent.is_dir():
        raise InvalidInput.at("--out", f"there is no folder {out.parent}", "a folder that is there")
    fields: dict[str, Any] = {
        "target_uid": target_uid,
        "nb_inference": nb_inference,
        "parameters": asking.parameters(parameters or ()),
        "user_time": user_time,
        "user_priority": user_priority,
        "tags": tags,
    }
    found = session.client.infer(
        model,
        _inputs(inputs),
        target,
        runtime=runtime,
        batch_size=batch_size,
        compare_local=compare_local,
        timeout=asking.seconds(timeout, "--timeout"),
        **{name: value for name, value in fields.items() if value},
    )
    found.save(out)
    rows = rows_of(found)
    if session.output is Output.JSON:
        emit_json({"benchmark_id": found.benchmark_id, "out": str(out), "sets": rows})
    elif session.output is Output.CSV:
        emit_csv([line for row in rows for line in _lines(row)])
    else:
        width = console().width
        show(table(rows, _SETS, width))
        show("", table([line for row in rows for line in _lines(row)], _OUTPUTS, width))
    session.report(f"wrote {out}; all of the result: edgeyard results {found.benchmark_id}")


def _inputs(given: Sequence[str]) -> Any:
    """An archive's path, or the arrays of files that are named one by one."""
    if len(given) == 1 and not _is_named(given[0]):
        path = Path(given[0]).expanduser()
        return _read_npy(path) if path.suffix == ".npy" else path
    arrays: dict[str, Any] = {}
    for each in given:
        if not _is_named(each):
            raise InvalidInput.at(
                "--inputs", f"{each!r} has no name", "one .npz, or NAME=FILE.npy for each input"
            )
        name, _, file = each.rpartition("=")
        if name in arrays:
            raise InvalidInput.at("--inputs", f"{name!r} is given twice", "each input once")
        arrays[name] = _read_npy(Path(file).expanduser())
    return arrays


def _is_named(text: str) -> bool:
    return "=" in text and not Path(text).exists()


def _read_npy(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise InvalidInput.at("--inputs", f"can't read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise InvalidInput.at("--inputs", f"{path}: {error}", "an array saved as .npy") from None


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
        {"set": row["name"], "output": name, **shape, **row["comparison"].get(name, {})}
        for name, shape in row["outputs"].items()
    ]
    return lines + [
        {"set": row["name"], "output": name, "dtype": f"left out: {kind}"}
        for name, kind in row["left_out"].items()
    ]


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


def _cosine(row: Row) -> str:
    value = row.get("cosine")
    return f"{value:.8g}" if isinstance(value, int | float) else ""


def _share(row: Row) -> str:
    value = row.get("top1_agreement")
    return f"{value:.2%}" if isinstance(value, int | float) else ""


def _error(name: str) -> Any:
    def of(row: Row) -> str:
        value = row.get(name)
        return f"{value:.3g}" if isinstance(value, int | float) else ""

    return of


_SETS = (
    Column(title="SET", of=field("name")),
    Column(title="A RUN TAKES", of=_feeds),
    Column(title="RUNS", of=field("batches"), right=True),
    Column(title="P50 ms", of=marked("p50_ms"), right=True, whole=True),
    Column(title="P90 ms", of=marked("p90_ms"), right=True, whole=True),
    Column(
        title="FIRST ms",
        of=lambda row: three_digits(row.get("first_inference_ms")),
        right=True,
        whole=True,
    ),
    Column(title="VERDICT", of=lambda row: plain(row.get("verdict"))),
)

_OUTPUTS = (
    Column(title="SET", of=field("set")),
    Column(title="OUTPUT", of=field("output")),
    Column(title="SHAPE", of=lambda row: _shape(row.get("shape")), whole=True),
    Column(title="DTYPE", of=field("dtype"), whole=True),
    Column(title="MAX ERROR", of=_error("max_error"), right=True, always=False),
    Column(title="MEAN ERROR", of=_error("mean_error"), right=True, always=False),
    Column(title="PSNR", of=_psnr, right=True, always=False),
    Column(title="COSINE", of=_cosine, right=True, always=False),
    Column(title="TOP-1 SAME", of=_share, right=True, always=False),
)


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "infer")(infer)
