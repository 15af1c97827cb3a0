"""``make docs``: the pages and schemas of ``docs/reference`` that are made from the code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.main import get_command

from deploy import (
    cli_page,
    count_lines,
    features_page,
    guarantees,
    sdk_page,
    settings_page,
)
from edgeyard.benchmark_api.app import openapi_document
from edgeyard.benchmark_api.cli import app
from edgeyard.benchmark_api.cli.job_flags import FIELDS_OF_FLAGS, JobFlags
from edgeyard.benchmark_api.schemas.description import description_schema
from edgeyard.devices.attributes import ENGINE_MEANINGS, MEANINGS, meaning
from edgeyard.devices.inventory_file import inventory_schema
from edgeyard.devices.metrics import STANDARD_METRICS, standard_metrics
from edgeyard.scheduler.solvers.document import DOCUMENT_SCHEMA, PLAN_SCHEMA

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _authorization() -> str:
    # The rules are those of the test, so that what is published is what is tested.
    from tests.integration.test_api_auth import page

    return page()


def _attributes() -> str:
    engine = [f"engine.NAME.{each}" for each in ENGINE_MEANINGS]
    rows = [f"| `{name}` | {meaning(name)} |" for name in (*MEANINGS, *engine)]
    head = [_ATTRIBUTES.strip(), "", "| attribute | meaning |", "| --- | --- |"]
    return "\n".join([*head, *rows, ""])


_ATTRIBUTES = """
# Attributes of boards

Made by `make docs` from `devices/attributes.py`. Hosts publish these attributes of their boards; of
a board behind ssh the host reads them over ssh when it first logs in. `--constraint` may name each
of them, for example `--constraint 'memory.ram >= 4 GiB'` or
`--constraint 'engine.ort.execution_providers set_contains CUDAExecutionProvider'`.

```console
$ edgeyard boards list                   # state, engines, memory, cores
$ edgeyard boards show emumid-0001-0001   # processor, system, accelerators, engines with versions
$ edgeyard boards attributes             # all attributes, with the values that boards have
```

