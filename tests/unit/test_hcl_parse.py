from __future__ import annotations

import pytest

from edgeyard.errors import HclError
from edgeyard.scheduler.hcl.build import build_job
from edgeyard.scheduler.hcl.parse import LIMIT_CHARACTERS, parse_job
from edgeyard.scheduler.hcl.render import render
from tests.builders.hcl import PLATFORM_SETTINGS, a_request

TEXT = render(build_job(a_request(), PLATFORM_SETTINGS))

DISCONNECT = """    disconnect {{
      lost_after = "60s"
      replace    = {}
    }}
"""


def edited(old: str, new: str) -> str:
    assert TEXT.count(old) >= 1
    return TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (edited("  group ", "  vault {}\n  group "), "'vault'"),
        (edited("  group ", "  migrate {\n  }\n  group "), "'migrate'"),
        (edited("  group ", "  spread {\n  }\n  group "), "attribute is missing"),
        (edited("    count = 1", "    counts = 1"), "'counts'"),
        (edited("      driver = ", '      user = "root"\n      driver = '), "'user'"),
        (edited('network_mode = "host"', 'volumes = ["/:/host"]'), "'volumes'"),
        (edited('operator  = "="', 'operator  = "~"'), "'~'"),
        (edited('operator  = "="', 'operator  = "distinct_property"'), "distinct_property"),
        (edited("priority = 80", 'priority = "80"'), "priority"),
        (edited("priority = 80", "priority = 40 + 40"), "priority"),
        (edited("priority = 80", "priority = true"), "priority"),
        (edited("priority = 80", "priority = null"), "priority"),
        (edited("priority = 80", "priority = 80\n  priority = 81"), "twice"),
        (edited("priority = 80", "priority = 80 all_at_once = true"), "line of its own"),
        (edited("priority = 80", ""), "priority is missing"),
        (edited("attempts = 0", "attempts = 3"), "restart"),
        (edited("    restart {", DISCONNECT.format("true") + "    restart {"), "replace"),
        (edited('TARGET = "rpi4b"', 'TARGET = "${upper("x")}"'), "upper"),
        (edited('TARGET = "rpi4b"', 'TARGET = "%{ if true }x%{ endif }"'), "if true"),
        (edited('TARGET = "rpi4b"', 'TARGET = "a\\qb"'), "escape"),
        (edited('TARGET = "rpi4b"', 'TARGET = "a\nb"'), "control"),
        (edited('TARGET = "rpi4b"', 'TARGET = "$${ open"'), "line"),
        (edited('TARGET = "rpi4b"', "TARGET = <<E\nx\nE\n"), "TARGET"),
        (edited('mode        = "file"', 'headers {\n a = "b"\n }'), "'headers'"),
        (edited('kill_timeout = "5s"', 'kill_timeout = "5m"'), "kill_timeout"),
        (edited('task "bootstrap-job"', "task"), "label"),
        (TEXT + 'job "second" {\n}\n', "more than 1"),
        (TEXT + 'variable "x" {\n}\n', "'variable'"),
        ("job {", "line"),
        ("", "'job' is missing"),
        ("#" * (LIMIT_CHARACTERS + 1), "longer"),
    ],
)
def test_what_is_not_known_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(HclError) as raised:
        parse_job(text)
    assert named in str(raised.value)


def test_a_number_in_the_environment_becomes_text_as_in_nomad() -> None:
    assert parse_job(edited('NB_INFERENCE = "20"', "NB_INFERENCE = 20")).env["NB_INFERENCE"] == "20"


def test_comments_tabs_and_carriage_returns_mean_nothing() -> None:
    noisy = "// first\n/* and\nmore */\n" + TEXT.replace("  ", "\t").replace("\n", " # x\n")
    assert parse_job(noisy) == parse_job(TEXT)
    assert parse_job(TEXT.replace("\n", "\r\n")) == parse_job(TEXT)


def test_usual_escapes_are_read_as_nomad_reads_them() -> None:
    text = edited('VERSION_TAG = ""', r'VERSION_TAG = "a\"\\\n\t\u00e9$${x}%%{y}"')
    assert parse_job(text).env["VERSION_TAG"] == 'a"\\\n\té${x}%{y}'
