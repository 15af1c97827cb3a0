"""``check``: a gate for regressions, for people and for CI."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from xml.etree import ElementTree

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.api import items
from edgeyard.benchmark_api.cli.output import (
    MARKS,
    Column,
    emit,
    emit_json,
    field,
    note,
    plain,
    show,
    three_digits,
)
from edgeyard.benchmark_api.cli.output_files import check_output
from edgeyard.benchmark_api.cli.program import Output, Session, act, echo, message_of, verb
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas import notation
from edgeyard.devices.metrics import Metric
from edgeyard.errors import EdgeyardError, InvalidInput
from edgeyard.scheduler.model.quantities import ratio

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk.gate import Check, Gate


@act
def check(
    session: Session,
    job: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.yaml", help="Job file with what the candidate changes."),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="ID|TAG|FILE",
            help="Benchmark, tag (the newest completed benchmark), campaign of one, or model file "
            "to compare with.",
        ),
    ] = "",
    max_slowdown: Annotated[
        str, typer.Option(metavar="SHARE", help="Slowdown that is accepted, e.g. '3 %'.")
    ] = "3 %",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for all runs together, e.g. '15 min'.")
    ] = "30 min",
    max_pairs: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of pairs of runs, 3 to 100.")
    ] = 10,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="File, URL or name of the candidate.")
    ] = None,
    runtime: Annotated[str | None, typer.Option("--runtime", "-r", help="Engine.")] = None,
    benchmark_type: Annotated[
        str | None, typer.Option("--type", "-t", help="TYPE1 or TYPE2.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Family, if not the baseline's board.")] = None,
    target_uid: Annotated[str | None, typer.Option(help="Board, if not the baseline's.")] = None,
    nb_inference: Annotated[int | None, typer.Option(help="Timed runs of each run.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Precision of each run, e.g. '2 %'.")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="Parameter of the engine."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=SPEC", help="Random data, e.g. ids=1x128:0..30522:int."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="File, URL or name (TYPE2); rows of several files or URLs follow one another."
        ),
    ] = None,
    version_tag: Annotated[
        str | None, typer.Option(help="Version of the engine, or its beginning, e.g. 1.20.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as Markdown.")
    ] = None,
) -> None:
    """Check that a model or setting is not slower than a baseline.

    Both are measured alternately on one board until the interval of the slowdown is decided, or
    the budget is spent. The slowdown is that of the primary metric: it grew where lower is better,
    or fell where higher is better. A decision is wrong with a probability of at most 5 %. --junit
    and --markdown are written whatever the outcome is, also if a run fails or Ctrl-C ends the
    check.

    Exit status: 0 passed, 1 wrong usage or an error, 2 slower, 3 a run failed, 4 not decided,
    5 a run was cancelled, 130 Ctrl-C, which cancels the run that is under way.
    """
    files = _Files(junit, markdown)
    files.check()
    flags: dict[str, object] = {
        "model": model,
        "runtime": asking.single(runtime, "--runtime"),
        "benchmark_type": benchmark_type,
        "target": asking.single(target, "--target"),
        "target_uid": target_uid,
        "nb_inference": nb_inference,
        "precision": precision,
        "parameters": notation.parameters(parameters or ()),
        "input": notation.inputs(inputs or ()),
        "dataset": dataset[0] if dataset and len(dataset) == 1 else None,
        "dataset_urls": list(dataset) if dataset and len(dataset) > 1 else None,
        "version_tag": version_tag,
    }
    changes = {name: value for name, value in flags.items() if value not in (None, {})}
    if job is not None:
        from edgeyard.benchmark_api.sdk.submission import read_job_file, rebased

        changes = {**rebased(read_job_file(job), job.parent), **changes}
    if not baseline:
        raise InvalidInput.at("--baseline", "is missing", "an id, a tag or a model file")
    from edgeyard.benchmark_api.sdk.gate import Gate

    gate = Gate(
        session.client,
        baseline=baseline,
        max_slowdown=_share(max_slowdown),
        changes=changes,
        budget_s=asking.seconds(budget, "--budget") or 0.0,
        max_pairs=max_pairs,
        report=session.report,
    )
    status = _run(session, gate, files)
    if status:
        raise typer.Exit(status)


def _run(session: Session, gate: Gate, files: _Files) -> int:
    """Run a check, print and write its outcome, and return the exit status."""
    from edgeyard.benchmark_api.cli.exits import Exit, exit_of
    from edgeyard.benchmark_api.sdk.benchmark import Benchmark
    from edgeyard.benchmark_api.sdk.errors import BenchmarkEnded

    status: int
    try:
        with _terminated_as_interrupted():
            found = gate.run()
        status = {"passed": Exit.DONE, "failed": Exit.NOT_PLACEABLE}.get(
            found.decision.value, Exit.TIMED_OUT
        )
    except BenchmarkEnded as error:
        session.report(f"edgeyard: {error}")
        found = gate.stopped(str(error))
        status = exit_of([each for each in error.benchmarks if isinstance(each, Benchmark)])
    except EdgeyardError as error:
        found = gate.stopped(message_of(error))
        if found.pairs:
            _print(session, found)
        files.write(session, found)
        raise
    except KeyboardInterrupt:
        found = gate.stopped("it was interrupted")
        status = Exit.INTERRUPTED
        session.report("\nstopped the check")
        _print(session, found)
        _cancel(session, gate)
        session.report("to check again from the beginning, run the same command")
        files.write(session, found)
        return status
    _print(session, found)
    return files.write(session, found) or status


def _cancel(session: Session, gate: Gate) -> None:
    """Cancel the run that is under way, and report its id."""
    try:
        running = gate.cancel()
    except EdgeyardError as error:
        session.report(f"the run that was under way could not be cancelled: {error}")
        return
    if running is not None:
        session.report(f"{running} is being cancelled")


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM, by which CI systems cancel a job, as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(session: Session, found: Check) -> None:
    if session.output is Output.JSON:
        emit_json(found.as_json())
        return
    emit(session.output, items(found.as_json(), "pairs"), _columns(found.metric), "no pair")
    if session.output is Output.TABLE:
        if remarks := list(_remarks(found)):
            show(*(note(about, why) for about, why in remarks))
        echo(sentence(found))


def _columns(metric: Metric) -> tuple[Column, ...]:
    unit = printable(metric.unit or metric.name)
    return (
        Column(title="BASELINE", of=field("baseline_id"), whole=True),
        Column(title=unit, of=lambda row: three_digits(row.get("baseline_value")), right=True),
        Column(title="CANDIDATE", of=field("candidate_id"), whole=True),
        Column(title=unit, of=lambda row: three_digits(row.get("candidate_value")), right=True),
        Column(title="SLOWDOWN", of=_slowdown, right=True),
    )


def _remarks(found: Check) -> Iterator[tuple[str, str]]:
    """Yield each pair that does not count, and why."""
    from edgeyard.benchmark_api.sdk.gate import NOT_MEASURED

    for number, pair in enumerate(found.pairs, start=1):
        if not pair.counts:
            why = "; ".join(pair.reasons) or NOT_MEASURED
            yield f"pair {number} does not count", why


@dataclass(frozen=True, slots=True)
class _Files:
    """The files that a check writes at its end."""

    junit: Path | None
    markdown: Path | None

    def check(self) -> None:
        """Refuse files that could not be written, before anything runs.

        Raises:
            InvalidInput: Naming the flag.
        """
        for flag, path in self._flags():
            check_output(path, flag)
        if self.junit is not None and self.junit == self.markdown:
            raise InvalidInput.at("--markdown", "is the same file as --junit", "another file")

    def write(self, session: Session, found: Check) -> int:
        """Write them, and return an exit status: 1 if one could not be written."""
        status = 0
        for flag, path in self._flags():
            text = junit_of(found) if flag == "--junit" else markdown_of(found).encode()
            try:
                path.write_bytes(text)
            except OSError as error:
                session.report(f"edgeyard: {flag}: cannot write {path}: {error.strerror}")
                status = 1
            else:
                session.report(f"wrote {path}")
        return status

    def _flags(self) -> list[tuple[str, Path]]:
        given = (("--junit", self.junit), ("--markdown", self.markdown))
        return [(flag, path) for flag, path in given if path is not None]


def _share(text: str) -> float:
    try:
        share = ratio(text)
    except ValueError as error:
        raise InvalidInput.at("--max-slowdown", f"{text!r} {error}", "e.g. '3 %'") from None
    if share >= 1 and not text.rstrip().endswith("%"):
        reason = f"{text!r} would accept {share:.0%}"
        raise InvalidInput.at("--max-slowdown", reason, f"'{text.strip()} %', or a share below 1")
    return share


def _slowdown(row: Mapping[str, object]) -> str:
    """Return the slowdown of a pair, marked if the pair does not count."""
    return _percent(row.get("slowdown")) + ("" if row.get("counts") else MARKS["invalid"])


def _percent(value: object) -> str:
    return f"{value:+.2%}" if isinstance(value, int | float) else ""


def sentence(found: Check) -> str:
    """Return the outcome in one line."""
    interval = ""
    if found.low is not None and found.high is not None:
        level = f"{100 * found.level:.1f}".removesuffix(".0")
        interval = f" ({level} %: {found.low:+.2%} to {found.high:+.2%})"
    measured = f": {_percent(found.slowdown)}{interval}" if found.slowdown is not None else ""
    return f"{found.decision.value}{measured} on {found.target_uid or 'no board'}; {found.reason}"


def junit_of(found: Check) -> bytes:
    """Return the outcome as JUnit XML: a failure if it is slower, an error if not decided."""
    failed, undecided = (
        found.decision.value == "failed",
        found.decision.value in ("undecided", "error"),
    )
    suite = ElementTree.Element(
        "testsuite",
        name="edgeyard check",
        tests="1",
        failures=str(int(failed)),
        errors=str(int(undecided)),
    )
    case = ElementTree.SubElement(
        suite, "testcase", classname="edgeyard.check", name=_clean(f"{found.candidate} slowdown")
    )
    text = _clean(sentence(found))
    if failed or undecided:
        ElementTree.SubElement(case, "failure" if failed else "error", message=text)
    ElementTree.SubElement(case, "system-out").text = text
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _clean(text: str) -> str:
    return "".join(each for each in text if each.isprintable())


def markdown_of(found: Check) -> str:
    """Return the outcome as Markdown."""

    def cell(value: object) -> str:
        text = escape(_clean(plain(value)), quote=False)
        return text.replace("\\", "\\\\").replace("|", "\\|")

    def row(pair: Mapping[str, object]) -> str:
        cells = (
            cell(pair["baseline_id"]),
            three_digits(pair["baseline_value"]),
            cell(pair["candidate_id"]),
            three_digits(pair["candidate_value"]),
            _slowdown(pair),
        )
        return f"| {' | '.join(cells)} |"

    number = cell(found.metric.label)
    lines = [
        f"### Benchmark check {found.decision.value}",
        "",
        f"{cell(found.candidate)} against {cell(found.baseline)}: {cell(sentence(found))}.",
        "",
        f"| baseline | {number} | candidate | {number} | slowdown |",
        "| --- | ---: | --- | ---: | ---: |",
        *map(row, items(found.as_json(), "pairs")),
    ]
    if remarks := list(_remarks(found)):
        lines += ["", *(f"- {cell(about)}: {cell(why)}." for about, why in remarks)]
    return "\n".join(lines) + "\n"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "check")(check)
