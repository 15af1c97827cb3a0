"""The command line against a server whose every text holds terminal escape sequences.

Names of models, boards and users, reasons and logs come from people and machines that may mean
harm. The answers are made from the documented schemas, so that a new field is tried as well.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from edgeyard.benchmark_api.cli import app
from tests.fakes.api_server import Answer, FakeServer

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
SCHEMA = json.loads(REFERENCE.read_text())
#: Set the title, clear the screen, a C1 sequence, carriage return, backspace, right-to-left.
ESCAPES = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r\b \u202e"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ID = "rpi4b-ort-20261121080000-abcdefghij"
READS = [
    "list",
    f"show {ID}",
    f"explain {ID}",
    f"hcl {ID}",
    f"events {ID}",
    "queue",
    f"results {ID}",
    f"results {ID} {ID}",
    "results --tag x",
    "limits",
    "limits --all",
    "boards list",
    "boards show rpi4b-0001-0001",
    "boards check",
    "boards leases",
    "files list",
    "tokens list",
    "users list",
    "users account",
    "rates list",
    "campaigns show x",
    "schedules list",
    "schedules show s-1",
    "policies list",
    "policies show default",
    "scorers list",
    "strays list",
    "doctor",
    f"retry {ID}",
    f"cancel {ID}",
    f"hold {ID}",
    f"preempt {ID}",
]


def sample(schema: dict[str, Any], name: str = "", depth: int = 0) -> Any:
    """Return a value of the schema whose free texts are all hostile."""
    if "$ref" in schema:
        found = SCHEMA["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        return sample(found, name, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [each for each in schema[several] if each.get("type") != "null"]
            nullable = len(kinds) < len(schema[several])
            last_page = "next" in name or "cursor" in name
            return None if nullable and (last_page or depth > 9) else sample(kinds[0], name, depth)
    match schema.get("type"):
        case "object":
            more = schema.get("additionalProperties")
            given = {
                key: sample(each, key, depth + 1)
                for key, each in schema.get("properties", {}).items()
            }
            if isinstance(more, dict) and depth < 10:
                given[f"key {ESCAPES}"] = sample(more, "", depth + 1)
            return given
        case "array":
            return [sample(schema.get("items", {}), "", depth + 1)] if depth < 10 else []
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "string" if schema.get("format") == "date-time" or name.endswith(("_at", "_time")):
            return "2026-11-21T08:00:00Z"
        case "string":
            return f"{name} {ESCAPES}"
    return f"{name} {ESCAPES}"


class HostileServer(FakeServer):
    """Answers any documented route from its schema; texts and lists of events end."""

    def __init__(self) -> None:
        super().__init__(self._hostile)
        self._streamed: set[str] = set()

    def _hostile(self, method: str, path: str) -> Answer | None:
        if not path.endswith(("/logs", "/events")):
            return hostile(method, path)
        if path in self._streamed:
            return Answer({"items": []} if path.endswith("/events") else b"")
        self._streamed.add(path)
        return hostile(method, path)


def hostile(method: str, path: str) -> Answer | None:
    """Answer a documented route from its schema."""
    for stated, operations in SCHEMA["paths"].items():
        pattern = re.sub(r"\{[^}]+\}", "[^/]+", stated)
        if re.fullmatch(pattern, path) and method.lower() in operations:
            answers = operations[method.lower()]["responses"]
            status = next(each for each in answers if each.startswith("2"))
            content = answers[status].get("content", {})
            if "text/plain" in content or "application/octet-stream" in content:
                return Answer(f"line {ESCAPES}\n".encode(), int(status))
            schema = content.get("application/json", {}).get("schema", {})
            return Answer(sample(schema), int(status))
    return None


def refusing(method: str, path: str) -> Answer:
    """Answer with a hostile problem."""
    problem = {
        "status": 409,
        "code": "conflict",
        "title": ESCAPES,
        "detail": f"detail {ESCAPES}",
        "errors": [{"pointer": f"/a{ESCAPES}", "detail": f"error {ESCAPES}"}],
    }
    return Answer(problem, 409, {"Content-Type": "application/problem+json"})


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EDGEYARD_TOKEN", "ey_token")
    monkeypatch.setattr(time, "sleep", lambda _: None)


def run(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setenv("EDGEYARD_URL", url)
    return CliRunner().invoke(app, words.split(), catch_exceptions=False)


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("words", READS)
@pytest.mark.usefixtures("alone")
def test_no_escape_of_an_answer_reaches_the_terminal(
    words: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEYARD_COLUMNS", columns)
    with HostileServer() as server:
        result = run(server.url, words, monkeypatch)
    assert result.output, "the command printed nothing"
    assert not CONTROL.findall(result.output)


@pytest.mark.parametrize("words", READS)
@pytest.mark.usefixtures("alone")
def test_no_escape_of_a_refusal_reaches_the_terminal(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeServer(refusing) as server:
        result = run(server.url, words, monkeypatch)
    assert result.exit_code
    assert not CONTROL.findall(result.output)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="opens a pseudo-terminal")
def test_a_log_is_cleaned_on_a_terminal_and_left_as_it_is_in_a_pipe(tmp_path: Path) -> None:
    with HostileServer() as server:
        command = [sys.executable, "-m", "edgeyard", "logs", ID]
        env = {**os.environ, "EDGEYARD_URL": server.url, "EDGEYARD_TOKEN": "ey_token"}
        env["XDG_CONFIG_HOME"] = str(tmp_path)
        reader, writer = os.openpty()
        try:
            subprocess.run(command, env=env, stdout=writer, check=True, timeout=60)
            on_terminal = os.read(reader, 65_536).decode().replace("\r\n", "\n")
        finally:
            os.close(reader)
            os.close(writer)
    assert "owned" in on_terminal
    assert not CONTROL.findall(on_terminal)
    with HostileServer() as server:
        env["EDGEYARD_URL"] = server.url
        piped = subprocess.run(command, env=env, capture_output=True, check=True, timeout=60)
    assert piped.stdout.decode() == f"line {ESCAPES}\n"
