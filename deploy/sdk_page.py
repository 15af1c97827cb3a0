"""``docs/reference/sdk.md``, made from signatures and docstrings by ``make docs``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ForwardRef, get_overloads

from edgeyard.benchmark_api import sdk
from edgeyard.benchmark_api.schemas.description import JobDescriptionIn

_INTRODUCTION = """\
# The SDK

Made from the program by `make docs`; do not edit. `from edgeyard import Client` is all that most
programs need; the other names are in `edgeyard.benchmark_api.sdk`.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION, "## Client\n", _docstring(sdk.Client)]
    parts += _methods(sdk.Client, "###")
    for name in sorted(set(sdk.__all__) - {"Client"}):
        shown = getattr(sdk, name)
        parts.append(f"## {name}\n")
        if inspect.isfunction(shown):
            parts += [_signature(shown, name), _docstring(shown)]
        else:
            parts += [_docstring(shown), *_fields(shown), *_methods(shown, "###")]
    return "\n".join(parts).rstrip() + "\n"


def _docstring(of: Any) -> str:
    """Return a docstring as Markdown: sections as text blocks, as they stand in the code."""
    text, _, rest = (inspect.getdoc(of) or "").partition("\n\n")
    block = f"\n```text\n{rest}\n```\n" if rest else ""
    return f"{text}\n{block}"


def _fields(of: Any) -> Iterator[str]:
    """Yield a table of the fields of a type, with what the job description says of them."""
    if issubclass(of, Exception):
        return
    types = {
        name: kind
        for base in reversed(inspect.getmro(of))
        for name, kind in inspect.get_annotations(base).items()
        if not name.startswith("_")
    }
    if not types:
        return
    if of in (sdk.JobFields, sdk.JobChanges):
        yield "| field | type | meaning |\n| --- | --- | --- |"
        for name, kind in types.items():
            meaning = JobDescriptionIn.model_fields[name].description
            yield f"| `{name}` | `{_text(kind)}` | {meaning or ''} |"
    else:
        yield "| field | type |\n| --- | --- |"
        yield from (f"| `{name}` | `{_text(kind)}` |" for name, kind in types.items())
    yield ""


def _text(kind: Any) -> str:
    """Return an annotation as it is written, with the bars of unions escaped."""
    text = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", str(kind))
    return text.replace("shapes.", "").replace("|", "\\|")


def _methods(of: Any, heading: str) -> Iterator[str]:
    for name, method in vars(of).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        yield f"{heading} {of.__name__}.{name}\n"
        for each in get_overloads(method) or [method]:
            yield _signature(each, name)
        yield _docstring(method)


def _signature(of: Any, name: str) -> str:
    parameters = [
        _parameter(each)
        for each in inspect.signature(of).parameters.values()
        if each.name != "self"
    ]
    result = str(inspect.signature(of).return_annotation).replace("shapes.", "")
    return f"```python\n{name}({', '.join(parameters)}) -> {result}\n```\n"


def _parameter(of: inspect.Parameter) -> str:
    """Return a parameter as it is written; a function as its default is shown as "..."."""
    if isinstance(of.annotation, ForwardRef):
        of = of.replace(annotation=of.annotation.__forward_arg__)
    text = str(of).replace("'", "").replace("shapes.", "")
    return text.replace(repr(of.default), "...") if inspect.isfunction(of.default) else text