In Python, `client.boards()[0]` has `cpu`, `cores`, `os`, `accelerators` and `engines`, each engine
with `version` and `execution_providers`; `client.board("rpi4b-0001-0001").attributes` has all of
them by name. What a host does not state is `None`. An inventory may state further attributes:
[attributes of your own](../how-to/inventory.md#attributes-of-your-own).

A constraint may also name an attribute of the Nomad node that the board is attached to, as Nomad
spells it: `${node.class}`, `${node.pool}`, `${node.datacenter}`, `${node.unique.id}`,
`${node.unique.name}`, `${attr.NAME}` and `${meta.NAME}`, for example
`--constraint '${meta.rack} = b'` or `--constraint '${attr.cpu.arch} set_contains_any amd64,arm64'`.
Their values are texts; `<`, `<=`, `>` and `>=` compare numbers where both sides are numbers. In the
Nomad job, constraints on the node are at the level of the job, and constraints on the board in its
device block. A change of a node's attributes
is usually seen within 70 s; until a node has been read, no constraint on its `attr` or `meta`
holds. The embedded cluster has `${attr.kernel.name}`, `${attr.cpu.arch}` and
`${attr.cpu.numcores}` of its machine.
"""


def _metrics() -> str:
    tables = [(name, metrics) for name, metrics in STANDARD_METRICS.items()]
    tables.append(("Types that engines declare", standard_metrics("TYPE4")))
    lines = [_METRICS.strip(), ""]
    for heading, metrics in tables:
        lines += [f"## {heading}", "", "| metric | unit | better | meaning |"]
        lines.append("| --- | --- | --- | --- |")
        for position, each in enumerate(metrics):
            metric = each.metric
            primary = " (primary)" if position == 0 else ""
            cells = (f"`{metric.name}`{primary}", metric.unit or "-", metric.better, metric.title)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, _DECLARED_METRICS.strip(), ""])


_METRICS = """
# Metrics

Made by `make docs` from `devices/metrics.py`. Each number of a result has a unit and a direction:
lower or higher numbers are better. One of them is the **primary** metric. Everything that shows or
compares one number of a result uses it: the tables of `results`, `list`, `wait` and `watch`,
ratios, `series`, `check`, plots, the HTML page, `edgeyard export` and data frames.

The primary metric of TYPE1, TYPE2 and TYPE3 is the p50: of an inference, a batch and a training
step. Accuracies and losses are shown beside it. They are not primary because ratios and checks
compare equal work, and for equal work the accuracy is the same on each board and in each run; what
differs is the time. Of TYPE1 by [several callers at once](../how-to/loads.md) `runs_per_s` is
primary: the throughput of all callers together. Under a load by
[LoadGen's rules](../how-to/loads.md#loadgens-rules-single-stream-and-server) it is `load_rate`, the
largest rate of queries that keeps the latency bound, or `load_latency`, the latency at the
percentile that counts, where no rate is searched. Of GENAI it is `decode_tokens_per_s`, and with
outputs of one token, which only read a prompt, `prefill_tokens_per_s`
([language models](../how-to/language-models.md)).

- `report.json`: `primary_metric` has the name; a value of `results` has `unit`, `title` (its plain
  name), `better` and `ci95`.
- `GET /v1/results`, `-o json`, `-o csv` and data frames: `primary_metric`, `primary_title`,
  `primary_unit`, `primary_better` and `primary_value` with the 95 % interval `primary_low` to
  `primary_high`, and that of another run, `primary_repeat_low` to `primary_repeat_high`. Ends
  are null where the run does not show how far they are; the report then states 1000 times the
  number, or a 1000th of it.
- Python: `client.results(id).primary`, and `.metrics` with all numbers by name.
- `edgeyard export`: `primary_metric`, `primary_unit`, `primary_better` and `primary_value` of
  `outcomes.parquet`.

Ratios are the number over that of the best one: 1 or more where lower is better, 1 or less where
higher is better. Numbers with different primary metrics, units or directions are never compared.
"""

_DECLARED_METRICS = """
The values that the engine declares come first, with unit, plain name and direction, and it states
which one is primary ([a benchmark type of your own](../how-to/benchmark-types.md)). Without a
primary value it is the p50 of the times that the engine measured.

A number whose direction is not known, such as a declared value without `better`, or an accuracy of
TYPE2 that only a runner of your own knows, is shown and exported without a direction. It is never
primary, and nothing is compared by it: a declaration that makes it primary is refused, and so is
such a report.
"""


def _events() -> str:
    from edgeyard.scheduler.model.event_types import EVENT_TYPES

    rows = "\n".join(
        f"| `{name}` | {each.text} | {'yes' if each.act else ''} | {'yes' if each.sent else ''} |"
        for name, each in EVENT_TYPES.items()
    )
    return f"""# Types of events

Each type of event and of act. Somebody did what is marked as an act: the
[log of acts](../how-to/acts.md) has a record of this type. What is marked as sent goes to
[webhooks](../how-to/webhooks.md).

| type | what happened | act | sent |
| --- | --- | --- | --- |
{rows}
"""


def _job_description() -> str:
    schema: Any = description_schema()
    flags = submit_flags()
    parts = [_FIELDS.strip(), "", *_table(schema["properties"], schema.get("required", ()), flags)]
    described = (
        ("ConstraintIn", "constraints"),
        ("AffinityIn", "affinities"),
        ("SpreadIn", "spreads"),
        ("InputSpec", "input"),
    )
    for name, of in described:
        found = schema["$defs"][name]
        parts += ["", f"## A value of `{of}`", "", found["description"], ""]
        parts += _table(found["properties"], found.get("required", ()))
    return "\n".join([*parts, "", _SECTIONS.strip(), ""])


def submit_flags() -> Mapping[str, str]:
    """Return the flag of `edgeyard submit` for each field of the job description that has one."""
    options = {
        str(each.name): each.opts[0]
        for each in get_command(app).commands["submit"].params  # type: ignore[attr-defined]
    }
    return {
        field: options[name]
        for name in JobFlags.__annotations__
        for field in FIELDS_OF_FLAGS.get(name, (name,))
    }


def _table(
    properties: Mapping[str, Any], required: Sequence[str], flags: Mapping[str, str] | None = None
) -> list[str]:
    more = () if flags is None else ("flag",)
    titles = ("field", *more, "type", "default", "meaning")
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for name, facts in properties.items():
        default = "required" if name in required else json.dumps(facts.get("default"))
        flag = () if flags is None else (f"`{flags[name]}`" if name in flags else "",)
        cells = (f"`{name}`", *flag, _type(facts), default, str(facts.get("description", "")))
        lines.append("| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |")
    return lines


def _type(facts: Mapping[str, Any]) -> str:
    """Return the type of a field in a few words."""
    if "anyOf" in facts:
        kinds = (_type(each) for each in facts["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in facts:
        return ", ".join(f"`{each}`" for each in facts["enum"])
    if "const" in facts:
        return f"`{facts['const']}`"
    kind = {"array": "list", "string": "text", "object": "object"}.get(facts.get("type", ""))
    return kind or str(facts.get("type", "any"))


_FIELDS = """
# Job description

Made from the schema by `make docs`; do not edit. A job file is YAML or JSON with these fields;
[its JSON Schema](job-description.schema.json) lets editors complete them. The
keyword arguments of the SDK have the same names; the column *flag* has those of `edgeyard submit`.

```yaml
version: 1
model: net.onnx               # a file next to this one, a URL, or the name of an uploaded file
runtime: ort
benchmark_type: TYPE1
target: rpi4b
precision: 2 %
constraints:
  - {attribute: memory.ram, operator: ">=", value: 4 GiB}
tags: [nightly]
```

`model`, `target` and `runtime` may be lists, and `sweep` has lists of values of parameters, e.g.
`{threads: [1, 2, 4]}`: each combination is a benchmark of a campaign. In
`POST /v1/campaigns` they are in `matrix`, and the values of parameters are its `parameters`.
A key that is there twice is refused. In YAML a text that looks like a number, true or false needs
quotes: `version_tag: "1.30"`, `tags: ["no"]`.
"""

_SECTIONS = """
## Which board: `target`, `target_uid`, `constraints`, `binding`

`target` is a family: any of its boards that fits. `target_uid` is one board. `ram`, `storage` and
`constraints` exclude boards; what no board of the lab could ever meet is refused at submission,
with the values that exist. `edgeyard boards attributes` lists what constraints may name.

`binding` states how much of the choice the cluster makes itself:

| `binding` | the job states | use it |
| --- | --- | --- |
| `loose` | family, engine and type; the cluster takes any such board | to let Nomad choose |
| `filtered` | all requirements and the boards that the scheduler allows | usually |
| `strict` | one board, the one that the scheduler chose | to hold the scheduler to its decision |

With `target_uid` the binding is `strict` unless you state another one.

## To find it again: `name`, `tags`

`name` names the benchmark, or the campaign of a matrix (`edgeyard campaigns show NAME`). `tags` are
up to 20 labels: `edgeyard list --tag nightly`, `edgeyard results --tag nightly`,
`edgeyard check --baseline nightly --model net.onnx`.
"""


DOCUMENTS: Mapping[str, Callable[[], str]] = {
    "openapi.json": lambda: _json(openapi_document()),
    "job-description.schema.json": lambda: _json(description_schema()),
    "job-description.md": _job_description,
    "inventory.schema.json": lambda: _json(inventory_schema()),
    "ilp-document.schema.json": lambda: _json(DOCUMENT_SCHEMA),
    "ilp-plan.schema.json": lambda: _json(PLAN_SCHEMA),
    "features.md": features_page.page,
    "settings.md": settings_page.page,
    "cli.md": cli_page.page,
    "sdk.md": sdk_page.page,
    "authorization.md": _authorization,
    "attributes.md": _attributes,
    "metrics.md": _metrics,
    "events.md": _events,
    "guarantee-tests.md": guarantees.page,
}
"""By file name; a test fails while one of them is not what the code makes."""


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in DOCUMENTS.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
    count_lines.write()


if __name__ == "__main__":
    main()
