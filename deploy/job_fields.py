"""``make docs``: the SDK's type of a job description, from its schema.

It is a module, because SDK and command line run without pydantic, and checkers of types read no
schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgeyard.benchmark_api.schemas.description import description_schema

FILE = Path(__file__).parents[1] / "benchmark_api/schemas/job_fields.py"

SERVER_ONLY = ("version", "user_id", "submit_time")
"""Fields that the server sets."""

_ARGUMENTS = ("model", "runtime", "benchmark_type", "target", "count")
"""Fields that `Client.submit` has as arguments."""

_LOCAL = {
    "model": "str | Path",
    "dataset": "str | Path | Mapping[str, ArrayLike]",
    "dataset_urls": "Sequence[str | Path]",
    "odt_config": "str | Path | Mapping[str, object]",
}
"""Types of fields for which the SDK also takes what it uploads."""

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def page() -> str:
    """Return the module."""
    fields: Mapping[str, Any] = description_schema()["properties"]  # type: ignore[assignment]
    shown = {name: fields[name] for name in fields if name not in SERVER_ONLY}
    return "\n".join(
        (
            '"""The fields of a job description; made by `make docs` from its schema."""\n',
            "from __future__ import annotations\n",
            "from collections.abc import Mapping, Sequence",
            "from pathlib import Path",
            "from typing import TYPE_CHECKING, TypedDict\n",
            "if TYPE_CHECKING:",
            "    from numpy.typing import ArrayLike\n\n",
            "class JobFields(TypedDict, total=False):",
            '    """Fields of a job description next to model, runtime, benchmark type, target and '
            'count."""\n',
            *(_field(name, shown[name]) for name in shown if name not in _ARGUMENTS),
            "\n\nclass JobChanges(JobFields, total=False):",
            '    """All fields of a job description, for what differs in a clone."""\n',
            *(_field(name, shown[name]) for name in _ARGUMENTS),
            "",
        )
    )


def _field(name: str, facts: Mapping[str, Any]) -> str:
    return f"    {name}: {_LOCAL.get(name) or ' | '.join(dict.fromkeys(_types(facts)))}"


def _types(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the types of the values that a schema allows; None stands for a field's absence."""
    if "anyOf" in facts:
        for each in facts["anyOf"]:
            yield from _types(each)
    elif "$ref" in facts:
        yield "Mapping[str, object]"
    elif facts["type"] == "array":
        yield f"Sequence[{' | '.join(_types(facts['items']))}]"
    elif facts["type"] == "object":
        members = facts["additionalProperties"]
        yield f"Mapping[str, {'object' if members is True else ' | '.join(_types(members))}]"
    elif facts["type"] != "null":
        yield _TYPES[facts["type"]]


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
