"""The words of the glossary are the ones used: in names, messages and pages of the product."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = (
    *("scheduler", "benchmark_api", "devices", "plugins", "templates", "testbed"),
    *("simulator", "training", "deploy", "benchmarks"),
    *("docs", "src/edgeyard/errors.py", "README.md", "CONTRIBUTING.md", "SECURITY.md"),
)
GENERATED = ("docs/reference/openapi.json",)

MAX_TOLD = 20
"""Uses of told, foretold and their forms in the whole product."""
MAX_OTHER = 20
"""Uses of all words of the glossary's column "not" together, without those of `TOLD`."""

TOLD = ("told", "foretold", "foretell", "foretells", "foretelling", "foreteller")
PARTICIPLES = (
    *("Asked", "Chosen", "Decided", "Explained", "Rolled", "Shown", "Told", "Kept", "Found"),
    *("Seen", "Taken", "Given", "Made", "Held", "Known", "Counted", "Granted", "Looked"),
    *("Telling", "Keeping", "Bearing", "Waiting", "Asking", "Storing", "Exploring"),
    *("Imported", "Received", "Planned", "Prepared"),
)
BOUNDS = re.compile(r"^_*(most|least|fewest|longest|widest)(_|$)", re.IGNORECASE)
ALLOWED_NAMES = frozenset({"least_loaded"})
"""The name of a load-balancing rule, which is the field's own."""


def product() -> Iterator[tuple[str, str]]:
    """Names and contents of the product's text files."""
    listed = subprocess.run(
        ["git", "ls-files", *PRODUCT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split():
        path = ROOT / name
        if name in GENERATED or path.is_symlink() or path.suffix in (".sum", ".mod"):
            continue
        try:
            yield name, path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


TEXTS = dict(product())


def table() -> Iterator[tuple[str, str]]:
    """Terms and the words that are not used for them."""
    for line in TEXTS["docs/glossary.md"].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] not in ("term", "---"):
            yield cells[0], cells[2]


OTHER = tuple(
    word for _, words in table() for word in words.split(", ") if word and word not in TOLD
)


def uses(words: tuple[str, ...]) -> list[str]:
    """Each use of one of these words, with its file and line."""
    pattern = re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE)
    glossary = "docs/glossary.md"  # lists the words that are not used
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for name, text in TEXTS.items()
        if name != glossary
        for found in pattern.finditer(text)
    ]


@pytest.mark.parametrize(("words", "limit"), [(TOLD, MAX_TOLD), (OTHER, MAX_OTHER)])
def test_other_words_than_the_glossary_s_are_rare(words: tuple[str, ...], limit: int) -> None:
    found = uses(words)
    assert len(found) <= limit, "\n".join([f"{len(found)} uses, {limit} allowed:", *found])


def names(tree: ast.AST) -> Iterator[tuple[type[ast.AST], str, int]]:
    """Names that a module defines: constants, fields, attributes, parameters, variables.

    Each with the kind of node that defines it, and its line.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield ast.Name, node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield ast.Attribute, node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield ast.arg, node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield type(node), node.name, node.lineno


@cache
def defined_names() -> list[tuple[type[ast.AST], str, str]]:
    """All names of the product's modules: the kind of node, the name, and where it is."""
    return [
        (kind, name, f"{module}:{line}: {name}")
        for module, text in TEXTS.items()
        if module.endswith(".py")
        for kind, name, line in names(ast.parse(text))
    ]


@pytest.mark.slow
@pytest.mark.xdist_group("glossary")
def test_bounds_are_named_min_and_max() -> None:
    wrong = [
        place
        for _, name, place in defined_names()
        if BOUNDS.match(name) and name not in ALLOWED_NAMES
    ]
    keys = [
        f"{name}: {key}"
        for name, text in TEXTS.items()
        if name.endswith(".toml")
        for key in re.findall(r"^(\w+) *=", text, re.MULTILINE)
        if BOUNDS.match(key)
    ]
    assert wrong + keys == []


@pytest.mark.slow
@pytest.mark.xdist_group("glossary")
def test_a_job_description_is_not_named_asked() -> None:
    assert [place for _, name, place in defined_names() if name.strip("_") == "asked"] == []


@pytest.mark.slow
@pytest.mark.xdist_group("glossary")
def test_classes_are_nouns() -> None:
    wrong = [
        place
        for kind, name, place in defined_names()
        if kind is ast.ClassDef and name.strip("_") in PARTICIPLES
    ]
    assert wrong == []


def test_the_glossary_is_linked_and_lists_no_term_twice() -> None:
    assert "(docs/glossary.md)" in TEXTS["README.md"]
    terms = [term for row, _ in table() for term in row.split(", ")]
    assert len(terms) > 40
    assert [term for term in set(terms) if terms.count(term) > 1] == []
