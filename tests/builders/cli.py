"""Commands that run in this process, and what they print."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app


def run(*words: object) -> Result:
    """Run a command; an error that it does not report itself is raised."""
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


def refusal(found: Result) -> str:
    """What a command that was refused says."""
    assert found.exit_code == 1, found.output
    return found.stderr


def printed(found: Result) -> str:
    """What a command that ended well prints."""
    assert found.exit_code == 0, found.output
    return found.stdout
