"""``check``: a gate for regressions, for people and for CI."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack
from xml.etree import ElementTree

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.api import items
from edgeyard.benchmark_api.cli.job_flags import fields_of
from edgeyard.benchmark_api.cli.output import (
    MARKS,
    Column,
    digits_field,
    emit,
    emit_json,
    field,
    local_time,
    note,
    plain,
    show,
    three_digits,
)
from edgeyard.benchmark_api.cli.output_files import check_output
from edgeyard.benchmark_api.cli.program import (
    Output,
    Session,
    act,
    add_group,
    echo,
    message_of,
    verb,
)
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.devices.metrics import Metric
from edgeyard.errors import EdgeyardError, InvalidInput
from edgeyard.scheduler.model.quantities import ratio

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk.gate import Check, Gate


class CandidateFlags(TypedDict):
    """Flags of ``check`` that set fields of the candidate's job description."""

    model: Annotated[
        str | None, typer.Option("--model", "-m", help="File, URL or name of the candidate.")
    ]
    runtime: Annotated[str | None, typer.Option("--runtime", "-r", help="Engine.")]
    benchmark_type: Annotated[
        str | None, typer.Option("--type", "-t", help="TYPE1, TYPE2 or GENAI.")
    ]
    target: Annotated[str | None, typer.Option(help="Family, if not the baseline's board.")]
    target_uid: Annotated[str | None, typer.Option(help="Board, if not the baseline's.")]
    nb_inference: Annotated[int | None, typer.Option(help="Timed runs of each run.")]
    precision: Annotated[str | None, typer.Option(help="Precision of each run, e.g. '2 %'.")]
    parameters: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="Parameter of the engine."),
    ]
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=SPEC", help="Random data, e.g. ids=1x128:0..30522:int."
        ),
    ]
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="File, URL or name (TYPE2); rows of several files or URLs follow one another."
        ),
    ]
    version_tag: Annotated[
        str | None, typer.Option(help="Version of the engine, or its beginning, e.g. 1.20.")
    ]


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
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Measure also what is the same as the baseline."),
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outcome as Markdown.")
    ] = None,
    comment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a comment for a pull request as Markdown, only if the number changed; "
            "otherwise remove FILE.",
        ),
    ] = None,
    **flags: Unpack[CandidateFlags],
) -> None:
    """Check that a model or setting is not slower than a baseline.

    Both are measured alternately on one board until the interval of the slowdown is decided, or
    the budget is spent. The slowdown is that of the primary metric: it grew where lower is better,
    or fell where higher is better. A decision is wrong with a probability of at most 5 %. --junit
    and --markdown are written whatever the outcome is, also if a run fails or Ctrl-C ends the
    check; --comment only if the interval of the slowdown leaves out 0. Two versions of which
    nothing differs are not measured without --self-test: the decision is `unchanged`.

    Exit status: 0 passed or unchanged, 1 wrong usage or an error, 2 slower, 3 a run failed, 4 not
    decided, 5 it or a run was cancelled, 130 Ctrl-C, which cancels it.

    The server drives the check: it goes on if the command is lost (`edgeyard checks`).
    """
    files = _Files(junit, markdown, comment)
    files.check()
    for name, value in (("--runtime", flags["runtime"]), ("--target", flags["target"])):
        asking.single(value, name)
    changes = fields_of(flags)
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
        self_test=self_test,
        report=session.report,
        sleep=time.sleep,
        monotonic_s=time.monotonic,
    )
    status = _run(session, gate, files)
    if status:
        raise typer.Exit(status)


def _run(session: Session, gate: Gate, files: _Files) -> int:
    """Run a check, print and write its outcome, and return the exit status."""
    from edgeyard.benchmark_api.cli.exits import Exit, exit_of
    from edgeyard.benchmark_api.sdk.benchmark import Benchmark
    from edgeyard.benchmark_api.sdk.errors import (
        BenchmarkCancelled,
        BenchmarkEnded,
        ServerNotReached,
    )

    status: int
    try:
        with _terminated_as_interrupted():
            found = gate.run()
        status = {
            "passed": Exit.DONE,
            "unchanged": Exit.DONE,
            "failed": Exit.NOT_PLACEABLE,
            "error": Exit.ERROR,
        }.get(found.decision.value, Exit.TIMED_OUT)
    except BenchmarkEnded as error:
        session.report(f"edgeyard: {error}")
        found = gate.stopped(str(error))
        status = exit_of([each for each in error.benchmarks if isinstance(each, Benchmark)])
        if isinstance(error, BenchmarkCancelled):
            status = Exit.CANCELLED
    except EdgeyardError as error:
        found = gate.stopped(message_of(error))
        if found.pairs:
            _print(session, found)
        if isinstance(error, ServerNotReached) and gate.check_id:
            session.report(f"the server goes on with it: edgeyard checks show {gate.check_id}")
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
    """Cancel the check, and report the run that was under way."""
    try:
        running = gate.cancel()
    except EdgeyardError as error:
        session.report(f"the check could not be cancelled, and goes on: {error}")
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


