"""``make docs``: how many lines of code each folder has, a table in docs/architecture.md."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from pathlib import Path

from deploy.tables import write_between

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/architecture.md"
BEGIN = "<!-- made by make docs -->"
PRODUCT = ("scheduler", "benchmark_api", "devices", "plugins", "testbed")
OTHERS = ("simulator", "training", "deploy", "benchmarks", "tests")
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(source: str) -> int:
    """Return how many lines of Python have code: no comments, docstrings or empty lines."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def counted() -> Mapping[str, int]:
    """Return the lines of code by folder; what protoc has made is left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    paths = [ROOT / each for each in listed] or [
        path for folder in (*PRODUCT, *OTHERS) for path in (ROOT / folder).rglob("*.py")
    ]
    found = dict.fromkeys((*PRODUCT, *OTHERS), 0)
    for path in paths:
        folder = path.relative_to(ROOT).parts[0]
        if folder in found and not path.name.endswith("_pb2.py") and path.is_file():
            found[folder] += code_lines(path.read_text("utf-8"))
    return found


def table() -> str:
    """Return the counts as Markdown, to the next hundred."""
    found = counted()
    product = sum(found[each] for each in PRODUCT)
    shipped = product + sum(found[each] for each in OTHERS[:-1])
    rows = [
        *((f"`{each}/`", found[each]) for each in PRODUCT),
        ("the product", product),
        *((f"`{each}/`", found[each]) for each in OTHERS[:-1]),
        ("all but tests", shipped),
        (f"`{OTHERS[-1]}/`", found[OTHERS[-1]]),
    ]
    body = [f"| {name} | {round(lines, -2):,} |" for name, lines in rows]
    return "\n".join(["| folder | lines of code |", "| --- | ---: |", *body])


def write() -> None:
    """Write the table into its page."""
    write_between(PAGE, BEGIN, table())


if __name__ == "__main__":
    write()
    sys.stdout.write(f"{table()}\n")
