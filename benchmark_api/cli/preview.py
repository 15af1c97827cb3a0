"""``submit --dry-run``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from edgeyard.benchmark_api.cli.api import items
from edgeyard.benchmark_api.cli.exits import Exit
from edgeyard.benchmark_api.cli.output import (
    emit_csv,
    emit_json,
    parameters_text,
    plain,
    show,
    size,
)
from edgeyard.benchmark_api.cli.pictures import preview_picture
from edgeyard.benchmark_api.cli.program import Output, Session
from edgeyard.benchmark_api.printing import printable
from edgeyard.benchmark_api.schemas.answers import as_json

if TYPE_CHECKING:
    from edgeyard.benchmark_api.sdk import DryRun, UploadedFile


def preview(
    session: Session, description: Mapping[str, object], upload: Callable[[Path], UploadedFile]
) -> None:
    """Show what would happen; exit with 2 if a benchmark is infeasible."""
    found = session.client.preview(description, upload=upload, hash_file=_hash_file(session))
    _show(session, found)


def preview_clone(
    session: Session,
    origin: str,
    changes: Mapping[str, object],
    upload: Callable[[Path], UploadedFile],
) -> None:
    """Show what would happen to a clone; exit with 2 if it is infeasible."""
    client, hash_file = session.client, _hash_file(session)
    _show(session, [client.preview_clone(origin, changes, upload=upload, hash_file=hash_file)])


def _hash_file(session: Session) -> Callable[[Path], str]:
    def hash_file(path: Path) -> str:
        from edgeyard.benchmark_api.cli.uploading import hash_with_progress

        return hash_with_progress(session, path)

    return hash_file


def _show(session: Session, found: Sequence[DryRun]) -> None:
    answers = [as_json(one) for one in found]
    for warning in dict.fromkeys(plain(text) for one in answers for text in _warnings(one)):
        session.report(f"warning: {warning}")
    kept = {file.name: file.size_bytes for one in found for file in one.not_uploaded}
    if kept:
        files = [f"{plain(name)} ({size(size_bytes)})" for name, size_bytes in kept.items()]
        session.report(f"not uploaded, only checked here: {', '.join(files)}")
    if session.output is Output.JSON:
        emit_json(answers[0] if len(answers) == 1 else list(answers))
    elif session.output is Output.CSV:
        many = len(answers) > 1
        emit_csv([row for one in answers for row in _boards(one, of_matrix=many)])
    else:
        if len(answers) == 1 and answers[0].get("hcl"):
            show(Text("The job as it would be dispatched:\n", style="bold"))
            sys.stdout.write(printable(plain(answers[0].get("hcl")).rstrip()) + "\n\n")
        for number, answer in enumerate(answers):
            show(*([Text()] if number else []), *preview_picture(answer))
        if len(answers) > 1:
            session.report("\nto see the jobs: -o json")
    if any(answer.get("would") == "never" for answer in answers):
        raise typer.Exit(Exit.NOT_PLACEABLE)


def _warnings(answer: Mapping[str, object]) -> list[object]:
    warnings = answer.get("warnings")
    return warnings if isinstance(warnings, list) else []


def _boards(answer: Mapping[str, object], *, of_matrix: bool) -> list[Mapping[str, object]]:
    """Return a row for each board; of a matrix with the values that vary in it."""
    rows, description = items(answer, "boards"), answer.get("description")
    if not of_matrix or not isinstance(description, Mapping):
        return rows
    values = {name: description.get(name) for name in ("model", "target", "runtime")}
    parameters = parameters_text(description.get("parameters"))
    return [{**values, "parameters": parameters, **row} for row in rows]
