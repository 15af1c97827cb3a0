"""Commands that a page, a message or the demo suggests exist, with their options."""

import functools
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from edgeyard.benchmark_api.cli import app

ROOT = Path(__file__).parents[2]
_PROGRAM = r"(?:\.venv/bin/)?edgeyard "
_SUGGESTION = re.compile(
    rf"^ *\$ {_PROGRAM}([a-z].*)|`{_PROGRAM}([a-z][^`]*)`|\" +{_PROGRAM}([a-z][^\"]*)",
    re.MULTILINE,
)
_INCOMPLETE = ("MissingParameter", "BadParameter", "BadOptionUsage", "NoArgsIsHelpError")
_SHELL = re.compile(r"\s*(?:[|<>&;]|\d?>).*$")


def suggestions() -> list[tuple[str, str]]:
    """Return all suggested commands, each with the file that suggests it."""
    named = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = set()
    for name in named.stdout.split():
        if name.startswith("tests/") or name == "CHANGELOG.md":
            continue
        content = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
        for match in _SUGGESTION.finditer(content):
            words = next(filter(None, match.groups())).split(" #")[0]
            found.add((name, _SHELL.sub("", words).strip()))
    return sorted(found)


def suggestions_of_pages() -> list[tuple[str, str]]:
    """Return all commands that the lab's pages suggest, NAME for what a page fills in."""
    found = set()
    for template in (ROOT / "templates/pages").glob("*.j2"):
        text = re.sub(r"{%.*?%}", "", re.sub(r"{{.*?}}", "NAME", template.read_text("utf-8")))
        found |= {(template.name, each) for each in re.findall("<code>edgeyard ([^<]+)", text)}
    return sorted(found)


@functools.cache
def program() -> Any:
    """Return the tree of all commands, which takes longer to build than to search."""
    return typer.main.get_command(app)


@pytest.mark.parametrize(("where", "words"), [*suggestions(), *suggestions_of_pages()])
def test_a_suggested_command_exists(where: str, words: str) -> None:
    command = program()
    context = command.context_class(command, info_name="edgeyard")
    arguments = shlex.split(words)
    while hasattr(command, "get_command") and arguments:
        found = command.get_command(context, arguments[0])
        assert found is not None, f"{where} suggests `edgeyard {words}`, which does not exist"
        command, parent = found, context
        context = command.context_class(command, parent=parent, info_name=arguments.pop(0))
    refusal = ""
    try:
        command.make_context(command.name, arguments)
    except typer.TyperException as error:
        # prose names a command without what it is about, and values that stand for others
        if type(error).__name__ not in _INCOMPLETE:
            refusal = str(error)
    assert not refusal, f"{where} suggests `edgeyard {words}`"


def test_suggestions_are_found_where_people_read_them() -> None:
    places = {where for where, _ in suggestions()}
    assert {"README.md", "deploy/demo/__main__.py", "docs/how-to/compare-boards.md"} <= places


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(AssertionError, match="does not exist"):
        test_a_suggested_command_exists("page", "resluts --tag demo")
    with pytest.raises(AssertionError, match="results --tagged"):
        test_a_suggested_command_exists("page", "results --tagged demo")
