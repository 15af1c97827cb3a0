"""``check``: a gate for regressions, for people and for CI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from xml.etree import ElementTree

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import Column, emit, emit_json, field, plain, three_digits
from edgeyard.benchmark_api.cli.program import Output, Session, echo, verb
from edgeyard.benchmark_api.printing import printable
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.quantities import ratio

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk.gate import Check

_COLUMNS = (
    Column(title="BASELINE", of=field("baseline_id"), whole=True),
    Column(title="ms", of=lambda row: three_digits(row.get("baseline_ms")), right=True),
    Column(title="CANDIDATE", of=field("candidate_id"), whole=True),
    Column(title="ms", of=lambda row: three_digits(row.get("candidate_ms")), right=True),
    Column(title="SLOWDOWN", of=lambda row: _percent(row.get("ratio"), 1.0), right=True),
)


def check(
    session: Session,
    job: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.yaml", help="Job file with what the candidate changes."),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="ID|LABEL|FILE",
            help="Benchmark, label of benchmarks (the newest counts), or model file to compare "
            "with.",
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
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as Markdown.")
    ] = None,
) -> None:
    """Check that a model or setting is not slower than a baseline.

    Both are measured alternately on one board until the interval of the slowdown is decided, or
    the budget is spent. A decision is wrong with a probability of at most 5 %. The exit status is
    0 if it passed, 2 if it is slower, 4 if it was not decided.
    """
    from edgeyard.benchmark_api.cli.exits import Exit
    from edgeyard.benchmark_api.sdk.errors import BenchmarkEnded
    from edgeyard.benchmark_api.sdk.gate import Decision
    from edgeyard.benchmark_api.sdk.gate import check as measure
    from edgeyard.benchmark_api.sdk.submission import read_job_file, rebased

    if not baseline:
        raise InvalidInput.at("--baseline", "is missing", "an id, a label or a model file")
    flags: dict[str, object] = {
        "model": model,
        "runtime": runtime,
        "benchmark_type": benchmark_type,
        "target": target,
        "target_uid": target_uid,
        "nb_inference": nb_inference,
        "precision": precision,
        "parameters": asking.parameters(parameters or ()),
    }
    changes = {name: value for name, value in flags.items() if value not in (None, {})}
    if job is not None:
        changes = {**rebased(read_job_file(job), job.parent), **changes}
    budget_s = asking.seconds(budget, "--budget")
    try:
        found = measure(
            session.client,
            baseline=baseline,
            max_slowdown=_share(max_slowdown),
            changes=changes,
            budget_s=budget_s or 0.0,
            max_pairs=max_pairs,
            report=session.report,
        )
    except BenchmarkEnded as error:
        session.report(f"edgeyard: {error}")
        raise typer.Exit(Exit.FAILED) from None
    if junit is not None:
        junit.write_bytes(junit_of(found))
        session.report(f"wrote {junit}")
    if markdown is not None:
        markdown.write_text(markdown_of(found), encoding="utf-8")
        session.report(f"wrote {markdown}")
    if session.output is Output.JSON:
        emit_json(found.as_json())
    else:
        pairs = found.as_json()["pairs"]
        emit(session.output, pairs if isinstance(pairs, list) else [], _COLUMNS, "no pair")
        if session.output is Output.TABLE:
            echo(printable(sentence(found)))
    status = {Decision.FAILED: Exit.NOT_PLACEABLE, Decision.UNDECIDED: Exit.TIMED_OUT}
    if found.decision in status:
        raise typer.Exit(status[found.decision])


def _share(text: str) -> float:
    try:
        share = ratio(text)
    except ValueError as error:
        raise InvalidInput.at("--max-slowdown", f"{text!r} {error}", "e.g. '3 %'") from None
    if share >= 1 and not text.rstrip().endswith("%"):
        reason = f"{text!r} would accept {share:.0%}"
        raise InvalidInput.at("--max-slowdown", reason, f"'{text.strip()} %', or a share below 1")
    return share


def _percent(value: object, less: float = 0.0) -> str:
    return f"{value - less:+.2%}" if isinstance(value, int | float) else ""


def sentence(found: Check) -> str:
    """Return the outcome in one line."""
    interval = ""
    if found.low is not None and found.high is not None:
        interval = f" (95 %: {found.low:+.2%} to {found.high:+.2%})"
    measured = f": {_percent(found.slowdown)}{interval}" if found.slowdown is not None else ""
    return f"{found.decision.value}{measured} on {found.target_uid or 'no board'}; {found.reason}"


def junit_of(found: Check) -> bytes:
    """Return the outcome as JUnit XML: a failure if it is slower, an error if undecided."""
    failed, undecided = found.decision.value == "failed", found.decision.value == "undecided"
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
        return _clean(plain(value)).replace("\\", "\\\\").replace("|", "\\|")

    def row(pair: Mapping[str, object]) -> str:
        cells = (
            cell(pair["baseline_id"]),
            three_digits(pair["baseline_ms"]),
            cell(pair["candidate_id"]),
            three_digits(pair["candidate_ms"]),
            _percent(pair["ratio"], 1.0) or "invalid",
        )
        return f"| {' | '.join(cells)} |"

    pairs = found.as_json()["pairs"]
    lines = [
        f"### Benchmark check {found.decision.value}",
        "",
        f"{cell(found.candidate)} against {cell(found.baseline)}: {cell(sentence(found))}.",
        "",
        "| baseline | p50, ms | candidate | p50, ms | slowdown |",
        "| --- | ---: | --- | ---: | ---: |",
        *(row(each) for each in (pairs if isinstance(pairs, list) else [])),
    ]
    return "\n".join(lines) + "\n"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    verb(app, "check")(check)