def _print(session: Session, found: Check, status: str | None = None) -> None:
    if session.output is Output.JSON:
        emit_json(found.as_json())
        return
    if found.decision.value != "unchanged":
        emit(session.output, items(found.as_json(), "pairs"), _columns(found.metric), "no pair")
    if session.output is Output.TABLE:
        if remarks := list(_remarks(found)):
            show(*(note(about, why) for about, why in remarks))
        echo(sentence(found, status))


def _columns(metric: Metric) -> tuple[Column, ...]:
    unit = printable(metric.unit or metric.name)
    return (
        Column(title="BASELINE", of=field("baseline_id"), whole=True, yields=2),
        Column(title=f"BASELINE {unit}", of=digits_field("baseline_value"), right=True, whole=True),
        Column(title="CANDIDATE", of=field("candidate_id"), whole=True, yields=1),
        Column(
            title=f"CANDIDATE {unit}", of=digits_field("candidate_value"), right=True, whole=True
        ),
        Column(title="SLOWDOWN", of=_slowdown, right=True, whole=True),
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
    comment: Path | None

    def check(self) -> None:
        """Refuse files that could not be written, before anything runs.

        Raises:
            InvalidInput: Naming the flag.
        """
        flags: dict[Path, str] = {}
        for flag, path in self._flags():
            check_output(path, flag)
            if (other := flags.setdefault(path, flag)) != flag:
                raise InvalidInput.at(flag, f"is the same file as {other}", "another file")

    def write(self, session: Session, found: Check) -> int:
        """Write them, and return an exit status: 1 if one could not be written."""
        status = 0
        for flag, path in self._flags():
            try:
                if flag == "--comment" and not found.changed:
                    _remove(path)  # left by an earlier check
                    session.report(f"no change was found: {path} is not written")
                    continue
                path.write_bytes(_CONTENTS[flag](found))
            except OSError as error:
                session.report(f"edgeyard: {flag}: cannot write {path}: {error.strerror}")
                status = 1
            else:
                session.report(f"wrote {path}")
        return status

    def _flags(self) -> list[tuple[str, Path]]:
        given = (
            ("--junit", self.junit),
            ("--markdown", self.markdown),
            ("--comment", self.comment),
        )
        return [(flag, path) for flag, path in given if path is not None]


def _remove(path: Path) -> None:
    """Remove a file if there is one; devices stay."""
    if path.is_file():
        path.unlink()


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


def sentence(found: Check, status: str | None = None) -> str:
    """Return the outcome in one line.

    Args:
        found: The outcome.
        status: The check's own, where it has no decision: it runs, or was cancelled.
    """
    if found.decision.value == "unchanged":
        return f"unchanged: {found.reason}"
    interval = ""
    if found.low is not None and found.high is not None:
        level = f"{100 * found.level:.1f}".removesuffix(".0")
        interval = f" ({level} %: {found.low:+.2%} to {found.high:+.2%})"
    measured = f": {_percent(found.slowdown)}{interval}" if found.slowdown is not None else ""
    why = f"; {found.reason}" if found.reason else ""
    return f"{status or found.decision.value}{measured} on {found.target_uid or 'no board'}{why}"


def junit_of(found: Check) -> bytes:
    """Return the outcome as JUnit XML: a failure if it is slower, an error if not decided.

    The test is skipped if nothing differs.
    """
    failed, undecided, unchanged = (
        found.decision.value == "failed",
        found.decision.value in ("undecided", "error"),
        found.decision.value == "unchanged",
    )
    suite = ElementTree.Element(
        "testsuite",
        name="edgeyard check",
        tests="1",
        failures=str(int(failed)),
        errors=str(int(undecided)),
        skipped=str(int(unchanged)),
    )
    case = ElementTree.SubElement(
        suite, "testcase", classname="edgeyard.check", name=_clean(f"{found.candidate} slowdown")
    )
    text = _clean(sentence(found))
    if failed or undecided:
        ElementTree.SubElement(case, "failure" if failed else "error", message=text)
    if unchanged:
        ElementTree.SubElement(case, "skipped", message=text)
    ElementTree.SubElement(case, "system-out").text = text
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _clean(text: str) -> str:
    return "".join(each for each in text if each.isprintable())


def markdown_of(found: Check) -> str:
    """Return the outcome as Markdown."""
    lines = [
        f"### Benchmark check {found.decision.value}",
        "",
        f"{_versions(found)}: {_cell(sentence(found))}.",
    ]
    if found.decision.value != "unchanged":
        lines += ["", *_pairs(found)]
    return "\n".join(lines) + "\n"


COMMENT_MARK = "<!-- edgeyard check -->"
"""First line of a comment, not displayed. Scripts search for it to replace their own comment."""


def comment_of(found: Check) -> str:
    """Return a comment for a pull request, whose pairs are folded; the interval leaves out 0."""
    slower = (found.slowdown or 0.0) > 0
    size = f"{abs(found.slowdown or 0.0):.1%}".replace("%", " %")
    lines = [
        COMMENT_MARK,
        f"### {size} {'slower' if slower else 'faster'}: {_cell(found.candidate)}",
        "",
        f"{_versions(found)}: {_cell(sentence(found))}.",
        "",
        "<details><summary>Pairs of runs, one directly after the other</summary>",
        "",
        *_pairs(found),
        "",
        "</details>",
    ]
    return "\n".join(lines) + "\n"


def _versions(found: Check) -> str:
    return f"{_cell(found.candidate)} against {_cell(found.baseline)}"


def _pairs(found: Check) -> Iterator[str]:
    """Yield the lines of a table of the pairs, and why some do not count."""
    number = _cell(found.metric.label)
    yield f"| baseline | {number} | candidate | {number} | slowdown |"
    yield "| --- | ---: | --- | ---: | ---: |"
    for pair in items(found.as_json(), "pairs"):
        cells = (
            _cell(pair["baseline_id"]),
            three_digits(pair["baseline_value"]),
            _cell(pair["candidate_id"]),
            three_digits(pair["candidate_value"]),
            _slowdown(pair),
        )
        yield f"| {' | '.join(cells)} |"
    if remarks := list(_remarks(found)):
        yield ""
        yield from (f"- {_cell(about)}: {_cell(why)}." for about, why in remarks)


def _cell(value: object) -> str:
    """Return a text that Markdown and its tables show as it is, and that mentions nobody."""
    text = re.sub(r"([\\`*\[\]|~])", r"\\\1", _clean(plain(value)))
    return escape(text, quote=False).replace("@", "@\u200b").replace("://", ":\u200b//")


_CONTENTS: Mapping[str, Callable[[Check], bytes]] = {
    "--junit": junit_of,
    "--markdown": lambda found: markdown_of(found).encode(),
    "--comment": lambda found: comment_of(found).encode(),
}


CheckId = Annotated[str, typer.Argument(metavar="CHECK", show_default=False)]

_CHECKS = (
    Column(title="CHECK", of=field("check_id"), whole=True),
    Column(title="STATUS", of=field("status"), whole=True),
    Column(title="SLOWDOWN", of=lambda row: _percent(row.get("slowdown")), right=True, whole=True),
    Column(title="PAIRS", of=lambda row: str(len(items(row, "pairs"))), right=True, whole=True),
    Column(title="PURPOSE", of=field("purpose"), whole=True),
    Column(title="CANDIDATE", of=field("candidate"), shorten=True),
    Column(title="BASELINE", of=field("baseline"), shorten=True, from_width=110),
    Column(title="BOARD", of=field("target_uid"), whole=True, yields=1),
    Column(title="STARTED", of=lambda row: local_time(row.get("created_at")), whole=True, yields=2),
    Column(title="OWNER", of=field("user_id"), whole=True, yields=3),
)


def list_checks(
    session: Session,
    status: Annotated[
        str | None,
        typer.Option(help="running, passed, failed, undecided, error or cancelled."),
    ] = None,
) -> None:
    """List checks, newest first; operators see everybody's.

    PURPOSE is `comparison` if a user started it, and otherwise what Edgeyard started it for: the
    `confirmation` of a suspected change of a series, or the `bisection` of its versions.
    """
    rows = [as_json(each) for each in session.client.checks(status)]
    emit(session.output, rows, _CHECKS, "no checks")


def show_check(session: Session, check_id: CheckId) -> None:
    """Show a check with its pairs and its outcome, or what is known while it runs."""
    from edgeyard.benchmark_api.sdk.gate import outcome_of

    found = session.client.check_state(check_id)
    if session.output is Output.JSON:
        emit_json(as_json(found))
        return
    _print(session, outcome_of(found), found.status)
    if found.purpose != "comparison" and session.output is Output.TABLE:
        what = {"confirmation": "a suspected change of a series", "bisection": "its versions"}
        echo(f"{found.purpose} of {what[found.purpose]}, which Edgeyard started")


@act
def cancel_check(session: Session, check_id: CheckId) -> None:
    """Cancel a check and the run that is under way."""
    found = session.client.cancel_check(check_id)
    ended = "is cancelled" if found.status == "cancelled" else f"has ended: {found.status}"
    session.report(f"{check_id} {ended}")


def add_to(app: typer.Typer) -> None:
    """Register the command and the group."""
    verb(app, "check")(check)
    add_group(
        app,
        "checks",
        "Checks that the server drives, and those that have ended.",
        {"list": list_checks, "show": show_check, "cancel": cancel_check},
    )
