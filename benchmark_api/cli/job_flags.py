"""Flags that set fields of a job description, and what they mean as fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypedDict

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.schemas import notation
from edgeyard.benchmark_api.schemas.job_fields import JobFields

Texts = list[str]


def _option(text: str, *names: str, metavar: str | None = None) -> object:
    return typer.Option(*names, help=text, metavar=metavar)


class JobFlags(TypedDict):
    """Flags of ``submit``, in the order of its help.

    Each sets the field of its name, or one of its `FIELDS_OF_FLAGS`; None: it was not given. A
    number, text or list that has none here gets a flag of its name, by `_add_further_flags`.
    """

    model: Annotated[
        Texts | None, _option("File, URL or name; several make a matrix.", "--model", "-m")
    ]
    runtime: Annotated[
        Texts | None, _option("Engine, e.g. ort; several make a matrix.", "--runtime", "-r")
    ]
    benchmark_type: Annotated[
        str | None,
        _option(
            "TYPE1 latency, TYPE2 accuracy, TYPE3 training, GENAI tokens per second, or a type "
            "that engines declare.",
            "--type",
            "-t",
        ),
    ]
    nb_inference: Annotated[int | None, _option("Minimum number of timed runs (TYPE1).")]
    precision: Annotated[
        str | None, _option("Measure until the p50 has this precision, e.g. '2 %'.")
    ]
    soak: Annotated[
        str | None, _option("Run for so long and find the steady part (TYPE1), e.g. 30m.")
    ]
    soak_window: Annotated[
        str | None, _option("Window of a soak that has a p50 of its own; 60 s by default.")
    ]
    concurrency: Annotated[
        str | None,
        _option("Callers at once, or several numbers of them, e.g. 1,2,4 (TYPE1)."),
    ]
    load: Annotated[
        str | None,
        _option("Queries by LoadGen's rules (TYPE1): single-stream or server."),
    ]
    load_bound: Annotated[
        str | None, _option("Latency bound of a server load at its percentile, e.g. 20ms.")
    ]
    load_percentile: Annotated[
        float | None, _option("Percentile that counts; 90 of single-stream, 99 of server.")
    ]
    load_duration: Annotated[
        str | None, _option("Minimum duration of each trial of a load; 10 s by default.")
    ]
    load_rate: Annotated[
        float | None, _option("Queries per second of a server load, without a search.")
    ]
    load_seed: Annotated[int | None, _option("Seed of the arrivals of a server load.")]
    dataset: Annotated[
        Texts | None,
        _option(
            "File, URL or name (TYPE2, TYPE3); rows of several files or URLs follow one another."
        ),
    ]
    odt_config: Annotated[str | None, _option("File, URL, name, or the JSON itself (TYPE3).")]
    inputs: Annotated[
        Texts | None,
        _option("Random data, e.g. ids=1x128:0..30522:int.", "--input", metavar="NAME=SPEC"),
    ]
    parameters: Annotated[
        Texts | None,
        _option("Parameter of the engine, e.g. threads=2.", "--parameter", metavar="NAME=VALUE"),
    ]
    sweep: Annotated[
        Texts | None,
        _option(
            "Values of a parameter, e.g. threads=1,2,4; several values make a matrix.",
            "--sweep",
            metavar="NAME=VALUES",
        ),
    ]
    profile_layers: Annotated[
        bool | None,
        typer.Option("--profile-layers", help="Also measure the time of each layer (TYPE1)."),
    ]
    keep_outputs: Annotated[
        bool | None,
        typer.Option(
            "--keep-outputs", help="Run on the arrays of --dataset and keep the outputs (TYPE1)."
        ),
    ]
    version_tag: Annotated[
        str | None, _option("Version of the engine, or its beginning, e.g. 1.20.")
    ]
    target: Annotated[
        Texts | None, _option("Family, e.g. rpi4b; several make a matrix.", "--target")
    ]
    target_uid: Annotated[str | None, _option("Id of one board.")]
    count: Annotated[
        int | None,
        _option("Boards to run on at the same time, all or none.", metavar="N"),
    ]
    ram: Annotated[str | None, _option("Minimum memory of the board, e.g. '4 GiB'.")]
    storage: Annotated[str | None, _option("Minimum storage of the board, e.g. '500 MB'.")]
    constraints: Annotated[
        Texts | None,
        _option("Further condition, e.g. 'memory.ram >= 4 GiB'.", "--constraint"),
    ]
    affinities: Annotated[
        Texts | None,
        _option(
            "Wish about the board, with its weight from -100 to 100 (default 50) before it, e.g. "
            "'80 memory.ram >= 8 GiB'.",
            "--affinity",
        ),
    ]
    spreads: Annotated[
        Texts | None,
        _option(
            "Attribute over whose values the benchmarks of a campaign are spread, with its weight "
            "from 1 to 100 (default 50) before it and percentages after it, e.g. "
            "'${meta.rack} a=70 b=30'.",
            "--spread",
        ),
    ]
    binding: Annotated[str | None, _option("Binding to the board: loose, filtered or strict.")]
    if_unavailable: Annotated[
        str | None, _option("If the board of --target-uid is unavailable: reschedule or notify.")
    ]
    user_priority: Annotated[
        int | None, _option("Priority from 1 to 10, the highest.", "--priority")
    ]
    deadline: Annotated[str | None, _option("When it expires: RFC 3339, or e.g. +2h.")]
    start_time: Annotated[str | None, _option("Earliest start: RFC 3339, or e.g. +2h.")]
    queue_timeout: Annotated[str | None, _option("Maximum wait until its task starts.")]
    user_time: Annotated[str | None, _option("Maximum run time of one attempt.")]
    max_retries: Annotated[int | None, _option("Maximum number of retries after a failure.")]
    user_budget: Annotated[float | None, _option("Maximum credits that it may cost.")]
    preemptible: Annotated[
        bool | None,
        typer.Option(
            "--preemptible/--no-preemptible",
            help="Whether a higher priority may preempt it.",
        ),
    ]
    preemptible_measuring: Annotated[
        bool | None,
        typer.Option(
            "--preemptible-measuring/--no-preemptible-measuring",
            help="Whether it may be preempted while it measures, also under spare_measuring.",
        ),
    ]
    job_completion_threshold: Annotated[
        int | None, _option("May preempt lower priorities whose progress is below this, %.")
    ]
    cron: Annotated[
        str | None, _option("Submit repeatedly: crontab of five fields, or of Nomad's seven, UTC.")
    ]
    prohibit_overlap: Annotated[
        bool | None,
        typer.Option(
            "--prohibit-overlap",
            help="Skip a firing of --cron while its previous benchmark has not ended.",
        ),
    ]
    cron_by: Annotated[
        str | None, _option("Who acts at the times of --cron: edgeyard (the default) or nomad.")
    ]
    tags: Annotated[Texts | None, _option("Tag to find it by.", "--tag")]
    name: Annotated[str | None, _option("Name of the benchmark, or of the campaign of a matrix.")]
    series: Annotated[
        str | None,
        _option("Lineage whose results are compared over time; default: the model's name."),
    ]
    git_commit: Annotated[
        str | None, _option("Commit of the model; default: what the CI's variables state.")
    ]
    link: Annotated[
        str | None, _option("Page about it; default: the job that the CI's variables state.")
    ]
    benchmark_id: Annotated[
        str | None, _option("Beginning of the benchmark's id; default: made by the server.", "--id")
    ]


FIELDS_OF_FLAGS: Mapping[str, tuple[str, ...]] = {
    "inputs": ("input",),
    "dataset": ("dataset", "dataset_urls"),
}
"""Fields that flags of other names set."""

_OTHER_FLAGS = {"model_url": "model", "input": "inputs", "dataset_urls": "dataset"}
"""Flags that state a field, too."""


def _add_further_flags() -> None:
    """Give each field that has none a flag with its name and type."""
    kinds: Mapping[str, object] = {"bool": bool, "int": int, "float": float, "Sequence[str]": Texts}
    for name, annotation in JobFields.__annotations__.items():
        if name in JobFlags.__annotations__ or name in _OTHER_FLAGS:
            continue
        stated = annotation.__forward_arg__
        if not stated.startswith(("Mapping", "Sequence[Mapping")):
            kind: Any = kinds.get(stated, str)
            text = _option(f"Field {name} of the job description.")
            JobFlags.__annotations__[name] = Annotated[kind | None, text]


_add_further_flags()

_OF_LISTS: Mapping[str, Callable[[Any], object]] = {
    **notation.PARSERS,
    "model": partial(asking.one_or_list, commas=False),
    "runtime": asking.one_or_list,
    "target": asking.one_or_list,
    "dataset": lambda values: values[0] if len(values) == 1 else values,
    "sweep": notation.sweep,
}
_OF_TEXTS: Mapping[str, Callable[[Any], object]] = {
    "odt_config": notation.odt_config,
    "deadline": partial(asking.moment, flag="--deadline"),
    "start_time": partial(asking.moment, flag="--start-time"),
}


def fields_of(flags: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a job description that flags state.

    Args:
        flags: By parameter; one that was not given is None or empty.

    Raises:
        InvalidInput: A value does not have the form of its flag.
    """
    found: dict[str, object] = {}
    for flag, given in flags.items():
        if given is None or given == []:
            continue
        name, *of_lists = FIELDS_OF_FLAGS.get(flag, (flag,))
        read = (_OF_LISTS if isinstance(given, list) else _OF_TEXTS).get(name)
        value = given if read is None else read(given)
        if value is not None:
            found[of_lists[0] if of_lists and isinstance(value, list) else name] = value
    return found
