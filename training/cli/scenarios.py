"""``scenarios``: ScenarioDB, the database of scenarios."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

import typer

from edgeyard.benchmark_api.cli.output import (
    Column,
    Row,
    console,
    emit,
    emit_one,
    field,
    local_time,
    size,
    table,
)
from edgeyard.benchmark_api.cli.output_files import check_output, write_output
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, verb
from edgeyard.benchmark_api.cli.progress import progress_bar
from edgeyard.errors import InvalidInput
from edgeyard.simulator.cli.scenario_db import Db, Limit, ScenarioDb, emit_newest, scenario_db
from edgeyard.simulator.cli.scenario_files import (
    check_scenario_file,
    scenario_text,
    write_scenario,
)
from edgeyard.training.importers.detect import TraceFormat, detect_format

if TYPE_CHECKING:
    from edgeyard.benchmark_api.schemas import answers as shapes
    from edgeyard.simulator.importers.machines import ImportedScenario, Selection
    from edgeyard.simulator.scenario import NodeGroup, Scenario
    from edgeyard.training.generators.lublin import LublinOptions

Reference = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="Name of the scenario (the newest of that name), its hash, or at least the first 6 "
        "digits of the hash.",
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Tag of scenarios; may be repeated."),
]

_COLUMNS = (
    Column(title="SCENARIO", of=lambda row: str(row["sha256"])[:12], whole=True),
    Column(title="NAME", of=field("name"), whole=True),
    Column(title="WORLD", of=field("world"), whole=True),
    Column(title="JOBS", of=lambda row: _count(row.get("jobs")), right=True, whole=True),
    Column(title="DURATION", of=lambda row: _duration(row["duration_s"]), right=True, whole=True),
    Column(title="SEED", of=field("seed"), right=True, whole=True, from_width=100),
    Column(title="STORED", of=lambda row: local_time(row["created_at"]), from_width=100),
    Column(title="TAGS", of=field("tags")),
    Column(title="FROM", of=field("source"), shorten=True),
)


class World(StrEnum):
    """Values of ``--world``."""

    BOARDS = "boards"
    NODES = "nodes"


class Form(StrEnum):
    """Values of ``--form`` of ``export``."""

    TOML = "toml"
    JSON = "json"


def _count(jobs: object) -> str:
    return "drawn" if jobs is None else f"{jobs:,}"


def _duration(seconds: object) -> str:
    assert isinstance(seconds, int | float)
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def scenarios_list(
    session: Session,
    db: Db = None,
    name: Annotated[str | None, typer.Option(help="Only scenarios of this name.")] = None,
    world: Annotated[World | None, typer.Option(help="Only scenarios of this world.")] = None,
    tag: Tags = None,
    limit: Limit = 50,
) -> None:
    """List stored scenarios, newest first. With several --tag: those that have all of them."""
    with scenario_db(session, db) as scenarios:
        found = scenarios.newest(name, None if world is None else world.value, tag or (), limit + 1)
    emit_newest(session, [_row(each) for each in found], _COLUMNS, limit, "scenarios")


def scenarios_show(session: Session, scenario: Reference, db: Db = None) -> None:
    """Show what is known of a scenario; `export` prints its content."""
    with scenario_db(session, db) as scenarios:
        row = _row(scenarios.get(scenario))
    rows = [{"field": key.replace("_", " "), "value": value} for key, value in row.items()]
    columns = (Column(title="FIELD", of=field("field")), Column(title="VALUE", of=_value))
    emit_one(session.output, row, table(rows, columns, console().width))


def _value(row: Row) -> str:
    if row["field"] == "size bytes":
        return size(row["value"])
    return field("value")(row)


class Kind(StrEnum):
    """Kinds of scenarios that ``scenarios generate`` makes."""

    POISSON = "poisson"
    BERNOULLI = "bernoulli"
    DIURNAL = "diurnal"
    BURSTS = "bursts"
    OVERLOAD = "overload"
    NEW_FAMILY = "new-family"
    TOPOLOGY = "topology"
    PAPER = "paper"
    PAPER_POISSON = "paper-poisson"
    LUBLIN = "lublin"


class GenerateFlags(TypedDict):
    """Flags of ``scenarios generate`` that apply to some kinds only; None: not given."""

    rate: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            help="Labs: arrivals an hour; default: as --load states. paper and paper-poisson: "
            "arrivals a step; default: 0.7.",
        ),
    ]
    load: Annotated[
        float | None,
        typer.Option(
            metavar="L",
            help="Labs: work that arrives, as a share of what the boards can run, instead of "
            "--rate; "
            "default: 0.7 (0.5 with bursts). lublin: as a share of what the processors can run; "
            "default: the model's.",
        ),
    ]
    boards: Annotated[
        int | None, typer.Option(min=1, max=9999, help="Labs: number of boards; default: 20.")
    ]
    duration: Annotated[
        str | None, typer.Option(help="Labs: time during which benchmarks arrive; default: '1 d'.")
    ]
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="new-family: when the family joins; topology: when boards leave and join; "
            "default: after half of --duration.",
        ),
    ]
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="paper kinds: number of nodes; default: 1."),
    ]
    steps: Annotated[
        int | None,
        typer.Option(
            min=2, max=1_000_000, help="paper kinds: steps in which jobs arrive; default: 50."
        ),
    ]
    rows: Annotated[
        bool | None,
        typer.Option(
            "--rows", help="paper: write the jobs themselves instead of how they are drawn."
        ),
    ]
    jobs: Annotated[
        int | None, typer.Option(min=1, max=300_000, help="lublin: number of jobs; default: 10000.")
    ]
    processors: Annotated[
        int | None,
        typer.Option(min=8, max=1_000_000, help="lublin: processors of the machine; default: 128."),
    ]


_PAPER = (Kind.PAPER, Kind.PAPER_POISSON)
_FLAGS = {
    "labs": frozenset({"--rate", "--load", "--boards", "--duration", "--at"}),
    "paper kinds": frozenset({"--rate", "--nodes", "--steps", "--rows"}),
    "lublin": frozenset({"--load", "--jobs", "--processors"}),
}
"""Flags that apply to some kinds of scenarios only."""


def scenarios_generate(
    session: Session,
    kind: Annotated[
        Kind,
        typer.Argument(
            help="paper and paper-poisson: jobs of the A2cScheduler paper on nodes; lublin: a log "
            "of a parallel machine, by the model of Lublin and Feitelson; all others: a lab of "
            "boards."
        ),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the scenario; default: the kind and the seed.")
    ] = None,
    tag: Tags = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a TOML or .json file instead of storing it; with lublin also a log in the "
            "Standard Workload Format, .swf.",
        ),
    ] = None,
    db: Db = None,
    **flags: Unpack[GenerateFlags],
) -> None:
    """Make a scenario of a stated kind; the same options and seed make the same one."""
    _refuse_flags(kind, flags)
    log = out if kind is Kind.LUBLIN and out is not None and out.suffix == ".swf" else None
    if out is not None:
        (check_scenario_file if log is None else check_output)(out, "--out")
    chosen = name or f"{kind.value}-{seed}"
    if log is not None:
        from edgeyard.training.generators.lublin import lublin_log

        if tag:
            raise InvalidInput.at("--tag", "is not for .swf files", "a .toml or .json file")
        write_output(log, "--out", lublin_log(_lublin_options(chosen, seed, flags)))
        session.report(f"{chosen} is in {log}")
        return
    scenario = _generated(kind, chosen, seed, flags)
    finish(session, db, scenario, tag or (), f"generate {kind.value}", out)


def _refuse_flags(kind: Kind, flags: GenerateFlags) -> None:
    """Refuse flags of other kinds and values out of range.

    Raises:
        InvalidInput: There are such.
    """
    group = "paper kinds" if kind in _PAPER else "lublin" if kind is Kind.LUBLIN else "labs"
    for name, value in flags.items():
        flag = f"--{name}"
        if value is not None and flag not in _FLAGS[group]:
            kinds = " and ".join(each for each, known in _FLAGS.items() if flag in known)
            raise InvalidInput.at(flag, f"is not for {kind.value}", f"{flag} with {kinds} only")
    if flags["at"] is not None and kind not in (Kind.NEW_FAMILY, Kind.TOPOLOGY):
        raise InvalidInput.at(
            "--at", f"is not for {kind.value}", "--at with new-family and topology only"
        )
    rate, load = flags["rate"], flags["load"]
    if rate is not None and load is not None:
        raise InvalidInput.at("--load", "can't be combined with --rate", "one of the two")
    for flag, share in (("--rate", rate), ("--load", load)):
        if share is not None and not 0 < share <= 1e6:
            raise InvalidInput.at(flag, f"is {share:g}", "a number above 0, up to 1000000")
    if kind is Kind.PAPER and rate is not None and rate > 1:
        raise InvalidInput.at("--rate", f"is {rate:g}", "a probability: above 0, up to 1")


def _generated(kind: Kind, name: str, seed: int, flags: GenerateFlags) -> Scenario:
    from edgeyard.benchmark_api.cli import asking
    from edgeyard.simulator.generators.labs import LAB_KINDS, LabOptions
    from edgeyard.simulator.scenario import DAY_S
    from edgeyard.training.generators.lublin import lublin
    from edgeyard.training.generators.paper import PAPER_KINDS, PaperOptions

    if kind is Kind.LUBLIN:
        return lublin(_lublin_options(name, seed, flags))
    if kind in _PAPER:
        return PAPER_KINDS[kind.value](
            PaperOptions(
                name=name,
                seed=seed,
                rate=0.7 if flags["rate"] is None else flags["rate"],
                steps=50 if flags["steps"] is None else flags["steps"],
                nodes=flags["nodes"] or 1,
                rows=bool(flags["rows"]),
            )
        )
    lasts_s = asking.seconds(flags["duration"], "--duration")
    if lasts_s == 0:
        raise InvalidInput.at("--duration", "is 0", "a time above 0, e.g. '8 h'")
    return LAB_KINDS[kind.value](
        LabOptions(
            name=name,
            seed=seed,
            boards=flags["boards"] or 20,
            duration_s=lasts_s or DAY_S,
            rate_per_hour=flags["rate"],
            load=flags["load"],
            at_s=asking.seconds(flags["at"], "--at"),
        )
    )


def _lublin_options(name: str, seed: int, flags: GenerateFlags) -> LublinOptions:
    from edgeyard.training.generators.lublin import LublinOptions

    return LublinOptions(
        name=name,
        seed=seed,
        jobs=flags["jobs"] or 10_000,
        processors=flags["processors"] or 128,
        load=flags["load"],
    )


def scenarios_import(
    session: Session,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A scenario (.toml, .json), a log or trace, or a folder."
        ),
    ],
    db: Db = None,
    tag: Tags = None,
    trace_format: Annotated[
        TraceFormat | None,
        typer.Option(
            "--format",
            help="swf: a log in the Standard Workload Format; supercloud: jobs of the MIT "
            "SuperCloud or of DECICE; alibaba: pods of the GPU trace of 2023; edgeyard: a folder "
            "of `edgeyard export`. Default: recognised by the file's name and first line.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the scenario; default: that of the file.")
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Nodes of a trace: node_id,cpu_cores,memory (MB),cpu_load,memory_load; with "
            "alibaba the trace's own list of nodes.",
        ),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COUNTx]CORES:MB[:GPUS]",
            help="Nodes of a trace, instead of --nodes; may be repeated.",
        ),
    ] = None,
    skip: Annotated[int, typer.Option(metavar="N", min=0, help="Skip the first N jobs.")] = 0,
    count: Annotated[
        int | None, typer.Option(metavar="M", min=1, help="Import at most M jobs.")
    ] = None,
    drop_large: Annotated[
        bool,
        typer.Option("--drop-large", help="Leave out jobs that no node can run."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a TOML or .json file instead of storing it."),
    ] = None,
) -> None:
    """Store a scenario, or a log of another cluster as one.

    Logs are read by the rules of docs/how-to/scenarios.md: what they leave out or change is
    reported, everything else that is wrong is an error with line and field, and stores nothing.
    """
    if out is not None:
        check_scenario_file(out, "--out")
    from edgeyard.simulator.importers.machines import Selection

    chosen = trace_format or detect_format(file)
    given = {
        "--name": name is not None,
        "--nodes": nodes is not None,
        "--node": bool(node),
        "--skip": skip > 0,
        "--count": count is not None,
        "--drop-large": drop_large,
    }
    for flag in (each for each, is_given in given.items() if is_given):
        if flag not in _OPTIONS[chosen]:
            others = ", ".join(each.value for each in TraceFormat if flag in _OPTIONS[each])
            accepted = f"{flag} with {others} files only"
            raise InvalidInput.at(flag, f"is not for {chosen.value} files", accepted)
    selection = Selection(
        name=name or _plain_name(file), skip=skip, count=count, drop_large=drop_large
    )
    with progress_bar() as advanced:
        imported = _imported(
            chosen, file, selection, nodes, node or [], partial(advanced, "reading")
        )
    for each in imported.notes:
        session.report(f"{file.name}: {each}")
    finish(session, db, imported.scenario, tag or (), f"import {file.name}", out)


_TRACE_FLAGS = frozenset({"--name", "--node", "--skip", "--count", "--drop-large"})
_OPTIONS: Mapping[TraceFormat, frozenset[str]] = {
    TraceFormat.SCENARIO: frozenset(),
    TraceFormat.SWF: _TRACE_FLAGS | {"--nodes"},
    TraceFormat.SUPERCLOUD: _TRACE_FLAGS | {"--nodes"},
    TraceFormat.ALIBABA: (_TRACE_FLAGS - {"--node"}) | {"--nodes"},
    TraceFormat.EDGEYARD: frozenset({"--name", "--skip", "--count"}),
}


def _imported(
    chosen: TraceFormat,
    file: Path,
    selection: Selection,
    nodes: Path | None,
    node: list[str],
    advanced: Callable[[float], None],
) -> ImportedScenario:
    from edgeyard.simulator.importers.machines import ImportedScenario, read_nodes

    if chosen is TraceFormat.SCENARIO:
        from edgeyard.simulator.scenario import load_scenario

        return ImportedScenario(scenario=load_scenario(file))
    if chosen is TraceFormat.EDGEYARD:
        from edgeyard.simulator.importers.history import import_history

        return import_history(file, selection, advanced=advanced)
    if chosen is TraceFormat.ALIBABA:
        from edgeyard.training.importers.alibaba import import_alibaba

        if nodes is None:
            accepted = "--nodes openb_node_list_all_node.csv, from the folder of the list of pods"
            raise InvalidInput.at("--nodes", "is missing", accepted)
        return import_alibaba(file, selection, nodes=nodes, advanced=advanced)
    if nodes is not None and node:
        raise InvalidInput.at("--node", "can't be combined with --nodes", "one of the two")
    groups = read_nodes(nodes) if nodes is not None else _groups(node)
    if chosen is TraceFormat.SWF:
        from edgeyard.training.importers.swf import import_swf

        return import_swf(file, selection, nodes=groups, advanced=advanced)
    from edgeyard.training.importers.supercloud import import_supercloud

    return import_supercloud(file, selection, nodes=groups, advanced=advanced)


def _groups(node: list[str]) -> tuple[NodeGroup, ...]:
    """Return the groups that ``--node`` states."""
    from edgeyard.simulator.scenario import NodeGroup

    groups = []
    for number, text in enumerate(node, 1):
        found = re.fullmatch(r"(?:(\d{1,7})x)?(\d{1,7}):(\d{1,12})(?::(\d{1,7}))?", text)
        if found is None or not int(found[2]) or not int(found[3]) or found[1] == "0":
            raise InvalidInput.at(
                "--node", f"cannot read {text!r}", "[COUNTx]CORES:MB[:GPUS], e.g. 224x40:393216:2"
            )
        groups.append(
            NodeGroup(
                count=int(found[1] or 1),
                cpu_cores=int(found[2]),
                memory_mb=int(found[3]),
                gpus=int(found[4] or 0),
                name=f"node{number}",
            )
        )
    return tuple(groups)


def _plain_name(file: Path) -> str:
    """Return the name of a file without its ends, as the name of a scenario."""
    stem = re.sub(r"(\.(gz|csv|swf|parquet))+$", "", file.resolve().name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:100] or "trace"


def finish(
    session: Session,
    db: str | None,
    scenario: Scenario,
    tags: Sequence[str],
    source: str,
    out: Path | None,
) -> None:
    """Write a scenario to a file, or store it where none is named."""
    if out is None:
        store(session, db, scenario, tags, source)
        return
    import msgspec

    tagged = msgspec.structs.replace(scenario, tags=tuple(sorted({*scenario.tags, *tags})))
    write_scenario(out, "--out", tagged)
    session.report(f"{scenario.name} is in {out}")


def store(
    session: Session, db: str | None, scenario: Scenario, tags: Sequence[str], source: str
) -> None:
    """Store a scenario and report it."""
    with scenario_db(session, db) as scenarios:
        stored = scenarios.add(scenario, tags, source)
    if stored.name != scenario.name:
        session.report(f"the same scenario is stored already, as {stored.name}")
    emit(session.output, [_row(stored)], _COLUMNS, "")


def scenarios_pull(
    session: Session,
    prometheus: Annotated[
        str,
        typer.Argument(metavar="PROMETHEUS", help="URL of Prometheus, such as http://host:9090."),
    ],
    window: Annotated[
        str, typer.Option(help="Length of a scenario; windows begin at multiples of it.")
    ] = "1 h",
    step: Annotated[str, typer.Option(help="Time between two samples.")] = "15 s",
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="Keep running: pull each window when it is over, until Ctrl-C."
        ),
    ] = False,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Queries and labels; default: those for node_exporter and Nomad.",
        ),
    ] = None,
    tag: Tags = None,
    db: Db = None,
) -> None:
    """Store what a Prometheus has recorded: the windows since the last one that is stored.

    The first time it is the newest window that is over. If Prometheus does not answer, what is
    stored stays; with --follow it is asked again, and then for all windows that were missed.
    """
    from edgeyard.benchmark_api.cli import asking
    from edgeyard.benchmark_api.prometheus import Prometheus
    from edgeyard.simulator.importers.prometheus import Pull, Queries, read_queries, source_of
    from edgeyard.simulator.scenario_puller import ScenarioPuller

    server = Prometheus(prometheus)
    pull = Pull(
        query=server.query_range,
        queries=Queries() if queries is None else read_queries(queries),
        window_s=asking.seconds(window, "--window") or 3600.0,
        step_s=asking.seconds(step, "--step") or 15.0,
    )
    with contextlib.closing(server), scenario_db(session, db) as scenarios:
        pulled = _PulledBySession(scenarios, source_of(prometheus), tag or ())
        puller = ScenarioPuller(
            pull, pulled, lambda: datetime.now(UTC), lambda kind, sentence: session.report(sentence)
        )
        while follow:
            time.sleep(puller.turn())
        puller.pull_due()
    if pulled.rows:
        emit(session.output, pulled.rows, _COLUMNS, "")
    else:
        emit(session.output, [], _COLUMNS, "no window is over since the last one, or nothing ran")


class _PulledBySession:
    """Pulled scenarios in the ScenarioDB of the command line."""

    def __init__(self, scenarios: ScenarioDb, source: str, tags: Sequence[str]) -> None:
        self._scenarios, self._source, self._tags = scenarios, source, tags
        self.rows: list[Row] = []

    def newest(self) -> tuple[str, float] | None:
        found = self._scenarios.newest(None, World.NODES.value, ["pulled"], 1000)
        own = [each for each in found if each.source == self._source]
        return (own[0].name, own[0].duration_s) if own else None

    def add(self, scenario: Scenario) -> None:
        self.rows.append(_row(self._scenarios.add(scenario, self._tags, self._source)))


def scenarios_export(
    session: Session,
    scenario: Reference,
    db: Db = None,
    form: Annotated[
        Form | None, typer.Option(help="Default: by the end of the file's name; TOML on stdout.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
) -> None:
    """Write the content of a scenario, as it is simulated and imported."""
    if form is None and session.output is Output.CSV:
        raise InvalidInput.at("-o", "csv is not a format of scenarios", "--form toml or json")
    if form is None and session.output is Output.JSON:
        form = Form.JSON
    if out is not None:
        check = check_scenario_file if form is None else check_output
        check(out, "--out")
    with scenario_db(session, db) as scenarios:
        content = scenarios.content(scenario)
    if out is None:
        sys.stdout.write(scenario_text(content, as_json=form is Form.JSON))
        return
    if form is None:
        write_scenario(out, "--out", content)
    else:
        write_output(out, "--out", scenario_text(content, as_json=form is Form.JSON))
    session.report(f"{content.name} is in {out}")


@act
def scenarios_tag(
    session: Session,
    scenario: Reference,
    add: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TAG", help="May be repeated.")
    ] = None,
    db: Db = None,
) -> None:
    """Add tags to a scenario, and remove others."""
    if not add and not remove:
        raise InvalidInput.at("TAG", "is missing", "tags to add, or --remove TAG")
    with scenario_db(session, db) as scenarios:
        stored = scenarios.tag(scenario, add or (), remove or ())
    emit(session.output, [_row(stored)], _COLUMNS, "")


@act
def scenarios_remove(session: Session, scenario: Reference, db: Db = None) -> None:
    """Remove a scenario of which no simulation is stored."""
    with scenario_db(session, db) as scenarios:
        stored = scenarios.remove(scenario)
    session.report(f"{stored.name} ({stored.sha256[:12]}) is removed")


def _row(stored: shapes.Scenario) -> Row:
    from edgeyard.benchmark_api.schemas.answers import as_json

    return as_json(stored)


def add_to(app: typer.Typer) -> None:
    """Register the group with its commands."""
    group = add_group(
        app,
        "scenarios",
        "ScenarioDB: generate, import, store and export scenarios of simulations. "
        "Without --url or --profile in a local database.",
    )
    verb(group, "list")(scenarios_list)
    verb(group, "show")(scenarios_show)
    verb(group, "generate")(scenarios_generate)
    verb(group, "import")(scenarios_import)
    verb(group, "pull")(scenarios_pull)
    verb(group, "export")(scenarios_export)
    verb(group, "tag")(scenarios_tag)
    verb(group, "remove")(scenarios_remove)
