"""HCL as HTML: names, texts and comments apart, and the lines that the scheduler decided marked."""

from __future__ import annotations

import re

from markupsafe import Markup

from edgeyard.benchmark_api.pages.page import plain

_TOKENS = re.compile(
    r"(?P<comment>#[^\n]*|//[^\n]*)"
    r'|(?P<text>"(?:\\.|[^"\\\n])*")'
    r"|(?P<number>\b\d+(?:\.\d+)?\b)"
    r"|(?P<name>\b[A-Za-z_][A-Za-z0-9_-]*(?=\s*(?:=|\{|\"[^\"\n]*\"\s*\{)))"
)

_DECIDED = re.compile(r"^\s*(priority\s*=|constraint\s*\{|affinity\s*\{|device\s)")
"""Beginnings of the lines by which the scheduler tells the cluster what it decided."""


def highlighted(hcl: str) -> Markup:
    """Return a job's text as HTML, a ``<span>`` for each line; control characters as in `plain`."""
    return Markup("\n").join(_line(each) for each in plain(hcl, len(hcl)).splitlines())


def _line(line: str) -> Markup:
    kind = "line decided" if _DECIDED.match(line) else "line"
    return Markup('<span class="{}">{}</span>').format(kind, Markup("").join(_parts(line)))


def _parts(line: str) -> list[Markup]:
    parts, at = [], 0
    for found in _TOKENS.finditer(line):
        parts.append(Markup("{}").format(line[at : found.start()]))
        parts.append(Markup('<span class="{}">{}</span>').format(found.lastgroup, found.group()))
        at = found.end()
    parts.append(Markup("{}").format(line[at:]))
    return parts
